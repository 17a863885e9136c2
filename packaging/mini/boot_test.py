"""The small image in QEMU under TCG with a metadata service on the far side of user networking: no root, no cloud.

  boot_test.py BUILD_SH MINITOOL   builds the image (or takes $SPX_MINI), then boots one disk as a machine's life goes
  boot_test.py --imds FOLDER       (started by QEMU for each connection) answers one request from the files of FOLDER
"""
import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

BOOT_LIMIT = 60  # seconds on a busy machine; the figure to meet on an idle one is 10
OVMF = [("/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"), ("/usr/share/OVMF/OVMF_CODE.fd", "/usr/share/OVMF/OVMF_VARS.fd")]


def imds(folder):
    """One HTTP exchange on standard input and output, as QEMU's guestfwd starts it."""
    head = b""
    while b"\r\n\r\n" not in head:
        piece = os.read(0, 4096)
        if not piece:
            return
        head += piece
    if os.path.exists(os.path.join(folder, "off")):
        return  # as when nobody is there
    lines = head.decode().split("\r\n")
    method, path, _ = lines[0].split(" ")
    headers = {k.lower(): v for k, v in (x.split(": ", 1) for x in lines[1:] if ": " in x)}
    name = os.path.join(folder, path.removeprefix("/latest/").replace("/", "_"))
    if method == "PUT" and path == "/latest/api/token" and headers.get("x-aws-ec2-metadata-token-ttl-seconds"):
        status, body = "200 OK", b"T0KEN=="
    elif headers.get("x-aws-ec2-metadata-token") != "T0KEN==":
        status, body = "401 Unauthorized", b""
    elif os.path.exists(name):
        with open(name, "rb") as f:
            status, body = "200 OK", f.read()
    else:
        status, body = "404 Not Found", b"not found"
    os.write(1, f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)


class Machine:
    def __init__(self, folder, disk, log, extra=()):
        self.folder, self.log = folder, os.path.join(folder, log)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        answer = f"{sys.executable} {os.path.abspath(__file__)} --imds {folder}/imds"
        net = (f"user,id=n0,net=169.254.0.0/16,host=169.254.0.2,dhcpstart=169.254.0.15,hostfwd=tcp:127.0.0.1:{self.port}-:22,"
               f"guestfwd=tcp:169.254.169.254:80-cmd:{answer}")
        self.qmp = os.path.join(folder, "qmp")
        self.start = time.monotonic()
        self.p = subprocess.Popen(
            ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg", "-cpu", "max", "-m", "384", "-nodefaults", "-display", "none",
             "-serial", f"file:{self.log}", "-drive", f"if=none,id=d0,file={disk},format=raw", "-device", "virtio-blk-pci,drive=d0,bootindex=1",
             "-netdev", net, "-device", "virtio-net-pci,netdev=n0,romfile=", "-device", "virtio-rng-pci",
             "-qmp", f"unix:{self.qmp},server=on,wait=off", *extra], stderr=subprocess.DEVNULL)

    def console(self):
        try:
            with open(self.log, errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def wait(self, text, limit=BOOT_LIMIT):
        end = time.monotonic() + limit
        while text not in self.console():
            if time.monotonic() > end or self.p.poll() is not None:
                self.p.kill()
                raise AssertionError(f"'{text}' is not on the console:\n{self.console()[-3000:]}")
            time.sleep(0.05)
        return time.monotonic() - self.start

    def ssh(self, command, check=True):
        p = subprocess.run(["ssh", "-i", f"{self.folder}/key", "-p", str(self.port), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no",
                            "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=20", "root@127.0.0.1", command],
                           capture_output=True, text=True, timeout=60)
        if check and p.returncode != 0:
            raise AssertionError(f"{command}: {p.returncode} {p.stderr}\n{self.console()[-2000:]}")
        return p.stdout.strip() if check else p.returncode

    def fingerprints(self):
        return re.search(r"-----BEGIN SSH HOST KEY FINGERPRINTS-----(.*?)-----END", self.console(), re.S).group(1).strip()

    def power_button(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.qmp)
            f = s.makefile("rw")
            f.readline()
            for command in ("qmp_capabilities", "system_powerdown"):
                f.write(json.dumps({"execute": command}) + "\n")
                f.flush()
                f.readline()
            self.p.wait(BOOT_LIMIT)


def put(folder, name, data):
    with open(os.path.join(folder, "imds", name), "wb") as f:
        f.write(data)


def must(what, ok):
    if not ok:
        raise AssertionError(what)


def life(folder, image):
    disk = os.path.join(folder, "disk")
    shutil.copy(image, disk)
    os.truncate(disk, 1 << 30)
    os.mkdir(os.path.join(folder, "imds"))
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/key"], check=True)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{folder}/other"], check=True)
    with open(f"{folder}/key.pub", "rb") as f:
        key = f.read().strip()
    put(folder, "meta-data_instance-id", b"i-00000000000000001")
    put(folder, "meta-data_local-hostname", b"ip-10-0-0-1.ec2.internal")
    put(folder, "meta-data_public-keys_0_openssh-key", key)
    put(folder, "user-data", gzip.compress(b"#!/bin/sh\necho once >>/root/runs; echo said $(hostname); exit 3\n"))

    # First boot; the metadata service comes late.
    put(folder, "off", b"")
    m = Machine(folder, disk, "1.log")
    m.wait("no metadata within 10 s")
    m.wait("ready in")
    os.unlink(os.path.join(folder, "imds", "off"))
    m.wait("user data: end, status 3")
    must("output of user data", "\nsaid ip-10-0-0-1" in m.console().replace("\r", ""))
    must("root grows to the disk", int(m.ssh("df -k / | awk 'END {print $2}'")) > 800_000)
    must("nobody can log in with a password", m.ssh("cut -d: -f2 /etc/shadow | sort -u") == "*")
    first = m.fingerprints()
    m.power_button()
    must("ended by itself", m.p.returncode == 0 and "spinifex-mini: power button" in m.console())

    # Again: fast, the same keys, user data not run twice.
    m = Machine(folder, disk, "2.log")
    took = m.wait("ready in")
    m.ssh("true")
    must("host keys are kept", m.fingerprints() == first)
    must("user data ran once", m.ssh("cat /root/runs") == "once")
    print(f"start of QEMU to ready: {took:.1f} s")
    m.ssh("reboot", check=False)
    end = time.monotonic() + BOOT_LIMIT
    while m.console().count("ready in") < 2:
        must("reboot comes back", time.monotonic() < end)
        time.sleep(0.1)
    m.p.kill()  # without warning: the journal keeps the disk whole
    m.p.wait()

    # A copy of the disk as another instance: keys of its own, the old key does not open it.
    put(folder, "meta-data_instance-id", b"i-00000000000000002")
    with open(f"{folder}/other.pub", "rb") as f:
        put(folder, "meta-data_public-keys_0_openssh-key", f.read().strip())
    os.unlink(os.path.join(folder, "imds", "user-data"))
    m = Machine(folder, disk, "3.log")
    m.wait("user data: none")
    must("host keys are new", m.fingerprints() != first)
    must("the old key is forgotten", m.ssh("true", check=False) != 0)
    for end in ("", ".pub"):
        os.replace(f"{folder}/other{end}", f"{folder}/key{end}")
    must("the new key opens", m.ssh("hostname") == "ip-10-0-0-1")
    m.power_button()

    firmware = next(((c, v) for c, v in OVMF if os.path.exists(c) and os.path.exists(v)), None)
    if firmware:
        shutil.copy(firmware[1], f"{folder}/vars")
        m = Machine(folder, disk, "4.log", ["-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={firmware[0]}",
                                            "-drive", f"if=pflash,format=raw,unit=1,file={folder}/vars"])
        print(f"by UEFI: {m.wait('ready in'):.1f} s")
        m.power_button()


def main():
    if sys.argv[1] == "--imds":
        return imds(sys.argv[2])
    folder = tempfile.mkdtemp(prefix="spx-mini-")
    try:
        image = os.environ.get("SPX_MINI")
        if not image:
            image = os.path.join(folder, "mini.raw")
            subprocess.run([sys.argv[1], "--out", image, "--tool", sys.argv[2]], check=True)
        life(folder, image)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


sys.exit(main())
