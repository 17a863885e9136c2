"""Two requests at one moment over one thing: whoever wins, what is left is a state that one of the two orders could have left.

A fake host reports what a working host would.  SPX_RACE_ROUNDS: how often each pair is raced (12).
"""
import os
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from cloud import api_cloud, REGION, wait_for  # noqa: E402

from botocore.exceptions import ClientError  # noqa: E402

AMI = "ami-00000000000000001"
AZ = REGION + "a"
ROUNDS = int(os.environ.get("SPX_RACE_ROUNDS", "12"))
KEY = b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGRo1ONz0d9C4lXc3MbpEFpVgqGk4v8h2zqTcVdQ8kFZ me@example"

cloud = None


def setUpModule():
    global cloud
    cloud = api_cloud()


def tearDownModule():
    cloud.close()


def keys(prefix):
    return [k["key"] for k in cloud.spx_json("admin", "state", "list", prefix)]


class Races(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ec2 = cloud.client("ec2")
        cls.clients = [cloud.client("ec2") for _ in range(4)]

    def race(self, *calls):
        """Runs them at once; returns their codes, "ok" for success.  A server error is never right."""
        barrier = threading.Barrier(len(calls))
        codes = [None] * len(calls)

        def go(i, name, kw):
            barrier.wait()
            try:
                getattr(self.clients[i], name)(**kw)
                codes[i] = "ok"
            except ClientError as e:
                codes[i] = e.response["Error"]["Code"]
                if e.response["ResponseMetadata"]["HTTPStatusCode"] >= 500 and codes[i] != "InsufficientInstanceCapacity":
                    codes[i] = f"{name}: {e}"
        threads = [threading.Thread(target=go, args=(i, name, kw)) for i, (name, kw) in enumerate(calls)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        for c in codes:
            self.assertNotIn(":", c or "no answer:")
        return codes

    def launch(self, n=1, **kw):
        ids = [i["InstanceId"] for i in self.ec2.run_instances(ImageId=AMI, InstanceType="t3.nano", MinCount=n, MaxCount=n, **kw)["Instances"]]
        self.addCleanup(self.end, ids)
        self.ec2.get_waiter("instance_running").wait(InstanceIds=ids, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        return ids

    def end(self, ids):
        self.ec2.terminate_instances(InstanceIds=ids)
        wait_for("released", lambda: not self.ec2.describe_network_interfaces(
            Filters=[{"Name": "attachment.instance-id", "Values": ids}])["NetworkInterfaces"])

    def volume(self):
        v = self.ec2.create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
        self.wait_volume(v, "available")
        return v

    def shown_volume(self, v):
        try:
            return self.ec2.describe_volumes(VolumeIds=[v])["Volumes"][0]
        except ClientError:
            return None

    def wait_volume(self, v, *states):
        return wait_for(f"{v} {states}", lambda: (lambda s: s and s["State"] in states and s)(self.shown_volume(v)), timeout=20, every=0.02)

    def state(self, i):
        return self.ec2.describe_instances(InstanceIds=[i])["Reservations"][0]["Instances"][0]["State"]["Name"]

    def wait_state(self, i, want):
        wait_for(f"{i} {want}", lambda: self.state(i) == want, timeout=20, every=0.02)

    def free(self, v):
        s = self.shown_volume(v)
        if s and s["Attachments"] and s["Attachments"][0]["State"] not in ("detaching",):
            try:
                self.ec2.detach_volume(VolumeId=v)
            except ClientError:
                pass
        self.wait_volume(v, "available")

    def test_one_volume_to_two_instances(self):
        a, b = self.launch(2)
        v = self.volume()
        self.addCleanup(lambda: (self.free(v), self.ec2.delete_volume(VolumeId=v)))
        for _ in range(ROUNDS):
            codes = self.race(*(("attach_volume", dict(VolumeId=v, InstanceId=i, Device="/dev/sdf")) for i in (a, b)))
            self.assertEqual(sorted(codes), ["VolumeInUse", "ok"])
            self.free(v)

    def test_one_device_for_two_volumes(self):
        [i] = self.launch()
        v, w = self.volume(), self.volume()
        self.addCleanup(lambda: [(self.free(x), self.ec2.delete_volume(VolumeId=x)) for x in (v, w)])
        for _ in range(ROUNDS):
            codes = self.race(*(("attach_volume", dict(VolumeId=x, InstanceId=i, Device="/dev/sdf")) for x in (v, w)))
            self.assertEqual(sorted(codes), ["InvalidParameterValue", "ok"])
            self.free(v)
            self.free(w)

    def test_a_volume_that_is_available_can_be_attached_at_its_old_device_at_once(self):
        [i] = self.launch()
        v = self.volume()
        self.addCleanup(lambda: (self.free(v), self.ec2.delete_volume(VolumeId=v)))
        for _ in range(ROUNDS):
            self.ec2.attach_volume(VolumeId=v, InstanceId=i, Device="/dev/sdf")
            self.wait_volume(v, "in-use")
            self.ec2.detach_volume(VolumeId=v)
            self.wait_volume(v, "available")

    def test_attach_while_terminating(self):
        ids = self.launch(8)
        for i in ids:
            v = self.volume()
            codes = self.race(("attach_volume", dict(VolumeId=v, InstanceId=i, Device="/dev/sdf")),
                              ("terminate_instances", dict(InstanceIds=[i])))
            self.assertEqual(codes[1], "ok")
            self.assertIn(codes[0], ("ok", "IncorrectState"))
            self.wait_state(i, "terminated")
            self.wait_volume(v, "available")
            self.ec2.delete_volume(VolumeId=v)

    def test_delete_volume_while_attaching(self):
        [i] = self.launch()
        for _ in range(ROUNDS):
            v = self.volume()
            codes = self.race(("attach_volume", dict(VolumeId=v, InstanceId=i, Device="/dev/sdf")), ("delete_volume", dict(VolumeId=v)))
            self.assertEqual(codes.count("ok"), 1, codes)
            if codes[0] == "ok":
                self.assertEqual(codes[1], "VolumeInUse")
                self.free(v)
                self.ec2.delete_volume(VolumeId=v)
            wait_for("gone", lambda: self.shown_volume(v) is None, timeout=20)

    def test_a_volume_of_a_launch_on_its_way_cannot_be_deleted(self):
        for _ in range(ROUNDS):
            [m] = self.ec2.run_instances(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1)["Instances"]
            [d] = m["BlockDeviceMappings"] or [{}]
            try:
                with self.assertRaises(ClientError) as e:
                    self.ec2.delete_volume(VolumeId=d["Ebs"]["VolumeId"])
                self.assertEqual(e.exception.response["Error"]["Code"], "VolumeInUse")
            finally:
                self.end([m["InstanceId"]])

    def test_start_while_the_root_volume_is_being_detached(self):
        [i] = self.launch()
        root = self.ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": [i]}])["Volumes"][0]["VolumeId"]
        for _ in range(ROUNDS):
            self.ec2.stop_instances(InstanceIds=[i])
            self.wait_state(i, "stopped")
            codes = self.race(("start_instances", dict(InstanceIds=[i])), ("detach_volume", dict(VolumeId=root)))
            if codes[0] == "ok":
                self.assertEqual(codes[1], "OperationNotPermitted")
            else:
                self.assertEqual(codes, ["IncorrectInstanceState", "ok"])
                self.wait_volume(root, "available")
                self.ec2.attach_volume(VolumeId=root, InstanceId=i, Device="/dev/sda1")
                self.wait_volume(root, "in-use")
                self.ec2.start_instances(InstanceIds=[i])
            self.wait_state(i, "running")

    def test_start_twice_takes_capacity_once(self):
        [i] = self.launch()
        for _ in range(ROUNDS):
            self.ec2.stop_instances(InstanceIds=[i])
            self.wait_state(i, "stopped")
            self.assertEqual(self.race(*[("start_instances", dict(InstanceIds=[i]))] * 4), ["ok"] * 4)
            self.wait_state(i, "running")
        self.end([i])
        cap = cloud.spx_json("admin", "state", "get", "claim/capacity/node1")["value"]
        self.assertEqual((cap.get("used_cpu_percent", 0), cap.get("used_memory_mib", 0)), (0, 0))

    def test_modify_while_starting(self):
        [i] = self.launch()
        for n in range(ROUNDS):
            self.ec2.stop_instances(InstanceIds=[i])
            self.wait_state(i, "stopped")
            codes = self.race(("start_instances", dict(InstanceIds=[i])), ("modify_instance_attribute", dict(
                InstanceId=i, InstanceType={"Value": ["t3.micro", "t3.nano"][n % 2]})))
            self.assertEqual(codes[0], "ok")
            self.assertIn(codes[1], ("ok", "IncorrectInstanceState"))
            self.wait_state(i, "running")
        self.end([i])
        cap = cloud.spx_json("admin", "state", "get", "claim/capacity/node1")["value"]
        self.assertEqual((cap.get("used_cpu_percent", 0), cap.get("used_memory_mib", 0)), (0, 0))

    def test_a_resized_instance_gives_its_public_address_back(self):
        [i] = self.launch()
        for n in range(ROUNDS):
            self.ec2.stop_instances(InstanceIds=[i])
            self.wait_state(i, "stopped")
            self.ec2.modify_instance_attribute(InstanceId=i, InstanceType={"Value": ["t3.micro", "t3.nano"][n % 2]})
            wait_for("no public address", lambda: not self.ec2.describe_instances(InstanceIds=[i])["Reservations"][0]["Instances"][0].get(
                "PublicIpAddress"), timeout=5)
            self.ec2.start_instances(InstanceIds=[i])
            self.wait_state(i, "running")

    def test_no_launch_ends_with_a_group_that_is_gone(self):
        for n in range(ROUNDS):
            g = self.ec2.create_security_group(GroupName=f"race-{n}-{time.monotonic_ns()}", Description="d")["GroupId"]
            codes = self.race(("run_instances", dict(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1, SecurityGroupIds=[g])),
                              ("delete_security_group", dict(GroupId=g)))
            made = [i for r in self.ec2.describe_instances(Filters=[{"Name": "instance.group-id", "Values": [g]}, {
                "Name": "instance-state-name", "Values": ["pending", "running"]}])["Reservations"] for i in r["Instances"]]
            self.assertIn(codes, (["ok", "DependencyViolation"], ["InvalidGroup.NotFound", "ok"]))
            self.assertEqual(len(made), 1 if codes[0] == "ok" else 0)
            if made:
                self.end([made[0]["InstanceId"]])
                self.ec2.delete_security_group(GroupId=g)

    def test_tags_of_what_is_deleted_at_that_moment(self):
        def check(thing, delete):
            codes = self.race(("create_tags", dict(Resources=[thing], Tags=[{"Key": "a", "Value": "b"}])), delete)
            self.assertEqual(codes[1], "ok")
            wait_for(f"no tags of {thing}", lambda: not [k for k in keys("spec/tags/") if k.endswith("/" + thing)], timeout=10)
        for n in range(ROUNDS):
            g = self.ec2.create_security_group(GroupName=f"tags-{n}", Description="d")["GroupId"]
            rule = self.ec2.authorize_security_group_ingress(GroupId=g, IpProtocol="tcp", FromPort=1, ToPort=1, CidrIp="1.2.3.4/32")[
                "SecurityGroupRules"][0]["SecurityGroupRuleId"]
            check(rule, ("revoke_security_group_ingress", dict(GroupId=g, SecurityGroupRuleIds=[rule])))
            rule = self.ec2.authorize_security_group_ingress(GroupId=g, IpProtocol="tcp", FromPort=2, ToPort=2, CidrIp="1.2.3.4/32")[
                "SecurityGroupRules"][0]["SecurityGroupRuleId"]
            check(rule, ("delete_security_group", dict(GroupId=g)))
            k = self.ec2.import_key_pair(KeyName=f"tags-{n}", PublicKeyMaterial=KEY)["KeyPairId"]
            check(k, ("delete_key_pair", dict(KeyName=f"tags-{n}")))
            v = self.volume()
            check(v, ("delete_volume", dict(VolumeId=v)))

    def test_two_key_pairs_and_groups_of_one_name(self):
        for n in range(ROUNDS):
            codes = self.race(*[("import_key_pair", dict(KeyName=f"same-{n}", PublicKeyMaterial=KEY))] * 3)
            self.assertEqual(sorted(codes), ["InvalidKeyPair.Duplicate"] * 2 + ["ok"])
            codes = self.race(*[("create_security_group", dict(GroupName=f"same-{n}", Description="d"))] * 3)
            self.assertEqual(sorted(codes), ["InvalidGroup.Duplicate"] * 2 + ["ok"])
            self.ec2.delete_key_pair(KeyName=f"same-{n}")
            self.ec2.delete_security_group(GroupName=f"same-{n}")


if __name__ == "__main__":
    unittest.main(verbosity=1)
