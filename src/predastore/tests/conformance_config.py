"""Tags of objects, cross-origin rules, lifecycle configurations."""
import datetime
import re

from s3lib import S3Test, main, md5


def tags(**kw):
    return {"TagSet": [{"Key": k, "Value": v} for k, v in kw.items()]}


class Tags(S3Test):
    def get(self, b, key="k", **kw):
        return {t["Key"]: t["Value"] for t in self.c.get_object_tagging(Bucket=b, Key=key, **kw)["TagSet"]}

    def put(self, b, tagging, key="k", **kw):
        return self.c.put_object_tagging(Bucket=b, Key=key, Tagging=tagging, **kw)

    def test_listed_by_key(self):
        b = self.bucket("k")
        want = [{"Key": "bar", "Value": ""}, {"Key": "foo", "Value": "bar"}, {"Key": "foo2", "Value": "2"}]
        self.c.put_object(Bucket=b, Key="h", Body=b"x", Tagging="foo2=2&foo=bar&bar")
        self.put(b, {"TagSet": want[::-1]})
        for key in ("h", "k"):
            self.assertEqual(self.c.get_object_tagging(Bucket=b, Key=key)["TagSet"], want)

    def test_put_get_replace_delete(self):
        b = self.bucket("k")
        self.assertEqual(self.get(b), {})
        self.put(b, tags(a="1", b="2"))
        self.assertEqual(self.get(b), {"a": "1", "b": "2"})
        self.assertEqual(self.c.head_object(Bucket=b, Key="k")["TagCount"], 2)
        self.assertEqual(self.c.get_object(Bucket=b, Key="k")["TagCount"], 2)
        before = self.c.head_object(Bucket=b, Key="k")
        self.put(b, tags(c="3"))
        self.assertEqual(self.get(b), {"c": "3"})
        after = self.c.head_object(Bucket=b, Key="k")
        self.assertEqual((before["ETag"], before["LastModified"]), (after["ETag"], after["LastModified"]))
        self.assertEqual(self.c.delete_object_tagging(Bucket=b, Key="k")["ResponseMetadata"]["HTTPStatusCode"], 204)
        self.assertEqual(self.get(b), {})
        self.assertNotIn("TagCount", self.c.head_object(Bucket=b, Key="k"))

    def test_limits(self):
        b = self.bucket("k")
        ten = {f"{'k' * 127}{i}": "v" * 256 for i in range(10)}
        self.put(b, tags(**ten))
        self.assertEqual(self.get(b), ten)
        for bad in (tags(**{str(i): "" for i in range(11)}), tags(**{"k" * 129: "v"}), tags(k="v" * 257), tags(**{"aws:x": "v"})):
            self.fails(400, ("InvalidTag", "BadRequest"), self.put, b, bad)
        twice = {"TagSet": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]}
        self.fails(400, "InvalidTag", self.put, b, twice)
        self.assertEqual(self.get(b), ten)
        self.put(b, tags(**{"ä" * 128: "ö" * 256}))  # characters, not bytes
        body = b"<Tagging><TagSet><Tag><Key></Key><Value>v</Value></Tag></TagSet></Tagging>"
        self.assertIn(self.raw("PUT", f"/{b}/k?tagging", {"Content-MD5": md5(body)}, body).code(), ("InvalidTag", "MalformedXML"))
        for body in (b"<Tagging>", b"<Tagging><TagSet><Tag><Key>a</Key></Tag></TagSet></Tagging>", b"x"):
            a = self.raw("PUT", f"/{b}/k?tagging", {"Content-MD5": md5(body)}, body)
            self.assertEqual((a.status, a.code()), (400, "MalformedXML"), body)

    def test_with_the_object(self):
        b = self.bucket()
        self.c.put_object(Bucket=b, Key="k", Body=b"x", Tagging="foo=bar&a%20b=c%2Bd&bar")
        self.assertEqual(self.get(b), {"foo": "bar", "a b": "c+d", "bar": ""})
        self.c.copy_object(Bucket=b, Key="copy", CopySource={"Bucket": b, "Key": "k"})
        self.assertEqual(self.get(b, "copy"), self.get(b))
        self.c.copy_object(Bucket=b, Key="copy", CopySource={"Bucket": b, "Key": "k"}, TaggingDirective="REPLACE", Tagging="new=1")
        self.assertEqual(self.get(b, "copy"), {"new": "1"})
        self.c.put_object(Bucket=b, Key="k", Body=b"x")
        self.assertEqual(self.get(b), {})
        self.fails(400, "InvalidTag", self.c.put_object, Bucket=b, Key="k", Body=b"x", Tagging="&".join(f"k{i}=v" for i in range(11)))

    def test_of_versions(self):
        b = self.bucket(versioned=True)
        one, two = [self.c.put_object(Bucket=b, Key="k", Body=x, Tagging=f"n={x.decode()}")["VersionId"] for x in (b"1", b"2")]
        self.assertEqual((self.get(b), self.get(b, VersionId=one)), ({"n": "2"}, {"n": "1"}))
        self.assertEqual(self.put(b, tags(old="1"), VersionId=one)["VersionId"], one)
        self.assertEqual((self.get(b, VersionId=two), self.get(b, VersionId=one)), ({"n": "2"}, {"old": "1"}))
        self.c.delete_object_tagging(Bucket=b, Key="k", VersionId=one)
        self.assertEqual(self.get(b, VersionId=one), {})
        marker = self.c.delete_object(Bucket=b, Key="k")["VersionId"]
        self.fails(405, "MethodNotAllowed", self.c.get_object_tagging, Bucket=b, Key="k")
        self.fails(405, "MethodNotAllowed", self.put, b, tags(a="b"))
        self.fails(405, "MethodNotAllowed", self.c.get_object_tagging, Bucket=b, Key="k", VersionId=marker)
        self.fails(404, "NoSuchKey", self.c.get_object_tagging, Bucket=b, Key="none")
        self.fails(404, "NoSuchVersion", self.c.get_object_tagging, Bucket=b, Key="k", VersionId="f" * 32)


class Cors(S3Test):
    def rules(self, b, *rules):
        self.c.put_bucket_cors(Bucket=b, CORSConfiguration={"CORSRules": list(rules)})

    def ask(self, method, b, key=None, origin=None, asked=None, headers=None, sign=True):
        """(status, allowed origin, allowed methods)"""
        h = {k: v for k, v in (("Origin", origin), ("Access-Control-Request-Method", asked), ("Access-Control-Request-Headers", headers)) if v}
        a = self.raw(method, self.url(b, key), h, sign=sign)
        self.last = a
        return a.status, a.headers.get("access-control-allow-origin"), a.headers.get("access-control-allow-methods")

    def test_configuration(self):
        b = self.bucket()
        self.fails(404, "NoSuchCORSConfiguration", self.c.get_bucket_cors, Bucket=b)
        rule = {"ID": "x", "AllowedMethods": ["GET", "PUT"], "AllowedOrigins": ["*.get", "*.put"], "AllowedHeaders": ["x-amz-*"],
                "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60}
        self.rules(b, rule)
        self.assertEqual(self.c.get_bucket_cors(Bucket=b)["CORSRules"], [rule])
        good = {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"]}
        for bad in ({**good, "AllowedMethods": ["PATCH"]}, {**good, "AllowedOrigins": ["*a*"]}, {**good, "AllowedHeaders": ["*-*"]},
                    {**good, "ExposeHeaders": ["x-*"]}):
            self.fails(400, ("InvalidRequest", "MalformedXML"), self.rules, b, bad)
        self.fails(400, ("MalformedXML", "InvalidRequest"), self.rules, b, *[good] * 101)
        self.fails(400, "MalformedXML", self.rules, b)
        self.assertEqual(self.c.get_bucket_cors(Bucket=b)["CORSRules"], [rule])
        self.c.delete_bucket_cors(Bucket=b)
        self.fails(404, "NoSuchCORSConfiguration", self.c.get_bucket_cors, Bucket=b)

    def test_answers(self):
        b = self.bucket()
        self.rules(b, *[{"AllowedMethods": ["GET"], "AllowedOrigins": [o]} for o in ("*suffix", "start*end", "prefix*")],
                   {"AllowedMethods": ["PUT"], "AllowedOrigins": ["*.put"]})
        yes = ["foo.suffix", "startend", "start1end", "start12end", "prefix", "prefix.suffix"]
        no = ["foo.bar", "foo.suffix.get", "0start12end", "bla.prefix"]
        self.assertEqual(self.ask("GET", b), (200, None, None))
        for origin in yes:
            self.assertEqual(self.ask("GET", b, origin=origin), (200, origin, "GET"))
            self.assertEqual(self.ask("OPTIONS", b, origin=origin, asked="GET", sign=False), (200, origin, "GET"))
        for origin in no:
            self.assertEqual(self.ask("GET", b, origin=origin), (200, None, None))
            self.assertEqual(self.ask("OPTIONS", b, origin=origin, asked="GET", sign=False), (403, None, None))
        self.assertEqual(self.ask("GET", b, "none", origin="foo.suffix"), (404, "foo.suffix", "GET"))
        anonymous = {"sign": False}
        self.assertEqual(self.ask("PUT", b, "bar", origin="foo.suffix", asked="GET", **anonymous), (403, "foo.suffix", "GET"))
        self.assertEqual(self.ask("PUT", b, "bar", origin="foo.suffix", asked="PUT", **anonymous), (403, None, None))
        self.assertEqual(self.ask("PUT", b, "bar", origin="foo.suffix", **anonymous), (403, None, None))
        self.assertEqual(self.ask("PUT", b, "bar", origin="foo.put", **anonymous), (403, "foo.put", "PUT"))
        self.assertEqual(self.ask("PUT", b, "bar", origin="foo.put"), (200, "foo.put", "PUT"))
        for kw in ({}, {"origin": "foo.suffix"}, {"origin": "bla"}, {"asked": "GET"}):
            self.assertEqual(self.ask("OPTIONS", b, **kw, **anonymous), (400, None, None), kw)
        self.assertEqual(self.ask("OPTIONS", b, "bar", origin="foo.put", asked="PUT", **anonymous), (200, "foo.put", "PUT"))
        self.assertEqual(self.ask("OPTIONS", b, "bar", origin="foo.put", asked="GET", **anonymous), (403, None, None))

    def test_any_origin_and_headers(self):
        b = self.bucket()
        self.rules(b, {"AllowedMethods": ["GET"], "AllowedOrigins": ["*"], "ExposeHeaders": ["x-amz-meta-header1"], "MaxAgeSeconds": 9,
                       "AllowedHeaders": ["x-one", "x-amz-*"]})
        self.assertEqual(self.ask("GET", b, origin="example.origin"), (200, "*", "GET"))
        self.assertEqual(self.last.headers.get("access-control-expose-headers"), "x-amz-meta-header1")
        status = self.ask("OPTIONS", b, origin="e", asked="GET", headers="X-One, x-amz-date", sign=False)
        self.assertEqual(status, (200, "*", "GET"))
        self.assertEqual(self.last.headers.get("access-control-allow-headers", "").lower().replace(" ", ""), "x-one,x-amz-date")
        self.assertEqual(self.last.headers.get("access-control-max-age"), "9")
        self.assertEqual(self.ask("OPTIONS", b, origin="e", asked="GET", headers="x-two", sign=False), (403, None, None))
        self.assertEqual(self.last.code(), "AccessForbidden")

    def test_without_rules(self):
        b = self.bucket()
        self.assertEqual(self.ask("OPTIONS", b, origin="e", asked="GET", sign=False), (403, None, None))
        self.assertEqual(self.ask("GET", b, origin="e"), (200, None, None))
        self.assertEqual(self.ask("OPTIONS", self.name(), origin="e", asked="GET", sign=False)[0], 403)


class Lifecycle(S3Test):
    def put(self, b, *rules):
        return self.c.put_bucket_lifecycle_configuration(Bucket=b, LifecycleConfiguration={"Rules": list(rules)})

    def get(self, b):
        return self.c.get_bucket_lifecycle_configuration(Bucket=b)["Rules"]

    def test_configuration(self):
        b = self.bucket()
        self.fails(404, "NoSuchLifecycleConfiguration", self.c.get_bucket_lifecycle_configuration, Bucket=b)
        old = [{"ID": "test1/", "Expiration": {"Days": 31}, "Prefix": "test1/", "Status": "Enabled"},
               {"ID": "test2/", "Expiration": {"Days": 120}, "Prefix": "test2/", "Status": "Disabled"}]
        self.put(b, *old)
        self.assertEqual(self.get(b), old)
        midnight = datetime.datetime(2031, 9, 27, tzinfo=datetime.timezone.utc)
        e = {"Status": "Enabled"}
        new = [{"ID": "date", "Expiration": {"Date": midnight}, "Filter": {"Prefix": "a"}, **e},
               {"ID": "marker", "Expiration": {"ExpiredObjectDeleteMarker": True}, "Filter": {"Prefix": ""}, **e},
               {"ID": "tag", "Expiration": {"Days": 1}, "Filter": {"Tag": {"Key": "k", "Value": "v"}}, **e},
               {"ID": "sizes", "Expiration": {"Days": 1}, "Filter": {"And": {"ObjectSizeGreaterThan": 1, "ObjectSizeLessThan": 9}}, **e},
               {"ID": "and", "Expiration": {"Days": 1}, "Filter": {"And": {"Prefix": "p", "Tags": [{"Key": "k", "Value": "v"}]}}, **e},
               {"ID": "old", "NoncurrentVersionExpiration": {"NoncurrentDays": 2, "NewerNoncurrentVersions": 3}, "Filter": {"Prefix": ""}, **e},
               {"ID": "abort", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2}, "Filter": {"Prefix": ""}, **e}]
        self.put(b, *new)
        self.assertEqual(self.get(b), new)
        self.c.delete_bucket_lifecycle(Bucket=b)
        self.fails(404, "NoSuchLifecycleConfiguration", self.c.get_bucket_lifecycle_configuration, Bucket=b)

    def test_rules_without_id_get_one(self):
        b = self.bucket()
        self.put(b, {"Expiration": {"Days": 31}, "Prefix": "test1/", "Status": "Enabled"}, {"Expiration": {"Days": 3}, "Prefix": "t/", "Status": "Enabled"})
        ids = [r["ID"] for r in self.get(b)]
        self.assertTrue(all(ids) and len(set(ids)) == 2, ids)

    def test_bad_rules(self):
        b = self.bucket()
        good = {"ID": "x", "Expiration": {"Days": 2}, "Prefix": "test1/", "Status": "Enabled"}
        for code, rules in (("InvalidArgument", [{**good, "ID": "a" * 256}]), ("InvalidArgument", [good, good]),
                            ("MalformedXML", [{**good, "Status": "enabled"}]), ("MalformedXML", [{**good, "Status": "invalid"}]),
                            ("InvalidArgument", [{**good, "Expiration": {"Days": 0}}]),
                            (None, [{**good, "Expiration": {"Date": "20200101"}}]),
                            (None, [{**good, "Expiration": {"Date": datetime.datetime(2031, 9, 27, 1)}}]),
                            (None, [{**good, "Filter": {"Prefix": "x"}}]),
                            (None, [{k: v for k, v in good.items() if k != "Expiration"}]),
                            ("MalformedXML", [{**good, "Expiration": {"Days": 1, "ExpiredObjectDeleteMarker": True}}]),
                            (None, [{**good, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 0}}]),
                            ("MalformedXML", [])):
            self.fails(400, code, self.put, b, *rules)
        self.fails(501, "NotImplemented", self.put, b, {**good, "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]})
        for date in ("2023-09-27T00:00:01Z", "20220927"):
            odd = [{"Date": "2023-09-27", "StorageClass": "GLACIER"}, {"Date": date, "StorageClass": "GLACIER"}]
            self.fails(400, "InvalidArgument", self.put, b, {**good, "Transitions": odd})
        self.fails(404, "NoSuchLifecycleConfiguration", self.c.get_bucket_lifecycle_configuration, Bucket=b)

    def expiration(self, answer):
        m = re.fullmatch(r'expiry-date="(.+)", rule-id="(.+)"', answer.get("Expiration", ""))
        return m and (datetime.datetime.strptime(m[1], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=datetime.timezone.utc), m[2])

    def test_header(self):
        b = self.bucket()
        self.put(b, {"ID": "rule1", "Expiration": {"Days": 1}, "Prefix": "days1/", "Status": "Enabled"})
        for answer in (self.c.put_object(Bucket=b, Key="days1/foo", Body=b"x"), self.c.head_object(Bucket=b, Key="days1/foo"),
                       self.c.get_object(Bucket=b, Key="days1/foo")):
            when, rule = self.expiration(answer)
            now = datetime.datetime.now(datetime.timezone.utc)
            self.assertEqual(((when - now).days, rule, (when.hour, when.minute)), (1, "rule1", (0, 0)))
        self.assertIsNone(self.expiration(self.c.put_object(Bucket=b, Key="other", Body=b"x")))

    def test_header_by_tags(self):
        b = self.bucket("k")
        self.c.put_object_tagging(Bucket=b, Key="k", Tagging=tags(key1="tag1", key5="tag5"))
        for filt, is_hit in (({"Tag": {"Key": "key1", "Value": "tag1"}}, True), ({"Tag": {"Key": "key2", "Value": "tag1"}}, False),
                             ({"And": {"Tags": [{"Key": "key1", "Value": "tag1"}, {"Key": "key5", "Value": "tag6"}]}}, False),
                             ({"And": {"Tags": [{"Key": "key1", "Value": "tag1"}, {"Key": "key5", "Value": "tag5"}]}}, True)):
            self.put(b, {"ID": "r", "Filter": filt, "Status": "Enabled", "Expiration": {"Days": 1}})
            self.assertEqual(self.expiration(self.c.head_object(Bucket=b, Key="k")) is not None, is_hit, filt)

    def test_uploads_say_when_they_end(self):
        b = self.bucket()
        self.put(b, {"ID": "gone", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 3}, "Prefix": "t/", "Status": "Enabled"})
        r = self.c.create_multipart_upload(Bucket=b, Key="t/k")
        self.assertEqual(r["AbortRuleId"], "gone")
        self.assertEqual(self.c.list_parts(Bucket=b, Key="t/k", UploadId=r["UploadId"])["AbortDate"], r["AbortDate"])
        self.assertNotIn("AbortRuleId", self.c.create_multipart_upload(Bucket=b, Key="k"))

    def test_past_dates_are_done_soon(self):
        b = self.bucket("past/foo", "future/bar")
        self.put(b, {"ID": "1", "Expiration": {"Date": "2015-01-01"}, "Prefix": "past/", "Status": "Enabled"},
                 {"ID": "2", "Expiration": {"Date": "2070-01-01"}, "Prefix": "future/", "Status": "Enabled"})
        self.assertEqual(len(self.get(b)), 2)


if __name__ == "__main__":
    main()
