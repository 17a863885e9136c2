#!/usr/bin/env python3
"""Runs the real spx-state and spx-vpcd in a network namespace that stands for the host, with namespaces as guests behind real taps.

Nothing of the machine is touched: the "host", the "LAN" and the guests are namespaces of this run. Needs root.
usage: vpcd_component_test.py FOLDER_OF_VPCD_PROGRAMS SPX_STATE [NAME_OF_ONE_TEST]
"""
import base64, ctypes, hashlib, http.client, json, os, re, shutil, signal, socket, struct, subprocess, sys, tempfile, threading, time

libc = ctypes.CDLL(None, use_errno=True)
BIN, STATE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
TAG = "vt%d" % os.getpid()
ENV = dict(os.environ, ASAN_OPTIONS="detect_leaks=0")
ACCOUNT, OTHER = "111122223333", "444455556666"


def sh(*argv, check=True, inp=None, timeout=60):
    p = subprocess.run(argv, input=inp, capture_output=True, text=True, timeout=timeout, env=ENV)
    if check and p.returncode:
        raise AssertionError("%s: %s%s" % (" ".join(argv), p.stdout, p.stderr))
    return p.stdout


def wait_for(what, fn, limit=60.0):
    end = time.monotonic() + limit
    while True:
        r = fn()
        if r:
            return r
        if time.monotonic() > end:
            raise AssertionError("gave up waiting for " + what)
        time.sleep(0.05)


class Ns:
    """A namespace; sockets made by it live in it. Entered by this thread only for the call."""

    made = []
    n = 0

    def __init__(self, name):
        Ns.n += 1
        self.name = "%s-%d%s" % (TAG, Ns.n, name)
        Ns.made.append(self)
        sh("ip", "netns", "add", self.name)
        self.path = "/run/netns/" + self.name
        self.ip("link", "set", "lo", "up")

    def ip(self, *args, check=True):
        return sh("ip", "-n", self.name, *args, check=check)

    def run(self, *argv, **kw):
        return sh("nsenter", "--net=" + self.path, *argv, **kw)

    def inside(self, fn):
        with open("/proc/thread-self/ns/net") as back, open(self.path) as ns:
            if libc.setns(ns.fileno(), 0x40000000):
                raise OSError(ctypes.get_errno(), "setns")
            try:
                return fn()
            finally:
                assert libc.setns(back.fileno(), 0x40000000) == 0

    def socket(self, *args):
        return self.inside(lambda: socket.socket(*args))

    def connect(self, ip, port, timeout=2.0, src=None):
        s = self.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.settimeout(timeout)
        if src:
            s.bind((src, 0))
        try:
            s.connect((ip, port))
        except OSError:
            s.close()
            return None
        return s

    def listen(self, port, ip="0.0.0.0"):
        """A server that sends the client's address in a line, then echoes."""
        s = self.socket(socket.AF_INET, socket.SOCK_STREAM)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        s.bind((ip, port))
        s.listen(1024)

        def serve(c, a):
            try:
                c.sendall(("%s\n" % a[0]).encode())
                while True:
                    d = c.recv(65536)
                    if not d:
                        break
                    c.sendall(d)
            except OSError:
                pass
            c.close()

        def loop():
            while True:
                try:
                    c, a = s.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(c, a), daemon=True).start()

        threading.Thread(target=loop, daemon=True).start()
        return s

    def delete(self):
        sh("ip", "netns", "del", self.name, check=False)


def talk(s, data=b"hello"):
    """Sends and gets it back; None when nothing comes."""
    try:
        s.sendall(data)
        got = b""
        while len(got) < len(data):
            d = s.recv(65536)
            if not d:
                return None
            got += d
        return got == data
    except OSError:
        return None


def line(s):
    f = b""
    while not f.endswith(b"\n"):
        d = s.recv(1)
        if not d:
            return None
        f += d
    return f.decode().strip()


class Lab:
    """Host, LAN, store and vpcd; records as awsgw would write them."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="spx-vpcd-", dir="/tmp")
        os.chmod(self.dir, 0o755)
        self.run_dir = self.dir + "/run"
        os.mkdir(self.run_dir)
        os.chmod(self.run_dir, 0o755)
        os.mkdir(self.dir + "/data")
        self.state = self.vpcd = None
        self.guests, self.records, self.n = [], {}, 0

    def open(self, uid_base=0, uplink=False):
        self.as_awsgw = []
        if uid_base:
            self.as_awsgw = ["setpriv", "--reuid=%d" % (uid_base + 2), "--regid=%d" % (uid_base + 2), "--clear-groups"]
            os.chown(self.run_dir, 0, uid_base)
            os.chmod(self.run_dir, 0o1771)
            os.mkdir(self.dir + "/data/state", 0o700)
            os.chown(self.dir + "/data/state", uid_base + 1, uid_base + 1)
        self.host, self.wan = Ns("host"), Ns("wan")
        self.host.ip("link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", self.wan.name)
        for ns, ip in ((self.host, "203.0.113.2/24"), (self.wan, "203.0.113.1/24")):
            ns.ip("addr", "add", ip, "dev", "eth0")
            ns.ip("link", "set", "eth0", "up")
        self.host.ip("route", "add", "default", "via", "203.0.113.1")
        # "somebody else's" rules on this host: they must survive everything
        self.host.run("nft", "add table inet other { chain c { type filter hook forward priority 5; policy accept; }; }")
        self.config = self.dir + "/spinifex.toml"
        with open(self.config, "w") as f:
            net = "203.0.113" if uplink else "198.51.100"
            f.write('version = 4\nnode = "node1"\n[aws]\nregion = "ap-southeast-2"\n[network]\nguest_mtu = 9001\nuplink = "%s"\n'
                    '[[network.external_pools]]\nname = "wan"\nsource = "static"\nrange_start = "%s.10"\n'
                    'range_end = "%s.250"\ngateway = "%s.1"\nprefix_len = 24\ndns_servers = ["203.0.113.1"]\n'
                    '[nodes.node1]\nhost = "203.0.113.2"\ndata_dir = "%s/data"\nrun_dir = "%s"\nuid_base = %d\n'
                    % ("eth0" if uplink else "", net, net, net, self.dir, self.run_dir, uid_base))
        self.log = open(self.dir + "/log", "a")
        self.start_state()
        self.start_vpcd()

    def start_state(self):
        self.state = subprocess.Popen([STATE, "--config", self.config], stdout=self.log, stderr=self.log, env=ENV)
        wait_for("the store", lambda: os.path.exists(self.run_dir + "/state.sock"))

    def kill_state(self):
        self.state.send_signal(signal.SIGKILL)
        self.state.wait()
        os.unlink(self.run_dir + "/state.sock")

    def start_vpcd(self):
        self.vpcd = subprocess.Popen(["nsenter", "--net=" + self.host.path, BIN + "/spx-vpcd", "--config", self.config, "--log-level", "debug"],
                                     stdout=self.log, stderr=self.log, env=ENV)
        wait_for("vpcd", lambda: '"ok"' in sh(BIN + "/vpcd_lab", "call", self.run_dir + "/vpcd.sock", "health", "{}", check=False))

    def kill_vpcd(self):
        self.vpcd.send_signal(signal.SIGKILL)
        self.vpcd.wait()

    def put(self, records):
        text = ""
        for key, value in records.items():
            self.records[key] = value
            text += key + ("\n" if value is None else " " + json.dumps(value) + "\n")
        sh(*self.as_awsgw, BIN + "/vpcd_lab", "put", self.run_dir + "/state.sock", inp=text)

    def status(self, eni):
        t = sh(*self.as_awsgw, BIN + "/vpcd_lab", "get", self.run_dir + "/state.sock", "status/eni/%s/%s" % (eni["account"], eni["id"]), check=False)
        return json.loads(t) if t else None

    def settle(self, eni):
        eni["generation"] += 1
        self.put({"spec/eni/%s/%s" % (eni["account"], eni["id"]): eni})
        return wait_for("status of " + eni["id"], lambda: (lambda s: s if s and s["generation"] == eni["generation"] else None)(self.status(eni)))

    def new_id(self, prefix):
        self.n += 1
        return "%s-%017x" % (prefix, 0xabcdef000000 + self.n)

    @property
    def prefix(self):
        return "spxv" + hashlib.sha256(self.run_dir.encode()).hexdigest()[:3]

    def link(self, vpc):
        return self.prefix + vpc["id"][-8:]

    def vpc(self, account=ACCOUNT, cidr="172.31.0.0/16", subnets=("172.31.0.0/20", "172.31.16.0/20")):
        v, rtb, igw = self.new_id("vpc"), self.new_id("rtb"), self.new_id("igw")
        recs = {
            "spec/vpc/%s/%s" % (account, v): dict(v=1, id=v, account=account, cidr=cidr, is_default=True, is_dns_support=True,
                                                  is_dns_hostnames=True, main_rtb_id=rtb),
            "spec/igw/%s/%s" % (account, igw): dict(v=1, id=igw, account=account, vpc_id=v),
            "spec/rtb/%s/%s" % (account, rtb): dict(v=1, id=rtb, account=account, vpc_id=v, main_association_id="rtbassoc-1", routes=[
                dict(dest=cidr, target="local", origin="CreateRouteTable"), dict(dest="0.0.0.0/0", target=igw, origin="CreateRoute")]),
        }
        ids = []
        for c in subnets:
            s = self.new_id("subnet")
            ids.append((s, c))
            recs["spec/subnet/%s/%s" % (account, s)] = dict(v=1, id=s, account=account, vpc_id=v, cidr=c, az="ap-southeast-2a", az_id="apse2-az1",
                                                            rtb_id="")
        self.put(recs)
        return dict(id=v, account=account, subnets=ids, rtb=rtb, igw=igw)

    def sg(self, vpc, rules, name="web"):
        g = self.new_id("sg")
        rec = dict(v=1, id=g, account=vpc["account"], vpc_id=vpc["id"], name=name, description="d", rules=[])
        rec["rules"] = [rule(is_egress=True, protocol="-1", cidr="0.0.0.0/0")] + rules
        self.put({"spec/sg/%s/%s" % (vpc["account"], g): rec})
        return rec

    def set_rules(self, sg, rules):
        sg["rules"] = [rule(is_egress=True, protocol="-1", cidr="0.0.0.0/0")] + rules
        self.put({"spec/sg/%s/%s" % (sg["account"], sg["id"]): sg})

    def guest(self, vpc, ip, sgs, public="", subnet=0, n_queues=1, tokens="required", start=True, **inst):
        i, e = self.new_id("i"), self.new_id("eni")
        mac = "0a:%02x:00:00:00:%02x" % (self.n >> 8, self.n & 255)
        eni = dict(v=1, id=e, account=vpc["account"], vpc_id=vpc["id"], subnet_id=vpc["subnets"][subnet][0], az="ap-southeast-2a", mac=mac,
                   private_ip=ip, private_dns="ip-%s.ap-southeast-2.compute.internal" % ip.replace(".", "-"), sg_ids=[s["id"] for s in sgs],
                   public_ip=public, instance_id=i, device_index=0, is_source_dest_checked=True, generation=1, want="present", node="node1")
        spec = dict(v=1, id=i, account=vpc["account"], generation=1, want="running", node="node1", reservation_id="r-0123456789abcdef0",
                    launch_index=0, launch_ns=1796050150000000000, image_id="ami-0123456789abcdef0", instance_type="t3.micro", arch="x86_64",
                    key_name="me", public_key="ssh-ed25519 AAAA me", user_data=base64.b64encode(b"#!/bin/sh\necho hi\n").decode(),
                    az="ap-southeast-2a", vpc_id=vpc["id"], subnet_id=vpc["subnets"][subnet][0], root_device="/dev/sda1", http_tokens=tokens,
                    http_endpoint="enabled", http_hop_limit=2, is_tags_in_metadata=True)
        spec.update(inst)
        self.put({"spec/instance/%s/%s" % (vpc["account"], i): spec, "spec/eni/%s/%s" % (vpc["account"], e): eni,
                  "spec/tags/%s/%s" % (vpc["account"], i): dict(v=1, id=i, account=vpc["account"], resource_type="instance",
                                                               tags=[dict(key="Name", value="box %s" % ip)])})
        g = Guest(self, eni, spec, n_queues)
        self.guests.append(g)
        if start:
            g.start()
        return g

    def close(self):
        for g in self.guests:
            g.stop()
        if self.vpcd and self.vpcd.poll() is None:
            self.vpcd.terminate()
            self.vpcd.wait(20)
        self.host.run(BIN + "/spx-vpcd", "--config", self.config, "--teardown", check=False)
        if self.state:
            self.state.terminate()
            self.state.wait(20)
        for m in re.findall(r"\S* on (%s\S*)" % re.escape(self.dir), sh("mount")):
            sh("umount", "-l", m, check=False)
        while Ns.made:
            Ns.made.pop().delete()

    def show_log(self):
        with open(self.dir + "/log") as f:
            sys.stderr.write("".join(f.readlines()[-60:]))


def rule(is_egress=False, protocol="tcp", port_from=-1, port_to=-1, **peer):
    return dict(dict(id="sgr-1", is_egress=is_egress, protocol=protocol, port_from=port_from, port_to=port_to), **peer)


ALL_IN = [rule(protocol="-1", cidr="0.0.0.0/0")]


class Guest:
    def __init__(self, lab, eni, spec, n_queues):
        self.lab, self.eni, self.spec, self.n_queues = lab, eni, spec, n_queues
        self.ip = eni["private_ip"]
        self.ns = Ns("g%d" % len(lab.guests))
        self.ns.run("sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        self.pump = None

    def start(self, configure=True):
        ask = json.dumps(dict(account=self.eni["account"], eni_id=self.eni["id"], n_queues=self.n_queues))
        self.pump = subprocess.Popen([BIN + "/vpcd_lab", "pump", self.lab.run_dir + "/vpcd.sock", ask, self.ns.path, "eth0"],
                                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)
        out = self.pump.stdout.readline()
        if not out:
            raise AssertionError("eni.open: " + self.pump.stderr.read())
        text, n_fds = out.rsplit(" ", 1)
        self.opened, self.n_fds = json.loads(text), int(n_fds)
        self.vpc_ns = self.lab.run_dir + "/netns/spx-" + self.eni["vpc_id"]
        if configure:
            self.lease = self.dhcp()
            net = self.lease
            self.ns.ip("addr", "add", "%s/%d" % (net["ip"], net["prefix"]), "dev", "eth0")
            self.ns.ip("route", "add", "default", "via", net["router"])

    def stop(self):
        if self.pump and self.pump.poll() is None:
            self.pump.kill()
            self.pump.wait()

    def dhcp_exchange(self, kind, options=b"", ciaddr="0.0.0.0", timeout=3.0, mac=None):
        """One message and its answer, with raw frames as a client without an address sends them."""
        s = self.ns.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        s.bind(("eth0", 0x0800))
        hw = bytes.fromhex((mac or self.eni["mac"]).replace(":", ""))
        xid = os.urandom(4)
        msg = struct.pack("!BBBB4sHH4s4s4s4s", 1, 1, 6, 0, xid, 0, 0x8000 if ciaddr == "0.0.0.0" else 0, socket.inet_aton(ciaddr), bytes(4), bytes(4),
                          bytes(4))
        msg += hw + bytes(10) + bytes(192) + bytes.fromhex("63825363") + bytes([53, 1, kind]) + options + b"\xff"
        udp = struct.pack("!HHHH", 68, 67, 8 + len(msg), 0) + msg
        src = socket.inet_aton(ciaddr)
        ip = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, src, b"\xff\xff\xff\xff"))
        t = sum(struct.unpack("!10H", ip))
        t = (t & 0xffff) + (t >> 16)
        ip[10:12] = struct.pack("!H", ~(t + (t >> 16)) & 0xffff)
        own = bytes.fromhex(self.eni["mac"].replace(":", ""))
        s.send(b"\xff" * 6 + own + b"\x08\x00" + bytes(ip) + udp)
        s.settimeout(0.3)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                f = s.recv(4096)
            except TimeoutError:
                continue
            if len(f) > 282 and f[23] == 17 and f[34:38] == b"\x00\x43\x00\x44" and f[46:50] == xid:
                s.close()
                return f[42:], f
        s.close()
        return None, None

    @staticmethod
    def options(m):
        o, i = {}, 240
        while i < len(m) and m[i] != 255:
            if m[i] == 0:
                i += 1
                continue
            o[m[i]] = m[i + 2:i + 2 + m[i + 1]]
            i += 2 + m[i + 1]
        return o

    def dhcp(self):
        offer, _ = self.dhcp_exchange(1)
        assert offer, "no DHCPOFFER"
        o = self.options(offer)
        assert o[53] == b"\x02"
        ack, frame = self.dhcp_exchange(3, bytes([50, 4]) + offer[16:20] + bytes([54, 4]) + o[54])
        assert ack, "no DHCPACK"
        o = self.options(ack)
        assert o[53] == b"\x05", o
        ip4 = socket.inet_ntoa
        return dict(ip=ip4(ack[16:20]), prefix=bin(struct.unpack("!I", o[1])[0]).count("1"), router=ip4(o[3]), dns=ip4(o[6]), server=ip4(o[54]),
                    host=o[12].decode(), domain=o[15].decode(), mtu=struct.unpack("!H", o[26])[0], lease=struct.unpack("!I", o[51])[0],
                    t1=struct.unpack("!I", o[58])[0], t2=struct.unpack("!I", o[59])[0])

    def http(self, method, path, headers={}, host="169.254.169.254", timeout=4):
        s = self.ns.connect(host, 80, timeout)
        if not s:
            return None, None, None
        c = http.client.HTTPConnection(host)
        c.sock = s
        c.request(method, path, headers=headers)
        r = c.getresponse()
        body = r.read()
        c.close()
        return r.status, body, r.headers

    def token(self, ttl="60"):
        st, body, _ = self.http("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": ttl})
        assert st == 200, (st, body)
        return body.decode()

    def get(self, path, token=None):
        return self.http("GET", path, {"X-aws-ec2-metadata-token": token} if token else {})

    def dns(self, name, qtype=1, server="169.254.169.253", tcp=False, timeout=4, edns=0):
        q = struct.pack("!HHHHHH", 0x1234, 0x0100, 1, 0, 0, 1 if edns else 0)
        q += b"".join(bytes([len(x)]) + x.encode() for x in name.split(".")) + b"\0" + struct.pack("!HH", qtype, 1)
        q += struct.pack("!BHHIH", 0, 41, edns, 0, 0) if edns else b""
        try:
            if tcp:
                s = self.ns.connect(server, 53, timeout)
                s.sendall(struct.pack("!H", len(q)) + q)
                n = struct.unpack("!H", s.recv(2))[0]
                m = b""
                while len(m) < n:
                    m += s.recv(n - len(m))
            else:
                s = self.ns.socket(socket.AF_INET, socket.SOCK_DGRAM)
                s.settimeout(timeout)
                s.sendto(q, (server, 53))
                m = s.recv(65535)
            s.close()
        except TimeoutError:
            return None
        flags, n_an = struct.unpack("!H", m[2:4])[0], struct.unpack("!H", m[6:8])[0]
        end = 12 + len(name) + 2 + 4
        data = []
        off = end
        for _ in range(n_an):
            n = struct.unpack("!H", m[off + 10:off + 12])[0]
            data.append(m[off + 12:off + 12 + n])
            off += 12 + n
        return dict(rcode=flags & 15, tc=bool(flags & 0x200), aa=bool(flags & 0x400), answers=data, id=m[0:2], raw=m)


def is_running(pid):
    try:
        with open("/proc/%d/stat" % pid) as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def can(a, ip, port, timeout=1.5):
    s = a.connect(ip, port, timeout)
    if s:
        s.close()
    return s is not None


TESTS = []


def test(fn=None, **opts):
    def add(f):
        TESTS.append((f, opts))
        return f

    return add(fn) if fn else add


def eq(a, b):
    assert a == b, "%r is not %r" % (a, b)


@test
def dhcp_gives_the_whole_lease(lab):
    v = lab.vpc()
    g = lab.guest(v, "172.31.0.10", [lab.sg(v, [])], n_queues=2)
    eq(g.opened["mtu"], 9001)
    eq(g.n_fds, 2 + g.opened["n_vhost"])
    eq(g.lease, dict(ip="172.31.0.10", prefix=20, router="172.31.0.1", dns="172.31.0.2", server="172.31.0.1", host="ip-172-31-0-10",
                     domain="ap-southeast-2.compute.internal", mtu=9001, lease=3600, t1=1800, t2=3150))
    nak, _ = g.dhcp_exchange(3, bytes([50, 4]) + socket.inet_aton("172.31.0.99"))
    eq(g.options(nak)[53], b"\x06")
    # renewal from its address
    ack, frame = g.dhcp_exchange(3, ciaddr="172.31.0.10")
    eq(g.options(ack)[53], b"\x05")
    inform, _ = g.dhcp_exchange(8, ciaddr="172.31.0.10")
    o = g.options(inform)
    eq((o[53], 51 in o, inform[16:20]), (b"\x05", False, bytes(4)))
    # another chaddr than the interface's gets nothing
    eq(g.dhcp_exchange(1, mac="0a:00:00:00:99:99", timeout=1)[0], None)
    eq(json.loads(sh(BIN + "/vpcd_lab", "call", lab.run_dir + "/vpcd.sock", "eni.state", json.dumps(dict(eni_id=g.eni["id"]))).rsplit(" ", 1)[0]),
       {"is_link_up": True})
    eq(lab.status(g.eni)["state"], "ready")


@test
def security_groups(lab):
    v = lab.vpc()
    web, db, none = lab.sg(v, [rule(port_from=80, port_to=80, cidr="0.0.0.0/0")], "web"), lab.sg(v, [], "db"), lab.sg(v, [], "none")
    lab.set_rules(db, [rule(port_from=5000, port_to=5010, group_id=web["id"])])
    a, b, c = lab.guest(v, "172.31.0.10", [web]), lab.guest(v, "172.31.16.11", [db], subnet=1), lab.guest(v, "172.31.0.12", [none])
    for g in (a, b, c):
        for port in (80, 5000, 5011):
            g.ns.listen(port)
    assert can(b.ns, a.ip, 80), "allowed by range"
    assert not can(b.ns, a.ip, 5000), "another port"
    assert can(a.ns, b.ip, 5000), "allowed by group"
    assert not can(a.ns, b.ip, 5011), "past the range of ports"
    assert not can(c.ns, b.ip, 5000), "not in the group"
    assert not can(a.ns, c.ip, 80), "no rule at all"
    assert can(c.ns, a.ip, 80)
    # a rule that goes: flows that exist live on, new ones do not come up
    s = a.ns.connect(b.ip, 5000)
    line(s)
    assert talk(s)
    lab.set_rules(db, [])
    wait_for("the rule to go", lambda: not can(a.ns, b.ip, 5000, 0.5))
    assert talk(s), "an established flow was cut"
    s.close()
    # members of a group come and go
    lab.set_rules(db, [rule(port_from=5000, port_to=5010, group_id=web["id"])])
    c.eni["sg_ids"] = [none["id"], web["id"]]
    lab.settle(c.eni)
    assert can(c.ns, b.ip, 5000), "joined the group"
    c.eni["sg_ids"] = [none["id"]]
    lab.settle(c.eni)
    assert not can(c.ns, b.ip, 5000), "left the group"
    # egress
    web["rules"] = [rule(port_from=80, port_to=80, cidr="0.0.0.0/0"), rule(is_egress=True, port_from=5000, port_to=5000, cidr="172.31.16.0/20")]
    lab.put({"spec/sg/%s/%s" % (ACCOUNT, web["id"]): web})
    wait_for("egress rules", lambda: not can(a.ns, c.ip, 80, 0.5))
    lab.set_rules(none, ALL_IN)
    time.sleep(0.5)
    assert not can(a.ns, c.ip, 80), "egress must agree too"
    assert can(a.ns, b.ip, 5000), "egress allowed"
    assert can(b.ns, a.ip, 80), "answers leave without an egress rule"
    # services need no rule
    assert a.token()


@test
def rules_change_without_a_gap(lab):
    """While rules change all the time, what is allowed always passes at once and what is not never does."""
    v = lab.vpc()
    sg = lab.sg(v, [rule(port_from=80, port_to=80, cidr="0.0.0.0/0")])
    a, b = lab.guest(v, "172.31.0.10", [sg], "198.51.100.10"), lab.guest(v, "172.31.0.11", [sg])
    for port in (80, 81):
        a.ns.listen(port)
    stop, n_ok, slow, leaks = threading.Event(), [0], [], []
    src = {"b": b.ns, "h": lab.host}

    def allowed(ns, ip):
        while not stop.is_set():
            t0 = time.monotonic()
            s = ns.connect(ip, 80, 5)
            took = time.monotonic() - t0
            if not s or took > 0.9:  # a lost SYN is sent again after a second
                slow.append(took)
            else:
                n_ok[0] += 1
                s.close()
            time.sleep(0.002)

    def denied():
        while not stop.is_set():
            if can(b.ns, a.ip, 81, 0.05):
                leaks.append(1)

    threads = [threading.Thread(target=allowed, args=(b.ns, a.ip)), threading.Thread(target=allowed, args=(lab.host, "198.51.100.10")),
               threading.Thread(target=denied)]
    for t in threads:
        t.start()
    try:
        for i in range(60):
            lab.set_rules(sg, [rule(port_from=80, port_to=80, cidr="0.0.0.0/0"), rule(port_from=1000 + i, port_to=1000 + i, cidr="0.0.0.0/0")])
    finally:
        stop.set()
        for t in threads:
            t.join()
    assert not leaks, "a rule change let through what is not allowed"
    assert not slow, "a rule change lost packets: %r of %d" % (slow, n_ok[0])
    assert n_ok[0] > 100, n_ok
    text = wait_for("the last rule", lambda: "1059" in sh("nsenter", "--net=" + a.vpc_ns, "nft", "list", "table", "inet", "spx"))


@test
def icmp_and_other_protocols(lab):
    v = lab.vpc()
    g1, g2 = lab.sg(v, [rule(protocol="icmp", port_from=8, port_to=-1, cidr="172.31.0.10/32")]), lab.sg(v, [])
    a, b, c = lab.guest(v, "172.31.0.10", [g2]), lab.guest(v, "172.31.0.11", [g1]), lab.guest(v, "172.31.0.12", [g2])

    def ping(src, ip, *more):
        return sh("nsenter", "--net=" + src.ns.path, "busybox", "ping", "-c1", "-W1", *more, ip, check=False).find("1 packets received") >= 0

    assert ping(a, b.ip)
    assert ping(a, b.ip, "-s", "8900"), "frames of 9001 bytes"
    assert not ping(c, b.ip), "from another address"
    assert ping(a, "172.31.0.1"), "the gateway"
    u = b.ns.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.bind(("0.0.0.0", 999))
    u.settimeout(0.7)
    w = a.ns.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def gets(data):
        w.sendto(data, (b.ip, 999))
        try:
            return u.recv(100) == data
        except TimeoutError:
            return False

    assert not gets(b"one")
    lab.set_rules(g1, [rule(protocol="udp", port_from=999, port_to=999, cidr="172.31.0.0/16")])
    wait_for("the udp rule", lambda: gets(b"two"))
    lab.set_rules(g1, [rule(protocol="17", cidr="172.31.0.0/16")])
    time.sleep(0.5)
    assert gets(b"three")


@test
def spoofing_is_dropped(lab):
    v = lab.vpc()
    g = lab.sg(v, ALL_IN)
    a, b = lab.guest(v, "172.31.0.10", [g]), lab.guest(v, "172.31.0.11", [g])
    seen = b.ns.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    seen.bind(("eth0", 3))
    raw = a.ns.socket(socket.AF_PACKET, socket.SOCK_RAW)
    raw.bind(("eth0", 0))
    gw = bytes.fromhex("0aff00000001")
    own = bytes.fromhex(a.eni["mac"].replace(":", ""))

    def udp(src_ip, mac, mark):
        ip = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(mark), 0, 0, 64, 17, 0, socket.inet_aton(src_ip), socket.inet_aton(b.ip)))
        t = sum(struct.unpack("!10H", ip))
        t = (t & 0xffff) + (t >> 16)
        ip[10:12] = struct.pack("!H", ~(t + (t >> 16)) & 0xffff)
        raw.send(gw + mac + b"\x08\x00" + bytes(ip) + struct.pack("!HHHH", 1, 2, 8 + len(mark), 0) + mark)

    udp("172.31.0.10", own, b"honest-one")
    udp("172.31.0.99", own, b"wrong-address")
    udp("172.31.0.10", b"\x0a\x00\x00\x00\x77\x77", b"wrong-mac")
    udp("172.31.0.10", own, b"honest-two")
    raw.send(b"\xff" * 6 + own + b"\x86\xdd" + bytes(40))  # IPv6: there is none
    seen.settimeout(1)
    got = b""
    try:
        while True:
            got += seen.recv(4096)
    except TimeoutError:
        pass
    assert b"honest-one" in got and b"honest-two" in got, "honest frames"
    assert b"wrong-address" not in got and b"wrong-mac" not in got, "spoofed frames arrived"

    # ARP for an address of another: the gateway must not learn it, and b still answers
    def arp(sender_ip, mac):
        raw.send(b"\xff" * 6 + mac + b"\x08\x06" + struct.pack("!HHBBH", 1, 0x800, 6, 4, 1) + mac + socket.inet_aton(sender_ip) + bytes(6) +
                 socket.inet_aton("172.31.0.1"))

    replies = a.ns.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x806))
    replies.bind(("eth0", 0x806))
    replies.settimeout(0.7)

    def answered():
        try:
            while True:
                f = replies.recv(100)
                if f[20:22] == b"\x00\x02":
                    return True
        except TimeoutError:
            return False

    arp("172.31.0.11", own)
    assert not answered(), "an ARP request in another's name was answered"
    arp("172.31.0.10", own)
    assert answered(), "an honest ARP request was not answered"


@test
def metadata(lab):
    v = lab.vpc()
    sg = lab.sg(v, [], "web")
    g = lab.guest(v, "172.31.0.10", [sg], "198.51.100.10")
    h = lab.guest(v, "172.31.0.11", [sg], tokens="optional")
    eq(g.get("/latest/meta-data/")[0], 401)
    t = g.token()
    eq(g.get("/latest/meta-data/instance-id", t)[1].decode(), g.spec["id"])
    eq(g.get("/latest/meta-data/instance-id/", t)[0], 200)
    eq(g.get("/latest/meta-data/instance-id", t + "x")[0], 401)
    eq(h.get("/latest/meta-data/instance-id", t)[0], 401)  # bound to its instance
    eq(h.get("/latest/meta-data/instance-id")[1].decode(), h.spec["id"])  # v1 is allowed there
    st, body, head = g.http("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "21600"})
    eq((st, head["X-Aws-Ec2-Metadata-Token-Ttl-Seconds"]), (200, "21600"))
    for ttl, want in (("0", 400), ("21601", 400), ("x", 400), ("", 400)):
        eq(g.http("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": ttl})[0], want)
    eq(g.http("PUT", "/latest/api/token")[0], 400)
    eq(g.http("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60", "X-Forwarded-For": "1.2.3.4"})[0], 403)
    eq(g.http("GET", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})[0], 405)
    eq(g.http("POST", "/latest/meta-data/", {"X-aws-ec2-metadata-token": t})[0], 405)
    eq(g.get("/latest/meta-data/nothing-here", t)[0], 404)
    eq(g.get("/1999-01-01/meta-data/", t)[0], 404)
    # every listed name answers, all the way down
    leaves = {}

    def crawl(path):
        st, body, _ = g.get(path, t)
        assert st == 200, (path, st)
        for name in body.decode().split("\n"):
            if path.endswith("/public-keys/"):
                name = name.split("=")[0] + "/"
            if name.endswith("/"):
                crawl(path + name)
            else:
                st, leaf, _ = g.get(path + name, t)
                assert st == 200, (path + name, st)
                leaves[path[len("/2021-03-23/"):] + name] = leaf.decode()

    crawl("/2021-03-23/meta-data/")
    crawl("/2021-03-23/dynamic/")
    mac = "meta-data/network/interfaces/macs/%s/" % g.eni["mac"]
    want = {
        "meta-data/ami-id": "ami-0123456789abcdef0", "meta-data/local-ipv4": "172.31.0.10", "meta-data/public-ipv4": "198.51.100.10",
        "meta-data/public-keys/0/openssh-key": "ssh-ed25519 AAAA me", "meta-data/placement/region": "ap-southeast-2",
        "meta-data/placement/availability-zone": "ap-southeast-2a", "meta-data/tags/instance/Name": "box 172.31.0.10",
        "meta-data/security-groups": "web", "meta-data/local-hostname": "ip-172-31-0-10.ap-southeast-2.compute.internal",
        mac + "device-number": "0", mac + "local-ipv4s": "172.31.0.10", mac + "subnet-ipv4-cidr-block": "172.31.0.0/20",
        mac + "public-ipv4s": "198.51.100.10", mac + "interface-id": g.eni["id"], mac + "network-card": "0",
        mac + "vpc-ipv4-cidr-block": "172.31.0.0/16", mac + "ipv4-associations/198.51.100.10": "172.31.0.10",
        "meta-data/services/domain": "amazonaws.com", "meta-data/mac": g.eni["mac"],
    }
    for k, x in want.items():
        eq(leaves.get(k), x)
    doc = json.loads(leaves["dynamic/instance-identity/document"])
    eq((doc["instanceId"], doc["accountId"], doc["region"], doc["privateIp"]), (g.spec["id"], ACCOUNT, "ap-southeast-2", "172.31.0.10"))
    eq(g.get("/latest/user-data", t)[1], b"#!/bin/sh\necho hi\n")
    assert b"latest" in g.get("/", t)[1] and b"2021-03-23" in g.get("/", t)[1]
    eq(g.get("/latest", t)[1].decode().split("\n"), ["dynamic", "meta-data", "user-data"])
    # changes reach running guests
    g.spec.update(http_endpoint="disabled")
    lab.put({"spec/instance/%s/%s" % (ACCOUNT, g.spec["id"]): g.spec})
    wait_for("the endpoint to be disabled", lambda: g.get("/latest/meta-data/", t)[0] == 403)
    eq(g.http("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})[0], 403)


@test
def a_token_travels_no_further_than_the_hop_limit(lab):
    v = lab.vpc()
    g = lab.guest(v, "172.31.0.10", [lab.sg(v, [])], http_hop_limit=1)
    sniff = g.ns.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
    sniff.bind(("eth0", 0x800))
    sniff.settimeout(0.5)

    def ttls_with_data():
        seen = set()
        try:
            while True:
                f = sniff.recv(70000)
                if f[23] == 6 and f[26:30] == socket.inet_aton("169.254.169.254") and b"HTTP/1.1 200" in f:
                    seen.add(f[22])
        except TimeoutError:
            return seen

    t = g.token()
    eq(ttls_with_data(), {1})
    g.get("/latest/meta-data/", t)
    eq(ttls_with_data(), {64})


@test
def names(lab):
    v = lab.vpc()
    sg = lab.sg(v, ALL_IN)
    g, h = lab.guest(v, "172.31.0.10", [sg], "198.51.100.10"), lab.guest(v, "172.31.0.11", [sg])
    region = "ap-southeast-2.compute.internal"
    for tcp in (False, True):
        for server in ("169.254.169.253", "172.31.0.2"):
            r = g.dns("ip-172-31-0-11." + region, tcp=tcp, server=server)
            eq((r["rcode"], r["answers"]), (0, [socket.inet_aton("172.31.0.11")]))
    eq(g.dns("IP-172-31-0-11." + region)["answers"], [socket.inet_aton("172.31.0.11")])
    r = g.dns("ip-172-31-0-11." + region, 28)
    eq((r["rcode"], r["answers"]), (0, []))  # AAAA: no data, not silence
    eq(g.dns("ip-172-31-0-77." + region)["rcode"], 3)
    eq(g.dns("ec2-198-51-100-10." + region)["answers"], [socket.inet_aton("172.31.0.10")])
    eq(g.dns("ec2-198-51-100-99." + region)["answers"], [socket.inet_aton("198.51.100.99")])
    eq(g.dns("11.0.31.172.in-addr.arpa", 12)["answers"], [b"\x0eip-172-31-0-11\x0eap-southeast-2\x07compute\x08internal\0"])
    eq(g.dns("99.0.31.172.in-addr.arpa", 12)["rcode"], 3)
    # what is not ours goes to the upstream, a server on the LAN here
    up = lab.wan.socket(socket.AF_INET, socket.SOCK_DGRAM)
    up.bind(("203.0.113.1", 53))
    asked = []

    def serve():
        while True:
            try:
                m, a = up.recvfrom(4096)
            except OSError:
                return
            asked.append((m, a))
            q_end = 12
            while m[q_end]:
                q_end += 1 + m[q_end]
            q_end += 5
            rrs = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + b"\x01\x02\x03\x04"
            n = 100 if b"\x03big" in m else 1
            ans = m[:2] + b"\x81\x80" + struct.pack("!HHHH", 1, n, 0, 1) + m[12:q_end] + rrs * n + struct.pack("!BHHIH", 0, 41, 4096, 0, 0)
            if b"\x04fake" in m:
                up.sendto(b"\x00\x00" + ans[2:], a)  # a wrong id: must be ignored
                continue
            up.sendto(ans, a)

    threading.Thread(target=serve, daemon=True).start()
    for tcp in (False, True):
        r = g.dns("www.example.com", tcp=tcp)
        eq((r["rcode"], r["answers"], r["id"]), (0, [b"\x01\x02\x03\x04"], b"\x12\x34"))
        eq(struct.unpack("!H", r["raw"][10:12])[0], 0)  # it sent no EDNS and gets none
    r = g.dns("big.example.com")
    assert r["tc"] and len(r["raw"]) <= 512, "too long for UDP: cut, with TC"
    eq(len(g.dns("big.example.com", tcp=True)["answers"]), 100)
    t0 = time.monotonic()
    eq(g.dns("fake.example.com", timeout=12)["rcode"], 2)
    assert time.monotonic() - t0 < 9
    ports = {a[1] for _, a in asked}
    ids = {m[:2] for m, _ in asked}
    assert len(ports) > 1 and len(ids) > 3, "questions are easy to forge answers to"
    up.close()


@test
def name_servers_follow_the_hosts_network(lab):
    """A host whose network comes up after the first guest."""
    lab.host.ip("link", "set", "eth0", "down")
    v = lab.vpc()
    g = lab.guest(v, "172.31.0.10", [lab.sg(v, [])])
    eq(g.dns("www.example.com")["rcode"], 5)
    eq(g.dns("ip-172-31-0-10.ap-southeast-2.compute.internal")["rcode"], 0)
    up = lab.wan.socket(socket.AF_INET, socket.SOCK_DGRAM)
    up.bind(("203.0.113.1", 53))

    def serve():
        while True:
            try:
                m, a = up.recvfrom(4096)
            except OSError:
                return
            up.sendto(m[:2] + b"\x81\x83" + m[4:], a)

    threading.Thread(target=serve, daemon=True).start()
    lab.host.ip("link", "set", "eth0", "up")
    wait_for("names of the outside", lambda: (g.dns("www.example.com", timeout=8) or {}).get("rcode") == 3, 25)
    up.close()


@test
def time_service(lab):
    v = lab.vpc()
    g = lab.guest(v, "172.31.0.10", [lab.sg(v, [])])
    s = g.ns.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.settimeout(3)
    s.sendto(b"\x23" + bytes(39) + b"ORIGIN!!", ("169.254.169.123", 123))
    m = s.recv(100)
    eq((m[0], len(m), m[24:32]), (0x24, 48, b"ORIGIN!!"))
    assert 1 <= m[1] <= 15
    now = struct.unpack("!I", m[40:44])[0] - 2208988800
    assert abs(now - time.time()) < 2


@test
def public_addresses(lab):
    v = lab.vpc()
    sg = lab.sg(v, [rule(port_from=22, port_to=22, cidr="0.0.0.0/0")])
    a, b = lab.guest(v, "172.31.0.10", [sg], "198.51.100.10"), lab.guest(v, "172.31.0.11", [sg])
    for g in (a, b):
        g.ns.listen(22)
        g.ns.listen(23)
    lab.wan.listen(80)
    s = lab.host.connect("198.51.100.10", 22)
    assert s, "from the host to the public address"
    eq(line(s), "198.51.100.1")
    assert talk(s)
    assert not can(lab.host, "198.51.100.10", 23), "the group rules here too"
    assert not can(lab.host, "198.51.100.11", 22), "an address that nobody has"
    # out: as the public address inside the pool, as the host on the LAN
    s = a.ns.connect("203.0.113.1", 80)
    assert s, "no way out with a public address"
    eq(line(s), "203.0.113.2")
    s.close()
    assert not can(b.ns, "203.0.113.1", 80), "without a public address there is no way out"
    # the private address is not reachable from outside, even when the host is asked to
    lab.host.ip("route", "add", "172.31.0.0/16", "dev", lab.link(v))
    assert not can(lab.host, "172.31.0.11", 22), "a private address was reached from outside"
    lab.host.ip("route", "del", "172.31.0.0/16")
    # own public address and a neighbour's, from inside
    s = b.ns.connect("198.51.100.10", 22)
    assert s is None, "without a public address there is no way to the gateway"
    # another VPC of another account with the same range and the same address
    w = lab.vpc(OTHER)
    sg2 = lab.sg(w, [rule(port_from=22, port_to=22, cidr="198.51.100.10/32")])
    c = lab.guest(w, "172.31.0.10", [sg2], "198.51.100.20")
    d = lab.guest(w, "172.31.0.12", [sg2])
    c.ns.listen(22)
    assert not can(d.ns, "172.31.0.11", 22), "another VPC's private address was reached"
    s = a.ns.connect("198.51.100.20", 22)
    assert s, "by the public addresses"
    eq(line(s), "198.51.100.10")
    assert not can(lab.host, "198.51.100.20", 22), "the group names one address"
    # the address moves
    a.eni["public_ip"] = ""
    lab.settle(a.eni)
    assert not can(lab.host, "198.51.100.10", 22)
    b.eni["public_ip"] = "198.51.100.10"
    lab.settle(b.eni)
    s = lab.host.connect("198.51.100.10", 22)
    assert s and line(s) and talk(s), "the address did not move"
    # no route to the gateway, no way out
    rtb = lab.records["spec/rtb/%s/%s" % (ACCOUNT, v["rtb"])]
    rtb["routes"] = rtb["routes"][:1]
    lab.put({"spec/rtb/%s/%s" % (ACCOUNT, v["rtb"]): rtb})
    wait_for("the route to go", lambda: not can(b.ns, "203.0.113.1", 80, 0.5))


@test
def tcp_learns_the_smaller_mtu_of_the_way_out(lab):
    """Guests have 9001 bytes, the LAN 1500: the first packets of a connection already say so, both ways."""
    v = lab.vpc()
    a = lab.guest(v, "172.31.0.10", [lab.sg(v, ALL_IN)], "198.51.100.10")
    sniff = lab.wan.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sniff.bind(("eth0", 3))
    sniff.settimeout(1)
    lab.wan.listen(80)
    lab.wan.ip("route", "add", "198.51.100.0/24", "via", "203.0.113.2")
    a.ns.listen(22)

    def mss(fn):
        found = []
        s = fn()
        assert s and line(s)
        assert all(talk(s, os.urandom(60000)) for _ in range(10)), "bulk"
        try:
            while True:
                f = sniff.recv(70000)
                # SYN or SYN-ACK: the MSS is its first option
                if f[12:14] == b"\x08\x00" and f[23] == 6 and f[47] & 2 and f[54:56] == b"\x02\x04":
                    found.append(struct.unpack("!H", f[56:58])[0])
        except TimeoutError:
            pass
        return found

    out = mss(lambda: a.ns.connect("203.0.113.1", 80))
    assert out and max(out) <= 1460, out
    back = mss(lambda: lab.wan.connect("198.51.100.10", 22))
    assert back and max(back) <= 1460, back


@test
def a_guest_reaches_its_neighbours_public_address(lab):
    v = lab.vpc()
    sg = lab.sg(v, [rule(port_from=22, port_to=22, cidr="198.51.100.10/32")])
    a, b = lab.guest(v, "172.31.0.10", [sg], "198.51.100.10"), lab.guest(v, "172.31.0.11", [sg], "198.51.100.11")
    b.ns.listen(22)
    s = a.ns.connect("198.51.100.11", 22)
    assert s, "through the gateway and back"
    eq(line(s), "198.51.100.10")
    assert talk(s, b"x" * 100000)


@test
def traffic_flows_on_while_vpcd_is_dead(lab):
    v = lab.vpc()
    sg = lab.sg(v, ALL_IN)
    a, b = lab.guest(v, "172.31.0.10", [sg], "198.51.100.10"), lab.guest(v, "172.31.0.11", [sg])
    b.ns.listen(80)
    a.ns.listen(22)
    s = a.ns.connect(b.ip, 80)
    out = lab.host.connect("198.51.100.10", 22)
    line(s), line(out)
    assert talk(s) and talk(out)
    token = a.token("300")
    pid_file = lab.run_dir + "/vpcd/%s.pid" % v["id"]
    pid = open(pid_file).read()
    rules = sh("nsenter", "--net=" + a.vpc_ns, "nft", "-a", "list", "table", "inet", "spx")
    lab.kill_vpcd()
    assert talk(s, b"y" * 200000) and talk(out)
    assert can(a.ns, b.ip, 80), "a new flow"
    eq(a.get("/latest/meta-data/local-ipv4", token)[1], b"172.31.0.10")
    eq(a.dhcp()["ip"], "172.31.0.10")
    # meanwhile the store changes, and somebody removes a route of ours and flushes the host's tables
    lab.set_rules(sg, [rule(port_from=22, port_to=22, cidr="0.0.0.0/0")])
    b.eni["public_ip"] = "198.51.100.11"
    lab.put({"spec/eni/%s/%s" % (ACCOUNT, b.eni["id"]): b.eni})
    sh("nsenter", "--net=" + a.vpc_ns, "ip", "route", "del", "172.31.0.10")
    lab.host.run("nft", "delete", "table", "inet", lab.prefix)
    lab.host.ip("route", "del", "198.51.100.10")
    lab.start_vpcd()
    assert talk(s), "the flow was cut by the restart"
    assert talk(out), "the route was not repaired"
    eq(open(pid_file).read(), pid)  # the responder was adopted
    eq(a.get("/latest/meta-data/local-ipv4", token)[1], b"172.31.0.10")
    assert not can(a.ns, b.ip, 80), "a rule that went while vpcd was dead"
    b.ns.listen(22)
    assert can(lab.host, "198.51.100.11", 22), "an address that came while vpcd was dead"
    assert lab.prefix in lab.host.run("nft", "list", "tables")
    # a restart with nothing to do changes nothing
    rules = sh("nsenter", "--net=" + a.vpc_ns, "nft", "-a", "list", "table", "inet", "spx")
    lab.kill_vpcd()
    lab.start_vpcd()
    eq(sh("nsenter", "--net=" + a.vpc_ns, "nft", "-a", "list", "table", "inet", "spx"), rules)


@test
def a_dead_responder_is_replaced(lab):
    v = lab.vpc()
    a = lab.guest(v, "172.31.0.10", [lab.sg(v, [])])
    token = a.token("300")
    pid_file = lab.run_dir + "/vpcd/%s.pid" % v["id"]
    old = int(open(pid_file).read().split()[0])
    status = open("/proc/%d/status" % old).read()
    assert "Seccomp:\t2" in status and "NoNewPrivs:\t1" in status, "the responder is not locked up"
    eq(len(sh("nsenter", "--net=/proc/%d/ns/net" % old, "ip", "-o", "link").strip().split("\n")), 1)  # lo, nothing else
    os.kill(old, signal.SIGKILL)
    wait_for("a new responder", lambda: int(open(pid_file).read().split()[0]) != old)
    wait_for("its answers", lambda: a.get("/latest/meta-data/instance-id", token)[0] == 200)
    eq(a.dhcp()["ip"], "172.31.0.10")
    # one that hangs is found too
    old = int(open(pid_file).read().split()[0])
    os.kill(old, signal.SIGSTOP)
    wait_for("a new one for the one that hangs", lambda: int(open(pid_file).read().split()[0]) != old, 60)
    wait_for("its answers", lambda: a.get("/latest/meta-data/instance-id", token)[0] == 200)
    # killed while vpcd is dead
    lab.kill_vpcd()
    os.kill(int(open(pid_file).read().split()[0]), signal.SIGKILL)
    lab.start_vpcd()
    wait_for("its answers", lambda: a.get("/latest/meta-data/instance-id", token)[0] == 200)


@test
def the_store_goes_and_comes_back(lab):
    v = lab.vpc()
    sg = lab.sg(v, [rule(port_from=80, port_to=80, cidr="0.0.0.0/0")])
    a, b = lab.guest(v, "172.31.0.10", [sg]), lab.guest(v, "172.31.0.11", [sg])
    for port in (80, 81):
        b.ns.listen(port)
    s = a.ns.connect(b.ip, 80)
    line(s)
    lab.kill_state()
    assert talk(s) and can(a.ns, b.ip, 80) and a.token(), "guests depend on the store"
    # taps of what is known are opened without it: a guest can be started again
    sock = lab.run_dir + "/vpcd.sock"
    assert "mac" in sh(BIN + "/vpcd_lab", "call", sock, "eni.open", json.dumps(dict(account=ACCOUNT, eni_id=a.eni["id"])))
    lab.start_state()
    lab.set_rules(sg, [rule(port_from=81, port_to=81, cidr="0.0.0.0/0")])
    wait_for("a rule after the store came back", lambda: can(a.ns, b.ip, 81, 0.5), 20)
    assert talk(s)
    # vpcd starts before the store: it waits, and touches nothing meanwhile
    lab.kill_vpcd()
    lab.kill_state()
    lab.vpcd = subprocess.Popen(["nsenter", "--net=" + lab.host.path, BIN + "/spx-vpcd", "--config", lab.config], stdout=lab.log, stderr=lab.log, env=ENV)
    wait_for("health", lambda: '"starting"' in sh(BIN + "/vpcd_lab", "call", sock, "health", "{}", check=False))
    time.sleep(4)
    assert talk(s) and can(a.ns, b.ip, 81) and a.token()
    lab.start_state()
    wait_for("health", lambda: '"ok"' in sh(BIN + "/vpcd_lab", "call", sock, "health", "{}", check=False), 20)
    assert talk(s) and can(a.ns, b.ip, 81) and a.token()


@test
def it_ends_well_in_the_middle_of_a_round(lab):
    """What waits for the loop when it ends finds nothing that is gone (AddressSanitizer would say so)."""
    v = lab.vpc()
    sg = lab.sg(v, [])
    lab.guest(v, "172.31.0.10", [sg])
    for n in range(8):
        lab.set_rules(sg, [rule(port_from=n, port_to=n, cidr="0.0.0.0/0")])
        time.sleep(0.004 * n)
        lab.vpcd.send_signal(signal.SIGTERM)
        lab.set_rules(sg, [rule(port_from=n + 100, port_to=n + 100, cidr="0.0.0.0/0")])
        eq(lab.vpcd.wait(20), 0)
        lab.start_vpcd()
    assert "AddressSanitizer" not in open(lab.dir + "/log", errors="replace").read()


@test
def what_goes_is_removed(lab):
    v, w = lab.vpc(), lab.vpc(cidr="10.0.0.0/16", subnets=("10.0.0.0/24",))
    sg, sw = lab.sg(v, ALL_IN), lab.sg(w, ALL_IN)
    a, b = lab.guest(v, "172.31.0.10", [sg], "198.51.100.10"), lab.guest(v, "172.31.0.11", [sg])
    c = lab.guest(w, "10.0.0.10", [sw], "198.51.100.30")
    b.ns.listen(80)
    ns_v, ns_w = a.vpc_ns, c.vpc_ns
    pid = int(open(lab.run_dir + "/vpcd/%s.pid" % v["id"]).read().split()[0])
    assert can(a.ns, b.ip, 80)
    # deleted by wish, then the record goes
    a.eni["want"] = "deleted"
    eq(lab.settle(a.eni)["state"], "deleted")
    links = sh("nsenter", "--net=" + ns_v, "ip", "-o", "link")
    assert "spxt" + a.eni["id"][-11:] not in links and "spxt" + b.eni["id"][-11:] in links
    assert "198.51.100.10" not in lab.host.ip("route")
    lab.put({"spec/eni/%s/%s" % (ACCOUNT, a.eni["id"]): None})
    wait_for("the status to go", lambda: lab.status(a.eni) is None)
    # the last interface takes the namespace with it
    lab.put({"spec/eni/%s/%s" % (ACCOUNT, b.eni["id"]): None})
    wait_for("the namespace to go", lambda: not os.path.exists(ns_v))
    assert not is_running(pid), "its responder"
    assert os.path.exists(ns_w)
    assert lab.link(v) not in lab.host.ip("-o", "link")
    # a second one does not start, and does not take down what the first has
    for more in ([], ["--teardown"]):
        p = subprocess.run(["nsenter", "--net=" + lab.host.path, BIN + "/spx-vpcd", "--config", lab.config] + more, capture_output=True, text=True,
                           env=ENV, timeout=20)
        assert p.returncode == 1 and "another spx-vpcd" in p.stderr, p
    # something of another's in the host's namespace, with a name that is not ours
    lab.host.ip("link", "add", "spare0", "type", "veth", "peer", "name", "spare1")
    # and of another cloud's
    lab.host.ip("link", "add", "spxvzzz12345678", "type", "veth", "peer", "name", "spare2")
    lab.host.run("nft", "add table inet spxvzzz")
    lab.vpcd.terminate()
    eq(lab.vpcd.wait(20), 0)
    pid = int(open(lab.run_dir + "/vpcd/%s.pid" % w["id"]).read().split()[0])
    eq(lab.host.run("cat", "/proc/sys/net/ipv4/ip_forward").strip(), "1")
    lab.host.run(BIN + "/spx-vpcd", "--config", lab.config, "--teardown")
    eq(lab.host.run("cat", "/proc/sys/net/ipv4/ip_forward").strip(), "0")
    eq(lab.host.run("nft", "list", "tables").split("\n")[:-1], ["table inet other", "table inet spxvzzz"])
    links = lab.host.ip("-o", "link")
    assert lab.prefix not in links and "spare0" in links and "spxvzzz12345678" in links
    assert not os.path.exists(ns_w) and not is_running(pid)
    eq(sorted(x for x in os.listdir(lab.run_dir) if not x.startswith("state")), [])
    assert lab.dir not in sh("mount")


@test
def flushed_rules_are_back_within_ten_seconds(lab):
    v = lab.vpc()
    sg = lab.sg(v, [rule(port_from=22, port_to=22, cidr="0.0.0.0/0")])
    a = lab.guest(v, "172.31.0.10", [sg], "198.51.100.10")
    a.ns.listen(22)
    a.ns.listen(23)
    lab.wan.listen(80)
    assert can(lab.host, "198.51.100.10", 22) and can(a.ns, "203.0.113.1", 80)
    inside = lambda: sh("nsenter", "--net=" + a.vpc_ns, "nft", "list", "tables")
    outside = lambda: lab.host.run("nft", "list", "tables")
    before = (sorted(inside().split("\n")), sorted(x for x in outside().split("\n") if "other" not in x))
    # as a firewall that is loaded anew does, everywhere at once
    start = time.monotonic()
    lab.host.run("nft", "flush", "ruleset")
    sh("nsenter", "--net=" + a.vpc_ns, "nft", "flush", "ruleset")
    wait_for("the tables", lambda: (sorted(inside().split("\n")), sorted(outside().split("\n"))) == before)
    print("  tables were back after %.1f s" % (time.monotonic() - start))
    # the rules, not only the tables: what is allowed passes, what is not does not
    wait_for("traffic", lambda: can(lab.host, "198.51.100.10", 22) and can(a.ns, "203.0.113.1", 80))
    assert not can(lab.host, "198.51.100.10", 23), "the group has no rules any more"


@test
def bad_requests(lab):
    v = lab.vpc()
    g = lab.guest(v, "172.31.0.10", [lab.sg(v, [])])

    def ask(method, **kw):
        p = subprocess.run([BIN + "/vpcd_lab", "call", lab.run_dir + "/vpcd.sock", method, json.dumps(kw)], capture_output=True, text=True, env=ENV)
        return p.stderr.split(":")[0] if p.returncode else "ok"

    eq(ask("eni.open", account=ACCOUNT, eni_id="eni-../../x"), "BadRequest")
    eq(ask("eni.open", account=ACCOUNT, eni_id=g.eni["id"], n_queues=0), "BadRequest")
    eq(ask("eni.open", account=ACCOUNT, eni_id=g.eni["id"], n_queues=17), "BadRequest")
    eq(ask("eni.open", eni_id=g.eni["id"]), "BadRequest")
    eq(ask("nonsense", account=ACCOUNT, eni_id=g.eni["id"]), "UnknownMethod")
    eq(ask("eni.state", eni_id="eni-0123456789abcdef0"), "NotReady")
    eq(ask("eni.state", account=OTHER, eni_id=g.eni["id"]), "NotReady")
    # a record that makes no sense harms nobody else
    bad = dict(g.eni, id=lab.new_id("eni"), private_ip="10.9.9.9", generation=0)
    eq(lab.settle(bad)["state"], "error")
    assert "subnet" in lab.status(bad)["reason"]
    assert g.token()
    # a record that comes after the request is waited for
    late = dict(g.eni, id=lab.new_id("eni"), private_ip="172.31.0.77", mac="0a:00:00:00:00:77")
    p = subprocess.Popen([BIN + "/vpcd_lab", "call", lab.run_dir + "/vpcd.sock", "eni.open", json.dumps(dict(account=ACCOUNT, eni_id=late["id"]))],
                         stdout=subprocess.PIPE, text=True, env=ENV)
    time.sleep(0.6)
    lab.put({"spec/eni/%s/%s" % (ACCOUNT, late["id"]): late})
    out = p.communicate(timeout=15)[0]
    eq(json.loads(out.rsplit(" ", 1)[0])["mac"], "0a:00:00:00:00:77")


@test
def a_record_that_cannot_be_read_costs_nobody_his_network(lab):
    v = lab.vpc()
    sg = lab.sg(v, ALL_IN)
    a, b = lab.guest(v, "172.31.0.10", [sg], "198.51.100.10"), lab.guest(v, "172.31.0.11", [sg])
    b.ns.listen(80)
    s = a.ns.connect(b.ip, 80)
    line(s)
    key = "spec/subnet/%s/%s" % (ACCOUNT, v["subnets"][0][0])
    subnet = lab.records[key]
    lab.put({key: dict(subnet, cidr=7)})  # of another type than it should have
    wait_for("the error", lambda: (lab.status(a.eni) or {}).get("state") == "error")
    assert os.path.exists(a.vpc_ns) and a.pump.poll() is None
    lab.kill_vpcd()
    subprocess.run(["true"])
    lab.put({key: subnet})
    lab.start_vpcd()
    wait_for("the network", lambda: (lab.status(a.eni) or {}).get("state") == "ready")
    assert talk(s), "the flow was cut"
    assert can(a.ns, b.ip, 80)


@test(uid_base=77000)
def responders_run_as_nobody(lab):
    v = lab.vpc()
    g = lab.guest(v, "172.31.0.10", [lab.sg(v, [])])
    pid = int(open(lab.run_dir + "/vpcd/%s.pid" % v["id"]).read().split()[0])
    status = open("/proc/%d/status" % pid).read()
    assert re.search(r"Uid:\t77004\t77004\t77004\t77004", status), status
    assert re.search(r"CapEff:\t0+\n", status) and re.search(r"CapPrm:\t0+\n", status), "it kept capabilities"
    assert re.search(r"Groups:\t *\n", status), "it kept groups"
    eq(g.get("/latest/meta-data/instance-id", g.token())[1].decode(), g.spec["id"])
    # vpcd is root without most of what root may do
    caps = int(re.search(r"CapEff:\t(\w+)", open("/proc/%d/status" % lab.vpcd.pid).read()).group(1), 16)
    for cap in (16, 22, 19, 25):  # SYS_MODULE, SYS_BOOT, SYS_PTRACE, SYS_TIME
        assert not caps >> cap & 1, "capability %d" % cap
    # a folder that another service made is not trusted with pids that are signalled and keys
    lab.vpcd.terminate()
    lab.vpcd.wait(20)
    lab.host.run(BIN + "/spx-vpcd", "--config", lab.config, "--teardown")
    for name in ("vpcd", "netns"):
        os.mkdir(lab.run_dir + "/" + name)
        os.chown(lab.run_dir + "/" + name, 77003, 77003)
        p = subprocess.run(["nsenter", "--net=" + lab.host.path, BIN + "/spx-vpcd", "--config", lab.config], capture_output=True, text=True, env=ENV,
                           timeout=20)
        assert p.returncode == 1 and "belongs to another user" in p.stderr, p
        os.rmdir(lab.run_dir + "/" + name)
    lab.start_vpcd()
    # nobody but root may ask for taps
    sock = lab.run_dir + "/vpcd.sock"
    p = subprocess.run(["setpriv", "--reuid=77003", "--regid=77003", "--clear-groups", BIN + "/vpcd_lab", "call", sock, "eni.open",
                        json.dumps(dict(account=ACCOUNT, eni_id=g.eni["id"]))], capture_output=True, text=True, env=ENV)
    assert p.returncode, "another user opened a tap"


@test(uplink=True)
def a_pool_on_the_lan(lab):
    v = lab.vpc()
    sg = lab.sg(v, [rule(port_from=22, port_to=22, cidr="203.0.113.1/32")])
    # somebody else had the address: the LAN hears at once that it moved
    lab.wan.ip("neigh", "replace", "203.0.113.20", "lladdr", "02:00:00:00:00:99", "nud", "stale", "dev", "eth0")
    a = lab.guest(v, "172.31.0.10", [sg], "203.0.113.20")
    mac = json.loads(lab.host.ip("-j", "link", "show", "eth0"))[0]["address"]
    wait_for("the announcement", lambda: mac in lab.wan.ip("neigh", "show", "203.0.113.20"))
    a.ns.listen(22)
    lab.wan.listen(80)
    s = lab.wan.connect("203.0.113.20", 22)
    assert s, "from the LAN to the public address"
    eq(line(s), "203.0.113.1")
    s = a.ns.connect("203.0.113.1", 80)
    eq(line(s), "203.0.113.20")  # seen on the LAN as itself
    a.eni["public_ip"] = ""
    lab.settle(a.eni)
    lab.wan.ip("neigh", "flush", "all")
    assert not can(lab.wan, "203.0.113.20", 22)
    eq(lab.host.ip("neigh", "show", "proxy").strip(), "")


@test
def one_guest_cannot_starve_the_others_of_answers(lab):
    v = lab.vpc()
    sg = lab.sg(v, [])
    a, b = lab.guest(v, "172.31.0.10", [sg]), lab.guest(v, "172.31.0.11", [sg])
    stop = threading.Event()
    u = a.ns.socket(socket.AF_INET, socket.SOCK_DGRAM)
    junk = os.urandom(64)
    idle = [a.ns.connect("169.254.169.254", 80) for _ in range(60)]

    def flood():
        while not stop.is_set():
            for _ in range(200):
                u.sendto(junk, ("169.254.169.253", 53))
            time.sleep(0.01)

    t = threading.Thread(target=flood)
    t.start()
    try:
        t0 = time.monotonic()
        for _ in range(10):
            assert b.dns("ip-172-31-0-10.ap-southeast-2.compute.internal", timeout=2)
            assert b.get("/latest/meta-data/", b.token())[0] == 200
        assert b.dhcp()["ip"] == "172.31.0.11"
        assert time.monotonic() - t0 < 10
    finally:
        stop.set()
        t.join()
        for s in idle:
            if s:
                s.close()


def main():
    only = sys.argv[3] if len(sys.argv) > 3 else None
    failed = 0
    for fn, opts in TESTS:
        if only and fn.__name__ != only:
            continue
        lab, t0 = None, time.monotonic()
        try:
            lab = Lab()
            lab.open(**opts)
            fn(lab)
            print("ok    %-55s %5.1f s" % (fn.__name__, time.monotonic() - t0), flush=True)
        except Exception as e:
            failed += 1
            import traceback
            traceback.print_exc()
            print("FAIL  %s: %s" % (fn.__name__, e), flush=True)
            if lab:
                lab.show_log()
        finally:
            if lab:
                lab.close()
                if not os.environ.get("SPX_TEST_KEEP"):
                    shutil.rmtree(lab.dir, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
