#!/usr/bin/env python3
"""The API and the services at rest: how fast they start, what they hold, how soon a request is answered.

  SPX_BUILD=build-bench bench/api/bench.py [--json FILE] [--rounds N] [--seconds S] [--instances N] [--only WORD]

start: "spx up" with all services, then their memory and CPU while nothing happens. run: RunInstances with real guests (emulated where KVM does not work),
answered and running. describe: a store full of instances of a host that is played. small: one small signed request beside nginx with a small file.
churn: DescribeInstances while 200 instances come and go. Needs root (start, run), wrk and nginx (small), boto3 (SPX_PYTHON), and SPX_MINI for run.
"""
import argparse
import http.client
import os
import shutil
import signal
import ssl
import statistics
import subprocess
import sys
import threading
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, ".."), os.path.join(here, "..", "..", "tests", "lib")]
import cloud as cloud_lib  # noqa: E402
import guests  # noqa: E402
from lib import Nginx, Row, machine, nginx_version, rows, rss_kib, run_us, wrk, write_results  # noqa: E402

args = None
MIB_KIB = 1024
SERVICES = ("spx-state", "spx-viperblock", "spx-vpcd", "spx-compute", "spx-awsgw", "spx-predastore")


def wanted(word):
    return not args.only or args.only in word


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p / 100))]


class Wire:
    """One kept connection that sends a signed GET as it is: what boto3 spends is not measured."""

    def __init__(self, cloud):
        self.cloud = cloud
        self.conn = http.client.HTTPSConnection("127.0.0.1", cloud.port, context=ssl.create_default_context(cafile=cloud.ca))
        self.conn.connect()

    def path(self, service, operation, **params):
        url = self.cloud.client(service).generate_presigned_url(operation, Params=params, ExpiresIn=3600, HttpMethod="GET")
        return "/" + url.split("/", 3)[3]

    def get(self, path):
        """Milliseconds to the last byte, and the body."""
        start = time.perf_counter()
        self.conn.request("GET", path)
        r = self.conn.getresponse()
        body = r.read()
        took = (time.perf_counter() - start) * 1000
        if r.status != 200:
            raise SystemExit(f"{path[:60]}: {r.status} {body[:300]}")
        return took, body


# ---- spx up ----

def pids_below(pid):
    """Name and pid of the services that a supervisor started."""
    found = {}
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        for child in map(int, f.read().split()):
            with open(f"/proc/{child}/cmdline", "rb") as c:
                name = os.path.basename(c.read().split(b"\0")[0].decode())
            if name in SERVICES:
                found[name] = child
    return found


def start():
    c = cloud_lib.Cloud()
    up, kib, idle = [], [], []
    detail = ""
    try:
        c.init(uid_base=70000)
        for _ in range(args.rounds):
            began = time.perf_counter()
            c.spx("up", "--detach")
            up.append(time.perf_counter() - began)
            # Every service answered; that they are there is written a moment later.
            cloud_lib.wait_for("the node is ready", lambda: all(s["status"] == "Ready" for s in c.spx_json("get", "nodes")))
            with open(os.path.join(c.run, "up.lock")) as f:
                supervisor = int(f.read().split()[0])
            pids = {"spx up": supervisor, **pids_below(supervisor)}
            assert len(pids) == len(SERVICES) + 1, pids
            time.sleep(5)  # what a start leaves to be done
            before = run_us(pids.values())
            time.sleep(args.seconds * 3)
            idle.append((run_us(pids.values()) - before) / (args.seconds * 3e6) * 100)
            sizes = {n: rss_kib(p) / MIB_KIB for n, p in pids.items()}
            kib.append(sum(sizes.values()))
            detail = ", ".join(f"{n.removeprefix('spx-')} {v:.0f}" for n, v in sizes.items())
            c.spx("down")
    finally:
        c.spx("down", check=False)
        c.close()
    Row("spx up, until all services are ready", "s", up, 2)
    Row("resident memory of all services, idle", "MiB", kib, 120, note=detail)
    Row("CPU of all services, idle", "% core", idle, 1)


# ---- real guests ----

def run():
    guests.set_up()
    answered, running = [], []
    try:
        ec2 = guests.cloud.client("ec2")
        want = dict(ImageId=guests.ami, InstanceType="t3.nano", MinCount=1, MaxCount=1)
        for i in range(args.rounds * 2 + 1):
            began = time.perf_counter()
            instance = ec2.run_instances(**want)["Instances"][0]["InstanceId"]
            done = time.perf_counter()
            while ec2.describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"][0]["State"]["Name"] == "pending":
                time.sleep(0.02)
            if i > 0:  # the first makes the network, the base of the image and the client's connection
                answered.append((done - began) * 1000)
                running.append(time.perf_counter() - done)
            ec2.terminate_instances(InstanceIds=[instance])
            ec2.get_waiter("instance_terminated").wait(InstanceIds=[instance], WaiterConfig=guests.SLOW)
    finally:
        guests.tear_down()
    Row("RunInstances answered (boto3's time is in it)", "ms", answered, 100)
    Row("instance running, after the answer", "s", running, 1)


# ---- many instances, without a host ----

def played_cloud(vcpus):
    c = cloud_lib.Cloud()
    try:
        c.init()
        c.only("state", "awsgw", "compute")
        with open(c.config) as f:
            text = f.read()
        with open(c.config, "w") as f:  # public addresses for all of them
            f.write(text.replace('"198.51.100.250"', '"198.18.15.250"').replace('"198.51.100.', '"198.18.0.').replace("prefix_len = 24", "prefix_len = 16"))
        c.start("state", "awsgw")
        c.start("fakehost", args=("--vcpus", str(vcpus)))
        cloud_lib.wait_for("instance types", lambda: c.client("ec2").describe_instance_types()["InstanceTypes"])
    except BaseException:
        c.close()
        raise
    return c


def launch(ec2, n, **kw):
    out = ec2.run_instances(ImageId="ami-00000000000000001", InstanceType="t3.nano", MinCount=n, MaxCount=n, **kw)
    return [i["InstanceId"] for i in out["Instances"]]


def describe():
    c = played_cloud(args.instances * 2)
    try:
        ec2 = c.client("ec2")
        for _ in range(args.instances // 50):
            launch(ec2, 50)
        n = args.instances // 50 * 50
        cloud_lib.wait_for("all running", lambda: len([1 for p in ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "instance-state-name", "Values": ["running"]}]) for r in p["Reservations"] for i in r["Instances"]]) == n, 120)
        wire, pid = Wire(c), c.procs["awsgw"].pid
        path = wire.path("ec2", "describe_instances")
        body = wire.get(path)[1]
        assert body.count(b"<instanceId>") >= n, body.count(b"<instanceId>")
        cpu, wall = [], []
        for _ in range(args.rounds * 3):
            before = run_us([pid])
            took = [wire.get(path)[0] for _ in range(10)]
            cpu.append((run_us([pid]) - before) / 10 / 1000)
            wall.append(statistics.median(took))
        Row(f"DescribeInstances, {n} instances", "CPU ms", cpu, 10, note=f"{statistics.median(wall):.1f} ms on the wire, {len(body) / 1e6:.1f} MB")
        one = wire.path("ec2", "describe_instances", InstanceIds=[launch(ec2, 1)[0]])
        before = run_us([pid])
        for _ in range(100):
            wire.get(one)
        Row(f"DescribeInstances of one among {n}", "CPU us", [(run_us([pid]) - before) / 100])
    finally:
        c.close()


def churn():
    c = played_cloud(1200)
    try:
        ec2 = c.client("ec2")
        keep = launch(ec2, 20)
        wire = Wire(c)
        path = wire.path("ec2", "describe_instances")
        ends, failures = threading.Event(), []

        def come_and_go():
            try:
                mine = c.client("ec2")
                for _ in range(args.rounds):
                    ids = [i for _ in range(10) for i in launch(mine, 20)]
                    for k in range(0, 200, 20):
                        mine.terminate_instances(InstanceIds=ids[k:k + 20])
            except Exception as e:  # shown below: a thread's exception ends nothing
                failures.append(e)
            ends.set()

        thread = threading.Thread(target=come_and_go)
        thread.start()
        took = []
        while not ends.is_set():
            ms, body = wire.get(path)
            assert keep[0].encode() in body
            took.append(ms)
            time.sleep(0.005)
        thread.join()
        if failures:
            raise failures[0]
        Row("DescribeInstances while 200 come and go: p99", "ms", [percentile(took, 99)], 50,
            note=f"{len(took)} requests, p50 {percentile(took, 50):.1f}, slowest {max(took):.1f} ms; clients and services share the CPUs")
    finally:
        c.close()


# ---- one small request ----

def small():
    c = cloud_lib.Cloud()
    nginx = None
    try:
        c.init()
        c.only("state", "awsgw")
        c.start("state", "awsgw")
        wire = Wire(c)
        path = wire.path("sts", "get_caller_identity")
        body = wire.get(path)[1]
        nginx = Nginx(c.dir, os.path.join(c.data, "awsgw/server.pem"), os.path.join(c.data, "awsgw/server.key"))
        with open(os.path.join(nginx.root, "small"), "wb") as f:
            f.write(body)
        ours, theirs = os.path.join(c.dir, "ours"), os.path.join(c.dir, "theirs")
        with open(ours, "w") as f:
            f.write(f"GET {path}\n")
        with open(theirs, "w") as f:
            f.write("GET /small\n")
        a, b, rate = [], [], []
        gw = [c.procs["awsgw"].pid]
        for _ in range(args.rounds):
            pids = nginx.pids()
            before = run_us(pids)
            got = wrk(nginx.url, theirs, 0, 16, args.seconds)
            b.append((run_us(pids) - before) / got["requests"])
            before = run_us(gw)
            got = wrk(f"https://127.0.0.1:{c.port}", ours, 0, 16, args.seconds)
            a.append((run_us(gw) - before) / got["requests"])
            rate.append(got["requests"] / got["us"] * 1e6)
        Row(f"nginx, a file of {len(body)} bytes, TLS", "CPU us", b)
        Row("GetCallerIdentity, signed, TLS", "CPU us", a, note=f"{statistics.median(rate):,.0f} requests/s, {wrk_note(got)}")
        Row("GetCallerIdentity beside nginx", "x nginx", [x / y for x, y in zip(a, b)], 1.3)
    finally:
        if nginx:
            nginx.stop()
        c.close()


def wrk_note(got):
    return f"p50 {got['p50_us'] / 1000:.1f} ms, p99 {got['p99_us'] / 1000:.1f} ms"


def main():
    global args
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", default=os.path.join(here, "..", "results", "api.json"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=int, default=3)
    p.add_argument("--instances", type=int, default=1000)
    p.add_argument("--only", default="")
    args = p.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("networks and guests are the kernel's: sudo")
    cloud_lib.isolate()  # links, routes and rules are not the host's
    before = machine(**(nginx_version() if shutil.which("nginx") else {}))
    parts = {"describe": describe, "churn": churn}
    if shutil.which("nginx") and shutil.which("wrk"):
        parts["small"] = small
    else:
        print("small: not measured, wrk or nginx is not installed")
    if os.environ.get("SPX_MINI"):
        parts = {**parts, "start": start, "run": run}
    try:
        for word, part in parts.items():
            if not wanted(word):
                continue
            part()
    finally:
        if rows:
            write_results("api", "API and services at rest", args.json, before, f"{args.rounds} rounds; medians.", rounds=args.rounds)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
