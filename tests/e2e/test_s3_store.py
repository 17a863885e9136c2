"""The object store as an operator meets it: drives that are lost, replaced, flipped and full, kill -9 under load, an index that is made again, and
what 'spx' tells of it. Real services; needs root (namespaces, small file systems).
"""
import concurrent.futures
import glob
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from cloud import REGION, Cloud, find_binary, isolate, wait_for  # noqa: E402

import botocore.config  # noqa: E402
from botocore.exceptions import BotoCoreError, ClientError  # noqa: E402

MIB = 1 << 20


def setUpModule():
    isolate()


class StoreCase(unittest.TestCase):
    N_DRIVES = 3
    DRIVE_SIZE = None  # of a file system of its own

    def setUp(self):
        self.cloud = Cloud()
        self.addCleanup(self.end)
        self.mounts = []
        self.drives = [os.path.join(self.cloud.dir, f"drive{i + 1}") for i in range(self.N_DRIVES)]
        for d in self.drives:
            os.mkdir(d)
            if self.DRIVE_SIZE:
                subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.DRIVE_SIZE}", "none", d], check=True)
                self.mounts.append(d)
        self.cloud.init("--drives", ",".join(self.drives), uid_base=70000)
        self.cloud.only("state", "awsgw", "predastore")
        self.cloud.start("state", "awsgw", "predastore")
        self.s3 = self.client()

    def end(self):
        failed = any(e for _, e in getattr(getattr(self, "_outcome", None), "errors", []) or [])
        if failed:
            print(self.cloud.log("predastore"), file=sys.stderr)
        self.cloud.stop()
        for d in self.mounts:
            subprocess.run(["umount", d], check=False)
        reports = self.cloud.sanitizer_reports()
        self.cloud.close()
        self.assertEqual(reports, [])

    def client(self):
        return self.cloud.client("s3", endpoint=f"https://localhost:{self.cloud.s3_port}",
                                 config=botocore.config.Config(s3={"addressing_style": "path"}, connect_timeout=5))

    def bucket(self):
        name = f"b-{uuid.uuid4().hex[:8]}"
        self.s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
        return name

    def restart(self, kill=False):
        p = self.cloud.procs.pop("predastore")
        p.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        p.wait(60)
        self.cloud.start("predastore")
        self.s3 = self.client()

    def fill(self, bucket, n=20):
        """Small and large objects; their digests."""
        want = {}
        for i in range(n):
            body = os.urandom((1000, 60_000, 300_000, 3 * MIB)[i % 4] + i)
            self.s3.put_object(Bucket=bucket, Key=f"o/{i:03}", Body=body)
            want[f"o/{i:03}"] = hashlib.sha256(body).hexdigest()
        return want

    def check_all(self, bucket, want):
        for key, digest in want.items():
            got = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            self.assertEqual(hashlib.sha256(got).hexdigest(), digest, key)

    def drive_states(self):
        return [d["state"] for d in self.cloud.spx_json("admin", "storage", "drives")]

    def node_status(self):
        return self.cloud.spx_json("get", "nodes")[0]["status"]

    def check(self):
        """Exit status and text of 'storage check'."""
        p = self.cloud.spx("admin", "storage", "check", check=False)
        return p.returncode, p.stdout


class Drives(StoreCase):
    def test_what_spx_tells(self):
        bucket = self.bucket()
        self.fill(bucket, 8)
        row, = [b for b in self.cloud.spx_json("get", "buckets") if b["bucket"] == bucket]
        self.assertEqual((row["objects"], row["account"]), (8, self.cloud.account("one")[2]))
        self.assertGreater(row["bytes"], 6 * MIB)
        self.assertIn(bucket, self.cloud.spx("get", "buckets").stdout)
        self.assertEqual(self.cloud.spx_json("get", "buckets", "--account", "000000000001"), [])
        self.assertEqual(self.check()[0], 0)
        self.assertEqual(self.drive_states(), ["ok"] * 3)
        self.assertIn("RS(2,1)", self.cloud.spx("admin", "storage", "drives").stdout)
        top = self.cloud.spx_json("top", "storage")
        self.assertEqual(len(top["drives"]), 3)
        self.assertGreaterEqual(top["stats"]["objects"], 8)
        self.assertIn("requests", [r["name"] for r in top["rates"]])
        self.assertRegex(self.cloud.spx("top", "storage").stdout, "objects written")
        scrub = self.cloud.spx_json("admin", "storage", "scrub")
        self.assertEqual((scrub["bad"], scrub["lost"], scrub["is_running"]), (0, 0, False))
        self.assertGreaterEqual(scrub["objects"], 4)
        node, = self.cloud.spx_json("get", "nodes")
        self.assertEqual((node["status"], node["services"]), ("Ready", ["state", "awsgw", "predastore"]))
        p = self.cloud.spx("admin", "account", "delete", self.cloud.account("one")[2], check=False)
        self.assertEqual(p.returncode, 1)
        self.assertIn(f"still has buckets, such as {bucket}", p.stderr)
        for args in (("admin", "storage", "drives", "replace", "9"), ("admin", "storage", "drives", "renew", "1"), ("admin", "storage", "scrub", "x")):
            self.assertEqual(self.cloud.spx(*args, check=False).returncode, 2, args)
        self.assertEqual(self.cloud.spx("admin", "storage", "drives", "replace", "1", check=False).returncode, 1)  # it is well

    def test_bench(self):
        key, secret, _ = self.cloud.account("one")
        env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        env.update(AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret, SPX_CONFIG=self.cloud.config)
        for endpoint in ([], ["--endpoint", f"https://127.0.0.1:{self.cloud.port}"]):
            p = subprocess.run([find_binary(self.cloud.build, "spx"), "bench", "s3", "8", "--runs", "2", "--tag", "test", "--output", "json", *endpoint],
                               env=env, capture_output=True, text=True, timeout=120)
            self.assertEqual(p.returncode, 0, p.stderr)
            got = json.loads(p.stdout)
            rows = {r["name"]: r for r in got["rows"]}
            self.assertEqual((got["size_mib"], got["runs"], got["tag"], got["verified"]), (8, 2, "test", True))
            self.assertGreater(rows["write"]["value"], 0)
            self.assertLessEqual(rows["read"]["range"][0], rows["read"]["value"])
            self.assertIn("write: CPU of the server", rows)
        self.assertEqual(self.s3.list_buckets()["Buckets"], [])

    def test_a_drive_is_lost_and_replaced(self):
        bucket = self.bucket()
        want = self.fill(bucket)
        self.restart_without(1)
        self.assertEqual(self.drive_states(), ["ok", "missing", "ok"])
        status, text = self.check()
        self.assertEqual(status, 1)
        self.assertIn("drive 2", text)
        wait_for("the node says so", lambda: self.node_status() == "Degraded", 10)
        self.check_all(bucket, want)  # reads go on
        more = self.bucket()
        want_more = self.fill(more)  # and so do writes
        self.check_all(more, want_more)
        # An empty folder alone is not taken: a file system that is not mounted looks just so.
        os.mkdir(self.drives[1])
        self.restart()
        self.assertEqual(self.drive_states()[1], "missing")
        self.cloud.spx("admin", "storage", "drives", "replace", "2")
        wait_for("the drive is filled", lambda: self.drive_states() == ["ok"] * 3, 120)
        self.assertEqual(self.check()[0], 0)
        scrub = self.cloud.spx_json("admin", "storage", "scrub")
        self.assertEqual(scrub["lost"], 0)
        # Now another one may go: what was healed is really there.
        self.restart_without(0)
        self.check_all(bucket, want)
        self.check_all(more, want_more)

    def restart_without(self, idx):
        p = self.cloud.procs.pop("predastore")
        p.kill()
        p.wait()
        os.rename(self.drives[idx], self.drives[idx] + ".gone")
        self.cloud.start("predastore")
        self.s3 = self.client()

    def test_flipped_bits_are_repaired(self):
        bucket = self.bucket()
        want = self.fill(bucket)
        shards = glob.glob(os.path.join(self.drives[2], "data", "*", "*"))
        self.assertTrue(shards)
        for path in shards:
            with open(path, "r+b") as f:
                f.seek(os.path.getsize(path) // 2)
                byte = f.read(1)
                f.seek(-1, os.SEEK_CUR)
                f.write(bytes([byte[0] ^ 0x10]))
        scrub = self.cloud.spx_json("admin", "storage", "scrub", "--no-repair")
        self.assertGreater(scrub["bad"], 0)
        self.check_all(bucket, want)  # nobody is given a wrong byte
        scrub = self.cloud.spx_json("admin", "storage", "scrub")
        self.assertEqual(scrub["lost"], 0)
        again = self.cloud.spx_json("admin", "storage", "scrub")
        self.assertEqual((again["bad"], again["lost"]), (0, 0), f"the pass before: {scrub}")

    def test_the_index_is_made_again(self):
        bucket = self.bucket()
        want = self.fill(bucket)
        self.s3.delete_object(Bucket=bucket, Key="o/000")
        del want["o/000"]
        before = [(o["Key"], o["ETag"], o["Size"]) for o in self.s3.list_objects_v2(Bucket=bucket)["Contents"]]
        self.assertTrue(self.cloud.spx_json("admin", "storage", "rebuild-index")["needs_restart"])
        self.restart()
        self.assertEqual([(o["Key"], o["ETag"], o["Size"]) for o in self.s3.list_objects_v2(Bucket=bucket)["Contents"]], before)
        self.check_all(bucket, want)
        # Deleted by hand while nothing runs, and asked for while nothing runs.
        for how in ("delete", "ask"):
            p = self.cloud.procs.pop("predastore")
            p.send_signal(signal.SIGTERM)
            p.wait(60)
            if how == "delete":
                for d in glob.glob(os.path.join(self.cloud.dir, "drive*", "index")):
                    shutil.rmtree(d)
            else:
                self.assertFalse(self.cloud.spx_json("admin", "storage", "rebuild-index")["needs_restart"])
            self.cloud.start("predastore")
            self.s3 = self.client()
            self.check_all(bucket, want)


class Crash(StoreCase):
    def test_kill_9_loses_nothing_that_was_promised(self):
        """Writers, overwriters and deleters, through both doors, with a ledger of what was acknowledged."""
        bucket = self.bucket()
        ledger, lock, stop = {}, threading.Lock(), threading.Event()
        unsure = set()

        def work(n):
            doors = (self.client(), self.cloud.client("s3"))
            i = 0
            while not stop.is_set():
                key = f"w{n}/{i % 40}"
                body = os.urandom(300 + (i * 7919) % 200_000)
                s3 = doors[i % 2]
                is_delete = i % 11 == 10
                with lock:
                    unsure.add(key)
                try:
                    if is_delete:
                        s3.delete_object(Bucket=bucket, Key=key)
                    else:
                        s3.put_object(Bucket=bucket, Key=key, Body=body)
                    with lock:
                        ledger[key] = None if is_delete else hashlib.sha256(body).hexdigest()
                        unsure.discard(key)
                except (ClientError, BotoCoreError):
                    # Nobody knows: this key is left alone from now on.
                    return
                i += 1

        for _ in range(4):
            stop.clear()
            unsure.clear()
            ledger.clear()
            threads = [threading.Thread(target=work, args=(f"{uuid.uuid4().hex[:6]}",)) for _ in range(6)]
            for t in threads:
                t.start()
            time.sleep(1.5)
            self.restart(kill=True)
            stop.set()
            for t in threads:
                t.join()
            known = {k: v for k, v in ledger.items() if k not in unsure}
            self.assertGreater(len(known), 6)
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda kv: self.look(bucket, *kv), known.items()))
        self.assertEqual(self.check()[0], 0)

    def look(self, bucket, key, digest):
        try:
            got = self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            self.assertEqual(hashlib.sha256(got).hexdigest(), digest, key)
        except ClientError as e:
            self.assertEqual(e.response["Error"]["Code"], "NoSuchKey")
            self.assertIsNone(digest, key)

    def test_the_gateway_survives_the_store(self):
        """While predastore is away the one endpoint says so in S3's form, and everything else works."""
        bucket = self.bucket()
        relayed = self.cloud.client("s3")
        relayed.put_object(Bucket=bucket, Key="k", Body=b"1")
        self.cloud.kill9("predastore")
        with self.assertRaises(ClientError) as e:
            relayed.get_object(Bucket=bucket, Key="k")
        self.assertEqual((e.exception.response["ResponseMetadata"]["HTTPStatusCode"], e.exception.response["Error"]["Code"]), (503, "ServiceUnavailable"))
        self.assertTrue(self.cloud.client("sts").get_caller_identity()["Account"])
        self.cloud.start("predastore")
        self.assertEqual(relayed.get_object(Bucket=bucket, Key="k")["Body"].read(), b"1")


class Full(StoreCase):
    N_DRIVES = 1
    DRIVE_SIZE = "200M"

    def test_a_full_drive(self):
        bucket = self.bucket()
        self.s3.put_object(Bucket=bucket, Key="small", Body=b"x")
        n, code, status = 0, None, None
        while code is None and n < 300:
            try:
                self.s3.put_object(Bucket=bucket, Key=f"fill/{n}", Body=os.urandom(2 * MIB))
                n += 1
            except ClientError as e:
                code, status = e.response["Error"]["Code"], e.response["ResponseMetadata"]["HTTPStatusCode"]
        self.assertIn((code, status), (("SlowDown", 503), ("InsufficientStorage", 507)))
        self.assertGreater(n, 20)
        self.assertEqual(self.check()[0], 1)
        # Reads, lists and deletes work; what was stored is whole.
        self.assertEqual(self.s3.get_object(Bucket=bucket, Key="small")["Body"].read(), b"x")
        self.assertEqual(len(self.s3.get_object(Bucket=bucket, Key="fill/0")["Body"].read()), 2 * MIB)
        self.assertEqual(len(self.s3.list_objects_v2(Bucket=bucket)["Contents"]), n + 1)
        for i in range(n - 1):
            self.s3.delete_object(Bucket=bucket, Key=f"fill/{i}")

        def write():
            try:
                self.s3.put_object(Bucket=bucket, Key="again", Body=os.urandom(2 * MIB))
                return True
            except ClientError:
                return False

        wait_for("writes go on by themselves", write, 60, every=1)
        wait_for("all is well again", lambda: self.check()[0] == 0, 60, every=1)
        # Truly full: another takes what is left.
        with open(os.path.join(self.drives[0], "of-another"), "wb") as f:
            try:
                while True:
                    f.write(b"\0" * MIB)
            except OSError:
                pass
        with self.assertRaises(ClientError) as e:
            time.sleep(2)
            self.s3.put_object(Bucket=bucket, Key="never", Body=b"x" * MIB)
        self.assertIn(e.exception.response["ResponseMetadata"]["HTTPStatusCode"], (503, 507))
        self.assertEqual(self.s3.get_object(Bucket=bucket, Key="small")["Body"].read(), b"x")
        os.unlink(os.path.join(self.drives[0], "of-another"))
        wait_for("writes go on by themselves", write, 60, every=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
