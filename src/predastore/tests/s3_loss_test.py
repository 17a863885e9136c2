#!/usr/bin/env python3
"""What of the store is lost for good is shown, and given up when somebody says so: a damaged log, drives that went on without each other."""
import glob
import json
import os
import shutil
import signal
import unittest

from botocore.exceptions import ClientError

from s3_world import REGION, World

PLACE = {"LocationConstraint": REGION}


class Loss(unittest.TestCase):
    def world(self, **kw):
        w = World(**kw).up()
        self.addCleanup(w.close)
        return w

    def stop(self, w):
        p = w.procs.pop("predastore")
        p.send_signal(signal.SIGTERM)
        self.assertEqual(p.wait(60), 0)

    def notes(self, drive):
        with open(os.path.join(drive, "losses.log")) as f:
            return [json.loads(line) for line in f]

    def accept(self, w, *args, typed="yes\n"):
        return w.spx("admin", "storage", "accept-loss", *args, check=False, input=typed)

    def test_a_damaged_log(self):
        w = self.world()
        s3 = w.s3()
        s3.create_bucket(Bucket="loss", CreateBucketConfiguration=PLACE)
        for i in range(20):
            s3.put_object(Bucket="loss", Key=f"k{i}", Body=b"secret number %d " % i * 100)
        out = self.accept(w)
        self.assertEqual((out.returncode, out.stdout), (0, "nothing of the log is lost\n"), out.stderr)
        self.stop(w)
        def records(path):
            with open(path, "rb") as f:
                return f.read().count(b"OREC")

        segment = max(glob.glob(os.path.join(w.drives[0], "log", "seg-*")), key=records)
        with open(segment, "r+b") as f:
            data = f.read()
            at = [i for i in range(0, len(data), 8) if data[i:i + 4] == b"OREC"]
            f.seek(at[len(at) // 2] + 16)
            f.write(b"\xff" * 32)
        w.start("predastore")
        out = self.accept(w, typed="no\n")  # the index knows what it was
        self.assertNotEqual(out.returncode, 0)
        self.assertIn("loss/k", out.stdout)
        self.assertIn("nothing was changed", out.stderr)
        w.spx("admin", "storage", "rebuild-index")
        w.restart()
        with self.assertRaises(ClientError) as e:
            s3.put_object(Bucket="loss", Key="new", Body=b"x")
        self.assertEqual(e.exception.response["ResponseMetadata"]["HTTPStatusCode"], 503)
        self.assertIn("accept-loss", w.spx("admin", "storage", "check", check=False).stdout)
        out = self.accept(w, "--yes")
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertIn("are lost", out.stdout)
        w.restart()
        s3.put_object(Bucket="loss", Key="new", Body=b"x")
        self.assertEqual(s3.list_objects_v2(Bucket="loss")["KeyCount"], 20)  # 19 and the new one
        self.assertIn("loss.accepted", w.log("predastore"))
        self.assertEqual(len(self.notes(w.drives[0])), 1)
        self.assertIn("uid", self.notes(w.drives[0])[0]["accepted_by"])
        w.spx("admin", "storage", "rebuild-index")
        w.restart()
        s3.put_object(Bucket="loss", Key="new", Body=b"x")
        self.assertEqual(len(self.notes(w.drives[0])), 1)

    def test_drives_that_went_on_without_each_other(self):
        w = self.world(drives=2)
        s3 = w.s3()
        s3.create_bucket(Bucket="split", CreateBucketConfiguration=PLACE)
        s3.put_object(Bucket="split", Key="both", Body=b"b" * 300000)
        self.stop(w)
        for i in (1, 0):
            shutil.move(w.drives[i], w.drives[i] + ".away")
            os.mkdir(w.drives[i])
            w.start("predastore")
            s3.put_object(Bucket="split", Key=f"without-{i + 1}", Body=b"x")
            self.stop(w)
            shutil.rmtree(w.drives[i])
            shutil.move(w.drives[i] + ".away", w.drives[i])
        with self.assertRaises(AssertionError) as e:
            w.start("predastore")
        self.assertIn("SplitSet", str(e.exception))
        w.procs.pop("predastore")
        out = self.accept(w, "--drive", "2", typed="\n")
        self.assertNotEqual(out.returncode, 0)
        out = self.accept(w, "--drive", "2")
        self.assertEqual(out.returncode, 0, out.stderr)
        self.assertIn("given up", out.stdout)
        w.start("predastore")
        self.assertEqual([o["Key"] for o in s3.list_objects_v2(Bucket="split")["Contents"]], ["both", "without-2"])
        self.assertEqual(s3.get_object(Bucket="split", Key="both")["Body"].read(), b"b" * 300000)
        out = self.accept(w, "--drive", "1")  # it runs: there is nothing to give up
        self.assertIn("in use", out.stderr)
        self.assertEqual(len(self.notes(w.drives[1])), 1)
        shutil.rmtree(w.drives[1])
        os.mkdir(w.drives[1])
        w.spx("admin", "storage", "drives", "replace", "2")
        s3.put_object(Bucket="split", Key="new", Body=b"x")


if __name__ == "__main__":
    unittest.main()
