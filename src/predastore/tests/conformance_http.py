"""What the wire shows: presigned URLs, strangers, 100-continue, odd headers, forms of browsers."""
import base64
import datetime
import hashlib
import hmac
import json
import socket
import ssl
import urllib.parse

from s3lib import MIB, S3Test, main


class Wire(S3Test):
    def presigned(self, op, expires=1000, **params):
        url = self.c.generate_presigned_url(op, Params=params, ExpiresIn=expires)
        return url[len(self.store.endpoint):]

    def test_presigned(self):
        b = self.bucket("k")
        self.assertEqual(self.raw("GET", self.presigned("get_object", Bucket=b, Key="k"), sign=False).body, b"k")
        self.assertEqual(self.raw("PUT", self.presigned("put_object", Bucket=b, Key="new"), sign=False, body=b"x").status, 200)
        self.assertEqual(self.body(b, "new"), b"x")
        self.assertEqual(self.raw("DELETE", self.presigned("delete_object", Bucket=b, Key="new"), sign=False).status, 204)
        for expires in (0, -7, 609901):
            a = self.raw("GET", self.presigned("get_object", expires, Bucket=b, Key="k"), sign=False)
            self.assertIn(a.status, (400, 403), expires)
        a = self.raw("PUT", self.presigned("put_object", -1000, Bucket=b, Key="k"), sign=False, body=b"x")
        self.assertEqual((a.status, a.code()), (403, "AccessDenied"))
        self.assertEqual(self.raw("PUT", self.presigned("get_object", Bucket=b, Key="k"), sign=False, body=b"x").code(), "SignatureDoesNotMatch")
        self.assertEqual(self.body(b, "k"), b"k")

    def test_presigned_headers_are_part_of_it(self):
        b = self.bucket()
        path = self.presigned("put_object", Bucket=b, Key="k", ContentType="text/plain", Metadata={"a": "b"})
        a = self.raw("PUT", path, {"Content-Type": "text/plain", "x-amz-meta-a": "c"}, b"x", sign=False)
        self.assertEqual(a.status, 403)
        a = self.raw("PUT", path, {"Content-Type": "text/plain", "x-amz-meta-a": "b"}, b"x", sign=False)
        self.assertEqual(a.status, 200)
        self.assertEqual(self.c.head_object(Bucket=b, Key="k")["Metadata"], {"a": "b"})

    def test_strangers(self):
        b = self.bucket("k")
        for method, path in (("GET", f"/{b}"), ("GET", f"/{b}/k"), ("HEAD", f"/{b}/k"), ("PUT", f"/{b}/k"), ("DELETE", f"/{b}/k"), ("GET", "/"),
                             ("POST", f"/{b}?delete"), ("PUT", f"/{b}?versioning"), ("POST", f"/{b}/k?uploads")):
            a = self.raw(method, path, sign=False)
            self.assertEqual((a.status, a.code()), (403, None if method == "HEAD" else "AccessDenied"), (method, path))
        gone = self.name()
        for method in ("GET", "DELETE"):
            a = self.raw(method, f"/{gone}/k", sign=False)
            self.assertEqual((a.status, a.code()), (404, "NoSuchBucket"))
        for header in ({"Authorization": ""}, {"Authorization": "AWS HAHAHA"}, {"Authorization": "AWS4-HMAC-SHA256 Credential=x"}):
            a = self.raw("PUT", f"/{b}/k", header, b"x", sign=False)
            self.assertIn(a.status, (400, 403), header)
        for call in (self.alt.get_object, self.alt.put_object, self.alt.delete_object):
            self.fails(403, "AccessDenied", call, Bucket=b, Key="k")
        self.assertEqual(self.body(b, "k"), b"k")

    def test_keys_that_are_no_text(self):
        b = self.bucket()
        a = self.raw("GET", f"/{b}/%AE%8A-")
        self.assertEqual((a.status, a.code(), a.text("Message")), (400, "InvalidURI", "Couldn't parse the specified URI."))

    def test_odd_headers(self):
        b = self.bucket()
        for headers in ({"Content-Type": ""}, {"Content-Type": "text/plain"}, {"Expect": ""}, {"Expect": "200"}):
            self.assertEqual(self.raw("PUT", f"/{b}/k", headers, b"bar").status, 200, headers)
        self.assertEqual(self.raw("PUT", f"/{b}/k", {"Expect": "200, 100-continue"}, b"bar").status, 417)
        skew = {"X-Amz-Date": "20010101T000000Z"}
        a = self.raw("PUT", f"/{b}/other", {**self.signed("PUT", f"/{b}/other", {}, b"x"), **skew}, b"x", sign=False)
        self.assertIn(a.status, (400, 403))
        a = self.raw("PUT", f"/{b}/other", skew, b"x")
        self.assertEqual((a.status, a.code()), (403, "RequestTimeTooSkewed"))
        self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="other")
        c = self.connect()
        c.putrequest("PUT", f"/{b}/nolength")
        for k, v in self.signed("PUT", f"/{b}/nolength", {}, b"").items():
            if k != "Host":
                c.putheader(k, v)
        c.endheaders()
        r = c.getresponse()
        self.assertEqual((r.status, b"MissingContentLength" in r.read()), (411, True))
        c.close()

    def test_signed_by_date_alone(self):
        """Python's SDK drops X-Amz-Date when a caller gave a Date, and writes its own as in mail."""
        b, c = self.bucket(), self.store.client()
        c.meta.events.register("before-call.s3.PutObject", lambda params, **kw: params["headers"].update({"Date": "", "X-Amz-Date": ""}))
        c.put_object(Bucket=b, Key="k", Body=b"bar")
        self.assertEqual(self.body(b, "k"), b"bar")

    def test_expect_100_continue(self):
        b = self.bucket()
        host = urllib.parse.urlsplit(self.store.endpoint)

        def first_line(headers):
            s = socket.create_connection((host.hostname, host.port), timeout=10)
            if host.scheme == "https":
                context = ssl.create_default_context(cafile=self.store.ca or None)
                context.check_hostname = False
                if not self.store.ca:
                    context.verify_mode = ssl.CERT_NONE
                s = context.wrap_socket(s)
            text = f"PUT /{b}/k HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "Content-Length: 3\r\nExpect: 100-continue\r\n\r\n"
            s.sendall(text.encode())
            got = s.recv(4096)
            if got.startswith(b"HTTP/1.1 100"):
                s.sendall(b"bar")
                got += s.recv(4096)
            s.close()
            return got
        self.assertTrue(first_line({"Host": f"{host.hostname}:{host.port}"}).startswith(b"HTTP/1.1 403"))
        signed = self.signed("PUT", f"/{b}/k", {"Host": f"{host.hostname}:{host.port}"}, b"bar")
        got = first_line(signed)
        self.assertTrue(got.startswith(b"HTTP/1.1 100") and b"HTTP/1.1 200" in got, got)
        self.assertEqual(self.body(b, "k"), b"bar")


class Forms(S3Test):
    def post(self, b, fields, body=b"bar", filename="foo.txt", **headers):
        boundary = "----spxboundary7MA4YWxk"
        out = b""
        for k, v in fields:
            out += f'--{boundary}\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n'.encode() + (v if isinstance(v, bytes) else v.encode()) + b"\r\n"
        if body is not None:
            out += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\n\r\n'.encode() + body + b"\r\n"
        out += f"--{boundary}--\r\n".encode()
        return self.raw("POST", f"/{b}", {"Content-Type": f"multipart/form-data; boundary={boundary}", **headers}, out, sign=False)

    def policy(self, b, *more, expires=6000, key=("starts-with", "$key", "foo"), document=None):
        when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=expires)
        doc = document if document is not None else {"expiration": when.strftime("%Y-%m-%dT%H:%M:%SZ"), "conditions": [
            {"bucket": b}, list(key), {"acl": "private"}, ["starts-with", "$Content-Type", "text/plain"], ["content-length-range", 0, 1024], *more]}
        return base64.b64encode(json.dumps(doc).encode() if not isinstance(doc, bytes) else doc)

    def fields(self, policy, key="foo.txt", more=(), creds=None):
        access, secret, _ = creds or self.store.main
        signature = base64.b64encode(hmac.new(secret.encode(), policy, hashlib.sha1).digest())
        return [("key", key), ("AWSAccessKeyId", access), ("acl", "private"), ("signature", signature), ("policy", policy),
                ("Content-Type", "text/plain"), *more]

    def test_answers_to_scripts_of_other_origins(self):
        b = self.bucket()
        self.c.put_bucket_cors(Bucket=b, CORSConfiguration={"CORSRules": [{"AllowedMethods": ["POST"], "AllowedOrigins": ["https://page.example"]}]})
        for fields, status in ((self.fields(self.policy(b)), 204), (self.fields(self.policy(b), "bar.txt"), 403)):
            a = self.post(b, fields, Origin="https://page.example")
            self.assertEqual((a.status, a.headers.get("access-control-allow-origin")), (status, "https://page.example"))
            self.assertNotIn("access-control-allow-origin", self.post(b, fields, Origin="https://other.example").headers)

    def test_version_2(self):
        b = self.bucket()
        a = self.post(b, self.fields(self.policy(b)))
        self.assertEqual(a.status, 204)
        g = self.c.get_object(Bucket=b, Key="foo.txt")
        self.assertEqual((g["Body"].read(), g["ContentType"]), (b"bar", "text/plain"))
        self.assertEqual(self.post(b, self.fields(self.policy(b), "foo-${filename}"), filename="x.y").status, 204)
        self.assertEqual(self.body(b, "foo-x.y"), b"bar")
        self.assertEqual(self.post(b, self.fields(self.policy(b), more=[("x-ignore-foo", "bar")])).status, 204)
        self.assertEqual(self.post(b, [({"key": "kEy", "acl": "aCl", "policy": "pOLICy"}.get(k, k), v) for k, v in self.fields(self.policy(b))]).status, 204)
        many = self.policy(b, key=("StArTs-WiTh", "$KeY", "foo"))
        self.assertEqual(self.post(b, self.fields(many)).status, 204)
        dollar = self.policy(b, key=("starts-with", "$key", "\\$foo"))
        self.assertEqual(self.post(b, self.fields(dollar, "\\$foo.txt")).status, 204)
        self.assertEqual(self.body(b, "\\$foo.txt"), b"bar")

    def test_version_4(self):
        b = self.bucket()
        form = self.c.generate_presigned_post(b, "dir/${filename}", Fields={"x-amz-meta-a": "1", "success_action_status": "201"},
                                              Conditions=[["eq", "$x-amz-meta-a", "1"], ["eq", "$success_action_status", "201"],
                                                          ["content-length-range", 1, 10]])
        a = self.post(b, list(form["fields"].items()), b"1234567890", "a b")
        self.assertEqual((a.status, a.text("Bucket"), a.text("Key")), (201, b, "dir/a b"))
        self.assertEqual((a.text("Location"), a.headers["location"]), (f"{self.store.endpoint}/{b}/dir/a%20b",) * 2)
        self.assertEqual(self.c.head_object(Bucket=b, Key="dir/a b")["Metadata"], {"a": "1"})
        self.assertEqual((self.post(b, list(form["fields"].items()), b"12345678901").code()), "EntityTooLarge")
        self.assertEqual((self.post(b, list(form["fields"].items()), b"").code()), "EntityTooSmall")
        bad = dict(form["fields"], **{"x-amz-meta-a": "2"})
        self.assertEqual(self.post(b, list(bad.items())).status, 403)

    def test_what_success_says(self):
        b = self.bucket()
        for status, want in (("200", 200), ("201", 201), ("204", 204), ("404", 204), ("x", 204)):
            a = self.post(b, self.fields(self.policy(b, ["starts-with", "$success_action_status", ""]), more=[("success_action_status", status)]))
            self.assertEqual((a.status, bool(a.body)), (want, want == 201))
        to = "https://example.org/done?x=1"
        a = self.post(b, self.fields(self.policy(b, ["eq", "$success_action_redirect", to]), more=[("success_action_redirect", to)]))
        etag = hashlib.md5(b"bar").hexdigest()
        self.assertEqual((a.status, a.headers["location"]), (303, f"{to}&bucket={b}&key=foo.txt&etag=%22{etag}%22"))

    def test_metadata_tags_and_large_bodies(self):
        b = self.bucket()
        xml = "<Tagging><TagSet><Tag><Key>0</Key><Value>1</Value></Tag></TagSet></Tagging>"
        policy = self.policy(b, ["starts-with", "$x-amz-meta-foo", "bar"], ["starts-with", "$tagging", ""])
        self.assertEqual(self.post(b, self.fields(policy, more=[("x-amz-meta-foo", "barclamp"), ("tagging", xml)])).status, 204)
        self.assertEqual(self.c.head_object(Bucket=b, Key="foo.txt")["Metadata"], {"foo": "barclamp"})
        self.assertEqual(self.c.get_object_tagging(Bucket=b, Key="foo.txt")["TagSet"], [{"Key": "0", "Value": "1"}])
        doc = json.loads(base64.b64decode(self.policy(b)))
        doc["conditions"][-1] = ["content-length-range", 0, 5 * MIB]
        body = b"foo" * MIB
        self.assertEqual(self.post(b, self.fields(self.policy(b, document=doc)), body).status, 204)
        self.assertEqual(hashlib.md5(self.body(b, "foo.txt")).digest(), hashlib.md5(body).digest())

    def test_a_refusal_reaches_who_is_still_sending(self):
        b = self.bucket()
        for policy, fields in ((self.policy(b), [("x-amz-checksum-sha256", "sailor")]), (self.policy(b, expires=-5), [])):
            a = self.post(b, self.fields(policy, more=fields), b"x" * (6 * MIB))
            self.assertIn((a.status, a.code()), ((400, "InvalidRequest"), (400, "EntityTooLarge"), (403, "AccessDenied")))
        self.fails(404, "NoSuchKey", self.c.get_object, Bucket=b, Key="foo.txt")

    def test_checksums_need_no_condition(self):
        b = self.bucket()
        good = base64.b64encode(hashlib.sha256(b"bar").digest()).decode()
        self.assertEqual(self.post(b, self.fields(self.policy(b), more=[("x-amz-checksum-sha256", good)])).status, 204)
        self.assertEqual(self.post(b, self.fields(self.policy(b), more=[("x-amz-checksum-sha256", good)]), b"baz").status, 400)
        self.assertEqual(self.body(b, "foo.txt"), b"bar")

    def test_checksums(self):
        b = self.bucket()
        policy = self.policy(b, ["starts-with", "$x-amz-checksum-sha256", ""])
        good = base64.b64encode(hashlib.sha256(b"bar").digest()).decode()
        a = self.post(b, self.fields(policy, more=[("x-amz-checksum-sha256", good)]))
        self.assertEqual((a.status, a.headers.get("x-amz-checksum-sha256")), (204, good))
        self.assertEqual(self.c.head_object(Bucket=b, Key="foo.txt", ChecksumMode="ENABLED")["ChecksumSHA256"], good)
        bad = base64.b64encode(hashlib.sha256(b"baz").digest()).decode()
        a = self.post(b, self.fields(policy, more=[("x-amz-checksum-sha256", bad)]), b"qux")
        self.assertEqual((a.status, a.code()), (400, "BadDigest"))
        self.assertEqual(self.body(b, "foo.txt"), b"bar")

    def test_refused(self):
        b = self.bucket()
        good = self.policy(b)
        doc = json.loads(base64.b64decode(good))

        def without(name):
            return [f for f in self.fields(good) if f[0] != name]

        def odd(**kw):
            return self.fields(self.policy(b, document={k: v for k, v in {**doc, **kw}.items() if v is not None}))
        cases = [(403, self.fields(good, creds=("foo", self.store.main[1], ""))), (403, self.fields(good, creds=(self.store.main[0], "x", ""))),
                 (403, self.fields(good, "bar.txt")), (403, self.fields(self.policy(b, expires=-10))),
                 (403, self.fields(self.policy(b, {"x-amz-meta-foo": "bar"}))),  # a condition that nothing meets
                 (403, self.fields(good, more=[("x-amz-meta-foo", "bar")])),  # a field that no condition allows
                 (400, without("key")), (400, without("signature")), (400, without("policy")),
                 (400, odd(expiration="soon")), (400, odd(expiration=None)), (400, odd(conditions=None)), (400, odd(conditions=[{}])),
                 (400, odd(conditions=doc["conditions"][:-1] + [["content-length-range", -1, 0]])),
                 (400, odd(conditions=doc["conditions"][:-1] + [["content-length-range", 0]])),
                 (400, odd(conditions=doc["conditions"][:-1] + [["content-length-range", 512, 1000]])),  # too small
                 (400, odd(conditions=doc["conditions"][:-1] + [["content-length-range", 0, 1]])),  # too large
                 (400, self.fields(self.policy(b, document=b"{")))]
        for i, (status, fields) in enumerate(cases):
            a = self.post(b, fields)
            self.assertEqual(a.status, status, f"case {i}: {a.body}")
        self.assertEqual(self.post(b, self.fields(good), body=None).status, 400)
        self.assertNotIn("Contents", self.c.list_objects(Bucket=b))


if __name__ == "__main__":
    main()
