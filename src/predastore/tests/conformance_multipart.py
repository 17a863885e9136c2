"""Multipart uploads: begin, parts, copies of ranges, complete with conditions and checksums, lists, abort."""
import base64
import hashlib
import unittest
import zlib

from s3lib import KIB, MIB, S3Test, main

PART = 5 * MIB


def data(n, seed=0):
    block = hashlib.sha256(b"%d" % seed).digest() * 32
    return (block * (n // len(block) + 1))[:n]


def b64(x):
    return base64.b64encode(x).decode()


def crc32(x):
    return b64(zlib.crc32(x).to_bytes(4, "big"))


class Multipart(S3Test):
    def begin(self, b, key="k", **kw):
        return self.c.create_multipart_upload(Bucket=b, Key=key, **kw)["UploadId"]

    def part(self, b, u, n, body, key="k", **kw):
        return self.c.upload_part(Bucket=b, Key=key, UploadId=u, PartNumber=n, Body=body, **kw)["ETag"]

    def complete(self, b, u, parts, key="k", **kw):
        """parts: [(number, ETag)] or whole structures."""
        parts = [p if isinstance(p, dict) else {"PartNumber": p[0], "ETag": p[1]} for p in parts]
        return self.c.complete_multipart_upload(Bucket=b, Key=key, UploadId=u, MultipartUpload={"Parts": parts}, **kw)

    def upload(self, b, bodies, key="k", **kw):
        u = self.begin(b, key, **kw)
        return u, [(i, self.part(b, u, i, body, key)) for i, body in enumerate(bodies, 1)]

    def test_whole_way(self):
        b = self.bucket()
        bodies = [data(PART, 1), data(PART + 100 * KIB, 2), data(600 * KIB, 3)]
        u, parts = self.upload(b, bodies, Metadata={"foo": "bar"}, ContentType="text/bla", CacheControl="no-store", Tagging="a=b")
        self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="k")
        r = self.complete(b, u, parts)
        etag = hashlib.md5(b"".join(hashlib.md5(x).digest() for x in bodies)).hexdigest() + "-3"
        self.assertEqual((r["ETag"], r["Bucket"], r["Key"]), (f'"{etag}"', b, "k"))
        self.assertTrue(r["Location"].endswith(f"/{b}/k"))
        g = self.c.get_object(Bucket=b, Key="k")
        self.assertEqual((g["ContentType"], g["Metadata"], g["CacheControl"], g["ETag"], g["TagCount"]),
                         ("text/bla", {"foo": "bar"}, "no-store", r["ETag"], 1))
        self.assertEqual(hashlib.md5(g["Body"].read()).digest(), hashlib.md5(b"".join(bodies)).digest())
        whole = b"".join(bodies)
        for first, last in ((0, 0), (PART - 3, PART + 3), (PART, PART), (len(whole) - 5, len(whole) - 1), (PART - 1, 2 * PART + 100 * KIB)):
            self.assertEqual(self.body(b, "k", Range=f"bytes={first}-{last}"), whole[first:last + 1])
        again = self.complete(b, u, parts)  # an answer that was lost
        self.assertEqual(again["ETag"], r["ETag"])
        self.fails(404, "NoSuchUpload", self.c.list_parts, Bucket=b, Key="k", UploadId=u)

    def test_sizes(self):
        b = self.bucket()
        for n in (1, PART, PART + 100 * KIB, 2 * PART, 2 * PART + 600 * KIB):
            bodies = [data(min(PART, n - at), at) for at in range(0, n, PART)]
            u, parts = self.upload(b, bodies)
            self.complete(b, u, parts)
            self.assertEqual(self.c.head_object(Bucket=b, Key="k")["ContentLength"], n)
        u, parts = self.upload(b, [data(10 * KIB)] * 3)
        self.fails(400, "EntityTooSmall", self.complete, b, u, parts)
        self.complete(b, u, parts[:1])  # the last one may be small
        self.assertEqual(self.body(b, "k"), data(10 * KIB))

    def test_nothing_to_complete(self):
        b = self.bucket()
        u = self.begin(b)
        for kw in ({}, {"MultipartUpload": {"Parts": []}}):
            self.fails(400, "MalformedXML", self.c.complete_multipart_upload, Bucket=b, Key="k", UploadId=u, **kw)
        for body in (b"<CompleteMultipartUpload>", b"<Other/>", b"x", b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber></Part>"
                     b"</CompleteMultipartUpload>", b"<CompleteMultipartUpload><Part><ETag>x</ETag></Part></CompleteMultipartUpload>"):
            a = self.raw("POST", f"/{b}/k?uploadId={u}", body=body)
            self.assertEqual((a.status, a.code()), (400, "MalformedXML"), body)

    def test_parts_that_do_not_fit(self):
        b = self.bucket()
        u, parts = self.upload(b, [data(PART, 1), data(10, 2)])
        self.fails(400, "InvalidPart", self.complete, b, u, [(1, "f" * 32)])
        self.fails(400, "InvalidPart", self.complete, b, u, [parts[0], (9999, parts[1][1])])
        self.fails(400, "InvalidPartOrder", self.complete, b, u, parts[::-1])
        self.fails(400, "InvalidArgument", self.complete, b, u, [(0, parts[0][1])])
        self.fails(400, "InvalidArgument", self.complete, b, u, [(10001, parts[0][1])])
        self.fails(404, "NoSuchUpload", self.complete, b, "0" * 32, parts)
        self.fails(404, "NoSuchUpload", self.complete, b, "56788", parts)
        self.fails(404, "NoSuchUpload", self.complete, b, u, parts, key="other")
        for n in (0, 10001, -1):
            self.fails(400, "InvalidArgument", self.part, b, u, n, b"x")
        self.complete(b, u, [(n, e.strip('"')) for n, e in parts])  # quotes do not matter

    def test_gaps_and_parts_left_out(self):
        b = self.bucket()
        u = self.begin(b)
        one, two, last = self.part(b, u, 3, data(PART, 3)), self.part(b, u, 77, data(PART, 77)), self.part(b, u, 10000, b"end")
        self.complete(b, u, [(3, one), (10000, last)])
        self.assertEqual(hashlib.md5(self.body(b, "k")).digest(), hashlib.md5(data(PART, 3) + b"end").digest())
        self.assertTrue(two)

    def test_parts_sent_again(self):
        b = self.bucket()
        u = self.begin(b)
        old = self.part(b, u, 1, data(PART, 1))
        new = self.part(b, u, 1, data(PART, 2))
        end = self.part(b, u, 2, b"end")
        self.fails(400, "InvalidPart", self.complete, b, u, [(1, old), (2, end)])
        self.complete(b, u, [(1, old), (1, new), (2, end)])  # listed once for each time it was sent
        self.assertEqual(hashlib.md5(self.body(b, "k")).digest(), hashlib.md5(data(PART, 2) + b"end").digest())

    def test_two_uploads_of_one_key_and_an_object_beneath(self):
        b = self.bucket("k")
        u1, p1 = self.upload(b, [b"one"])
        u2, p2 = self.upload(b, [b"two"])
        self.assertNotEqual(u1, u2)
        self.assertEqual(self.body(b, "k"), b"k")
        self.complete(b, u2, p2)
        self.assertEqual(self.body(b, "k"), b"two")
        self.complete(b, u1, p1)
        self.assertEqual(self.body(b, "k"), b"one")

    def test_abort(self):
        b = self.bucket("k")
        u, parts = self.upload(b, [b"x"])
        self.assertEqual(self.c.abort_multipart_upload(Bucket=b, Key="k", UploadId=u)["ResponseMetadata"]["HTTPStatusCode"], 204)
        self.assertEqual(self.body(b, "k"), b"k")
        for fn, kw in ((self.c.abort_multipart_upload, {}), (self.c.list_parts, {}), (self.c.upload_part, {"PartNumber": 1, "Body": b"x"}),
                       (self.c.complete_multipart_upload, {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": parts[0][1]}]}})):
            self.fails(404, "NoSuchUpload", fn, Bucket=b, Key="k", UploadId=u, **kw)
        self.fails(404, "NoSuchUpload", self.c.abort_multipart_upload, Bucket=b, Key="k", UploadId="56788")

    def test_versions(self):
        b = self.bucket(versioned=True)
        ids = []
        for i in range(3):
            u, parts = self.upload(b, [b"%d" % i])
            ids.append(self.complete(b, u, parts)["VersionId"])
        self.assertEqual([v["VersionId"] for v in self.c.list_object_versions(Bucket=b)["Versions"]], ids[::-1])
        for i, v in enumerate(ids):
            self.assertEqual(self.body(b, "k", VersionId=v), b"%d" % i)

    # ---- lists ----

    def test_list_of_parts(self):
        b = self.bucket()
        u = self.begin(b, StorageClass="STANDARD_IA")
        etags = {n: self.part(b, u, n, b"%d" % n) for n in (1, 2, 5, 9)}
        page = self.c.list_parts(Bucket=b, Key="k", UploadId=u)
        self.assertEqual([(p["PartNumber"], p["ETag"], p["Size"]) for p in page["Parts"]], [(n, e, 1) for n, e in etags.items()])
        self.assertEqual((page["Bucket"], page["Key"], page["UploadId"], page["IsTruncated"], page["StorageClass"]), (b, "k", u, False, "STANDARD_IA"))
        self.assertEqual(page["Owner"]["ID"], page["Initiator"]["ID"])
        page = self.c.list_parts(Bucket=b, Key="k", UploadId=u, MaxParts=2, PartNumberMarker=1)
        self.assertEqual([p["PartNumber"] for p in page["Parts"]], [2, 5])
        self.assertEqual((page["IsTruncated"], page["NextPartNumberMarker"], page["PartNumberMarker"], page["MaxParts"]), (True, 5, 1, 2))
        got = [p["PartNumber"] for q in self.c.get_paginator("list_parts").paginate(Bucket=b, Key="k", UploadId=u, PaginationConfig={"PageSize": 1})
               for p in q.get("Parts", [])]
        self.assertEqual(got, list(etags))
        self.assertEqual(self.raw("GET", f"/{b}/k?uploadId={u}&max-parts=x").code(), "InvalidArgument")

    def test_list_of_uploads(self):
        b = self.bucket()
        made = {(k, self.begin(b, k)) for k in ("a", "a", "a", "b/1", "b/2", "c")}
        page = self.c.list_multipart_uploads(Bucket=b)
        self.assertEqual({(u["Key"], u["UploadId"]) for u in page["Uploads"]}, made)
        self.assertEqual([u["Key"] for u in page["Uploads"]], ["a", "a", "a", "b/1", "b/2", "c"])
        self.assertEqual(page["Uploads"][0]["Owner"]["ID"], page["Uploads"][0]["Initiator"]["ID"])
        for size in (1, 2, 4):
            got, kw = [], {}
            while True:
                page = self.c.list_multipart_uploads(Bucket=b, MaxUploads=size, **kw)
                got += [(u["Key"], u["UploadId"]) for u in page.get("Uploads", [])]
                if not page["IsTruncated"]:
                    break
                kw = {"KeyMarker": page["NextKeyMarker"], "UploadIdMarker": page["NextUploadIdMarker"]}
                self.assertEqual(got[-1], (kw["KeyMarker"], kw["UploadIdMarker"]))
            self.assertEqual((set(got), len(got)), (made, len(made)))
        page = self.c.list_multipart_uploads(Bucket=b, Delimiter="/")
        self.assertEqual(([u["Key"] for u in page["Uploads"]], page["CommonPrefixes"]), (["a", "a", "a", "c"], [{"Prefix": "b/"}]))
        self.assertEqual([u["Key"] for u in self.c.list_multipart_uploads(Bucket=b, Prefix="b")["Uploads"]], ["b/1", "b/2"])
        self.assertEqual([u["Key"] for u in self.c.list_multipart_uploads(Bucket=b, KeyMarker="b/1")["Uploads"]], ["b/2", "c"])

    # ---- parts that are copies ----

    def test_copied_parts(self):
        src, b = self.bucket(), self.bucket()
        whole = data(12 * MIB, 9)
        for key in ("src", " ", "_", "?versionId", "a+b %"):
            self.c.put_object(Bucket=src, Key=key, Body=whole)
            u = self.begin(b)
            parts = []
            for n, at in enumerate(range(0, len(whole), PART), 1):
                r = self.c.upload_part_copy(Bucket=b, Key="k", UploadId=u, PartNumber=n, CopySource={"Bucket": src, "Key": key},
                                            CopySourceRange=f"bytes={at}-{min(at + PART, len(whole)) - 1}")
                parts.append((n, r["CopyPartResult"]["ETag"]))
            self.complete(b, u, parts)
            self.assertEqual(hashlib.md5(self.body(b, "k")).digest(), hashlib.md5(whole).digest())
            if key != "src":
                break

    def test_copied_part_without_range_and_of_versions(self):
        src, b = self.bucket(versioned=True), self.bucket()
        ids = [self.c.put_object(Bucket=src, Key="s", Body=b"v%d" % i)["VersionId"] for i in range(3)]
        for i, v in enumerate(ids):
            u = self.begin(b)
            r = self.c.upload_part_copy(Bucket=b, Key="k", UploadId=u, PartNumber=1, CopySource={"Bucket": src, "Key": "s", "VersionId": v})
            self.assertEqual(r["CopySourceVersionId"], v)
            self.complete(b, u, [(1, r["CopyPartResult"]["ETag"])])
            self.assertEqual(self.body(b, "k"), b"v%d" % i)

    def test_copied_part_with_bad_ranges(self):
        b = self.bucket()
        self.c.put_object(Bucket=b, Key="s", Body=b"12345")
        u = self.begin(b)
        kw = {"Bucket": b, "Key": "k", "UploadId": u, "PartNumber": 1, "CopySource": {"Bucket": b, "Key": "s"}}
        with self.assertRaises(Exception) as e:
            self.c.upload_part_copy(CopySourceRange="bytes=0-21", **kw)
        self.assertEqual(e.exception.response["Error"]["Code"], "InvalidRange")
        self.assertIn(e.exception.response["ResponseMetadata"]["HTTPStatusCode"], (400, 416))
        for bad in ("0-2", "bytes=0", "bytes=hello-world", "bytes=0-bar", "bytes=hello-", "bytes=0-2,3-5"):
            self.fails(400, "InvalidArgument", self.c.upload_part_copy, CopySourceRange=bad, **kw)
        self.fails(404, "NoSuchKey", self.c.upload_part_copy, **{**kw, "CopySource": {"Bucket": b, "Key": "none"}})

    # ---- conditions ----

    def test_conditional_complete(self):
        for versioned in (False, True):
            b = self.bucket(versioned=versioned)

            def up(ok=True, body=b"abc", **kw):
                u, parts = self.upload(b, [body])
                if ok is True:
                    return self.complete(b, u, parts, **kw)["ETag"]
                self.fails(ok[0], ok[1], self.complete, b, u, parts, **kw)
                self.c.abort_multipart_upload(Bucket=b, Key="k", UploadId=u)
            missing, refused = (404, "NoSuchKey"), (412, "PreconditionFailed")
            up(missing, IfMatch="*")
            up(missing, IfMatch="badetag")
            first = up(body=b"1", IfNoneMatch="*")
            up(refused, IfNoneMatch="*")
            up(refused, IfNoneMatch=first)
            second = up(body=b"2", IfMatch="*")
            up(refused, IfMatch=first)
            up(refused, IfMatch="badetag")
            up(body=b"2", IfMatch=second)
            up(body=b"3", IfNoneMatch=second[:-1] + 'x"')
            self.c.delete_object(Bucket=b, Key="k")
            up(missing, IfMatch="*")
            up(missing, IfMatch=second)
            up(IfNoneMatch="*")

    def test_a_refused_complete_can_be_tried_again(self):
        b = self.bucket("k")
        u, parts = self.upload(b, [b"abc"])
        self.fails(412, "PreconditionFailed", self.complete, b, u, parts, IfNoneMatch="*")
        self.assertEqual(len(self.c.list_parts(Bucket=b, Key="k", UploadId=u)["Parts"]), 1)
        self.complete(b, u, parts)
        self.assertEqual(self.body(b, "k"), b"abc")

    def test_promised_size(self):
        b = self.bucket()
        u, parts = self.upload(b, [data(PART), b"end"])
        self.fails(400, "InvalidRequest", self.complete, b, u, parts, MpuObjectSize=PART)
        self.complete(b, u, parts, MpuObjectSize=PART + 3)

    # ---- checksums ----

    def test_composite_checksums(self):
        for alg, fn in (("SHA256", lambda x: b64(hashlib.sha256(x).digest())), ("SHA1", lambda x: b64(hashlib.sha1(x).digest())), ("CRC32", crc32)):
            b = self.bucket()
            field = "Checksum" + alg
            r = self.c.create_multipart_upload(Bucket=b, Key="k", ChecksumAlgorithm=alg)
            u = r["UploadId"]
            self.assertEqual((r["ChecksumAlgorithm"], r["ChecksumType"]), (alg, "COMPOSITE"))
            bodies = [data(PART, 1), data(PART, 2), b"end"]
            parts = []
            for n, body in enumerate(bodies, 1):
                self.fails(400, ("BadDigest", "InvalidRequest"), self.part, b, u, n, body, **{field: fn(b"other")})
                r = self.c.upload_part(Bucket=b, Key="k", UploadId=u, PartNumber=n, Body=body, ChecksumAlgorithm=alg, **{field: fn(body)})
                self.assertEqual(r[field], fn(body))
                parts.append({"PartNumber": n, "ETag": r["ETag"], field: r[field]})
            page = self.c.list_parts(Bucket=b, Key="k", UploadId=u)
            self.assertEqual((page["ChecksumAlgorithm"], page["ChecksumType"], [p[field] for p in page["Parts"]]),
                             (alg, "COMPOSITE", [fn(x) for x in bodies]))
            raw = b"".join(base64.b64decode(fn(x)) for x in bodies)
            want = fn(raw) + "-3"
            bare = [{k: v for k, v in p.items() if k != field} for p in parts]
            self.fails(400, "InvalidRequest", self.complete, b, u, bare)
            self.fails(400, "InvalidPart", self.complete, b, u, [{**parts[0], field: fn(b"x")}] + parts[1:])
            self.fails(400, ("BadDigest", "InvalidRequest"), self.complete, b, u, parts, **{field: fn(b"x") + "-3"})
            self.fails(400, "BadDigest", self.complete, b, u, parts, **{field: "bad"})
            r = self.complete(b, u, parts, **{field: want})
            self.assertEqual((r[field], r["ChecksumType"]), (want, "COMPOSITE"))
            again = self.complete(b, u, parts, **{field: want})
            self.assertEqual((again["ETag"], again[field]), (r["ETag"], want))
            h = self.c.head_object(Bucket=b, Key="k", ChecksumMode="ENABLED")
            self.assertEqual((h[field], h["ChecksumType"]), (want, "COMPOSITE"))
            self.assertNotIn(field, self.c.head_object(Bucket=b, Key="k"))
            a = self.c.get_object_attributes(Bucket=b, Key="k", ObjectAttributes=["Checksum", "ObjectParts", "ObjectSize"])
            self.assertEqual((a["Checksum"][field], a["Checksum"]["ChecksumType"], a["ObjectParts"]["TotalPartsCount"], a["ObjectSize"]),
                             (want[:-2], "COMPOSITE", 3, 2 * PART + 3))
            self.assertEqual([p[field] for p in a["ObjectParts"]["Parts"]], [fn(x) for x in bodies])

    def test_full_object_checksums(self):
        bodies = [data(PART, 1), data(PART, 2), b"end"]
        b = self.bucket()
        r = self.c.create_multipart_upload(Bucket=b, Key="k", ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
        u = r["UploadId"]
        parts = [(n, self.part(b, u, n, body, ChecksumAlgorithm="CRC32")) for n, body in enumerate(bodies, 1)]
        want = crc32(b"".join(bodies))
        self.fails(400, "BadDigest", self.complete, b, u, parts, ChecksumCRC32=crc32(b"x"))
        self.fails(400, "InvalidRequest", self.complete, b, u, parts, ChecksumType="COMPOSITE")
        r = self.complete(b, u, parts, ChecksumCRC32=want, ChecksumType="FULL_OBJECT")
        self.assertEqual((r["ChecksumCRC32"], r["ChecksumType"]), (want, "FULL_OBJECT"))
        self.assertEqual(self.c.head_object(Bucket=b, Key="k", ChecksumMode="ENABLED")["ChecksumCRC32"], want)
        a = self.c.get_object_attributes(Bucket=b, Key="k", ObjectAttributes=["Checksum"])
        self.assertEqual(a["Checksum"]["ChecksumCRC32"], want)

    def test_default_checksum_is_of_the_whole(self):
        b = self.bucket()
        quiet = self.store.client(request_checksum_calculation="when_required")
        u = quiet.create_multipart_upload(Bucket=b, Key="k")["UploadId"]
        bodies = [data(PART, 1), b"end"]
        parts = [{"PartNumber": n, "ETag": quiet.upload_part(Bucket=b, Key="k", UploadId=u, PartNumber=n, Body=x)["ETag"]} for n, x in enumerate(bodies, 1)]
        r = quiet.complete_multipart_upload(Bucket=b, Key="k", UploadId=u, MultipartUpload={"Parts": parts})
        self.assertEqual(r["ChecksumType"], "FULL_OBJECT")
        self.c.put_object(Bucket=b, Key="same", Body=b"".join(bodies), ChecksumAlgorithm="CRC64NVME") if self.has_crt() else None
        self.assertNotIn("-", r["ChecksumCRC64NVME"])

    def has_crt(self):
        try:
            import awscrt  # noqa: F401
            return True
        except ImportError:
            return False

    def test_kinds_that_do_not_go_together(self):
        b = self.bucket()
        for alg, kind in (("CRC64NVME", "COMPOSITE"), ("SHA1", "FULL_OBJECT"), ("SHA256", "FULL_OBJECT")):
            self.fails(400, "InvalidRequest", self.c.create_multipart_upload, Bucket=b, Key="k", ChecksumAlgorithm=alg, ChecksumType=kind)
        self.assertNotIn("Uploads", self.c.list_multipart_uploads(Bucket=b))

    def test_composite_checksums_tell_the_number_of_parts(self):
        b = self.bucket()
        u = self.c.create_multipart_upload(Bucket=b, Key="k", ChecksumAlgorithm="SHA256")["UploadId"]
        sums, parts = [], []
        for n, body in enumerate((data(PART, 1), b"end"), 1):
            r = self.c.upload_part(Bucket=b, Key="k", UploadId=u, PartNumber=n, Body=body, ChecksumAlgorithm="SHA256")
            sums.append(base64.b64encode(hashlib.sha256(body).digest()).decode())
            parts.append({"PartNumber": n, "ETag": r["ETag"], "ChecksumSHA256": r["ChecksumSHA256"]})
        whole = base64.b64encode(hashlib.sha256(b"".join(base64.b64decode(s) for s in sums)).digest()).decode() + "-2"
        done = self.c.complete_multipart_upload(Bucket=b, Key="k", UploadId=u, MultipartUpload={"Parts": parts})
        head = self.c.head_object(Bucket=b, Key="k", ChecksumMode="ENABLED")
        self.assertEqual([(x["ChecksumSHA256"], x["ChecksumType"]) for x in (done, head)], [(whole, "COMPOSITE")] * 2)
        for n, s in enumerate(sums, 1):
            g = self.c.get_object(Bucket=b, Key="k", PartNumber=n, ChecksumMode="ENABLED")
            self.assertEqual((g["ChecksumSHA256"], g["ChecksumType"]), (s, "COMPOSITE"))

    def test_parts_of_an_object(self):
        b = self.bucket("plain")
        bodies = [data(PART, 1), data(PART, 2), b"end"]
        u, parts = self.upload(b, bodies)
        etag = self.complete(b, u, parts)["ETag"]
        for n, body in enumerate(bodies, 1):
            g = self.c.get_object(Bucket=b, Key="k", PartNumber=n)
            self.assertEqual((g["PartsCount"], g["ContentLength"], g["ETag"], g["ResponseMetadata"]["HTTPStatusCode"]), (3, len(body), etag, 206))
            self.assertEqual(hashlib.md5(g["Body"].read()).digest(), hashlib.md5(body).digest())
        h = self.c.head_object(Bucket=b, Key="k", PartNumber=2)
        self.assertEqual((h["PartsCount"], h["ContentLength"]), (3, PART))
        self.fails(416, "InvalidPartNumber", self.c.get_object, Bucket=b, Key="k", PartNumber=4)
        a = self.c.get_object_attributes(Bucket=b, Key="k", ObjectAttributes=["ETag", "ObjectParts", "StorageClass", "ObjectSize"])
        p = a["ObjectParts"]
        self.assertEqual((a["ETag"], p["TotalPartsCount"], p["IsTruncated"]), (etag.strip('"'), 3, False))
        self.assertEqual([(x["PartNumber"], x["Size"]) for x in p["Parts"]], [(1, PART), (2, PART), (3, 3)])
        p = self.c.get_object_attributes(Bucket=b, Key="k", ObjectAttributes=["ObjectParts"], MaxParts=1, PartNumberMarker=1)["ObjectParts"]
        self.assertEqual((p["MaxParts"], p["PartNumberMarker"], p["NextPartNumberMarker"], p["IsTruncated"], [x["PartNumber"] for x in p["Parts"]]),
                         (1, 1, 2, True, [2]))
        self.assertEqual(self.body(b, "plain", PartNumber=1), b"plain")
        self.fails(416, "InvalidPartNumber", self.c.get_object, Bucket=b, Key="plain", PartNumber=2)


assert unittest
if __name__ == "__main__":
    main()
