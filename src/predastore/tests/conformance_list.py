"""Lists of objects: what clients see of prefixes, delimiters, markers, sizes of pages and encodings."""
import unittest

from s3lib import S3Test, main


def keys(page):
    return [o["Key"] for o in page.get("Contents", [])]


def prefixes(page):
    return [p["Prefix"] for p in page.get("CommonPrefixes", [])]


class Lists(S3Test):
    def both(self, bucket, **kw):
        """Both forms of the list, which say the same."""
        one, two = self.c.list_objects(Bucket=bucket, **kw), self.c.list_objects_v2(Bucket=bucket, **kw)
        self.assertEqual(keys(one), keys(two))
        self.assertEqual(prefixes(one), prefixes(two))
        self.assertEqual(one["IsTruncated"], two["IsTruncated"])
        self.assertEqual(two["KeyCount"], len(keys(two)) + len(prefixes(two)))
        return one, two

    def test_empty_and_apart(self):
        a, b = self.bucket(), self.bucket("asdf")
        one, two = self.both(a)
        self.assertNotIn("Contents", one)
        self.assertEqual(two["KeyCount"], 0)
        self.assertEqual(keys(self.both(b)[0]), ["asdf"])

    def test_delimiters(self):
        cases = [  # delimiter, objects, keys shown, prefixes shown
            ("/", ["asdf", "foo/bar", "foo/bar/xyzzy", "quux/thud"], ["asdf"], ["foo/", "quux/"]),
            ("a", ["bar", "baz", "cab", "foo"], ["foo"], ["ba", "ca"]),
            ("%", ["b%ar", "b%az", "c%ab", "foo"], ["foo"], ["b%", "c%"]),
            (" ", ["b ar", "b az", "c ab", "foo"], ["foo"], ["b ", "c "]),
            (".", ["b.ar", "b.az", "c.ab", "foo"], ["foo"], ["b.", "c."]),
            ("\n", ["bar", "baz", "cab", "foo"], ["bar", "baz", "cab", "foo"], []),
            ("--", ["a--b", "a--c", "a-b"], ["a-b"], ["a--"]),
            ("ü", ["aüb", "aüc", "b"], ["b"], ["aü"]),
        ]
        for delimiter, objects, want_keys, want_prefixes in cases:
            with self.subTest(delimiter):
                b = self.bucket(*objects)
                for page in self.both(b, Delimiter=delimiter):
                    self.assertEqual(page["Delimiter"], delimiter)
                    self.assertEqual(keys(page), want_keys)
                    self.assertEqual(prefixes(page), want_prefixes)

    def test_delimiter_empty_absent_or_not_in_any_key(self):
        b = self.bucket("bar", "baz", "cab", "foo")
        for kw in ({}, {"Delimiter": ""}):
            for page in self.both(b, **kw):
                self.assertNotIn("Delimiter", page)
                self.assertEqual(keys(page), ["bar", "baz", "cab", "foo"])
        for page in self.both(b, Delimiter="/"):
            self.assertEqual(page["Delimiter"], "/")
            self.assertEqual((keys(page), prefixes(page)), (["bar", "baz", "cab", "foo"], []))

    def test_prefixes(self):
        b = self.bucket("foo/bar", "foo/baz", "quux")
        cases = [("foo/", ["foo/bar", "foo/baz"]), ("fo", ["foo/bar", "foo/baz"]), ("", ["foo/bar", "foo/baz", "quux"]), ("d", []),
                 ("\n", []), ("quux", ["quux"]), ("quuxx", [])]
        for prefix, want in cases:
            for page in self.both(b, Prefix=prefix):
                self.assertEqual(page["Prefix"], prefix)
                self.assertEqual(keys(page), want)
        self.assertEqual(self.c.list_objects(Bucket=b)["Prefix"], "")

    def test_prefix_with_delimiter(self):
        b = self.bucket("foo/bar", "foo/baz/xyzzy", "quux/thud", "asdf")
        for page in self.both(b, Delimiter="/", Prefix="foo/"):
            self.assertEqual((page["Prefix"], page["Delimiter"]), ("foo/", "/"))
            self.assertEqual((keys(page), prefixes(page)), (["foo/bar"], ["foo/baz/"]))
        b = self.bucket("bar", "bazar", "cab", "foo")
        for page in self.both(b, Delimiter="a", Prefix="ba"):
            self.assertEqual((keys(page), prefixes(page)), (["bar"], ["baza"]))
        b = self.bucket("b/a/c", "b/a/g", "b/a/r", "g")
        self.assertEqual([(keys(p), prefixes(p)) for p in self.both(b, Delimiter="/", Prefix="d")], [([], [])] * 2)
        for page in self.both(b, Delimiter="z", Prefix="b"):
            self.assertEqual((keys(page), prefixes(page)), (["b/a/c", "b/a/g", "b/a/r"], []))
        self.assertEqual([(keys(p), prefixes(p)) for p in self.both(b, Delimiter="z", Prefix="y")], [([], [])] * 2)
        b = self.bucket("asdf/")
        for page in self.both(b, Delimiter="/", Prefix="asdf/"):
            self.assertEqual((keys(page), prefixes(page)), (["asdf/"], []))

    def pages(self, bucket, size, **kw):
        """(keys, prefixes, NextMarker) of all pages of both forms; both must agree."""
        out, marker, token = [], "", None
        while True:
            one = self.c.list_objects(Bucket=bucket, MaxKeys=size, Marker=marker, **kw)
            two = self.c.list_objects_v2(Bucket=bucket, MaxKeys=size, **({"ContinuationToken": token} if token else {}), **kw)
            self.assertEqual((keys(one), prefixes(one), one["IsTruncated"]), (keys(two), prefixes(two), two["IsTruncated"]))
            out.append((keys(one), prefixes(one), one.get("NextMarker")))
            if not one["IsTruncated"]:
                self.assertNotIn("NextContinuationToken", two)
                self.assertNotIn("NextMarker", one)
                return out
            self.assertEqual("NextMarker" in one, "Delimiter" in kw)
            marker, token = one.get("NextMarker") or keys(one)[-1], two["NextContinuationToken"]
            self.assertLess(len(out), 50, "the list does not end")

    def test_pages_with_delimiter(self):
        for a, boo, bar in (("asdf", "boo/", "cquux/"), ("_obj1_", "_under1/", "_under2/")):
            b = self.bucket(a, boo + "bar", boo + "baz/xyzzy", bar + "thud", bar + "bla")
            self.assertEqual(self.pages(b, 1, Delimiter="/"), [([a], [], a), ([], [boo], boo), ([], [bar], None)])
            self.assertEqual(self.pages(b, 2, Delimiter="/"), [([a], [boo], boo), ([], [bar], None)])
            self.assertEqual(self.pages(b, 1, Delimiter="/", Prefix=boo), [([boo + "bar"], [], boo + "bar"), ([], [boo + "baz/"], None)])
            self.assertEqual(self.pages(b, 2, Delimiter="/", Prefix=boo), [([boo + "bar"], [boo + "baz/"], None)])

    def test_paging_with_delimiter_loses_no_prefix_and_shows_none_twice(self):
        names = [f"{d}-{i}" for d in "abc" for i in range(4)] + ["a", "b-", "d", "e-1"]
        b = self.bucket(*names)
        whole = self.both(b, Delimiter="-")[0]
        for size in range(1, 8):
            pages = self.pages(b, size, Delimiter="-")
            self.assertEqual([k for p in pages for k in p[0]], keys(whole))
            self.assertEqual([x for p in pages for x in p[1]], prefixes(whole))
            self.assertTrue(all(len(p[0]) + len(p[1]) == size for p in pages[:-1]))

    def test_many_keys_under_one_prefix_do_not_hide_what_follows(self):
        b = self.bucket("1999", "1999#", "1999+", "2000", "0/", *[f"0/{i}" for i in range(1000, 1250)])
        for page in self.both(b, Delimiter="/"):
            self.assertEqual((keys(page), prefixes(page)), (["1999", "1999#", "1999+", "2000"], ["0/"]))

    def test_sizes_of_pages(self):
        names = ["bar", "baz", "foo", "quxx"]
        b = self.bucket(*names)
        self.assertEqual(self.pages(b, 2), [(names[:2], [], None), (names[2:], [], None)])
        for page in self.both(b):
            self.assertEqual((page["MaxKeys"], page["IsTruncated"]), (1000, False))
        for page in self.both(b, MaxKeys=0):
            self.assertEqual((keys(page), page["IsTruncated"], page["MaxKeys"]), ([], False, 0))
        for page in self.both(b, MaxKeys=5000):
            self.assertEqual((keys(page), page["MaxKeys"]), (names, 1000))
        for value in ("blah", "-1", "1.5", "99999999999"):
            for extra in ("", "&list-type=2"):
                answer = self.raw("GET", f"/{b}?max-keys={value}{extra}")
                self.assertEqual((answer.status, answer.code()), (400, "InvalidArgument"), value)

    def test_markers(self):
        names = ["bar", "baz", "foo", "quxx"]
        b = self.bucket(*names)
        self.assertEqual(self.c.list_objects(Bucket=b)["Marker"], "")
        for marker, want in (("", names), ("\n", names), ("blah", ["foo", "quxx"]), ("bar", names[1:]), ("zzz", []), ("quxx", [])):
            one, two = self.c.list_objects(Bucket=b, Marker=marker), self.c.list_objects_v2(Bucket=b, StartAfter=marker)
            self.assertEqual(one["Marker"], marker)
            self.assertEqual((keys(one), keys(two)), (want, want))
            if marker:
                self.assertEqual(two["StartAfter"], marker)

    def test_marker_outside_of_the_prefix(self):
        b = self.bucket("a/1", "b/1", "b/2", "c/1")
        for marker, want in (("a/1", ["b/1", "b/2"]), ("b/1", ["b/2"]), ("c", [])):
            self.assertEqual(keys(self.c.list_objects(Bucket=b, Prefix="b/", Marker=marker)), want)
            self.assertEqual(keys(self.c.list_objects_v2(Bucket=b, Prefix="b/", StartAfter=marker)), want)

    def test_continuation_tokens(self):
        names = ["bar", "baz", "foo", "quxx"]
        b = self.bucket(*names)
        page = self.c.list_objects_v2(Bucket=b, ContinuationToken="")
        self.assertEqual((page["ContinuationToken"], keys(page)), ("", names))
        token = self.c.list_objects_v2(Bucket=b, StartAfter="bar", MaxKeys=1)["NextContinuationToken"]
        page = self.c.list_objects_v2(Bucket=b, StartAfter="bar", ContinuationToken=token)
        self.assertEqual((page["ContinuationToken"], page["StartAfter"], keys(page)), (token, "bar", ["foo", "quxx"]))
        other = self.bucket("x", "y")
        for where, bad in ((b, "garbage"), (b, token[:-1]), (b, token + "A"), (other, token)):
            self.fails(400, "InvalidArgument", self.c.list_objects_v2, Bucket=where, ContinuationToken=bad)

    def test_owners(self):
        b = self.bucket("foo/bar", "quux")
        self.assertIn("Owner", self.c.list_objects(Bucket=b)["Contents"][0])
        owner = self.c.list_objects_v2(Bucket=b, FetchOwner=True)["Contents"][0]["Owner"]
        self.assertRegex(owner["ID"], "^[0-9a-f]{64}$")
        self.assertEqual(owner["ID"], self.c.list_buckets()["Owner"]["ID"])
        self.assertNotEqual(owner["ID"], self.alt.list_buckets()["Owner"]["ID"])
        for kw in ({}, {"FetchOwner": False}):
            self.assertNotIn("Owner", self.c.list_objects_v2(Bucket=b, **kw)["Contents"][0])

    def test_what_an_entry_says(self):
        b = self.bucket("bar", "baz")
        for o in self.c.list_objects(Bucket=b)["Contents"]:
            head = self.c.head_object(Bucket=b, Key=o["Key"])
            self.assertEqual((o["ETag"], o["Size"], o["LastModified"]), (head["ETag"], head["ContentLength"], head["LastModified"]))
            self.assertEqual(o["StorageClass"], "STANDARD")
        self.c.put_object(Bucket=b, Key="sum", Body=b"x", ChecksumAlgorithm="SHA256")
        o = [o for o in self.c.list_objects_v2(Bucket=b)["Contents"] if o["Key"] == "sum"][0]
        self.assertEqual((o["ChecksumAlgorithm"], o["ChecksumType"]), (["SHA256"], "FULL_OBJECT"))

    def test_url_encoding(self):
        b = self.bucket("foo+1/bar", "foo/bar/xyzzy", "quux ab/thud", "asdf+b")
        for page in self.both(b, Delimiter="/", EncodingType="url"):
            self.assertEqual(page["EncodingType"], "url")
            self.assertEqual(page["Delimiter"], "/")
            self.assertEqual(keys(page), ["asdf%2Bb"])
            self.assertEqual(prefixes(page), ["foo%2B1/", "foo/", "quux%20ab/"])
        page = self.c.list_objects(Bucket=b, EncodingType="url", Marker="a b", Prefix="a+", Delimiter="%", MaxKeys=1)
        self.assertEqual((page["Marker"], page["Prefix"], page["Delimiter"]), ("a%20b", "a%2B", "%25"))
        self.assertEqual(self.raw("GET", f"/{b}?encoding-type=rot13").code(), "InvalidArgument")

    def test_keys_a_and_a_slash_b_live_side_by_side(self):
        names = ["/a", "a", "a/", "a/../b", "a/b", "a//b", "a\\b", "ä/ö", " ", "  ", "a\tb", "a\nb", "\x01", "<&>\"'", "." * 3, "../..", "%2F", "x" * 1024]
        names.sort(key=lambda k: k.encode())
        b = self.bucket(*names)
        self.assertEqual(keys(self.both(b)[0]), names)
        for k in names:
            self.assertEqual(self.body(b, k), k.encode())
        self.fails(400, "KeyTooLongError", self.c.put_object, Bucket=b, Key="x" * 1025, Body=b"")

    def test_special_names(self):
        names = [" ", '"', "$", "%", "&", "'", "<", ">", "_", "_ ", "_ _", "__"]
        b = self.bucket(*names)
        self.assertEqual(keys(self.both(b)[0]), names)
        b = self.bucket("_bla/1", "_bla/2", "_bla/3", "_bla/4", "abcd")
        self.assertEqual(len(keys(self.both(b, Prefix="_bla/")[0])), 4)

    def test_who_may_list(self):
        b = self.bucket("x")
        for call in (self.anonymous.list_objects, self.anonymous.list_objects_v2, self.alt.list_objects, self.alt.list_objects_v2):
            self.fails(403, "AccessDenied", call, Bucket=b)
        for call in (self.c.list_objects, self.c.list_objects_v2, self.c.list_object_versions, self.c.list_multipart_uploads):
            self.fails(404, "NoSuchBucket", call, Bucket=self.name())

    def test_a_thousand_and_one(self):
        b = self.bucket()
        self.c.put_object(Bucket=b, Key="k0000", Body=b"")
        for i in range(1, 1001):
            self.c.copy_object(Bucket=b, Key=f"k{i:04}", CopySource={"Bucket": b, "Key": "k0000"})
        self.assertEqual([len(p[0]) for p in self.pages(b, 1000)], [1000, 1])
        self.assertEqual(len(self.c.list_object_versions(Bucket=b)["Versions"]), 1000)
        objects = [{"Key": f"k{i:04}"} for i in range(1001)]
        self.fails(400, "MalformedXML", self.c.delete_objects, Bucket=b, Delete={"Objects": objects})
        self.assertEqual(len(self.c.delete_objects(Bucket=b, Delete={"Objects": objects[:1000]})["Deleted"]), 1000)
        self.assertEqual(keys(self.c.list_objects(Bucket=b)), ["k1000"])


assert unittest
if __name__ == "__main__":
    main()
