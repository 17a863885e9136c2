#!/usr/bin/env python3
"""What a request must not reach or undo: buckets that changed hands meanwhile, objects whose conditions do not hold, sums of bodies that failed."""
import base64
import hashlib
import os
import signal
import unittest

from botocore.exceptions import ClientError

from s3_world import EMPTY, REGION, UNSIGNED, Client, World, read_answer

MIB = 1 << 20
RULES = (b"<LifecycleConfiguration><Rule><ID>all</ID><Status>Enabled</Status><Filter><Prefix></Prefix></Filter>"
         b"<Expiration><Days>1</Days></Expiration></Rule></LifecycleConfiguration>")


class Guard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World().up()
        cls.s3 = cls.world.s3()
        cls.raw = cls.world.raw()
        cls.place = {"LocationConstraint": REGION}
        cls.s3.create_bucket(Bucket="guard", CreateBucketConfiguration=cls.place)

    @classmethod
    def tearDownClass(cls):
        cls.world.close()

    def test_a_slow_configuration_does_not_reach_the_next_owner_of_the_name(self):
        two = self.world.s3("two")
        self.s3.create_bucket(Bucket="contested", CreateBucketConfiguration=self.place)
        md5 = base64.b64encode(hashlib.md5(RULES).digest()).decode()
        with self.raw.connect() as s:
            s.sendall(self.raw.head("PUT", "/contested", "lifecycle=", {"Content-MD5": md5}, UNSIGNED, len(RULES)) + RULES[:10])
            self.s3.delete_bucket(Bucket="contested")
            two.create_bucket(Bucket="contested", CreateBucketConfiguration=self.place)
            s.sendall(RULES[10:])
            a = read_answer(s, "PUT")
        self.assertEqual((a.status, a.code), (404, "NoSuchBucket"))
        with self.assertRaises(ClientError) as e:
            two.get_bucket_lifecycle_configuration(Bucket="contested")
        self.assertEqual(e.exception.response["Error"]["Code"], "NoSuchLifecycleConfiguration")

    def test_a_condition_that_cannot_hold_deletes_nothing(self):
        for headers, want in (({"x-amz-if-match-size": "-1"}, (400, "InvalidArgument")), ({"If-Match": ""}, (412, "PreconditionFailed")),
                              ({"If-Match": '""'}, (412, "PreconditionFailed")),
                              ({"x-amz-if-match-last-modified-time": "Thu, 01 Jan 1970 00:00:00 GMT"}, (412, "PreconditionFailed"))):
            self.s3.put_object(Bucket="guard", Key="k", Body=b"x")
            a = self.raw.request("DELETE", "/guard/k", headers=headers)
            self.assertEqual((a.status, a.code), want, headers)
            self.assertEqual(self.raw.request("HEAD", "/guard/k").status, 200, headers)
        for size in (-1, 2):
            r = self.s3.delete_objects(Bucket="guard", Delete={"Objects": [{"Key": "k", "Size": size}]})
            self.assertEqual([x["Key"] for x in r.get("Errors", [])], ["k"], r)
        self.assertEqual(self.raw.request("HEAD", "/guard/k").status, 200)

    def test_a_presigned_copy_is_no_upload_of_nothing(self):
        self.s3.put_object(Bucket="guard", Key="from", Body=b"bytes")
        query = self.raw.presign("PUT", "/guard/to", "x-amz-copy-source=%2Fguard%2Ffrom")
        a = self.raw.request("PUT", "/guard/to", query, is_signed=False)
        self.assertEqual(a.status, 200, a)
        self.assertIn(b"CopyObjectResult", a.body)
        self.assertEqual(self.s3.get_object(Bucket="guard", Key="to")["Body"].read(), b"bytes")

    def test_rules_that_every_request_would_have_to_read_are_short(self):
        """As AWS has it: 64 KiB. They are looked through for whoever sends an Origin, before anybody is asked who he is."""
        rule = b"<CORSRule><AllowedMethod>GET</AllowedMethod>" + b"".join(b"<AllowedOrigin>https://o%d</AllowedOrigin>" % i for i in range(2500)) + b"</CORSRule>"
        body = b"<CORSConfiguration>" + rule + b"</CORSConfiguration>"
        self.assertGreater(len(body), 65536)
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        a = self.raw.request("PUT", "/guard", "cors=", headers={"Content-MD5": md5}, body=body)
        self.assertEqual((a.status, a.code), (400, "MaxMessageLengthExceeded"))

    def test_a_copy_whose_source_breaks_in_the_middle(self):
        self.s3.put_object(Bucket="guard", Key="large", Body=os.urandom(MIB) * 24)
        for folder, _, names in os.walk(self.world.drives[0]):
            for path in (os.path.join(folder, n) for n in names):
                if os.sep + "data" + os.sep in path and os.path.getsize(path) > 24 * MIB:
                    with open(path, "r+b") as f:
                        f.seek(20 * MIB)
                        f.write(b"damage" * 1000)
        for i in range(4):
            with self.assertRaises(ClientError) as e:
                self.s3.copy_object(Bucket="guard", Key=f"copy-{i}", CopySource="guard/large")
            self.assertEqual(e.exception.response["ResponseMetadata"]["HTTPStatusCode"], 500)
            self.assertEqual(self.raw.request("HEAD", f"/guard/copy-{i}").status, 404)
        self.assertIsNone(self.world.procs["predastore"].poll())

    def test_slow_uploads_of_one_client_keep_nobody_else_out(self):
        """256 connections that send next to nothing of a large object, from another address; the memory for bodies is shared."""
        two = self.world.s3("two")
        two.create_bucket(Bucket="guard-two", CreateBucketConfiguration=self.place)
        slow = []
        try:
            for i in range(300):
                s = self.raw.connect(source="127.0.0.2")
                slow.append(s)
                s.sendall(self.raw.head("PUT", f"/guard/slow-{i}", "", {}, UNSIGNED, 100 * MIB) + b"x" * 240)
            with self.raw.connect() as s: # the same account, from elsewhere: it has had its share
                s.sendall(self.raw.head("PUT", "/guard/one-more", "", {"Expect": "100-continue"}, UNSIGNED, 100 * MIB))
                a = read_answer(s, "PUT", skip_continue=False)
            self.assertEqual((a.status, a.code), (503, "SlowDown"))
            two.put_object(Bucket="guard-two", Key="large", Body=b"y" * (2 * MIB))
        finally:
            for s in slow:
                s.close()

    def test_a_new_key_is_good_at_once(self):
        """The request is there before the news of the key is: the service stood still meanwhile."""
        pid = self.world.procs["predastore"].pid
        body = os.urandom(5000)
        for i in range(12):
            os.kill(pid, signal.SIGSTOP)
            try:
                a = self.world.spx_json("admin", "account", "create", f"new-{i}")
                raw = Client(os.path.join(self.world.run, "predastore-s3.sock"), None, a["access_key_id"], a["secret_access_key"])
                sent = []
                for data in (raw.head("PUT", f"/new-{i}", "", {"X-Spx-Source-Ip": "192.0.2.1"}, EMPTY, 0),
                             raw.head("GET", "/", "", {"X-Spx-Source-Ip": "192.0.2.2"}),
                             raw.head("PUT", "/guard/x", "", {"X-Spx-Source-Ip": "192.0.2.3", "Expect": "100-continue"}, UNSIGNED, len(body)),
                             raw.head("PUT", "/guard/x", "partNumber=1&uploadId=00", {"X-Spx-Source-Ip": "192.0.2.4"}, UNSIGNED, len(body)) + body):
                    sent.append(raw.connect())
                    sent[-1].sendall(data)
            finally:
                os.kill(pid, signal.SIGCONT)
            got = [read_answer(s) for s in sent]
            for s in sent:
                s.close()
            # The last two are refused because the bucket is another's: who he is was known.
            self.assertEqual([(a.status, a.code if a.status != 200 else None) for a in got],
                             [(200, None), (200, None), (403, "AccessDenied"), (403, "AccessDenied")], got)

    def test_keys_that_nobody_has_are_not_asked_for_without_end(self):
        raw = self.world.raw()
        codes = []
        for i in range(100):
            raw.key = f"AKIAGUESS{i:012d}"
            codes.append(raw.request("GET", "/").code)
        self.assertEqual(set(codes), {"InvalidAccessKeyId", "SlowDown"})
        self.assertEqual(codes[0], "InvalidAccessKeyId")
        raw.key = "AKIAGUESS000000000000"
        self.assertEqual({raw.request("GET", "/").code for _ in range(20)}, {"InvalidAccessKeyId"})
        self.assertEqual(self.raw.request("GET", "/").status, 200)


if __name__ == "__main__":
    unittest.main()
