"""A cloud of real services in a temporary folder, for tests: started, waited for, ended by pid.

Usage:  cloud = Cloud(bin_dir); cloud.init(); cloud.start("state", "awsgw", "fakehost"); ec2 = cloud.client("ec2")
Binaries are looked for below the build folder (argument or SPX_BUILD).  Nothing here touches /etc, the user's AWS files or other processes.
"""
import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time

for name in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
    os.environ.pop(name, None)
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

import boto3  # noqa: E402  (after the environment is clean)
import botocore.config  # noqa: E402
import botocore.exceptions  # noqa: E402

REGION = "ap-southeast-2"


def isolate():
    """Moves this process into a network and mount namespace of its own: links, routes and rules of the cloud under test are not the host's."""
    libc = ctypes.CDLL(None, use_errno=True)
    CLONE_NEWNS, CLONE_NEWNET, MS_REC, MS_PRIVATE = 0x20000, 0x40000000, 0x4000, 1 << 18
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare: these tests need root")
    libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    libc.mount(b"sysfs", b"/sys", b"sysfs", 0, None)
    os.makedirs("/run/netns", exist_ok=True)
    libc.mount(b"tmpfs", b"/run/netns", b"tmpfs", 0, None)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def map_hosts(*names):
    """Names that lead to this host, in the namespace of isolate() only."""
    own = tempfile.NamedTemporaryFile("w", prefix="spxt-hosts-", delete=False)
    with own, open("/etc/hosts") as old:
        own.write(old.read() + "\n127.0.0.1 localhost " + " ".join(names) + "\n")
    os.chmod(own.name, 0o644)
    MS_BIND = 4096
    if ctypes.CDLL(None, use_errno=True).mount(own.name.encode(), b"/etc/hosts", None, MS_BIND, None) != 0:
        raise OSError(ctypes.get_errno(), "binding a file over /etc/hosts")
    os.unlink(own.name)


def free_port():
    """A port below those that the kernel gives to clients: such a one may be taken before the service has it."""
    while True:
        port = random.SystemRandom().randrange(12000, 32000)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def find_binary(build, name):
    for folder, _, files in os.walk(build):
        if name in files and os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    raise FileNotFoundError(f"{name} is not below {build}: build it first")


class Cloud:
    ORDER = ("state", "predastore", "awsgw", "viperblock", "vpcd", "compute", "fakehost")
    USERS = {"state": 1, "awsgw": 2, "viperblock": 3, "predastore": 5}  # offsets from uid_base; the others start as root (docs/architecture.md)

    def __init__(self, build=None):
        self.uid_base = 0
        self.build = build or os.environ["SPX_BUILD"]
        self.dir = tempfile.mkdtemp(prefix="spxt-")
        self.etc = os.path.join(self.dir, "etc")
        self.data = os.path.join(self.dir, "data")
        self.run = os.path.join(self.dir, "run")
        self.port = free_port()
        self.s3_port = free_port()
        self.metrics_port = 0  # none
        self.procs = {}
        self.keys = {}  # account name -> (access key id, secret, account id)

    # ---- life ----

    def init(self, *extra, uid_base=0):
        self.uid_base = uid_base
        os.chmod(self.dir, 0o755)
        self.spx("admin", "init", "--node", "node1", "--nodes", "1", "--config-dir", self.etc, "--data-dir", self.data,
                 "--run-dir", self.run, "--host", "127.0.0.1", "--port", str(self.port), "--s3-port", str(self.s3_port), "--metrics-port", str(self.metrics_port), "--region", REGION,
                 "--uid-base", str(uid_base), "--no-profile", *extra, config=False)
        return self

    def only(self, *services):
        """The node is configured to run these and no others: what is not started is not missed."""
        with open(self.config) as f:
            text = f.read()
        with open(self.config, "w") as f:
            line = f"uid_base = {self.uid_base}\n"
            assert line in text
            f.write(text.replace(line, line + f"services = {json.dumps(services)}\n"))

    @property
    def config(self):
        return os.path.join(self.etc, "spinifex.toml")

    @property
    def ca(self):
        return os.path.join(self.etc, "ca.pem")

    def spx(self, *args, config=True, check=True, timeout=120, **kw):
        env = dict(os.environ, SPX_CONFIG=self.config) if config else dict(os.environ)
        p = subprocess.run([find_binary(self.build, "spx"), *args], capture_output=True, text=True, env=env, timeout=timeout, **kw)
        if check and p.returncode != 0:
            raise AssertionError(f"spx {' '.join(args)}: exit {p.returncode}\n{p.stdout}{p.stderr}")
        return p

    def spx_json(self, *args):
        return json.loads(self.spx(*args, "--output", "json").stdout)

    def start(self, *services, args=()):
        for name in services:
            log = open(os.path.join(self.dir, f"{name}.log"), "ab")
            binary = find_binary(self.build, f"spx-{name}")
            who = {}
            if self.uid_base and name in self.USERS:
                uid = self.uid_base + self.USERS[name]
                who = dict(user=uid, group=uid, extra_groups=[self.uid_base])
            self.procs[name] = subprocess.Popen([binary, "--config", self.config, *args], stdout=log, stderr=log,
                                                stdin=subprocess.DEVNULL, start_new_session=True, **who)
            log.close()
            self.wait_ready(name)

    def wait_ready(self, name, timeout=30):
        path = os.path.join(self.run, ("compute" if name == "fakehost" else name) + ".sock")
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if self.procs[name].poll() is not None:
                raise AssertionError(f"spx-{name} ended with {self.procs[name].returncode}:\n{self.log(name)}")
            try:
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(path)
                    return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"spx-{name} is not ready:\n{self.log(name)}")

    def kill9(self, name):
        p = self.procs.pop(name)
        p.kill()
        p.wait()

    def stop(self):
        for name in reversed(self.ORDER):
            p = self.procs.pop(name, None)
            if p and p.poll() is None:
                p.send_signal(signal.SIGTERM)
                try:
                    p.wait(20)
                except subprocess.TimeoutExpired:
                    p.kill()
                    p.wait()

    def close(self, keep=False):
        self.stop()
        if keep or os.environ.get("SPX_TEST_KEEP"):
            print(f"kept: {self.dir}")
        else:
            shutil.rmtree(self.dir, ignore_errors=True)

    def sanitizer_reports(self):
        """What AddressSanitizer and its like have written into the logs of services, those that have ended included."""
        found = []
        for name in self.ORDER:
            try:
                with open(os.path.join(self.dir, f"{name}.log"), errors="replace") as f:
                    lines = f.readlines()
            except OSError:
                continue
            for i, line in enumerate(lines):
                if "Sanitizer: " in line or "runtime error: " in line:
                    found.append(name + ": " + "".join(lines[i:i + 12]))
        return found

    def log(self, name, tail=40):
        try:
            with open(os.path.join(self.dir, f"{name}.log"), errors="replace") as f:
                return "".join(f.readlines()[-tail:])
        except OSError:
            return "(no log)"

    # ---- accounts and clients ----

    def account(self, name):
        """Credentials of an account, made when it is not there."""
        if name not in self.keys:
            a = self.spx_json("admin", "account", "create", name)
            self.keys[name] = (a["access_key_id"], a["secret_access_key"], a["account"])
            if "predastore" in self.procs:  # a new key gets around in a moment
                wait_for("predastore knows the key", lambda: self.is_known(name), 20)
        return self.keys[name]

    def is_known(self, name):
        try:
            return self.client("s3", name, endpoint=f"https://127.0.0.1:{self.s3_port}").list_buckets()
        except botocore.exceptions.ClientError as e:
            assert e.response["Error"]["Code"] == "InvalidAccessKeyId", e
            return None

    def client(self, service, account="one", endpoint=None, config=None, **kw):
        key, secret, _ = self.account(account)
        cfg = botocore.config.Config(retries={"max_attempts": 0}, max_pool_connections=64, read_timeout=60)
        return boto3.client(service, region_name=REGION, endpoint_url=endpoint or f"https://127.0.0.1:{self.port}", verify=self.ca,
                            aws_access_key_id=key, aws_secret_access_key=secret, config=cfg.merge(config) if config else cfg, **kw)

    def aws_env(self, account="one"):
        key, secret, _ = self.account(account)
        return dict(os.environ, AWS_ACCESS_KEY_ID=key, AWS_SECRET_ACCESS_KEY=secret, AWS_DEFAULT_REGION=REGION, AWS_CA_BUNDLE=self.ca,
                    AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE="/dev/null", AWS_PAGER="")

    def aws(self, *args, account="one", check=True):
        """The stock AWS CLI."""
        p = subprocess.run(["aws", "--endpoint-url", f"https://127.0.0.1:{self.port}", *args], capture_output=True, text=True,
                           env=self.aws_env(account), timeout=120)
        if check and p.returncode != 0:
            raise AssertionError(f"aws {' '.join(args)}: exit {p.returncode}\n{p.stdout}{p.stderr}")
        return p


def wait_for(what, fn, timeout=60, every=0.1):
    """Calls fn until it gives something true; the last answer is in the message when it never does."""
    end = time.monotonic() + timeout
    last = None
    while time.monotonic() < end:
        last = fn()
        if last:
            return last
        time.sleep(every)
    raise AssertionError(f"{what}: not within {timeout} s (last: {last!r})")


def api_cloud():
    """The real store and gateway with a fake host, ready for requests; nothing is left when that fails."""
    cloud = Cloud()
    try:
        cloud.init()
        cloud.only("state", "awsgw", "compute")
        cloud.start("state", "awsgw")
        cloud.start("fakehost")
        wait_for("instance types", lambda: cloud.client("ec2").describe_instance_types()["InstanceTypes"])
    except BaseException:
        cloud.close()
        raise
    return cloud
