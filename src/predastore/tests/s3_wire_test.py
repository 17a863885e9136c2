#!/usr/bin/env python3
"""What bad input gets, byte by byte: codes, nothing stored, and the connection kept in step or closed."""
import base64
import datetime
import hashlib
import os
import socket
import threading
import time
import unittest
import zlib

from s3_world import EMPTY, REGION, UNSIGNED, World, read_answer, wait_gone

KIB = 1024


class Wire(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World().up()
        cls.s3 = cls.world.s3()
        cls.s3.create_bucket(Bucket="wire", CreateBucketConfiguration={"LocationConstraint": REGION})
        cls.raw = cls.world.raw()

    @classmethod
    def tearDownClass(cls):
        cls.world.close()

    def absent(self, key):
        self.assertEqual(self.raw.request("HEAD", f"/wire/{key}").status, 404, f"{key} must not be there")

    def present(self, key, body):
        a = self.raw.request("GET", f"/wire/{key}")
        self.assertEqual((a.status, a.body), (200, body))

    # ---- a table per error ----

    def test_errors(self):
        put = lambda **h: ("PUT", "/wire/e", "", h, b"data")
        md5 = base64.b64encode(hashlib.md5(b"x").digest()).decode()
        for want, (method, path, query, headers, body) in [
            ((404, "NoSuchBucket"), ("GET", "/absent-bucket/k", "", {}, b"")),
            ((404, "NoSuchBucket"), ("PUT", "/absent-bucket/k", "", {}, b"x")),
            ((404, "NoSuchKey"), ("GET", "/wire/absent", "", {}, b"")),
            ((400, "InvalidArgument"), ("GET", "/wire/k", "versionId=x", {}, b"")),
            ((400, "InvalidURI"), ("GET", "/wire/%ff%fe", "", {}, b"")),
            ((400, "InvalidURI"), ("GET", "/wire/%zz", "", {}, b"")),
            ((400, "KeyTooLongError"), ("PUT", "/wire/" + "k" * 1025, "", {}, b"")),
            ((400, "BadDigest"), put(**{"Content-MD5": md5})),
            ((400, "InvalidDigest"), put(**{"Content-MD5": "short"})),
            ((400, "BadDigest"), put(**{"x-amz-checksum-crc32": "AAAAAA=="})),
            ((400, "InvalidRequest"), put(**{"x-amz-checksum-crc32": "AAAAAA==", "x-amz-checksum-sha1": base64.b64encode(bytes(20)).decode()})),
            ((400, "InvalidStorageClass"), put(**{"x-amz-storage-class": "WARM"})),
            ((400, "InvalidArgument"), put(**{"x-amz-tagging": "a=1&a=2"})),
            ((400, "MetadataTooLarge"), put(**{"x-amz-meta-a": "x" * 3000})),
            ((501, "NotImplemented"), put(**{"x-amz-server-side-encryption": "aws:kms"})),
            ((400, "InvalidEncryptionAlgorithmError"), put(**{"x-amz-server-side-encryption": "AES128"})),
            ((400, "InvalidArgument"), put(**{"x-amz-acl": "what"})),
            ((400, "InvalidRedirectLocation"), put(**{"x-amz-website-redirect-location": "ftp://x"})),
            ((405, "MethodNotAllowed"), ("PATCH", "/wire/k", "", {}, b"")),
            ((501, "NotImplemented"), ("GET", "/wire", "acl", {}, b"")),
            ((400, "MalformedXML"), ("POST", "/wire/k", "uploadId=" + "0" * 32, {}, b"<Complete")),
            ((400, "MalformedXML"), ("PUT", "/wire", "versioning", {"Content-MD5": base64.b64encode(hashlib.md5(b"<a/>").digest()).decode()}, b"<a/>")),
        ]:
            a = self.raw.request(method, path, query, dict(headers), body)
            got = (a.status, a.code)
            if want[1] == "InvalidArgument" and "x-amz-tagging" in headers:
                self.assertIn(got, [(400, "InvalidArgument"), (400, "InvalidTag")])
            else:
                self.assertEqual(got, want, (method, path[:60], query, headers))
            self.assertTrue(a.headers["x-amz-request-id"])
        self.absent("e")

    def test_error_body(self):
        a = self.raw.request("GET", "/wire/absent")
        self.assertEqual(a.headers["content-type"], "application/xml")
        self.assertEqual((a.xml("Key"), a.xml("Resource"), a.xml("RequestId")), ("absent", "/wire/absent", a.headers["x-amz-request-id"]))
        self.assertEqual(a.xml("Message"), "The specified key does not exist.")
        a = self.raw.request("HEAD", "/wire/absent")
        self.assertEqual((a.status, a.body), (404, b""))

    # ---- who ----

    def test_who(self):
        r = self.raw
        self.assertEqual(r.request("GET", "/wire/k", is_signed=False).code, "AccessDenied")
        self.assertEqual(r.request("GET", "/absent-bucket/k", is_signed=False).code, "NoSuchBucket")
        bad = type(r)(r.where, None, r.key, "wrong" * 8)
        bad.context = r.context
        self.assertEqual(bad.request("GET", "/wire/k").code, "SignatureDoesNotMatch")
        bad.key = "AKIA" + "Q" * 16
        self.assertEqual(bad.request("GET", "/wire/k").code, "InvalidAccessKeyId")
        old = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
        self.assertEqual(r.request("GET", "/wire/k", when=old).code, "RequestTimeTooSkewed")
        # a header that is not signed
        head = r.head("PUT", "/wire/unsigned", payload=UNSIGNED, length=1)
        head = head[:-2] + b"x-amz-meta-evil: 1\r\n\r\n"
        a = r.send(head + b"x")
        self.assertEqual(a.status, 403, a)
        self.absent("unsigned")
        # the hash of the body
        a = r.request("PUT", "/wire/hash", body=b"data", payload=hashlib.sha256(b"other").hexdigest())
        self.assertEqual((a.status, a.code), (400, "XAmzContentSHA256Mismatch"))
        self.absent("hash")

    def test_presigned_times(self):
        old = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=100)
        q = self.raw.presign("GET", "/wire/k", expires=5, when=old)
        a = self.raw.request("GET", "/wire/k", q, is_signed=False)
        self.assertEqual((a.status, a.code), (403, "AccessDenied"))
        q = self.raw.presign("GET", "/wire/absent", expires=604800)
        self.assertEqual(self.raw.request("GET", "/wire/absent", q, is_signed=False).code, "NoSuchKey")
        q = self.raw.presign("GET", "/wire/k", expires=604801)
        self.assertIn(self.raw.request("GET", "/wire/k", q, is_signed=False).status, (400, 403))
        q = self.raw.presign("GET", "/wire/k")
        self.assertEqual(self.raw.request("DELETE", "/wire/k", q, is_signed=False).code, "SignatureDoesNotMatch")

    # ---- lengths ----

    def test_no_length(self):
        a = self.raw.send(self.raw.head("PUT", "/wire/nolen", payload=UNSIGNED))
        self.assertEqual((a.status, a.code), (411, "MissingContentLength"))
        self.absent("nolen")

    def test_too_large(self):
        head = self.raw.head("PUT", "/wire/huge", payload=UNSIGNED, length=5 * KIB ** 3 + 1)
        a = self.raw.send(head)
        self.assertEqual((a.status, a.code, a.xml("MaxSizeAllowed")), (400, "EntityTooLarge", str(5 * KIB ** 3)))
        self.assertEqual(a.headers.get("connection"), "close")

    def test_torn_body(self):
        for sent in (0, 10, 70000):
            with self.raw.connect() as s:
                s.sendall(self.raw.head("PUT", "/wire/torn", payload=UNSIGNED, length=200000) + b"x" * sent)
            self.absent("torn")

    def test_reset_while_a_large_body_comes(self):
        n_files = lambda: sum(len(files) for _, _, files in os.walk(os.path.join(self.world.drives[0], "data")))
        before = n_files()
        for _ in range(10):
            s = self.raw.connect()
            s.sendall(self.raw.head("PUT", "/wire/reset", payload=UNSIGNED, length=50 * KIB * KIB) + os.urandom(3 * KIB * KIB))
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            s.close()
        self.absent("reset")
        self.assertTrue(wait_gone(lambda: n_files() == before), "files of bodies that never became objects")

    # ---- Expect: 100-continue ----

    def expect(self, key, status, headers=None, length=10, sign=True):
        with self.raw.connect() as s:
            h = {"Expect": "100-continue", **(headers or {})}
            s.sendall(self.raw.head("PUT", f"/wire/{key}", headers=h, payload=UNSIGNED, length=length, is_signed=sign))
            a = read_answer(s, skip_continue=False)
            self.assertEqual(a.status, status, a)
            return a

    def test_expect(self):
        with self.raw.connect() as s:
            s.sendall(self.raw.head("PUT", "/wire/exp", headers={"Expect": "100-continue"}, payload=UNSIGNED, length=4))
            self.assertEqual(read_answer(s, skip_continue=False).status, 100)
            s.sendall(b"data")
            self.assertEqual(read_answer(s).status, 200)
        self.present("exp", b"data")
        for status, headers, sign in ((403, {}, False), (501, {"x-amz-server-side-encryption": "aws:kms"}, True), (400, {"Content-MD5": "x"}, True),
                                      (400, {"x-amz-tagging": "a=b&a=c"}, True)):
            a = self.expect("refused", status, headers, sign=sign)
            self.assertEqual(a.headers["connection"], "close")
        self.absent("refused")
        with self.raw.connect() as s:  # a part of an upload that is not there
            s.sendall(self.raw.head("PUT", "/wire/k", f"partNumber=1&uploadId={'0' * 32}", {"Expect": "100-continue"}, UNSIGNED, 10))
            self.assertEqual(read_answer(s, skip_continue=False).status, 404)

    def test_small_rest_is_read_away(self):
        """A refused request with a small body leaves the connection in step."""
        with self.raw.connect() as s:
            s.sendall(self.raw.head("PUT", "/absent-bucket/k", payload=UNSIGNED, length=1000) + b"x" * 1000)
            self.assertEqual(read_answer(s).status, 404)
            s.sendall(self.raw.head("GET", "/wire/absent"))
            self.assertEqual(read_answer(s).status, 404)

    def test_pipelined(self):
        with self.raw.connect() as s:
            s.sendall(self.raw.head("PUT", "/wire/p1", payload=UNSIGNED, length=3) + b"one" + self.raw.head("GET", "/wire/p1") + self.raw.head("GET", "/wire/p1"))
            f = s.makefile("rb")
            data = b""
            while data.count(b"one") < 2:
                data += f.read1(65536)
            self.assertEqual(data.count(b"HTTP/1.1 200"), 3)

    # ---- aws-chunked ----

    def test_chunked_good(self):
        parts = [os.urandom(65536), os.urandom(65536), b"tail"]
        whole = b"".join(parts)
        crc = base64.b64encode(zlib.crc32(whole).to_bytes(4, "big")).decode()
        for kind, trailer in (("STREAMING-AWS4-HMAC-SHA256-PAYLOAD", None),
                              ("STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER", ("x-amz-checksum-crc32", crc)),
                              ("STREAMING-UNSIGNED-PAYLOAD-TRAILER", ("x-amz-checksum-crc32", crc))):
            a = self.raw.chunked("/wire/chunked", parts, kind=kind, trailer=trailer, headers={"x-amz-meta-k": kind})
            self.assertEqual(a.status, 200, (kind, a))
            self.present("chunked", whole)
            h = self.raw.request("HEAD", "/wire/chunked", headers={"x-amz-checksum-mode": "ENABLED"}).headers
            self.assertNotIn("content-encoding", h)
            if trailer:
                self.assertEqual(h["x-amz-checksum-crc32"], crc)
        a = self.raw.chunked("/wire/coding", [b"x"], headers={"content-encoding": "aws-chunked,gzip"})
        self.assertEqual(a.status, 200, a)
        self.assertEqual(self.raw.request("HEAD", "/wire/coding").headers["content-encoding"], "gzip")

    def test_chunked_bad(self):
        signed, trailer_kind = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
        parts = [os.urandom(65536), os.urandom(65536), b"tail"]
        crc = ("x-amz-checksum-crc32", "AAAAAA==")
        flip = lambda f: bytes([f[0] ^ 1]) + f[1:]
        for name, kind, trailer, spoil, decoded, want in [
            ("forged bytes", signed, None, lambda f: f[0][:-10] + b"forged!!" + f[0][-2:] + f[1] + f[2] + f[3], None, (403, "SignatureDoesNotMatch")),
            ("reordered", signed, None, lambda f: f[1] + f[0] + f[2] + f[3], None, (403, "SignatureDoesNotMatch")),
            ("forged signature", signed, None, lambda f: b"".join(f).replace(b"chunk-signature=", b"chunk-signature=0", 1)[:-1], None, None),
            ("chunk left out", signed, None, lambda f: f[0] + f[2] + f[3], None, (403, "SignatureDoesNotMatch")),
            ("last chunk left out", signed, None, lambda f: f[0] + f[1] + f[2], None, (400, "IncompleteBody")),
            ("not framed", signed, None, lambda f: b"plain bytes without framing", None, None),
            ("length promised is more", signed, None, None, 200000, (400, "IncompleteBody")),
            ("length promised is less", signed, None, None, 100, None),
            ("wrong trailer", trailer_kind, crc, None, None, (400, "BadDigest")),
            ("no trailer", trailer_kind, crc, lambda f: b"".join(f[:-1]) + b"\r\n", None, None),
            ("bad size", trailer_kind, crc, lambda f: b"zz\r\n" + b"".join(f), None, None),
        ]:
            a = self.raw.chunked("/wire/badchunk", parts, kind=kind, trailer=trailer, spoil=spoil, decoded=decoded)
            if want:
                self.assertEqual((a.status, a.code), want, (name, a))
            else:
                self.assertIn(a.status, (400, 403), (name, a))
            self.absent("badchunk")
        a = self.raw.request("PUT", "/wire/badchunk", headers={"x-amz-content-sha256": signed}, body=b"x")
        self.assertIn(a.status, (400, 411), a)
        self.absent("badchunk")

    # ---- heads ----

    def test_huge_heads(self):
        a = self.raw.send(b"GET /wire/k HTTP/1.1\r\nHost: x\r\n" + b"x-a: " + b"y" * 100000 + b"\r\n\r\n")
        self.assertEqual(a.status, 431)
        a = self.raw.send(b"GET /" + b"k" * 100000 + b" HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertIn(a.status, (414, 431))
        a = self.raw.send(b"GET /wire/k HTTP/1.1\r\nHost: x\r\n" + b"".join(b"x-%d: y\r\n" % i for i in range(5000)) + b"\r\n")
        self.assertIn(a.status, (400, 431))

    def test_two_lengths(self):
        a = self.raw.send(b"PUT /wire/smuggle HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        self.assertEqual(a.status, 400)
        self.absent("smuggle")

    def test_get_with_a_body(self):
        with self.raw.connect() as s:
            s.sendall(self.raw.head("GET", "/wire/absent", payload=UNSIGNED, length=5) + b"hello")
            self.assertEqual(read_answer(s).status, 404)
            s.sendall(self.raw.head("GET", "/wire/absent"))
            self.assertEqual(read_answer(s).status, 404)

    # ---- slow and leaving clients ----

    def test_slow_reader_costs_little(self):
        self.raw.request("PUT", "/wire/large", body=os.urandom(32 * KIB * KIB))
        pid = self.world.procs["predastore"].pid

        def rss():
            with open(f"/proc/{pid}/statm") as f:
                return int(f.read().split()[1]) * 4096
        before, slow = rss(), []
        for _ in range(20):
            s = self.raw.connect()
            s.sendall(self.raw.head("GET", "/wire/large"))
            s.recv(1000)
            slow.append(s)
        time.sleep(1)
        self.assertLess(rss() - before, 20 * 3 * KIB * KIB, "memory for readers that do not read")
        start = time.monotonic()
        self.assertEqual(self.raw.request("GET", "/wire/absent").status, 404)
        self.assertLess(time.monotonic() - start, 2, "others are not held up")
        for s in slow:
            s.close()
        self.present("large", self.raw.request("GET", "/wire/large").body)

    def test_readers_that_leave(self):
        self.raw.request("PUT", "/wire/large2", body=os.urandom(8 * KIB * KIB))
        for _ in range(30):
            s = self.raw.connect()
            s.sendall(self.raw.head("GET", "/wire/large2"))
            s.recv(100)
            s.close()
        self.assertEqual(self.raw.request("HEAD", "/wire/large2").status, 200)

    def test_slow_writer(self):
        with self.raw.connect() as s:
            s.sendall(self.raw.head("PUT", "/wire/slow", payload=UNSIGNED, length=20))
            for i in range(20):
                s.sendall(b"%d" % (i % 10))
                time.sleep(0.02)
            self.assertEqual(read_answer(s).status, 200)
        self.present("slow", b"01234567890123456789")

    def test_writers_at_once(self):
        bodies = {f"w{i}": os.urandom(200000 + i) for i in range(24)}
        threads = [threading.Thread(target=self.raw.request, args=("PUT", f"/wire/{k}"), kwargs=dict(body=b)) for k, b in bodies.items()]
        [t.start() for t in threads]
        [t.join() for t in threads]
        for k, b in bodies.items():
            self.present(k, b)

    # ---- the unix socket ----

    def test_local_socket(self):
        """Tests run without users of their own: the relay is known by its header, the block service by having none."""
        s = self.world.local()
        a = s.request("PUT", "/.viperblock/snap/1", body=b"block", payload=UNSIGNED, is_signed=False)
        self.assertEqual(a.status, 200, a)
        self.assertEqual(s.request("GET", "/.viperblock/snap/1", is_signed=False).body, b"block")
        self.assertEqual(s.request("GET", "/wire/k", is_signed=False).code, "AccessDenied")
        self.assertEqual(s.request("GET", "/", is_signed=False).code, "AccessDenied")
        self.assertEqual(s.request("PUT", "/newbucket", is_signed=False).code, "AccessDenied")
        self.assertEqual(self.raw.request("GET", "/.viperblock/snap/1").code, "AccessDenied")
        self.assertNotIn(b"viperblock", self.raw.request("GET", "/").body)
        relayed = self.world.local()
        relayed.key, relayed.secret = self.raw.key, self.raw.secret
        a = relayed.request("PUT", "/wire/relayed", headers={"X-Spx-Source-Ip": "192.0.2.1"}, body=b"x")
        self.assertEqual(a.status, 200, a)
        a = relayed.request("GET", "/wire/relayed", headers={"X-Spx-Source-Ip": "192.0.2.1"}, is_signed=False)
        self.assertEqual((a.status, a.code), (403, "AccessDenied"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
