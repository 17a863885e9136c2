"""What tests of EBS and images share: things that are made, waited for and removed again.  A fake host reports what a working block service would."""
import datetime
import unittest

from cloud import api_cloud, REGION, wait_for

from botocore.exceptions import ClientError

AMI = "ami-00000000000000001"
AMI_SNAPSHOT = "snap-00000000000000001"
AZ = REGION + "a"
GONE = "0123456789abcdef0"
WAIT = {"Delay": 0.1, "MaxAttempts": 600}

cloud = None


def open_cloud():
    global cloud
    cloud = api_cloud()
    return cloud


def error_of(call, **kw):
    try:
        call(**kw)
    except ClientError as e:
        return e.response["Error"]
    return {"Code": "no error", "Message": ""}


def code_of(call, **kw):
    return error_of(call, **kw)["Code"]


def keys(prefix):
    return [k["key"] for k in cloud.spx_json("admin", "state", "list", prefix)]


def tagged(kind, **tags):
    return [{"ResourceType": kind, "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}]


def tags_of(thing):
    return {t["Key"]: t["Value"] for t in thing.get("Tags", [])}


class Base(unittest.TestCase):
    def setUp(self):
        self.ec2 = cloud.client("ec2")
        self.other = cloud.client("ec2", "two")
        self.account, self.other_account = cloud.account("one")[2], cloud.account("two")[2]

    def volume(self, ec2=None, **kw):
        ec2 = ec2 or self.ec2
        args = dict(AvailabilityZone=AZ, Size=1, VolumeType="gp3")
        args.update(kw)
        if args["Size"] is None:
            del args["Size"]
        v = ec2.create_volume(**args)["VolumeId"]
        self.addCleanup(self.drop_volume, ec2, v)
        ec2.get_waiter("volume_available").wait(VolumeIds=[v], WaiterConfig=WAIT)
        return v

    @staticmethod
    def drop_volume(ec2, v):
        code_of(ec2.delete_volume, VolumeId=v)

    def shown_volume(self, v, ec2=None):
        return (ec2 or self.ec2).describe_volumes(VolumeIds=[v])["Volumes"][0]

    def snapshot(self, ec2=None, volume=None, wait=True, **kw):
        ec2 = ec2 or self.ec2
        s = ec2.create_snapshot(VolumeId=volume or self.volume(ec2), **kw)["SnapshotId"]
        self.addCleanup(self.drop_snapshot, ec2, s)
        if wait:
            ec2.get_waiter("snapshot_completed").wait(SnapshotIds=[s], WaiterConfig=WAIT)
        return s

    @staticmethod
    def drop_snapshot(ec2, s):
        code_of(ec2.delete_snapshot, SnapshotId=s)

    def shown_snapshot(self, s, ec2=None):
        return (ec2 or self.ec2).describe_snapshots(SnapshotIds=[s])["Snapshots"][0]

    def image(self, ec2=None, **kw):
        """An image of a snapshot."""
        ec2 = ec2 or self.ec2
        args = dict(Name=f"img-{self.id()[-60:]}-{datetime.datetime.now().timestamp()}", Architecture="x86_64", VirtualizationType="hvm",
                    RootDeviceName="/dev/xvda", EnaSupport=True)
        args.update(kw)
        if "BlockDeviceMappings" not in args:
            args["BlockDeviceMappings"] = [{"DeviceName": "/dev/xvda", "Ebs": {"SnapshotId": self.snapshot(ec2)}}]
        i = ec2.register_image(**args)["ImageId"]
        self.addCleanup(self.drop_image, ec2, i)
        ec2.get_waiter("image_available").wait(ImageIds=[i], WaiterConfig=WAIT)
        return i

    @staticmethod
    def drop_image(ec2, i):
        code_of(ec2.disable_image_deregistration_protection, ImageId=i)
        code_of(ec2.deregister_image, ImageId=i, DeleteAssociatedSnapshots=True)

    def shown_image(self, i, ec2=None, **kw):
        return (ec2 or self.ec2).describe_images(ImageIds=[i], **kw)["Images"][0]

    def running(self, ec2=None, **kw):
        ec2 = ec2 or self.ec2
        args = dict(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1)
        args.update(kw)
        i = ec2.run_instances(**args)["Instances"][0]["InstanceId"]
        self.addCleanup(self.end, ec2, i)
        ec2.get_waiter("instance_running").wait(InstanceIds=[i], WaiterConfig=WAIT)
        return i

    @staticmethod
    def end(ec2, i):
        code_of(ec2.terminate_instances, InstanceIds=[i])
        ec2.get_waiter("instance_terminated").wait(InstanceIds=[i], WaiterConfig=WAIT)

    def instance(self, i):
        return self.ec2.describe_instances(InstanceIds=[i])["Reservations"][0]["Instances"][0]

    def disks(self, i):
        return {m["DeviceName"]: m["Ebs"]["VolumeId"] for m in self.instance(i)["BlockDeviceMappings"]}

    def check_codes(self, cases):
        for call, kw, want in cases:
            with self.subTest(call=call.__name__, kw=str(kw)):
                e = error_of(call, **kw)
                self.assertEqual(e["Code"], want, e["Message"])


class Books(Base):
    """To be run last: nothing of what was deleted is left behind."""

    def test_no_leftovers(self):
        for ec2 in (self.ec2, self.other):
            for s in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]:
                self.drop_snapshot(ec2, s["SnapshotId"])

        def clean():
            live = set()
            for k in keys("spec/"):
                if not k.startswith("spec/tags/"):
                    live.add(k.rsplit("/", 1)[1])
            left = [k for k in keys("status/") + keys("spec/tags/") + keys("spec/volmod/") if k.rsplit("/", 1)[1] not in live]
            return not left and not keys(f"spec/snapshot/{self.account}") and not keys(f"spec/image/{self.account}")
        wait_for("clean books", clean, timeout=60)
        self.assertEqual([k for k in keys("claim/imagename/")], [])
