"""Users who launch, stop, start, attach, snapshot, make images, tag and terminate at random while the gateway and the store are killed with -9: afterwards the books must balance.

A fake host reports what a working host would.  SPX_CHURN_SECONDS: how long (30).  SPX_CHURN_SEED: which dice.
"""
import collections
import json
import os
import random
import sys
import threading
import time
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from cloud import api_cloud, REGION, wait_for  # noqa: E402

from botocore.exceptions import BotoCoreError, ClientError  # noqa: E402

AMI = "ami-00000000000000001"
AZ = REGION + "a"
SECONDS = float(os.environ.get("SPX_CHURN_SECONDS", "30"))
SEED = int(os.environ.get("SPX_CHURN_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)
THREADS = 6

# What an honest service may answer to a user who asks for things at random, and while its store is away.
EXPECTED = {
    "IncorrectInstanceState", "IncorrectState", "InsufficientInstanceCapacity", "VolumeInUse", "InvalidParameterValue", "Unavailable",
    "InvalidVolume.NotFound", "AttachmentLimitExceeded", "OperationNotPermitted", "InvalidAttachment.NotFound", "DependencyViolation",
    "InvalidGroup.NotFound", "InsufficientAddressCapacity", "ServiceUnavailable", "InvalidSnapshot.NotFound", "InvalidSnapshot.InUse",
    "SnapshotCreationPerVolumeRateExceeded", "ConcurrentSnapshotLimitExceeded", "IncorrectModificationState", "VolumeModificationRateExceeded",
    "InvalidAMIID.NotFound", "InvalidAMIID.Unavailable", "ResourceLimitExceeded",
}
OUTAGE = {"InternalError", "InternalFailure", "RequestLimitExceeded", "AuthFailure"}

cloud = None


def setUpModule():
    global cloud
    cloud = api_cloud()


def tearDownModule():
    cloud.close()


class Users:
    """What the threads share: ids they know of, what was acknowledged, what went wrong."""

    def __init__(self):
        self.lock = threading.Lock()
        self.instances, self.volumes, self.groups, self.snapshots, self.images = [], [], [], [], []
        self.acknowledged = {}  # instance id -> client token
        self.codes = collections.Counter()
        self.wrong = []
        self.last_kill = 0.0
        self.stop = threading.Event()

    def pick(self, of, rng):
        with self.lock:
            return rng.choice(of) if of else None

    def outage(self):
        return time.monotonic() - self.last_kill < 8


class User(threading.Thread):
    def __init__(self, users, seed):
        super().__init__()
        self.u, self.rng, self.ec2 = users, random.Random(seed), cloud.client("ec2")

    def run(self):
        acts = [(self.launch, 5), (self.terminate, 3), (self.stop_it, 3), (self.start_it, 5), (self.make_volume, 2), (self.attach, 5),
                (self.detach, 4), (self.delete_volume, 2), (self.tag, 3), (self.untag, 1), (self.regroup, 2), (self.new_group, 1),
                (self.delete_group, 1), (self.resize, 2), (self.look, 3), (self.snapshot, 3), (self.snapshots, 1), (self.copy_snapshot, 1),
                (self.delete_snapshot, 2), (self.copy_volume, 1), (self.grow, 2), (self.image, 2), (self.register, 1), (self.copy_image, 1),
                (self.deregister, 2)]
        while not self.u.stop.is_set():
            act = self.rng.choices([a for a, _ in acts], [w for _, w in acts])[0]
            try:
                act()
            except ClientError as e:
                code = e.response["Error"]["Code"]
                self.u.codes[code] += 1
                if code not in EXPECTED and not (code in OUTAGE and self.u.outage()):
                    self.u.wrong.append(f"{act.__name__}: {code}: {e.response['Error']['Message']}")
            except BotoCoreError as e:  # the gateway is away
                self.u.codes[type(e).__name__] += 1
                if not self.u.outage():
                    self.u.wrong.append(f"{act.__name__}: {e!r}")
                time.sleep(0.1)
            except Exception as e:  # what it answered cannot be read
                self.u.wrong.append(f"{act.__name__}: {e!r}")

    def one(self):
        return self.u.pick(self.u.instances, self.rng)

    def launch(self):
        token = str(uuid.uuid4())
        args = dict(ImageId=AMI, InstanceType=self.rng.choice(["t3.nano", "t3.micro"]), MinCount=1, MaxCount=self.rng.choice([1, 1, 2]),
                    ClientToken=token, TagSpecifications=[{"ResourceType": t, "Tags": [{"Key": "k", "Value": "v"}]}
                                                          for t in ("instance", "volume", "network-interface")])
        image = self.u.pick(self.u.images, self.rng)
        if image and self.rng.random() < 0.3:
            args["ImageId"] = image
        group = self.u.pick(self.u.groups, self.rng)
        if group and self.rng.random() < 0.5:
            args["SecurityGroupIds"] = [group]
        for last in (False, False, True):
            try:
                made = self.ec2.run_instances(**args)["Instances"]
                break
            except BotoCoreError:
                if last:
                    raise
                time.sleep(0.5)
        with self.u.lock:
            for i in made:
                self.u.acknowledged[i["InstanceId"]] = token
                self.u.instances.append(i["InstanceId"])

    def terminate(self):
        i = self.one()
        if i:
            self.ec2.terminate_instances(InstanceIds=[i])
            with self.u.lock:
                if i in self.u.instances:
                    self.u.instances.remove(i)

    def stop_it(self):
        i = self.one()
        if i:
            self.ec2.stop_instances(InstanceIds=[i])

    def start_it(self):
        i = self.one()
        if i:
            self.ec2.start_instances(InstanceIds=[i])

    def keep(self, where, *ids):
        with self.u.lock:
            where.extend(ids)

    def tags(self, *types):
        return [{"ResourceType": t, "Tags": [{"Key": "k", "Value": "v"}]} for t in types]

    def snapshot(self):
        v = self.u.pick(self.u.volumes, self.rng)
        if v:
            self.keep(self.u.snapshots, self.ec2.create_snapshot(VolumeId=v, TagSpecifications=self.tags("snapshot"))["SnapshotId"])

    def snapshots(self):
        i = self.one()
        if i:
            made = self.ec2.create_snapshots(InstanceSpecification={"InstanceId": i}, CopyTagsFromSource="volume")["Snapshots"]
            self.keep(self.u.snapshots, *(s["SnapshotId"] for s in made))

    def copy_snapshot(self):
        s = self.u.pick(self.u.snapshots, self.rng)
        if s:
            self.keep(self.u.snapshots, self.ec2.copy_snapshot(SourceRegion=REGION, SourceSnapshotId=s, TagSpecifications=self.tags("snapshot"))["SnapshotId"])

    def delete_snapshot(self):
        s = self.u.pick(self.u.snapshots, self.rng)
        if s:
            self.ec2.delete_snapshot(SnapshotId=s)

    def copy_volume(self):
        v = self.u.pick(self.u.volumes, self.rng)
        if v:
            self.keep(self.u.volumes, self.ec2.copy_volumes(SourceVolumeId=v, ClientToken=str(uuid.uuid4()))["Volumes"][0]["VolumeId"])

    def grow(self):
        v = self.u.pick(self.u.volumes, self.rng)
        if v:
            self.ec2.modify_volume(VolumeId=v, Size=self.rng.randrange(2, 9))

    def image(self):
        i = self.one()
        if i:
            self.keep(self.u.images, self.ec2.create_image(InstanceId=i, Name=str(uuid.uuid4()), NoReboot=self.rng.random() < 0.5,
                                                           TagSpecifications=self.tags("image", "snapshot"))["ImageId"])

    def register(self):
        s = self.u.pick(self.u.snapshots, self.rng)
        if s:
            self.keep(self.u.images, self.ec2.register_image(
                Name=str(uuid.uuid4()), VirtualizationType="hvm", RootDeviceName="/dev/sda1", Architecture="x86_64",
                BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": s}}], TagSpecifications=self.tags("image"))["ImageId"])

    def copy_image(self):
        i = self.u.pick(self.u.images, self.rng)
        if i:
            self.keep(self.u.images, self.ec2.copy_image(SourceImageId=i, SourceRegion=REGION, Name=str(uuid.uuid4()), CopyImageTags=True,
                                                         ClientToken=str(uuid.uuid4()), TagSpecifications=self.tags("snapshot"))["ImageId"])

    def deregister(self):
        i = self.u.pick(self.u.images, self.rng)
        if i:
            self.ec2.deregister_image(ImageId=i, DeleteAssociatedSnapshots=self.rng.random() < 0.5)
            with self.u.lock:
                if i in self.u.images:
                    self.u.images.remove(i)

    def make_volume(self):
        snapshot = self.u.pick(self.u.snapshots, self.rng)
        of = dict(SnapshotId=snapshot) if snapshot and self.rng.random() < 0.5 else dict(Size=1)
        v = self.ec2.create_volume(AvailabilityZone=AZ, TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": "k", "Value": "v"}]}], **of)["VolumeId"]
        with self.u.lock:
            self.u.volumes.append(v)

    def attach(self):
        i, v = self.one(), self.u.pick(self.u.volumes, self.rng)
        if i and v:
            self.ec2.attach_volume(InstanceId=i, VolumeId=v, Device=self.rng.choice(["/dev/sdf", "/dev/sdg", "/dev/sdh"]))

    def detach(self):
        v = self.u.pick(self.u.volumes, self.rng)
        if v:
            self.ec2.detach_volume(VolumeId=v)

    def delete_volume(self):
        v = self.u.pick(self.u.volumes, self.rng)
        if v:
            self.ec2.delete_volume(VolumeId=v)

    def tag(self):
        ids = [x for x in (self.one(), self.u.pick(self.u.volumes, self.rng)) if x]
        if ids:
            self.ec2.create_tags(Resources=ids, Tags=[{"Key": f"t{self.rng.randrange(4)}", "Value": "x"}])

    def untag(self):
        v = self.u.pick(self.u.volumes, self.rng)
        if v:
            self.ec2.delete_tags(Resources=[v])

    def regroup(self):
        i, g = self.one(), self.u.pick(self.u.groups, self.rng)
        if i and g:
            self.ec2.modify_instance_attribute(InstanceId=i, Groups=[g])

    def new_group(self):
        g = self.ec2.create_security_group(GroupName=str(uuid.uuid4()), Description="d")["GroupId"]
        with self.u.lock:
            self.u.groups.append(g)

    def delete_group(self):
        g = self.u.pick(self.u.groups, self.rng)
        if g:
            self.ec2.delete_security_group(GroupId=g)
            with self.u.lock:
                if g in self.u.groups:
                    self.u.groups.remove(g)

    def resize(self):
        i = self.one()
        if i:
            self.ec2.modify_instance_attribute(InstanceId=i, InstanceType={"Value": self.rng.choice(["t3.nano", "t3.micro"])})

    def look(self):
        """No address is seen twice at one time, private or public."""
        found = [i for r in self.ec2.describe_instances()["Reservations"] for i in r["Instances"]]
        for name in ("PrivateIpAddress", "PublicIpAddress"):
            twice = [a for a, n in collections.Counter(i[name] for i in found if i.get(name)).items() if n > 1]
            if twice:
                self.u.wrong.append(f"{name} seen twice: {twice}")


def keys(prefix):
    return [k["key"] for k in cloud.spx_json("admin", "state", "list", prefix)]


def record(key):
    v = json.loads(cloud.spx("admin", "state", "get", key, "--output", "json").stdout)["value"]
    return v if isinstance(v, dict) else json.loads(v)


class Churn(unittest.TestCase):
    def kill_something(self, rng, users):
        name = rng.choice(["awsgw", "state"])
        self.assertIsNone(cloud.procs[name].poll(), f"spx-{name} ended by itself:\n{cloud.log(name)}")
        users.last_kill = time.monotonic()
        cloud.kill9(name)
        time.sleep(rng.random())
        cloud.start(name)
        users.last_kill = time.monotonic()

    def test_the_books_balance_after_churn_and_kills(self):
        rng = random.Random(SEED)
        print(f"SPX_CHURN_SEED={SEED}", file=sys.stderr)
        users = Users()
        threads = [User(users, rng.randrange(1 << 32)) for _ in range(THREADS)]
        for t in threads:
            t.start()
        try:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                time.sleep(min(rng.uniform(2, 9), max(0, end - time.monotonic())))
                self.kill_something(rng, users)
        finally:
            users.stop.set()
            for t in threads:
                t.join(120)
        print(dict(users.codes), f"{len(users.acknowledged)} launched", file=sys.stderr)
        self.assertEqual(users.wrong[:10], [])
        self.assertGreater(len(users.acknowledged), 5)
        ec2 = cloud.client("ec2")
        wait_for("answers", lambda: self.answers(ec2), timeout=30)
        self.check_alive(ec2, users)
        self.end_all(ec2)
        self.check_books()

    @staticmethod
    def answers(ec2):
        try:
            return bool(ec2.describe_vpcs()["Vpcs"])
        except (ClientError, BotoCoreError):
            return False

    def instances(self, ec2):
        return [i for p in ec2.get_paginator("describe_instances").paginate() for r in p["Reservations"]
                for i in (dict(i, ReservationId=r["ReservationId"]) for i in r["Instances"])]

    def check_alive(self, ec2, users):
        found = {i["InstanceId"]: i for i in self.instances(ec2)}
        self.assertEqual([i for i in users.acknowledged if i not in found], [], "acknowledged launches that are not there")
        by_token = collections.defaultdict(set)
        for i in found.values():
            by_token[i["ClientToken"]].add(i["ReservationId"])
        self.assertEqual([t for t, r in by_token.items() if len(r) > 1], [], "one client token launched twice")
        # Who runs has a root volume and groups that exist; who holds capacity is counted, once.
        groups = {g["GroupId"] for g in ec2.describe_security_groups()["SecurityGroups"]}
        for i in found.values():
            if i["State"]["Name"] in ("terminated", "shutting-down"):
                continue
            self.assertIn("/dev/sda1", [d["DeviceName"] for d in i["BlockDeviceMappings"]], i["InstanceId"])
            devices = [d["DeviceName"] for d in i["BlockDeviceMappings"]]
            self.assertEqual(len(devices), len(set(devices)), f"{i['InstanceId']}: one device twice")
            self.assertEqual([g["GroupId"] for g in i["SecurityGroups"] if g["GroupId"] not in groups], [], "a group that is gone")

        def counted():
            held = [r for r in (record(k) for k in keys("spec/instance/")) if r.get("is_holding_capacity")]
            cap = record(keys("claim/capacity/")[0])
            want = sum(r["memory_mib"] for r in held)
            return cap.get("used_memory_mib", 0) == want or None
        wait_for("memory in the capacity record is what instances hold", counted, timeout=20)

        # Nobody stays down for an image; what an image is made of is there.
        wait_for("no instance is held for an image", lambda: not any(record(k).get("imaging") for k in keys("spec/instance/")) or None, timeout=60)
        own = {s["SnapshotId"] for s in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]}
        for i in ec2.describe_images(Owners=["self"])["Images"]:
            self.assertIn(i["State"], ("available", "pending", "failed"))
            if i["State"] != "failed":
                named = {m["Ebs"]["SnapshotId"] for m in i["BlockDeviceMappings"] if m.get("Ebs", {}).get("SnapshotId")}
                self.assertTrue(named and named <= own, f"{i['ImageId']}: a snapshot is gone")

    def end_all(self, ec2):
        for i in ec2.describe_images(Owners=["self"])["Images"]:
            ec2.deregister_image(ImageId=i["ImageId"], DeleteAssociatedSnapshots=True)
        for s in ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"]:
            ec2.delete_snapshot(SnapshotId=s["SnapshotId"])
        ids = [i["InstanceId"] for i in self.instances(ec2) if i["State"]["Name"] != "terminated"]
        for i in range(0, len(ids), 50):
            ec2.terminate_instances(InstanceIds=ids[i:i + 50])
        wait_for("all terminated", lambda: all(i["State"]["Name"] == "terminated" for i in self.instances(ec2)), timeout=60)
        wait_for("volumes are free", lambda: all(not v["Attachments"] for v in ec2.describe_volumes()["Volumes"]), timeout=30)
        for v in ec2.describe_volumes()["Volumes"]:
            if v["State"] != "deleting":
                ec2.delete_volume(VolumeId=v["VolumeId"])
        for g in ec2.describe_security_groups()["SecurityGroups"]:
            if g["GroupName"] != "default":
                ec2.delete_security_group(GroupId=g["GroupId"])

    def check_books(self):
        account = cloud.account("one")[2]
        for prefix in ("claim/ip/", "claim/publicip/", "spec/eni/", "spec/volume/", "status/volume/", "status/eni/", "status/attachment/",
                       "spec/volmod/", "status/volmod/", "claim/imagename/", f"spec/snapshot/{account}/", f"status/snapshot/{account}/",
                       f"spec/image/{account}/", f"status/image/{account}/"):
            try:
                wait_for(f"nothing left below {prefix}", lambda: not keys(prefix) or None, timeout=40, every=0.5)
            except AssertionError:
                self.fail(f"left below {prefix}: " + ", ".join(keys(prefix)[:10]))
        gone = {k.rsplit("/", 1)[1] for k in keys("spec/instance/")}
        self.assertEqual([k for k in keys("spec/tags/") if k.rsplit("/", 1)[1] not in gone], [], "tags of what is gone")
        self.assertEqual([k for k in keys("status/instance/") if k.rsplit("/", 1)[1] not in gone], [])
        cap = record(keys("claim/capacity/")[0])
        self.assertEqual((cap.get("used_cpu_percent", 0), cap.get("used_memory_mib", 0)), (0, 0))


if __name__ == "__main__":
    unittest.main(verbosity=1)
