"""Requests that no honest client sends.  None may end a process, make it grow for good, or bring out XML that botocore cannot read.

Right answers: the EC2 API reference's error codes, RFC 9112, XML 1.0 section 2.2.
"""
import base64
import concurrent.futures
import datetime
import gzip
import http.client
import os
import random
import socket
import ssl
import string
import sys
import time
import unittest
import urllib.parse
import xml.etree.ElementTree as ET

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from cloud import api_cloud, REGION  # noqa: E402

import botocore.auth  # noqa: E402
import botocore.awsrequest  # noqa: E402
import botocore.credentials  # noqa: E402
from botocore.exceptions import ClientError  # noqa: E402

AMI = "ami-00000000000000001"
AZ = REGION + "a"
VERSION = "2016-11-15"

cloud = None


def setUpModule():
    global cloud
    cloud = api_cloud()


def tearDownModule():
    cloud.close()


def tls():
    return ssl.create_default_context(cafile=cloud.ca)


def rss_mib(name):
    with open(f"/proc/{cloud.procs[name].pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1]) / 1024


class Hostile(unittest.TestCase):
    def setUp(self):
        self.ec2 = cloud.client("ec2")
        self.pids = {n: p.pid for n, p in cloud.procs.items()}

    def tearDown(self):
        for name, p in cloud.procs.items():
            self.assertIsNone(p.poll(), f"spx-{name} ended:\n{cloud.log(name)}")
        self.assertTrue(self.ec2.describe_vpcs()["Vpcs"])

    def signed(self, body, headers=None, method="POST", path="/", keys=None):
        key, secret, _ = keys or cloud.account("one")
        if isinstance(body, str):
            body = body.encode()
        rq = botocore.awsrequest.AWSRequest(method, f"https://127.0.0.1:{cloud.port}{path}", data=body, headers=dict(
            {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}, **(headers or {})))
        botocore.auth.SigV4Auth(botocore.credentials.Credentials(key, secret), "ec2", REGION).add_auth(rq)
        return rq

    def send(self, rq, timeout=30):
        c = http.client.HTTPSConnection("127.0.0.1", cloud.port, context=tls(), timeout=timeout)
        try:
            c.request(rq.method, rq.url.split(str(cloud.port), 1)[1], rq.body, dict(rq.headers.items()))
            r = c.getresponse()
            return r.status, r.read()
        finally:
            c.close()

    def ask(self, body, **kw):
        """(status, error code or None): what comes back is XML, always."""
        status, text = self.send(self.signed(body, **kw))
        root = ET.fromstring(text)
        code = next((e.text for e in root.iter() if e.tag.endswith("Code")), None) if status != 200 else None
        self.assertTrue(status == 200 or code, text[:300])
        return status, code

    def params(self, action, *pairs):
        return urllib.parse.urlencode([("Action", action), ("Version", VERSION), *pairs])

    # ---- size ----

    def test_bodies_that_are_too_large(self):
        before = rss_mib("awsgw")
        big = b"Action=DescribeVpcs&Version=2016-11-15&X=" + b"a" * (5 << 20)
        for _ in range(6):
            try:
                status, _text = self.send(self.signed(big))
                self.assertIn(status, (400, 413))
            except (ConnectionError, ssl.SSLError):
                pass  # it may close before all has been sent
        self.assertLess(rss_mib("awsgw") - before, 150)

    def test_disks_and_images_that_nobody_can_have(self):
        """Numbers at the ends of what fits, a thousand mappings, lists of accounts, names of any bytes: refused, at once, and nothing is left."""
        vol = self.ec2.create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
        numbers = ("0", "-1", "2147483648", "4294967297", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e3", "0x10", "", " 1")
        before = len(self.ec2.describe_volumes()["Volumes"])
        for n in numbers:
            for action, fixed, name in (("CreateVolume", [("AvailabilityZone", AZ)], "Size"),
                                        ("CreateVolume", [("AvailabilityZone", AZ), ("Size", "10"), ("VolumeType", "gp3")], "Iops"),
                                        ("CreateVolume", [("AvailabilityZone", AZ), ("Size", "10"), ("VolumeType", "gp3")], "Throughput"),
                                        ("ModifyVolume", [("VolumeId", vol)], "Size"), ("ModifyVolume", [("VolumeId", vol), ("VolumeType", "io2")], "Iops"),
                                        ("CopyVolumes", [("SourceVolumeId", vol)], "Size"),
                                        ("RunInstances", [("ImageId", AMI), ("MinCount", "1"), ("MaxCount", "1"), ("InstanceType", "t3.nano"),
                                                          ("BlockDeviceMapping.1.DeviceName", "/dev/sdf")], "BlockDeviceMapping.1.Ebs.VolumeSize"),
                                        ("RegisterImage", [("Name", "xyz"), ("RootDeviceName", "/dev/sda1"), ("BlockDeviceMapping.1.DeviceName", "/dev/sda1"),
                                                           ("BlockDeviceMapping.1.Ebs.SnapshotId", "snap-00000000000000001")],
                                         "BlockDeviceMapping.1.Ebs.VolumeSize"),
                                        ("DescribeSnapshots", [], "MaxResults"), ("DescribeVolumesModifications", [], "MaxResults")):
                status, code = self.ask(self.params(action, *fixed, (name, n)))
                self.assertEqual(status, 400, f"{action} {name}={n!r}: {code}")
        many = [("BlockDeviceMapping.%d.DeviceName" % i, "/dev/sd%c%d" % (98 + i % 25, i)) for i in range(1, 1001)]
        sizes = [("BlockDeviceMapping.%d.Ebs.VolumeSize" % i, "1") for i in range(1, 1001)]
        for action, fixed in (("RunInstances", [("ImageId", AMI), ("MinCount", "1"), ("MaxCount", "1"), ("InstanceType", "t3.nano")]),
                              ("RegisterImage", [("Name", "many"), ("RootDeviceName", "/dev/sdb1")])):
            self.assertEqual(self.ask(self.params(action, *fixed, *many, *sizes))[0], 400, action)
        snap = self.ec2.create_snapshot(VolumeId=vol)["SnapshotId"]
        users = [("CreateVolumePermission.Add.%d.UserId" % i, "%012d" % i) for i in range(1, 1001)]
        self.assertEqual(self.ask(self.params("ModifySnapshotAttribute", ("SnapshotId", snap), *users))[1], "ResourceCountExceeded")
        for name in ("a\0b\0c", "\x01\x02\x03", "..//..//", "x" * 129, "\u202e\u202e\u202e", "name\n", "%00%00%00", "a" * 100000):
            status, code = self.ask(self.params("RegisterImage", ("Name", name), ("BlockDeviceMapping.1.DeviceName", "/dev/sda1"),
                                                ("BlockDeviceMapping.1.Ebs.SnapshotId", "snap-00000000000000001")))
            self.assertEqual(status, 400, f"{name[:20]!r}: {code}")
        for sid in ("", "snap-", "snap-%s" % ("0" * 1000), "snap-0000000g", "../snap-00000000", "vol-00000000"):
            status, code = self.ask(self.params("DeleteSnapshot", ("SnapshotId", sid)))
            self.assertEqual((status, code), (400, "InvalidSnapshotID.Malformed"), sid)
        self.ec2.delete_snapshot(SnapshotId=snap)
        self.assertEqual(len(self.ec2.describe_volumes()["Volumes"]), before)
        self.assertEqual(self.ec2.describe_images(Owners=["self"])["Images"], [])
        self.ec2.delete_volume(VolumeId=vol)

    def test_ten_thousand_parameters(self):
        for name in ("InstanceId.{}", "Filter.1.Value.{}", "Filter.{}.Name", "Tag.{}.Key", "Nothing.{}.Known.{}"):
            status, code = self.ask(self.params("DescribeInstances", *((name.format(i, i), "x") for i in range(1, 10001))))
            self.assertIn(status, (400, 413), name)

    def test_lists_that_are_deep_sparse_or_numbered_by_a_madman(self):
        for pairs in ([("Filter" + ".1" * 3000, "x")], [("Filter.1.Value" + ".1.Value" * 1000, "x")], [("InstanceId.4294967297", "i-1")],
                      [("InstanceId.99999999999999999999999", "i-1")], [("InstanceId.-1", "i-1")], [("InstanceId.0", "i-1")],
                      [("InstanceId.", "i-1")], [("." * 500, "x")], [("InstanceId.1.1", "i-1")], [("InstanceId.1", "a"), ("InstanceId.1", "b")],
                      [("Filter.1", "x")], [("Filter", "x")], [("InstanceId.1000000000", "i-1")]):
            status, code = self.ask(self.params("DescribeInstances", *pairs))
            self.assertIn(status, (200, 400), pairs[0][0][:40])
            self.assertNotIn(code, ("InternalError", "InternalFailure"))

    def test_a_gzip_bomb(self):
        before = rss_mib("awsgw")
        bomb = gzip.compress(b"Action=DescribeVpcs&Version=2016-11-15&X=" + b"a" * (300 << 20), 9)
        for _ in range(3):
            try:
                status, _ = self.send(self.signed(bomb[:1 << 20], {"Content-Encoding": "gzip"}))
                self.assertIn(status, (400, 413, 415))
            except (ConnectionError, ssl.SSLError):
                pass
        for body in (b"", b"\x1f\x8b", b"\x1f\x8b\x08\xff" + b"\0" * 20, gzip.compress(b"Action=DescribeVpcs&Version=2016-11-15")[:-4]):
            status, _ = self.send(self.signed(body, {"Content-Encoding": "gzip"}))
            self.assertEqual(status, 400)
        status, _ = self.send(self.signed(gzip.compress(b"Action=DescribeVpcs&Version=2016-11-15"), {"Content-Encoding": "gzip"}))
        self.assertIn(status, (200, 400, 415))
        self.assertLess(rss_mib("awsgw") - before, 150)

    def test_user_data_that_is_too_large_or_no_base64(self):
        run = [("ImageId", AMI), ("InstanceType", "t3.nano"), ("MinCount", "1"), ("MaxCount", "1")]
        for data in (base64.b64encode(b"x" * 16385).decode(), base64.b64encode(b"x" * 600000).decode(), "%%%", "A", "é"):
            status, code = self.ask(self.params("RunInstances", *run, ("UserData", data)))
            self.assertIn(code, ("InvalidParameterValue", "InvalidUserData.Malformed", "RequestEntityTooLarge"))

    # ---- bytes ----

    def test_control_bytes_and_broken_utf8_never_come_out(self):
        v = self.ec2.create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
        self.addCleanup(self.ec2.delete_volume, VolumeId=v)
        bad = [bytes([c]) for c in range(1, 32) if c not in (9, 10, 13)] + [
            b"\x00", b"\x7f", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\xef\xbf\xbe", b"\xef\xbf\xbf",
            b"\xc2\x85", b"]]>", b"<&>\"'", b"\r\n", b"\xf0\x9f\x98\x80"]
        for b in bad:
            text = urllib.parse.quote_from_bytes(b"a" + b + b"z", safe="")
            head = f"Version={VERSION}&Action="
            for body in (f"CreateTags&ResourceId.1={v}&Tag.1.Key={text}&Tag.1.Value={text}",
                         f"CreateSecurityGroup&GroupName={text}&GroupDescription={text}",
                         f"DescribeInstances&InstanceId.1={text}", f"DescribeVolumes&Filter.1.Name={text}&Filter.1.Value.1={text}",
                         f"DescribeKeyPairs&KeyName.1={text}", f"{text}", f"CreateKeyPair&KeyType=ed25519&KeyName={text}",
                         f"DescribeVpcs&{text}={text}", f"AttachVolume&VolumeId={v}&InstanceId={text}&Device={text}"):
                status, code = self.ask(head + body)  # parses what comes
                self.assertLess(status, 500, body)
        # What was taken comes out as it went in, for botocore.
        self.ec2.describe_tags()
        self.ec2.describe_security_groups()
        self.ec2.describe_key_pairs()
        tags = {t["Key"] for t in self.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [v]}])["Tags"]}
        for good in ("a]]>z", "a<&>\"'z", "a\U0001f600z"):
            self.assertIn(good, tags)
        for k in self.ec2.describe_key_pairs()["KeyPairs"]:
            self.ec2.delete_key_pair(KeyName=k["KeyName"])
        for g in self.ec2.describe_security_groups()["SecurityGroups"]:
            if g["GroupName"] != "default":
                self.ec2.delete_security_group(GroupId=g["GroupId"])

    def test_key_names_of_every_printable_character(self):
        for c in string.printable[:95]:
            name = f"a{c}z"
            self.assertEqual(self.ec2.create_key_pair(KeyName=name, KeyType="ed25519")["KeyName"], name)
        self.assertEqual({k["KeyName"] for k in self.ec2.describe_key_pairs()["KeyPairs"]}, {f"a{c}z" for c in string.printable[:95]})
        for c in string.printable[:95]:
            self.assertEqual([k["KeyName"] for k in self.ec2.describe_key_pairs(KeyNames=[f"a{c}z"])["KeyPairs"]], [f"a{c}z"])
            self.ec2.delete_key_pair(KeyName=f"a{c}z")
        self.assertEqual(self.ec2.describe_key_pairs()["KeyPairs"], [])

    def test_the_longest_key_name_with_the_widest_characters(self):
        for name in ("/" * 255, "%" * 255, "~" * 255, "é" * 255):
            try:
                self.ec2.create_key_pair(KeyName=name, KeyType="ed25519")
                self.assertEqual([k["KeyName"] for k in self.ec2.describe_key_pairs()["KeyPairs"]], [name])
                self.ec2.delete_key_pair(KeyName=name)
            except ClientError as e:
                self.assertLess(e.response["ResponseMetadata"]["HTTPStatusCode"], 500, e)

    def test_ids_that_reach_for_other_keys(self):
        other = cloud.account("two")[2]
        iid = cloud.client("ec2", "two").create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
        self.addCleanup(cloud.client("ec2", "two").delete_volume, VolumeId=iid)
        for bad in (f"../{other}/{iid}", f"{other}/{iid}", f"vol-../{other}/{iid}", f"{iid}/", f"{iid}%00", f"{iid}\t", f"%2e%2e/{iid}", "vol-", "vol-" + "0" * 5000,
                    "VOL-" + iid[4:], iid + "," + iid, "*", "?", "vol-*", ""):
            status, code = self.ask(self.params("DescribeVolumes", ("VolumeId.1", bad)))
            self.assertNotEqual((status, code), (500, "InternalError"), bad)
            if bad:
                self.assertIn(code, ("InvalidParameterValue", "InvalidVolumeID.Malformed", "InvalidVolume.NotFound", "InvalidParameter"), bad)

    # ---- who and when ----

    def test_unknown_actions_and_versions(self):
        self.assertEqual(self.ask(f"Action=Nothing&Version={VERSION}"), (400, "InvalidAction"))
        self.assertEqual(self.ask("Action=DescribeVpcs&Version=1999-01-01")[0], 400)
        self.assertEqual(self.ask("Action=DescribeVpcs")[0], 400)
        self.assertEqual(self.ask(f"Version={VERSION}")[1], "MissingAction")
        self.assertEqual(self.ask("")[0], 400)

    def test_no_signature(self):
        rq = self.signed(f"Action=DescribeVpcs&Version={VERSION}")
        for value in (None, "", "x", "AWS4-HMAC-SHA256", "AWS4-HMAC-SHA256 Credential=/////, SignedHeaders=;;;, Signature=", "Basic eDp5",
                      "AWS4-HMAC-SHA256 " + "Credential=a/b/c/d/e," * 500, rq.headers["Authorization"][:-1],
                      rq.headers["Authorization"] + "0", rq.headers["Authorization"].replace("ec2", "sts")):
            h = dict(rq.headers.items())
            h.pop("Authorization")
            if value is not None:
                h["Authorization"] = value
            c = http.client.HTTPSConnection("127.0.0.1", cloud.port, context=tls(), timeout=30)
            c.request("POST", "/", rq.body, h)
            r = c.getresponse()
            self.assertIn(r.status, (400, 401, 403), value)
            ET.fromstring(r.read())
            c.close()

    def test_presigned_get(self):
        key, secret, _ = cloud.account("one")
        base = f"https://127.0.0.1:{cloud.port}/?Action=DescribeVpcs&Version={VERSION}"
        rq = botocore.awsrequest.AWSRequest("GET", base)
        botocore.auth.SigV4QueryAuth(botocore.credentials.Credentials(key, secret), "ec2", REGION, expires=60).add_auth(rq)
        self.assertEqual(self.send(rq.prepare())[0], 200)
        old = rq.url.replace("X-Amz-Expires=60", "X-Amz-Expires=600")
        self.assertEqual(self.send(botocore.awsrequest.AWSRequest("GET", old).prepare())[0], 401)
        self.assertEqual(self.send(botocore.awsrequest.AWSRequest("GET", rq.url + "&Extra=1").prepare())[0], 401)

    def test_a_clock_that_is_wrong(self):
        for minutes, ok in ((-20, False), (20, False), (-10, True), (10, True)):
            when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(minutes=minutes)
            rq = botocore.awsrequest.AWSRequest("POST", f"https://127.0.0.1:{cloud.port}/", data=f"Action=DescribeVpcs&Version={VERSION}".encode(),
                                                headers={"Content-Type": "application/x-www-form-urlencoded"})
            key, secret, _ = cloud.account("one")
            auth = botocore.auth.SigV4Auth(botocore.credentials.Credentials(key, secret), "ec2", REGION)
            rq.context["timestamp"] = when.strftime("%Y%m%dT%H%M%SZ")
            rq.headers["X-Amz-Date"] = rq.context["timestamp"]
            canonical = auth.canonical_request(rq)
            signature = auth.signature(auth.string_to_sign(rq, canonical), rq)
            auth._inject_signature_to_request(rq, signature)
            status, text = self.send(rq)
            self.assertEqual(status == 200, ok, (minutes, text[:200]))

    def test_the_key_of_an_account_that_was_deleted(self):
        keys = cloud.account("doomed")
        self.assertEqual(self.ask(f"Action=DescribeVpcs&Version={VERSION}", keys=keys)[0], 200)
        cloud.spx("admin", "account", "delete", keys[2])
        self.assertEqual(self.ask(f"Action=DescribeVpcs&Version={VERSION}", keys=keys), (401, "AuthFailure"))
        del cloud.keys["doomed"]

    # ---- the connection ----

    def raw(self, data, timeout=40):
        with socket.create_connection(("127.0.0.1", cloud.port), 10) as s, tls().wrap_socket(s, server_hostname="127.0.0.1") as t:
            t.settimeout(timeout)
            t.sendall(data)
            got = b""
            try:
                while chunk := t.recv(65536):
                    got += chunk
            except (ConnectionError, ssl.SSLError):
                pass
            return got

    def test_lengths_that_lie(self):
        for head in (b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Content-Length: 5\r\nContent-Length: 6", b"Content-Length: 0x10",
                     b"Content-Length: 5\r\nTransfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Transfer-Encoding: chunked, chunked"):
            got = self.raw(b"POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head + b"\r\n\r\nhello")
            self.assertRegex(got, rb"^HTTP/1.1 4\d\d|^HTTP/1.1 501|^$", head)
        for junk in (b"\x00" * 100, b"GET\r\n\r\n", os.urandom(4000) + b"\r\n\r\n", b"POST / HTTP/1.1\r\n" + b"A: b\r\n" * 5000 + b"\r\n",
                     b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            got = self.raw(junk + b"\r\n\r\n")
            self.assertRegex(got, rb"^HTTP/1.1 [45]\d\d|^$", junk[:20])

    def test_five_hundred_connections_that_say_nothing_keep_nobody_out(self):
        before = rss_mib("awsgw")
        rng, held = random.Random(1), []
        try:
            for i in range(500):
                s = socket.create_connection(("127.0.0.1", cloud.port), 10)
                if i % 10 == 0:
                    try:
                        t = tls().wrap_socket(s, server_hostname="127.0.0.1")
                        t.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"[:rng.randrange(1, 60)])
                        s = t
                    except (OSError, ssl.SSLError):
                        pass
                held.append(s)
            start = time.monotonic()
            self.assertTrue(cloud.client("ec2").describe_vpcs()["Vpcs"])
            self.assertLess(time.monotonic() - start, 10)
        finally:
            for s in held:
                s.close()
        self.assertLess(rss_mib("awsgw") - before, 300)

    def test_random_requests_by_many(self):
        """Signed bodies cut, doubled and twisted at random."""
        seed = int(os.environ.get("SPX_HOSTILE_SEED", "0")) or random.SystemRandom().randrange(1 << 32)
        print(f"SPX_HOSTILE_SEED={seed}", file=sys.stderr)
        base = [self.params("RunInstances", ("ImageId", AMI), ("InstanceType", "t3.nano"), ("MinCount", "1"), ("MaxCount", "1"), ("DryRun", "true"),
                            ("BlockDeviceMapping.1.DeviceName", "/dev/sdf"), ("BlockDeviceMapping.1.Ebs.VolumeSize", "1"),
                            ("NetworkInterface.1.DeviceIndex", "0"), ("NetworkInterface.1.PrivateIpAddress", "172.31.0.9")),
                self.params("AuthorizeSecurityGroupIngress", ("GroupName", "default"), ("IpPermissions.1.IpProtocol", "tcp"), ("IpPermissions.1.FromPort", "1"),
                            ("IpPermissions.1.ToPort", "2"), ("IpPermissions.1.IpRanges.1.CidrIp", "1.2.3.4/32"), ("DryRun", "true")),
                self.params("CreateVolume", ("AvailabilityZone", AZ), ("Size", "1"), ("VolumeType", "gp3"), ("Iops", "3000"), ("DryRun", "true"))]

        def go(n):
            rng, seen = random.Random(seed + n), []
            for _ in range(60):
                b = bytearray(rng.choice(base).encode())
                for _ in range(rng.randrange(1, 6)):
                    at = rng.randrange(len(b))
                    what = rng.randrange(4)
                    if what == 0:
                        b[at] = rng.randrange(256)
                    elif what == 1:
                        del b[at:at + rng.randrange(1, 20)]
                    elif what == 2:
                        b[at:at] = b[at:at + 30]
                    else:
                        b[at:at] = rng.choice([b"%00", b"%ff", b"=", b"&", b"-", b"9" * 25, b".1", b"%0a", b"+"])
                    b = b or bytearray(b"x")
                seen.append(self.ask(bytes(b))[0])
            return seen
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for seen in pool.map(go, range(6)):
                self.assertEqual([s for s in seen if s >= 500], [])


if __name__ == "__main__":
    unittest.main(verbosity=1)
