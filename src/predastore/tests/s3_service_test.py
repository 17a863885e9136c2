#!/usr/bin/env python3
"""The service itself: its start without a root key, stops under load, kill -9, a new certificate, what an operator asks."""
import hashlib
import os
import random
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import unittest

from s3_world import REGION, UNSIGNED, World, wait_gone


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

    def test_everything_at_once(self):
        """Clients that put, read, leave in the middle, copy, list and delete the same keys: the service lives, and ends with nothing left over."""
        w, end = self.world, time.monotonic() + 12
        unexpected = []

        def run(seed):
            rnd, raw, s3 = random.Random(seed), w.raw(), w.s3()
            while time.monotonic() < end and w.procs["predastore"].poll() is None:
                key, what = f"k{rnd.randrange(30)}", rnd.randrange(8)
                path = f"/service/{key}"
                if what < 2:
                    a = raw.request("PUT", path, body=os.urandom(rnd.choice([0, 100, 5000, 131072, 131073, 700000, 3000000])))
                    unexpected.extend([a] if a.status != 200 else [])
                elif what == 2:
                    a = raw.request("GET", path)
                    unexpected.extend([a] if a.status not in (200, 404) else [])
                elif what == 3:
                    with raw.connect() as s:
                        s.sendall(raw.head("PUT", path, payload=UNSIGNED, length=3000000) + os.urandom(rnd.randrange(3000000)))
                        if rnd.random() < 0.5:
                            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                elif what == 4:
                    with raw.connect() as s:
                        s.sendall(raw.head("GET", path))
                        s.recv(rnd.choice([1, 1000, 100000]))
                elif what == 5:
                    a = raw.request("DELETE", path)
                    unexpected.extend([a] if a.status != 204 else [])
                elif what == 6:
                    a = raw.request("PUT", path + "-copy", headers={"x-amz-copy-source": path})
                    unexpected.extend([a] if a.status not in (200, 404) else [])
                else:
                    s3.list_objects_v2(Bucket="service")
        threads = [threading.Thread(target=run, args=(i,)) for i in range(10)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(unexpected, [])
        self.assertIsNone(w.procs["predastore"].poll(), w.log("predastore", 60))
        p = w.procs.pop("predastore")
        p.terminate()
        self.assertEqual(p.wait(60), 0, w.log("predastore", 60))  # with sanitizers: nothing was leaked
        w.start("predastore")
        self.assertEqual(w.spx("admin", "storage", "check").returncode, 0)

    def test_flipped_bits_are_never_sent(self):
        """One drive, so nothing can mend it: an error, or a broken connection after good bytes; the operator is told."""
        w, body = self.world, os.urandom(5 << 20)
        for off in (100, 3 << 20):
            self.s3.put_object(Bucket="service", Key="k", Body=body)
            data = os.path.join(w.drives[0], "data")
            path = max((os.path.join(d, f) for d, _, fs in os.walk(data) for f in fs), key=os.path.getmtime)
            with open(path, "r+b") as f:
                f.seek(off + 5000)
                old = f.read(4)
                f.seek(off + 5000)
                f.write(bytes(x ^ 255 for x in old))
            a = w.raw().request("GET", "/service/k")
            if off == 100:
                self.assertEqual((a.status, a.code), (500, "InternalError"))
            else:
                self.assertLess(len(a.body), len(body))
                self.assertEqual(a.body, body[:len(a.body)])
                self.assertIn("answer.broken_off", w.log("predastore"))
        w.spx("admin", "storage", "scrub", check=False)
        self.assertIn("service/k", w.spx("admin", "storage", "check", check=False).stdout)

    def test_users_of_the_unix_socket(self):
        """With users of their own (as installed) the peer's user decides, whatever its request says."""
        if os.geteuid() != 0:
            return  # s3_wire_test.py has the other half
        self.world.close()
        w = self.world = World(uid_base=70000).up()
        w.s3().create_bucket(Bucket="service", CreateBucketConfiguration={"LocationConstraint": REGION})
        code = """
import os, socket, sys
uid = int(sys.argv[1]); os.setgroups([70000]); os.setgid(uid); os.setuid(uid)
def ask(method, path, more=""):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(sys.argv[2])
        s.sendall(f"{method} {path} HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 1\\r\\n{more}\\r\\nz".encode())
        return s.recv(4000).split()[1].decode()
print(ask("PUT", "/.viperblock/a"), ask("PUT", "/.viperblock/a", "X-Spx-Source-Ip: 192.0.2.1\\r\\n"), ask("GET", "/service/k"))
""".replace("\\\\", "\\")
        for offset, want in ((3, "200 200 403"), (2, "403 403 403"), (1, "403 403 403"), (-70000, "403 403 403"), (65534 - 70000, "403 403 403")):
            p = subprocess.run([sys.executable if offset == -70000 else "/usr/bin/python3", "-c", code, str(70000 + offset),
                                os.path.join(w.run, "predastore-s3.sock")], capture_output=True, text=True)
            self.assertEqual(p.stdout.strip(), want, (offset, p.stderr))

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
