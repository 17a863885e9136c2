"""What errors say beyond their code: texts and elements that clients read, as AWS sends them."""
import base64
import datetime
import hashlib

from s3lib import MIB, S3Test, main, md5

GONE = "HPniJFCxqTsMuIH9KX8K8wEjNUgmABCD"  # looks like a version id, is none
PRECONDITION = "At least one of the pre-conditions you specified did not hold"
CONFLICT = "The conditional request cannot succeed due to a conflicting operation against this resource."
MALFORMED = "The XML you provided was not well-formed or did not validate against our published schema"
NO_UPLOAD = "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."
NO_METHOD = "The specified method is not allowed against this resource."


class Says(S3Test):
    def says(self, status, code, fn, _message=None, _body=None, **elements):
        """fn is refused so, and the error has these elements (None: it is there and empty)."""
        with self.subTest(fn):
            r = self.fails(status, code, fn)
            got = {k: v for k, v in r["Error"].items() if k != "Code"}
            for k, v in {**({"Message": _message} if _message else {}), **elements}.items():
                k = k.replace("_", "-")
                self.assertIn(k, got)
                self.assertEqual(got[k] or None, v)


class Buckets(Says):
    def test_names_and_owners(self):
        c, b, none = self.c, self.bucket("k"), self.name()
        self.says(404, "NoSuchBucket", lambda: c.list_objects_v2(Bucket=none), "The specified bucket does not exist", BucketName=none)
        self.says(404, "NoSuchBucket", lambda: c.get_object(Bucket=none, Key="k"), "The specified bucket does not exist", BucketName=none)
        self.says(409, "BucketNotEmpty", lambda: c.delete_bucket(Bucket=b), "The bucket you tried to delete is not empty", BucketName=b)
        v = self.bucket("k", versioned=True)
        self.says(409, "BucketNotEmpty", lambda: c.delete_bucket(Bucket=v),
                  "The bucket you tried to delete is not empty. You must delete all versions in the bucket.", BucketName=v)
        self.says(409, "BucketAlreadyExists", lambda: self.alt.create_bucket(Bucket=b), BucketName=b)
        r = self.raw("PUT", "/Upper-Case")
        self.assertEqual((r.status, r.code(), r.text("BucketName")), (400, "InvalidBucketName", "Upper-Case"))
        self.assertEqual(r.text("Message"), "The specified bucket is not valid.")

    def test_head(self):
        h = self.c.head_bucket(Bucket=self.bucket())["ResponseMetadata"]["HTTPHeaders"]
        self.assertEqual((h["x-amz-bucket-region"], h["content-type"]), (self.store.region, "application/xml"))
        self.says(404, "404", lambda: self.c.head_bucket(Bucket=self.name()), "Not Found")

    def test_configurations(self):
        c, b = self.c, self.bucket()
        for get, code, text in (
                (c.get_bucket_cors, "NoSuchCORSConfiguration", "The CORS configuration does not exist"),
                (c.get_bucket_lifecycle_configuration, "NoSuchLifecycleConfiguration", "The lifecycle configuration does not exist"),
                (c.get_bucket_tagging, "NoSuchTagSet", "The TagSet does not exist")):
            self.says(404, code, lambda: get(Bucket=b), text, BucketName=b)
        for status in ("enabled", "Disabled"):
            self.says(400, "MalformedXML", lambda: c.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": status}), MALFORMED)
        self.says(400, "IllegalVersioningConfigurationException", lambda: c.put_bucket_versioning(Bucket=b, VersioningConfiguration={}),
                  "The Versioning element must be specified")
        self.says(400, "MalformedXML", lambda: c.put_bucket_request_payment(Bucket=b, RequestPaymentConfiguration={"Payer": "Random"}), MALFORMED)

    def test_encryption(self):
        c, b = self.c, self.bucket()
        aes = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
        rules = c.get_bucket_encryption(Bucket=b)["ServerSideEncryptionConfiguration"]["Rules"]
        self.assertEqual(rules, [{**aes, "BucketKeyEnabled": False}])
        for bad in ([], [aes, aes]):
            self.says(400, "MalformedXML", lambda: c.put_bucket_encryption(Bucket=b, ServerSideEncryptionConfiguration={"Rules": bad}), MALFORMED)
        key = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256", "KMSMasterKeyID": "x"}}
        self.says(400, "InvalidArgument", lambda: c.put_bucket_encryption(Bucket=b, ServerSideEncryptionConfiguration={"Rules": [key]}),
                  "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or aws:kms:dsse",
                  ArgumentName="ApplyServerSideEncryptionByDefault")

    def test_cors(self):
        c, b = self.c, self.bucket()

        def put(rules):
            return lambda: c.put_bucket_cors(Bucket=b, CORSConfiguration={"CORSRules": rules})
        self.says(400, "InvalidRequest", put([{"AllowedMethods": ["MYMETHOD"], "AllowedOrigins": ["*"]}]),
                  "Found unsupported HTTP method in CORS config. Unsupported method is MYMETHOD")
        self.says(400, "MalformedXML", put([]), MALFORMED)
        put([{"AllowedMethods": ["GET"], "AllowedOrigins": [""]}])()
        self.assertEqual(c.get_bucket_cors(Bucket=b)["CORSRules"][0]["AllowedOrigins"], [""])

    def test_tags(self):
        c, b = self.c, self.bucket("k")

        def bucket(*tags):
            return lambda: c.put_bucket_tagging(Bucket=b, Tagging={"TagSet": [{"Key": k, "Value": v} for k, v in tags]})

        def of_object(*tags):
            return lambda: c.put_object_tagging(Bucket=b, Key="k", Tagging={"TagSet": [{"Key": k, "Value": v} for k, v in tags]})
        for put in bucket, of_object:
            self.says(400, "InvalidTag", put(("Key1", "a"), ("Key1", "b")), "Cannot provide multiple Tags with the same key", TagKey="Key1")
            self.says(400, "InvalidTag", put(("Key1,Key2", "a")), "The TagKey you have provided is invalid", TagKey="Key1,Key2")
            self.says(400, "InvalidTag", put(("Key1", "a,b")), "The TagValue you have provided is invalid", TagKey="Key1", TagValue="a,b")
        self.says(400, "InvalidTag", bucket(("aws:x", "a")), "System tags cannot be added/updated by requester", TagKey="aws:x")
        self.says(400, "InvalidTag", of_object(("aws:x", "a")), "Your TagKey cannot be prefixed with aws:", TagKey="aws:x")
        text = "The header 'x-amz-tagging' shall be encoded as UTF-8 then URLEncoded URL query parameters without tag name duplicates."
        self.says(400, "InvalidArgument", lambda: c.put_object(Bucket=b, Key="t", Tagging="key1=val1&key1=val2"), text,
                  ArgumentName="x-amz-tagging", ArgumentValue="key1=val1&key1=val2")
        c.put_object(Bucket=b, Key="t", Tagging="one&two=")
        self.assertEqual(c.get_object_tagging(Bucket=b, Key="t")["TagSet"], [{"Key": "one", "Value": ""}, {"Key": "two", "Value": ""}])


class Lists(Says):
    def test_arguments(self):
        b = self.bucket("k")
        for q in ("list-type=2&", "", "versions&", "uploads&"):
            for value in ("value", ""):
                r = self.raw("GET", f"/{b}?{q}encoding-type={value}")
                self.assertEqual((r.status, r.code(), r.text("Message"), r.text("ArgumentName"), r.text("ArgumentValue") or ""),
                                 (400, "InvalidArgument", "Invalid Encoding Method specified in Request", "encoding-type", value), q)

    def test_uploads(self):
        c, b = self.c, self.bucket()
        r = c.list_multipart_uploads(Bucket=b)
        self.assertEqual((r["NextKeyMarker"], r["NextUploadIdMarker"], r["KeyMarker"], r["UploadIdMarker"]), ("", "", "", ""))
        one, two = (c.create_multipart_upload(Bucket=b, Key=k)["UploadId"] for k in ("a", "b"))
        r = c.list_multipart_uploads(Bucket=b)
        self.assertEqual((r["IsTruncated"], r["NextKeyMarker"], r["NextUploadIdMarker"]), (False, "b", two))
        r = c.list_multipart_uploads(Bucket=b, UploadIdMarker=two, MaxUploads=1)  # means nothing without a key
        self.assertEqual(([u["UploadId"] for u in r["Uploads"]], r["UploadIdMarker"]), ([one], ""))
        r = c.list_multipart_uploads(Bucket=b, KeyMarker="b", MaxUploads=1)
        self.assertEqual((r["IsTruncated"], r["NextKeyMarker"], r["NextUploadIdMarker"], "Uploads" in r), (False, "", "", False))
        self.says(400, "InvalidArgument", lambda: c.list_multipart_uploads(Bucket=b, KeyMarker="a", UploadIdMarker="x"),
                  "Invalid uploadId marker", ArgumentName="upload-id-marker", ArgumentValue="x")

    def test_parts(self):
        c, b = self.c, self.bucket()
        u = c.create_multipart_upload(Bucket=b, Key="k")["UploadId"]
        r = c.list_parts(Bucket=b, Key="k", UploadId=u)
        self.assertEqual((r["PartNumberMarker"], r["NextPartNumberMarker"], r["MaxParts"], "Parts" in r), (0, 0, 1000, False))
        c.upload_part(Bucket=b, Key="k", UploadId=u, PartNumber=1, Body=b"x")
        r = c.list_parts(Bucket=b, Key="k", UploadId=u, PartNumberMarker=10, MaxParts=1)
        self.assertEqual((r["PartNumberMarker"], r["NextPartNumberMarker"], r["IsTruncated"], "Parts" in r), (10, 0, False, False))
        for q in ("part-number-marker=", "max-parts="):
            r = self.raw("GET", self.url(b, "k") + f"?uploadId={u}&{q}")
            self.assertEqual((r.status, r.text("MaxParts"), r.text("NextPartNumberMarker")), (200, "1000", "1"), q)


class Objects(Says):
    def test_not_there(self):
        c, b = self.c, self.bucket("k")
        self.says(404, "NoSuchKey", lambda: c.get_object(Bucket=b, Key="none", Range="bytes=0-1"), "The specified key does not exist.", Key="none")
        for fn in c.get_object, c.delete_object, c.get_object_tagging:
            self.says(400, "InvalidArgument", lambda: fn(Bucket=b, Key="k", VersionId=GONE), "Invalid version id specified",
                      ArgumentName="versionId", ArgumentValue=GONE)
        self.assertEqual(self.body(b, "k", VersionId="null"), b"k")
        r = c.delete_objects(Bucket=b, Delete={"Objects": [{"Key": "k", "VersionId": GONE}]})
        self.assertEqual(r["Errors"], [{"Key": "k", "VersionId": GONE, "Code": "NoSuchVersion", "Message": "The specified version does not exist."}])
        self.assertEqual(self.body(b, "k"), b"k")

    def test_delete_markers(self):
        c, b = self.c, self.bucket("k", versioned=True)
        v = c.list_object_versions(Bucket=b)["Versions"][0]["VersionId"]
        marker = c.delete_object(Bucket=b, Key="k")["VersionId"]
        self.says(404, "NoSuchKey", lambda: c.get_object(Bucket=b, Key="k"), Key="k")
        self.says(405, "MethodNotAllowed", lambda: c.get_object(Bucket=b, Key="k", VersionId=marker), NO_METHOD, Method="GET", ResourceType="DeleteMarker")
        tags = {"TagSet": [{"Key": "a", "Value": "b"}]}
        for which in ({}, {"VersionId": marker}):
            for method, fn in (("GET", c.get_object_tagging), ("DELETE", c.delete_object_tagging),
                               ("PUT", lambda **kw: c.put_object_tagging(Tagging=tags, **kw))):
                self.says(405, "MethodNotAllowed", lambda: fn(Bucket=b, Key="k", **which), NO_METHOD, Method=method, ResourceType="DeleteMarker")
        self.says(404, "NoSuchKey", lambda: c.get_object_attributes(Bucket=b, Key="k", ObjectAttributes=["ETag"]), Key="k")
        c.delete_object(Bucket=b, Key="k", VersionId=v)
        self.says(404, "NoSuchVersion", lambda: c.get_object(Bucket=b, Key="k", VersionId=v), "The specified version does not exist.",
                  Key="k", VersionId=v)

    def test_ranges(self):
        c, b = self.c, self.bucket("0123456789")
        for value in ("bytes=-0", "bytes=100-200"):
            self.says(416, "InvalidRange", lambda: c.get_object(Bucket=b, Key="0123456789", Range=value), "The requested range is not satisfiable",
                      ActualObjectSize="10", RangeRequested=value)
        for value, said in (("0-8", "bytes 0-8/10"), ("1-", "bytes 1-9/10"), ("-2", "bytes 8-9/10"), ("-15", "bytes 0-9/10"), ("0-100", "bytes 0-9/10"),
                            ("1-0", None), ("-1-", None), ("0--1", None), ("0-1,3-4,7-9", None), ("-", None), ("x", None)):
            r = c.get_object(Bucket=b, Key="0123456789", Range="bytes=" + value)
            self.assertEqual((r["ResponseMetadata"]["HTTPStatusCode"], r.get("ContentRange")), (206 if said else 200, said), value)
            whole = r["ContentLength"] == 10
            self.assertEqual("ChecksumCRC32" in r, whole, value)

    def test_conditions(self):
        c, b = self.c, self.bucket("k")
        tag = c.head_object(Bucket=b, Key="k")["ETag"]

        def put(key="k", **kw):
            return lambda: c.put_object(Bucket=b, Key=key, Body=b"2", **kw)
        self.says(412, "PreconditionFailed", lambda: c.get_object(Bucket=b, Key="k", IfMatch='"x"'), PRECONDITION, Condition="If-Match")
        self.says(412, "PreconditionFailed", put(IfMatch='"' + 32 * "0" + '"'), PRECONDITION, Condition="If-Match")
        self.says(412, "PreconditionFailed", put(IfNoneMatch="*"), PRECONDITION, Condition="If-None-Match")
        self.says(404, "NoSuchKey", put("none", IfMatch=tag), "The specified key does not exist.", Key="none")
        src = {"Bucket": b, "Key": "k"}
        past, future = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=d) for d in (-1, 1))
        for header, kw in (("If-Match", {"CopySourceIfMatch": "x"}), ("If-None-Match", {"CopySourceIfNoneMatch": tag.strip('"')}),
                           ("If-None-Match", {"CopySourceIfNoneMatch": tag}), ("If-Unmodified-Since", {"CopySourceIfUnmodifiedSince": past}),
                           ("If-Modified-Since", {"CopySourceIfModifiedSince": c.head_object(Bucket=b, Key="k")["LastModified"]})):
            self.says(412, "PreconditionFailed", lambda: c.copy_object(Bucket=b, Key="copy", CopySource=src, **kw), PRECONDITION,
                      Condition="x-amz-copy-source-" + header)
        c.copy_object(Bucket=b, Key="copy", CopySource=src, CopySourceIfModifiedSince=future)

    def test_digests_and_classes(self):
        c, b = self.c, self.bucket()
        for value in ("__invalid__", "000", "MTIz"):
            self.says(400, "InvalidDigest", lambda: c.put_object(Bucket=b, Key="k", Body=b"x", ContentMD5=value),
                      "The Content-MD5 you specified was invalid.", Content_MD5=value)
        r = self.fails(400, "BadDigest", lambda: c.put_object(Bucket=b, Key="k", Body=b"x", ContentMD5=md5(b"y")))
        self.assertEqual(r["Error"]["Message"], "The Content-MD5 you specified did not match what we received.")
        for name, kw in (("crc32", {"ChecksumCRC32": "test"}), ("crc32c", {"ChecksumCRC32C": "test"}), ("sha1", {"ChecksumSHA1": "test"}),
                         ("sha256", {"ChecksumSHA256": "test"})):
            self.says(400, "InvalidRequest", lambda: c.put_object(Bucket=b, Key="k", Body=b"x", **kw),
                      f"Value for x-amz-checksum-{name} header is invalid.")
        for fn in c.put_object, c.create_multipart_upload:
            self.says(400, "InvalidStorageClass", lambda: fn(Bucket=b, Key="k", StorageClass="OUTPOSTS"),
                      "The storage class you specified is not valid", StorageClassRequested="OUTPOSTS")
        c.put_object(Bucket=b, Key="k", Body=b"x")
        self.says(400, "InvalidRequest", lambda: c.copy_object(Bucket=b, Key="k", CopySource=f"{b}/k"),
                  "This copy request is illegal because it is trying to copy an object to itself without changing the object's metadata, "
                  "storage class, website redirect location or encryption attributes.")


    def test_copies(self):
        c, b, none = self.c, self.bucket("k", versioned=True), self.name()
        marker = c.delete_object(Bucket=b, Key="k")["VersionId"]

        def copy(source):
            return lambda: c.copy_object(Bucket=b, Key="new", CopySource=source)
        self.says(404, "NoSuchBucket", copy(none + "/k"), "The specified bucket does not exist", BucketName=none)
        self.says(404, "NoSuchKey", copy(b + "/none"), "The specified key does not exist.", Key="none")
        self.says(404, "NoSuchKey", copy(b + "/k"), "The specified key does not exist.", Key="k")
        self.says(400, "InvalidRequest", copy({"Bucket": b, "Key": "k", "VersionId": marker}),
                  "The source of a copy request may not specifically refer to a delete marker by version id.")

    def test_sums(self):
        b = self.bucket()
        sums = {"x-amz-checksum-sha256": base64.b64encode(hashlib.sha256(b"x").digest()).decode(),
                "x-amz-checksum-sha1": base64.b64encode(hashlib.sha1(b"x").digest()).decode()}
        r = self.raw("PUT", self.url(b, "k"), sums, b"x")
        self.assertEqual((r.status, r.code(), r.text("Message")), (
            400, "InvalidRequest", "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."))

    def test_parts_of_objects(self):
        c, b = self.c, self.bucket("k")
        self.says(416, "InvalidPartNumber", lambda: c.get_object(Bucket=b, Key="k", PartNumber=2), "The requested partnumber is not satisfiable",
                  ActualPartCount="1", PartNumberRequested="2")
        self.says(400, "InvalidRequest", lambda: c.get_object(Bucket=b, Key="k", PartNumber=1, Range="bytes=0-1"),
                  "Cannot specify both Range header and partNumber query parameter")
        self.assertEqual(c.get_object(Bucket=b, Key="k", PartNumber=1)["ContentRange"], "bytes 0-0/1")

    def test_forms(self):
        b = self.bucket()
        r = self.raw("POST", "/" + b, {"Content-Type": "text/plain"}, b"x", sign=False)
        self.assertEqual((r.status, r.code(), r.text("Message"), r.text("Condition")), (
            412, "PreconditionFailed", PRECONDITION, "Bucket POST must be of the enclosure-type multipart/form-data"))


class Multipart(Says):
    def upload(self, b, key="k", parts=(b"x",), **kw):
        u = self.c.create_multipart_upload(Bucket=b, Key=key, **kw)["UploadId"]
        tags = [self.c.upload_part(Bucket=b, Key=key, UploadId=u, PartNumber=i, Body=p)["ETag"] for i, p in enumerate(parts, 1)]
        return u, [{"PartNumber": i, "ETag": t} for i, t in enumerate(tags, 1)]

    def complete(self, b, u, parts, **kw):
        return lambda: self.c.complete_multipart_upload(Bucket=b, Key="k", UploadId=u, MultipartUpload={"Parts": parts}, **kw)

    def test_uploads_that_are_not_there(self):
        c, b = self.c, self.bucket()
        for fn in (lambda: c.upload_part(Bucket=b, Key="k", UploadId="fakeid", PartNumber=1, Body=b""),
                   self.complete(b, "fakeid", [{"PartNumber": 1, "ETag": "x"}]),
                   lambda: c.list_parts(Bucket=b, Key="k", UploadId="fakeid"),
                   lambda: c.abort_multipart_upload(Bucket=b, Key="k", UploadId="fakeid")):
            self.says(404, "NoSuchUpload", fn, NO_UPLOAD, UploadId="fakeid")

    def test_parts(self):
        c, b = self.c, self.bucket()
        u, parts = self.upload(b, parts=(bytes(5 * MIB), b"x"))
        self.says(400, "InvalidArgument", lambda: c.upload_part(Bucket=b, Key="k", UploadId=u, PartNumber=-1, Body=b""),
                  "Part number must be an integer between 1 and 10000, inclusive", ArgumentName="partNumber", ArgumentValue="-1")
        self.says(400, "InvalidPartOrder", self.complete(b, u, parts[::-1]),
                  "The list of parts was not in ascending order. Parts must be ordered by part number.", UploadId=u)
        self.says(400, "InvalidPart", self.complete(b, u, [{"PartNumber": 1, "ETag": "d41d8cd98f00b204e9800998ecf8427e"}]),
                  "One or more of the specified parts could not be found.  The part may not have been uploaded, "
                  "or the specified entity tag may not match the part's entity tag.",
                  UploadId=u, PartNumber="1", ETag="d41d8cd98f00b204e9800998ecf8427e")
        u, parts = self.upload(b, parts=(b"x", b"y"))
        self.says(400, "EntityTooSmall", self.complete(b, u, parts), "Your proposed upload is smaller than the minimum allowed size",
                  ProposedSize="1", MinSizeAllowed="5242880", PartNumber="1", ETag=hashlib.md5(b"x").hexdigest())

    def test_nothing_and_others(self):
        c, b = self.c, self.bucket()
        u, parts = self.upload(b)
        self.says(400, "MalformedXML", self.complete(b, u, []), MALFORMED)
        for fn in (lambda: c.upload_part(Bucket=b, Key="other", UploadId=u, PartNumber=1, Body=b""),
                   lambda: c.complete_multipart_upload(Bucket=b, Key="other", UploadId=u, MultipartUpload={"Parts": parts}),
                   lambda: c.list_parts(Bucket=b, Key="other", UploadId=u),
                   lambda: c.abort_multipart_upload(Bucket=b, Key="other", UploadId=u)):
            self.says(404, "NoSuchUpload", fn, NO_UPLOAD, UploadId=u)

    def test_checksums(self):
        b = self.bucket()
        u = self.c.create_multipart_upload(Bucket=b, Key="k", ChecksumAlgorithm="SHA256")["UploadId"]
        part = self.c.upload_part(Bucket=b, Key="k", UploadId=u, PartNumber=1, Body=b"x", ChecksumAlgorithm="SHA256")
        parts = [{"PartNumber": 1, "ETag": part["ETag"]}]
        self.says(400, "InvalidRequest", self.complete(b, u, parts),
                  "The upload was created using a sha256 checksum. The complete request must include the checksum for each part. "
                  "It was missing for part 1 in the request.")
        u, parts = self.upload(b)
        r = self.complete(b, u, parts)()
        self.assertEqual((r["ChecksumType"], "ChecksumCRC64NVME" in r), ("FULL_OBJECT", True))

    def test_conditions(self):
        c, b = self.c, self.bucket("k")
        tag = c.head_object(Bucket=b, Key="k")["ETag"]
        u, parts = self.upload(b)
        self.says(412, "PreconditionFailed", self.complete(b, u, parts, IfNoneMatch="*"), PRECONDITION, Condition="If-None-Match")
        self.says(412, "PreconditionFailed", self.complete(b, u, parts, IfMatch='"' + 32 * "0" + '"'), PRECONDITION, Condition="If-Match")
        c.delete_object(Bucket=b, Key="k")
        self.says(404, "NoSuchKey", self.complete(b, u, parts, IfMatch=tag), "The specified key does not exist.", Key="k")
        c.put_object(Bucket=b, Key="k", Body=b"k")  # the same tag, but written while the upload was open
        self.says(409, "ConditionalRequestConflict", self.complete(b, u, parts, IfMatch=tag), CONFLICT, Condition="If-Match", Key="k")
        u, parts = self.upload(b)
        self.complete(b, u, parts, IfMatch=tag)()
        v = self.bucket("k", versioned=True)
        u, parts = self.upload(v)
        c.delete_object(Bucket=v, Key="k")
        self.says(409, "ConditionalRequestConflict", self.complete(v, u, parts, IfNoneMatch="*"), CONFLICT, Condition="If-None-Match", Key="k")
        u, parts = self.upload(v)
        self.complete(v, u, parts, IfNoneMatch="*")()

    def test_copied_ranges(self):
        c, b = self.c, self.bucket("0123456789")
        u = c.create_multipart_upload(Bucket=b, Key="k")["UploadId"]

        def copy(value):
            return lambda: c.upload_part_copy(Bucket=b, Key="k", UploadId=u, PartNumber=1, CopySource=f"{b}/0123456789", CopySourceRange=value)
        for value in ("0-8", "bytes=1-0", "bytes=-1-", "bytes=0--1", "bytes=0-1,3-4,7-9", "bytes=-", "bytes=-0", "bytes=1-", "bytes=-2"):
            self.says(400, "InvalidArgument", copy(value), "The x-amz-copy-source-range value must be of the form bytes=first-last where first and "
                      "last are the zero-based offsets of the first and last bytes to copy", ArgumentName="x-amz-copy-source-range", ArgumentValue=value)
        self.says(416, "InvalidRange", copy("bytes=0-100"), "Range specified is not valid for source object of size: 10",
                  ArgumentName="x-amz-copy-source-range", ArgumentValue="bytes=0-100")


class Preflight(Says):
    def options(self, path, status, code, message, **elements):
        headers = elements.pop("headers", {})
        r = self.raw("OPTIONS", path, headers, sign=False)
        self.assertEqual((r.status, r.code(), r.text("Message")), (status, code, message), path)
        for k, v in elements.items():
            self.assertEqual(r.text(k), v, k)

    def test_refused(self):
        b = self.bucket("k")
        origin = {"Origin": "https://a.example"}
        put = {**origin, "Access-Control-Request-Method": "PUT"}
        self.options("/" + b, 400, "BadRequest", "Insufficient information. Origin request header needed.")
        self.options("/" + b, 403, "AccessForbidden", "CORSResponse: CORS is not enabled for this bucket.", headers=put, Method="PUT", ResourceType="BUCKET")
        self.options("/" + self.name(), 403, "AccessForbidden", "CORSResponse: Bucket not found", headers=put, Method="PUT", ResourceType="BUCKET")
        self.c.put_bucket_cors(Bucket=b, CORSConfiguration={"CORSRules": [
            {"AllowedMethods": ["GET"], "AllowedOrigins": ["https://a.example"], "AllowedHeaders": ["x-AMZ-One"]}]})
        text = ("CORSResponse: This CORS request is not allowed. This is usually because the evalution of Origin, request method / "
                "Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.")
        self.options(f"/{b}/k", 403, "AccessForbidden", text, headers=put, Method="PUT", ResourceType="OBJECT")
        get = {**origin, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "X-Amz-One"}
        r = self.raw("OPTIONS", f"/{b}/k", get, sign=False)
        self.assertEqual((r.status, r.headers["access-control-allow-headers"], r.headers["access-control-allow-methods"]), (200, "x-amz-one", "GET"))
        self.assertEqual(r.headers["vary"], "Origin, Access-Control-Request-Headers, Access-Control-Request-Method")


if __name__ == "__main__":
    main()
