"""What the conformance tests of the object store have in common: a store of their own, clients, raw requests, expected errors.

S3_ENDPOINT (with S3_ACCESS_KEY, S3_SECRET_KEY, S3_ACCOUNT, S3_ALT_ACCESS_KEY, S3_ALT_SECRET_KEY, S3_ALT_ACCOUNT, S3_REGION, S3_CA) names a store
that runs already; without it one is started from the build folder (SPX_BUILD).
"""
import base64
import datetime
import hashlib
import hmac
import http.client
import itertools
import os
import random
import ssl
import sys
import unittest
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tests", "lib"))
import cloud as cloudlib  # noqa: E402

import boto3  # noqa: E402
import botocore.config  # noqa: E402
from botocore.exceptions import ClientError  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
cloudlib.REGION = os.environ.get("S3_REGION", "us-east-1")


class Store:
    """An endpoint with two accounts."""

    def __init__(self):
        self.cloud = None
        if os.environ.get("S3_ENDPOINT"):
            e = os.environ
            self.endpoint, self.region, self.ca = e["S3_ENDPOINT"], e.get("S3_REGION", "us-east-1"), e.get("S3_CA") or False
            self.main = (e["S3_ACCESS_KEY"], e["S3_SECRET_KEY"], e["S3_ACCOUNT"])
            self.alt = (e["S3_ALT_ACCESS_KEY"], e["S3_ALT_SECRET_KEY"], e["S3_ALT_ACCOUNT"])
        else:
            self.cloud = cloudlib.Cloud()
            try:
                self.cloud.init()
                self.cloud.start("state", "awsgw", "predastore")
                self.main, self.alt = self.cloud.account("one"), self.cloud.account("two")
            except BaseException:
                self.cloud.close()
                raise
            self.endpoint, self.region, self.ca = f"https://127.0.0.1:{self.cloud.s3_port}", cloudlib.REGION, self.cloud.ca
        run = random.SystemRandom().randrange(1 << 32)
        self.names = (f"c{run:08x}-{i}" for i in itertools.count(1))

    def client(self, creds=None, anonymous=False, **cfg):
        key, secret, _ = creds or self.main
        extra = {"signature_version": botocore.UNSIGNED if anonymous else "s3v4"}
        config = botocore.config.Config(retries={"max_attempts": 0}, s3={"addressing_style": "path"}, max_pool_connections=64, read_timeout=60,
                                        **{**extra, **cfg})
        return boto3.client("s3", region_name=self.region, endpoint_url=self.endpoint, verify=self.ca,
                            aws_access_key_id=None if anonymous else key, aws_secret_access_key=None if anonymous else secret, config=config)

    def close(self):
        """Stops the store; true when no sanitizer has complained in it."""
        if not self.cloud:
            return True
        self.cloud.stop()
        reports = self.cloud.sanitizer_reports()
        self.cloud.close()
        for r in reports:
            print(r, file=sys.stderr)
        return not reports


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, {k.lower(): v for k, v in headers}, body

    def code(self):
        a, b = self.body.find(b"<Code>"), self.body.find(b"</Code>")
        return self.body[a + 6:b].decode() if a >= 0 else None

    def text(self, tag):
        a, b = self.body.find(f"<{tag}>".encode()), self.body.find(f"</{tag}>".encode())
        return self.body[a + len(tag) + 2:b].decode() if a >= 0 else None


class S3Test(unittest.TestCase):
    """One store for all cases of a process; buckets of a case go when it ends."""
    store = None
    maxDiff = 2000

    @classmethod
    def setUpClass(cls):
        if S3Test.store is None:
            S3Test.store = Store()

    def setUp(self):
        self.made = []  # (client, bucket)
        self.c = self.store.client()

    def tearDown(self):
        for client, bucket in self.made:
            empty(client, bucket)

    @property
    def alt(self):
        return self.store.client(self.store.alt)

    @property
    def anonymous(self):
        return self.store.client(anonymous=True)

    def name(self):
        return next(self.store.names)

    def bucket(self, *keys, versioned=False, client=None):
        """A new bucket, with objects whose bodies are their keys."""
        client, name = client or self.c, self.name()
        client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": self.store.region})
        self.made.append((client, name))
        if versioned:
            client.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
        for k in keys:
            client.put_object(Bucket=name, Key=k, Body=k.encode())
        return name

    def fails(self, status, code, fn, *args, **kw):
        """The call is refused with this status and one of these codes; gives the error."""
        with self.assertRaises(ClientError) as e:
            fn(*args, **kw)
        r = e.exception.response
        got = (r["ResponseMetadata"]["HTTPStatusCode"], r["Error"]["Code"])
        codes = code if isinstance(code, tuple) else (code,)
        self.assertTrue(got[0] == status and (code is None or got[1] in codes), f"{got} instead of {status} {code}: {r['Error']}")
        return r

    def body(self, bucket, key, **kw):
        return self.c.get_object(Bucket=bucket, Key=key, **kw)["Body"].read()

    # ---- requests that no SDK makes ----

    def url(self, bucket, key=None, **query):
        path = "/" + bucket + ("/" + urllib.parse.quote(key) if key is not None else "")
        return path + ("?" + urllib.parse.urlencode(query) if query else "")

    def raw(self, method, path, headers=None, body=b"", sign=True, payload=None, creds=None, connection=None):
        """A request as given; signed over all headers when 'sign'. payload: the value of x-amz-content-sha256."""
        headers = dict(headers or {})
        if sign:
            headers = self.signed(method, path, headers, body, payload, creds)
        c = connection or self.connect()
        c.request(method, path, body=body, headers=headers)
        r = c.getresponse()
        answer = Answer(r.status, r.getheaders(), r.read())
        if not connection:
            c.close()
        return answer

    def connect(self):
        host = urllib.parse.urlsplit(self.store.endpoint)
        if host.scheme == "http":
            return http.client.HTTPConnection(host.hostname, host.port, timeout=30)
        context = ssl.create_default_context(cafile=self.store.ca or None)
        if not self.store.ca:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return http.client.HTTPSConnection(host.hostname, host.port, timeout=30, context=context)

    def signed(self, method, path, headers, body, payload=None, creds=None):
        """The headers with a signature of version 4 over all of them."""
        key, secret, _ = creds or self.store.main
        when = headers.get("X-Amz-Date") or datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        scope = f"{when[:8]}/{self.store.region}/s3/aws4_request"
        headers = {"Host": urllib.parse.urlsplit(self.store.endpoint).netloc, "X-Amz-Date": when, **headers}
        headers["X-Amz-Content-SHA256"] = payload or hashlib.sha256(body or b"").hexdigest()
        low = {k.lower(): (v.decode("latin-1") if isinstance(v, bytes) else v) for k, v in headers.items() if k.lower() != "expect"}
        names = ";".join(sorted(low))
        path, _, query = path.partition("?")
        pairs = [p.split("=", 1) if "=" in p else [p, ""] for p in query.split("&")] if query else []
        query = "&".join("=".join(urllib.parse.quote(urllib.parse.unquote_to_bytes(x), safe="-_.~") for x in p) for p in sorted(pairs))
        lines = "".join(f"{k}:{' '.join(low[k].split())}\n" for k in sorted(low))
        canonical = "\n".join((method, path, query, lines, names, headers["X-Amz-Content-SHA256"]))
        text = "\n".join(("AWS4-HMAC-SHA256", when, scope, hashlib.sha256(canonical.encode("latin-1", "replace")).hexdigest()))
        k = ("AWS4" + secret).encode()
        for part in scope.split("/"):
            k = hmac.new(k, part.encode(), hashlib.sha256).digest()
        signature = hmac.new(k, text.encode(), hashlib.sha256).hexdigest()
        headers["Authorization"] = f"AWS4-HMAC-SHA256 Credential={key}/{scope}, SignedHeaders={names}, Signature={signature}"
        return headers


def md5(body):
    return base64.b64encode(hashlib.md5(body).digest()).decode()


def empty(client, bucket):
    """Removes a bucket with all that is in it; fine when it is gone."""
    try:
        for page in client.get_paginator("list_object_versions").paginate(Bucket=bucket):
            ids = [{"Key": v["Key"], "VersionId": v["VersionId"]} for v in page.get("Versions", []) + page.get("DeleteMarkers", [])]
            odd = [i for i in ids if any(c < " " for c in i["Key"])]  # XML cannot say these
            for i in odd:
                client.delete_object(Bucket=bucket, **i)
            ids = [i for i in ids if i not in odd]
            if ids:
                client.delete_objects(Bucket=bucket, Delete={"Objects": ids, "Quiet": True})
        for u in client.list_multipart_uploads(Bucket=bucket).get("Uploads", []):
            client.abort_multipart_upload(Bucket=bucket, Key=u["Key"], UploadId=u["UploadId"])
        client.delete_bucket(Bucket=bucket)
    except ClientError as e:
        if e.response["Error"]["Code"] != "NoSuchBucket":
            raise


def main():
    is_clean = True
    try:
        program = unittest.main(module="__main__", exit=False, verbosity=2 if "-v" in sys.argv else 1)
    finally:
        if S3Test.store:
            is_clean = S3Test.store.close()
    sys.exit(0 if program.result.wasSuccessful() and is_clean else 1)
