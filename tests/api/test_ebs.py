"""Volumes, snapshots, their modifications, encryption and sharing through the real gateway and store.

Right values come from the EC2 API reference and the EBS user guide.  A fake host reports what a working block service would; what goes wrong
is asked for by name (src/testkit/fakehost.c).  Bytes are not here: tests/e2e.
"""
import concurrent.futures
import datetime
import os
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import ebs  # noqa: E402
from cloud import REGION, wait_for  # noqa: E402
from ebs import AMI, AMI_SNAPSHOT, AZ, Base, GONE, WAIT, code_of, error_of, keys, tagged, tags_of  # noqa: E402

cloud = None


def setUpModule():
    global cloud
    cloud = ebs.open_cloud()


def tearDownModule():
    cloud.close()


class Volumes(Base):
    def test_figures_of_types(self):
        cases = [
            (dict(Size=10), (10, "gp2", 100, None)),
            (dict(Size=100, VolumeType="gp2"), (100, "gp2", 300, None)),
            (dict(Size=1, VolumeType="gp3"), (1, "gp3", 3000, 125)),
            (dict(Size=65536, VolumeType="gp3", Iops=80000, Throughput=2000), (65536, "gp3", 80000, 2000)),
            (dict(Size=4, VolumeType="io1", Iops=200), (4, "io1", 200, None)),
            (dict(Size=64, VolumeType="io2", Iops=64000), (64, "io2", 64000, None)),
            (dict(Size=125, VolumeType="st1"), (125, "st1", None, None)),
            (dict(Size=1, VolumeType="standard"), (1, "standard", None, None)),
        ]
        for kw, want in cases:
            with self.subTest(kw=kw):
                v = self.ec2.create_volume(AvailabilityZone=AZ, **kw)
                self.addCleanup(self.drop_volume, self.ec2, v["VolumeId"])
                self.assertEqual((v["Size"], v["VolumeType"], v.get("Iops"), v.get("Throughput")), want)
                self.assertFalse(v["Encrypted"])
                self.assertNotIn("KmsKeyId", v)
                wait_for("made", lambda: self.shown_volume(v["VolumeId"])["State"] == "available")

    def test_errors(self):
        ec2, make = self.ec2, lambda **kw: dict(AvailabilityZone=AZ, **kw)
        pending = self.snapshot(wait=False, Description="hold")
        self.check_codes([
            (ec2.create_volume, make(), "MissingParameter"),
            (ec2.create_volume, make(Size=0), "InvalidParameterValue"),
            (ec2.create_volume, make(Size=65537, VolumeType="gp3"), "InvalidParameterValue"),
            (ec2.create_volume, make(Size=10, VolumeType="gp3", Iops=5001), "InvalidParameterValue"),
            (ec2.create_volume, make(Size=10, VolumeType="gp3", Throughput=751), "InvalidParameterValue"),
            (ec2.create_volume, make(Size=10, VolumeType="gp2", Throughput=125), "InvalidParameterCombination"),
            (ec2.create_volume, make(Size=10, VolumeType="io1"), "MissingParameter"),
            (ec2.create_volume, make(Size=10, VolumeType="gp9"), "InvalidParameterValue"),
            (ec2.create_volume, make(Size=124, VolumeType="sc1"), "InvalidParameterValue"),
            (ec2.create_volume, make(SnapshotId="snap-" + GONE), "InvalidSnapshot.NotFound"),
            (ec2.create_volume, make(SnapshotId="snap-x"), "InvalidSnapshotID.Malformed"),
            (ec2.create_volume, make(SnapshotId=pending), "IncorrectState"),
            (ec2.create_volume, make(SnapshotId=AMI_SNAPSHOT, Size=1), "InvalidParameterValue"),
            (ec2.create_volume, make(Size=1, KmsKeyId="alias/aws/ebs"), "InvalidParameterDependency"),
            (ec2.create_volume, make(Size=1, Encrypted=True, KmsKeyId="alias/mine"), "InvalidKMSKey.InvalidState"),
            (ec2.create_volume, make(Size=1, OutpostArn="arn:aws:outposts:x:1:outpost/op-1"), "UnsupportedOperation"),
            (ec2.create_volume, make(Size=1, TagSpecifications=tagged("snapshot", a="b")), "InvalidParameterValue"),
            (ec2.create_volume, make(Size=1, DryRun=True), "DryRunOperation"),
        ])

    def test_of_a_snapshot(self):
        size4 = self.volume(Size=4, Encrypted=True)
        s = self.snapshot(volume=size4)
        v = self.shown_volume(self.volume(Size=None, SnapshotId=s))
        self.assertEqual((v["Size"], v["SnapshotId"], v["Encrypted"]), (4, s, True))
        v = self.shown_volume(self.volume(Size=9, SnapshotId=s, VolumeType="gp2"))
        self.assertEqual((v["Size"], v["Encrypted"]), (9, True))
        by = lambda *f: [x["VolumeId"] for x in self.ec2.describe_volumes(Filters=[{"Name": n, "Values": vs} for n, vs in f])["Volumes"]]
        self.assertEqual(len(by(("snapshot-id", [s]))), 2)
        self.assertEqual(by(("snapshot-id", [s]), ("size", ["9"])), [v["VolumeId"]])
        self.assertIn(v["VolumeId"], by(("encrypted", ["true"])))
        public = self.shown_volume(self.volume(Size=None, SnapshotId=AMI_SNAPSHOT))
        self.assertEqual((public["Size"], public["Encrypted"]), (2, False))

    def test_client_token(self):
        go = lambda **kw: self.ec2.create_volume(AvailabilityZone=AZ, ClientToken="ebs-token", VolumeType="gp3", **kw)["VolumeId"]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            ids = {f.result() for f in [pool.submit(go, Size=3) for _ in range(8)]}
        self.assertEqual(len(ids), 1)
        self.addCleanup(self.drop_volume, self.ec2, ids.pop())
        self.assertEqual(code_of(go, Size=4), "IdempotentParameterMismatch")

    def test_copy(self):
        src = self.volume(Size=3, Encrypted=True)
        out = self.ec2.copy_volumes(SourceVolumeId=src, VolumeType="gp3", TagSpecifications=tagged("volume", k="v"), ClientToken="copy-1")["Volumes"]
        v = out[0]
        self.addCleanup(self.drop_volume, self.ec2, v["VolumeId"])
        self.assertEqual((v["Size"], v["SourceVolumeId"], v["Encrypted"], v["VolumeType"], tags_of(v)), (3, src, True, "gp3", {"k": "v"}))
        self.assertEqual(self.ec2.copy_volumes(SourceVolumeId=src, VolumeType="gp3", TagSpecifications=tagged("volume", k="v"),
                                               ClientToken="copy-1")["Volumes"][0]["VolumeId"], v["VolumeId"])
        self.ec2.get_waiter("volume_available").wait(VolumeIds=[v["VolumeId"]], WaiterConfig=WAIT)
        self.assertFalse(self.shown_volume(v["VolumeId"]).get("SnapshotId"))
        self.assertEqual([s for s in self.ec2.describe_snapshots(OwnerIds=["self"])["Snapshots"] if s["VolumeId"] == src], [],
                         "a step on the way is not shown")
        wait_for("the step is gone", lambda: not any(
            src in cloud.spx("admin", "state", "get", k, check=False).stdout for k in keys("spec/snapshot/" + self.account)))
        self.check_codes([
            (self.ec2.copy_volumes, dict(SourceVolumeId="vol-" + GONE), "InvalidVolume.NotFound"),
            (self.ec2.copy_volumes, dict(SourceVolumeId=src, Size=2), "InvalidParameterValue"),
            (self.ec2.copy_volumes, dict(SourceVolumeId=src, MultiAttachEnabled=True, VolumeType="io2", Iops=100), "UnsupportedOperation"),
            (self.ec2.copy_volumes, dict(SourceVolumeId=src, DryRun=True), "DryRunOperation"),
            (self.other.copy_volumes, dict(SourceVolumeId=src), "InvalidVolume.NotFound"),
        ])

    def test_status_of_an_impaired_volume(self):
        v, well = self.volume(Size=13), self.volume()
        show = lambda x: self.ec2.describe_volume_status(VolumeIds=[x])["VolumeStatuses"][0]
        ok = show(well)
        self.assertEqual((ok["VolumeStatus"]["Status"], ok["Events"], ok["Actions"]), ("ok", [], []))
        self.assertEqual({d["Name"]: d["Status"] for d in ok["VolumeStatus"]["Details"]}, {"io-enabled": "passed", "io-performance": "not-applicable"})
        bad = show(v)
        self.assertEqual(bad["VolumeStatus"]["Status"], "impaired")
        self.assertEqual(bad["Events"][0]["EventType"], "potential-data-inconsistency")
        self.assertEqual(bad["Actions"][0]["Code"], "enable-volume-io")
        self.assertEqual(bad["Actions"][0]["EventId"], bad["Events"][0]["EventId"])
        self.assertRegex(bad["Events"][0]["EventId"], "^evol-[0-9a-f]{17}$")
        by = lambda n, val: {x["VolumeId"] for x in self.ec2.describe_volume_status(Filters=[{"Name": n, "Values": [val]}])["VolumeStatuses"]}
        for name, value in (("volume-status.status", "impaired"), ("action.code", "enable-volume-io"), ("volume-status.details-status", "failed"),
                            ("event.event-type", "potential-data-*"), ("event.event-id", bad["Events"][0]["EventId"])):
            self.assertEqual(by(name, value), {v}, name)
        self.assertNotIn(v, by("volume-status.status", "ok"))
        self.ec2.enable_volume_io(VolumeId=v)
        wait_for("well again", lambda: show(v)["VolumeStatus"]["Status"] == "ok")
        self.ec2.enable_volume_io(VolumeId=well)
        self.assertEqual(code_of(self.ec2.enable_volume_io, VolumeId="vol-" + GONE), "InvalidVolume.NotFound")

    def test_attributes(self):
        v = self.volume()
        auto = lambda: self.ec2.describe_volume_attribute(VolumeId=v, Attribute="autoEnableIO")["AutoEnableIO"]["Value"]
        self.assertFalse(auto())
        self.ec2.modify_volume_attribute(VolumeId=v, AutoEnableIO={"Value": True})
        self.assertTrue(auto())
        self.assertEqual(self.ec2.describe_volume_attribute(VolumeId=v, Attribute="productCodes")["ProductCodes"], [])
        self.check_codes([
            (self.ec2.modify_volume_attribute, dict(VolumeId=v), "MissingParameter"),
            (self.ec2.modify_volume_attribute, dict(VolumeId="vol-" + GONE, AutoEnableIO={"Value": True}), "InvalidVolume.NotFound"),
            (self.ec2.modify_volume_attribute, dict(VolumeId=v, AutoEnableIO={"Value": True}, DryRun=True), "DryRunOperation"),
            (self.ec2.describe_volume_attribute, dict(VolumeId=v, Attribute="colour"), "InvalidParameterValue"),
        ])


class Modifications(Base):
    def modification(self, v):
        return self.ec2.describe_volumes_modifications(VolumeIds=[v])["VolumesModifications"][0]

    def completed(self, v):
        wait_for("completed", lambda: self.modification(v)["ModificationState"] == "completed")

    def test_grow(self):
        v = self.volume(Size=10)
        m = self.ec2.modify_volume(VolumeId=v, Size=20)["VolumeModification"]
        want = dict(VolumeId=v, ModificationState="modifying", TargetSize=20, OriginalSize=10, TargetIops=3000, OriginalIops=3000,
                    TargetVolumeType="gp3", OriginalVolumeType="gp3", TargetThroughput=125, OriginalThroughput=125, Progress=0,
                    TargetMultiAttachEnabled=False, OriginalMultiAttachEnabled=False)
        self.assertEqual({k: m[k] for k in want}, want)
        self.assertNotIn("EndTime", m)
        self.completed(v)
        m = self.modification(v)
        self.assertEqual(m["Progress"], 100)
        self.assertGreaterEqual(m["EndTime"], m["StartTime"])
        self.assertEqual(self.shown_volume(v)["Size"], 20)

    def test_types(self):
        cases = [  # made with, modified to, want (type, IOPS, throughput)
            (dict(Size=500, VolumeType="gp2"), dict(VolumeType="gp3"), ("gp3", 3000, 250)),
            (dict(Size=2000, VolumeType="gp2"), dict(VolumeType="gp3"), ("gp3", 6000, 250)),
            (dict(Size=100, VolumeType="gp2"), dict(VolumeType="gp3"), ("gp3", 3000, 128)),
            (dict(Size=100, VolumeType="gp3"), dict(VolumeType="io2"), ("io2", 3000, None)),
            (dict(Size=100, VolumeType="io2", Iops=500), dict(VolumeType="gp3"), ("gp3", 3000, 125)),
            (dict(Size=100, VolumeType="gp3"), dict(Iops=4000, Throughput=1000), ("gp3", 4000, 1000)),
            (dict(Size=100, VolumeType="gp3", Iops=4000, Throughput=500), dict(Size=200), ("gp3", 4000, 500)),
            (dict(Size=100, VolumeType="gp3"), dict(VolumeType="gp2"), ("gp2", 300, None)),
            (dict(Size=200, VolumeType="gp3"), dict(VolumeType="st1"), ("st1", None, None)),
        ]
        for made, to, want in cases:
            with self.subTest(made=made, to=to):
                v = self.volume(**made)
                m = self.ec2.modify_volume(VolumeId=v, **to)["VolumeModification"]
                self.assertEqual((m["TargetVolumeType"], m.get("TargetIops"), m.get("TargetThroughput")), want)
                self.completed(v)
                s = self.shown_volume(v)
                self.assertEqual((s["VolumeType"], s.get("Iops"), s.get("Throughput")), want)

    def test_errors(self):
        v, magnetic = self.volume(Size=10), self.volume(Size=10, VolumeType="standard")
        endless, io = self.volume(Size=10), self.volume(Size=10, VolumeType="io1", Iops=100)
        i = self.running()
        root = self.disks(i)["/dev/sda1"]
        self.ec2.modify_volume(VolumeId=endless, Size=77)
        e = self.ec2
        self.check_codes([
            (e.modify_volume, dict(VolumeId=v, Size=9), "InvalidParameterValue"),
            (e.modify_volume, dict(VolumeId=v, Size=65537), "InvalidParameterValue"),
            (e.modify_volume, dict(VolumeId=v), "InvalidParameterValue"),
            (e.modify_volume, dict(VolumeId=v, Iops=2999), "InvalidParameterValue"),
            (e.modify_volume, dict(VolumeId=v, Throughput=2000), "InvalidParameterValue"),
            (e.modify_volume, dict(VolumeId=v, VolumeType="io2", Throughput=200), "InvalidParameterCombination"),
            (e.modify_volume, dict(VolumeId=io, Iops=501), "InvalidParameterValue"),
            (e.modify_volume, dict(VolumeId=io, Throughput=125), "InvalidParameterCombination"),
            (e.modify_volume, dict(VolumeId=v, VolumeType="st1"), "InvalidParameterValue"),
            (e.modify_volume, dict(VolumeId=v, VolumeType="standard"), "InvalidParameterValue"),
            (e.modify_volume, dict(VolumeId=magnetic, VolumeType="gp3"), "InvalidParameterValue"),
            (e.modify_volume, dict(VolumeId=root, Size=200, VolumeType="sc1"), "InvalidParameterValue"),
            (e.modify_volume, dict(VolumeId=v, MultiAttachEnabled=True), "UnsupportedOperation"),
            (e.modify_volume, dict(VolumeId=endless, Size=80), "IncorrectModificationState"),
            (e.modify_volume, dict(VolumeId="vol-" + GONE, Size=80), "InvalidVolume.NotFound"),
            (e.modify_volume, dict(VolumeId="vol-1", Size=80), "InvalidVolumeID.Malformed"),
            (e.modify_volume, dict(VolumeId=v, Size=11, DryRun=True), "DryRunOperation"),
            (self.other.modify_volume, dict(VolumeId=v, Size=11), "InvalidVolume.NotFound"),
            (e.describe_volumes_modifications, dict(VolumeIds=[v]), "InvalidVolumeModification.NotFound"),
            (e.describe_volumes_modifications, dict(VolumeIds=["vol-" + GONE]), "InvalidVolume.NotFound"),
            (e.describe_volumes_modifications, dict(Filters=[{"Name": "colour", "Values": ["x"]}]), "InvalidParameterValue"),
            (e.describe_volumes_modifications, dict(MaxResults=501), "InvalidParameterValue"),
        ])
        self.assertEqual(self.shown_volume(endless)["Size"], 10, "what is not done is not shown")
        self.assertEqual(self.shown_volume(v)["Size"], 10)

    def test_a_failed_modification_leaves_the_volume_as_it_was(self):
        v = self.volume(Size=10)
        self.ec2.modify_volume(VolumeId=v, Size=78)
        wait_for("failed", lambda: self.modification(v)["ModificationState"] == "failed")
        self.assertTrue(self.modification(v)["StatusMessage"])
        self.assertEqual(self.shown_volume(v)["Size"], 10)
        m = self.ec2.modify_volume(VolumeId=v, Size=12)["VolumeModification"]
        self.assertEqual((m["OriginalSize"], m["TargetSize"]), (10, 12))
        self.completed(v)

    def test_four_a_day(self):
        v = self.volume(Size=10)
        for size in (11, 12, 14, 15):
            self.ec2.modify_volume(VolumeId=v, Size=size)
            self.completed(v)
        e = error_of(self.ec2.modify_volume, VolumeId=v, Size=16)
        self.assertEqual(e["Code"], "VolumeModificationRateExceeded")
        self.assertIn("23 hours", e["Message"])

    def test_filters_and_pages(self):
        vs = [self.volume(Size=30 + i) for i in range(3)]
        for i, v in enumerate(vs):
            self.ec2.modify_volume(VolumeId=v, Size=40 + i)
            self.completed(v)
        by = lambda n, val: [m["VolumeId"] for m in self.ec2.describe_volumes_modifications(
            Filters=[{"Name": n, "Values": [val]}])["VolumesModifications"]]
        self.assertEqual(by("volume-id", vs[0]), [vs[0]])
        self.assertEqual(by("target-size", "41"), [vs[1]])
        self.assertEqual(by("original-size", "32"), [vs[2]])
        self.assertTrue(set(vs) <= set(by("modification-state", "completed")))
        self.assertTrue(set(vs) <= set(by("target-volume-type", "gp3")))
        pages = list(self.ec2.get_paginator("describe_volumes_modifications").paginate(PaginationConfig={"PageSize": 1}))
        self.assertGreaterEqual(len(pages), 3)

    def test_two_at_once(self):
        for _ in range(4):
            v = self.volume(Size=10)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                codes = [f.result() for f in [pool.submit(code_of, self.ec2.modify_volume, VolumeId=v, Size=s) for s in (77, 77)]]
            self.assertEqual(sorted(codes), ["IncorrectModificationState", "no error"])


class Snapshots(Base):
    def test_life(self):
        v = self.volume(Size=2)
        t = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=2)
        s = self.ec2.create_snapshot(VolumeId=v, Description="before", TagSpecifications=tagged("snapshot", k="v"))
        sid = s["SnapshotId"]
        self.addCleanup(self.drop_snapshot, self.ec2, sid)
        self.assertRegex(sid, "^snap-[0-9a-f]{17}$")
        self.assertEqual((s["State"], s["Progress"], s["VolumeId"], s["VolumeSize"], s["OwnerId"], s["Description"], s["Encrypted"], tags_of(s)),
                         ("pending", "", v, 2, self.account, "before", False, {"k": "v"}))
        self.assertGreater(s["StartTime"], t)
        self.ec2.get_waiter("snapshot_completed").wait(SnapshotIds=[sid], WaiterConfig=WAIT)
        d = self.shown_snapshot(sid)
        self.assertEqual((d["State"], d["Progress"], d["StorageTier"], d["FullSnapshotSizeInBytes"]), ("completed", "100%", "standard", 2 << 20))
        self.assertGreaterEqual(d["CompletionTime"], d["StartTime"])
        self.ec2.delete_snapshot(SnapshotId=sid)
        self.assertEqual(code_of(self.ec2.describe_snapshots, SnapshotIds=[sid]), "InvalidSnapshot.NotFound")
        self.assertEqual(code_of(self.ec2.delete_snapshot, SnapshotId=sid), "InvalidSnapshot.NotFound")
        wait_for("forgotten", lambda: not [k for p in ("spec/", "status/") for k in keys(p) if sid in k])

    def test_a_snapshot_outlives_its_volume(self):
        v = self.volume()
        s = self.snapshot(volume=v)
        self.ec2.delete_volume(VolumeId=v)
        self.ec2.get_waiter("volume_deleted").wait(VolumeIds=[v], WaiterConfig=WAIT)
        self.assertEqual(self.shown_snapshot(s)["VolumeId"], v)
        self.volume(SnapshotId=s)

    def test_rate_and_number(self):
        v = self.volume()
        self.snapshot(volume=v, wait=False)
        e = error_of(self.ec2.create_snapshot, VolumeId=v)
        self.assertEqual(e["Code"], "SnapshotCreationPerVolumeRateExceeded")
        hdd = self.volume(Size=125, VolumeType="st1")
        held = self.snapshot(volume=hdd, wait=False, Description="hold")
        i = self.running()
        self.ec2.attach_volume(VolumeId=hdd, InstanceId=i, Device="/dev/sdf")
        wait_for("attached", lambda: self.shown_volume(hdd)["Attachments"][0]["State"] == "attached")
        # CreateImage has no rest between snapshots, but the number of pending ones counts.
        self.assertEqual(code_of(self.ec2.create_image, InstanceId=i, Name="too many", NoReboot=True), "ConcurrentSnapshotLimitExceeded")
        self.ec2.delete_snapshot(SnapshotId=held)

    def test_failed(self):
        s = self.snapshot(wait=False, Description="fail")
        wait_for("error", lambda: self.shown_snapshot(s)["State"] == "error")
        self.assertTrue(self.shown_snapshot(s)["StateMessage"])
        self.assertEqual(code_of(self.ec2.create_volume, AvailabilityZone=AZ, SnapshotId=s), "IncorrectState")

    def test_of_an_instance(self):
        i = self.running(BlockDeviceMappings=[{"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 1}}, {"DeviceName": "/dev/sdg", "Ebs": {"VolumeSize": 1}}],
                         TagSpecifications=tagged("volume", own="yes", both="volume"))
        d = self.disks(i)
        out = self.ec2.create_snapshots(InstanceSpecification={"InstanceId": i, "ExcludeDataVolumeIds": [d["/dev/sdg"]]}, Description="all",
                                        CopyTagsFromSource="volume", TagSpecifications=tagged("snapshot", asked="yes", both="asked"))["Snapshots"]
        for s in out:
            self.addCleanup(self.drop_snapshot, self.ec2, s["SnapshotId"])
        self.assertEqual({s["VolumeId"] for s in out}, {d["/dev/sda1"], d["/dev/sdf"]})
        self.assertEqual({(s["State"], s["Progress"], s["Description"], s["OwnerId"]) for s in out}, {("pending", "", "all", self.account)})
        for s in out:
            self.assertEqual(tags_of(s), {"own": "yes", "asked": "yes", "both": "asked"})
        groups = {cloud.spx_json("admin", "state", "get", f"spec/snapshot/{self.account}/{s['SnapshotId']}")["value"]["group"] for s in out}
        self.assertEqual(len(groups), 1)
        self.ec2.get_waiter("snapshot_completed").wait(SnapshotIds=[s["SnapshotId"] for s in out], WaiterConfig=WAIT)
        only = self.ec2.create_snapshots(InstanceSpecification={"InstanceId": i, "ExcludeBootVolume": True, "ExcludeDataVolumeIds": [d["/dev/sdf"]]})
        self.assertEqual([s["VolumeId"] for s in only["Snapshots"]], [d["/dev/sdg"]])
        self.addCleanup(self.drop_snapshot, self.ec2, only["Snapshots"][0]["SnapshotId"])
        spec = lambda **kw: dict(InstanceSpecification=dict(InstanceId=i, **kw))
        self.check_codes([
            (self.ec2.create_snapshots, spec(ExcludeDataVolumeIds=[d["/dev/sda1"]]), "InvalidParameterValue"),
            (self.ec2.create_snapshots, spec(ExcludeDataVolumeIds=["vol-" + GONE]), "InvalidParameterValue"),
            (self.ec2.create_snapshots, spec(ExcludeDataVolumeIds=["vol-x"]), "InvalidVolumeID.Malformed"),
            (self.ec2.create_snapshots, spec(ExcludeBootVolume=True, ExcludeDataVolumeIds=[d["/dev/sdf"], d["/dev/sdg"]]), "InvalidParameterValue"),
            (self.ec2.create_snapshots, spec(), "SnapshotCreationPerVolumeRateExceeded"),
            (self.ec2.create_snapshots, dict(InstanceSpecification={"InstanceId": "i-" + GONE}), "InvalidInstanceID.NotFound"),
            (self.other.create_snapshots, spec(), "InvalidInstanceID.NotFound"),
        ])

    def test_copy(self):
        s = self.snapshot()
        c = self.ec2.copy_snapshot(SourceRegion=REGION, SourceSnapshotId=s, Description="copy", TagSpecifications=tagged("snapshot", c="d"))
        self.addCleanup(self.drop_snapshot, self.ec2, c["SnapshotId"])
        self.assertEqual(tags_of(c), {"c": "d"})
        self.ec2.get_waiter("snapshot_completed").wait(SnapshotIds=[c["SnapshotId"]], WaiterConfig=WAIT)
        d = self.shown_snapshot(c["SnapshotId"])
        self.assertEqual((d["VolumeId"], d["Description"], d["Encrypted"], d["TransferType"]), ("vol-ffffffff", "copy", False, "standard"))
        e = self.ec2.copy_snapshot(SourceRegion=REGION, SourceSnapshotId=s, Encrypted=True, KmsKeyId="alias/aws/ebs")["SnapshotId"]
        self.addCleanup(self.drop_snapshot, self.ec2, e)
        self.ec2.get_waiter("snapshot_completed").wait(SnapshotIds=[e], WaiterConfig=WAIT)
        self.assertTrue(self.shown_snapshot(e)["Encrypted"])
        again = self.ec2.copy_snapshot(SourceRegion=REGION, SourceSnapshotId=e)["SnapshotId"]
        self.addCleanup(self.drop_snapshot, self.ec2, again)
        self.assertTrue(self.shown_snapshot(again)["Encrypted"], "encryption is never taken away")
        pending = self.snapshot(wait=False, Description="hold")
        self.check_codes([
            (self.ec2.copy_snapshot, dict(SourceRegion="mars-north-1", SourceSnapshotId=s), "InvalidParameterValue"),
            (self.ec2.copy_snapshot, dict(SourceRegion=REGION, SourceSnapshotId="snap-" + GONE), "InvalidSnapshot.NotFound"),
            (self.ec2.copy_snapshot, dict(SourceRegion=REGION, SourceSnapshotId=pending), "IncorrectState"),
            (self.ec2.copy_snapshot, dict(SourceRegion=REGION, SourceSnapshotId=s, KmsKeyId="alias/aws/ebs"), "InvalidParameterDependency"),
            (self.ec2.copy_snapshot, dict(SourceRegion=REGION, SourceSnapshotId=s, CompletionDurationMinutes=15), "UnsupportedOperation"),
            (self.ec2.copy_snapshot, dict(SourceRegion=REGION, SourceSnapshotId=s, DryRun=True), "DryRunOperation"),
            (self.other.copy_snapshot, dict(SourceRegion=REGION, SourceSnapshotId=s), "InvalidSnapshot.NotFound"),
        ])

    def test_describe(self):
        mine = [self.snapshot(Description=f"d{k}", TagSpecifications=tagged("snapshot", n=str(k))) for k in range(6)]
        theirs = self.snapshot(self.other)
        listed = lambda **kw: {s["SnapshotId"] for s in self.ec2.describe_snapshots(**kw)["Snapshots"]}
        by = lambda n, *vals: listed(Filters=[{"Name": n, "Values": list(vals)}])
        self.assertTrue(set(mine) <= listed())
        self.assertNotIn(theirs, listed())
        self.assertTrue(set(mine) <= listed(OwnerIds=["self"]))
        self.assertTrue(set(mine) <= listed(OwnerIds=[self.account]))
        self.assertEqual(listed(OwnerIds=["amazon"]), set())
        self.assertEqual(listed(OwnerIds=[self.other_account]), set())
        self.assertEqual(listed(RestorableByUserIds=["all"]), set())
        self.assertTrue(set(mine) <= listed(RestorableByUserIds=["self"]))
        self.assertEqual(by("description", "d3"), {mine[3]})
        self.assertEqual(by("tag:n", "2", "4"), {mine[2], mine[4]})
        self.assertEqual(by("snapshot-id", mine[5]), {mine[5]})
        self.assertEqual(by("volume-id", self.shown_snapshot(mine[0])["VolumeId"]), {mine[0]})
        for n, val in (("status", "completed"), ("progress", "100%"), ("volume-size", "1"), ("encrypted", "false"), ("owner-id", self.account),
                       ("storage-tier", "standard"), ("start-time", "20*"), ("tag-key", "n")):
            self.assertTrue(set(mine) <= by(n, val), n)
        for n, val in (("status", "error"), ("encrypted", "true"), ("owner-alias", "amazon"), ("transfer-type", "time-based")):
            self.assertFalse(set(mine) & by(n, val), n)
        pages = list(self.ec2.get_paginator("describe_snapshots").paginate(OwnerIds=["self"], PaginationConfig={"PageSize": 5}))
        got = [s["SnapshotId"] for p in pages for s in p["Snapshots"]]
        self.assertGreater(len(pages), 1)
        self.assertEqual(len(got), len(set(got)))
        self.assertTrue(set(mine) <= set(got))
        self.check_codes([
            (self.ec2.describe_snapshots, dict(SnapshotIds=["snap-" + GONE]), "InvalidSnapshot.NotFound"),
            (self.ec2.describe_snapshots, dict(SnapshotIds=["snap-zz"]), "InvalidSnapshotID.Malformed"),
            (self.ec2.describe_snapshots, dict(SnapshotIds=[theirs]), "InvalidSnapshot.NotFound"),
            (self.ec2.describe_snapshots, dict(SnapshotIds=mine, MaxResults=5), "InvalidParameterCombination"),
            (self.ec2.describe_snapshots, dict(MaxResults=4), "InvalidParameterValue"),
            (self.ec2.describe_snapshots, dict(NextToken="x"), "InvalidNextToken"),
            (self.ec2.describe_snapshots, dict(Filters=[{"Name": "colour", "Values": ["x"]}]), "InvalidParameterValue"),
        ])
        tiers = {t["SnapshotId"]: t for t in self.ec2.describe_snapshot_tier_status()["SnapshotTierStatuses"]}
        self.assertEqual((tiers[mine[0]]["StorageTier"], tiers[mine[0]]["Status"]), ("standard", "completed"))
        self.assertEqual(self.ec2.list_snapshots_in_recycle_bin()["Snapshots"], [])

    def test_errors(self):
        v, s = self.volume(), self.snapshot()
        self.check_codes([
            (self.ec2.create_snapshot, dict(VolumeId="vol-" + GONE), "InvalidVolume.NotFound"),
            (self.ec2.create_snapshot, dict(VolumeId="vol-x"), "InvalidVolumeID.Malformed"),
            (self.other.create_snapshot, dict(VolumeId=v), "InvalidVolume.NotFound"),
            (self.ec2.create_snapshot, dict(VolumeId=v, Location="local"), "InvalidParameterValue"),
            (self.ec2.create_snapshot, dict(VolumeId=v, OutpostArn="arn:x"), "UnsupportedOperation"),
            (self.ec2.create_snapshot, dict(VolumeId=v, Description="x" * 256), "InvalidParameterValue"),
            (self.ec2.create_snapshot, dict(VolumeId=v, TagSpecifications=tagged("volume", a="b")), "InvalidParameterValue"),
            (self.ec2.create_snapshot, dict(VolumeId=v, DryRun=True), "DryRunOperation"),
            (self.ec2.delete_snapshot, dict(SnapshotId="snap-" + GONE), "InvalidSnapshot.NotFound"),
            (self.ec2.delete_snapshot, dict(SnapshotId="vol-1"), "InvalidSnapshotID.Malformed"),
            (self.ec2.delete_snapshot, dict(SnapshotId=s, DryRun=True), "DryRunOperation"),
            (self.other.delete_snapshot, dict(SnapshotId=s), "InvalidSnapshot.NotFound"),
            (self.other.create_volume, dict(AvailabilityZone=AZ, SnapshotId=s), "InvalidSnapshot.NotFound"),
        ])

    def test_the_answer_waits_for_the_point_in_time(self):
        v = self.volume()
        cloud.kill9("fakehost")
        try:
            done = []
            t = threading.Thread(target=lambda: done.append(self.ec2.create_snapshot(VolumeId=v)))
            t.start()
            t.join(2)
            self.assertEqual(done, [], "nothing has been taken yet")
            wait_for("others are answered meanwhile", lambda: self.ec2.describe_volumes(VolumeIds=[v])["Volumes"], timeout=1)
            t.join(20)
            self.assertEqual(done[0]["State"], "pending")
        finally:
            cloud.start("fakehost")
        self.addCleanup(self.drop_snapshot, self.ec2, done[0]["SnapshotId"])
        self.ec2.get_waiter("snapshot_completed").wait(SnapshotIds=[done[0]["SnapshotId"]], WaiterConfig=WAIT)

    def test_create_and_delete_at_once(self):
        """A snapshot and the deletion of its volume: in whichever order, no snapshot is of a volume that was gone before."""
        for _ in range(6):
            v = self.ec2.create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
            self.ec2.get_waiter("volume_available").wait(VolumeIds=[v], WaiterConfig=WAIT)
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                a = pool.submit(code_of, self.ec2.create_snapshot, VolumeId=v)
                b = pool.submit(code_of, self.ec2.delete_volume, VolumeId=v)
                self.assertEqual(b.result(), "no error")
                self.assertIn(a.result(), ("no error", "IncorrectState", "InvalidVolume.NotFound"))
            for s in self.ec2.describe_snapshots(Filters=[{"Name": "volume-id", "Values": [v]}])["Snapshots"]:
                self.addCleanup(self.drop_snapshot, self.ec2, s["SnapshotId"])

    def test_one_volume_many_at_once(self):
        clients = [cloud.client("ec2") for _ in range(4)]
        for _ in range(12):
            v = self.volume()
            barrier = threading.Barrier(4)

            def go(ec2):
                barrier.wait()
                return code_of(ec2.create_snapshot, VolumeId=v)
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                codes = list(pool.map(go, clients))
            for s in self.ec2.describe_snapshots(Filters=[{"Name": "volume-id", "Values": [v]}])["Snapshots"]:
                self.addCleanup(self.drop_snapshot, self.ec2, s["SnapshotId"])
            self.assertEqual(sorted(codes), ["SnapshotCreationPerVolumeRateExceeded"] * 3 + ["no error"])


class Sharing(Base):
    def permissions(self, s):
        return self.ec2.describe_snapshot_attribute(SnapshotId=s, Attribute="createVolumePermission")["CreateVolumePermissions"]

    def test_snapshot(self):
        s = self.snapshot(TagSpecifications=tagged("snapshot", secret="x"))
        self.assertEqual(self.permissions(s), [])
        self.ec2.modify_snapshot_attribute(SnapshotId=s, Attribute="createVolumePermission", OperationType="add", UserIds=[self.other_account])
        self.ec2.modify_snapshot_attribute(SnapshotId=s, CreateVolumePermission={"Add": [{"UserId": self.other_account}, {"UserId": "111122223333"}]})
        self.assertEqual(self.permissions(s), [{"UserId": self.other_account}, {"UserId": "111122223333"}])
        shown = self.shown_snapshot(s, self.other)
        self.assertEqual((shown["OwnerId"], tags_of(shown)), (self.account, {}), "tags are their owner's")
        listed = lambda ec2, **kw: [x["SnapshotId"] for x in ec2.describe_snapshots(**kw)["Snapshots"]]
        self.assertIn(s, listed(self.other, RestorableByUserIds=["self"]))
        self.assertIn(s, listed(self.other, OwnerIds=[self.account]))
        self.assertNotIn(s, listed(self.other, OwnerIds=["self"]))
        self.assertIn(s, listed(self.ec2, RestorableByUserIds=[self.other_account]))
        v = self.volume(self.other, Size=None, SnapshotId=s)
        self.assertEqual(self.shown_volume(v, self.other)["SnapshotId"], s)
        self.check_codes([
            (self.other.delete_snapshot, dict(SnapshotId=s), "AuthFailure"),
            (self.other.describe_snapshot_attribute, dict(SnapshotId=s, Attribute="createVolumePermission"), "AuthFailure"),
            (self.other.modify_snapshot_attribute, dict(SnapshotId=s, CreateVolumePermission={"Add": [{"Group": "all"}]}), "AuthFailure"),
            (self.other.create_tags, dict(Resources=[s], Tags=[{"Key": "a", "Value": "b"}]), "InvalidSnapshot.NotFound"),
        ])
        c = self.other.copy_snapshot(SourceRegion=REGION, SourceSnapshotId=s)["SnapshotId"]
        self.addCleanup(self.drop_snapshot, self.other, c)
        self.ec2.modify_snapshot_attribute(SnapshotId=s, CreateVolumePermission={"Remove": [{"UserId": self.other_account}]})
        self.assertEqual(self.permissions(s), [{"UserId": "111122223333"}])
        self.assertEqual(code_of(self.other.create_volume, AvailabilityZone=AZ, SnapshotId=s), "InvalidSnapshot.NotFound")
        self.ec2.reset_snapshot_attribute(SnapshotId=s, Attribute="createVolumePermission")
        self.assertEqual(self.permissions(s), [])

    def test_public_snapshot_and_its_block(self):
        s = self.snapshot()
        self.addCleanup(self.ec2.disable_snapshot_block_public_access)
        self.ec2.modify_snapshot_attribute(SnapshotId=s, Attribute="createVolumePermission", OperationType="add", GroupNames=["all"])
        self.assertEqual(self.permissions(s), [{"Group": "all"}])
        self.assertIn(s, [x["SnapshotId"] for x in self.other.describe_snapshots(RestorableByUserIds=["all"])["Snapshots"]])
        self.assertEqual(self.ec2.get_snapshot_block_public_access_state()["State"], "unblocked")
        self.assertEqual(self.ec2.enable_snapshot_block_public_access(State="block-new-sharing")["State"], "block-new-sharing")
        self.shown_snapshot(s, self.other)
        other = self.snapshot()
        self.assertEqual(code_of(self.ec2.modify_snapshot_attribute, SnapshotId=other, CreateVolumePermission={"Add": [{"Group": "all"}]}),
                         "OperationNotPermitted")
        self.ec2.modify_snapshot_attribute(SnapshotId=other, CreateVolumePermission={"Add": [{"UserId": self.other_account}]})
        self.ec2.enable_snapshot_block_public_access(State="block-all-sharing")
        self.assertEqual(self.ec2.get_snapshot_block_public_access_state()["State"], "block-all-sharing")
        self.assertEqual(code_of(self.other.describe_snapshots, SnapshotIds=[s]), "InvalidSnapshot.NotFound")
        self.assertEqual(self.permissions(s), [{"Group": "all"}], "the permission stays, it has no effect")
        self.shown_snapshot(other, self.other)
        self.assertEqual(self.ec2.disable_snapshot_block_public_access()["State"], "unblocked")
        self.shown_snapshot(s, self.other)
        self.assertEqual(code_of(self.ec2.enable_snapshot_block_public_access, State="unblocked"), "InvalidParameterValue")

    def test_snapshot_errors(self):
        s = self.snapshot()
        e = self.snapshot(volume=self.volume(Encrypted=True))
        add = lambda **p: dict(SnapshotId=s, CreateVolumePermission={"Add": [p]})
        m = self.ec2.modify_snapshot_attribute
        self.check_codes([
            (m, dict(SnapshotId=s), "MissingParameter"),
            (m, dict(SnapshotId=s, UserIds=["111122223333"]), "MissingParameter"),
            (m, add(UserId="me"), "InvalidUserID.Malformed"),
            (m, add(UserId="1111-2222-3333"), "InvalidUserID.Malformed"),
            (m, add(Group="some"), "InvalidParameterValue"),
            (m, dict(SnapshotId=s, CreateVolumePermission={"Add": [{"UserId": "111122223333"}], "Remove": [{"Group": "all"}]}), "InvalidParameterCombination"),
            (m, dict(SnapshotId=s, Attribute="productCodes", OperationType="add", UserIds=["111122223333"]), "InvalidParameterValue"),
            (m, dict(SnapshotId=e, CreateVolumePermission={"Add": [{"UserId": self.other_account}]}), "OperationNotPermitted"),
            (m, dict(SnapshotId=e, CreateVolumePermission={"Add": [{"Group": "all"}]}), "OperationNotPermitted"),
            (m, dict(SnapshotId="snap-" + GONE, CreateVolumePermission={"Add": [{"Group": "all"}]}), "InvalidSnapshot.NotFound"),
            (m, dict(DryRun=True, **add(Group="all")), "DryRunOperation"),
            (self.ec2.reset_snapshot_attribute, dict(SnapshotId=s, Attribute="productCodes"), "InvalidParameterValue"),
            (self.ec2.describe_snapshot_attribute, dict(SnapshotId="snap-" + GONE, Attribute="productCodes"), "InvalidSnapshot.NotFound"),
        ])
        self.assertEqual(self.permissions(s), [])
        self.assertEqual(self.ec2.describe_snapshot_attribute(SnapshotId=s, Attribute="productCodes")["ProductCodes"], [])


class Encryption(Base):
    def test_defaults(self):
        self.addCleanup(self.ec2.disable_ebs_encryption_by_default)
        self.assertFalse(self.ec2.get_ebs_encryption_by_default()["EbsEncryptionByDefault"])
        key = self.ec2.get_ebs_default_kms_key_id()["KmsKeyId"]
        self.assertRegex(key, rf"^arn:aws:kms:{REGION}:{self.account}:key/[0-9a-f]{{8}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{4}}-[0-9a-f]{{12}}$")
        self.assertNotEqual(key, self.other.get_ebs_default_kms_key_id()["KmsKeyId"])
        plain = self.snapshot()
        self.assertTrue(self.ec2.enable_ebs_encryption_by_default()["EbsEncryptionByDefault"])
        self.assertTrue(self.ec2.get_ebs_encryption_by_default()["EbsEncryptionByDefault"])
        self.assertFalse(self.other.get_ebs_encryption_by_default()["EbsEncryptionByDefault"])
        for kw in (dict(), dict(Encrypted=False), dict(KmsKeyId="alias/aws/ebs"), dict(Size=None, SnapshotId=plain)):
            v = self.shown_volume(self.volume(**kw))
            self.assertEqual((v["Encrypted"], v["KmsKeyId"]), (True, key), kw)
        i = self.running(BlockDeviceMappings=[{"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 1}}])
        self.assertEqual({self.shown_volume(v)["Encrypted"] for v in self.disks(i).values()}, {True})
        c = self.ec2.copy_snapshot(SourceRegion=REGION, SourceSnapshotId=plain)["SnapshotId"]
        self.addCleanup(self.drop_snapshot, self.ec2, c)
        self.assertTrue(self.shown_snapshot(c)["Encrypted"])
        self.assertFalse(self.ec2.disable_ebs_encryption_by_default()["EbsEncryptionByDefault"])
        self.assertFalse(self.shown_volume(self.volume())["Encrypted"])

    def test_key(self):
        key = self.ec2.get_ebs_default_kms_key_id()["KmsKeyId"]
        for name in ("alias/aws/ebs", key, key.rsplit("/", 1)[1], f"arn:aws:kms:{REGION}:{self.account}:alias/aws/ebs"):
            self.assertEqual(self.ec2.modify_ebs_default_kms_key_id(KmsKeyId=name)["KmsKeyId"], key)
            v = self.shown_volume(self.volume(Encrypted=True, KmsKeyId=name))
            self.assertEqual(v["KmsKeyId"], key)
        self.assertEqual(self.ec2.reset_ebs_default_kms_key_id()["KmsKeyId"], key)
        theirs = self.other.get_ebs_default_kms_key_id()["KmsKeyId"]
        self.check_codes([
            (self.ec2.modify_ebs_default_kms_key_id, dict(KmsKeyId="alias/mine"), "InvalidKMSKey.InvalidState"),
            (self.ec2.modify_ebs_default_kms_key_id, dict(KmsKeyId=theirs), "InvalidKMSKey.InvalidState"),
            (self.ec2.modify_ebs_default_kms_key_id, dict(KmsKeyId=key, DryRun=True), "DryRunOperation"),
            (self.ec2.enable_ebs_encryption_by_default, dict(DryRun=True), "DryRunOperation"),
        ])

    def test_snapshots_of_encrypted_volumes(self):
        s = self.shown_snapshot(self.snapshot(volume=self.volume(Encrypted=True)))
        self.assertEqual((s["Encrypted"], s["KmsKeyId"]), (True, self.ec2.get_ebs_default_kms_key_id()["KmsKeyId"]))
        v = self.shown_volume(self.volume(Size=None, SnapshotId=self.snapshot(), Encrypted=True))
        self.assertTrue(v["Encrypted"])


class Authorisation(Base):
    def test_strangers_are_told_nothing(self):
        """Not even whether the thing is there."""
        s = self.snapshot()
        bad = cloud.client("ec2")
        bad._request_signer._credentials.secret_key = "x" * 40
        for call, kw in ((bad.create_snapshot, dict(VolumeId="vol-" + GONE)), (bad.delete_snapshot, dict(SnapshotId=s)),
                         (bad.describe_snapshots, dict()), (bad.modify_volume, dict(VolumeId="vol-" + GONE, Size=1)),
                         (bad.register_image, dict(Name="xyz")), (bad.get_ebs_encryption_by_default, dict())):
            self.assertEqual(code_of(call, **kw), "AuthFailure")


class ZBooks(ebs.Books):
    """Runs last, by its name."""


if __name__ == "__main__":
    unittest.main(verbosity=1)
