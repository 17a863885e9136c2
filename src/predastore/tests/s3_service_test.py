#!/usr/bin/env python3
"""The service itself: its start without a root key, stops under load, kill -9, a new certificate, what an operator asks."""
import hashlib
import os
import signal
import socket
import ssl
import threading
import time
import unittest

from s3_world import REGION, World, wait_gone


class Service(unittest.TestCase):
    def setUp(self):
        self.world = World().up()
        self.s3 = self.world.s3()
        self.s3.create_bucket(Bucket="service", CreateBucketConfiguration={"LocationConstraint": REGION})

    def tearDown(self):
        self.world.close()

    def get(self, key):
        return self.s3.get_object(Bucket="service", Key=key)["Body"].read()

    def test_locked(self):
        """Without its root key it starts, says so, and goes on by itself when the key is there."""
        w = self.world
        self.s3.put_object(Bucket="service", Key="k", Body=b"sealed")
        p = w.procs.pop("predastore")
        p.terminate()
        self.assertEqual(p.wait(30), 0)
        key = os.path.join(w.data, "predastore", "root.key")
        os.rename(key, key + ".away")
        w.start("predastore")
        a = w.raw().request("GET", "/service/k")
        self.assertEqual((a.status, a.code), (503, "ServiceUnavailable"))
        self.assertIn("locked", a.xml("Message"))
        self.assertIn("locked", w.spx("admin", "storage", "check", check=False).stdout)
        os.rename(key + ".away", key)
        self.assertTrue(wait_gone(lambda: w.raw().request("GET", "/service/k").status == 200, 15))
        self.assertEqual(self.get("k"), b"sealed")
        self.s3.put_object(Bucket="service", Key="k2", Body=b"sealed too")

    def test_kill9_under_load(self):
        """What was acknowledged is there, whole, after kill -9 at any moment; nothing else is torn."""
        done, stop = {}, threading.Event()

        def writer(i):
            s3, n = self.world.s3(), 0
            while not stop.is_set():
                body = os.urandom(200000 if n % 5 == 0 else 500 + n)
                key = f"w{i}-{n}"
                try:
                    s3.put_object(Bucket="service", Key=key, Body=body)
                except Exception:
                    return
                done[key] = hashlib.sha256(body).digest()
                n += 1
        for _ in range(3):
            stop.clear()
            threads = [threading.Thread(target=writer, args=(f"{_}-{i}",)) for i in range(6)]
            [t.start() for t in threads]
            time.sleep(1.0)
            self.world.kill9("predastore")
            stop.set()
            [t.join() for t in threads]
            self.world.start("predastore")
            self.assertGreater(len(done), 10)
            for key, want in done.items():
                self.assertEqual(hashlib.sha256(self.get(key)).digest(), want, key)

    def test_stop_waits_for_uploads(self):
        """SIGTERM: an upload under way ends well, then the service does."""
        raw = self.world.raw()
        body = os.urandom(1 << 20)
        s = raw.connect()
        s.sendall(raw.head("PUT", "/service/last", payload=hashlib.sha256(body).hexdigest(), length=len(body)) + body[:500000])
        time.sleep(0.3)
        p = self.world.procs.pop("predastore")
        p.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        s.sendall(body[500000:])
        self.assertIn(b"HTTP/1.1 200", s.recv(1000))
        s.close()
        self.assertEqual(p.wait(30), 0)
        self.world.start("predastore")
        self.assertEqual(self.get("last"), body)

    def test_new_certificate(self):
        """SIGHUP: new connections see the new certificate; a bad one changes nothing."""
        w = self.world

        def serial():
            ctx = ssl.create_default_context()
            ctx.check_hostname, ctx.verify_mode = False, ssl.CERT_NONE
            with ctx.wrap_socket(socket.create_connection(("127.0.0.1", w.s3_port))) as s:
                return hashlib.sha256(s.getpeercert(True)).digest()
        path = os.path.join(w.data, "predastore", "server.pem")
        before = serial()
        with open(path) as f:
            good = f.read()
        with open(path, "w") as f:
            f.write("no certificate")
        w.procs["predastore"].send_signal(signal.SIGHUP)
        self.assertTrue(wait_gone(lambda: "certificate.reload_failed" in w.log("predastore")))
        self.assertEqual(serial(), before)
        with open(path, "w") as f:
            f.write(good)
        w.spx("admin", "cert", "renew", "--force")
        self.assertTrue(wait_gone(lambda: serial() != before))  # it was told by SIGHUP
        self.assertEqual(w.raw().request("GET", "/service/absent").status, 404)

    def test_operator(self):
        w = self.world
        self.s3.put_object(Bucket="service", Key="k", Body=b"x" * 500000)
        self.assertIn("service", w.spx("get", "buckets").stdout)
        self.assertEqual(w.spx("admin", "storage", "check").returncode, 0)
        w.spx("admin", "storage", "scrub", timeout=60)
        self.assertIn(self.world.drives[0], w.spx("admin", "storage", "drives").stdout)

    def test_index_made_anew(self):
        w = self.world
        bodies = {f"k{i}": os.urandom(100 + i) for i in range(50)}
        for k, b in bodies.items():
            self.s3.put_object(Bucket="service", Key=k, Body=b)
        self.s3.delete_object(Bucket="service", Key="k7")
        w.spx("admin", "storage", "rebuild-index")
        w.restart()
        self.assertEqual({o["Key"] for o in self.s3.list_objects_v2(Bucket="service")["Contents"]}, set(bodies) - {"k7"})
        self.assertEqual(self.get("k3"), bodies["k3"])


if __name__ == "__main__":
    unittest.main(verbosity=1)
