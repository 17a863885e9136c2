"""A Linux guest (QEMU, TCG) with a vhost-user disk of two queues checks every byte of it while its server is killed and started again
and the disk grows.

  vu_guest_test.py SERVER GUESTTOOL BUILD_SH

The guest's programs come from a memory file system: TCG does not notice that another process (any vhost-user server) overwrites a page
whose code it has translated, so nothing under TCG may be run from such a disk. Data is not concerned, nor are guests on KVM.
"""
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

FAT_START = 1 << 20  # where packaging/mini/build.sh puts kernel and first stage
DATA, GROWN = 32 << 20, 48 << 20
KILLS = 8


def must(what, ok):
    if not ok:
        raise AssertionError(what)


class Server:
    """The server of one disk on a socket that lives as long as the test."""

    def __init__(self, exe, folder, name, size, queues):
        self.exe, self.file, self.sock = exe, os.path.join(folder, name), os.path.join(folder, name + ".sock")
        self.options = [f"size={size}", f"queues={queues}", "grow=%d" % GROWN]
        self.listen = socket.socket(socket.AF_UNIX)
        self.listen.bind(self.sock)
        self.listen.listen(4)
        self.start()

    def start(self):
        fd = self.listen.fileno()
        self.p = subprocess.Popen([self.exe, self.file, f"fd={fd}", *self.options], pass_fds=(fd,), stdout=subprocess.PIPE, text=True)
        must("the server does not start", self.p.stdout.readline() == "ready\n")

    def kill(self):
        self.p.kill()
        self.p.wait()
        self.p.stdout.close()

    def grow(self):
        self.options[0] = f"size={GROWN}"  # for the next start
        self.p.send_signal(signal.SIGHUP)

    def stop(self):
        self.p.terminate()
        text = self.p.stdout.read()
        must(f"the server ended with {self.p.wait(20)}", self.p.returncode == 0)
        return text.strip()


def fat_file(image, name):
    """A file of the root folder of the image's FAT partition (12 or 16 bits); name as the folder has it, 11 bytes."""
    with open(image, "rb") as f:
        f.seek(FAT_START)
        fat = f.read(24 << 20)
    per_sector, per_cluster, reserved, n_fats, n_root = struct.unpack_from("<HBHBH", fat, 11)
    per_fat = struct.unpack_from("<H", fat, 22)[0]
    must("the image's first partition is FAT32", per_fat > 0)
    table = reserved * per_sector
    root = table + n_fats * per_fat * per_sector
    data = root + n_root * 32
    is_12 = (len(fat) - data) // (per_cluster * per_sector) < 4085

    def after(cluster):
        if is_12:
            v = struct.unpack_from("<H", fat, table + cluster * 3 // 2)[0]
            return v >> 4 if cluster & 1 else v & 0xfff
        return struct.unpack_from("<H", fat, table + 2 * cluster)[0]

    for at in range(root, data, 32):
        if fat[at:at + 11] == name:
            cluster, size = struct.unpack_from("<HI", fat, at + 26)
            out, n = [], per_cluster * per_sector
            while 2 <= cluster < (0xff8 if is_12 else 0xfff8) and len(out) * n < size:
                start = data + (cluster - 2) * n
                out.append(fat[start:start + n])
                cluster = after(cluster)
            return b"".join(out)[:size]
    raise AssertionError(f"{name} is not in the image")


def cpio(files):
    """An archive in the kernel's form (newc): its files win over those of the archive in front of it."""
    out = b""
    for i, (name, data) in enumerate([*files, ("TRAILER!!!", b"")]):
        head = [i + 1, 0o100755, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out += b"070701" + b"".join(b"%08x" % v for v in head) + name.encode() + b"\0"
        out += b"\0" * (-len(out) % 4) + data
        out += b"\0" * (-len(out) % 4)
    return out


INIT = b"""#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t devtmpfs devtmpfs /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
while read -r module; do insmod "/modules/$module"; done </modules/order
while [ ! -b /dev/vda ]; do usleep 50000; done
exec /vutool
"""


class Guest:
    def __init__(self, folder, server):
        self.log = os.path.join(folder, "console")
        args = ["qemu-system-x86_64", "-machine", "q35,memory-backend=mem", "-object", "memory-backend-memfd,id=mem,size=256M,share=on", "-accel", "tcg",
                "-cpu", "max", "-smp", "2", "-m", "256", "-nodefaults", "-display", "none", "-serial", f"file:{self.log}",
                "-kernel", f"{folder}/vmlinuz", "-initrd", f"{folder}/initrd", "-append", "console=ttyS0,115200n8 no_timer_check panic=-1",
                "-chardev", f"socket,id=c,path={server.sock},reconnect=1", "-device", "vhost-user-blk-pci,id=d,chardev=c,num-queues=2", "-no-reboot"]
        self.p = subprocess.Popen(args, stderr=subprocess.PIPE, text=True)

    def console(self):
        try:
            with open(self.log, errors="replace", encoding="utf-8") as f:
                return f.read()
        except FileNotFoundError:
            return ""

    def wait(self, pattern, limit):
        end = time.monotonic() + limit
        while True:
            m = re.search(pattern, self.console())
            if m:
                return m
            if time.monotonic() > end or self.p.poll() is not None:
                raise AssertionError(f"'{pattern}' is not on the console:\n{self.console()[-3000:]}\n{self.p.poll()}")
            time.sleep(0.05)


def run(server_exe, tool, build_sh, folder):
    image = os.path.join(folder, "mini.raw")
    subprocess.run([build_sh, "--out", image], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(folder, "vmlinuz"), "wb") as f:
        f.write(fat_file(image, b"VMLINUZ    "))
    with open(os.path.join(folder, "initrd"), "wb") as f, open(tool, "rb") as t:
        first = fat_file(image, b"INITRD  IMG")
        f.write(first + b"\0" * (-len(first) % 4) + cpio([("init", INIT), ("vutool", t.read())]))
    server = Server(server_exe, folder, "data", DATA, 2)
    guest = Guest(folder, server)
    try:
        m = guest.wait(r"vutool: ready serial=(\S*) size=(\d+)", 90)
        must(f"serial {m[1]}", m[1] == "vol0123456789abcdef0")
        must(f"size {m[2]}", int(m[2]) == DATA)
        for i in range(KILLS):
            time.sleep(0.7 + 0.1 * i)
            server.kill()
            server.start()
            if i == KILLS // 2:
                time.sleep(1.5)
                server.grow()
                guest.wait(rf"vutool: size={GROWN}", 10)
        m = guest.wait(r"vutool: verified n=(\d+) longest=(\d+)", 60)
        must(f"the guest saw wrong bytes:\n{guest.console()[-2000:]}", "WRONG" not in guest.console())
        must(f"only {m[1]} requests", int(m[1]) > 500)
        must("the kernel complained", not re.search(r"I/O error|blk_update_request|Buffer I/O", guest.console()))
        print(f"guest: {m[1]} requests under {KILLS} kills, the longest took {m[2]} ms (figure to meet: 2500)")
        must(f"a request took {m[2]} ms", int(m[2]) < 10000)
        guest.p.wait(30)
        print(server.stop())
    finally:
        guest.p.kill()
        if server.p.poll() is None:
            server.kill()


def main():
    folder = tempfile.mkdtemp(prefix="vu-guest-")
    try:
        run(sys.argv[1], sys.argv[2], sys.argv[3], folder)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
