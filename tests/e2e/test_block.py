"""Volumes, snapshots and images under real guests (QEMU under TCG): what is written is there, whatever happens to the block service."""
import base64
import hashlib
import os
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import guests  # noqa: E402
from cloud import wait_for  # noqa: E402
from guests import AZ, SLOW, Guest, code_of  # noqa: E402

BLOCK = 524288
cloud = None


def setUpModule():
    global cloud
    guests.set_up()
    cloud = guests.cloud


def tearDownModule():
    guests.tear_down()


def data_processes(name=""):
    """Pids of data processes of this cloud: their arguments name their folder."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                args = f.read().decode(errors="replace")
        except OSError:
            continue
        if "spx-viperblock-data" in args and cloud.run in args and name in args:
            found.append(int(pid))
    return found


def has_bytes(path, mark):
    """Looks at what a sparse file has, not at its holes."""
    with open(path, "rb", buffering=0) as f:
        at, end = 0, os.fstat(f.fileno()).st_size
        while at < end:
            try:
                at = os.lseek(f.fileno(), at, os.SEEK_DATA)
            except OSError:  # only a hole is left
                return False
            hole = os.lseek(f.fileno(), at, os.SEEK_HOLE)
            tail = b""
            while at < hole:
                piece = os.pread(f.fileno(), min(1 << 20, hole - at), at)
                if not piece:
                    return False
                if mark in tail + piece:
                    return True
                tail = piece[-len(mark):]
                at += len(piece)
    return False


class Volumes(unittest.TestCase):
    """Helpers; no tests of its own."""

    def setUp(self):
        self.ec2 = cloud.client("ec2")

    def volume(self, size=1, **kw):
        v = self.ec2.create_volume(AvailabilityZone=AZ, Size=size, **kw)["VolumeId"]
        self.ec2.get_waiter("volume_available").wait(VolumeIds=[v], WaiterConfig=SLOW)
        return v

    def attach(self, volume, guest, device="/dev/sdf"):
        self.ec2.attach_volume(VolumeId=volume, InstanceId=guest.id, Device=device)
        self.addCleanup(self.let_go, volume)
        self.ec2.get_waiter("volume_in_use").wait(VolumeIds=[volume], WaiterConfig=SLOW)
        return guest.disk(volume)

    def detach(self, volume, **kw):
        self.ec2.detach_volume(VolumeId=volume, **kw)
        self.ec2.get_waiter("volume_available").wait(VolumeIds=[volume], WaiterConfig=SLOW)

    def let_go(self, volume):
        """After a test that failed in the middle: the next one finds the guest as it was."""
        if code_of(self.ec2.detach_volume, VolumeId=volume, Force=True) == "no error":
            self.ec2.get_waiter("volume_available").wait(VolumeIds=[volume], WaiterConfig=SLOW)

    def delete(self, *volumes):
        for v in volumes:
            self.ec2.delete_volume(VolumeId=v)

    def snapshot(self, volume, **kw):
        s = self.ec2.create_snapshot(VolumeId=volume, **kw)
        self.assertEqual(s["State"], "pending")
        return s["SnapshotId"]

    def completed(self, *snapshots):
        self.ec2.get_waiter("snapshot_completed").wait(SnapshotIds=list(snapshots), WaiterConfig=SLOW)

    def of_snapshot(self, snapshot, **kw):
        v = self.ec2.create_volume(AvailabilityZone=AZ, SnapshotId=snapshot, **kw)["VolumeId"]
        self.ec2.get_waiter("volume_available").wait(VolumeIds=[v], WaiterConfig=SLOW)
        return v

    def fill(self, guest, dev, mib, seed="x"):
        """Lines of 32 bytes that carry a word; the sum of all of them."""
        line = (seed + "-" * 31)[:31]
        guest.ssh(f"echo '{line}' > /tmp/f; for i in $(seq 15); do cat /tmp/f /tmp/f > /tmp/g; mv /tmp/g /tmp/f; done; "
                  f"for k in $(seq 0 {mib - 1}); do dd if=/tmp/f of={dev} bs=1M seek=$k conv=notrunc 2>/dev/null; done; "
                  f"rm /tmp/f; dd if=/dev/null of={dev} conv=notrunc,fsync 2>/dev/null")
        want = hashlib.md5((line + "\n").encode() * 32768 * mib).hexdigest()
        self.assertEqual(self.sum(guest, dev, mib), want)
        return want

    def sum(self, guest, dev, mib):
        return guest.ssh(f"echo 3 > /proc/sys/vm/drop_caches; dd if={dev} bs=1M count={mib} 2>/dev/null | md5sum").split()[0]


class A_UnderAGuest(Volumes):
    @classmethod
    def setUpClass(cls):
        cls.g = Guest.launch()[0].ready()

    @classmethod
    def tearDownClass(cls):
        cls.g.terminate()

    def test_10_volume_grows_under_the_guest(self):
        v = self.volume(1)
        dev = self.attach(v, self.g)
        want = self.fill(self.g, dev, 4)
        self.assertEqual(self.g.ssh(f"cat /sys/block/{dev[5:]}/size"), str(1 << 21))
        m = self.ec2.modify_volume(VolumeId=v, Size=3)["VolumeModification"]
        self.assertEqual((m["OriginalSize"], m["TargetSize"], m["ModificationState"]), (1, 3, "modifying"))
        wait_for("the guest sees 3 GiB", lambda: self.g.ssh(f"cat /sys/block/{dev[5:]}/size") == str(3 << 21), 30)
        wait_for("modified", lambda: self.ec2.describe_volumes_modifications(VolumeIds=[v])["VolumesModifications"][0]["ModificationState"]
                 in ("optimizing", "completed"))
        self.assertEqual(self.ec2.describe_volumes(VolumeIds=[v])["Volumes"][0]["Size"], 3)
        self.g.ssh(f"dd if=/dev/zero of={dev} bs=1M seek=3071 count=1 conv=fsync 2>/dev/null")
        self.assertEqual(self.sum(self.g, dev, 4), want)
        self.detach(v)
        self.delete(v)

    def test_11_attached_again_and_again(self):
        v = self.volume(1)
        want, took = None, []
        for i in range(4):
            dev = self.attach(v, self.g, f"/dev/sd{'fghijk'[i]}")
            if want:
                self.assertEqual(self.sum(self.g, dev, 2), want)
            want = self.fill(self.g, dev, 2, f"round{i}")
            start = time.monotonic()
            self.detach(v)
            took.append(time.monotonic() - start)
        self.assertLess(min(took), 4.9)  # a guest that lets go at once is not asked again first, after 5 s
        self.delete(v)

    def test_12_block_service_killed_under_a_writing_guest(self):
        """kill -9 of what serves the disk, and of what manages it: the guest loses nothing and sees only a pause."""
        v = self.volume(1)
        dev = self.attach(v, self.g)
        self.g.ssh(f"cat > /tmp/w.sh <<'X'\ni=0; while [ ! -e /tmp/stop ]; do i=$((i+1)); printf '%015d\\n' $i > /tmp/n; "
                   f"dd if=/tmp/n of={dev} bs=16 seek=$i conv=notrunc,fsync 2>>/tmp/errors || echo failed >> /tmp/errors; "
                   "echo $i > /tmp/acked; done; echo done > /tmp/done\nX\nrm -f /tmp/stop /tmp/done /tmp/errors; (sh /tmp/w.sh >/dev/null 2>&1 &)")

        def acked():
            return int(self.g.ssh("cat /tmp/acked 2>/dev/null || echo 0") or 0)
        wait_for("writes", lambda: acked() > 3)
        longest = 0.0
        for round in range(3):
            pid, = data_processes(self.g.id)
            if round == 2:
                cloud.kill9("viperblock")
            before = acked()
            os.kill(pid, signal.SIGKILL)
            if round == 2:
                cloud.start("viperblock")
            start = time.monotonic()
            wait_for("writes go on", lambda: acked() > before + 2, 30, 0.05)
            longest = max(longest, time.monotonic() - start)
            self.assertNotIn(pid, data_processes(self.g.id))
        print(f"longest pause with kill -9: {longest:.1f} s (ssh included)", file=sys.stderr)
        self.g.ssh("touch /tmp/stop")
        wait_for("end", lambda: self.g.ssh("cat /tmp/done 2>/dev/null || true") == "done")
        self.assertNotIn("failed", self.g.ssh("cat /tmp/errors"))
        self.assertEqual(self.g.ssh("dmesg | grep -ci 'i/o error' || true"), "0")
        n = acked()
        self.g.ssh("echo 3 > /proc/sys/vm/drop_caches")
        lines = self.g.ssh(f"dd if={dev} bs=16 skip=1 count={n} 2>/dev/null").split()
        self.assertEqual([int(x) for x in lines], list(range(1, n + 1)))
        self.detach(v)
        self.delete(v)

    def test_13_snapshot_while_the_guest_writes_is_one_moment(self):
        v = self.volume(1)
        dev = self.attach(v, self.g)
        self.fill(self.g, dev, 64, "old")
        self.g.ssh(f"cat > /tmp/w.sh <<'X'\ni=0; while [ ! -e /tmp/stop ] && [ $i -lt 100000 ]; do i=$((i+1)); printf '%015d\\n' $i > /tmp/n; "
                   f"dd if=/tmp/n of={dev} bs=16 seek=$((i*32768)) conv=notrunc,fsync 2>/dev/null; "
                   f"dd if=/tmp/n of={dev} bs=16 seek=1 conv=notrunc,fsync 2>/dev/null; echo $i > /tmp/acked; done\nX\n"
                   "rm -f /tmp/stop /tmp/acked; (sh /tmp/w.sh >/dev/null 2>&1 &)")
        wait_for("writes", lambda: int(self.g.ssh("cat /tmp/acked 2>/dev/null || echo 0") or 0) > 5)
        before = int(self.g.ssh("cat /tmp/acked"))
        s = self.snapshot(v)
        after_call = int(self.g.ssh("cat /tmp/acked"))
        self.completed(s)
        self.g.ssh("touch /tmp/stop")
        r = self.of_snapshot(s)
        self.assertEqual(self.ec2.describe_snapshots(SnapshotIds=[s])["Snapshots"][0]["Progress"], "100%")
        other = self.attach(r, self.g, "/dev/sdg")
        last = int(self.g.ssh(f"dd if={other} bs=16 skip=1 count=1 2>/dev/null"))
        self.assertTrue(before <= last <= after_call + 1, (before, last, after_call))
        # Everything up to the last complete step is there, nothing after the next one.
        at = [self.g.ssh(f"dd if={other} bs=16 skip={i * 32768} count=1 2>/dev/null") for i in range(1, last + 3)]
        self.assertEqual([int(x) for x in at[:last]], list(range(1, last + 1)))
        self.assertNotEqual(at[last + 1], f"{last + 2:015d}")
        self.detach(r)
        self.detach(v)
        self.delete(v, r)
        self.ec2.delete_snapshot(SnapshotId=s)

    def test_14_by_force_the_guest_sees_errors_and_the_volume_is_free(self):
        v = self.volume(1)
        dev = self.attach(v, self.g)
        want = self.fill(self.g, dev, 2)
        other = Guest.launch()[0].ready()
        try:
            self.g.ssh(f"(exec 9< {dev}; sleep 600) >/dev/null 2>&1 &")
            self.detach(v, Force=True)
            self.assertNotEqual(self.g.ssh(f"dd if={dev} of=/dev/null bs=4096 count=1 skip=5000 iflag=direct 2>&1; echo $?").split()[-1], "0")
            self.assertEqual(self.sum(other, self.attach(v, other), 2), want)
        finally:
            other.terminate()
        self.ec2.get_waiter("volume_available").wait(VolumeIds=[v], WaiterConfig=SLOW)
        self.delete(v)

    def test_15_encrypted_volume_and_its_snapshots_show_nothing(self):
        def where(mark):
            paths = (os.path.join(folder, f) for folder, _, files in os.walk(cloud.data) for f in files if ".log" not in f)
            return [p for p in paths if os.path.isfile(p) and has_bytes(p, mark.encode())]
        plain, secret = self.volume(1), self.volume(1, Encrypted=True)
        d = self.ec2.describe_volumes(VolumeIds=[secret])["Volumes"][0]
        self.assertTrue(d["Encrypted"])
        self.assertRegex(d["KmsKeyId"], "^arn:aws:kms:.*:key/")
        want = {}
        for v, dev, mark in ((plain, "/dev/sdf", "PLAIN-MARK-4711"), (secret, "/dev/sdg", "SECRET-MARK-4711")):
            name = self.attach(v, self.g, dev)
            want[v] = self.fill(self.g, name, 3, mark)
        self.assertTrue(where("PLAIN-MARK-4711"))  # the search finds what is there
        self.assertEqual(where("SECRET-MARK-4711"), [])
        s = self.snapshot(secret)
        self.completed(s)
        self.assertTrue(self.ec2.describe_snapshots(SnapshotIds=[s])["Snapshots"][0]["Encrypted"])
        self.assertEqual(where("SECRET-MARK-4711"), [])
        r = self.of_snapshot(s)
        self.assertTrue(self.ec2.describe_volumes(VolumeIds=[r])["Volumes"][0]["Encrypted"])
        self.assertEqual(self.sum(self.g, self.attach(r, self.g, "/dev/sdh"), 3), want[secret])
        self.assertEqual(where("SECRET-MARK-4711"), [])
        for v in (plain, secret, r):
            self.detach(v)
        self.delete(plain, secret, r)
        self.ec2.delete_snapshot(SnapshotId=s)

    def test_16_snapshots_of_an_instance(self):
        v = self.volume(1)
        dev = self.attach(v, self.g)
        want = self.fill(self.g, dev, 2)
        out = self.ec2.create_snapshots(InstanceSpecification={"InstanceId": self.g.id}, Description="both", CopyTagsFromSource="volume")
        ids = {s["VolumeId"]: s["SnapshotId"] for s in out["Snapshots"]}
        self.assertEqual(len(ids), 2)
        self.completed(*ids.values())
        starts = {s["StartTime"] for s in self.ec2.describe_snapshots(SnapshotIds=list(ids.values()))["Snapshots"]}
        self.assertEqual(len(starts), 1)
        r = self.of_snapshot(ids[v])
        self.assertEqual(self.sum(self.g, self.attach(r, self.g, "/dev/sdg"), 2), want)
        for x in (v, r):
            self.detach(x)
            self.delete(x)
        for s in ids.values():
            self.ec2.delete_snapshot(SnapshotId=s)


class B_Images(Volumes):
    def test_20_image_of_a_running_guest_boots(self):
        g = Guest.launch()[0].ready()
        image = None
        try:
            g.ssh("echo kept > /root/marker; sync")
            image = self.ec2.create_image(InstanceId=g.id, Name="of-a-guest", NoReboot=True)["ImageId"]
            g.ssh("echo later > /root/marker; sync")
            self.ec2.get_waiter("image_available").wait(ImageIds=[image], WaiterConfig=SLOW)
            d = self.ec2.describe_images(ImageIds=[image])["Images"][0]
            snaps = [m["Ebs"]["SnapshotId"] for m in d["BlockDeviceMappings"] if "Ebs" in m]
            self.assertEqual(code_of(self.ec2.delete_snapshot, SnapshotId=snaps[0]), "InvalidSnapshot.InUse")
            two = Guest.launch(n=2, ImageId=image)
            for x in two:
                self.assertEqual(x.ready().ssh("cat /root/marker"), "kept")
            # Blocks of the image lie there once: what its guests have of their own is what they wrote.
            base = max(self.on_disk("images"), default=0)
            own = [self.disk_of(x) for x in two]
            print(f"image {base >> 20} MiB, its guests {[x >> 20 for x in own]} MiB", file=sys.stderr)
            self.assertTrue(all(x < base / 2 + (8 << 20) for x in own), (base, own))
            for x in two:
                x.terminate()
        finally:
            g.terminate()
            if image:
                self.ec2.deregister_image(ImageId=image)
        for s in snaps:
            self.ec2.delete_snapshot(SnapshotId=s)

    def on_disk(self, kind):
        top = os.path.join(cloud.data, "viperblock", kind)
        return [os.stat(os.path.join(top, x, "data")).st_blocks * 512 for x in os.listdir(top) if os.path.exists(os.path.join(top, x, "data"))]

    def disk_of(self, guest):
        v = guest.describe()["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
        return os.stat(os.path.join(cloud.data, "viperblock", "volumes", v, "data")).st_blocks * 512

    def test_22_image_with_a_reboot_has_what_was_not_synced(self):
        g = Guest.launch()[0].ready()
        image = None
        try:
            before = g.ssh("cat /proc/sys/kernel/random/boot_id; echo unsynced > /root/marker").split()[0]
            image = self.ec2.create_image(InstanceId=g.id, Name="with-a-reboot")["ImageId"]
            self.ec2.get_waiter("image_available").wait(ImageIds=[image], WaiterConfig=SLOW)
            child = Guest.launch(ImageId=image)[0].ready()
            self.assertEqual(child.ssh("cat /root/marker"), "unsynced")
            child.terminate()
            self.assertEqual(g.state(), "running")
            self.assertNotEqual(g.ready().ssh("cat /proc/sys/kernel/random/boot_id"), before)
        finally:
            g.terminate()
            if image:
                self.ec2.deregister_image(ImageId=image, DeleteAssociatedSnapshots=True)

    def test_21_image_removed_while_its_guests_run(self):
        g = Guest.launch()[0].ready()
        g.ssh("echo here > /root/marker; sync")
        image = self.ec2.create_image(InstanceId=g.id, Name="to-be-removed", NoReboot=True)["ImageId"]
        self.ec2.get_waiter("image_available").wait(ImageIds=[image], WaiterConfig=SLOW)
        g.terminate()
        child = Guest.launch(ImageId=image)[0].ready()
        try:
            snap = self.ec2.describe_images(ImageIds=[image])["Images"][0]["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]
            self.ec2.deregister_image(ImageId=image)
            self.ec2.delete_snapshot(SnapshotId=snap)
            child.ssh("echo 3 > /proc/sys/vm/drop_caches")
            self.assertEqual(child.ssh("cat /root/marker; md5sum /bin/* > /dev/null && echo read"), "here\nread")
            self.ec2.stop_instances(InstanceIds=[child.id])
            self.ec2.get_waiter("instance_stopped").wait(InstanceIds=[child.id], WaiterConfig=SLOW)
            self.ec2.start_instances(InstanceIds=[child.id])
            self.ec2.get_waiter("instance_running").wait(InstanceIds=[child.id], WaiterConfig=SLOW)
            self.assertEqual(child.ready().ssh("cat /root/marker"), "here")
        finally:
            child.terminate()


class C_WithoutAGuest(Volumes):
    """By the tools of an operator and by the EBS direct APIs."""

    def test_30_bytes_in_and_out_check_and_orphans(self):
        v = self.volume(1)
        src, dst = os.path.join(cloud.dir, "in.raw"), os.path.join(cloud.dir, "out.raw")
        body = os.urandom(3 * BLOCK + 4096)
        with open(src, "wb") as f:
            f.write(body)
        cloud.spx("admin", "volumes", "import", v, src)
        cloud.spx("admin", "volumes", "export", v, dst)
        with open(dst, "rb") as f:
            out = f.read()
        self.assertEqual(len(out), 1 << 30)
        self.assertEqual(out[:len(body)], body)
        self.assertFalse(out[len(body):].strip(b"\0"))
        self.assertEqual(cloud.spx_json("admin", "volumes", "check", "--deep")["problems"], [])
        self.assertEqual(cloud.spx_json("admin", "volumes", "orphans"), [])
        self.assertIn(v, [r["volume"] for r in cloud.spx_json("top", "volumes")])
        self.delete(v)

    def test_31_blocks_of_a_snapshot(self):
        v = self.volume(1)
        src = os.path.join(cloud.dir, "in.raw")
        first = os.urandom(BLOCK) + b"\0" * BLOCK + os.urandom(BLOCK)
        with open(src, "wb") as f:
            f.write(first)
        cloud.spx("admin", "volumes", "import", v, src)
        a = self.snapshot(v)
        self.completed(a)
        with open(src, "wb") as f:
            f.write(first[:2 * BLOCK] + os.urandom(BLOCK))
        cloud.spx("admin", "volumes", "import", v, src)
        time.sleep(15)  # one snapshot of a volume each 15 s, as on AWS
        b = self.snapshot(v)
        self.completed(b)
        ebs = cloud.client("ebs")
        blocks = ebs.list_snapshot_blocks(SnapshotId=a)
        self.assertEqual((blocks["VolumeSize"], blocks["BlockSize"]), (1, BLOCK))
        self.assertEqual([x["BlockIndex"] for x in blocks["Blocks"]], [0, 2])
        got = ebs.get_snapshot_block(SnapshotId=a, BlockIndex=2, BlockToken=blocks["Blocks"][1]["BlockToken"])
        data = got["BlockData"].read()
        self.assertEqual(data, first[2 * BLOCK:])
        self.assertEqual(got["Checksum"], base64.b64encode(hashlib.sha256(data).digest()).decode())
        self.assertEqual([x["BlockIndex"] for x in ebs.list_changed_blocks(FirstSnapshotId=a, SecondSnapshotId=b)["ChangedBlocks"]], [2])
        self.delete(v)
        for s in (b, a):
            self.ec2.delete_snapshot(SnapshotId=s)

    def test_32_snapshot_outlives_volume_and_node_state(self):
        v = self.volume(1)
        src, dst = os.path.join(cloud.dir, "in.raw"), os.path.join(cloud.dir, "out2.raw")
        body = os.urandom(2 * BLOCK)
        with open(src, "wb") as f:
            f.write(body)
        cloud.spx("admin", "volumes", "import", v, src)
        s = self.snapshot(v)
        self.completed(s)
        self.delete(v)
        self.ec2.get_waiter("volume_deleted").wait(VolumeIds=[v], WaiterConfig=SLOW)
        p = cloud.procs.pop("viperblock")
        p.terminate()
        p.wait(30)
        for kind in ("volumes", "images"):
            subprocess.run(["rm", "-rf", os.path.join(cloud.data, "viperblock", kind)], check=True)
        cloud.start("viperblock")
        r = self.of_snapshot(s, Size=2)
        cloud.spx("admin", "volumes", "export", r, dst)
        with open(dst, "rb") as f:
            self.assertEqual(f.read(len(body)), body)
        self.delete(r)
        self.ec2.delete_snapshot(SnapshotId=s)


class D_NothingIsLeft(Volumes):
    def test_nothing_is_left(self):
        self.assertEqual(self.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"], [])
        wait_for("no data process", lambda: not data_processes(), 60)
        wait_for("no run-time maps", lambda: not [f for _, _, fs in os.walk(os.path.join(cloud.run, "viperblock")) for f in fs if "vol-" in f])
        self.assertEqual(cloud.sanitizer_reports(), [])


if __name__ == "__main__":
    unittest.main(verbosity=2, failfast=bool(os.environ.get("SPX_FAILFAST")))
