"""The EBS direct APIs through the real gateway, block service and object store: snapshots are written block by block, read, compared, and copied as
coldsnap does it.

Right values come from the EBS API reference and the EBS user guide (blocks of 512 KiB, SHA-256 in base64, LINEAR aggregation).
"""
import base64
import concurrent.futures
import hashlib
import os
import sys
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from cloud import Cloud, wait_for  # noqa: E402

from botocore.exceptions import ClientError, ParamValidationError  # noqa: E402,F401
import botocore.auth  # noqa: E402
import botocore.awsrequest  # noqa: E402
import botocore.config  # noqa: E402
import botocore.credentials  # noqa: E402
import http.client  # noqa: E402
import ssl  # noqa: E402

BLOCK = 512 * 1024
WAIT = {"Delay": 0.2, "MaxAttempts": 300}
cloud = None


def setUpModule():
    global cloud
    cloud = Cloud()
    try:
        cloud.init()
        cloud.only("state", "predastore", "awsgw", "viperblock")
        cloud.start("state", "predastore", "awsgw", "viperblock")
    except BaseException:
        cloud.close()
        raise


def tearDownModule():
    reports = cloud.sanitizer_reports()
    cloud.close()
    assert not reports, "\n".join(reports)


def sum_of(data):
    return base64.b64encode(hashlib.sha256(data).digest()).decode()


def linear(blocks):
    """The SHA-256 of the SHA-256 of blocks in ascending order."""
    return base64.b64encode(hashlib.sha256(b"".join(hashlib.sha256(blocks[i]).digest() for i in sorted(blocks))).digest()).decode()


def data_of(n):
    return (n.to_bytes(8, "big") * (BLOCK // 8))


def error_of(call, **kw):
    try:
        call(**kw)
    except ClientError as e:
        return e.response["Error"]["Code"], e.response.get("Reason"), e.response["ResponseMetadata"]["HTTPStatusCode"]
    return "no error", None, 200


class Base(unittest.TestCase):
    def setUp(self):
        # The server's word is wanted, not the client's.
        cfg = botocore.config.Config(parameter_validation=False)
        self.ebs, self.other = cloud.client("ebs"), cloud.client("ebs", "two")
        self.raw = cloud.client("ebs", config=cfg)
        # As SDKs are made: a 503 of a machine that is busy, or of a service that just came back, is tried again.
        self.patient = cloud.client("ebs", config=botocore.config.Config(retries={"max_attempts": 8, "mode": "standard"}))
        self.ec2 = cloud.client("ec2")

    def drop(self, snapshot):
        try:
            self.ec2.delete_snapshot(SnapshotId=snapshot)
        except ClientError:
            pass

    def start(self, size=1, **kw):
        s = self.ebs.start_snapshot(VolumeSize=size, **kw)
        self.addCleanup(self.drop, s["SnapshotId"])
        return s["SnapshotId"]

    def put(self, snapshot, index, data, ebs=None, **kw):
        args = dict(SnapshotId=snapshot, BlockIndex=index, BlockData=data, DataLength=len(data), Checksum=sum_of(data), ChecksumAlgorithm="SHA256")
        args.update(kw)
        return (ebs or self.ebs).put_snapshot_block(**args)

    def complete(self, snapshot, blocks, **kw):
        self.ebs.complete_snapshot(SnapshotId=snapshot, ChangedBlocksCount=len(blocks), **kw)
        self.ec2.get_waiter("snapshot_completed").wait(SnapshotIds=[snapshot], WaiterConfig=WAIT)

    def make(self, blocks, size=1, **kw):
        s = self.start(size, **kw)
        for i, data in blocks.items():
            self.put(s, i, data, ebs=self.patient)
        self.complete(s, blocks, Checksum=linear(blocks), ChecksumAlgorithm="SHA256", ChecksumAggregationMethod="LINEAR")
        return s

    def blocks(self, snapshot, ebs=None, **kw):
        out, token = {}, None
        while True:
            page = (ebs or self.ebs).list_snapshot_blocks(SnapshotId=snapshot, **kw, **({"NextToken": token} if token else {}))
            out.update({b["BlockIndex"]: b["BlockToken"] for b in page["Blocks"]})
            token = page.get("NextToken")
            if not token:
                return out

    def read(self, snapshot, index, token, ebs=None):
        r = (ebs or self.ebs).get_snapshot_block(SnapshotId=snapshot, BlockIndex=index, BlockToken=token)
        data = r["BlockData"].read()
        self.assertEqual(r["DataLength"], BLOCK)
        self.assertEqual(r["ChecksumAlgorithm"], "SHA256")
        self.assertEqual(r["Checksum"], sum_of(data))
        return data

    def content(self, snapshot):
        return {i: self.read(snapshot, i, t) for i, t in self.blocks(snapshot).items()}


class Write(Base):
    def test_write_and_read(self):
        s = self.ebs.start_snapshot(VolumeSize=2, Description="from a file", Tags=[{"Key": "Name", "Value": "x"}], Timeout=30)
        self.addCleanup(self.drop, s["SnapshotId"])
        self.assertEqual((s["Status"], s["VolumeSize"], s["BlockSize"], s["OwnerId"]), ("pending", 2, BLOCK, cloud.account("one")[2]))
        self.assertEqual((s["Description"], s["Tags"], s["SseType"]), ("from a file", [{"Key": "Name", "Value": "x"}], "none"))
        self.assertNotIn("ParentSnapshotId", s)
        want = {0: data_of(1), 7: os.urandom(BLOCK), 4095: data_of(3)}
        for i, data in want.items():
            r = self.put(s["SnapshotId"], i, data)
            self.assertEqual((r["Checksum"], r["ChecksumAlgorithm"]), (sum_of(data), "SHA256"))
            self.assertEqual(r["ResponseMetadata"]["HTTPStatusCode"], 201)
        r = self.ebs.complete_snapshot(SnapshotId=s["SnapshotId"], ChangedBlocksCount=3, Checksum=linear(want), ChecksumAlgorithm="SHA256",
                                       ChecksumAggregationMethod="LINEAR")
        self.assertIn(r["Status"], ("pending", "completed"))
        self.assertEqual(r["ResponseMetadata"]["HTTPStatusCode"], 202)
        self.ec2.get_waiter("snapshot_completed").wait(SnapshotIds=[s["SnapshotId"]], WaiterConfig=WAIT)
        self.assertEqual(self.content(s["SnapshotId"]), want)
        page = self.ebs.list_snapshot_blocks(SnapshotId=s["SnapshotId"])
        self.assertEqual((page["VolumeSize"], page["BlockSize"]), (2, BLOCK))
        self.assertGreater(page["ExpiryTime"].timestamp(), time.time() + 6 * 86400)
        shown = self.ec2.describe_snapshots(SnapshotIds=[s["SnapshotId"]])["Snapshots"][0]
        self.assertEqual((shown["VolumeSize"], shown["Description"], shown["State"], shown["Encrypted"]), (2, "from a file", "completed", False))
        self.assertEqual(shown["Tags"], [{"Key": "Name", "Value": "x"}])

    def test_the_last_put_of_a_block_counts(self):
        s = self.start()
        self.put(s, 3, data_of(1))
        self.put(s, 3, data_of(2))
        self.complete(s, {3: 0}, Checksum=linear({3: data_of(2)}), ChecksumAlgorithm="SHA256", ChecksumAggregationMethod="LINEAR")
        self.assertEqual(self.content(s), {3: data_of(2)})

    def test_many_at_once(self):
        s = self.start()
        want = {i: data_of(i % 7 + 1) for i in range(64)}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: self.put(s, i, want[i]), want))
        self.complete(s, want, Checksum=linear(want), ChecksumAlgorithm="SHA256", ChecksumAggregationMethod="LINEAR")
        self.assertEqual(self.content(s), want)

    def test_encrypted(self):
        s = self.ebs.start_snapshot(VolumeSize=1, Encrypted=True)
        self.addCleanup(self.drop, s["SnapshotId"])
        self.assertEqual(s["SseType"], "sse-kms")
        self.assertIn(":kms:", s["KmsKeyArn"])
        want = {5: data_of(9)}
        self.put(s["SnapshotId"], 5, want[5])
        self.complete(s["SnapshotId"], want, Checksum=linear(want), ChecksumAlgorithm="SHA256", ChecksumAggregationMethod="LINEAR")
        self.assertEqual(self.content(s["SnapshotId"]), want)
        self.assertTrue(self.ec2.describe_snapshots(SnapshotIds=[s["SnapshotId"]])["Snapshots"][0]["Encrypted"])
        child = self.ebs.start_snapshot(VolumeSize=1, ParentSnapshotId=s["SnapshotId"])
        self.addCleanup(self.drop, child["SnapshotId"])
        self.assertEqual(child["KmsKeyArn"], s["KmsKeyArn"])

    def test_client_token(self):
        a = self.ebs.start_snapshot(VolumeSize=1, ClientToken="t" * 200, Description="x")
        self.addCleanup(self.drop, a["SnapshotId"])
        b = self.ebs.start_snapshot(VolumeSize=1, ClientToken="t" * 200, Description="x")
        self.assertEqual(a["SnapshotId"], b["SnapshotId"])
        self.assertEqual(error_of(self.ebs.start_snapshot, VolumeSize=2, ClientToken="t" * 200, Description="x")[::2], ("ConflictException", 409))
        c = self.other.start_snapshot(VolumeSize=1, ClientToken="t" * 200, Description="x")
        self.assertNotEqual(a["SnapshotId"], c["SnapshotId"])
        cloud.client("ec2", "two").delete_snapshot(SnapshotId=c["SnapshotId"])

    def test_wrong_count_or_checksum_fails_the_snapshot(self):
        for kw in (dict(ChangedBlocksCount=2),
                   dict(ChangedBlocksCount=1, Checksum=linear({0: data_of(2)}), ChecksumAlgorithm="SHA256", ChecksumAggregationMethod="LINEAR")):
            with self.subTest(kw=kw):
                s = self.start()
                self.put(s, 0, data_of(1))
                self.assertEqual(error_of(self.ebs.complete_snapshot, SnapshotId=s, **kw)[::2], ("ValidationException", 400))
                self.assertEqual(self.ec2.describe_snapshots(SnapshotIds=[s])["Snapshots"][0]["State"], "error")
                self.assertEqual(error_of(self.put, snapshot=s, index=0, data=data_of(1))[0], "ValidationException")

    def test_refusals(self):
        s, good = self.start(), data_of(1)
        gone = "snap-0123456789abcdef0"
        put = dict(SnapshotId=s, BlockIndex=0, BlockData=good, DataLength=BLOCK, Checksum=sum_of(good), ChecksumAlgorithm="SHA256")
        cases = [
            (self.raw.start_snapshot, dict(), "ValidationException", "INVALID_PARAMETER_VALUE"),
            (self.raw.start_snapshot, dict(VolumeSize=0), "ValidationException", "INVALID_PARAMETER_VALUE"),
            (self.raw.start_snapshot, dict(VolumeSize=65537), "ValidationException", "INVALID_VOLUME_SIZE"),
            (self.raw.start_snapshot, dict(VolumeSize="x"), "SerializationException", None),
            (self.raw.start_snapshot, dict(VolumeSize=1, Timeout=9), "ValidationException", "INVALID_PARAMETER_VALUE"),
            (self.raw.start_snapshot, dict(VolumeSize=1, Timeout=4321), "ValidationException", "INVALID_PARAMETER_VALUE"),
            (self.raw.start_snapshot, dict(VolumeSize=1, ParentSnapshotId=gone), "ResourceNotFoundException", "SNAPSHOT_NOT_FOUND"),
            (self.raw.start_snapshot, dict(VolumeSize=1, ParentSnapshotId=s), "ValidationException", "INVALID_SNAPSHOT_ID"),  # pending
            (self.raw.start_snapshot, dict(VolumeSize=1, KmsKeyArn="arn:aws:kms:r:123456789012:key/x"), "ValidationException", None),
            (self.raw.start_snapshot, dict(VolumeSize=1, Encrypted=True, KmsKeyArn="arn:aws:kms:r:123456789012:key/x"), "ValidationException",
             "INVALID_CUSTOMER_KEY"),
            (self.raw.start_snapshot, dict(VolumeSize=1, Tags=[{"Key": "aws:x", "Value": ""}]), "ValidationException", "INVALID_TAG"),
            (self.raw.put_snapshot_block, dict(put, Checksum=sum_of(b"x")), "ValidationException", "INVALID_PARAMETER_VALUE"),
            (self.raw.put_snapshot_block, dict(put, ChecksumAlgorithm="MD5"), "ValidationException", "INVALID_PARAMETER_VALUE"),
            (self.raw.put_snapshot_block, dict(put, DataLength=BLOCK - 1), "ValidationException", "INVALID_PARAMETER_VALUE"),
            (self.raw.put_snapshot_block, dict(put, BlockData=good[:-1], DataLength=BLOCK - 1, Checksum=sum_of(good[:-1])), "ValidationException",
             "INVALID_PARAMETER_VALUE"),
            (self.raw.put_snapshot_block, dict(put, BlockIndex=2048), "ValidationException", "INVALID_BLOCK"),
            (self.raw.put_snapshot_block, dict(put, SnapshotId=gone), "ResourceNotFoundException", "SNAPSHOT_NOT_FOUND"),
            (self.raw.put_snapshot_block, dict(put, Progress=101), "ValidationException", "INVALID_PARAMETER_VALUE"),
            (self.raw.complete_snapshot, dict(SnapshotId=gone, ChangedBlocksCount=0), "ResourceNotFoundException", "SNAPSHOT_NOT_FOUND"),
            (self.raw.complete_snapshot, dict(SnapshotId=s, ChangedBlocksCount=0, Checksum=sum_of(b"")), "ValidationException", None),
            (self.raw.complete_snapshot, dict(SnapshotId=s, ChangedBlocksCount=-1), "ValidationException", "INVALID_PARAMETER_VALUE"),
            (self.raw.list_snapshot_blocks, dict(SnapshotId=s), "ValidationException", "INVALID_SNAPSHOT_ID"),  # pending
            (self.raw.list_snapshot_blocks, dict(SnapshotId=gone), "ResourceNotFoundException", "SNAPSHOT_NOT_FOUND"),
            (self.raw.list_snapshot_blocks, dict(SnapshotId="vol-1"), "ValidationException", None),
            (self.raw.list_snapshot_blocks, dict(SnapshotId=gone, MaxResults=99), "ValidationException", None),
            (self.raw.list_snapshot_blocks, dict(SnapshotId=gone, MaxResults=10001), "ValidationException", None),
            (self.other.list_snapshot_blocks, dict(SnapshotId=s), "ResourceNotFoundException", "SNAPSHOT_NOT_FOUND"),
            (self.other.put_snapshot_block, put, "ResourceNotFoundException", "SNAPSHOT_NOT_FOUND"),
            (self.other.complete_snapshot, dict(SnapshotId=s, ChangedBlocksCount=0), "ResourceNotFoundException", "SNAPSHOT_NOT_FOUND"),
        ]
        for call, kw, code, reason in cases:
            shown = {k: v for k, v in kw.items() if k != "BlockData"}
            with self.subTest(call=call.__name__, kw=shown):
                got = error_of(call, **kw)
                self.assertEqual(got[0], code)
                self.assertEqual(got[2], 404 if code.startswith("ResourceNot") else 400)
                if reason:
                    self.assertEqual(got[1], reason)
        # Nothing of it was taken.
        self.complete(s, {})
        self.assertEqual(self.blocks(s), {})

    def test_complete_twice(self):
        s = self.make({1: data_of(1)})
        kw = dict(ChangedBlocksCount=1, Checksum=linear({1: data_of(1)}), ChecksumAlgorithm="SHA256", ChecksumAggregationMethod="LINEAR")
        self.assertEqual(self.ebs.complete_snapshot(SnapshotId=s, **kw)["Status"], "completed")
        self.assertEqual(error_of(self.ebs.complete_snapshot, SnapshotId=s, ChangedBlocksCount=2)[0], "ValidationException")
        self.assertEqual(error_of(self.put, snapshot=s, index=1, data=data_of(1))[0], "ValidationException")


class Read(Base):
    def test_parent_and_changes(self):
        a = self.make({0: data_of(1), 1: data_of(2), 2: data_of(3)})
        changes = {1: data_of(20), 9: data_of(4), 2: bytes(BLOCK)}
        s = self.start(2, ParentSnapshotId=a)
        for i, d in changes.items():
            self.put(s, i, d)
        self.complete(s, changes, Checksum=linear(changes), ChecksumAlgorithm="SHA256", ChecksumAggregationMethod="LINEAR")
        self.assertEqual(self.content(s), {0: data_of(1), 1: data_of(20), 9: data_of(4)})
        self.ec2.delete_snapshot  # (the parent may go: below)
        r = self.ebs.list_changed_blocks(FirstSnapshotId=a, SecondSnapshotId=s)
        got = {b["BlockIndex"]: b for b in r["ChangedBlocks"]}
        self.assertEqual(sorted(got), [1, 2, 9])
        self.assertEqual((r["VolumeSize"], r["BlockSize"]), (2, BLOCK))
        self.assertEqual(self.read(a, 1, got[1]["FirstBlockToken"]), data_of(2))
        self.assertEqual(self.read(s, 1, got[1]["SecondBlockToken"]), data_of(20))
        self.assertNotIn("SecondBlockToken", got[2])
        self.assertNotIn("FirstBlockToken", got[9])
        # Without a first snapshot: all there is.
        r = self.ebs.list_changed_blocks(SecondSnapshotId=s)
        self.assertEqual([b["BlockIndex"] for b in r["ChangedBlocks"]], [0, 1, 9])
        self.assertTrue(all("FirstBlockToken" not in b for b in r["ChangedBlocks"]))
        self.ec2.delete_snapshot(SnapshotId=a)
        wait_for("gone", lambda: error_of(self.ebs.list_snapshot_blocks, SnapshotId=a)[0] == "ResourceNotFoundException")
        self.assertEqual(self.content(s), {0: data_of(1), 1: data_of(20), 9: data_of(4)})

    def test_unrelated(self):
        a, b = self.make({0: data_of(1)}), self.make({0: data_of(2)})
        self.assertEqual(error_of(self.ebs.list_changed_blocks, FirstSnapshotId=a, SecondSnapshotId=b)[:2],
                         ("ValidationException", "UNRELATED_SNAPSHOTS"))

    def test_pages(self):
        s = self.start()
        want = list(range(0, 500, 2))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: self.put(s, i, data_of(5)), want))
        self.complete(s, want)
        first = self.ebs.list_snapshot_blocks(SnapshotId=s, MaxResults=100)
        self.assertEqual([b["BlockIndex"] for b in first["Blocks"]], want[:100])
        second = self.ebs.list_snapshot_blocks(SnapshotId=s, MaxResults=100, NextToken=first["NextToken"])
        self.assertEqual([b["BlockIndex"] for b in second["Blocks"]], want[100:200])
        third = self.ebs.list_snapshot_blocks(SnapshotId=s, MaxResults=100, NextToken=second["NextToken"])
        self.assertEqual([b["BlockIndex"] for b in third["Blocks"]], want[200:])
        self.assertNotIn("NextToken", third)
        self.assertEqual(sorted(self.blocks(s, StartingBlockIndex=401)), [i for i in want if i > 401])
        # A token is for its list alone, whole, and for whom it was given.
        token = first["NextToken"]
        other = self.make({0: data_of(1)})
        bad = [(self.ebs.list_snapshot_blocks, dict(SnapshotId=s, NextToken="AAAA")),
               (self.ebs.list_snapshot_blocks, dict(SnapshotId=s, NextToken=("B" if token[0] != "B" else "C") + token[1:])),
               (self.ebs.list_snapshot_blocks, dict(SnapshotId=other, NextToken=token)),
               (self.ebs.list_changed_blocks, dict(SecondSnapshotId=s, NextToken=token)),
               (self.ebs.list_snapshot_blocks, dict(SnapshotId=s, NextToken=first["Blocks"][0]["BlockToken"]))]
        for call, kw in bad:
            with self.subTest(kw=kw):
                self.assertEqual(error_of(call, **kw)[:2], ("ValidationException", "INVALID_PAGE_TOKEN"))

    def test_tokens_of_blocks(self):
        s, other = self.make({0: data_of(1), 1: data_of(2)}), self.make({0: data_of(1)})
        tokens = self.blocks(s)
        flip = lambda t, i: t[:i] + ("A" if t[i] != "A" else "B") + t[i + 1:]  # noqa: E731
        bad = [(s, 1, tokens[0]), (other, 0, tokens[0]), (s, 2, tokens[0]), (s, 0, "AAAA"), (s, 0, flip(tokens[0], 3)), (s, 0, flip(tokens[0], 40)),
               (s, 0, self.ebs.list_snapshot_blocks(SnapshotId=s)["Blocks"][1]["BlockToken"])]
        for snap, i, token in bad:
            with self.subTest(snap=snap, i=i, token=token):
                self.assertEqual(error_of(self.ebs.get_snapshot_block, SnapshotId=snap, BlockIndex=i, BlockToken=token)[:2],
                                 ("ValidationException", "INVALID_BLOCK_TOKEN"))
        self.assertEqual(self.read(s, 0, tokens[0]), data_of(1))

    def test_shared(self):
        s = self.make({4: data_of(8)})
        self.assertEqual(error_of(self.other.list_snapshot_blocks, SnapshotId=s)[0], "ResourceNotFoundException")
        self.ec2.modify_snapshot_attribute(SnapshotId=s, Attribute="createVolumePermission", OperationType="add", UserIds=[cloud.account("two")[2]])
        mine, theirs = self.blocks(s), self.blocks(s, self.other)
        self.assertEqual(self.read(s, 4, theirs[4], self.other), data_of(8))
        # A token is the account's that asked for it.
        self.assertEqual(error_of(self.other.get_snapshot_block, SnapshotId=s, BlockIndex=4, BlockToken=mine[4])[1], "INVALID_BLOCK_TOKEN")
        self.assertEqual(error_of(self.other.put_snapshot_block, SnapshotId=s, BlockIndex=4, BlockData=data_of(1), DataLength=BLOCK,
                                  Checksum=sum_of(data_of(1)), ChecksumAlgorithm="SHA256")[0], "AccessDeniedException")

    def test_walk_as_coldsnap(self):
        """Download: list, read each block into a sparse file. Upload: start, put what is not zeros, complete with the count alone."""
        want = {0: data_of(1), 3: os.urandom(BLOCK), 2047: data_of(2)}
        s = self.make(want)
        image = bytearray(1 << 30)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for i, data in pool.map(lambda it: (it[0], self.read(s, *it)), self.blocks(s).items()):
                image[i * BLOCK:(i + 1) * BLOCK] = data
        self.ec2.delete_snapshot(SnapshotId=s)
        up = self.start(1, Description="coldsnap")
        n = 0
        for i in range(0, 2048):
            piece = bytes(image[i * BLOCK:(i + 1) * BLOCK])
            if piece.count(0) != BLOCK:
                self.put(up, i, piece)
                n += 1
        self.complete(up, range(n))
        self.assertEqual(self.content(up), want)


class Wire(Base):
    """What no SDK sends."""

    def send(self, method, path, body=b"", headers=None, payload=None, account="one", service="ebs"):
        key, secret, _ = cloud.account(account)
        h = dict(headers or {})
        if payload:
            h["X-Amz-Content-SHA256"] = payload
        rq = botocore.awsrequest.AWSRequest(method=method, url=f"https://127.0.0.1:{cloud.port}{path}", data=body, headers=h)
        botocore.auth.SigV4Auth(botocore.credentials.Credentials(key, secret), service, "ap-southeast-2").add_auth(rq)
        c = http.client.HTTPSConnection("127.0.0.1", cloud.port, context=ssl.create_default_context(cafile=cloud.ca))
        c.request(method, path, body, dict(rq.headers.items()))
        r = c.getresponse()
        data = r.read()
        c.close()
        return r.status, r.getheader("x-amzn-ErrorType"), r.getheader("Content-Type"), data

    def test_paths(self):
        for method, path in (("GET", "/"), ("GET", "/snapshots"), ("PUT", "/snapshots/x"), ("GET", "/snapshots/snap-1/blocks/"), ("GET", "/snapshots//blocks"),
                             ("GET", "/snapshots/snap-1/blocks/1/2"), ("DELETE", "/snapshots/snap-1/blocks/1"), ("POST", "/snapshots/completion")):
            with self.subTest(path=path):
                self.assertEqual(self.send(method, path)[:2], (404, "UnknownOperationException"))

    def test_json_that_is_none(self):
        for body in (b"{", b"[]", b"1", b"\xff", b'{"VolumeSize": 1.5}', b'{"VolumeSize": {}}', b'{"VolumeSize": 1, "Tags": {}}', b'{"VolumeSize": 1, "Tags": [1]}',
                     b'{"VolumeSize": 1, "Description": 1}', b'{"VolumeSize": 1, "Encrypted": "yes"}', b'{"VolumeSize": 99999999999999999999999}'):
            with self.subTest(body=body):
                self.assertEqual(self.send("POST", "/snapshots", body)[:3], (400, "SerializationException", "application/json"))

    def test_numbers_in_paths(self):
        for text in ("x", "-1", "99999999999", "1.0", "%31x"):
            with self.subTest(text=text):
                got = self.send("GET", f"/snapshots/snap-0123456789abcdef0/blocks/{text}?blockToken=AAAA")
                self.assertEqual(got[:2], (400, "ValidationException"))

    def test_signatures(self):
        s, data = self.start(), data_of(3)
        path = f"/snapshots/{s}/blocks/0"
        head = {"x-amz-Data-Length": str(BLOCK), "x-amz-Checksum": sum_of(data), "x-amz-Checksum-Algorithm": "SHA256"}
        # Bodies of blocks may be signed, or not: then the checksum is what is signed.
        self.assertEqual(self.send("PUT", path, data, head)[0], 201)
        self.assertEqual(self.send("PUT", path, data, head, payload="UNSIGNED-PAYLOAD")[0], 201)
        self.assertEqual(self.send("PUT", path, data, head, payload="0" * 64)[:2], (403, "InvalidSignatureException"))
        # Other bodies must be.
        self.assertEqual(self.send("POST", "/snapshots", b'{"VolumeSize": 1}', payload="UNSIGNED-PAYLOAD")[:2], (403, "InvalidSignatureException"))
        key, secret, account = cloud.account("one")
        cloud.keys["bad"] = (key, "x" + secret[1:], account)
        self.assertEqual(self.send("PUT", path, data, head, account="bad")[:2], (403, "InvalidSignatureException"))
        cloud.keys["bad"] = ("AKIAIOSFODNN7EXAMPLE", secret, account)
        self.assertEqual(self.send("PUT", path, data, head, account="bad")[:2], (403, "UnrecognizedClientException"))
        del cloud.keys["bad"]
        self.complete(s, {0: data})
        self.assertEqual(self.content(s), {0: data})

    def test_large_bodies(self):
        s = self.start()
        head = {"x-amz-Data-Length": str(BLOCK), "x-amz-Checksum": sum_of(b""), "x-amz-Checksum-Algorithm": "SHA256"}
        self.assertIn(self.send("PUT", f"/snapshots/{s}/blocks/0", bytes((1 << 20) + 1), head)[0], (400, 413))

    def test_encoded_labels(self):
        s = self.make({0: data_of(1)})
        path = "/snapshots/" + urllib.parse.quote("".join(f"%{ord(c):02x}" for c in s), safe="%") + "/blocks"
        self.assertEqual(self.send("GET", path)[0], 200)


class Away(Base):
    def test_services_killed_under_an_upload(self):
        want = {i: data_of(i + 1) for i in range(6)}
        s = self.start()
        for i in (0, 1):
            self.put(s, i, want[i])
        cloud.kill9("viperblock")
        self.assertEqual(error_of(self.put, snapshot=s, index=2, data=want[2], ebs=cloud.client("ebs"))[2], 503)
        # Many that wait for it do not hold up other requests.
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            waiting = [pool.submit(error_of, self.put, snapshot=s, index=2, data=want[2]) for _ in range(16)]
            time.sleep(0.5)
            begun = time.monotonic()
            self.ec2.describe_snapshots(SnapshotIds=[s])
            self.assertLess(time.monotonic() - begun, 5)
            self.assertEqual({f.result()[2] for f in waiting}, {503})
        cloud.start("viperblock")
        for i in (2, 3):
            wait_for("put again", lambda: error_of(self.put, snapshot=s, index=i, data=want[i])[0] == "no error", 30)
        cloud.kill9("predastore")
        self.assertEqual(error_of(self.put, snapshot=s, index=4, data=want[4])[2], 503)
        cloud.start("predastore")
        for i in (4, 5):
            wait_for("put again", lambda: error_of(self.put, snapshot=s, index=i, data=want[i])[0] == "no error", 30)
        cloud.kill9("awsgw")
        cloud.start("awsgw")
        self.complete(s, want, Checksum=linear(want), ChecksumAlgorithm="SHA256", ChecksumAggregationMethod="LINEAR")
        self.assertEqual(self.content(s), want)


if __name__ == "__main__":
    unittest.main(verbosity=2)
