"""Buckets: names, places, owners, lists, and the switches that are there or answer as AWS does when off."""
import datetime
import hashlib

from s3lib import S3Test, main, md5


class Buckets(S3Test):
    def test_names(self):
        good = ["a" * 63, "aaa", "0ab", "a-b", "aaa.111", "a1.b-2.c3"]
        for suffix in good:
            name = (self.name() + "-" + suffix)[:63] if len(suffix) < 60 else (self.name() + suffix)[:63]
            self.c.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": self.store.region})
            self.made.append((self.c, name))
            self.assertEqual(self.c.list_objects(Bucket=name)["IsTruncated"], False)
        bad = ["a", "aa", "a" * 64, "a" * 256, "a" * 3000, "_abc", "foo_bar", "Foo", "foo-", "-foo", "foo..bar", "foo.-bar", "foo-.bar", ".foo",
               "foo.", "192.168.5.123", "alpha!soup", "xn--foo", "foo-s3alias"]
        for name in bad:
            a = self.raw("PUT", f"/{name}")
            self.assertEqual((a.status, a.code()), (400, "InvalidBucketName"), name[:70])
        a = self.raw("PUT", "/")
        self.assertEqual((a.status, a.code()), (405, "MethodNotAllowed"))

    def test_create_delete(self):
        b = self.bucket()
        self.assertEqual(self.c.head_bucket(Bucket=b)["BucketRegion"], self.store.region)
        self.c.delete_bucket(Bucket=b)
        for call in (self.c.delete_bucket, self.c.list_objects, self.c.get_bucket_location):
            self.fails(404, "NoSuchBucket", call, Bucket=b)
        self.fails(404, "404", self.c.head_bucket, Bucket=b)
        self.fails(404, "NoSuchBucket", self.c.put_object, Bucket=b, Key="foo", Body=b"foo")
        self.fails(404, "NoSuchBucket", self.c.get_object, Bucket=b, Key="foo")

    def test_a_bucket_with_anything_in_it_stays(self):
        b = self.bucket("foo")
        self.fails(409, "BucketNotEmpty", self.c.delete_bucket, Bucket=b)
        b = self.bucket("foo", versioned=True)
        self.c.delete_object(Bucket=b, Key="foo")
        self.assertNotIn("Contents", self.c.list_objects(Bucket=b))
        self.fails(409, "BucketNotEmpty", self.c.delete_bucket, Bucket=b)

    def test_uploads_in_progress_do_not_keep_a_bucket(self):
        b = self.bucket()
        u = self.c.create_multipart_upload(Bucket=b, Key="k")["UploadId"]
        self.c.upload_part(Bucket=b, Key="k", UploadId=u, PartNumber=1, Body=b"x")
        self.c.delete_bucket(Bucket=b)
        self.c.create_bucket(Bucket=b, CreateBucketConfiguration={"LocationConstraint": self.store.region})
        self.assertNotIn("Uploads", self.c.list_multipart_uploads(Bucket=b))
        self.fails(404, "NoSuchUpload", self.c.upload_part, Bucket=b, Key="k", UploadId=u, PartNumber=1, Body=b"x")

    def test_create_again(self):
        b = self.bucket("mykey1", "mykey2")
        conf = {"LocationConstraint": self.store.region}
        if self.store.region == "us-east-1":
            self.c.create_bucket(Bucket=b)
        else:
            self.fails(409, "BucketAlreadyOwnedByYou", self.c.create_bucket, Bucket=b, CreateBucketConfiguration=conf)
        self.assertEqual(len(self.c.list_objects(Bucket=b)["Contents"]), 2)
        self.fails(409, "BucketAlreadyExists", self.alt.create_bucket, Bucket=b, CreateBucketConfiguration=conf)

    def test_places(self):
        b = self.name()
        self.fails(400, "IllegalLocationConstraintException", self.c.create_bucket, Bucket=b,
                   CreateBucketConfiguration={"LocationConstraint": "sa-east-1"})
        a = self.raw("PUT", f"/{b}", body=b"<CreateBucketConfiguration><LocationConstraint>nowhere</LocationConstraint></CreateBucketConfiguration>")
        self.assertEqual((a.status, a.code()), (400, "InvalidLocationConstraint"))
        for body in (b"<CreateBucketConfiguration>", b"garbage", b"<Other/>", b"<CreateBucketConfiguration></Createbucketconfiguration>"):
            a = self.raw("PUT", f"/{b}", body=body)
            self.assertEqual((a.status, a.code()), (400, "MalformedXML"), body)
        self.fails(404, "404", self.c.head_bucket, Bucket=b)
        a = self.raw("PUT", f"/{b}")
        self.made.append((self.c, b))
        self.assertEqual((a.status, a.headers["location"]), (200, f"/{b}"))
        want = None if self.store.region == "us-east-1" else self.store.region
        self.assertEqual(self.c.get_bucket_location(Bucket=b)["LocationConstraint"], want)

    def test_access_lists_ownership_and_lock_at_creation(self):
        conf = {"LocationConstraint": self.store.region}
        for kw in ({"ACL": "private"}, {"ObjectOwnership": "BucketOwnerEnforced"}):
            b = self.name()
            self.c.create_bucket(Bucket=b, CreateBucketConfiguration=conf, **kw)
            self.made.append((self.c, b))
        for kw, status, code in (({"ACL": "public-read"}, 400, "InvalidBucketAclWithObjectOwnership"),
                                 ({"GrantRead": 'id="x"'}, 400, "InvalidBucketAclWithObjectOwnership"),
                                 ({"ObjectOwnership": "ObjectWriter"}, 501, "NotImplemented"),
                                 ({"ObjectLockEnabledForBucket": True}, 501, "NotImplemented")):
            b = self.name()
            self.fails(status, code, self.c.create_bucket, Bucket=b, CreateBucketConfiguration=conf, **kw)
            self.fails(404, "404", self.c.head_bucket, Bucket=b)
        self.assertEqual(self.raw("PUT", f"/{self.name()}", {"x-amz-acl": "public-ready"}).code(), "InvalidArgument")

    def test_created_with_tags(self):
        b = self.name()
        self.c.create_bucket(Bucket=b, CreateBucketConfiguration={"LocationConstraint": self.store.region, "Tags": [{"Key": "k", "Value": "v"}]})
        self.made.append((self.c, b))
        self.assertEqual(self.c.get_bucket_tagging(Bucket=b)["TagSet"], [{"Key": "k", "Value": "v"}])

    def test_list_of_buckets(self):
        before = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
        mine = [self.bucket() for _ in range(5)]
        foreign = self.bucket(client=self.alt)
        page = self.c.list_buckets()
        names = [b["Name"] for b in page["Buckets"]]
        self.assertTrue(set(mine) <= set(names))
        self.assertNotIn(foreign, names)
        self.assertEqual(names, sorted(names))
        self.assertTrue(all(b["CreationDate"] > before for b in page["Buckets"]))

    def test_pages_of_buckets(self):
        mine = sorted(self.bucket() for _ in range(5))
        prefix = mine[0].split("-")[0] + "-"
        got, token = [], None
        while True:
            page = self.c.list_buckets(Prefix=prefix, MaxBuckets=2, **({"ContinuationToken": token} if token else {}))
            self.assertLessEqual(len(page["Buckets"]), 2)
            self.assertEqual(page["Prefix"], prefix)
            got += [b["Name"] for b in page["Buckets"]]
            self.assertTrue(all(b["BucketRegion"] == self.store.region for b in page["Buckets"]))
            token = page.get("ContinuationToken")
            if not token:
                break
        self.assertEqual(set(mine) - set(got), set())
        self.assertEqual(len(got), len(set(got)))
        self.assertEqual(self.c.list_buckets(Prefix="no-such-prefix")["Buckets"], [])
        self.assertEqual(self.c.list_buckets(BucketRegion="eu-west-3")["Buckets"], [])
        self.assertTrue(set(mine) <= {b["Name"] for b in self.c.list_buckets(BucketRegion=self.store.region)["Buckets"]})
        for query in ("max-buckets=0", "max-buckets=10001", "max-buckets=x", "continuation-token=garbage"):
            a = self.raw("GET", "/?" + query)
            self.assertEqual((a.status, a.code()), (400, "InvalidArgument"), query)

    def test_who_may_list_buckets(self):
        self.fails(403, "InvalidAccessKeyId", self.store.client(("AKIANOSUCHKEY0000000", "x" * 40, "")).list_buckets)
        self.fails(403, "SignatureDoesNotMatch", self.store.client((self.store.main[0], "x" * 40, "")).list_buckets)
        self.fails(403, "AccessDenied", self.anonymous.list_buckets)

    def test_expected_owner(self):
        b = self.bucket("k")
        mine, other = self.store.main[2], self.store.alt[2]
        self.c.head_bucket(Bucket=b, ExpectedBucketOwner=mine)
        for call in (self.c.list_objects, self.c.list_objects_v2, self.c.get_bucket_versioning, self.c.get_bucket_location,
                     self.c.list_multipart_uploads, self.c.delete_bucket):
            self.fails(403, "AccessDenied", call, Bucket=b, ExpectedBucketOwner=other)
        for call in (self.c.get_object, self.c.delete_object, self.c.get_object_tagging):
            self.fails(403, "AccessDenied", call, Bucket=b, Key="k", ExpectedBucketOwner=other)
        self.fails(403, "AccessDenied", self.c.copy_object, Bucket=b, Key="l", CopySource={"Bucket": b, "Key": "k"}, ExpectedSourceBucketOwner=other)
        self.c.copy_object(Bucket=b, Key="l", CopySource={"Bucket": b, "Key": "k"}, ExpectedSourceBucketOwner=mine, ExpectedBucketOwner=mine)

    # ---- switches ----

    def test_versioning(self):
        b = self.bucket()
        self.assertNotIn("Status", self.c.get_bucket_versioning(Bucket=b))
        for status in ("Suspended", "Enabled", "Enabled", "Suspended"):
            self.c.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": status, "MFADelete": "Disabled"})
            self.assertEqual(self.c.get_bucket_versioning(Bucket=b)["Status"], status)
        self.fails(400, ("IllegalVersioningConfigurationException", "MalformedXML"), self.c.put_bucket_versioning, Bucket=b,
                   VersioningConfiguration={"Status": "enabled"})
        self.fails(400, "IllegalVersioningConfigurationException", self.c.put_bucket_versioning, Bucket=b, VersioningConfiguration={})
        self.fails(501, "NotImplemented", self.c.put_bucket_versioning, Bucket=b, VersioningConfiguration={"Status": "Enabled", "MFADelete": "Enabled"})
        self.assertEqual(self.c.get_bucket_versioning(Bucket=b)["Status"], "Suspended")

    def test_encryption(self):
        b = self.bucket()

        def algorithm():
            conf = self.c.get_bucket_encryption(Bucket=b)["ServerSideEncryptionConfiguration"]
            return conf["Rules"][0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"]

        def rule(name, **kw):
            return {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": name, **kw}, "BucketKeyEnabled": True}]}
        self.assertEqual(algorithm(), "AES256")
        self.c.put_bucket_encryption(Bucket=b, ServerSideEncryptionConfiguration=rule("AES256"))
        self.assertEqual(algorithm(), "AES256")
        self.fails(501, "NotImplemented", self.c.put_bucket_encryption, Bucket=b, ServerSideEncryptionConfiguration=rule("aws:kms"))
        self.fails(400, "InvalidArgument", self.c.put_bucket_encryption, Bucket=b,
                   ServerSideEncryptionConfiguration=rule("AES256", KMSMasterKeyID="x"))
        self.assertEqual(self.c.delete_bucket_encryption(Bucket=b)["ResponseMetadata"]["HTTPStatusCode"], 204)
        self.assertEqual(algorithm(), "AES256")
        self.assertEqual(self.c.put_object(Bucket=b, Key="k", Body=b"x")["ServerSideEncryption"], "AES256")
        self.assertEqual(self.c.put_object(Bucket=b, Key="k", Body=b"x", ServerSideEncryption="AES256")["ServerSideEncryption"], "AES256")
        self.assertEqual(self.c.head_object(Bucket=b, Key="k")["ServerSideEncryption"], "AES256")

    def test_payment_and_acceleration(self):
        b = self.bucket()
        self.assertEqual(self.c.get_bucket_request_payment(Bucket=b)["Payer"], "BucketOwner")
        self.c.put_bucket_request_payment(Bucket=b, RequestPaymentConfiguration={"Payer": "BucketOwner"})
        self.fails(501, "NotImplemented", self.c.put_bucket_request_payment, Bucket=b, RequestPaymentConfiguration={"Payer": "Requester"})
        self.assertNotIn("Status", self.c.get_bucket_accelerate_configuration(Bucket=b))

    def test_tagging(self):
        b = self.bucket()
        self.fails(404, "NoSuchTagSet", self.c.get_bucket_tagging, Bucket=b)
        tags = [{"Key": "Hello", "Value": "World"}, {"Key": "ä", "Value": ""}]
        self.c.put_bucket_tagging(Bucket=b, Tagging={"TagSet": tags})
        self.assertEqual(self.c.get_bucket_tagging(Bucket=b)["TagSet"], tags)
        many = [{"Key": f"k{i}", "Value": "v"} for i in range(51)]
        self.c.put_bucket_tagging(Bucket=b, Tagging={"TagSet": many[:50]})
        self.fails(400, ("InvalidTag", "BadRequest"), self.c.put_bucket_tagging, Bucket=b, Tagging={"TagSet": many})
        self.fails(400, "InvalidTag", self.c.put_bucket_tagging, Bucket=b, Tagging={"TagSet": [tags[0], tags[0]]})
        self.fails(400, "InvalidTag", self.c.put_bucket_tagging, Bucket=b, Tagging={"TagSet": [{"Key": "aws:x", "Value": "v"}]})
        self.assertEqual(len(self.c.get_bucket_tagging(Bucket=b)["TagSet"]), 50)
        self.assertEqual(self.c.delete_bucket_tagging(Bucket=b)["ResponseMetadata"]["HTTPStatusCode"], 204)
        self.fails(404, "NoSuchTagSet", self.c.get_bucket_tagging, Bucket=b)

    def test_what_is_not_there_says_so(self):
        b = self.bucket("k")
        c, kw = self.c, {"Bucket": b}
        for call in (c.get_bucket_acl, c.get_bucket_policy, c.get_bucket_policy_status, c.get_public_access_block, c.get_bucket_ownership_controls,
                     c.get_object_lock_configuration, c.get_bucket_website, c.get_bucket_logging, c.get_bucket_replication,
                     c.get_bucket_notification_configuration, c.delete_bucket_policy, c.delete_bucket_website, c.list_bucket_inventory_configurations):
            self.fails(501, "NotImplemented", call, **kw)
        for call in (c.get_object_acl, c.get_object_retention, c.get_object_legal_hold):
            self.fails(501, "NotImplemented", call, Key="k", **kw)

    def test_configurations_want_a_checksum(self):
        b = self.bucket()
        body = b"<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"
        a = self.raw("PUT", f"/{b}?versioning", body=body)
        self.assertEqual((a.status, a.code()), (400, "InvalidRequest"))
        a = self.raw("PUT", f"/{b}?versioning", {"Content-MD5": md5(b"other")}, body)
        self.assertEqual((a.status, a.code()), (400, "BadDigest"))
        a = self.raw("PUT", f"/{b}?versioning", {"Content-MD5": "AAAA"}, body)
        self.assertEqual((a.status, a.code()), (400, "InvalidDigest"))
        self.assertNotIn("Status", self.c.get_bucket_versioning(Bucket=b))
        self.assertEqual(self.raw("PUT", f"/{b}?versioning", {"Content-MD5": md5(body)}, body).status, 200)
        a = self.raw("PUT", f"/{b}?versioning", {"Content-MD5": md5(b"<x")}, b"<x")
        self.assertEqual((a.status, a.code()), (400, "MalformedXML"))
        self.assertTrue(hashlib)


if __name__ == "__main__":
    main()
