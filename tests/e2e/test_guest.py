"""Real services and real guests (QEMU under TCG) in a network namespace of the test's own: what a user does, with the stock AWS CLI, boto3 and ssh.

Needs root. The small image is taken from SPX_MINI (a raw disk), or built (that needs the package archive, or its cache).
"""
import base64
import json
import os
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import guests  # noqa: E402
from cloud import REGION, wait_for  # noqa: E402
from guests import AZ, SLOW, Guest, code_of, ssh  # noqa: E402

cloud = None
ami = None


def setUpModule():
    global cloud, ami
    guests.set_up()
    cloud, ami = guests.cloud, guests.ami


def tearDownModule():
    guests.tear_down()


class A_FirstGuest(unittest.TestCase):
    """The promise of the README, by the AWS CLI."""

    @classmethod
    def setUpClass(cls):
        script = os.path.join(cloud.dir, "hello.sh")
        with open(script, "w") as f:
            f.write("#!/bin/sh\necho hello-from-user-data $(hostname) > /root/hello\n")
        start = time.monotonic()
        out = json.loads(cloud.aws("ec2", "run-instances", "--image-id", ami, "--instance-type", "t3.micro", "--key-name", "me",
                                   "--user-data", f"file://{script}", "--metadata-options", "HttpTokens=optional",
                                   "--tag-specifications", "ResourceType=instance,Tags=[{Key=Name,Value=first}]").stdout)
        cls.g = Guest(out["Instances"][0]["InstanceId"])
        cloud.aws("ec2", "wait", "instance-running", "--instance-ids", cls.g.id)
        cls.g.ready()
        print(f"launch to ssh: {time.monotonic() - start:.1f} s", file=sys.stderr)

    @classmethod
    def tearDownClass(cls):
        cls.g.terminate()

    def test_10_console_key_and_user_data(self):
        text = cloud.aws("ec2", "get-console-output", "--instance-id", self.g.id, "--output", "text").stdout
        wait_for("console marks", lambda: "-----BEGIN SSH HOST KEY FINGERPRINTS-----" in self.g.console())
        self.assertIn(self.g.id, text)
        name = self.g.describe()["PrivateDnsName"]
        self.assertEqual(wait_for("user data ran", lambda: self.g.ssh("cat /root/hello 2>/dev/null || true")),
                         f"hello-from-user-data {name.split('.')[0]}")

    def test_11_address_and_mtu_by_dhcp(self):
        self.assertIn(f" {self.g.private_ip}/", self.g.ssh("ip -4 addr show dev eth0"))
        self.assertIn("mtu 9001", self.g.ssh("ip link show dev eth0"))

    def test_12_metadata_v1_and_v2(self):
        ask = self.imds
        self.assertEqual(ask("GET", "/latest/meta-data/instance-id"), (200, self.g.id))  # v1: HttpTokens is optional
        status, token = ask("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"})
        self.assertEqual(status, 200)
        self.assertEqual(ask("GET", "/latest/meta-data/local-ipv4", {"X-aws-ec2-metadata-token": token}), (200, self.g.private_ip))
        self.assertEqual(ask("GET", "/latest/meta-data/instance-id", {"X-aws-ec2-metadata-token": "bad"})[0], 401)
        self.assertEqual(ask("PUT", "/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60", "X-Forwarded-For": "1.2.3.4"})[0], 403)
        doc = json.loads(ask("GET", "/latest/dynamic/instance-identity/document", {"X-aws-ec2-metadata-token": token})[1])
        self.assertEqual((doc["instanceId"], doc["region"], doc["accountId"]), (self.g.id, REGION, cloud.account("one")[2]))
        self.g.ec2.modify_instance_metadata_options(InstanceId=self.g.id, HttpTokens="required")
        wait_for("v1 refused", lambda: ask("GET", "/latest/meta-data/instance-id")[0] == 401)
        self.assertEqual(ask("GET", "/latest/meta-data/placement/availability-zone", {"X-aws-ec2-metadata-token": token}), (200, AZ))

    def imds(self, method, path, headers=None):
        """A request written by hand through the guest's nc, so that nothing helps it to be right."""
        lines = [f"{method} {path} HTTP/1.1", "Host: 169.254.169.254", "Connection: close"]
        lines += [f"{k}: {v}" for k, v in (headers or {}).items()]
        if method == "PUT":
            lines.append("Content-Length: 0")
        raw = base64.b64encode(("\r\n".join(lines) + "\r\n\r\n").encode()).decode()
        out = self.g.ssh(f"echo {raw} | base64 -d | nc -w 5 169.254.169.254 80")
        head, _, body = out.replace("\r\n", "\n").partition("\n\n")
        return int(head.split()[1]), body.strip()

    def test_13_names(self):
        name = self.g.describe()["PrivateDnsName"]
        self.assertIn(self.g.private_ip, self.g.ssh(f"nslookup {name} 172.31.0.2"))
        self.assertIn(self.g.private_ip, self.g.ssh(f"nslookup {name} 169.254.169.253"))

    def test_14_volume_write_detach_and_reattach_elsewhere(self):
        ec2 = self.g.ec2
        vol = ec2.create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
        ec2.get_waiter("volume_available").wait(VolumeIds=[vol], WaiterConfig=SLOW)
        ec2.attach_volume(VolumeId=vol, InstanceId=self.g.id, Device="/dev/sdf")
        ec2.get_waiter("volume_in_use").wait(VolumeIds=[vol], WaiterConfig=SLOW)
        dev = self.g.disk(vol)
        self.g.ssh(f"dd if=/dev/urandom of={dev} bs=1M count=8 conv=fsync 2>/dev/null")
        want = self.g.ssh(f"dd if={dev} bs=1M count=8 2>/dev/null | md5sum")
        self.assertEqual(ec2.detach_volume(VolumeId=vol)["State"], "detaching")
        ec2.get_waiter("volume_available").wait(VolumeIds=[vol], WaiterConfig=SLOW)
        other = Guest.launch()[0].ready()
        try:
            ec2.attach_volume(VolumeId=vol, InstanceId=other.id, Device="/dev/sdg")
            dev = other.disk(vol)
            self.assertEqual(other.ssh(f"dd if={dev} bs=1M count=8 2>/dev/null | md5sum"), want)
        finally:
            other.terminate()
        ec2.get_waiter("volume_available").wait(VolumeIds=[vol], WaiterConfig=SLOW)  # not deleted on termination
        ec2.delete_volume(VolumeId=vol)
        ec2.get_waiter("volume_deleted").wait(VolumeIds=[vol], WaiterConfig=SLOW)

    def test_15_reboot(self):
        before = self.g.ssh("cat /proc/sys/kernel/random/boot_id")
        self.g.ec2.reboot_instances(InstanceIds=[self.g.id])

        def boot_id():
            p = self.g.ssh("cat /proc/sys/kernel/random/boot_id", check=False, timeout=20)
            return p.returncode == 0 and p.stdout.strip() not in ("", before)
        wait_for("rebooted", boot_id, 120, 0.5)
        self.assertEqual(self.g.state(), "running")

    def test_16_stop_and_start_keep_address_and_data(self):
        ip = self.g.private_ip
        host_key = self.g.ssh("cat /etc/dropbear/*ed25519* | md5sum")
        self.g.ssh("echo kept > /root/kept; sync")
        self.g.ec2.stop_instances(InstanceIds=[self.g.id])
        self.g.ec2.get_waiter("instance_stopped").wait(InstanceIds=[self.g.id], WaiterConfig=SLOW)
        self.assertIn("SSH HOST KEY", self.g.console())  # the console log survives
        self.g.ec2.start_instances(InstanceIds=[self.g.id])
        self.g.ec2.get_waiter("instance_running").wait(InstanceIds=[self.g.id], WaiterConfig=SLOW)
        self.g.ready()
        self.assertEqual(self.g.private_ip, ip)
        self.assertEqual(self.g.ssh("cat /root/kept"), "kept")
        self.assertEqual(self.g.ssh("cat /etc/dropbear/*ed25519* | md5sum"), host_key)

    def test_17_status_checks(self):
        self.g.ec2.get_waiter("instance_status_ok").wait(InstanceIds=[self.g.id], WaiterConfig=SLOW)
        self.g.ec2.get_waiter("system_status_ok").wait(InstanceIds=[self.g.id], WaiterConfig=SLOW)

    def test_18_every_service_killed_while_a_guest_runs(self):
        address = self.g.ip
        before = self.g.ssh("cat /proc/sys/kernel/random/boot_id")
        for name in ("awsgw", "compute", "vpcd", "viperblock", "state"):
            with self.subTest(service=name):
                cloud.kill9(name)
                self.assertEqual(self.at(address, "cat /proc/sys/kernel/random/boot_id"), before)  # the guest runs on
                cloud.start(name)
                wait_for(f"API after {name}", lambda: code_of(self.g.ec2.describe_instances) == "no error")
                self.assertEqual(self.g.ssh("cat /proc/sys/kernel/random/boot_id"), before)
                self.assertEqual(self.g.state(), "running")
        self.g.ec2.stop_instances(InstanceIds=[self.g.id])
        self.g.ec2.get_waiter("instance_stopped").wait(InstanceIds=[self.g.id], WaiterConfig=SLOW)
        self.g.ec2.start_instances(InstanceIds=[self.g.id])
        self.g.ec2.get_waiter("instance_running").wait(InstanceIds=[self.g.id], WaiterConfig=SLOW)
        self.g.ready()

    def at(self, address, command):
        """Without asking the API for the address."""
        return ssh(address, command).stdout.strip()

    def test_19_guest_that_switches_itself_off_is_stopped(self):
        self.g.ssh("poweroff", check=False)
        self.g.ec2.get_waiter("instance_stopped").wait(InstanceIds=[self.g.id], WaiterConfig=SLOW)
        self.assertEqual(self.g.describe()["StateReason"]["Code"], "Client.InstanceInitiatedShutdown")


class B_SecurityGroups(unittest.TestCase):
    """Seen from inside guests."""

    @classmethod
    def setUpClass(cls):
        ec2 = cls.ec2 = cloud.client("ec2")
        cls.web = ec2.create_security_group(GroupName="web", Description="web")["GroupId"]
        cls.db = ec2.create_security_group(GroupName="db", Description="db")["GroupId"]
        ssh = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
        for g in (cls.web, cls.db):
            ec2.authorize_security_group_ingress(GroupId=g, IpPermissions=ssh)
        cls.a = Guest.launch(SecurityGroupIds=[cls.web])[0]
        cls.b = Guest.launch(SecurityGroupIds=[cls.db])[0]
        for g in (cls.a, cls.b):
            g.ready()
            g.ssh("for p in 80 5432; do (while true; do echo port-$p | nc -l -p $p; done >/dev/null 2>&1 &) ; done")

    @classmethod
    def tearDownClass(cls):
        for g in (cls.a, cls.b):
            g.terminate()
        for sg in (cls.db, cls.web):  # db's rules name web: it goes first
            wait_for("group can be deleted", lambda: code_of(cls.ec2.delete_security_group, GroupId=sg) in ("no error", "InvalidGroup.NotFound"))

    def reaches(self, frm, to, port):
        return f"port-{port}" in frm.ssh(f"nc -w 3 {to.private_ip} {port} </dev/null || true")

    def test_deny_allow_reference_revoke(self):
        perm = [{"IpProtocol": "tcp", "FromPort": 5432, "ToPort": 5432, "UserIdGroupPairs": [{"GroupId": self.web}]}]
        self.assertFalse(self.reaches(self.a, self.b, 5432))
        self.ec2.authorize_security_group_ingress(GroupId=self.db, IpPermissions=perm)
        wait_for("allowed by group", lambda: self.reaches(self.a, self.b, 5432), 20)
        self.assertFalse(self.reaches(self.a, self.b, 80))
        self.assertFalse(self.reaches(self.b, self.a, 5432))
        self.ec2.revoke_security_group_ingress(GroupId=self.db, IpPermissions=perm)
        wait_for("revoked", lambda: not self.reaches(self.a, self.b, 5432), 20)
        cidr = [{"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "IpRanges": [{"CidrIp": f"{self.a.private_ip}/32"}]}]
        self.ec2.authorize_security_group_ingress(GroupId=self.db, IpPermissions=cidr)
        wait_for("allowed by address", lambda: self.reaches(self.a, self.b, 80), 20)
        self.assertEqual(self.a.ssh(f"ping -c 1 -W 2 {self.b.private_ip} >/dev/null 2>&1; echo $?"), "1")
        self.ec2.authorize_security_group_ingress(GroupId=self.db, IpPermissions=[
            {"IpProtocol": "icmp", "FromPort": 8, "ToPort": -1, "UserIdGroupPairs": [{"GroupId": self.web}]}])
        wait_for("ping allowed", lambda: self.a.ssh(f"ping -c 1 -W 2 {self.b.private_ip} >/dev/null 2>&1; echo $?") == "0", 20)

    def test_public_address_obeys_groups(self):
        def outside():
            command = f"exec 3<>/dev/tcp/{self.a.ip}/80 && timeout 2 cat <&3"
            try:
                return subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=5).stdout
            except subprocess.TimeoutExpired:
                return ""
        self.assertNotIn("port-80", outside())
        self.ec2.authorize_security_group_ingress(GroupId=self.web, IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}])
        wait_for("reached from outside", lambda: "port-80" in outside(), 20)


class C_Rescue(unittest.TestCase):
    """The way back for a guest that does not boot: its root volume, repaired in another."""

    def test_root_volume_repaired_elsewhere_boots_again(self):
        bad, helper = [g.ready() for g in Guest.launch(2)]
        ec2 = bad.ec2
        try:
            bad.ssh("mv /etc/inittab /etc/inittab.lost; sync")
            ec2.stop_instances(InstanceIds=[bad.id], Force=True)
            ec2.get_waiter("instance_stopped").wait(InstanceIds=[bad.id], WaiterConfig=SLOW)
            root = bad.describe()["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
            ec2.detach_volume(VolumeId=root)
            ec2.get_waiter("volume_available").wait(VolumeIds=[root], WaiterConfig=SLOW)
            ec2.attach_volume(VolumeId=root, InstanceId=helper.id, Device="/dev/sdf")
            dev = helper.disk(root)
            helper.ssh(f"mkdir -p /mnt && mount {dev}2 /mnt && mv /mnt/etc/inittab.lost /mnt/etc/inittab && umount /mnt")
            ec2.detach_volume(VolumeId=root)
            ec2.get_waiter("volume_available").wait(VolumeIds=[root], WaiterConfig=SLOW)
            ec2.attach_volume(VolumeId=root, InstanceId=bad.id, Device="/dev/sda1")
            wait_for("attached", lambda: ec2.describe_volumes(VolumeIds=[root])["Volumes"][0]["Attachments"][0]["State"] == "attached")
            ec2.start_instances(InstanceIds=[bad.id])
            bad.ready()
        finally:
            bad.terminate()
            helper.terminate()


class D_Accounts(unittest.TestCase):
    """Two accounts with the same ranges."""

    def test_overlapping_ranges_are_apart(self):
        one = Guest.launch(account="one")[0].ready()
        two = Guest.launch(account="two", PrivateIpAddress=one.private_ip)[0].ready()
        try:
            self.assertEqual(one.private_ip, two.private_ip)
            self.assertNotEqual(one.ip, two.ip)
            one.ssh("echo one > /root/who")
            two.ssh("echo two > /root/who")
            self.assertEqual((one.ssh("cat /root/who"), two.ssh("cat /root/who")), ("one", "two"))
            self.assertEqual(code_of(two.ec2.describe_instances, InstanceIds=[one.id]), "InvalidInstanceID.NotFound")
            self.assertEqual(one.ssh(f"ping -c 1 -W 3 {two.ip} >/dev/null 2>&1; echo $?"), "0")  # by the public address
        finally:
            one.terminate()
            two.terminate()


class E_NothingIsLeft(unittest.TestCase):
    def test_terminated_instances_leave_nothing(self):
        g = Guest.launch()[0].ready()
        # Services that systemd, or here the test, started: "spx down" shuts the guests down, which a package that is removed relies on.
        said = cloud.spx("down").stderr
        self.assertIn("guests are stopped", said)
        self.assertEqual(g.state(), "stopped")
        root = g.describe()["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
        g.terminate()
        wait_for("volume gone", lambda: code_of(g.ec2.describe_volumes, VolumeIds=[root]) == "InvalidVolume.NotFound")
        wait_for("interfaces gone", lambda: not g.ec2.describe_network_interfaces()["NetworkInterfaces"])
        wait_for("file gone", lambda: not any(root in f for _, d, fs in os.walk(cloud.data) for f in d + fs))

        def qemus():
            out = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True).stdout
            return [ln for ln in out.splitlines() if "qemu-system" in ln and cloud.dir in ln]
        wait_for("no QEMU of this cloud", lambda: not qemus())


if __name__ == "__main__":
    unittest.main(verbosity=2, failfast=bool(os.environ.get("SPX_FAILFAST")))
