"""Objects: written, read, described, copied, under conditions, in ranges, and while others write."""
import base64
import datetime
import email.utils
import hashlib
import io
import threading

from s3lib import MIB, S3Test, main, md5


class Objects(S3Test):
    def test_life(self):
        b = self.bucket()
        r = self.c.put_object(Bucket=b, Key="foo", Body=b"bar")
        self.assertEqual(r["ETag"], '"37b51d194a7513e45b56f6524f2d51f2"')
        self.assertEqual(self.body(b, "foo"), b"bar")
        self.c.put_object(Bucket=b, Key="foo", Body=b"soup")
        self.assertEqual(self.body(b, "foo"), b"soup")
        self.assertEqual(self.c.delete_object(Bucket=b, Key="foo")["ResponseMetadata"]["HTTPStatusCode"], 204)
        self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="foo")
        self.c.delete_object(Bucket=b, Key="foo")

    def test_sizes(self):
        b = self.bucket()
        for n in (0, 1, 16383, 16384, 16385, 131071, 131072, 131073, MIB + 1, 9 * MIB + 7):
            body = (b"%08d" % n) * (n // 8 + 1)
            body = body[:n]
            r = self.c.put_object(Bucket=b, Key="k", Body=body)
            self.assertEqual(r["ETag"], f'"{hashlib.md5(body).hexdigest()}"')
            g = self.c.get_object(Bucket=b, Key="k")
            self.assertEqual((g["ContentLength"], hashlib.md5(g["Body"].read()).digest()), (n, hashlib.md5(body).digest()))

    def test_system_metadata(self):
        b = self.bucket()
        expires = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0) + datetime.timedelta(seconds=6000)
        kw = {"CacheControl": "public, max-age=14400", "ContentDisposition": 'attachment; filename="x"', "ContentEncoding": "gzip",
              "ContentLanguage": "de", "ContentType": "text/x-odd; charset=utf-8", "WebsiteRedirectLocation": "/other"}
        self.c.put_object(Bucket=b, Key="k", Body=b"x", Expires=expires, StorageClass="STANDARD_IA", **kw)
        for answer in (self.c.head_object(Bucket=b, Key="k"), self.c.get_object(Bucket=b, Key="k")):
            self.assertEqual({k: answer[k] for k in kw}, kw)
            self.assertEqual((answer["StorageClass"], answer["AcceptRanges"]), ("STANDARD_IA", "bytes"))
            self.assertEqual(email.utils.parsedate_to_datetime(answer["ResponseMetadata"]["HTTPHeaders"]["expires"]), expires)
        self.c.put_object(Bucket=b, Key="k", Body=b"x")
        h = self.c.head_object(Bucket=b, Key="k")
        self.assertEqual(h["ContentType"], "binary/octet-stream")
        self.assertNotIn("CacheControl", h)
        self.assertNotIn("StorageClass", h)
        self.fails(400, "InvalidStorageClass", self.c.put_object, Bucket=b, Key="k", Body=b"x", StorageClass="WHATEVER")

    def test_content_encodings(self):
        b = self.bucket()
        for sent, kept in (("gzip", "gzip"), ("deflate, gzip", "deflate, gzip"), ("deflate,gzip", "deflate,gzip"), ("gzip, aws-chunked", "gzip"),
                           ("aws-chunked, br, gzip", "br, gzip"), ("aws-chunked", None), ("aws-chunked, aws-chunked", None)):
            self.c.put_object(Bucket=b, Key="k", Body=b"x", ContentEncoding=sent)
            self.assertEqual(self.c.head_object(Bucket=b, Key="k").get("ContentEncoding"), kept, sent)

    def test_reads_say_nothing_of_encryption(self):
        b = self.bucket("k")
        for method in ("GET", "HEAD"):
            a = self.raw(method, f"/{b}/k", {"x-amz-server-side-encryption": "AES256"})
            self.assertEqual((a.status, a.code()), (400, "InvalidArgument" if method == "GET" else None))

    def test_user_metadata(self):
        b = self.bucket()
        for value in ("mymeta", "", "two  words", "a,b;c=d"):
            self.c.put_object(Bucket=b, Key="k", Body=b"x", Metadata={"meta1": value, "Other-Name": "1"})
            self.assertEqual(self.c.get_object(Bucket=b, Key="k")["Metadata"]["meta1"], value)
            self.assertIn("other-name", self.c.head_object(Bucket=b, Key="k")["Metadata"])
        self.c.put_object(Bucket=b, Key="k", Body=b"x")
        self.assertEqual(self.c.head_object(Bucket=b, Key="k")["Metadata"], {})
        self.c.put_object(Bucket=b, Key="k", Body=b"x", Metadata={"m": "v" * 2047})
        self.fails(400, "MetadataTooLarge", self.c.put_object, Bucket=b, Key="k", Body=b"x", Metadata={"m": "v" * 2048})

    def test_unicode_metadata(self):
        b = self.bucket()
        a = self.raw("PUT", f"/{b}/k", {"x-amz-meta-meta1": "Hello World\u00e9".encode()}, b"bar")
        self.assertEqual(a.status, 200)
        got = self.c.get_object(Bucket=b, Key="k")["Metadata"]["meta1"]
        decoded = "".join(p if isinstance(p, str) else p.decode(c or "ascii") for p, c in __import__("email.header").header.decode_header(got))
        self.assertIn("Hello World\u00e9", (got, decoded, got.encode("latin-1").decode("utf-8", "replace")))
        word = "=?UTF-8?B?" + base64.b64encode("grün".encode()).decode() + "?="
        self.c.put_object(Bucket=b, Key="k", Body=b"x", Metadata={"m": word})
        self.assertEqual(self.c.head_object(Bucket=b, Key="k")["Metadata"]["m"].lower(), word.lower())

    def test_unreadable_metadata(self):
        b = self.bucket()
        for value in ("\x04mymeta", "h\x04", "h\x04w"):
            a = self.raw("PUT", f"/{b}/k", {"x-amz-meta-meta1": value}, b"bar")
            self.assertEqual(a.status, 400)
        self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="k")

    def test_overrides_of_an_answer(self):
        b = self.bucket("k")
        r = self.c.get_object(Bucket=b, Key="k", ResponseCacheControl="no-cache", ResponseContentDisposition="bla", ResponseContentEncoding="aaa",
                              ResponseContentLanguage="esperanto", ResponseContentType="foo/bar", ResponseExpires="Thu, 01 Dec 1994 16:00:00 GMT")
        h = r["ResponseMetadata"]["HTTPHeaders"]
        self.assertEqual((h["content-type"], h["content-disposition"], h["content-language"], h["content-encoding"], h["cache-control"]),
                         ("foo/bar", "bla", "esperanto", "aaa", "no-cache"))
        self.assertEqual(self.raw("GET", f"/{b}/k?response-content-type=x", sign=False).status, 403)

    def test_request_ids(self):
        b = self.bucket()
        e = self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="bar")
        self.assertEqual(e["ResponseMetadata"]["RequestId"], e["Error"].get("RequestId", e["ResponseMetadata"]["RequestId"]))
        a = self.raw("GET", f"/{b}/bar")
        self.assertEqual(a.text("RequestId"), a.headers["x-amz-request-id"])
        self.assertEqual((a.text("Key"), a.headers["content-type"]), ("bar", "application/xml"))

    # ---- ranges ----

    def test_ranges(self):
        b, body = self.bucket(), b"testcontent"
        self.c.put_object(Bucket=b, Key="k", Body=body)
        for text, first, last in (("4-7", 4, 7), ("4-", 4, 10), ("-7", 4, 10), ("0-0", 0, 0), ("5-100", 5, 10), ("-100", 0, 10)):
            g = self.c.get_object(Bucket=b, Key="k", Range="bytes=" + text)
            self.assertEqual((g["Body"].read(), g["ContentRange"], g["ResponseMetadata"]["HTTPStatusCode"]),
                             (body[first:last + 1], f"bytes {first}-{last}/11", 206))
        for text in ("40-50", "11-", "-0"):
            self.fails(416, "InvalidRange", self.c.get_object, Bucket=b, Key="k", Range="bytes=" + text)
        for text in ("bytes=7-4", "bytes=x", "lines=1-2", "bytes=0-1,3-4"):  # no range, or one that we do not do: all of it
            g = self.c.get_object(Bucket=b, Key="k", Range=text)
            self.assertEqual((g["Body"].read(), g["ResponseMetadata"]["HTTPStatusCode"]), (body, 200))
        self.c.put_object(Bucket=b, Key="empty", Body=b"")
        self.fails(416, "InvalidRange", self.c.get_object, Bucket=b, Key="empty", Range="bytes=40-50")
        big = hashlib.sha256(b"x").digest() * (8 * MIB // 32)
        self.c.put_object(Bucket=b, Key="big", Body=big)
        self.assertEqual(self.body(b, "big", Range="bytes=3145728-5242880"), big[3145728:5242881])

    # ---- conditions ----

    def test_conditional_reads(self):
        b = self.bucket("k")
        h = self.c.head_object(Bucket=b, Key="k")
        etag, when = h["ETag"], h["LastModified"]
        old, future = datetime.datetime(1994, 10, 29, 19, 43, 31), datetime.datetime(2100, 10, 29, 19, 43, 31)
        second = datetime.timedelta(seconds=1)
        for kw, status in (({"IfMatch": etag}, 200), ({"IfMatch": '"ABCORZ"'}, 412), ({"IfMatch": "*"}, 200), ({"IfNoneMatch": etag}, 304),
                           ({"IfNoneMatch": "ABCORZ"}, 200), ({"IfNoneMatch": "*"}, 304), ({"IfModifiedSince": old}, 200),
                           ({"IfModifiedSince": when}, 304), ({"IfUnmodifiedSince": old}, 412), ({"IfUnmodifiedSince": future}, 200),
                           ({"IfMatch": etag, "IfUnmodifiedSince": old}, 200), ({"IfNoneMatch": "x", "IfModifiedSince": when}, 200),
                           ({"IfNoneMatch": etag, "IfModifiedSince": old}, 304), ({"IfUnmodifiedSince": when - second}, 412)):
            for call in (self.c.get_object, self.c.head_object):
                if status == 200:
                    call(Bucket=b, Key="k", **kw)
                    continue
                e = self.fails(status, None, call, Bucket=b, Key="k", **kw)
                if status == 304:
                    self.assertEqual(e["ResponseMetadata"]["HTTPHeaders"]["etag"], etag)
                    self.assertNotIn("content-type", e["ResponseMetadata"]["HTTPHeaders"])

    def test_conditional_writes(self):
        for versioned in (False, True):
            b = self.bucket(versioned=versioned)

            def put(body=b"", **kw):
                return self.c.put_object(Bucket=b, Key="k", Body=body, **kw)["ETag"]
            missing, refused = (404, "NoSuchKey"), (412, "PreconditionFailed")
            self.fails(*missing, put, IfMatch="*")
            self.fails(*missing, put, IfMatch="badetag")
            one = put(b"1", IfNoneMatch="*")
            self.fails(*refused, put, IfNoneMatch="*")
            self.fails(*refused, put, IfNoneMatch=one)
            put(b"1", IfNoneMatch="badetag")
            two = put(b"2", IfMatch=one)
            self.fails(*refused, put, IfMatch=one)
            put(b"2", IfMatch=two.strip('"'))
            put(b"2", IfMatch="*")
            self.assertEqual(self.body(b, "k"), b"2")
            self.c.delete_object(Bucket=b, Key="k")
            self.fails(*missing, put, IfMatch="*")
            self.fails(*missing, put, IfMatch=two)
            put(b"3", IfNoneMatch="*")

    def test_one_winner_of_many(self):
        b, won = self.bucket(), []

        def put(i):
            try:
                self.c.put_object(Bucket=b, Key="k", Body=b"%d" % i, IfNoneMatch="*")
                won.append(i)
            except self.c.exceptions.ClientError as e:
                if e.response["Error"]["Code"] not in ("PreconditionFailed", "ConditionalRequestConflict"):
                    raise
        threads = [threading.Thread(target=put, args=(i,)) for i in range(16)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(len(won), 1)
        self.assertEqual(self.body(b, "k"), b"%d" % won[0])

    # ---- copies ----

    def copy(self, b, key, source, **kw):
        return self.c.copy_object(Bucket=b, Key=key, CopySource=source, **kw)

    def test_copies(self):
        a, b = self.bucket(), self.bucket()
        for n in (0, 3, MIB):
            self.c.put_object(Bucket=a, Key="foo?b+a r", Body=bytes(n), ContentType="audio/ogg", Metadata={"key1": "value1", "key2": "value2"})
            for where in (a, b):
                r = self.copy(where, "new&x", {"Bucket": a, "Key": "foo?b+a r"})
                g = self.c.get_object(Bucket=where, Key="new&x")
                self.assertEqual((g["Body"].read(), g["ContentType"], g["Metadata"]), (bytes(n), "audio/ogg", {"key1": "value1", "key2": "value2"}))
                self.assertEqual((r["CopyObjectResult"]["ETag"], g["LastModified"]), (g["ETag"], r["CopyObjectResult"]["LastModified"]))
            self.copy(b, "new", {"Bucket": a, "Key": "foo?b+a r"}, Metadata={"key3": "value3"}, MetadataDirective="REPLACE", ContentType="audio/mpeg")
            g = self.c.get_object(Bucket=b, Key="new")
            self.assertEqual((g["ContentType"], g["Metadata"]), ("audio/mpeg", {"key3": "value3"}))
            self.copy(b, "new", {"Bucket": a, "Key": "foo?b+a r"}, Metadata={"key3": "ignored"})
            self.assertEqual(self.c.head_object(Bucket=b, Key="new")["Metadata"], {"key1": "value1", "key2": "value2"})

    def test_copies_to_itself(self):
        b = self.bucket("k")
        self.fails(400, "InvalidRequest", self.copy, b, "k", {"Bucket": b, "Key": "k"})
        self.copy(b, "k", {"Bucket": b, "Key": "k"}, Metadata={"foo": "bar"}, MetadataDirective="REPLACE")
        self.assertEqual(self.c.head_object(Bucket=b, Key="k")["Metadata"], {"foo": "bar"})
        self.copy(b, "k", {"Bucket": b, "Key": "k"}, StorageClass="STANDARD_IA")
        self.assertEqual(self.c.head_object(Bucket=b, Key="k")["StorageClass"], "STANDARD_IA")

    def test_copies_that_fail(self):
        b = self.bucket("k")
        self.fails(404, "NoSuchBucket", self.copy, b, "x", {"Bucket": b + "-fake", "Key": "k"})
        self.fails(404, "NoSuchKey", self.copy, b, "x", {"Bucket": b, "Key": "none"})
        theirs = self.bucket(client=self.alt)
        self.fails(403, "AccessDenied", self.alt.copy_object, Bucket=theirs, Key="x", CopySource={"Bucket": b, "Key": "k"})
        self.fails(403, "AccessDenied", self.copy, theirs, "x", {"Bucket": b, "Key": "k"})
        self.fails(400, "InvalidArgument", self.copy, b, "x", "nothing")

    def test_conditional_copies(self):
        b = self.bucket("k")
        etag = self.c.head_object(Bucket=b, Key="k")["ETag"]
        self.copy(b, "x", {"Bucket": b, "Key": "k"}, CopySourceIfMatch=etag)
        self.fails(412, "PreconditionFailed", self.copy, b, "x", {"Bucket": b, "Key": "k"}, CopySourceIfMatch="ABCORZ")
        self.fails(412, "PreconditionFailed", self.copy, b, "x", {"Bucket": b, "Key": "k"}, CopySourceIfNoneMatch=etag)
        self.copy(b, "x", {"Bucket": b, "Key": "k"}, CopySourceIfNoneMatch="ABCORZ")
        old = datetime.datetime(1994, 10, 29)
        self.fails(412, "PreconditionFailed", self.copy, b, "x", {"Bucket": b, "Key": "k"}, CopySourceIfUnmodifiedSince=old)
        self.copy(b, "x", {"Bucket": b, "Key": "k"}, CopySourceIfModifiedSince=old)

    def test_versioned_copies(self):
        a, b, plain = self.bucket(versioned=True), self.bucket(versioned=True), self.bucket()
        v1 = self.c.put_object(Bucket=a, Key="k", Body=b"1")["VersionId"]
        self.c.put_object(Bucket=a, Key="k", Body=b"2")
        for where in (a, b, plain):
            r = self.copy(where, "new", {"Bucket": a, "Key": "k", "VersionId": v1})
            self.assertEqual((self.body(where, "new"), r["CopySourceVersionId"], "VersionId" in r), (b"1", v1, where != plain))
        self.copy(a, "back", {"Bucket": plain, "Key": "new"})
        self.assertEqual(self.body(a, "back"), b"1")

    # ---- whole generations only ----

    def test_a_read_sees_one_generation(self):
        b = self.bucket()
        for n in (MIB, 8 * MIB):
            self.c.put_object(Bucket=b, Key="k", Body=b"A" * n)
            stream = self.c.get_object(Bucket=b, Key="k")["Body"]
            got = stream.read(1000)
            self.c.put_object(Bucket=b, Key="k", Body=b"B" * n)
            got += stream.read()
            self.assertEqual((len(got), set(got)), (n, {ord("A")}))
            self.assertEqual(set(self.body(b, "k")), {ord("B")})

    def test_a_write_shows_when_it_is_whole(self):
        b, n = self.bucket(), 4 * MIB
        self.c.put_object(Bucket=b, Key="k", Body=b"A" * n)
        seen = []

        class Slow(io.BytesIO):
            def read(inner, size=-1):
                chunk = super().read(size)
                if chunk and inner.tell() == n:
                    seen.append(set(self.body(b, "k", Range="bytes=0-9")))
                return chunk
        self.c.put_object(Bucket=b, Key="k", Body=Slow(b"B" * n))
        self.assertEqual(seen[-1], {ord("A")})
        self.assertEqual(set(self.body(b, "k")), {ord("B")})

    def test_the_bucket_goes_while_a_body_comes(self):
        b = self.bucket()
        gone = []

        class Slow(io.BytesIO):
            def read(inner, size=-1):
                chunk = super().read(size)
                if inner.tell() == MIB and not gone and inner.sending:
                    gone.append(self.c.delete_bucket(Bucket=b))
                return chunk
        body = Slow(b"A" * MIB)
        body.sending = True
        self.fails(404, "NoSuchBucket", self.c.put_object, Bucket=b, Key="k", Body=body)

    # ---- digests ----

    def test_digests(self):
        b = self.bucket()
        for value, code in (("YWJyYWNhZGFicmE=", "InvalidDigest"), ("rL0Y20xC+Fzt72VPzMSk2A==", "BadDigest"), ("", "InvalidDigest"),
                            ("AWS HAHAHA", "InvalidDigest")):
            a = self.raw("PUT", f"/{b}/k", {"Content-MD5": value}, b"bar")
            self.assertEqual((a.status, a.code()), (400, code))
        self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="k")
        self.assertEqual(self.raw("PUT", f"/{b}/k", {"Content-MD5": md5(b"bar")}, b"bar").status, 200)
        a = self.raw("PUT", f"/{b}/k", {}, b"bar", payload=hashlib.sha256(b"baz").hexdigest())
        self.assertEqual((a.status, a.code()), (400, "XAmzContentSHA256Mismatch"))

    def test_checksums(self):
        b = self.bucket()
        good = {"SHA256": base64.b64encode(hashlib.sha256(b"bar").digest()).decode(), "SHA1": base64.b64encode(hashlib.sha1(b"bar").digest()).decode()}
        for alg, value in good.items():
            r = self.c.put_object(Bucket=b, Key="k", Body=b"bar", ChecksumAlgorithm=alg, **{"Checksum" + alg: value})
            self.assertEqual((r["Checksum" + alg], r["ChecksumType"]), (value, "FULL_OBJECT"))
            self.assertEqual(self.c.head_object(Bucket=b, Key="k", ChecksumMode="ENABLED")["Checksum" + alg], value)
            a = self.c.get_object_attributes(Bucket=b, Key="k", ObjectAttributes=["Checksum", "ETag", "ObjectSize", "StorageClass"])
            self.assertEqual((a["Checksum"]["Checksum" + alg], a["ETag"], a["ObjectSize"], a["StorageClass"]),
                             (value, hashlib.md5(b"bar").hexdigest(), 3, "STANDARD"))
            self.fails(400, ("BadDigest", "InvalidRequest"), self.c.put_object, Bucket=b, Key="k", Body=b"baz", **{"Checksum" + alg: value})
        self.assertEqual(self.body(b, "k"), b"bar")


if __name__ == "__main__":
    main()
