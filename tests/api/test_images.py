"""Images of snapshots through the real gateway and store: made, copied, shared, launched.

Right values come from the EC2 API reference and the EBS user guide.  A fake host reports what a working block service would; what goes wrong
is asked for by name (src/testkit/fakehost.c).  Bytes are not here: tests/e2e.
"""
import concurrent.futures
import datetime
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import ebs  # noqa: E402
from cloud import REGION, wait_for  # noqa: E402
from ebs import AMI, Base, GONE, WAIT, code_of, error_of, tagged, tags_of  # noqa: E402

cloud = None


def setUpModule():
    global cloud
    cloud = ebs.open_cloud()


def tearDownModule():
    cloud.close()


class Images(Base):
    def test_register(self):
        root, data = self.snapshot(volume=self.volume(Size=2)), self.snapshot(volume=self.volume(Encrypted=True))
        i = self.image(
            Name="reg (1)", Description="of snapshots", BootMode="uefi", SriovNetSupport="simple", ImdsSupport="v2.0", TpmSupport="v2.0",
            TagSpecifications=tagged("image", k="v"), BlockDeviceMappings=[
                {"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": data, "DeleteOnTermination": False, "VolumeType": "io2", "Iops": 500, "VolumeSize": 5}},
                {"DeviceName": "/dev/xvda", "Ebs": {"SnapshotId": root, "VolumeType": "gp3", "VolumeSize": 4, "Throughput": 200}},
                {"DeviceName": "/dev/sdg", "Ebs": {"VolumeSize": 3}}, {"DeviceName": "/dev/sdh", "VirtualName": "ephemeral0"}])
        d = self.shown_image(i)
        want = dict(ImageId=i, Name="reg (1)", Description="of snapshots", Architecture="x86_64", BootMode="uefi", EnaSupport=True, State="available",
                    SriovNetSupport="simple", ImdsSupport="v2.0", TpmSupport="v2.0", RootDeviceName="/dev/xvda", RootDeviceType="ebs",
                    VirtualizationType="hvm", Public=False, OwnerId=self.account, ImageLocation=f"{self.account}/reg (1)", ImageType="machine",
                    Hypervisor="xen", DeregistrationProtection="disabled", PlatformDetails="Linux/UNIX", UsageOperation="RunInstances")
        self.assertEqual({k: d.get(k) for k in want}, want)
        self.assertEqual(tags_of(d), {"k": "v"})
        m = {x["DeviceName"]: x for x in d["BlockDeviceMappings"]}
        self.assertEqual(m["/dev/xvda"]["Ebs"], dict(DeleteOnTermination=True, SnapshotId=root, VolumeSize=4, VolumeType="gp3", Iops=3000, Throughput=200,
                                                     Encrypted=False))
        self.assertEqual(m["/dev/sdf"]["Ebs"], dict(DeleteOnTermination=False, SnapshotId=data, VolumeSize=5, VolumeType="io2", Iops=500, Encrypted=True))
        self.assertEqual(m["/dev/sdg"]["Ebs"], dict(DeleteOnTermination=True, VolumeSize=3, VolumeType="gp2", Encrypted=False))
        self.assertEqual(m["/dev/sdh"], dict(DeviceName="/dev/sdh", VirtualName="ephemeral0"))
        self.assertEqual(d["BlockDeviceMappings"][0]["DeviceName"], "/dev/xvda", "the root comes first")
        by = lambda n, val: i in {x["ImageId"] for x in self.ec2.describe_images(Filters=[{"Name": n, "Values": [val]}])["Images"]}
        for n, val in (("name", "reg*"), ("block-device-mapping.snapshot-id", data), ("block-device-mapping.volume-size", "3"), ("tag:k", "v"),
                       ("block-device-mapping.volume-type", "io2"), ("block-device-mapping.encrypted", "true"), ("boot-mode", "uefi"),
                       ("block-device-mapping.delete-on-termination", "false"), ("block-device-mapping.device-name", "/dev/sdh"), ("state", "available"),
                       ("architecture", "x86_64"), ("is-public", "false"), ("owner-id", self.account), ("root-device-name", "/dev/xvda"),
                       ("sriov-net-support", "simple"), ("ena-support", "true"), ("description", "of *"), ("creation-date", "20*")):
            self.assertTrue(by(n, val), n)
        for n, val in (("block-device-mapping.volume-type", "st1"), ("is-public", "true"), ("owner-alias", "*"), ("source-instance-id", "*"), ("state", "pending")):
            self.assertFalse(by(n, val), n)
        # Snapshots that images name cannot be deleted.
        e = error_of(self.ec2.delete_snapshot, SnapshotId=data)
        self.assertEqual((e["Code"], e["Message"]), ("InvalidSnapshot.InUse", f"The snapshot {data} is currently in use by {i}"))

    def test_launch_from_it(self):
        root, data = self.snapshot(volume=self.volume(Size=2)), self.snapshot(volume=self.volume(Size=3))
        i = self.image(BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"SnapshotId": root, "VolumeType": "gp3", "Iops": 3500, "VolumeSize": 7}},
                                            {"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": data, "DeleteOnTermination": False}},
                                            {"DeviceName": "/dev/sdg", "Ebs": {"VolumeSize": 1}}])
        run = self.running(ImageId=i, BlockDeviceMappings=[{"DeviceName": "/dev/sdg", "NoDevice": ""},
                                                           {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 8, "Encrypted": True}},
                                                           {"DeviceName": "/dev/sdh", "Ebs": {"SnapshotId": data, "VolumeType": "io1", "Iops": 150, "VolumeSize": 4}}])
        d = self.disks(run)
        self.assertEqual(set(d), {"/dev/xvda", "/dev/sdf", "/dev/sdh"})
        show = {n: self.shown_volume(v) for n, v in d.items()}
        f = lambda v: (v["Size"], v["VolumeType"], v["SnapshotId"], v["Encrypted"], v.get("Iops"), v["Attachments"][0]["DeleteOnTermination"])
        self.assertEqual(f(show["/dev/xvda"]), (8, "gp3", root, True, 3500, True))
        self.assertEqual(f(show["/dev/sdf"]), (3, "gp2", data, False, 100, False))
        self.assertEqual(f(show["/dev/sdh"]), (4, "io1", data, False, 150, True))
        self.ec2.modify_instance_attribute(InstanceId=run, BlockDeviceMappings=[{"DeviceName": "/dev/sdh", "Ebs": {"DeleteOnTermination": False}}])
        bdm = {m["DeviceName"]: m["Ebs"]["DeleteOnTermination"] for m in self.ec2.describe_instance_attribute(
            InstanceId=run, Attribute="blockDeviceMapping")["BlockDeviceMappings"]}
        self.assertEqual(bdm, {"/dev/xvda": True, "/dev/sdf": False, "/dev/sdh": False})
        meta = self.ec2.describe_instance_image_metadata(InstanceIds=[run])["InstanceImageMetadata"][0]
        self.assertEqual((meta["InstanceId"], meta["ImageMetadata"]["ImageId"], meta["ImageMetadata"]["State"]), (run, i, "available"))
        self.end(self.ec2, run)
        wait_for("root gone", lambda: code_of(self.ec2.describe_volumes, VolumeIds=[d["/dev/xvda"]]) == "InvalidVolume.NotFound")
        for n in ("/dev/sdf", "/dev/sdh"):
            wait_for("kept", lambda: self.shown_volume(d[n])["State"] == "available")
            self.ec2.delete_volume(VolumeId=d[n])
        run = lambda **ebs: dict(ImageId=i, InstanceType="t3.nano", MinCount=1, MaxCount=1, BlockDeviceMappings=[dict(DeviceName="/dev/xvda", Ebs=ebs)])
        self.check_codes([
            (self.ec2.run_instances, run(VolumeSize=1), "InvalidBlockDeviceMapping"),
            (self.ec2.run_instances, run(SnapshotId=data), "InvalidBlockDeviceMapping"),
            (self.ec2.run_instances, run(VolumeType="st1", VolumeSize=200), "InvalidBlockDeviceMapping"),
            (self.ec2.run_instances, run(KmsKeyId="alias/aws/ebs"), "InvalidParameterDependency"),
            (self.ec2.run_instances, run(Encrypted=True, KmsKeyId="alias/none"), "InvalidKMSKey.InvalidState"),
            (self.ec2.run_instances, dict(ImageId=i, InstanceType="t3.nano", MinCount=1, MaxCount=1, BlockDeviceMappings=[
                {"DeviceName": "/dev/xvda", "NoDevice": ""}]), "InvalidBlockDeviceMapping"),
            (self.ec2.run_instances, dict(ImageId=i, InstanceType="t3.nano", MinCount=1, MaxCount=1, BlockDeviceMappings=[
                {"DeviceName": "/dev/sdz", "Ebs": {"SnapshotId": "snap-" + GONE}}]), "InvalidSnapshot.NotFound"),
            (self.ec2.run_instances, dict(ImageId=i, InstanceType="t3.nano", MinCount=1, MaxCount=1, BlockDeviceMappings=[
                {"DeviceName": f"/dev/sd{c}", "Ebs": {"VolumeSize": 1}} for c in "hijklmnopqrstuvw"]), "AttachmentLimitExceeded"),
        ])

    def test_fifteen_data_disks(self):
        i = self.running(BlockDeviceMappings=[{"DeviceName": f"/dev/sd{c}", "Ebs": {"VolumeSize": 1}} for c in "fghijklmnopqst"])
        v, w = self.volume(), self.volume()
        self.ec2.attach_volume(VolumeId=v, InstanceId=i, Device="/dev/sdu")
        self.assertEqual(code_of(self.ec2.attach_volume, VolumeId=w, InstanceId=i, Device="/dev/sdv"), "AttachmentLimitExceeded")
        self.ec2.detach_volume(VolumeId=v)
        wait_for("free", lambda: self.shown_volume(v)["State"] == "available")
        self.ec2.attach_volume(VolumeId=w, InstanceId=i, Device="/dev/sdv")

    def test_register_errors(self):
        s, e = self.snapshot(), self.snapshot(volume=self.volume(Encrypted=True))
        taken = self.image(Name="taken")
        theirs = self.snapshot(self.other)
        ebs = lambda **kw: [{"DeviceName": "/dev/sda1", "Ebs": kw}]
        reg = lambda **kw: {**dict(Name="x y z", Architecture="x86_64", VirtualizationType="hvm", RootDeviceName="/dev/sda1",
                                   BlockDeviceMappings=ebs(SnapshotId=s)), **kw}
        r = self.ec2.register_image
        self.check_codes([
            (r, reg(Name="taken"), "InvalidAMIName.Duplicate"),
            (r, reg(Name="bad|name"), "InvalidAMIName.Malformed"),
            (r, reg(BlockDeviceMappings=[]), "InvalidBlockDeviceMapping"),
            (r, reg(BlockDeviceMappings=ebs(VolumeSize=5)), "InvalidBlockDeviceMapping"),
            (r, reg(RootDeviceName="/dev/xvdb"), "InvalidBlockDeviceMapping"),
            (r, reg(BlockDeviceMappings=ebs(SnapshotId="snap-" + GONE)), "InvalidSnapshot.NotFound"),
            (r, reg(BlockDeviceMappings=ebs(SnapshotId=theirs)), "InvalidSnapshot.NotFound"),
            (r, reg(BlockDeviceMappings=ebs(SnapshotId=e, Encrypted=False)), "InvalidBlockDeviceMapping"),
            (r, reg(BlockDeviceMappings=ebs(SnapshotId=s, Encrypted=True)), "InvalidBlockDeviceMapping"),
            (r, reg(BlockDeviceMappings=ebs(SnapshotId=s, VolumeType="gp3", Iops=1)), "InvalidParameterValue"),
            (r, reg(BlockDeviceMappings=ebs(SnapshotId=s, VolumeSize=200, VolumeType="st1")), "InvalidBlockDeviceMapping"),
            (r, reg(BlockDeviceMappings=[{"DeviceName": "nonsense", "Ebs": {"VolumeSize": 1}}]), "InvalidBlockDeviceMapping"),
            (r, reg(VirtualizationType="paravirtual"), "InvalidParameterValue"),
            (r, reg(ImageLocation="bucket/manifest.xml"), "UnsupportedOperation"),
            (r, reg(KernelId="aki-1"), "UnsupportedOperation"),
            (r, reg(Architecture="i386"), "UnsupportedOperation"),
            (r, reg(TpmSupport="v2.0"), "InvalidParameterCombination"),
            (r, reg(TagSpecifications=tagged("volume", a="b")), "InvalidParameterValue"),
            (r, reg(TagSpecifications=tagged("snapshot", a="b")), "InvalidParameterValue"),
            (r, reg(DryRun=True), "DryRunOperation"),
        ])
        self.assertEqual(self.shown_image(taken)["Name"], "taken")
        pending = self.snapshot(wait=False, Description="hold")
        self.assertEqual(code_of(r, **reg(BlockDeviceMappings=ebs(SnapshotId=pending))), "IncorrectState")

    def test_one_name_at_once(self):
        s = self.snapshot()
        go = lambda: code_of(self.ec2.register_image, Name="race", Architecture="x86_64", VirtualizationType="hvm", RootDeviceName="/dev/sda1",
                             BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": s}}])
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            codes = [f.result() for f in [pool.submit(go) for _ in range(4)]]
        self.assertEqual(sorted(codes), ["InvalidAMIName.Duplicate"] * 3 + ["no error"])
        i = self.ec2.describe_images(Filters=[{"Name": "name", "Values": ["race"]}])["Images"][0]["ImageId"]
        self.drop_image(self.ec2, i)

    def test_register_while_its_snapshot_is_deleted(self):
        for k in range(6):
            s = self.snapshot()
            reg = dict(Name=f"race {k}", Architecture="x86_64", VirtualizationType="hvm", RootDeviceName="/dev/sda1",
                       BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"SnapshotId": s}}])
            with concurrent.futures.ThreadPoolExecutor(2) as pool:
                a = pool.submit(code_of, self.ec2.register_image, **reg)
                b = pool.submit(code_of, self.ec2.delete_snapshot, SnapshotId=s)
                codes = (a.result(), b.result())
            self.assertIn(codes, (("no error", "InvalidSnapshot.InUse"), ("InvalidSnapshot.NotFound", "no error")))
            for i in self.ec2.describe_images(Owners=["self"], Filters=[{"Name": "name", "Values": [reg["Name"]]}])["Images"]:
                self.drop_image(self.ec2, i["ImageId"])

    def test_deregister(self):
        s, shared = self.snapshot(), self.snapshot()
        bdm = [{"DeviceName": "/dev/xvda", "Ebs": {"SnapshotId": s}}, {"DeviceName": "/dev/sdf", "Ebs": {"SnapshotId": shared}}]
        i = self.image(BlockDeviceMappings=bdm, Name="goes")
        keeps = self.image(BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"SnapshotId": shared}}])
        run = self.running(ImageId=i)
        self.ec2.enable_image_deregistration_protection(ImageId=i)
        self.assertEqual(self.shown_image(i)["DeregistrationProtection"], "enabled-without-cooldown")
        self.assertEqual(code_of(self.ec2.deregister_image, ImageId=i), "OperationNotPermitted")
        self.assertEqual(self.ec2.disable_image_deregistration_protection(ImageId=i)["Return"], "disabled")
        out = self.ec2.deregister_image(ImageId=i, DeleteAssociatedSnapshots=True)
        self.assertTrue(out["Return"])
        self.assertEqual({r["SnapshotId"]: r["ReturnCode"] for r in out["DeleteSnapshotResults"]}, {s: "success", shared: "skipped"})
        self.assertEqual(code_of(self.ec2.describe_snapshots, SnapshotIds=[s]), "InvalidSnapshot.NotFound")
        self.shown_snapshot(shared)
        self.assertEqual(self.ec2.describe_images(Owners=["self"], Filters=[{"Name": "image-id", "Values": [i]}])["Images"], [])
        meta = self.ec2.describe_instance_image_metadata(InstanceIds=[run])["InstanceImageMetadata"][0]["ImageMetadata"]
        self.assertEqual((meta["ImageId"], meta["State"]), (i, "deregistered"))
        wait_for("forgotten", lambda: code_of(self.ec2.deregister_image, ImageId=i) == "InvalidAMIID.NotFound")
        self.drop_image(self.ec2, self.image(Name="goes"))
        # Without the word the snapshots stay.
        i = self.image()
        s = self.shown_image(i)["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]
        self.ec2.deregister_image(ImageId=i)
        self.shown_snapshot(s)
        self.ec2.delete_snapshot(SnapshotId=s)
        self.assertEqual(self.shown_image(keeps)["State"], "available")

    def test_copy(self):
        i = self.image(TagSpecifications=tagged("image", own="1", both="own"))
        c = self.ec2.copy_image(Name="a copy", SourceImageId=i, SourceRegion=REGION, Description="d", Encrypted=True, CopyImageTags=True,
                                ClientToken="copy-image", TagSpecifications=tagged("image", both="asked") + tagged("snapshot", s="t"))["ImageId"]
        self.addCleanup(self.drop_image, self.ec2, c)
        self.assertEqual(self.ec2.copy_image(Name="a copy", SourceImageId=i, SourceRegion=REGION, Description="d", Encrypted=True, CopyImageTags=True,
                                             ClientToken="copy-image", TagSpecifications=tagged("image", both="asked") + tagged("snapshot", s="t"))["ImageId"], c)
        self.ec2.get_waiter("image_available").wait(ImageIds=[c], WaiterConfig=WAIT)
        d, src = self.shown_image(c), self.shown_image(i)
        self.assertEqual((d["Name"], d["Description"], d["SourceImageId"], d["SourceImageRegion"], tags_of(d)),
                         ("a copy", "d", i, REGION, {"own": "1", "both": "asked"}))
        self.assertEqual((d["RootDeviceName"], d["Architecture"], d["EnaSupport"]), (src["RootDeviceName"], src["Architecture"], True))
        m = d["BlockDeviceMappings"][0]["Ebs"]
        self.assertNotEqual(m["SnapshotId"], src["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"])
        self.assertTrue(m["Encrypted"])
        s = self.shown_snapshot(m["SnapshotId"])
        self.assertEqual((s["VolumeId"], s["Encrypted"], tags_of(s)), ("vol-ffffffff", True, {"s": "t"}))
        self.assertIn(f"Copied for DestinationAmi {c} from SourceAmi {i}", s["Description"])
        self.ec2.deregister_image(ImageId=i, DeleteAssociatedSnapshots=True)
        self.assertEqual(self.shown_image(c)["State"], "available", "a copy needs nothing of its source")
        p = self.ec2.copy_image(Name="of a public one", SourceImageId=AMI, SourceRegion=REGION)["ImageId"]
        self.addCleanup(self.drop_image, self.ec2, p)
        self.ec2.get_waiter("image_available").wait(ImageIds=[p], WaiterConfig=WAIT)
        self.running(ImageId=p)
        self.assertNotIn("ImageOwnerAlias", self.shown_image(p))
        copy = lambda **kw: {**dict(Name="n n n", SourceImageId=c, SourceRegion=REGION), **kw}
        self.check_codes([
            (self.ec2.copy_image, copy(Name="a copy"), "InvalidAMIName.Duplicate"),
            (self.ec2.copy_image, copy(SourceRegion="mars-1"), "InvalidRequest"),
            (self.ec2.copy_image, copy(SourceImageId="ami-" + GONE), "InvalidAMIID.NotFound"),
            (self.ec2.copy_image, copy(SourceImageId="ami-x"), "InvalidAMIID.Malformed"),
            (self.ec2.copy_image, copy(KmsKeyId="alias/aws/ebs"), "InvalidParameterDependency"),
            (self.ec2.copy_image, copy(SnapshotCopyCompletionDurationMinutes=15), "UnsupportedOperation"),
            (self.ec2.copy_image, copy(DryRun=True), "DryRunOperation"),
            (self.other.copy_image, copy(), "InvalidAMIID.NotFound"),
        ])

    def test_permissions(self):
        i = self.image(TagSpecifications=tagged("image", secret="x"))
        s = self.shown_image(i)["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"]
        show = lambda: self.ec2.describe_image_attribute(ImageId=i, Attribute="launchPermission")["LaunchPermissions"]
        listed = lambda ec2, **kw: [x["ImageId"] for x in ec2.describe_images(**kw)["Images"]]
        self.assertEqual(show(), [])
        self.assertEqual(code_of(self.other.describe_images, ImageIds=[i]), "InvalidAMIID.NotFound")
        self.ec2.modify_image_attribute(ImageId=i, LaunchPermission={"Add": [{"UserId": self.other_account}]})
        self.ec2.modify_image_attribute(ImageId=i, Attribute="launchPermission", OperationType="add", UserIds=["111122223333"])
        self.assertEqual(show(), [{"UserId": self.other_account}, {"UserId": "111122223333"}])
        self.assertEqual(tags_of(self.shown_image(i, self.other)), {}, "tags are their owner's")
        self.assertIn(i, listed(self.other, ExecutableUsers=["self"]))
        self.assertIn(i, listed(self.other, Owners=[self.account]))
        self.assertIn(i, listed(self.ec2, ExecutableUsers=[self.other_account]))
        self.assertNotIn(i, listed(self.ec2, ExecutableUsers=["self"]))
        self.assertNotIn(i, listed(self.other, ExecutableUsers=["all"]))
        self.running(self.other, ImageId=i)
        self.assertEqual(code_of(self.other.copy_image, Name="mine now", SourceImageId=i, SourceRegion=REGION), "InvalidRequest")
        self.ec2.modify_snapshot_attribute(SnapshotId=s, CreateVolumePermission={"Add": [{"UserId": self.other_account}]})
        c = self.other.copy_image(Name="mine now", SourceImageId=i, SourceRegion=REGION)["ImageId"]
        self.addCleanup(self.drop_image, self.other, c)
        self.other.get_waiter("image_available").wait(ImageIds=[c], WaiterConfig=WAIT)
        self.check_codes([
            (self.other.deregister_image, dict(ImageId=i), "AuthFailure"),
            (self.other.modify_image_attribute, dict(ImageId=i, Description={"Value": "x"}), "AuthFailure"),
            (self.other.describe_image_attribute, dict(ImageId=i, Attribute="description"), "AuthFailure"),
            (self.other.disable_image, dict(ImageId=i), "AuthFailure"),
        ])
        self.other.cancel_image_launch_permission(ImageId=i)
        self.assertEqual(show(), [{"UserId": "111122223333"}])
        self.assertEqual(code_of(self.other.describe_images, ImageIds=[i]), "InvalidAMIID.NotFound")
        self.addCleanup(self.ec2.disable_image_block_public_access)
        self.assertEqual(self.ec2.get_image_block_public_access_state()["ImageBlockPublicAccessState"], "unblocked")
        self.ec2.enable_image_block_public_access(ImageBlockPublicAccessState="block-new-sharing")
        self.assertEqual(self.ec2.get_image_block_public_access_state()["ImageBlockPublicAccessState"], "block-new-sharing")
        self.assertEqual(code_of(self.ec2.modify_image_attribute, ImageId=i, LaunchPermission={"Add": [{"Group": "all"}]}), "OperationNotPermitted")
        self.ec2.disable_image_block_public_access()
        self.ec2.modify_image_attribute(ImageId=i, Attribute="launchPermission", OperationType="add", UserGroups=["all"])
        self.assertTrue(self.shown_image(i, self.other)["Public"])
        self.assertIn(i, listed(self.other, ExecutableUsers=["all"]))
        self.ec2.reset_image_attribute(ImageId=i, Attribute="launchPermission")
        self.assertEqual(show(), [])
        self.assertFalse(self.shown_image(i)["Public"])

    def test_attributes(self):
        i = self.image(Description="one")
        get = lambda a: self.ec2.describe_image_attribute(ImageId=i, Attribute=a)
        self.ec2.modify_image_attribute(ImageId=i, Description={"Value": "two"})
        self.assertEqual(get("description")["Description"]["Value"], "two")
        self.ec2.modify_image_attribute(ImageId=i, Attribute="description", Value="three")
        self.assertEqual(self.shown_image(i)["Description"], "three")
        self.ec2.modify_image_attribute(ImageId=i, Description={"Value": ""})
        self.assertNotIn("Description", self.shown_image(i))
        self.ec2.modify_image_attribute(ImageId=i, ImdsSupport={"Value": "v2.0"})
        self.assertEqual(get("imdsSupport")["ImdsSupport"]["Value"], "v2.0")
        self.assertNotIn("BootMode", get("bootMode"), "nobody said")
        self.assertNotIn("BootMode", self.shown_image(i))
        self.assertEqual(get("blockDeviceMapping")["BlockDeviceMappings"], self.shown_image(i)["BlockDeviceMappings"])
        e = self.image(BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"SnapshotId": self.snapshot(volume=self.volume(Encrypted=True))}}])
        m = self.ec2.modify_image_attribute
        self.check_codes([
            (m, dict(ImageId=i), "InvalidParameterCombination"),
            (m, dict(ImageId=i, Description={"Value": "x"}, ImdsSupport={"Value": "v2.0"}), "InvalidParameterCombination"),
            (m, dict(ImageId=i, Attribute="kernel", Value="x"), "InvalidParameterValue"),
            (m, dict(ImageId=i, ImdsSupport={"Value": "v1.0"}), "InvalidParameterValue"),
            (m, dict(ImageId=i, Description={"Value": "x" * 256}), "InvalidParameterValue"),
            (m, dict(ImageId=i, LaunchPermission={"Add": [{"UserId": "x"}]}), "InvalidUserID.Malformed"),
            (m, dict(ImageId=i, LaunchPermission={"Add": [{"OrganizationArn": "arn:aws:organizations::1:organization/o-1"}]}), "UnsupportedOperation"),
            (m, dict(ImageId=e, LaunchPermission={"Add": [{"UserId": self.other_account}]}), "InvalidParameter"),
            (m, dict(ImageId="ami-" + GONE, Description={"Value": "x"}), "InvalidAMIID.NotFound"),
            (m, dict(ImageId=AMI, Description={"Value": "x"}), "AuthFailure"),
            (m, dict(ImageId=i, Description={"Value": "x"}, DryRun=True), "DryRunOperation"),
            (self.ec2.enable_image_deregistration_protection, dict(ImageId=i, WithCooldown=True), "UnsupportedOperation"),
        ])

    def test_deprecation_and_disabling(self):
        i = self.image()
        self.ec2.modify_image_attribute(ImageId=i, LaunchPermission={"Add": [{"UserId": self.other_account}]})
        now = datetime.datetime.now(datetime.timezone.utc)
        at = (now + datetime.timedelta(days=30)).replace(second=0, microsecond=0)
        self.assertTrue(self.ec2.enable_image_deprecation(ImageId=i, DeprecateAt=at)["Return"])
        self.assertEqual(self.shown_image(i)["DeprecationTime"], at.strftime("%Y-%m-%dT%H:%M:00.000Z"))
        listed = lambda ec2, **kw: i in [x["ImageId"] for x in ec2.describe_images(**kw)["Images"]]
        self.assertTrue(listed(self.other))
        self.ec2.enable_image_deprecation(ImageId=i, DeprecateAt=now)
        if now.second < 30:
            self.assertFalse(listed(self.other))
        self.assertTrue(listed(self.other, IncludeDeprecated=True))
        self.assertTrue(listed(self.ec2))
        self.ec2.disable_image_deprecation(ImageId=i)
        self.assertNotIn("DeprecationTime", self.shown_image(i))
        self.assertTrue(self.ec2.disable_image(ImageId=i)["Return"])
        self.assertFalse(listed(self.ec2))
        self.assertTrue(listed(self.ec2, IncludeDisabled=True))
        self.assertFalse(listed(self.other, IncludeDisabled=True))
        self.assertEqual(self.shown_image(i, IncludeDisabled=True)["State"], "disabled")
        launch = dict(ImageId=i, InstanceType="t3.nano", MinCount=1, MaxCount=1)
        self.check_codes([
            (self.ec2.run_instances, launch, "InvalidAMIID.Unavailable"),
            (self.ec2.modify_image_attribute, dict(ImageId=i, LaunchPermission={"Add": [{"Group": "all"}]}), "OperationNotPermitted"),
            (self.ec2.enable_image_deprecation, dict(ImageId=i, DeprecateAt=now - datetime.timedelta(days=1)), "InvalidParameterValue"),
            (self.ec2.enable_image_deprecation, dict(ImageId=i, DeprecateAt=now + datetime.timedelta(days=4000)), "InvalidParameterValue"),
            (self.ec2.enable_image, dict(ImageId="ami-" + GONE), "InvalidAMIID.NotFound"),
        ])
        self.ec2.enable_image(ImageId=i)
        self.assertEqual(self.shown_image(i)["State"], "available")
        self.assertFalse(listed(self.other), "who lost it does not get it back")


class CreateImage(Base):
    def two_disks(self, **kw):
        return self.running(BlockDeviceMappings=[{"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 3, "VolumeType": "gp3", "DeleteOnTermination": False}}], **kw)

    def drop_data(self, i):
        v = self.disks(i)["/dev/sdf"]
        self.addCleanup(self.drop_volume, self.ec2, v)

    def test_without_reboot(self):
        i = self.two_disks()
        self.drop_data(i)
        d = self.disks(i)
        launched = self.instance(i)["LaunchTime"]
        img = self.ec2.create_image(InstanceId=i, Name="no reboot", Description="d", NoReboot=True, TagSpecifications=tagged("image", a="1") + tagged("snapshot", b="2"),
                                    BlockDeviceMappings=[{"DeviceName": "/dev/sdf", "Ebs": {"DeleteOnTermination": True}},
                                                         {"DeviceName": "/dev/sdg", "Ebs": {"VolumeSize": 7, "VolumeType": "gp3"}},
                                                         {"DeviceName": "/dev/sdb", "VirtualName": "ephemeral0"}])["ImageId"]
        self.addCleanup(self.drop_image, self.ec2, img)
        self.assertEqual((self.instance(i)["State"]["Name"], self.instance(i)["LaunchTime"]), ("running", launched))
        snaps = self.ec2.describe_snapshots(Filters=[{"Name": "tag:b", "Values": ["2"]}])["Snapshots"]
        self.assertEqual({s["VolumeId"] for s in snaps}, set(d.values()))
        self.assertEqual({s["Description"] for s in snaps}, {f"Created by CreateImage({i}) for {img}"})
        self.ec2.get_waiter("image_available").wait(ImageIds=[img], WaiterConfig=WAIT)
        x = self.shown_image(img)
        self.assertEqual((x["Name"], x["Description"], x["SourceInstanceId"], x["RootDeviceName"], x["Architecture"], x["Public"], tags_of(x)),
                         ("no reboot", "d", i, "/dev/sda1", "x86_64", False, {"a": "1"}))
        m = {b["DeviceName"]: b.get("Ebs") for b in x["BlockDeviceMappings"]}
        self.assertEqual(set(m), {"/dev/sda1", "/dev/sdf", "/dev/sdg", "/dev/sdb"})
        self.assertEqual((m["/dev/sda1"]["VolumeSize"], m["/dev/sda1"]["DeleteOnTermination"]), (2, True))
        self.assertEqual((m["/dev/sdf"]["VolumeSize"], m["/dev/sdf"]["DeleteOnTermination"], m["/dev/sdf"]["Iops"]), (3, True, 3000))
        self.assertNotIn("SnapshotId", m["/dev/sdg"])
        by_volume = {s["VolumeId"]: s["SnapshotId"] for s in snaps}
        self.assertEqual((m["/dev/sda1"]["SnapshotId"], m["/dev/sdf"]["SnapshotId"]), (by_volume[d["/dev/sda1"]], by_volume[d["/dev/sdf"]]))
        clone = self.running(ImageId=img)
        self.assertEqual({n: self.shown_volume(v)["Size"] for n, v in self.disks(clone).items()}, {"/dev/sda1": 2, "/dev/sdf": 3, "/dev/sdg": 7})

    def test_with_reboot(self):
        """The guest goes down, its disks are taken, it comes up; users see it run, and it keeps its address."""
        i = self.two_disks()
        self.drop_data(i)
        before = self.instance(i)
        img = self.ec2.create_image(InstanceId=i, Name="reboot", TagSpecifications=tagged("snapshot", r="1"))["ImageId"]
        self.addCleanup(self.drop_image, self.ec2, img)
        self.assertEqual(self.shown_image(img)["State"], "pending")
        seen = set()

        def done():
            seen.add(self.instance(i)["State"]["Name"])
            return self.shown_image(img)["State"] == "available" and self.instance(i)["State"]["Name"] == "running" and not cloud.spx_json(
                "admin", "state", "get", f"spec/instance/{self.account}/{i}")["value"].get("imaging")
        wait_for("made", done)
        self.assertEqual(seen, {"running"}, "a reboot, for users")
        after = self.instance(i)
        self.assertEqual((after.get("PublicIpAddress"), after["PrivateIpAddress"]), (before.get("PublicIpAddress"), before["PrivateIpAddress"]))
        snaps = self.ec2.describe_snapshots(Filters=[{"Name": "tag:r", "Values": ["1"]}])["Snapshots"]
        self.assertEqual({s["VolumeId"] for s in snaps}, set(self.disks(i).values()))
        status = cloud.spx_json("admin", "state", "get", f"status/instance/{self.account}/{i}")["value"]
        self.assertGreaterEqual(status["generation"], 3, "it was stopped and started")

    def test_of_a_stopped_instance(self):
        i = self.running()
        self.ec2.stop_instances(InstanceIds=[i])
        self.ec2.get_waiter("instance_stopped").wait(InstanceIds=[i], WaiterConfig=WAIT)
        img = self.ec2.create_image(InstanceId=i, Name="of a stopped one")["ImageId"]
        self.addCleanup(self.drop_image, self.ec2, img)
        self.ec2.get_waiter("image_available").wait(ImageIds=[img], WaiterConfig=WAIT)
        self.assertEqual(self.instance(i)["State"]["Name"], "stopped")

    def test_terminated_on_the_way(self):
        i = self.running()
        cloud.kill9("fakehost")
        try:
            img = self.ec2.create_image(InstanceId=i, Name="lost", TagSpecifications=tagged("snapshot", lost="1"))["ImageId"]
            self.addCleanup(self.drop_image, self.ec2, img)
            self.assertEqual(code_of(self.ec2.create_image, InstanceId=i, Name="second"), "IncorrectInstanceState")
            self.ec2.terminate_instances(InstanceIds=[i])
            wait_for("failed", lambda: self.shown_image(img)["State"] == "failed")
        finally:
            cloud.start("fakehost")
        self.assertTrue(self.shown_image(img)["StateReason"]["Message"])
        self.assertEqual(self.ec2.describe_tags(Filters=[{"Name": "key", "Values": ["lost"]}])["Tags"], [])
        self.assertEqual(code_of(self.ec2.run_instances, ImageId=img, InstanceType="t3.nano", MinCount=1, MaxCount=1), "InvalidAMIID.Unavailable")

    def test_stopped_on_the_way_stays_stopped(self):
        i = self.running()
        cloud.kill9("fakehost")
        try:
            img = self.ec2.create_image(InstanceId=i, Name="stopped on the way")["ImageId"]
            self.addCleanup(self.drop_image, self.ec2, img)
            self.assertEqual(self.instance(i)["State"]["Name"], "running")
            self.ec2.stop_instances(InstanceIds=[i])
        finally:
            cloud.start("fakehost")
        self.ec2.get_waiter("image_available").wait(ImageIds=[img], WaiterConfig=WAIT)
        self.ec2.get_waiter("instance_stopped").wait(InstanceIds=[i], WaiterConfig=WAIT)

    def test_gateway_killed_on_the_way(self):
        i = self.running()
        img = self.ec2.create_image(InstanceId=i, Name="killed on the way")["ImageId"]
        self.addCleanup(self.drop_image, self.ec2, img)
        cloud.kill9("awsgw")
        cloud.start("awsgw")
        wait_for("answers", lambda: code_of(self.ec2.describe_vpcs) == "no error")
        self.ec2.get_waiter("image_available").wait(ImageIds=[img], WaiterConfig=WAIT)
        wait_for("runs again", lambda: not cloud.spx_json("admin", "state", "get", f"spec/instance/{self.account}/{i}")["value"].get("imaging"))
        self.ec2.get_waiter("instance_running").wait(InstanceIds=[i], WaiterConfig=WAIT)

    def test_errors(self):
        i = self.two_disks()
        self.drop_data(i)
        self.image(Name="is there")
        make = lambda **kw: {**dict(InstanceId=i, Name="some name", NoReboot=True), **kw}
        dev = lambda name, **kw: make(BlockDeviceMappings=[{"DeviceName": name, **kw}])
        c = self.ec2.create_image
        self.check_codes([
            (c, make(Name="is there"), "InvalidAMIName.Duplicate"),
            (c, make(Name="is*"), "InvalidAMIName.Malformed"),
            (c, make(InstanceId="i-" + GONE), "InvalidInstanceID.NotFound"),
            (c, make(SnapshotLocation="local"), "InvalidParameterValue"),
            (c, make(TagSpecifications=tagged("instance", a="b")), "InvalidParameterValue"),
            (c, dev("/dev/sda1", NoDevice=""), "InvalidBlockDeviceMapping"),
            (c, dev("/dev/sdf", Ebs={"VolumeSize": 4}), "InvalidBlockDeviceMapping"),
            (c, dev("/dev/sdf", Ebs={"Encrypted": True}), "InvalidBlockDeviceMapping"),
            (c, dev("/dev/sdf", VirtualName="ephemeral0"), "InvalidBlockDeviceMapping"),
            (c, dev("/dev/sdg", Ebs={"VolumeType": "gp3"}), "MissingParameter"),
            (c, dev("/dev/sdg", Ebs={"SnapshotId": "snap-" + GONE}), "InvalidSnapshot.NotFound"),
            (c, make(DryRun=True), "DryRunOperation"),
            (self.other.create_image, make(), "InvalidInstanceID.NotFound"),
        ])
        img = c(**dev("/dev/sdf", NoDevice=""))["ImageId"]
        self.addCleanup(self.drop_image, self.ec2, img)
        self.assertEqual([b["DeviceName"] for b in self.shown_image(img)["BlockDeviceMappings"]], ["/dev/sda1"])
        self.ec2.terminate_instances(InstanceIds=[i])
        self.assertEqual(code_of(c, **make(Name="too late")), "IncorrectInstanceState")


class ZBooks(ebs.Books):
    """Runs last, by its name."""


if __name__ == "__main__":
    unittest.main(verbosity=1)
