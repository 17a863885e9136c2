"""The command against real services: init, up, accounts, images, the store, certificates, down.

Needs no root and no guests: state, viperblock, awsgw and predastore run as whoever runs the test, in a folder of their own.
SPX: the program; the services are found in the build tree beside it."""
import gzip
import hashlib
import http.server
import json
import os
import re
import shutil
import signal
import socket
import ssl
import stat
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

SPX = os.environ["SPX"]
HEADER = "NAME  | STATUS | ROLES        | IP        | REGION         | AZ              | VMs | SERVICES\n"
ROW = "node1 | Ready  | state:leader | 127.0.0.1 | ap-southeast-2 | ap-southeast-2a | 0   | state,viperblock,awsgw,predastore\n"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Node(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="spxc-")
        cls.home = os.path.join(cls.dir, "home")
        os.makedirs(os.path.join(cls.home, ".aws"))
        with open(os.path.join(cls.home, ".aws", "config"), "w") as f:
            f.write("# mine\n[default]\nregion = eu-west-1\n")
        cls.conf = os.path.join(cls.dir, "etc", "spinifex.toml")
        cls.port, cls.s3_port, cls.metrics_port = free_port(), free_port(), free_port()
        cls.env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_") and k not in ("SUDO_USER", "SPX_CONFIG")}
        cls.env.update(HOME=cls.home, SPX_CONFIG=cls.conf)
        cls.init_args = ["admin", "init", "--config-dir", os.path.join(cls.dir, "etc"), "--data-dir", os.path.join(cls.dir, "data"),
                         "--run-dir", os.path.join(cls.dir, "run"), "--host", "127.0.0.1", "--port", str(cls.port), "--s3-port", str(cls.s3_port), "--metrics-port", str(cls.metrics_port), "--uid-base", "0"]
        cls.run_spx(*cls.init_args, check=True)
        # Guests and networks need root: left out here.
        with open(cls.conf) as f:
            text = f.read()
        with open(cls.conf, "w") as f:
            f.write(text.replace("uid_base = 0\n", 'uid_base = 0\nservices = ["state", "viperblock", "awsgw", "predastore"]\n'))
        cls.run_spx("up", "--detach", check=True)

    @classmethod
    def tearDownClass(cls):
        cls.run_spx("down")
        shutil.rmtree(cls.dir)

    @classmethod
    def run_spx(cls, *args, check=False):
        r = subprocess.run([SPX, *args], env=cls.env, capture_output=True, text=True, timeout=120)
        if check and r.returncode != 0:
            raise AssertionError(f"spx {' '.join(args)}: {r.returncode}\n{r.stdout}{r.stderr}")
        return r

    def ok(self, *args):
        r = self.run_spx(*args)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout

    def js(self, *args):
        return json.loads(self.ok(*args, "--output", "json"))

    def refused(self, status, pattern, *args):
        r = self.run_spx(*args)
        self.assertEqual(r.returncode, status, r.stdout + r.stderr)
        self.assertRegex(r.stderr, pattern)

    def path(self, *parts):
        return os.path.join(self.dir, *parts)

    def mode(self, *parts):
        return stat.S_IMODE(os.stat(self.path(*parts)).st_mode)

    def supervisor(self):
        with open(self.path("run", "up.lock")) as f:
            return int(f.read())

    def server_certificate(self, port=None):
        context = ssl.create_default_context(cafile=self.path("etc", "ca.pem"))
        with socket.create_connection(("127.0.0.1", port or self.port), timeout=10) as s, context.wrap_socket(s, server_hostname="localhost") as t:
            return t.getpeercert()

    def wait(self, what, seconds=30):
        end = time.monotonic() + seconds
        while True:
            r = what()
            if r:
                return r
            self.assertLess(time.monotonic(), end, "waited too long")
            time.sleep(0.05)

    def test_files_of_init(self):
        for name in ("root.key", "ca.key"):
            self.assertEqual(self.mode("data", "keys", name), 0o600)
        for service in ("awsgw", "predastore"):
            self.assertEqual(self.mode("data", service, "server.key"), 0o600)
            self.assertEqual(self.mode("data", service), 0o700)
        self.assertEqual(self.mode("data", "predastore", "root.key"), 0o600)
        self.assertEqual(self.mode("data", "predastore", "drive1"), 0o700)
        self.assertEqual(self.mode("data", "state"), 0o700)
        self.assertEqual(self.mode("etc", "ca.pem"), 0o644)
        self.assertEqual(self.mode("home", ".aws", "credentials"), 0o600)
        with open(self.path("home", ".aws", "config")) as f:
            text = f.read()
        self.assertTrue(text.startswith("# mine\n[default]\nregion = eu-west-1\n"), text)
        self.assertIn(f"[profile spinifex]\nregion = ap-southeast-2\nendpoint_url = https://127.0.0.1:{self.port}\n", text)

    def test_how_other_programs_reach_the_cloud(self):
        shown = self.js("profile", "show")
        self.assertEqual((shown["profile"], shown["region"], shown["ca_bundle"]), ("spinifex", "ap-southeast-2", self.path("etc", "ca.pem")))
        self.assertEqual((shown["endpoint_url"], shown["s3_endpoint_url"]), (f"https://127.0.0.1:{self.port}", f"https://127.0.0.1:{self.s3_port}"))
        self.assertEqual(list(shown["setup"]), ["aws", "boto3", "node", "rclone", "terraform"])
        for client, text in shown["setup"].items():
            self.assertEqual(self.ok("profile", "show", "--for", client), text)
        self.assertIn("== terraform\n" + shown["setup"]["terraform"], self.ok("profile", "show"))
        self.refused(2, "boto3, node", "profile", "show", "--for", "cobol")
        self.refused(2, "no name for a profile", "profile", "show", "--name", "default")

    def test_the_environment_that_sudo_takes_away(self):
        """The files that the caller's own AWS tools read, and what beats the profile there, are found behind sudo."""
        if os.geteuid() != 0:
            self.skipTest("only root reads the environment of sudo")
        mine = self.path("elsewhere")
        os.mkdir(mine)
        shutil.copy("/bin/sh", self.path("sudo"))  # the kernel names a process after its file
        before = dict(self.env, AWS_CONFIG_FILE=f"{mine}/c", AWS_SHARED_CREDENTIALS_FILE=f"{mine}/k", AWS_ACCESS_KEY_ID="AKIAOTHER",
                      AWS_SESSION_TOKEN="very-secret", AWS_PROFILE="work", AWS_REGION="ap-southeast-2", AWS_ENDPOINT_URL="https://elsewhere")
        script = f"env -i PATH=$PATH HOME=$HOME SPX_CONFIG=$SPX_CONFIG SUDO_USER=root {SPX} profile write; exit $?"
        r = subprocess.run([self.path("sudo"), "-c", script], env=before, capture_output=True, text=True, timeout=120)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(f"in {mine}/c and {mine}/k\n", r.stderr)
        with open(f"{mine}/c") as f:
            self.assertIn(f"[profile spinifex]\nregion = ap-southeast-2\nendpoint_url = https://127.0.0.1:{self.port}\n", f.read())
        self.assertEqual([self.mode("elsewhere", n) for n in ("c", "k")], [0o600, 0o600])
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_PROFILE"):
            self.assertIn(f"warning: {name} ", r.stderr)
        self.assertNotIn("AWS_REGION", r.stderr)
        self.assertNotIn("very-secret", r.stderr)

    def test_init_again_changes_nothing(self):
        before = {}
        for name in ("data/keys/root.key", "data/keys/ca.key", "data/awsgw/server.pem", "etc/spinifex.toml", "home/.aws/credentials"):
            with open(self.path(name)) as f:
                before[name] = f.read()
        # The store is in use: init cannot open it, and says so.
        self.refused(1, "state.db", *self.init_args)
        for name, text in before.items():
            with open(self.path(name)) as f:
                self.assertEqual(f.read(), text, name)

    def test_nodes(self):
        self.assertEqual(self.ok("get", "nodes"), HEADER + ROW)
        node, = self.js("get", "nodes")
        self.assertEqual(node["services"], ["state", "viperblock", "awsgw", "predastore"])
        self.assertEqual(node["vms"], 0)
        top = self.js("top", "nodes")
        self.assertEqual([n["name"] for n in top["nodes"]], ["node1"])
        for kind in ("vms", "volumes"):
            self.assertEqual(self.js("get", kind), [])
        self.assertEqual(self.js("config", "check")["ok"], True)
        self.assertEqual(self.ok("config", "get", "endpoint"), f"https://127.0.0.1:{self.port}\n")

    def test_an_address_that_the_host_lost_is_not_given_out(self):
        lost = os.path.join(self.dir, "lost.toml")
        with open(self.conf) as f, open(lost, "w") as out:
            out.write(re.sub(r'(?m)^host = .*', 'host = "192.0.2.77"', f.read()))
        r = subprocess.run([SPX, "config", "get", "endpoint"], env=dict(self.env, SPX_CONFIG=lost), capture_output=True, text=True, timeout=60)
        self.assertEqual((r.returncode, r.stdout), (0, f"https://127.0.0.1:{self.port}\n"), r.stderr)

    def test_accounts(self):
        new = self.js("admin", "account", "create", "factory floor")
        self.assertRegex(new["account"], r"^[1-9][0-9]{11}$")
        self.assertRegex(new["access_key_id"], r"^AKIA[A-Z2-7]{16}$")
        self.assertRegex(new["secret_access_key"], r"^[A-Za-z0-9+/]{40}$")
        self.refused(1, "already", "admin", "account", "create", "factory floor")
        self.refused(1, "name of an account", "admin", "account", "create", "a/b")
        self.assertIn("factory floor", [a["name"] for a in self.js("admin", "account", "list")])
        key = self.js("admin", "account", "key", new["account"])
        self.assertNotEqual(key["access_key_id"], new["access_key_id"])
        self.refused(1, "already has 2 access keys", "admin", "account", "key", new["account"])
        self.ok("profile", "write", "--name", "floor", "--account", "factory floor")
        with open(self.path("home", ".aws", "credentials")) as f:
            self.assertIn(f"[floor]\naws_access_key_id = {new['access_key_id']}\n", f.read().replace(key["access_key_id"], new["access_key_id"]))
        self.refused(2, "12 digits", "admin", "account", "delete", "12")
        self.ok("admin", "account", "delete", new["account"])
        self.refused(1, "no account", "admin", "account", "delete", new["account"])
        self.assertNotIn("factory floor", [a["name"] for a in self.js("get", "accounts")])
        self.assertNotIn(new["account"], self.ok("admin", "state", "list"))

    def test_no_secret_is_seen(self):
        new = self.js("admin", "account", "create", "secretive")
        dump = self.path("secret.dump")
        self.ok("admin", "state", "dump", dump)
        self.assertEqual(self.mode("secret.dump"), 0o600)
        for folder, _, files in os.walk(self.path("data")):
            for name in files:
                with open(os.path.join(folder, name), "rb") as f:
                    self.assertNotIn(new["secret_access_key"].encode(), f.read(), name)
        with open(dump, "rb") as f:
            self.assertNotIn(new["secret_access_key"].encode(), f.read())
        self.ok("admin", "account", "delete", new["account"])

    def test_state(self):
        keys = [k["key"] for k in self.js("admin", "state", "list", "iam/account/")]
        value = json.loads(self.ok("admin", "state", "get", keys[0]))
        self.assertEqual(value["status"], "active")
        self.assertEqual(self.js("admin", "state", "get", keys[0])["value"], value)
        self.refused(1, "spx admin state get:", "admin", "state", "get", "iam/account/none")
        self.assertGreater(self.js("admin", "state", "stats")["revision"], 0)
        dump = self.path("dump")
        self.ok("admin", "state", "dump", dump)
        self.js("admin", "account", "create", "made after the dump")
        self.refused(1, "not empty", "admin", "state", "restore", dump)
        with open(self.path("bad"), "w") as f:
            f.write("nonsense\n")
        self.refused(1, "spx admin state restore:", "admin", "state", "restore", "--force", self.path("bad"))
        self.assertIn("made after the dump", [a["name"] for a in self.js("get", "accounts")])
        self.ok("admin", "state", "restore", "--force", dump)
        self.assertNotIn("made after the dump", [a["name"] for a in self.js("get", "accounts")])

    def test_services_may_have_many_files(self):
        """A shell allows 1024, which is few connections."""
        with open(f"/proc/{self.supervisor()}/task/{self.supervisor()}/children") as f:
            pids = f.read().split()
        self.assertEqual(len(pids), 4)
        for pid in pids:
            with open(f"/proc/{pid}/limits") as f:
                soft, hard = next(line for line in f if line.startswith("Max open files")).split()[3:5]
            self.assertEqual(soft, hard)
            self.assertGreaterEqual(int(soft), 4096)

    def test_metrics(self):
        """Prometheus reads every service at one address of this host; a service that is away is told so."""
        def scrape(path="/metrics"):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=20) as r:
                return r.headers["Content-Type"], r.read().decode()
        kind, text = scrape()
        self.assertTrue(kind.startswith("text/plain; version=0.0.4"), kind)
        up = dict(re.findall(r'^spinifex_up{service="(.*)"} (.*)$', text, re.M))
        self.assertEqual(set(up.values()), {"1"}, up)
        self.assertIn("awsgw", up)
        rss = re.findall(r'^spinifex_process_resident_memory_bytes{service="awsgw"} (.*)$', text, re.M)
        self.assertGreater(int(rss[0]), 1 << 20)
        families = re.findall(r"^# TYPE (\S+)", text, re.M)
        self.assertEqual(len(families), len(set(families)))
        for line in text.splitlines():
            self.assertRegex(line, r'^(# (HELP|TYPE) .+|[a-z_][a-z0-9_]*({.*})? [0-9.]+)$')
        for path in ("/", "/metrics/x"):
            with self.assertRaises(urllib.error.HTTPError) as e:
                scrape(path)
            self.assertEqual(e.exception.code, 404)

    def test_storage(self):
        """What there is of objects when nobody has stored any."""
        self.assertEqual(self.js("admin", "storage", "check"), {"problems": [], "status": "ok"})
        drive, = self.js("admin", "storage", "drives")
        self.assertEqual((drive["state"], drive["path"]), ("ok", self.path("data", "predastore", "drive1")))
        self.assertEqual([r["name"] for r in self.js("top", "storage")["rates"]][:3], ["requests", "puts", "gets"])
        self.assertEqual(self.js("admin", "storage", "scrub")["lost"], 0)
        self.assertEqual(self.js("admin", "storage", "compact")["freed_bytes"] >= 0, True)
        self.assertEqual(self.js("get", "buckets", "--account", "000000000001"), [])
        self.assertEqual(self.ok("config", "get", "s3_endpoint"), f"https://127.0.0.1:{self.s3_port}\n")
        r = subprocess.run([SPX, "bench", "s3", "2", "--runs", "1", "--output", "json"], env=self.env, capture_output=True, text=True, timeout=60)
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertTrue(json.loads(r.stdout)["verified"])
        for size in ("0", "x", "6000"):
            self.refused(2, "is no size in MiB", "bench", "s3", size)

    def test_images(self):
        disk = self.path("tiny-1.0.raw")
        with open(disk, "wb") as f:
            f.truncate(1 << 20)
            f.seek(510)
            f.write(b"\x55\xaa")
        self.refused(1, "expected|Mismatch|SHA", "admin", "images", "import", disk, "--sha256", "0" * 64)
        image = self.ok("admin", "images", "import", disk).strip()
        self.assertRegex(image, r"^ami-[0-9a-f]{17}$")
        self.refused(1, "already in use", "admin", "images", "import", disk)
        mine, = [i for i in self.js("admin", "images", "list") if i["image"] == image]
        self.assertEqual((mine["name"], mine["status"], mine["public"], mine["size"]), ("tiny-1.0", "available", "yes", 1 << 20))
        other = self.js("admin", "images", "import", disk, "--name", "second", "--private", "--boot-mode", "uefi")["image_id"]
        shown, = [i for i in self.js("get", "images") if i["image"] == other]
        self.assertEqual((shown["public"], shown["boot"]), ("no", "uefi"))
        self.refused(1, "No such file", "admin", "images", "import", self.path("absent"))
        self.refused(1, "does not exist", "admin", "images", "remove", "ami-00000000000000000")
        self.refused(2, "needs --sha256", "admin", "images", "import", "http://127.0.0.1/x")
        self.refused(2, "mini is", "admin", "images", "build", "maxi")
        for i in (image, other):
            self.ok("admin", "images", "remove", i)
        self.wait(lambda: not self.js("get", "images"))

    def test_image_by_url(self):
        packed = gzip.compress(bytes(510) + b"\x55\xaa" + bytes((1 << 20) - 512))

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if self.path == "/moved":
                    self.send_response(302)
                    self.send_header("Location", "/disk-2.0.img.gz")
                    self.end_headers()
                elif self.path == "/disk-2.0.img.gz":
                    body = packed
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                elif self.path == "/short":
                    self.send_response(200)
                    self.send_header("Content-Length", "100000")
                    self.end_headers()
                    self.wfile.write(b"x" * 5000)
                else:
                    self.send_error(404)

            def log_message(self, *args):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        base = f"http://127.0.0.1:{server.server_port}"
        right = hashlib.sha256(packed).hexdigest()
        self.refused(1, "curl: 22", "admin", "images", "import", f"{base}/none", "--sha256", right)
        self.refused(1, "curl: 18", "admin", "images", "import", f"{base}/short", "--sha256", right)
        self.refused(1, "SHA-256 is", "admin", "images", "import", f"{base}/disk-2.0.img.gz", "--sha256", "1" * 64)
        self.assertEqual(self.js("get", "images"), [])
        image = self.js("admin", "images", "import", f"{base}/moved", "--sha256", right, "--name", "by-url")["image_id"]
        shown, = self.js("get", "images")
        self.assertEqual((shown["image"], shown["name"], shown["size"]), (image, "by-url", 1 << 20))
        self.ok("admin", "images", "remove", image)
        self.wait(lambda: not self.js("get", "images"))

    def test_certificate(self):
        before, before_s3 = self.server_certificate(), self.server_certificate(self.s3_port)
        for certificate in (before, before_s3):
            names = [v for _, v in certificate["subjectAltName"]]
            for name in ("localhost", "127.0.0.1", "s3.localhost", "*.s3.localhost"):
                self.assertIn(name, names)
        self.assertEqual(self.js("admin", "cert", "renew"), {"renewed": False})
        self.assertEqual(self.js("admin", "cert", "renew", "--force"), {"renewed": True})
        self.wait(lambda: self.server_certificate()["serialNumber"] != before["serialNumber"])
        self.wait(lambda: self.server_certificate(self.s3_port)["serialNumber"] != before_s3["serialNumber"])

    def test_up_when_it_is_up(self):
        pid = self.supervisor()
        self.ok("up", "--detach")
        self.assertEqual(self.supervisor(), pid)
        self.refused(1, "running already", "up")

    def test_a_killed_supervisor(self):
        pid = self.supervisor()
        os.kill(pid, signal.SIGKILL)
        self.ok("up", "--detach")
        self.assertNotEqual(self.supervisor(), pid)
        self.assertEqual(self.ok("get", "nodes"), HEADER + ROW)
        with open(self.path("data", "log", "spx-up.log")) as f:
            self.assertRegex(f.read(), "service.ready name=awsgw")

    def test_down_and_up(self):
        accounts = self.js("get", "accounts")
        self.ok("down")
        self.ok("down")
        start = time.monotonic()
        self.refused(1, "is it running", "get", "nodes")
        self.assertLess(time.monotonic() - start, 5)
        # Now the store is free: init finds everything and changes nothing.
        out = self.ok(*self.init_args)
        self.assertIn(accounts[0]["account"], out)
        self.ok("up", "--detach")
        self.assertEqual(self.js("get", "accounts"), accounts)

    def test_usage(self):
        self.refused(2, r"did you mean 'images'", "admin", "image")
        self.refused(2, r"did you mean --output", "get", "nodes", "--outptu", "json")
        self.refused(2, "one argument too many", "get", "nodes", "x")
        self.refused(2, "missing argument", "admin", "state", "get")
        self.refused(2, "--nodes is 3", "admin", "init", "--nodes", "3", "--config-dir", self.path("none"))
        self.assertRegex(self.ok("version"), r"^spx [0-9]+\.[0-9]+\.[0-9]+\n$")
        r = self.run_spx("admin", "state", "get", "none", "--output", "json")
        self.assertEqual(json.loads(r.stderr)["error"]["code"], "KeyNotFound")
        todo = [[]]
        while todo: # every command has --help, and lists those below it
            words = todo.pop()
            text = self.ok(*words, "--help")
            self.assertRegex(text, r"(?m)^Usage: spx")
            if re.search(r"(?m)^Commands:$", text):
                below = text.split("Commands:\n")[1].split("\n\n")[0]
                todo += [words + [line.split()[0]] for line in below.splitlines() if words + [line.split()[0]] != ["aws"]]

    def test_config_mistakes(self):
        path = self.path("typo.toml")
        with open(path, "w") as f:
            f.write('version = 4\nnode = "n"\n[nodes.n]\ndata_dri = "/x"\n')
        self.refused(1, rf"{path}:4: unknown key 'nodes.n.data_dri' \(did you mean 'data_dir'\?\)", "config", "check", path)
        self.assertIn("`network.guest_mtu`", self.ok("config", "doc"))


class CutShort(unittest.TestCase):
    """init ended anywhere, and run again: what a kill leaves behind is made by taking away what comes after it."""
    LATER = ["etc/spinifex.toml", "data/state/state.db", "data/keys/root.key", "data/awsgw/server.pem", "data/awsgw/server.key",
             "data/predastore/root.key", "data/predastore/server.key", "data/predastore", "etc/ca.pem", "data/keys/ca.key", "run", "data"]

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="spxc-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_") and k not in ("SUDO_USER", "SPX_CONFIG")}
        self.env["HOME"] = self.dir

    def init(self, *more):
        return subprocess.run([SPX, "admin", "init", "--config-dir", f"{self.dir}/etc", "--data-dir", f"{self.dir}/data", "--run-dir", f"{self.dir}/run",
                               "--uid-base", "0", *more], env=self.env, capture_output=True, text=True, timeout=60)

    def read(self, name):
        with open(f"{self.dir}/{name}", "rb") as f:
            return f.read()

    def test_every_step(self):
        for n in range(1, len(self.LATER) + 1):
            self.assertEqual(self.init().returncode, 0)
            root_key = self.read("data/keys/root.key")
            for name in self.LATER[:n]:
                path = f"{self.dir}/{name}"
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            for suffix in ("-wal", "-shm", ".lock"):
                if not os.path.exists(f"{self.dir}/data/state/state.db") and os.path.exists(f"{self.dir}/data/state/state.db{suffix}"):
                    os.unlink(f"{self.dir}/data/state/state.db{suffix}")
            r = self.init()
            self.assertEqual(r.returncode, 0, f"{self.LATER[:n]}: {r.stderr}")
            self.assertEqual(subprocess.run([SPX, "config", "check", f"{self.dir}/etc/spinifex.toml"], env=self.env, capture_output=True).returncode, 0)
            if n < 3:
                self.assertEqual(self.read("data/keys/root.key"), root_key)
            for service in ("awsgw", "predastore"):
                self.assertEqual(subprocess.run(["openssl", "verify", "-CAfile", f"{self.dir}/etc/ca.pem", f"{self.dir}/data/{service}/server.pem"],
                                                capture_output=True).returncode, 0)
            self.assertEqual(self.read("data/predastore/root.key"), self.read("data/keys/root.key"))

    def test_what_an_older_version_made_is_completed(self):
        """A node from before there were objects: 'admin prepare' (which 'up' does too) adds what they need and touches nothing else."""
        self.assertEqual(self.init().returncode, 0)
        shutil.rmtree(f"{self.dir}/data/predastore")
        text = self.read("etc/spinifex.toml").decode()
        with open(f"{self.dir}/etc/spinifex.toml", "w") as f:
            f.write(text[:text.index("\n# The object store")])
        kept = ("etc/spinifex.toml", "etc/ca.pem", "data/keys/root.key", "data/keys/ca.key", "data/awsgw/server.pem", "data/awsgw/server.key")
        before = [self.read(n) for n in kept]
        for _ in range(2):
            r = subprocess.run([SPX, "admin", "prepare", "--config", f"{self.dir}/etc/spinifex.toml"], env=self.env, capture_output=True, text=True)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual([self.read(n) for n in kept], before)
            self.assertEqual(self.read("data/predastore/root.key"), before[2])
        self.assertEqual(r.stderr, "")
        for name in ("root.key", "server.key"):
            self.assertEqual(stat.S_IMODE(os.stat(f"{self.dir}/data/predastore/{name}").st_mode), 0o600)
        self.assertTrue(os.path.isdir(f"{self.dir}/data/predastore/drive1"))
        for host in ("localhost", "127.0.0.1", "s3.localhost", "films.s3.localhost", "films.s3.ap-southeast-2.compute.internal"):
            check = "-verify_ip" if host[0] == "1" else "-verify_hostname"
            for service in ("awsgw", "predastore"):
                r = subprocess.run(["openssl", "verify", "-CAfile", f"{self.dir}/etc/ca.pem", check, host, f"{self.dir}/data/{service}/server.pem"],
                                   capture_output=True, text=True)
                self.assertEqual(r.returncode, 0, r.stdout + r.stderr)

    def test_folders_of_others_are_no_drives(self):
        for name in ("mine", "new", "disk"):
            os.mkdir(f"{self.dir}/{name}", 0o755)
        os.mkdir(f"{self.dir}/disk/lost+found")
        with open(f"{self.dir}/mine/thesis.tex", "w") as f:
            f.write("x")
        if os.geteuid() == 0:
            os.chown(f"{self.dir}/mine", 12345, 12345)
        r = self.init("--drives", f"{self.dir}/mine,{self.dir}/new,{self.dir}/disk", "--uid-base", "70000" if os.geteuid() == 0 else "0")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertIn(b"rs = { data = 2, parity = 1 }", self.read("etc/spinifex.toml"))
        if os.geteuid() == 0:
            self.assertRegex(r.stderr, "drive 1 of the object store is left out: .*mine is somebody's folder")
            self.assertEqual([(os.stat(f"{self.dir}/{n}").st_uid, stat.S_IMODE(os.stat(f"{self.dir}/{n}").st_mode)) for n in ("mine", "new", "disk")],
                             [(12345, 0o755), (70005, 0o700), (70005, 0o700)])
            self.assertEqual([os.stat(f"{self.dir}/data/predastore/{n}").st_uid for n in ("root.key", "server.pem", "server.key", ".")], [70005] * 4)

    def test_drives_and_code_do_not_fit(self):
        r = self.init("--drives", f"{self.dir}/a,{self.dir}/a/b")
        self.assertEqual(r.returncode, 1)
        self.assertIn("one lies in the other", r.stderr)
        r = self.init("--drives", "a")
        self.assertEqual(r.returncode, 1)
        self.assertIn("must be an absolute path", r.stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/etc/spinifex.toml"))

    def test_a_lost_authority_is_not_replaced(self):
        self.assertEqual(self.init().returncode, 0)
        os.unlink(f"{self.dir}/data/keys/ca.key")
        r = self.init()
        self.assertEqual(r.returncode, 1)
        self.assertIn("ca.key is not", r.stderr)
        self.assertIn("bring it back from a copy", r.stderr)

    def test_force_keeps_keys_and_accounts(self):
        first = self.init()
        before = [self.read(n) for n in ("data/keys/root.key", "data/keys/ca.key", "etc/ca.pem", ".aws/credentials")]
        r = self.init("--force", "--region", "eu-west-7")
        self.assertEqual(r.returncode, 0, r.stderr)
        self.assertEqual([self.read(n) for n in ("data/keys/root.key", "data/keys/ca.key", "etc/ca.pem", ".aws/credentials")], before)
        self.assertIn(b'region = "eu-west-7"', self.read("etc/spinifex.toml"))
        self.assertEqual(re.search("account +([0-9]+)", first.stdout)[1], re.search("account +([0-9]+)", r.stdout)[1])

    def test_a_root_key_that_others_may_read(self):
        self.assertEqual(self.init().returncode, 0)
        os.chmod(f"{self.dir}/data/keys/root.key", 0o644)
        r = self.init()
        self.assertEqual(r.returncode, 1)
        self.assertIn("others may read", r.stderr)

    def test_a_full_disk(self):
        if os.geteuid() != 0:
            self.skipTest("a small file system needs root")
        os.mkdir(f"{self.dir}/data")
        for kib in (64, 128, 256, 512):
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=0755", "none", f"{self.dir}/data"], check=True)
            try:
                r = self.init()
                self.assertIn(r.returncode, (0, 1))
                if r.returncode == 1:
                    self.assertFalse(os.path.exists(f"{self.dir}/etc/spinifex.toml"))
                    self.assertRegex(r.stderr, "spx admin init: .")
                    self.assertNotIn("Sanitizer", r.stderr)
            finally:
                subprocess.run(["umount", f"{self.dir}/data"], check=True)
            shutil.rmtree(f"{self.dir}/etc", ignore_errors=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
