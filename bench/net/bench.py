#!/usr/bin/env python3
"""The native network beside bare veth: one and sixteen TCP streams, rounds in turn.

  SPX_BUILD=build-bench bench/net/bench.py [--json FILE] [--rounds N] [--seconds S]

spx-vpcd builds a VPC with two interfaces in a namespace that stands for the host: its links, routes, rules of security groups and NAT. Then the
taps are replaced by veth pairs of the same names and addresses, whose other ends are namespaces: so the path is measured, not QEMU or a program that
copies frames. bare: a veth pair between two namespaces, the same MTU. guest: between the two; host: from one to the host's own address, through NAT.
Needs root and iperf3.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, ".."), os.path.join(here, "..", "..", "tests", "lib"), os.path.join(here, "..", "..", "src", "vpcd")]
from cloud import find_binary, isolate  # noqa: E402
from lib import Row, machine, rows, write_results  # noqa: E402

args = None
MTU = 9001


def swap(lab, guest, tap):
    """A veth pair in place of the tap: what vpcd set on the tap is set on it again."""
    t = lab_module
    vpc = ["nsenter", "--net=" + guest.vpc_ns]
    link = json.loads(t.sh(*vpc, "ip", "-j", "link", "show", tap))[0]
    routes = [line for line in t.sh(*vpc, "ip", "route", "show", "table", "all", "dev", tap).splitlines() if not line.startswith(("local", "broadcast"))]
    neighbours = json.loads(t.sh(*vpc, "ip", "-j", "neigh", "show", "nud", "permanent", "dev", tap) or "[]")
    addresses = [f"{a['local']}/{a['prefixlen']}" for a in json.loads(t.sh(*vpc, "ip", "-j", "-4", "addr", "show", tap))[0]["addr_info"]]
    conf = f"/proc/sys/net/ipv4/conf/{tap}"
    values = {n: t.sh(*vpc, "cat", f"{conf}/{n}").strip() for n in ("proxy_arp", "proxy_arp_pvlan", "rp_filter", "forwarding", "arp_ignore", "accept_redirects",
                                                                   "send_redirects")}
    guest.stop()
    t.sh(*vpc, "ip", "link", "del", tap, check=False)
    guest.ns.ip("link", "del", "eth0", check=False)
    t.sh(*vpc, "ip", "link", "add", tap, "address", link["address"], "mtu", str(link["mtu"]), "type", "veth", "peer", "name", "w0")
    t.sh(*vpc, "ip", "link", "set", "w0", "netns", guest.ns.name)
    guest.ns.ip("link", "set", "w0", "name", "eth0", "address", guest.eni["mac"], "mtu", str(link["mtu"]), "up")
    for n, v in values.items():
        t.sh(*vpc, "sh", "-c", f"echo {v} > {conf}/{n}")
    t.sh(*vpc, "ip", "link", "set", tap, "up")
    for a in addresses:
        t.sh(*vpc, "ip", "addr", "replace", a, "dev", tap)
    for n in neighbours:
        t.sh(*vpc, "ip", "neigh", "replace", n["dst"], "lladdr", n["lladdr"], "dev", tap, "nud", "permanent")
    for r in routes:
        words = r.split()
        words = words[1:] if words[0] in ("unicast",) else words
        t.sh(*vpc, "ip", "route", "replace", *words, "dev", tap, check=False)
    lease = guest.lease
    guest.ns.ip("addr", "add", f"{lease['ip']}/{lease['prefix']}", "dev", "eth0")
    guest.ns.ip("route", "add", "default", "via", lease["router"])


def iperf(client, server_ns, address, streams):
    """Mbit/s that arrived."""
    server = subprocess.Popen(["nsenter", "--net=" + server_ns, "iperf3", "-s", "-1", "-p", "5201"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(50):
            p = subprocess.run(["nsenter", "--net=" + client, "iperf3", "-c", address, "-p", "5201", "-t", str(args.seconds), "-P", str(streams), "-J"],
                               capture_output=True, text=True, timeout=60 + args.seconds)
            got = json.loads(p.stdout)
            if "error" not in got:
                return got["end"]["sum_received"]["bits_per_second"] / 1e6
            time.sleep(0.1)
        raise SystemExit(f"iperf3 to {address}: {got['error']}")
    finally:
        server.kill()
        server.wait()


def measure(lab):
    t = lab_module
    vpc = lab.vpc()
    sg = lab.sg(vpc, t.ALL_IN)
    a, b = lab.guest(vpc, "172.31.0.10", [sg], public="198.51.100.20"), lab.guest(vpc, "172.31.0.11", [sg])
    taps = {}
    for g in (a, b):
        out = t.sh("nsenter", "--net=" + g.vpc_ns, "ip", "route", "get", g.ip)
        taps[g] = out.split(" dev ")[1].split()[0]
    guard = t.sh("nsenter", "--net=" + a.vpc_ns, "nft", "list", "table", "netdev", "spx_guard")
    lab.kill_vpcd()  # traffic needs no process
    for g in (a, b):
        swap(lab, g, taps[g])
    t.sh("nsenter", "--net=" + a.vpc_ns, "nft", "-f", "-", inp="delete table netdev spx_guard\n" + guard)
    x, y = t.Ns("x"), t.Ns("y")
    x.ip("link", "add", "v0", "mtu", str(MTU), "type", "veth", "peer", "name", "v0", "mtu", str(MTU), "netns", y.name)
    for ns, ip in ((x, "192.0.2.1/24"), (y, "192.0.2.2/24")):
        ns.ip("addr", "add", ip, "dev", "v0")
        ns.ip("link", "set", "v0", "up")
    cells = {"bare": (x.path, y.path, "192.0.2.2"), "guest": (a.ns.path, b.ns.path, b.ip), "host": (a.ns.path, lab.host.path, "203.0.113.2")}
    for streams in (1, 16):
        got = {n: [] for n in cells}
        for i in range(args.rounds + 1):
            for name, cell in cells.items():
                v = iperf(*cell, streams)
                if i > 0:
                    got[name].append(v)
        words = "1 stream" if streams == 1 else f"{streams} streams"
        Row(f"bare veth, {words}", "Mbit/s", got["bare"])
        for name, what in (("guest", "guest to guest"), ("host", "guest to host, NAT")):
            Row(f"{what}, {words}", "x veth", [v / w for v, w in zip(got[name], got["bare"])], 0.9, False, f"{statistics.median(got[name]):,.0f} Mbit/s",
                can_tell=max(got["bare"]) / min(got["bare"]) < 1.5)


def main():
    global args, lab_module
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", default=os.path.join(here, "..", "results", "net.json"))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=int, default=2)
    args = p.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("networks are the kernel's: sudo")
    if not shutil.which("iperf3"):
        print("not measured: iperf3 is not installed (apt-get install iperf3)")
        return
    build = os.environ["SPX_BUILD"]
    sys.argv = [sys.argv[0], os.path.dirname(find_binary(build, "spx-vpcd")), find_binary(build, "spx-state")]
    import vpcd_component_test as lab_module
    isolate()
    before = machine(iperf3=subprocess.run(["iperf3", "--version"], capture_output=True, text=True).stdout.split()[1])
    lab = lab_module.Lab()
    try:
        lab.open()
        measure(lab)
    finally:
        lab.close()
        shutil.rmtree(lab.dir, ignore_errors=True)
        if rows:
            write_results("net", "Network", args.json, before, f"{args.rounds} rounds of {args.seconds} s, in turn; medians. MTU {MTU}.",
                          rounds=args.rounds, seconds=args.seconds)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
