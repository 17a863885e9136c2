"""Versions: null ones, delete markers, suspended buckets, lists of versions, batch deletes and their conditions."""
import re
import threading

from s3lib import S3Test, main, md5


class Versions(S3Test):
    def put(self, b, key, *bodies):
        return [self.c.put_object(Bucket=b, Key=key, Body=x)["VersionId"] for x in bodies]

    def versions(self, b, **kw):
        """[(key, version id)] as listed, and the same of delete markers."""
        page = self.c.list_object_versions(Bucket=b, **kw)
        return ([(v["Key"], v["VersionId"]) for v in page.get("Versions", [])],
                [(v["Key"], v["VersionId"]) for v in page.get("DeleteMarkers", [])])

    def suspend(self, b):
        self.c.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": "Suspended"})

    def enable(self, b):
        self.c.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": "Enabled"})

    def test_newest_first_and_each_readable(self):
        b = self.bucket(versioned=True)
        bodies = [f"content-{i}".encode() for i in range(5)]
        ids = self.put(b, "k", *bodies)
        self.assertEqual(len(set(ids)), 5)
        self.assertEqual(self.versions(b), ([("k", i) for i in reversed(ids)], []))
        for i, body in zip(ids, bodies):
            self.assertEqual(self.body(b, "k", VersionId=i), body)
        self.assertEqual([v["IsLatest"] for v in self.c.list_object_versions(Bucket=b)["Versions"]], [True] + [False] * 4)
        for n, pick in enumerate((4, 0, 1, 0, 0)):  # the newest, the oldest, one of the middle ...
            gone = ids.pop(pick)
            bodies.pop(pick)
            r = self.c.delete_object(Bucket=b, Key="k", VersionId=gone)
            self.assertEqual(r["VersionId"], gone)
            self.assertNotIn("DeleteMarker", r)
            self.assertEqual(self.versions(b), ([("k", i) for i in reversed(ids)], []))
            self.fails(404, "NoSuchVersion", self.c.get_object, Bucket=b, Key="k", VersionId=gone)
            if ids:
                self.assertEqual(self.body(b, "k"), bodies[-1])
        self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="k")

    def test_special_names(self):
        b = self.bucket(versioned=True)
        for key in ("_testobj", "_", ":", " "):
            ids = self.put(b, key, b"1", b"2", b"3")
            for i in ids:
                self.c.delete_object(Bucket=b, Key=key, VersionId=i)
        self.assertEqual(self.versions(b), ([], []))

    def test_delete_markers(self):
        b = self.bucket(versioned=True)
        ids = self.put(b, "k", b"1", b"2")
        r = self.c.delete_object(Bucket=b, Key="k")
        marker = r["VersionId"]
        self.assertTrue(r["DeleteMarker"])
        e = self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="k")
        self.assertEqual(e["ResponseMetadata"]["HTTPHeaders"]["x-amz-delete-marker"], "true")
        self.assertEqual(e["ResponseMetadata"]["HTTPHeaders"]["x-amz-version-id"], marker)
        e = self.fails(404, "404", self.c.head_object, Bucket=b, Key="k")
        self.assertEqual(e["ResponseMetadata"]["HTTPHeaders"]["x-amz-delete-marker"], "true")
        self.fails(405, "MethodNotAllowed", self.c.get_object, Bucket=b, Key="k", VersionId=marker)
        self.assertEqual(self.versions(b), ([("k", i) for i in reversed(ids)], [("k", marker)]))
        self.assertNotIn("Contents", self.c.list_objects(Bucket=b))
        r = self.c.delete_object(Bucket=b, Key="k", VersionId=marker)
        self.assertEqual((r["DeleteMarker"], r["VersionId"]), (True, marker))
        self.assertEqual(self.body(b, "k"), b"2")

    def test_marker_of_a_key_that_never_was(self):
        b = self.bucket(versioned=True)
        marker = self.c.delete_object(Bucket=b, Key="k")["VersionId"]
        self.assertEqual(self.versions(b), ([], [("k", marker)]))
        again = self.c.delete_object(Bucket=b, Key="k")["VersionId"]
        self.assertEqual(len(self.versions(b)[1]), 2)
        for v in (marker, again):
            self.c.delete_object(Bucket=b, Key="k", VersionId=v)
        self.c.delete_bucket(Bucket=b)

    def test_deleting_again_is_fine(self):
        b = self.bucket(versioned=True)
        ids = self.put(b, "k", b"1", b"2") + [self.c.delete_object(Bucket=b, Key="k")["VersionId"]]
        for _ in range(2):
            for i in ids:
                self.c.delete_object(Bucket=b, Key="k", VersionId=i)
            self.assertEqual(self.versions(b), ([], []))

    # ---- null versions ----

    def test_null_version_removed(self):
        b = self.bucket("k")
        self.enable(b)
        self.assertEqual(self.versions(b), ([("k", "null")], []))
        self.assertEqual(self.body(b, "k", VersionId="null"), b"k")
        self.c.delete_object(Bucket=b, Key="k", VersionId="null")
        self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="k")
        self.assertEqual(self.versions(b), ([], []))

    def test_null_version_under_others(self):
        b = self.bucket("k")
        self.enable(b)
        new = self.put(b, "k", b"zzz")[0]
        self.assertEqual(self.body(b, "k"), b"zzz")
        self.c.delete_object(Bucket=b, Key="k", VersionId=new)
        r = self.c.get_object(Bucket=b, Key="k")
        self.assertEqual((r["Body"].read(), r["VersionId"]), (b"k", "null"))
        self.c.delete_object(Bucket=b, Key="k", VersionId="null")
        self.assertEqual(self.versions(b), ([], []))
        self.enable(b)
        self.put(b, "other", b"x")
        self.fails(404, "NoSuchVersion", self.c.get_object, Bucket=b, Key="other", VersionId="null")

    def test_writes_show_no_null_version(self):
        b = self.bucket("source", versioned=True)
        self.c.put_bucket_versioning(Bucket=b, VersioningConfiguration={"Status": "Suspended"})
        self.assertNotIn("VersionId", self.c.put_object(Bucket=b, Key="k", Body=b"x"))
        self.assertEqual(self.c.copy_object(Bucket=b, Key="copy", CopySource={"Bucket": b, "Key": "source"})["VersionId"], "null")
        u = self.c.create_multipart_upload(Bucket=b, Key="parts")["UploadId"]
        part = {"PartNumber": 1, "ETag": self.c.upload_part(Bucket=b, Key="parts", UploadId=u, PartNumber=1, Body=b"x")["ETag"]}
        for _ in range(2):
            self.assertNotIn("VersionId", self.c.complete_multipart_upload(Bucket=b, Key="parts", UploadId=u, MultipartUpload={"Parts": [part]}))
        for key in ("k", "copy", "parts"):
            self.assertEqual(self.c.head_object(Bucket=b, Key=key)["VersionId"], "null")

    def test_null_version_overwritten_when_suspended(self):
        b = self.bucket("k")
        self.enable(b)
        self.suspend(b)
        r = self.c.put_object(Bucket=b, Key="k", Body=b"zzz")
        self.assertNotIn("VersionId", r)
        self.assertEqual((self.body(b, "k"), self.versions(b)), (b"zzz", ([("k", "null")], [])))
        self.c.delete_object(Bucket=b, Key="k", VersionId="null")
        self.assertEqual(self.versions(b), ([], []))

    def test_suspended_and_enabled_again(self):
        b = self.bucket(versioned=True)
        ids = self.put(b, "k", b"0", b"1", b"2")
        self.suspend(b)
        for _ in range(2):  # one null marker, however often
            r = self.c.delete_object(Bucket=b, Key="k")
            self.assertEqual((r["DeleteMarker"], r["VersionId"]), (True, "null"))
            self.assertEqual(self.versions(b), ([("k", i) for i in reversed(ids)], [("k", "null")]))
        for body in (b"null 1", b"null 2"):  # puts take the marker's place, then their own
            self.c.put_object(Bucket=b, Key="k", Body=body)
            self.assertEqual(self.versions(b), ([("k", "null")] + [("k", i) for i in reversed(ids)], []))
            self.assertEqual(self.body(b, "k"), body)
        self.c.delete_object(Bucket=b, Key="k")
        self.assertEqual(self.versions(b), ([("k", i) for i in reversed(ids)], [("k", "null")]))
        self.enable(b)
        more = self.put(b, "k", b"3", b"4")
        self.assertEqual(self.versions(b), ([("k", i) for i in reversed(ids + more)], [("k", "null")]))
        for i in ids + more + ["null"]:
            self.c.delete_object(Bucket=b, Key="k", VersionId=i)
        self.assertEqual(self.versions(b), ([], []))

    def test_bad_version_ids(self):
        b = self.bucket("k", versioned=True)
        for bad in ("garbage", "0" * 31, "z" * 32):
            self.fails(400, "InvalidArgument", self.c.get_object, Bucket=b, Key="k", VersionId=bad)
            self.fails(400, "InvalidArgument", self.c.delete_object, Bucket=b, Key="k", VersionId=bad)
        self.assertEqual(self.raw("GET", f"/{b}/k?versionId=").code(), "InvalidArgument")
        self.fails(404, "NoSuchVersion", self.c.get_object, Bucket=b, Key="k", VersionId="f" * 32)

    # ---- lists of versions ----

    def test_order_and_pages(self):
        b = self.bucket(versioned=True)
        want = []
        for key in ("a", "a-1", "b/1", "b/2", "c"):
            want += [(key, i) for i in reversed(self.put(b, key, b"1", b"2", b"3"))]
        marker = self.c.delete_object(Bucket=b, Key="c")["VersionId"]
        self.assertEqual(self.versions(b), (want, [("c", marker)]))
        whole = want[:-3] + [("c", marker)] + want[-3:]
        for size in (1, 2, 4, 16):
            got, kw = [], {}
            while True:
                page = self.c.list_object_versions(Bucket=b, MaxKeys=size, **kw)
                entries = page.get("Versions", []) + page.get("DeleteMarkers", [])
                self.assertLessEqual(len(entries), size)
                got += [(v["Key"], v["VersionId"]) for v in entries]
                if not page["IsTruncated"]:
                    break
                kw = {"KeyMarker": page["NextKeyMarker"], "VersionIdMarker": page["NextVersionIdMarker"]}
                self.assertEqual((page["NextKeyMarker"], page["NextVersionIdMarker"]), got[-1] if size == 1 else (kw["KeyMarker"], kw["VersionIdMarker"]))
            self.assertEqual(sorted(got), sorted(whole))
            self.assertEqual(len(got), len(set(got)))
        self.assertEqual(self.versions(b, KeyMarker="a-1")[0], want[6:])
        self.assertEqual(self.versions(b, KeyMarker="a", VersionIdMarker=want[1][1])[0][0], want[2])
        a = self.raw("GET", f"/{b}?versions&version-id-marker={want[0][1]}")
        self.assertEqual((a.status, a.code()), (400, "InvalidArgument"))

    def test_versions_and_markers_stand_in_one_order(self):
        b = self.bucket(versioned=True)
        self.put(b, "a", b"1")
        self.c.delete_object(Bucket=b, Key="a")
        self.put(b, "a", b"2")
        self.c.delete_object(Bucket=b, Key="b")
        self.put(b, "c", b"3")
        body = self.raw("GET", f"/{b}?versions").body.decode()
        got = [(m[0], re.search("<Key>(.)</Key>", m[1])[1]) for m in re.findall("<(Version|DeleteMarker)>(.*?)</(?:Version|DeleteMarker)>", body)]
        self.assertEqual(got, [("Version", "a"), ("DeleteMarker", "a"), ("Version", "a"), ("DeleteMarker", "b"), ("Version", "c")])

    def test_prefix_and_delimiter(self):
        b = self.bucket("a", "b/1", "b/2", "c", versioned=True)
        page = self.c.list_object_versions(Bucket=b, Delimiter="/")
        self.assertEqual(([v["Key"] for v in page["Versions"]], page["CommonPrefixes"]), (["a", "c"], [{"Prefix": "b/"}]))
        self.assertEqual([k for k, _ in self.versions(b, Prefix="b/")[0]], ["b/1", "b/2"])
        page = self.c.list_object_versions(Bucket=b, Delimiter="/", MaxKeys=2)
        self.assertEqual((page["IsTruncated"], page["NextKeyMarker"]), (True, "b/"))
        self.assertNotIn("NextVersionIdMarker", page)
        page = self.c.list_object_versions(Bucket=b, Delimiter="/", MaxKeys=2, KeyMarker="b/")
        self.assertEqual([v["Key"] for v in page["Versions"]], ["c"])

    def test_what_an_entry_says(self):
        b = self.bucket("k", versioned=True)
        v, h = self.c.list_object_versions(Bucket=b)["Versions"][0], self.c.head_object(Bucket=b, Key="k")
        self.assertEqual((v["ETag"], v["Size"], v["VersionId"], v["LastModified"]), (h["ETag"], h["ContentLength"], h["VersionId"], h["LastModified"]))
        self.assertEqual(v["Owner"]["ID"], self.c.list_buckets()["Owner"]["ID"])

    # ---- copies of versions ----

    def test_copies_of_versions(self):
        b, other = self.bucket(versioned=True), self.bucket()
        ids = self.put(b, "k", b"0", b"1", b"2")
        for i, v in enumerate(ids):
            for where in (b, other):
                r = self.c.copy_object(Bucket=where, Key=f"copy{i}", CopySource={"Bucket": b, "Key": "k", "VersionId": v})
                self.assertEqual(r["CopySourceVersionId"], v)
                self.assertEqual(self.body(where, f"copy{i}"), b"%d" % i)
        self.c.copy_object(Bucket=other, Key="new", CopySource={"Bucket": b, "Key": "k"})
        self.assertEqual(self.body(other, "new"), b"2")
        marker = self.c.delete_object(Bucket=b, Key="k")["VersionId"]
        self.fails(404, "NoSuchKey", self.c.copy_object, Bucket=other, Key="x", CopySource={"Bucket": b, "Key": "k"})
        self.fails(400, "InvalidRequest", self.c.copy_object, Bucket=other, Key="x", CopySource={"Bucket": b, "Key": "k", "VersionId": marker})
        r = self.c.copy_object(Bucket=b, Key="k", CopySource={"Bucket": b, "Key": "k", "VersionId": ids[0]})  # undelete
        self.assertEqual((self.body(b, "k"), r["VersionId"] not in ids), (b"0", True))

    # ---- many at once ----

    def test_concurrent_puts_and_deletes(self):
        b = self.bucket(versioned=True)

        def together(fns):
            threads = [threading.Thread(target=f) for f in fns]
            [t.start() for t in threads]
            [t.join() for t in threads]
        for _ in range(3):
            together([lambda i=i: self.c.put_object(Bucket=b, Key="k", Body=b"%d" % i) for i in range(5)])
            ids = self.versions(b)[0]
            self.assertEqual(len(ids), 5)
            together([lambda v=v: self.c.delete_object(Bucket=b, Key="k", VersionId=v) for _, v in ids])
            self.assertEqual(self.versions(b), ([], []))

    # ---- DeleteObjects ----

    def delete(self, b, *objects, **kw):
        r = self.c.delete_objects(Bucket=b, Delete={"Objects": list(objects), **kw})
        return r.get("Deleted", []), r.get("Errors", [])

    def test_delete_objects(self):
        b = self.bucket("key0", "key1", "key2")
        objects = [{"Key": k} for k in ("key0", "key1", "key2")]
        for _ in range(2):
            deleted, errors = self.delete(b, *objects)
            self.assertEqual(([d["Key"] for d in deleted], errors), (["key0", "key1", "key2"], []))
            self.assertNotIn("Contents", self.c.list_objects(Bucket=b))
        self.c.put_object(Bucket=b, Key="key0", Body=b"")
        self.assertEqual(self.delete(b, *objects, Quiet=True), ([], []))

    def test_delete_objects_with_versions(self):
        b = self.bucket(versioned=True)
        ids = self.put(b, "k", b"1", b"2")
        deleted, _ = self.delete(b, {"Key": "k"})
        self.assertTrue(deleted[0]["DeleteMarker"])
        marker = deleted[0]["DeleteMarkerVersionId"]
        self.assertNotIn("VersionId", deleted[0])
        self.assertEqual(self.versions(b)[1], [("k", marker)])
        deleted, errors = self.delete(b, {"Key": "k", "VersionId": marker}, *[{"Key": "k", "VersionId": i} for i in ids], {"Key": "k", "VersionId": "bad"})
        self.assertEqual([d["VersionId"] for d in deleted], [marker] + ids)
        self.assertEqual((deleted[0]["DeleteMarker"], deleted[0]["DeleteMarkerVersionId"]), (True, marker))
        self.assertNotIn("DeleteMarker", deleted[1])
        self.assertEqual([(e["Key"], e["VersionId"], e["Code"]) for e in errors], [("k", "bad", "NoSuchVersion")])
        self.assertEqual(self.versions(b), ([], []))

    def test_delete_objects_from_many_threads(self):
        b = self.bucket(versioned=True)
        objects = [{"Key": f"k{i}", "VersionId": self.put(b, f"k{i}", b"x")[0]} for i in range(20)]
        results = []
        threads = [threading.Thread(target=lambda: results.append(self.delete(b, *objects))) for _ in range(5)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual([(len(d), e) for d, e in results], [(20, [])] * 5)
        self.assertEqual(self.versions(b), ([], []))

    def test_delete_objects_wants_a_good_request(self):
        b = self.bucket("k")
        body = b"<Delete><Object><Key>k</Key></Object></Delete>"
        a = self.raw("POST", f"/{b}?delete", body=body)
        self.assertEqual((a.status, a.code()), (400, "InvalidRequest"))
        self.assertIn("Missing required header", a.text("Message"))
        for headers, code in (({"Content-MD5": md5(b"x")}, "BadDigest"), ({"Content-MD5": "x"}, "InvalidDigest"),
                              ({"x-amz-checksum-crc32": "AAAAAA=="}, "BadDigest")):
            self.assertEqual(self.raw("POST", f"/{b}?delete", headers, body).code(), code)
        self.assertEqual(self.body(b, "k"), b"k")
        for body in (b"<Delete></Delete>", b"<Delete>", b"<Wrong><Object><Key>k</Key></Object></Wrong>", b"<Delete><Object></Object></Delete>"):
            a = self.raw("POST", f"/{b}?delete", {"Content-MD5": md5(body)}, body)
            self.assertEqual((a.status, a.code()), (400, "MalformedXML"), body)
        body = b"<Delete><Object><Key>k</Key></Object></Delete>"
        self.assertEqual(self.raw("POST", f"/{b}?delete", {"Content-MD5": md5(body)}, body).status, 200)
        self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="k")

    # ---- conditional deletes, one by one and in a batch ----

    def conditions(self, head):
        """(good, bad) conditions of DeleteObject, and the same of DeleteObjects."""
        old = head["LastModified"].replace(year=2015)
        return [({"IfMatch": head["ETag"]}, {"IfMatch": '"badetag"'}, {"ETag": head["ETag"]}, {"ETag": "badetag"}),
                ({"IfMatchLastModifiedTime": head["LastModified"]}, {"IfMatchLastModifiedTime": old},
                 {"LastModifiedTime": head["LastModified"]}, {"LastModifiedTime": old}),
                ({"IfMatchSize": head["ContentLength"]}, {"IfMatchSize": 9999}, {"Size": head["ContentLength"]}, {"Size": 9999})]

    def test_conditional_delete(self):
        for which in range(3):
            b = self.bucket("k", "m")
            good, bad, many_good, many_bad = self.conditions(self.c.head_object(Bucket=b, Key="k"))[which]
            if which != 1:
                m_good = self.conditions(self.c.head_object(Bucket=b, Key="m"))[which][2]
            else:
                m_good = {"LastModifiedTime": self.c.head_object(Bucket=b, Key="m")["LastModified"]}
            self.fails(412, "PreconditionFailed", self.c.delete_object, Bucket=b, Key="k", **bad)
            self.c.delete_object(Bucket=b, Key="k", **good)
            self.c.delete_object(Bucket=b, Key="k", **bad)  # nothing is there
            self.assertEqual([e["Code"] for e in self.delete(b, {"Key": "m", **many_bad})[1]], ["PreconditionFailed"])
            self.assertEqual([d["Key"] for d in self.delete(b, {"Key": "m", **m_good})[0]], ["m"])
            self.assertEqual(self.delete(b, {"Key": "m", **many_bad})[1], [])
            self.assertTrue(many_good)

    def test_conditional_delete_of_the_current_version(self):
        for which in range(3):
            b = self.bucket("k", "m", versioned=True)
            good, bad, many_good, many_bad = self.conditions(self.c.head_object(Bucket=b, Key="k"))[which]
            self.fails(412, "PreconditionFailed", self.c.delete_object, Bucket=b, Key="k", **bad)
            self.assertTrue(self.c.delete_object(Bucket=b, Key="k", **good)["DeleteMarker"])
            self.fails(412, "PreconditionFailed", self.c.delete_object, Bucket=b, Key="k", **bad)
            many_good = self.conditions(self.c.head_object(Bucket=b, Key="m"))[which][2]
            self.assertEqual([e["Code"] for e in self.delete(b, {"Key": "m", **many_bad})[1]], ["PreconditionFailed"])
            self.assertTrue(self.delete(b, {"Key": "m", **many_good})[0][0]["DeleteMarker"])
            self.assertEqual([e["Code"] for e in self.delete(b, {"Key": "m", **many_bad})[1]], ["PreconditionFailed"])

    def test_conditional_delete_of_a_version(self):
        for which in range(3):
            b = self.bucket("k", versioned=True)
            v = self.c.head_object(Bucket=b, Key="k")["VersionId"]
            good, bad, many_good, many_bad = self.conditions(self.c.head_object(Bucket=b, Key="k"))[which]
            self.put(b, "k", b"newer")
            self.fails(412, "PreconditionFailed", self.c.delete_object, Bucket=b, Key="k", VersionId=v, **bad)
            self.assertEqual([e["Code"] for e in self.delete(b, {"Key": "k", "VersionId": v, **many_bad})[1]], ["PreconditionFailed"])
            if which == 1:
                self.delete(b, {"Key": "k", "VersionId": v, **many_good})
            else:
                self.c.delete_object(Bucket=b, Key="k", VersionId=v, **good)
            self.c.delete_object(Bucket=b, Key="k", VersionId=v, **bad)
            self.assertEqual(self.delete(b, {"Key": "k", "VersionId": v, **many_bad})[1], [])
            self.assertEqual(self.body(b, "k"), b"newer")

    def test_if_match_star(self):
        b = self.bucket("k")
        self.c.delete_object(Bucket=b, Key="k", IfMatch="*")
        self.c.delete_object(Bucket=b, Key="k", IfMatch="*")
        self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="k")


if __name__ == "__main__":
    main()
