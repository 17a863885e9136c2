"""Requests that meet: what one checks another must not take away before it is written. Real gateway and store, a fake host."""
import concurrent.futures
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from cloud import api_cloud, REGION, wait_for  # noqa: E402

from botocore.exceptions import ClientError  # noqa: E402

AMI = "ami-00000000000000001"
AZ = REGION + "a"
ROUNDS = int(os.environ.get("SPX_TEST_ROUNDS", "12"))

cloud = None


def setUpModule():
    global cloud
    cloud = api_cloud()


def tearDownModule():
    cloud.close()


def outcome(call, **kw):
    """("ok", answer) or (code, None)."""
    try:
        return "ok", call(**kw)
    except ClientError as e:
        return e.response["Error"]["Code"], None


class Base(unittest.TestCase):
    def setUp(self):
        self.ec2 = cloud.client("ec2")
        self.pool = concurrent.futures.ThreadPoolExecutor(16)
        self.addCleanup(self.pool.shutdown)

    def launch(self, **kw):
        args = dict(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1)
        args.update(kw)
        i = self.ec2.run_instances(**args)["Instances"][0]["InstanceId"]
        self.addCleanup(self.end, [i])
        return i

    def end(self, ids):
        self.ec2.terminate_instances(InstanceIds=ids)
        self.ec2.get_waiter("instance_terminated").wait(InstanceIds=ids, WaiterConfig={"Delay": 1, "MaxAttempts": 60})

    def wait(self, what, iid):
        self.ec2.get_waiter(what).wait(InstanceIds=[iid], WaiterConfig={"Delay": 1, "MaxAttempts": 60})

    def group(self, name):
        return self.ec2.create_security_group(GroupName=name, Description="d")["GroupId"]

    def together(self, *calls):
        return [f.result() for f in [self.pool.submit(outcome, c, **kw) for c, kw in calls]]


class Groups(Base):
    def test_a_group_in_use_by_a_launch_under_way_cannot_be_deleted(self):
        ids = []
        for n in range(ROUNDS):
            sg = self.group(f"launch-{n}")
            run = (self.ec2.run_instances, dict(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1, SecurityGroupIds=[sg]))
            gone = (self.ec2.delete_security_group, dict(GroupId=sg))
            (a, made), (b, _) = self.together(*([run, gone] if n % 2 else [gone, run]))[::1 if n % 2 else -1]
            self.assertIn((a, b), {("ok", "DependencyViolation"), ("InvalidGroup.NotFound", "ok")})
            if made:
                ids += [i["InstanceId"] for i in made["Instances"]]
        if ids:
            self.end(ids)

    def test_a_group_that_a_rule_begins_to_name_cannot_be_deleted(self):
        for n in range(ROUNDS):
            sg, peer = self.group(f"rule-{n}"), self.group(f"peer-{n}")
            rule = (self.ec2.authorize_security_group_ingress, dict(GroupId=sg, IpPermissions=[
                {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "UserIdGroupPairs": [{"GroupId": peer}]}]))
            (a, _), (b, _) = self.together(rule, (self.ec2.delete_security_group, dict(GroupId=peer)))
            self.assertIn((a, b), {("ok", "DependencyViolation"), ("InvalidGroup.NotFound", "ok")})
            self.ec2.delete_security_group(GroupId=sg)

    def test_a_group_that_an_instance_is_moved_into_cannot_be_deleted(self):
        iid = self.launch()
        self.wait("instance_running", iid)
        default = self.ec2.describe_security_groups(GroupNames=["default"])["SecurityGroups"][0]["GroupId"]
        for n in range(ROUNDS):
            sg = self.group(f"move-{n}")
            (a, _), (b, _) = self.together((self.ec2.modify_instance_attribute, dict(InstanceId=iid, Groups=[sg])),
                                           (self.ec2.delete_security_group, dict(GroupId=sg)))
            self.assertIn((a, b), {("ok", "DependencyViolation"), ("InvalidGroup.NotFound", "ok")})
            self.ec2.modify_instance_attribute(InstanceId=iid, Groups=[default])

    def test_the_lock_does_not_stop_launches(self):
        """Launches in one VPC wait for each other; all of them go through."""
        done = self.together(*[(self.ec2.run_instances, dict(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1))] * 10)
        self.end([i["InstanceId"] for _, made in done if made for i in made["Instances"]])
        self.assertEqual([a for a, _ in done], ["ok"] * 10)


class Stops(Base):
    def test_the_gateway_ends_well_while_the_janitor_works(self):
        """Releases are under way at every moment of a stop: nothing is used after it is gone (AddressSanitizer would say so)."""
        for n in range(4):
            made = self.ec2.run_instances(ImageId=AMI, InstanceType="t3.nano", MinCount=8, MaxCount=8)["Instances"]
            ids = [i["InstanceId"] for i in made]
            self.ec2.terminate_instances(InstanceIds=ids)
            time.sleep(0.03 * (n + 1))  # the fake host ends them after 30 ms
            p = cloud.procs.pop("awsgw")
            p.terminate()
            self.assertEqual(p.wait(30), 0, cloud.log("awsgw"))
            self.assertNotIn("ERROR: AddressSanitizer", cloud.log("awsgw", 4000))
            cloud.start("awsgw")
            self.ec2 = cloud.client("ec2")
            self.ec2.get_waiter("instance_terminated").wait(InstanceIds=ids, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
            wait_for("released", lambda: not self.ec2.describe_network_interfaces(
                Filters=[{"Name": "attachment.instance-id", "Values": ids}])["NetworkInterfaces"])


class Roots(Base):
    def test_an_instance_without_its_root_does_not_start(self):
        iid = self.launch(BlockDeviceMappings=[{"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 1}}])
        self.wait("instance_running", iid)
        self.ec2.stop_instances(InstanceIds=[iid])
        self.wait("instance_stopped", iid)
        i = self.ec2.describe_instances(InstanceIds=[iid])["Reservations"][0]["Instances"][0]
        disks = {m["DeviceName"]: m["Ebs"]["VolumeId"] for m in i["BlockDeviceMappings"]}
        root = disks[i["RootDeviceName"]]
        self.assertEqual(len(disks), 2)
        self.ec2.detach_volume(VolumeId=root)
        self.assertEqual(outcome(self.ec2.start_instances, InstanceIds=[iid])[0], "IncorrectInstanceState")  # also while it leaves
        self.ec2.get_waiter("volume_available").wait(VolumeIds=[root], WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        self.assertEqual(outcome(self.ec2.start_instances, InstanceIds=[iid])[0], "IncorrectInstanceState")
        self.ec2.attach_volume(VolumeId=root, InstanceId=iid, Device=i["RootDeviceName"])
        self.ec2.start_instances(InstanceIds=[iid])
        self.wait("instance_running", iid)


if __name__ == "__main__":
    unittest.main(verbosity=2)
