#!/usr/bin/env python3
"""spx admin network lan, between two namespaces: a host and somebody on its LAN. Needs root."""
import json
import os
import subprocess
import sys
import tempfile

SPX = os.environ["SPX"]
HOST, LAN = "spxnetw%dh" % os.getpid(), "spxnetw%dl" % os.getpid()
CONFIG = '''# mine
version = 4
node = "n"
[network]
uplink = ""
[[network.external_pools]]
name = "wan"
range_start = "198.51.100.10"
range_end = "198.51.100.250"
gateway = "198.51.100.1"
[nodes.n]
host = "127.0.0.1"
data_dir = "%s/d"
run_dir = "%s/r"
uid_base = 0
'''


def ip(*words):
    subprocess.run(("ip",) + words, check=True)


def lan(config, rng, *more):
    return subprocess.run(["ip", "netns", "exec", HOST, SPX, "--config", config, "admin", "network", "lan", "--output", "json", "--uplink", "eth0",
                           "--range", rng] + list(more), capture_output=True, text=True, timeout=120)


def refused(p, *words):
    assert p.returncode == 1, p
    for w in words:
        assert w in p.stderr, p


def run(folder):
    config = folder + "/spinifex.toml"
    with open(config, "w") as f:
        f.write(CONFIG % (folder, folder))
    os.chmod(config, 0o640)
    before = open(config).read()
    ip("netns", "add", HOST)
    ip("netns", "add", LAN)
    ip("link", "add", "eth0", "netns", HOST, "type", "veth", "peer", "name", "eth0", "netns", LAN)
    for ns, addr in ((HOST, "192.0.2.5/24"), (LAN, "192.0.2.1/24")):
        ip("-n", ns, "addr", "add", addr, "dev", "eth0")
        ip("-n", ns, "link", "set", "eth0", "up")
    ip("-n", LAN, "addr", "add", "192.0.2.210/32", "dev", "eth0")
    mac = json.loads(subprocess.check_output(["ip", "-j", "-n", LAN, "link", "show", "eth0"]))[0]["address"]

    refused(lan(config, "192.0.2.200-192.0.2.230"), "--gateway")
    ip("-n", HOST, "route", "add", "default", "via", "192.0.2.1")
    refused(lan(config, "10.0.0.200-10.0.0.230"), "eth0 has no address in a network of that range")
    refused(lan(config, "192.0.2.2-192.0.2.9"), "192.0.2.5 is this host's own address")
    refused(lan(config, "192.0.2.200-192.0.2.255"), "broadcast")
    refused(lan(config, "192.0.2.200-192.0.2.230", "--gateway", "192.0.2.5"), "the gateway is this host")
    refused(lan(config, "192.0.2.200-192.0.2.230"), "192.0.2.210", mac)
    assert open(config).read() == before, "what is refused changes nothing"

    p = lan(config, "192.0.2.220-192.0.2.230")
    assert p.returncode == 0, p
    assert json.loads(p.stdout) == dict(uplink="eth0", range_start="192.0.2.220", range_end="192.0.2.230", gateway="192.0.2.1"), p
    text = open(config).read()
    assert 'uplink = "eth0"' in text and 'range_end = "192.0.2.230"' in text and 'source = "retired"' in text and text.startswith("# mine\n"), text
    assert os.stat(config).st_mode & 0o777 == 0o640
    subprocess.run([SPX, "--config", config, "config", "check"], check=True)


def main():
    if os.geteuid() != 0:
        print("needs root")
        return 77
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(folder)
    finally:
        for ns in (HOST, LAN):
            subprocess.run(["ip", "netns", "del", ns], stderr=subprocess.DEVNULL)
    return 0


sys.exit(main())
