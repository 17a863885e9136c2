#!/usr/bin/env python3
"""Objects through boto3: what is put comes back, and every rule of PUT, GET, HEAD, DELETE, copy, rename and attributes."""
import base64
import datetime
import hashlib
import io
import os
import threading
import time
import unittest
import urllib.request
import zlib

from botocore.exceptions import ClientError

from s3_world import World

MIB = 1 << 20


def code_of(fn, *args, **kw):
    try:
        fn(*args, **kw)
    except ClientError as e:
        return e.response["ResponseMetadata"]["HTTPStatusCode"], e.response["Error"]["Code"]
    return None


class Objects(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = World().up()
        cls.s3 = cls.world.s3()
        cls.raw = cls.world.raw()
        cls.n = 0

    @classmethod
    def tearDownClass(cls):
        cls.world.close()

    def setUp(self):
        Objects.n += 1
        self.b = f"bucket-{Objects.n}"
        self.s3.create_bucket(Bucket=self.b, CreateBucketConfiguration={"LocationConstraint": "ap-southeast-2"})

    def versions(self, status="Enabled"):
        self.s3.put_bucket_versioning(Bucket=self.b, VersioningConfiguration={"Status": status})

    # ---- bodies ----

    def test_sizes(self):
        for size in (0, 1, 16367, 16368, 16369, 65536, 131072, 131073, 3 * MIB + 17):
            body = os.urandom(size)
            r = self.s3.put_object(Bucket=self.b, Key=f"k{size}", Body=body)
            self.assertEqual(r["ETag"], '"%s"' % hashlib.md5(body).hexdigest())
            got = self.s3.get_object(Bucket=self.b, Key=f"k{size}")
            self.assertEqual(got["Body"].read(), body)
            self.assertEqual(got["ContentLength"], size)
            self.assertEqual(got["ETag"], r["ETag"])
            self.assertEqual(got["ServerSideEncryption"], "AES256")
            head = self.s3.head_object(Bucket=self.b, Key=f"k{size}")
            self.assertEqual(head["ContentLength"], size)

    def test_big_stream_both_ways(self):
        body = os.urandom(MIB) * 40
        self.s3.put_object(Bucket=self.b, Key="big", Body=body)
        got = self.s3.get_object(Bucket=self.b, Key="big")["Body"].read()
        self.assertEqual(hashlib.sha256(got).digest(), hashlib.sha256(body).digest())

    def test_keys(self):
        keys = ["a", "a/", "a//b", "/a", "a/../b", "ä ö+%/?&=#", "x" * 1024, "\u65e5\u672c", "tab\there", "~.-_", "a b"]
        for i, k in enumerate(keys):
            self.s3.put_object(Bucket=self.b, Key=k, Body=str(i).encode())
        for i, k in enumerate(keys):
            self.assertEqual(self.s3.get_object(Bucket=self.b, Key=k)["Body"].read(), str(i).encode(), k)
        self.assertEqual(code_of(self.s3.put_object, Bucket=self.b, Key="x" * 1025, Body=b"")[1], "KeyTooLongError")

    def test_metadata(self):
        self.s3.put_object(Bucket=self.b, Key="k", Body=b"x", ContentType="text/plain", CacheControl="no-cache", ContentDisposition="inline",
                           ContentEncoding="gzip", ContentLanguage="de", Expires=datetime.datetime(2030, 1, 1),
                           Metadata={"one": "1", "two": "zwei"},
                           StorageClass="STANDARD_IA", Tagging="a=1&b=two", WebsiteRedirectLocation="/other")
        for r in (self.s3.get_object(Bucket=self.b, Key="k"), self.s3.head_object(Bucket=self.b, Key="k")):
            self.assertEqual((r["ContentType"], r["CacheControl"], r["ContentDisposition"], r["ContentEncoding"], r["ContentLanguage"]),
                             ("text/plain", "no-cache", "inline", "gzip", "de"))
            self.assertEqual(r["Metadata"], {"one": "1", "two": "zwei"})
            self.assertEqual(r["StorageClass"], "STANDARD_IA")
            self.assertEqual(r["WebsiteRedirectLocation"], "/other")
            self.assertEqual(r["Expires"].year, 2030)
            self.assertEqual(r["AcceptRanges"], "bytes")
            self.assertEqual(r["ResponseMetadata"]["HTTPHeaders"]["x-amz-tagging-count"], "2")
        self.s3.put_object(Bucket=self.b, Key="plain", Body=b"x")
        r = self.s3.head_object(Bucket=self.b, Key="plain")
        self.assertEqual(r["ContentType"], "binary/octet-stream")
        self.assertNotIn("StorageClass", r)

    def test_overrides(self):
        self.s3.put_object(Bucket=self.b, Key="k", Body=b"x", ContentType="text/plain")
        r = self.s3.get_object(Bucket=self.b, Key="k", ResponseContentType="image/png", ResponseContentDisposition="attachment",
                               ResponseCacheControl="max-age=1", ResponseContentLanguage="fr", ResponseContentEncoding="br")
        self.assertEqual((r["ContentType"], r["ContentDisposition"], r["CacheControl"], r["ContentLanguage"], r["ContentEncoding"]),
                         ("image/png", "attachment", "max-age=1", "fr", "br"))

    def test_ranges(self):
        body = bytes(range(256)) * 1000
        self.s3.put_object(Bucket=self.b, Key="k", Body=body)
        n = len(body)
        for text, first, last in (("bytes=0-0", 0, 0), ("bytes=5-9", 5, 9), ("bytes=-5", n - 5, n - 1), (f"bytes={n - 1}-", n - 1, n - 1),
                                  ("bytes=100-99999999", 100, n - 1), (f"bytes=-{n + 5}", 0, n - 1), ("bytes=16000-17000", 16000, 17000)):
            r = self.s3.get_object(Bucket=self.b, Key="k", Range=text)
            self.assertEqual(r["ResponseMetadata"]["HTTPStatusCode"], 206, text)
            self.assertEqual(r["Body"].read(), body[first:last + 1], text)
            self.assertEqual(r["ContentRange"], f"bytes {first}-{last}/{n}")
        self.assertEqual(code_of(self.s3.get_object, Bucket=self.b, Key="k", Range=f"bytes={n}-"), (416, "InvalidRange"))
        r = self.s3.get_object(Bucket=self.b, Key="k", Range="lines=1-2")
        self.assertEqual((r["ResponseMetadata"]["HTTPStatusCode"], r["Body"].read()), (200, body))
        self.s3.put_object(Bucket=self.b, Key="empty", Body=b"")
        self.assertEqual(code_of(self.s3.get_object, Bucket=self.b, Key="empty", Range="bytes=0-1"), (416, "InvalidRange"))
        r = self.s3.get_object(Bucket=self.b, Key="k", PartNumber=1)
        self.assertEqual(r["Body"].read(), body)
        self.assertEqual(code_of(self.s3.get_object, Bucket=self.b, Key="k", PartNumber=2)[0], 416)

    # ---- checksums ----

    def test_checksums(self):
        body = b"hello checksums"
        for alg in ("CRC32", "SHA1", "SHA256"):  # the others need a package that not everyone has
            put = self.s3.put_object(Bucket=self.b, Key=alg, Body=body, ChecksumAlgorithm=alg)
            member = f"Checksum{alg}"
            got = self.s3.get_object(Bucket=self.b, Key=alg, ChecksumMode="ENABLED")
            got["Body"].read()
            self.assertEqual(got[member], put[member])
            self.assertEqual(got["ChecksumType"], "FULL_OBJECT")
            self.assertEqual(self.s3.head_object(Bucket=self.b, Key=alg, ChecksumMode="ENABLED")[member], put[member])
            self.assertNotIn(member, self.s3.head_object(Bucket=self.b, Key=alg))
        a = self.raw.request("PUT", f"/{self.b}/c", headers={"x-amz-checksum-crc32c": "SwAIFg=="}, body=body)
        self.assertEqual((a.status, a.headers["x-amz-checksum-crc32c"]), (200, "SwAIFg=="))
        a = self.raw.request("PUT", f"/{self.b}/nvme", body=b"123456789")
        self.assertEqual(a.headers["x-amz-checksum-crc64nvme"], base64.b64encode(bytes.fromhex("ae8b14860a799888")).decode())
        want = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
        self.assertEqual(self.s3.head_object(Bucket=self.b, Key="CRC32", ChecksumMode="ENABLED")["ChecksumCRC32"], want)

    def test_wrong_checksums_store_nothing(self):
        md5 = base64.b64encode(hashlib.md5(b"other").digest()).decode()
        for kw, codes in ((dict(ContentMD5=md5), ("BadDigest",)), (dict(ContentMD5="no"), ("InvalidDigest",)),
                          (dict(ChecksumCRC32="AAAAAA=="), ("BadDigest",)), (dict(ChecksumSHA256=base64.b64encode(bytes(32)).decode()), ("BadDigest",)),
                          (dict(ChecksumCRC32="x"), ("InvalidRequest",))):
            got = code_of(self.s3.put_object, Bucket=self.b, Key="bad", Body=b"data", **kw)
            self.assertIn(got[1], codes, kw)
            self.assertEqual(got[0], 400)
        self.assertEqual(code_of(self.s3.head_object, Bucket=self.b, Key="bad")[0], 404)

    # ---- conditions ----

    def test_conditional_reads(self):
        etag = self.s3.put_object(Bucket=self.b, Key="k", Body=b"x", CacheControl="private")["ETag"]
        now = self.s3.head_object(Bucket=self.b, Key="k")["LastModified"]
        hour = datetime.timedelta(hours=1)
        g = lambda **kw: code_of(self.s3.get_object, Bucket=self.b, Key="k", **kw)
        h = lambda **kw: code_of(self.s3.head_object, Bucket=self.b, Key="k", **kw)
        self.assertIsNone(g(IfMatch=etag))
        self.assertIsNone(g(IfMatch=etag.strip('"')))
        self.assertEqual(g(IfMatch='"nope"'), (412, "PreconditionFailed"))
        self.assertEqual(g(IfNoneMatch=etag)[0], 304)
        self.assertEqual(h(IfNoneMatch=etag)[0], 304)
        self.assertIsNone(g(IfNoneMatch='"nope"'))
        self.assertEqual(g(IfModifiedSince=now)[0], 304)
        self.assertIsNone(g(IfModifiedSince=now - hour))
        self.assertEqual(g(IfUnmodifiedSince=now - hour)[0], 412)
        self.assertIsNone(g(IfMatch=etag, IfUnmodifiedSince=now - hour))
        self.assertEqual(g(IfNoneMatch=etag, IfModifiedSince=now - hour)[0], 304)
        a = self.raw.request("GET", f"/{self.b}/k", headers={"If-None-Match": etag})
        self.assertEqual((a.status, a.headers["etag"], a.headers["cache-control"]), (304, etag, "private"))
        self.assertIn("last-modified", a.headers)
        self.assertNotIn("content-length", a.headers)

    def test_conditional_writes(self):
        p = lambda **kw: code_of(self.s3.put_object, Bucket=self.b, Key="k", Body=b"x", **kw)
        self.assertEqual(p(IfMatch="*")[0], 404)
        self.assertEqual(p(IfMatch='"abc"'), (404, "NoSuchKey"))
        self.assertIsNone(p(IfNoneMatch="*"))
        self.assertEqual(p(IfNoneMatch="*"), (412, "PreconditionFailed"))
        etag = self.s3.head_object(Bucket=self.b, Key="k")["ETag"]
        self.assertEqual(p(IfMatch='"abc"'), (412, "PreconditionFailed"))
        self.assertIsNone(p(IfMatch=etag))
        d = lambda **kw: code_of(self.s3.delete_object, Bucket=self.b, Key="k", **kw)
        self.assertEqual(d(IfMatch='"abc"'), (412, "PreconditionFailed"))
        self.assertEqual(d(IfMatchSize=5), (412, "PreconditionFailed"))
        self.assertIsNone(d(IfMatch=etag, IfMatchSize=1))
        self.assertEqual(code_of(self.s3.head_object, Bucket=self.b, Key="k")[0], 404)

    def test_one_wins_of_many_creates(self):
        results, start = [], threading.Barrier(16)

        def one(i):
            s3 = self.world.s3()
            start.wait()
            results.append((i, code_of(s3.put_object, Bucket=self.b, Key="race", Body=b"%d" % i, IfNoneMatch="*")))
        threads = [threading.Thread(target=one, args=(i,)) for i in range(16)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        winners = [i for i, r in results if r is None]
        self.assertEqual(len(winners), 1, results)
        self.assertTrue(all(r is None or r in ((412, "PreconditionFailed"), (409, "ConditionalRequestConflict")) for _, r in results), results)
        self.assertEqual(self.s3.get_object(Bucket=self.b, Key="race")["Body"].read(), b"%d" % winners[0])

    def test_counter_by_if_match(self):
        """Read, add one, write if unchanged: nothing may be lost."""
        self.s3.put_object(Bucket=self.b, Key="n", Body=b"0-x")

        def add(k):
            s3 = self.world.s3()
            for j in range(5):
                while True:
                    r = s3.get_object(Bucket=self.b, Key="n")
                    value = int(r["Body"].read().split(b"-")[0])
                    if code_of(s3.put_object, Bucket=self.b, Key="n", Body=b"%d-%d-%d" % (value + 1, k, j), IfMatch=r["ETag"]) is None:
                        break
        threads = [threading.Thread(target=add, args=(k,)) for k in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(self.s3.get_object(Bucket=self.b, Key="n")["Body"].read().split(b"-")[0], b"20")

    # ---- versions ----

    def test_versions(self):
        self.s3.put_object(Bucket=self.b, Key="k", Body=b"null one")
        self.versions()
        v1 = self.s3.put_object(Bucket=self.b, Key="k", Body=b"one")["VersionId"]
        v2 = self.s3.put_object(Bucket=self.b, Key="k", Body=b"two")["VersionId"]
        get = lambda **kw: self.s3.get_object(Bucket=self.b, Key="k", **kw)
        self.assertEqual(get()["Body"].read(), b"two")
        self.assertEqual(get(VersionId=v1)["Body"].read(), b"one")
        self.assertEqual(get(VersionId="null")["Body"].read(), b"null one")
        self.assertEqual(get(VersionId=v2)["VersionId"], v2)
        marker = self.s3.delete_object(Bucket=self.b, Key="k")
        self.assertTrue(marker["DeleteMarker"])
        a = self.raw.request("GET", f"/{self.b}/k")
        self.assertEqual((a.status, a.code, a.headers["x-amz-delete-marker"], a.headers["x-amz-version-id"]),
                         (404, "NoSuchKey", "true", marker["VersionId"]))
        a = self.raw.request("HEAD", f"/{self.b}/k", f"versionId={marker['VersionId']}")
        self.assertEqual((a.status, a.headers["x-amz-delete-marker"], a.headers["allow"]), (405, "true", "DELETE"))
        self.assertIn("last-modified", a.headers)
        self.assertEqual(code_of(get, VersionId="0" * 31 + "1")[1], "NoSuchVersion")
        self.assertEqual(code_of(get, VersionId="what")[1], "InvalidArgument")
        r = self.s3.delete_object(Bucket=self.b, Key="k", VersionId=marker["VersionId"])
        self.assertTrue(r["DeleteMarker"])
        self.assertEqual(get()["Body"].read(), b"two")
        self.s3.delete_object(Bucket=self.b, Key="k", VersionId=v2)
        self.assertEqual(get()["Body"].read(), b"one")

    # ---- copies ----

    def copy(self, to, source, **kw):
        return self.s3.copy_object(Bucket=self.b, Key=to, CopySource=source, **kw)

    def test_copy(self):
        body = os.urandom(300000)
        self.s3.put_object(Bucket=self.b, Key="a b+\u00e4", Body=body, Metadata={"m": "1"}, ContentType="text/x", Tagging="t=1",
                           ChecksumAlgorithm="SHA256", StorageClass="STANDARD_IA")
        r = self.copy("copy", {"Bucket": self.b, "Key": "a b+\u00e4"})
        self.assertEqual(r["CopyObjectResult"]["ETag"], '"%s"' % hashlib.md5(body).hexdigest())
        self.assertEqual(r["CopyObjectResult"]["ChecksumSHA256"], base64.b64encode(hashlib.sha256(body).digest()).decode())
        got = self.s3.get_object(Bucket=self.b, Key="copy")
        self.assertEqual(got["Body"].read(), body)
        self.assertEqual((got["Metadata"], got["ContentType"]), ({"m": "1"}, "text/x"))
        self.assertNotIn("StorageClass", got)
        self.assertEqual(self.s3.get_object_tagging(Bucket=self.b, Key="copy")["TagSet"], [{"Key": "t", "Value": "1"}])
        self.copy("copy2", {"Bucket": self.b, "Key": "copy"}, MetadataDirective="REPLACE", Metadata={"n": "2"}, ContentType="text/y",
                  TaggingDirective="REPLACE", Tagging="u=2")
        got = self.s3.head_object(Bucket=self.b, Key="copy2")
        self.assertEqual((got["Metadata"], got["ContentType"]), ({"n": "2"}, "text/y"))
        self.assertEqual(self.s3.get_object_tagging(Bucket=self.b, Key="copy2")["TagSet"], [{"Key": "u", "Value": "2"}])
        # metadata of the request does not matter without REPLACE
        self.copy("copy3", {"Bucket": self.b, "Key": "copy"}, Metadata={"n": "2"})
        self.assertEqual(self.s3.head_object(Bucket=self.b, Key="copy3")["Metadata"], {"m": "1"})

    def test_copy_errors(self):
        self.s3.put_object(Bucket=self.b, Key="k", Body=b"x")
        etag = self.s3.head_object(Bucket=self.b, Key="k")["ETag"]
        src = {"Bucket": self.b, "Key": "k"}
        for kw, want in ((dict(to="k", source=src), (400, "InvalidRequest")),
                         (dict(to="c", source={"Bucket": self.b, "Key": "absent"}), (404, "NoSuchKey")),
                         (dict(to="c", source={"Bucket": "absent-bucket", "Key": "k"}), (404, "NoSuchBucket")),
                         (dict(to="c", source=src, CopySourceIfMatch='"no"'), (412, "PreconditionFailed")),
                         (dict(to="c", source=src, CopySourceIfNoneMatch=etag), (412, "PreconditionFailed")),
                         (dict(to="c", source=src, MetadataDirective="WHAT"), (400, "InvalidArgument")),
                         (dict(to="c", source="nokey"), (400, "InvalidArgument"))):
            self.assertEqual(code_of(self.copy, **kw), want, kw)
        self.copy("k", src, MetadataDirective="REPLACE", Metadata={"new": "1"})
        self.copy("k", src, StorageClass="STANDARD_IA")
        self.assertEqual(self.s3.head_object(Bucket=self.b, Key="k")["Metadata"], {"new": "1"})

    def test_copy_of_a_version(self):
        self.versions()
        v1 = self.s3.put_object(Bucket=self.b, Key="k", Body=b"one")["VersionId"]
        self.s3.put_object(Bucket=self.b, Key="k", Body=b"two")
        r = self.copy("k", {"Bucket": self.b, "Key": "k", "VersionId": v1})
        self.assertEqual(r["CopySourceVersionId"], v1)
        self.assertEqual(self.s3.get_object(Bucket=self.b, Key="k")["Body"].read(), b"one")
        marker = self.s3.delete_object(Bucket=self.b, Key="k")["VersionId"]
        self.assertEqual(code_of(self.copy, "c", {"Bucket": self.b, "Key": "k", "VersionId": marker}), (400, "InvalidRequest"))
        self.assertEqual(code_of(self.copy, "c", {"Bucket": self.b, "Key": "k"}), (404, "NoSuchKey"))

    def test_rename(self):
        etag = self.s3.put_object(Bucket=self.b, Key="old", Body=b"x", Metadata={"m": "1"})["ETag"]
        self.s3.put_object(Bucket=self.b, Key="there", Body=b"y")
        ren = lambda to, frm, **kw: self.s3.rename_object(Bucket=self.b, Key=to, RenameSource=f"{self.b}/{frm}", **kw)
        self.assertEqual(code_of(ren, "new", "absent"), (404, "NoSuchKey"))
        self.assertEqual(code_of(ren, "there", "old", DestinationIfNoneMatch="*"), (412, "PreconditionFailed"))
        self.assertEqual(code_of(ren, "new", "old", SourceIfMatch='"no"'), (412, "PreconditionFailed"))
        ren("new", "old", SourceIfMatch=etag)
        self.assertEqual(code_of(self.s3.head_object, Bucket=self.b, Key="old")[0], 404)
        r = self.s3.get_object(Bucket=self.b, Key="new")
        self.assertEqual((r["Body"].read(), r["ETag"], r["Metadata"]), (b"x", etag, {"m": "1"}))
        ren("there", "new")
        self.assertEqual(self.s3.get_object(Bucket=self.b, Key="there")["Body"].read(), b"x")

    # ---- multipart ----

    def test_multipart_reads(self):
        parts = [os.urandom(5 * MIB), os.urandom(5 * MIB), os.urandom(1000)]
        up = self.s3.create_multipart_upload(Bucket=self.b, Key="m", ChecksumAlgorithm="SHA256")["UploadId"]
        done = []
        for i, p in enumerate(parts):
            r = self.s3.upload_part(Bucket=self.b, Key="m", UploadId=up, PartNumber=i + 1, Body=p, ChecksumAlgorithm="SHA256")
            done.append({"ETag": r["ETag"], "PartNumber": i + 1, "ChecksumSHA256": r["ChecksumSHA256"]})
        self.s3.complete_multipart_upload(Bucket=self.b, Key="m", UploadId=up, MultipartUpload={"Parts": done})
        whole = b"".join(parts)
        self.assertEqual(self.s3.get_object(Bucket=self.b, Key="m")["Body"].read(), whole)
        for i, p in enumerate(parts):
            r = self.s3.get_object(Bucket=self.b, Key="m", PartNumber=i + 1, ChecksumMode="ENABLED")
            self.assertEqual(r["Body"].read(), p)
            self.assertEqual((r["PartsCount"], r["ResponseMetadata"]["HTTPStatusCode"], r["ChecksumType"]), (3, 206, "COMPOSITE"))
            self.assertEqual(r["ChecksumSHA256"], done[i]["ChecksumSHA256"])
        off = 5 * MIB - 100
        r = self.s3.get_object(Bucket=self.b, Key="m", Range=f"bytes={off}-{off + 199}")
        self.assertEqual(r["Body"].read(), whole[off:off + 200])
        self.assertGreaterEqual(code_of(self.s3.get_object, Bucket=self.b, Key="m", PartNumber=4)[0], 400)
        a = self.s3.get_object_attributes(Bucket=self.b, Key="m", ObjectAttributes=["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"])
        self.assertEqual((a["ObjectSize"], a["ObjectParts"]["TotalPartsCount"], a["StorageClass"]), (len(whole), 3, "STANDARD"))
        self.assertEqual([p["Size"] for p in a["ObjectParts"]["Parts"]], [len(p) for p in parts])
        self.assertNotIn('"', a["ETag"])
        up2 = self.s3.create_multipart_upload(Bucket=self.b, Key="m2")["UploadId"]
        c1 = self.s3.upload_part_copy(Bucket=self.b, Key="m2", UploadId=up2, PartNumber=1, CopySource={"Bucket": self.b, "Key": "m"},
                                      CopySourceRange=f"bytes=0-{6 * MIB - 1}")["CopyPartResult"]["ETag"]
        c2 = self.s3.upload_part_copy(Bucket=self.b, Key="m2", UploadId=up2, PartNumber=2,
                                      CopySource={"Bucket": self.b, "Key": "m"})["CopyPartResult"]["ETag"]
        self.s3.complete_multipart_upload(Bucket=self.b, Key="m2", UploadId=up2,
                                          MultipartUpload={"Parts": [{"ETag": c1, "PartNumber": 1}, {"ETag": c2, "PartNumber": 2}]})
        self.assertEqual(self.s3.get_object(Bucket=self.b, Key="m2")["Body"].read(), whole[:6 * MIB] + whole)

    def test_part_errors(self):
        up = self.s3.create_multipart_upload(Bucket=self.b, Key="m")["UploadId"]
        p = lambda **kw: code_of(self.s3.upload_part, **{**dict(Bucket=self.b, Key="m", UploadId=up, PartNumber=1, Body=b"x"), **kw})
        self.assertEqual(p(UploadId="56788"), (404, "NoSuchUpload"))
        self.assertEqual(p(UploadId="0" * 32), (404, "NoSuchUpload"))
        self.assertEqual(p(Key="other"), (404, "NoSuchUpload"))
        self.assertEqual(p(PartNumber=0)[1], "InvalidArgument")
        self.assertEqual(p(PartNumber=10001)[1], "InvalidArgument")
        self.assertIsNone(p())
        up3 = self.s3.create_multipart_upload(Bucket=self.b, Key="m", ChecksumAlgorithm="SHA256")["UploadId"]
        self.assertEqual(p(UploadId=up3, ChecksumAlgorithm="CRC32"), (400, "InvalidRequest"))

    # ---- presigned and forms ----

    def test_presigned(self):
        url = self.s3.generate_presigned_url("put_object", Params={"Bucket": self.b, "Key": "p"})
        ctx = self.raw.context
        urllib.request.urlopen(urllib.request.Request(url, data=b"presigned", method="PUT"), context=ctx).read()
        url = self.s3.generate_presigned_url("get_object", Params={"Bucket": self.b, "Key": "p", "ResponseContentType": "a/b"})
        with urllib.request.urlopen(url, context=ctx) as r:
            self.assertEqual((r.read(), r.headers["Content-Type"]), (b"presigned", "a/b"))

    def post(self, fields, data, name="file", boundary="xyz"):
        body = b""
        for k, v in fields:
            body += f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode()
        body += f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="f.bin"\r\n\r\n'.encode() + data + f"\r\n--{boundary}--\r\n".encode()
        h = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        return self.raw.request("POST", f"/{self.b}", headers=h, body=body, is_signed=False)

    def test_forms(self):
        data = os.urandom(200000)
        form = self.s3.generate_presigned_post(self.b, "form/${filename}", Fields={"Content-Type": "text/z"},
                                               Conditions=[{"Content-Type": "text/z"}, ["content-length-range", 1, 300000]])
        a = self.post(list(form["fields"].items()), data)
        self.assertEqual(a.status, 204, a)
        r = self.s3.get_object(Bucket=self.b, Key="form/f.bin")
        self.assertEqual((r["Body"].read(), r["ContentType"]), (data, "text/z"))
        a = self.post([*form["fields"].items(), ("success_action_status", "201")], data)
        self.assertEqual(a.status, 403, "a field that the policy does not name")
        form = self.s3.generate_presigned_post(self.b, "k2", Fields={"success_action_status": "201"}, Conditions=[{"success_action_status": "201"}])
        a = self.post(list(form["fields"].items()), b"x")
        self.assertEqual((a.status, a.xml("Key"), a.xml("Bucket")), (201, "k2", self.b))
        form = self.s3.generate_presigned_post(self.b, "k3", Conditions=[["content-length-range", 1, 10]])
        a = self.post(list(form["fields"].items()), b"x" * 11)
        self.assertEqual((a.status, a.code), (400, "EntityTooLarge"))
        self.assertEqual(code_of(self.s3.head_object, Bucket=self.b, Key="k3")[0], 404)
        fields = dict(form["fields"])
        fields["x-amz-signature"] = "0" * 64
        self.assertEqual(self.post(list(fields.items()), b"x").status, 403)
        self.assertEqual(self.post([("key", "anonymous")], b"x").status, 403)

    # ---- whose ----

    def test_another_account(self):
        self.s3.put_object(Bucket=self.b, Key="k", Body=b"x")
        other = self.world.s3("two")
        for fn, kw in ((other.get_object, dict(Key="k")), (other.put_object, dict(Key="k", Body=b"")), (other.delete_object, dict(Key="k")),
                       (other.list_objects_v2, {}), (other.create_multipart_upload, dict(Key="k")), (other.delete_bucket, {})):
            self.assertEqual(code_of(fn, Bucket=self.b, **kw), (403, "AccessDenied"), fn)
        other.create_bucket(Bucket=self.b + "-two", CreateBucketConfiguration={"LocationConstraint": "ap-southeast-2"})
        self.assertEqual(code_of(other.copy_object, Bucket=self.b + "-two", Key="k", CopySource={"Bucket": self.b, "Key": "k"}), (403, "AccessDenied"))
        account = self.world.account("two")[2]
        self.assertEqual(code_of(self.s3.get_object, Bucket=self.b, Key="k", ExpectedBucketOwner=account), (403, "AccessDenied"))

    def test_not_there_yet(self):
        for fn, kw in ((self.s3.get_bucket_acl, {}), (self.s3.get_bucket_policy, {}), (self.s3.get_bucket_website, {}),
                       (self.s3.put_object_legal_hold, dict(Key="k", LegalHold={"Status": "ON"}))):
            self.assertEqual(code_of(fn, Bucket=self.b, **kw), (501, "NotImplemented"), fn)
        self.assertEqual(code_of(self.s3.put_object, Bucket=self.b, Key="k", Body=b"", ServerSideEncryption="aws:kms")[0], 501)
        self.assertEqual(code_of(self.s3.put_object, Bucket=self.b, Key="k", Body=b"", ACL="public-read"), (400, "AccessControlListNotSupported"))
        self.assertIsNone(code_of(self.s3.put_object, Bucket=self.b, Key="k", Body=b"", ACL="private", ServerSideEncryption="AES256"))


if __name__ == "__main__":
    unittest.main(verbosity=1)
