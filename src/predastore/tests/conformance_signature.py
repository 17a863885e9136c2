"""Signature Version 2: headers and presigned URLs."""
from s3lib import S3Test, main


class Old(S3Test):
    def test_old_signatures(self):
        """What SDKs sign in regions of before 2014 unless told otherwise: presigned URLs above all."""
        b, old = self.bucket("list/a"), self.store.client(signature_version="s3")
        old.put_object(Bucket=b, Key="a b+\u00fc", Body=b"hello", Metadata={"m": "v"})
        self.assertEqual(old.get_object(Bucket=b, Key="a b+\u00fc", VersionId="null")["Body"].read(), b"hello")
        self.assertEqual([o["Key"] for o in old.list_objects_v2(Bucket=b, Prefix="list/")["Contents"]], ["list/a"])
        u = old.create_multipart_upload(Bucket=b, Key="m")["UploadId"]
        part = {"PartNumber": 1, "ETag": old.upload_part(Bucket=b, Key="m", UploadId=u, PartNumber=1, Body=b"x")["ETag"]}
        old.complete_multipart_upload(Bucket=b, Key="m", UploadId=u, MultipartUpload={"Parts": [part]})

        def url(op, expires=100, **params):
            return old.generate_presigned_url(op, Params=params, ExpiresIn=expires)[len(self.store.endpoint):]
        get = url("get_object", Bucket=b, Key="a b+\u00fc", ResponseContentType="text/plain; x=y")
        a = self.raw("GET", get, sign=False)
        self.assertEqual((a.status, a.body, a.headers["content-type"]), (200, b"hello", "text/plain; x=y"))
        put = url("put_object", Bucket=b, Key="p", ContentType="text/x", Metadata={"q": "1"})
        self.assertEqual(self.raw("PUT", put, {"Content-Type": "text/x"}, b"yo", sign=False).status, 200)
        h = self.c.head_object(Bucket=b, Key="p")
        self.assertEqual((h["Metadata"], h["ContentType"]), ({"q": "1"}, "text/x"))
        for method, path, headers in (("GET", get + "&tagging", {}), ("GET", get + "&attributes", {}), ("DELETE", get, {}), ("GET", get.replace("text", "test"), {}),
                                      ("PUT", put, {"Content-Type": "text/y"}), ("PUT", put, {"Content-Type": "text/x", "x-amz-meta-z": "1"}),
                                      ("GET", url("get_object", -5, Bucket=b, Key="p"), {})):
            self.assertEqual(self.raw(method, path, headers, sign=False).status, 403, path)
        self.fails(403, "AccessDenied", self.store.client(self.store.alt, signature_version="s3").get_object, Bucket=b, Key="p")


if __name__ == "__main__":
    main()
