#!/usr/bin/env python3
"""S3 beside nginx in the same run: CPU time of the servers for an operation, TLS on both sides, rounds in turn.

  SPX_BUILD=build-bench bench/s3/bench.py [--json FILE] [--rounds N] [--seconds S] [--keys N] [--only WORD]

nginx serves files and takes them by WebDAV: it neither hashes, seals nor syncs, so it is a floor. Server CPU is utime and stime of its processes; the
client's does not count. Medians of the rounds and their range. Needs wrk, nginx, openssl, a C compiler, and boto3 (SPX_PYTHON).
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import shutil
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, ".."), os.path.join(here, "..", "..", "tests", "lib")]
import cloud as cloud_lib  # noqa: E402
from lib import GIB, KIB, MIB, Nginx, Row, cpu_us, machine, nginx_version, rows, rss_kib, wrk, write_results  # noqa: E402

import boto3.s3.transfer  # noqa: E402
import botocore.config  # noqa: E402

N_URLS = 1000  # objects that a row turns through
args = None


class Store:
    """State, predastore and (for the relayed rows) the gateway."""

    def __init__(self, drives=1, preload=None, is_sealed=True):
        self.c = cloud_lib.Cloud()
        self.c.init(*(["--drives", ",".join(os.path.join(self.c.dir, f"drive{i}") for i in range(drives))] if drives > 1 else []))
        if not is_sealed:
            with open(self.c.config) as f:
                text = f.read()
            with open(self.c.config, "w") as f:
                f.write(text.replace("encrypt = true", "encrypt = false"))
        self.c.start("state", "awsgw")
        if preload:
            os.environ["LD_PRELOAD"] = preload
        self.c.start("predastore")
        os.environ.pop("LD_PRELOAD", None)
        self.url = f"https://localhost:{self.c.s3_port}"
        self.relay_url = f"https://localhost:{self.c.port}"
        self.s3 = self.client(self.url)
        self.relay = self.client(self.relay_url)
        self.s3.create_bucket(Bucket="bench", CreateBucketConfiguration={"LocationConstraint": cloud_lib.REGION})

    def client(self, url):
        return self.c.client("s3", endpoint=url, config=botocore.config.Config(
            s3={"addressing_style": "path"}, signature_version="s3v4", request_checksum_calculation="when_required", response_checksum_validation="when_required"))

    def pids(self):
        return [self.c.procs["predastore"].pid]

    def gateway_pids(self):
        return [self.c.procs["awsgw"].pid]

    def stats(self):
        return self.c.spx_json("top", "storage")["stats"]

    def urls(self, method, keys, relayed=False):
        s3 = self.relay if relayed else self.s3
        op = "put_object" if method == "PUT" else "get_object"
        prefix = len(self.relay_url if relayed else self.url)
        return [s3.generate_presigned_url(op, Params={"Bucket": "bench", "Key": k}, ExpiresIn=3600)[prefix:] for k in keys]

    def stop(self):
        self.c.close()


def load_file(folder, name, method, paths):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.writelines(f"{method} {p}\n" for p in paths)
    return path


def measure(pids, *run):
    before = cpu_us(pids)
    got = wrk(*run, args.seconds)
    got["cpu_us"] = (cpu_us(pids) - before) / got["requests"]
    got["rate"] = got["requests"] / got["us"] * 1e6
    return got


def compare(name, ours, theirs, target, unit="us"):
    """Rounds in turn: CPU of an operation here, there, and the ratio."""
    a, b = [], []
    for _ in range(args.rounds):
        b.append(measure(*theirs))
        a.append(measure(*ours))
    Row(f"{name}: nginx", f"CPU {unit}/op", [x["cpu_us"] for x in b])
    Row(f"{name}: S3", f"CPU {unit}/op", [x["cpu_us"] for x in a],
        note=f"{statistics.median(x['rate'] for x in a):,.0f} op/s, p50 {a[-1]['p50_us'] / 1000:.1f} ms, p99 {a[-1]['p99_us'] / 1000:.1f} ms; "
             f"nginx {statistics.median(x['rate'] for x in b):,.0f} op/s")
    Row(f"{name}: ratio", "x nginx", [x["cpu_us"] / y["cpu_us"] for x, y in zip(a, b)], target)
    return a


def wanted(word):
    return not args.only or args.only in word


def small_and_large(store, nginx, folder):
    names = [f"k{i:05}" for i in range(N_URLS)]
    for size, label, get_max, put_max, conns in ((4 * KIB, "4 KiB", 2.0, 2.5, 16), (MIB, "1 MiB", 1.5, 2.7, 8)):
        keys = [f"{size}/{n}" for n in (names if size < MIB else names[:100])]
        paths = [f"/bench/{k}" for k in keys]
        put_ours = load_file(folder, f"put-ours-{size}", "PUT", store.urls("PUT", keys))
        put_theirs = load_file(folder, f"put-theirs-{size}", "PUT", paths)
        get_ours = load_file(folder, f"get-ours-{size}", "GET", store.urls("GET", keys))
        get_theirs = load_file(folder, f"get-theirs-{size}", "GET", paths)
        body = os.urandom(size)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda k, body=body: store.s3.put_object(Bucket="bench", Key=k, Body=body), keys))
        os.makedirs(os.path.join(nginx.root, "bench", str(size)), exist_ok=True)
        for p in paths:
            with open(nginx.root + p, "wb") as f:
                f.write(body)
        if wanted("get"):
            compare(f"GET {label}", (store.pids(), store.url, get_ours, 0, conns), (nginx.pids(), nginx.url, get_theirs, 0, conns), get_max)
        if wanted("put"):
            compare(f"PUT {label}", (store.pids(), store.url, put_ours, size, conns), (nginx.pids(), nginx.url, put_theirs, size, conns), put_max)
        if wanted("relay") and size < MIB:
            relayed = load_file(folder, "get-relayed", "GET", store.urls("GET", keys, relayed=True))
            got = [measure(store.gateway_pids(), store.relay_url, relayed, 0, conns) for _ in range(args.rounds)]
            Row(f"GET {label} through 9999: the gateway's share", "CPU us/op", [x["cpu_us"] for x in got])


def durability(store, folder, nosync):
    """64 clients that write: what syncing costs, and how many share a sync."""
    keys = [f"sync/{i:05}" for i in range(4 * N_URLS)]
    free = Store(preload=nosync)
    try:
        a, b, shares = [], [], []
        for _ in range(args.rounds):
            before = store.stats()
            a.append(measure(store.pids(), store.url, load_file(folder, "put-sync", "PUT", store.urls("PUT", keys)), 4 * KIB, 64))
            after = store.stats()
            shares.append((after["syncs"] - before["syncs"]) / a[-1]["requests"])
            b.append(measure(free.pids(), free.url, load_file(folder, "put-nosync", "PUT", free.urls("PUT", keys)), 4 * KIB, 64))
    finally:
        free.stop()
    Row("PUT 4 KiB, 64 clients: durable", "op/s", [x["rate"] for x in a], note=f"p50 {a[-1]['p50_us'] / 1000:.1f} ms, p99 {a[-1]['p99_us'] / 1000:.1f} ms")
    Row("PUT 4 KiB, 64 clients: syncing off", "op/s", [x["rate"] for x in b])
    Row("PUT 4 KiB, 64 clients: durable beside syncing off", "x", [x["rate"] / y["rate"] for x, y in zip(a, b)], 0.8, is_max=False)
    Row("PUT 4 KiB, 64 clients: syncs per PUT", "syncs", shares, 0.125)


def curl(url, method, path):
    """One transfer of a file by curl: seconds."""
    what = ["-T", path] if method == "PUT" else ["-o", "/dev/null"]
    start = time.monotonic()
    p = subprocess.run(["curl", "-sS", "-k", "--fail", "-H", "Expect:", *what, url], capture_output=True, text=True)
    if p.returncode != 0:
        raise SystemExit(f"curl {method} {url}: {p.stderr}")
    return time.monotonic() - start


def transfer(pids, url, method, path):
    """CPU of the server, and seconds."""
    before = cpu_us(pids)
    seconds = curl(url, method, path)
    return cpu_us(pids) - before, seconds


def md5_us(path):
    """CPU of MD5 over as many bytes, one stream, out of memory."""
    with open(path, "rb") as f:
        piece = f.read(8 * MIB)
    digest = hashlib.md5()
    before = time.process_time()
    for _ in range(GIB // len(piece)):
        digest.update(piece)
    return (time.process_time() - before) * 1e6


def one_gib(store, nginx, folder):
    path = os.path.join(folder, "gib")
    piece = os.urandom(MIB)
    with open(path, "wb") as f:
        for _ in range(1024):
            f.write(piece)
    os.makedirs(os.path.join(nginx.root, "gib"), exist_ok=True)
    open_store = Store(is_sealed=False)
    put, get, floor_put, floor_get = {}, {}, [], []
    try:
        for _ in range(args.rounds):
            floor_put.append(transfer(nginx.pids(), f"{nginx.url}/gib/one", "PUT", path)[0] + md5_us(path))
            floor_get.append(transfer(nginx.pids(), f"{nginx.url}/gib/one", "GET", path)[0])
            for name, st in (("sealed", store), ("not sealed", open_store)):
                put.setdefault(name, []).append(transfer(st.pids(), st.url + st.urls("PUT", ["gib"])[0], "PUT", path))
                get.setdefault(name, []).append(transfer(st.pids(), st.url + st.urls("GET", ["gib"])[0], "GET", path))
    finally:
        open_store.stop()
    for what, ours, floor, label in (("PUT", put, floor_put, "floor (nginx and MD5)"), ("GET", get, floor_get, "floor (nginx)")):
        Row(f"1 GiB {what}: {label}", "CPU ms", [x / 1000 for x in floor])
        for name, runs in ours.items():
            Row(f"1 GiB {what}, {name}: S3", "CPU ms", [x[0] / 1000 for x in runs], note=f"{1024 / statistics.median(x[1] for x in runs):,.0f} MiB/s")
            Row(f"1 GiB {what}, {name}: ratio", "x floor", [x[0] / y for x, y in zip(runs, floor)], 1.15)
    store.s3.delete_object(Bucket="bench", Key="gib")
    os.unlink(path)


def lists(store, folder):
    store.s3.create_bucket(Bucket="many", CreateBucketConfiguration={"LocationConstraint": cloud_lib.REGION})
    n = args.keys
    paths = [store.s3.generate_presigned_url("put_object", Params={"Bucket": "many", "Key": f"d{i % 1000:03}/{i:07}"}, ExpiresIn=3600)[len(store.url):]
             for i in range(n)]
    before = store.stats()["objects"]
    fill = subprocess.Popen(["wrk", "-t2", "-c64", "-d3600s", "--timeout", "30s", "-s", os.path.join(here, "..", "load.lua"), store.url, "--",
                             load_file(folder, "fill", "PUT", paths), "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while fill.poll() is None and store.stats()["objects"] - before < n:
        pass
    fill.terminate()
    fill.wait()
    label = f"{n:,} keys"
    for name, extra, target in (("list 1,000", {}, 10), ("list by delimiter", {"Delimiter": "/"}, 20)):
        took, cpu = [], []
        for i in range(20):
            start = {} if extra else {"StartAfter": f"d{i * 37 % 1000:03}/"}
            before = cpu_us(store.pids())
            url = store.s3.generate_presigned_url("list_objects_v2", Params={"Bucket": "many", **extra, **start})
            got = subprocess.run(["curl", "-sS", "-k", "-o", "/dev/null", "-w", "%{time_starttransfer} %{time_appconnect} %{http_code}", url],
                                 capture_output=True, text=True, check=True).stdout.split()
            assert got[2] == "200", got
            took.append((float(got[0]) - float(got[1])) * 1000)
            cpu.append((cpu_us(store.pids()) - before) / 1000)
        Row(f"{name} of {label}", "ms", took, target, note=f"CPU {statistics.mean(cpu):.1f} ms")


def idle(store):
    """Connections that have handshaken and say nothing."""
    want = 5000
    before = rss_kib(store.pids()[0])
    context = ssl.create_default_context(cafile=store.c.ca)
    kept = []
    for i in range(want):
        s = socket.create_connection(("127.0.0.1", store.c.s3_port), source_address=(f"127.0.1.{1 + i % 50}", 0))
        kept.append(context.wrap_socket(s, server_hostname="localhost"))
    alive = 0
    grown = (rss_kib(store.pids()[0]) - before) / 1024
    start = time.monotonic()
    store.s3.head_bucket(Bucket="bench")
    took = (time.monotonic() - start) * 1000
    for s in kept:
        s.setblocking(False)
        try:
            alive += s.recv(1) != b""
        except (ssl.SSLWantReadError, BlockingIOError):
            alive += 1
        except OSError:
            pass
    for s in kept:
        s.close()
    Row(f"{alive:,} idle TLS connections of {want:,}: memory", "MiB", [grown], 200, note=f"a request beside them took {took:.1f} ms")


def erasure(store, folder):
    other = Store(drives=6)
    try:
        keys = [f"rs/{i}" for i in range(100)]
        a, b = [], []
        for _ in range(args.rounds):
            a.append(measure(store.pids(), store.url, load_file(folder, "rs10", "PUT", store.urls("PUT", keys)), MIB, 8))
            b.append(measure(other.pids(), other.url, load_file(folder, "rs42", "PUT", other.urls("PUT", keys)), MIB, 8))
    finally:
        other.stop()
    Row("PUT 1 MiB, RS(1,0)", "CPU us/op", [x["cpu_us"] for x in a])
    Row("PUT 1 MiB, RS(4,2)", "CPU us/op", [x["cpu_us"] for x in b])
    Row("PUT 1 MiB, RS(4,2) beside RS(1,0)", "x", [y["cpu_us"] / x["cpu_us"] for x, y in zip(a, b)], 1.3)


def main():
    global args
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", default=os.path.join(here, "..", "results", "s3.json"))
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=int, default=3)
    p.add_argument("--keys", type=int, default=100_000)
    p.add_argument("--only", default="")
    args = p.parse_args()
    lost = [x for x in ("wrk", "nginx", "openssl", "cc", "curl") if not shutil.which(x)]
    if lost:
        print(f"not measured: {', '.join(lost)} not installed (apt-get install wrk nginx-light)")
        return
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(65536, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    before = machine(**nginx_version())
    store = Store()
    nginx = None
    try:
        folder = store.c.dir
        nosync = os.path.join(folder, "nosync.so")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", nosync, os.path.join(here, "nosync.c")], check=True)
        nginx = Nginx(folder, os.path.join(store.c.data, "predastore/server.pem"), os.path.join(store.c.data, "predastore/server.key"))
        if wanted("get put relay"):
            small_and_large(store, nginx, folder)
        if wanted("sync"):
            durability(store, folder, nosync)
        if wanted("gib"):
            one_gib(store, nginx, folder)
        if wanted("erasure"):
            erasure(store, folder)
        if wanted("idle"):
            idle(store)
        if wanted("list"):
            lists(store, folder)
    finally:
        if nginx:
            nginx.stop()
        store.stop()
        if rows:
            write_results("s3", "S3", args.json, before, f"{args.rounds} rounds of {args.seconds} s, in turn; medians.",
                          rounds=args.rounds, seconds=args.seconds)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
