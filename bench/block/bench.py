#!/usr/bin/env python3
"""The block engine beside raw io_uring and qemu-storage-daemon: one client, same patterns, rounds in turn.

  bench/block/bench.py --build FOLDER [--json FILE] [--dir FOLDER] [--rounds N] [--ms MS] [--size MIB] [--long SECONDS] [--only WORD]

Paths: raw (io_uring, O_DIRECT, on a file), engine (spx-viperblock-data with its whole stack, vhost-user-blk), crypt (the same, encrypted), QSD
(qemu-storage-daemon, vhost-user-blk, an iothread, io_uring). All files have the same size, are fully written, and lie in --dir. In each round
the cells come in another order; a ratio is that of two cells of one round. The first round is dropped. CPU is that of the server's threads.
A verdict needs a machine with room: when the load is above the number of CPUs rows say none (and print what they saw), and those that compare
speeds also when raw's own rounds differ by more than 1.5. CPU for an operation is least when completions come in batches; on a disk that others
keep busy they come one by one, and each wakes a thread.
"""
import argparse
import datetime
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(here, ".."))
from lib import GIB, MIB, Row, rows  # noqa: E402
args = None

# name: read percent, block, depth, jobs, sequential, flushed
PATTERNS = {
    "randread 4K QD32": (100, 4096, 32, 1, 0, 0),
    "randwrite 4K QD32": (0, 4096, 32, 1, 0, 0),
    "randrw 70/30 4K QD32": (70, 4096, 32, 1, 0, 0),
    "seqread 1M QD8": (100, MIB, 8, 1, 1, 0),
    "seqwrite 1M QD8": (0, MIB, 8, 1, 1, 0),
    "read 4K QD1": (100, 4096, 1, 1, 0, 0),
    "write+flush 4K QD1": (0, 4096, 1, 1, 0, 1),
    "seqwrite 1M QD32": (0, MIB, 32, 1, 1, 0),
    "randread 4K 4 x QD32": (100, 4096, 32, 4, 0, 0),
    "randwrite 4K 4 x QD32": (0, 4096, 32, 4, 0, 0),
}
CPU_TARGET = {"randread 4K QD32": 4.5, "randwrite 4K QD32": 6.0, "randrw 70/30 4K QD32": 5.5}
RATIO_TARGET = {"seqread 1M QD8": 0.95, "seqwrite 1M QD8": 0.95, "read 4K QD1": 0.90, "write+flush 4K QD1": 0.90}
WIDE = 1.5


def find(name):
    for folder, _, files in os.walk(args.build):
        if name in files and os.access(os.path.join(folder, name), os.X_OK):
            return os.path.join(folder, name)
    raise SystemExit(f"{name} is not in {args.build}: build it first")


def cpu_ns(pid):
    """Time on the CPU of all threads of a process, the kernel's workers for it too; finer than the ticks of stat."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as f:
                total += int(f.read().split()[0])
        except FileNotFoundError:
            pass
    return total


class Host:
    """The data process with its disks."""

    def __init__(self, folder):
        self.p = subprocess.Popen([find("block_host"), find("spx-viperblock-data"), folder, str(args.size * MIB), str(256 * MIB), "4"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        line = self.p.stdout.readline().split()
        if not line:
            raise SystemExit("the data process does not start")
        self.pid = int(line[1])

    def say(self, word):
        self.p.stdin.write(word + "\n")
        self.p.stdin.flush()
        return self.p.stdout.readline().split()

    def stop(self):
        self.p.stdin.close()
        self.p.wait(20)


class Qsd:
    def __init__(self, folder, queues):
        self.sock = os.path.join(folder, f"qsd{queues}.sock")
        self.p = subprocess.Popen(
            ["qemu-storage-daemon", "--blockdev", f"driver=file,filename={folder}/qsd,node-name=f,cache.direct=on,aio=io_uring",
             "--object", "iothread,id=i0", "--export", f"type=vhost-user-blk,id=e,node-name=f,addr.type=unix,addr.path={self.sock},writable=on,"
             f"num-queues={queues},iothread=i0"])
        self.pid = self.p.pid
        for _ in range(200):
            if os.path.exists(self.sock):
                return
            time.sleep(0.02)
        raise SystemExit("qemu-storage-daemon does not start")

    def stop(self):
        self.p.kill()
        self.p.wait()


class Bench:
    def __init__(self, folder):
        self.folder, self.loader, self.seed = folder, find("block_loader"), 0
        self.servers, self.cells = {}, {}

    def fill(self, how, path):
        subprocess.run([self.loader, how, path, str(args.size * MIB)], check=True)

    def run(self, path, pattern, ms=None, disk=None, size=None):
        """One cell: what the client saw, and the server's CPU time."""
        self.seed += 1
        way, target = ("raw", os.path.join(self.folder, "raw")) if path == "raw" else ("vu", disk or os.path.join(self.folder, f"{path}.sock"))
        pid = self.servers.get(path)
        before = cpu_ns(pid) if pid else 0
        p = subprocess.run([self.loader, way, target, str(size or args.size * MIB), *map(str, pattern), str(ms or args.ms), str(self.seed)],
                           check=True, stdout=subprocess.PIPE, text=True)
        r = json.loads(p.stdout)
        r["iops"] = r["ops"] / r["seconds"]
        r["server_us"] = (cpu_ns(pid) - before) / 1e3 / max(r["ops"], 1) if pid else None
        r["client_us"] = r["cpu_us"] / max(r["ops"], 1)
        return r

    def rounds(self, cells):
        for i in range(args.rounds + 1):
            random.shuffle(cells)
            for path, name in cells:
                r = self.run(path, PATTERNS[name])
                if i > 0:
                    self.cells.setdefault((path, name), []).append(r)

    def values(self, path, name, key):
        return [r[key] for r in self.cells[path, name]]

    def ratios(self, a, b, name, key="iops"):
        return [x / y for x, y in zip(self.values(a, name, key), self.values(b, name, key))]


def is_quiet():
    return os.getloadavg()[0] <= os.cpu_count()


def can_compare(b, name):
    v = b.values("raw", name, "iops")
    return is_quiet() and max(v) / min(v) <= WIDE


def speeds(b, has_qsd):
    """Speed beside raw, CPU time beside QSD."""
    many = [n for n in PATTERNS if "4 x" in n]
    cells = [(p, n) for n in PATTERNS for p in ("raw", "plain") if n != "seqwrite 1M QD32"]
    cells += [("crypt", n) for n in CPU_TARGET] + [("crypt", "seqread 1M QD8"), ("crypt", "seqwrite 1M QD8")]
    if has_qsd:
        cells += [("qsd", n) for n in PATTERNS if n not in many and n != "seqwrite 1M QD32"]
    b.rounds(cells)
    for name in [n for n in PATTERNS if n != "seqwrite 1M QD32"]:
        can, key = can_compare(b, name), "read_p50_us" if PATTERNS[name][0] == 100 else "write_p50_us"
        r, e = statistics.median(b.values("raw", name, "iops")), statistics.median(b.values("plain", name, "iops"))
        note = f"raw {r:,.0f}/s, engine {e:,.0f}/s"
        if name in many:
            Row(f"{name}: engine beside raw", "x raw", b.ratios("plain", "raw", name), 0.90, False, note, can and os.cpu_count() >= 8)
        else:
            target = RATIO_TARGET.get(name, 0.90 if os.cpu_count() >= 8 else 0.85)
            Row(f"{name}: engine beside raw", "x raw", b.ratios("plain", "raw", name), target, False, note, can)
        if "QD1" in name and "flush" not in name:
            Row(f"{name}: latency that the engine adds", "us", [x - y for x, y in zip(b.values("plain", name, key), b.values("raw", name, key))], 10,
                True, f"p50 raw {statistics.median(b.values('raw', name, key)):.0f} us", can)
        if name in CPU_TARGET:
            Row(f"{name}: server", "CPU us/op", b.values("plain", name, "server_us"), CPU_TARGET[name], True,
                f"the client {statistics.median(b.values('plain', name, 'client_us')):.1f}, raw io_uring "
                f"{statistics.median(b.values('raw', name, 'client_us')):.1f}", is_quiet())
            if has_qsd:
                q = statistics.median(b.values("qsd", name, "server_us"))
                Row(f"{name}: server beside QSD", "x QSD", b.ratios("plain", "qsd", name, "server_us"), 0.7, True, f"QSD {q:.1f} CPU us/op", is_quiet())
        if has_qsd and name not in many:
            Row(f"{name}: engine beside QSD", "x QSD", b.ratios("plain", "qsd", name))
        if ("crypt", name) in b.cells:
            Row(f"{name}: encrypted beside not", "x", b.ratios("crypt", "plain", name), 0.80 if "1M" in name else 0.85, False,
                f"server {statistics.median(b.values('crypt', name, 'server_us')):.1f} CPU us/op", can)


def snapshot(b, host):
    """Reads while a full snapshot is uploaded to a store that takes everything at once."""
    ratios, held = [], []
    for _ in range(args.rounds):
        still = b.run("plain", PATTERNS["randread 4K QD32"])
        held.append(int(host.say("snap")[1]) / 1e6)
        ratios.append(b.run("plain", PATTERNS["randread 4K QD32"])["iops"] / still["iops"])
        done = host.p.stdout.readline()
        if done != "done\n":
            raise SystemExit(f"the upload says {done}")
        host.say("end")
    Row("randread 4K QD32 during an upload, beside without", "x", ratios, 0.70, False, "", is_quiet())
    Row("point in time: submissions held", "ms", held, 10)


def hydration(b, host):
    """Reads of blocks that are there, while the filler brings the others."""
    lazy, half, ratios = os.path.join(b.folder, "lazy.sock"), 128 * MIB, []
    for _ in range(args.rounds):
        host.say("again")
        subprocess.run([b.loader, "fill-vu", lazy, str(half)], check=True)
        still = b.run("lazy", PATTERNS["randread 4K QD32"], disk=lazy, size=half, ms=min(args.ms, 1500))
        host.say("fill")
        ratios.append(b.run("lazy", PATTERNS["randread 4K QD32"], disk=lazy, size=half, ms=min(args.ms, 1500))["iops"] / still["iops"])
    Row("randread 4K QD32 during hydration, of what is there, beside without", "x", ratios, 0.70, False, "", is_quiet())


def long_writes(b):
    """Slices in turn until each path had its time: what a log or an upload in the way of writes would show."""
    name, slice_s, p99 = "seqwrite 1M QD32", min(30, args.long), {"raw": [], "plain": []}
    for _ in range(max(1, args.long // slice_s)):
        for path in p99:
            p99[path].append(b.run(path, PATTERNS[name], ms=slice_s * 1000)["write_p99_us"] / 1000)
    r = [x / y for x, y in zip(p99["plain"], p99["raw"])]
    Row(f"{name} for {args.long} s: p99 beside raw", "x raw", r, 2, True, f"p99 raw {statistics.median(p99['raw']):.1f} ms (worst slice {max(p99['raw']):.1f}), "
        f"engine {statistics.median(p99['plain']):.1f} ms ({max(p99['plain']):.1f})", is_quiet())


def first_touch(b, host):
    """Every read misses: the block comes from the supplier, here memory."""
    p50, p99, rate = [], [], []
    for i in range(args.rounds):
        if i:
            host.say("again")
        r = b.run("lazy", PATTERNS["read 4K QD1"], disk=os.path.join(b.folder, "lazy.sock"), size=256 * MIB, ms=min(args.ms, 300))
        p50.append(r["read_p50_us"] / 1e3)
        p99.append(r["read_p99_us"] / 1e3)
        rate.append(r["iops"])
    Row("first touch of a block, QD1: p50", "ms", p50, 3, True, f"{statistics.median(rate):,.0f}/s, p99 {statistics.median(p99):.1f} ms; 512 KiB each")


def machine(folder):
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
        model = next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), platform.machine())
    fs = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=False).stdout.strip()
    qsd = subprocess.run(["qemu-storage-daemon", "--version"], capture_output=True, text=True, check=False).stdout.split() if has_qsd() else ["", "", "none"]
    return {"cpu": model, "cpus": os.cpu_count(), "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB, 1),
            "kernel": platform.release().split("-")[0], "file_system": fs, "load_1min": os.getloadavg()[0], "qsd": qsd[2]}


def has_qsd():
    return shutil.which("qemu-storage-daemon") is not None


def write_results(before):
    doc = {"bench": "block", "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"), "machine": before,
           "load_1min_at_end": os.getloadavg()[0], "rounds": args.rounds, "seconds": args.ms / 1000, "rows": [r.json() for r in rows]}
    with open(args.json, "w", encoding="utf-8") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")
    with open(os.path.splitext(args.json)[0] + ".md", "w", encoding="utf-8") as f:
        f.write(f"# Block engine, {doc['date']}\n\n{before['cpu']}, {before['cpus']} CPUs, {before['memory_gib']} GiB, Linux {before['kernel']}, "
                f"{before['file_system']}, qemu-storage-daemon {before['qsd']}. Load at the start {before['load_1min']:.1f}, at the end "
                f"{doc['load_1min_at_end']:.1f}. {args.rounds} rounds of {args.ms / 1000:g} s a cell, shuffled; medians.\n\n"
                "| what | value | unit | range | target | reached |\n|---|---|---|---|---|---|\n")
        for r in rows:
            target = "" if r.target is None else f"{r.sign} {r.target:g}"
            reached = "" if r.target is None else {True: "yes", False: "no", None: "cannot tell"}[r.ok]
            f.write(f"| {r.name}{'; ' + r.note if r.note else ''} | {r.value:,.2f} | {r.unit} | {r.low:,.2f} - {r.high:,.2f} | {target} | {reached} |\n")


def main():
    global args
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default=os.environ.get("SPX_BUILD", "build-bench"))
    p.add_argument("--json", default=os.path.join(here, "..", "results", "block.json"))
    p.add_argument("--dir", default="/var/tmp")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--ms", type=int, default=1000)
    p.add_argument("--size", type=int, default=1024, help="MiB of each disk")
    p.add_argument("--long", type=int, default=0, help="seconds of the row of long writes, which is left out otherwise; its target is meant for 600")
    p.add_argument("--only", default="", help="speeds, snapshot, touch, hydration, long")
    args = p.parse_args()
    folder = tempfile.mkdtemp(prefix="spx-bench-", dir=args.dir)
    host = qsd = None
    try:
        before = machine(folder)
        b = Bench(folder)
        for name in ("raw", "plain", "crypt", "qsd"):
            with open(os.path.join(folder, name), "wb") as f:
                f.truncate(args.size * MIB)
        for name in ("raw", "plain", "qsd"):
            b.fill("fill-raw", os.path.join(folder, name))
        host = Host(folder)
        b.servers = dict.fromkeys(("plain", "crypt", "lazy"), host.pid)
        b.fill("fill-vu", os.path.join(folder, "crypt.sock"))
        if has_qsd():
            qsd = Qsd(folder, 1)
            os.rename(qsd.sock, os.path.join(folder, "qsd.sock"))
            b.servers["qsd"] = qsd.pid
        if args.only in ("", "speeds"):
            speeds(b, has_qsd())
        if args.only in ("", "snapshot"):
            snapshot(b, host)
        if args.only in ("", "touch"):
            first_touch(b, host)
        if args.only in ("", "hydration"):
            hydration(b, host)
        if args.only in ("", "long") and args.long > 0:
            long_writes(b)
    finally:
        for x in (host, qsd):
            if x:
                x.stop()
        shutil.rmtree(folder)
        if rows:
            write_results(before)


if __name__ == "__main__":
    sys.exit(main())
