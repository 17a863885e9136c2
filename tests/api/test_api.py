"""The EC2 and STS API of the real gateway and store against boto3 and the AWS CLI; a fake host reports what a working host would.

Right values come from the EC2 API reference. Real guests are in tests/e2e.
"""
import base64
import concurrent.futures
import json
import os
import re
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from cloud import api_cloud, REGION, wait_for  # noqa: E402

import botocore  # noqa: E402
from botocore.exceptions import ClientError  # noqa: E402

AMI = "ami-00000000000000001"
AZ = REGION + "a"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGRo1ONz0d9C4lXc3MbpEFpVgqGk4v8h2zqTcVdQ8kFZ me@example"

cloud = None


def setUpModule():
    global cloud
    cloud = api_cloud()


def tearDownModule():
    cloud.close()


def code_of(call, **kw):
    try:
        call(**kw)
    except ClientError as e:
        return e.response["Error"]["Code"]
    return "no error"


class Base(unittest.TestCase):
    def setUp(self):
        self.ec2 = cloud.client("ec2")

    def launch(self, ec2=None, **kw):
        ec2 = ec2 or self.ec2
        args = dict(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1)
        args.update(kw)
        ids = [i["InstanceId"] for i in ec2.run_instances(**args)["Instances"]]
        self.addCleanup(self.end, ec2, ids)
        return ids

    @staticmethod
    def end(ec2, ids):
        for i in ids:
            try:
                ec2.terminate_instances(InstanceIds=[i])
            except ClientError:
                pass
        ec2.get_waiter("instance_terminated").wait(InstanceIds=ids, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        wait_for("released", lambda: not ec2.describe_network_interfaces(
            Filters=[{"Name": "attachment.instance-id", "Values": ids}])["NetworkInterfaces"])

    def running(self, **kw):
        ids = self.launch(**kw)
        self.ec2.get_waiter("instance_running").wait(InstanceIds=ids, WaiterConfig={"Delay": 1, "MaxAttempts": 60})
        return ids[0]

    def describe(self, iid):
        return self.ec2.describe_instances(InstanceIds=[iid])["Reservations"][0]["Instances"][0]


class Identity(Base):
    def test_caller_identity(self):
        key, _, account = cloud.account("one")
        me = cloud.client("sts").get_caller_identity()
        self.assertEqual(me["Account"], account)
        self.assertRegex(account, r"^\d{12}$")
        self.assertEqual(me["Arn"], f"arn:aws:iam::{account}:user/admin")
        self.assertRegex(me["UserId"], r"^AIDA[A-Z2-7]{17}$")

    def test_aws_cli(self):
        out = json.loads(cloud.aws("sts", "get-caller-identity").stdout)
        self.assertEqual(out["Account"], cloud.account("one")[2])
        out = cloud.aws("ec2", "describe-instance-types", "--query", "InstanceTypes[].InstanceType", "--output", "text").stdout
        self.assertIn("t3.micro", out.split())

    def test_bad_credentials(self):
        bad = cloud.client("ec2")
        bad._request_signer._credentials.secret_key = "x" * 40
        self.assertEqual(code_of(bad.describe_vpcs), "AuthFailure")
        cloud.keys["nobody"] = ("AKIAABCDEFGHIJKLMNOP", "y" * 40, "0")
        self.assertEqual(code_of(cloud.client("ec2", "nobody").describe_vpcs), "AuthFailure")
        self.assertEqual(code_of(cloud.client("sts", "nobody").get_caller_identity), "InvalidClientTokenId")

    def test_accounts_see_nothing_of_each_other(self):
        other = cloud.client("ec2", "two")
        iid = self.running()
        vol = self.ec2.create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
        self.addCleanup(self.ec2.delete_volume, VolumeId=vol)
        sg = self.ec2.create_security_group(GroupName="mine", Description="d")["GroupId"]
        self.addCleanup(self.ec2.delete_security_group, GroupId=sg)
        vpc = self.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        eni = self.describe(iid)["NetworkInterfaces"][0]["NetworkInterfaceId"]
        subnet = self.describe(iid)["SubnetId"]
        cases = [
            (other.describe_instances, dict(InstanceIds=[iid]), "InvalidInstanceID.NotFound"),
            (other.terminate_instances, dict(InstanceIds=[iid]), "InvalidInstanceID.NotFound"),
            (other.stop_instances, dict(InstanceIds=[iid]), "InvalidInstanceID.NotFound"),
            (other.get_console_output, dict(InstanceId=iid), "InvalidInstanceID.NotFound"),
            (other.describe_volumes, dict(VolumeIds=[vol]), "InvalidVolume.NotFound"),
            (other.delete_volume, dict(VolumeId=vol), "InvalidVolume.NotFound"),
            (other.attach_volume, dict(VolumeId=vol, InstanceId=iid, Device="/dev/sdf"), "InvalidVolume.NotFound"),
            (other.describe_security_groups, dict(GroupIds=[sg]), "InvalidGroup.NotFound"),
            (other.delete_security_group, dict(GroupId=sg), "InvalidGroup.NotFound"),
            (other.describe_vpcs, dict(VpcIds=[vpc]), "InvalidVpcID.NotFound"),
            (other.describe_network_interfaces, dict(NetworkInterfaceIds=[eni]), "InvalidNetworkInterfaceID.NotFound"),
            (other.create_tags, dict(Resources=[iid], Tags=[{"Key": "a", "Value": "b"}]), "InvalidInstanceID.NotFound"),
            (other.run_instances, dict(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1, SubnetId=subnet),
             "InvalidSubnetID.NotFound"),
            (other.run_instances, dict(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1, SecurityGroupIds=[sg]),
             "InvalidGroup.NotFound"),
        ]
        for call, kw, want in cases:
            with self.subTest(call=call.__name__, kw=kw):
                self.assertEqual(code_of(call, **kw), want)
        self.assertEqual(other.describe_instances()["Reservations"], [])
        self.assertEqual(other.describe_volumes()["Volumes"], [])
        self.assertNotEqual(other.describe_vpcs()["Vpcs"][0]["VpcId"], vpc)
        self.assertEqual(other.describe_vpcs()["Vpcs"][0]["CidrBlock"], "172.31.0.0/16")


class Discovery(Base):
    def test_regions_and_zones(self):
        self.assertEqual([r["RegionName"] for r in self.ec2.describe_regions()["Regions"]], [REGION])
        z = self.ec2.describe_availability_zones()["AvailabilityZones"]
        self.assertEqual([(x["ZoneName"], x["ZoneId"], x["State"]) for x in z], [(AZ, "apse2-az1", "available")])
        self.assertEqual(code_of(self.ec2.describe_regions, RegionNames=["mars-1"]), "InvalidParameterValue")
        attrs = {a["AttributeName"]: a["AttributeValues"][0]["AttributeValue"] for a in
                 self.ec2.describe_account_attributes()["AccountAttributes"]}
        self.assertEqual(attrs["supported-platforms"], "VPC")
        self.assertEqual(attrs["default-vpc"], self.ec2.describe_vpcs()["Vpcs"][0]["VpcId"])

    def test_instance_types(self):
        t = self.ec2.describe_instance_types(InstanceTypes=["t3.micro"])["InstanceTypes"][0]
        self.assertEqual((t["VCpuInfo"]["DefaultVCpus"], t["MemoryInfo"]["SizeInMiB"]), (2, 1024))
        self.assertTrue(t["BurstablePerformanceSupported"])
        self.assertEqual(code_of(self.ec2.describe_instance_types, InstanceTypes=["t9.huge"]), "InvalidInstanceType")
        pages = list(self.ec2.get_paginator("describe_instance_types").paginate(PaginationConfig={"PageSize": 5}))
        self.assertGreater(len(pages), 1)
        names = [x["InstanceType"] for p in pages for x in p["InstanceTypes"]]
        self.assertEqual(len(names), len(set(names)))
        offers = self.ec2.describe_instance_type_offerings(LocationType="availability-zone",
                                                          Filters=[{"Name": "instance-type", "Values": ["t3.*"]}])["InstanceTypeOfferings"]
        self.assertEqual({o["Location"] for o in offers}, {AZ})
        self.assertEqual({o["InstanceType"] for o in offers}, {"t3.nano", "t3.micro", "t3.small"})

    def test_default_network(self):
        vpc = self.ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"][0]
        self.assertEqual(vpc["CidrBlockAssociationSet"][0]["CidrBlockState"]["State"], "associated")
        subnet = self.ec2.describe_subnets(Filters=[{"Name": "vpc-id", "Values": [vpc["VpcId"]]}])["Subnets"][0]
        self.assertEqual(subnet["CidrBlock"], "172.31.0.0/20")
        self.assertTrue(subnet["MapPublicIpOnLaunch"] and subnet["DefaultForAz"])
        self.assertLessEqual(subnet["AvailableIpAddressCount"], 4091)
        for a, want in (("enableDnsSupport", True), ("enableDnsHostnames", True), ("enableNetworkAddressUsageMetrics", False)):
            got = self.ec2.describe_vpc_attribute(VpcId=vpc["VpcId"], Attribute=a)
            self.assertEqual(got[a[0].upper() + a[1:]]["Value"], want)
        rtb = self.ec2.describe_route_tables(Filters=[{"Name": "association.main", "Values": ["true"]}])["RouteTables"][0]
        self.assertEqual([r["DestinationCidrBlock"] for r in rtb["Routes"]], ["172.31.0.0/16", "0.0.0.0/0"])
        igw = self.ec2.describe_internet_gateways(Filters=[{"Name": "attachment.vpc-id", "Values": [vpc["VpcId"]]}])["InternetGateways"][0]
        self.assertEqual(rtb["Routes"][1]["GatewayId"], igw["InternetGatewayId"])
        acl = self.ec2.describe_network_acls()["NetworkAcls"][0]
        self.assertTrue(acl["IsDefault"])
        self.assertEqual(len(acl["Entries"]), 4)
        sg = self.ec2.describe_security_groups(GroupNames=["default"])["SecurityGroups"][0]
        self.assertEqual(sg["IpPermissions"][0]["UserIdGroupPairs"][0]["GroupId"], sg["GroupId"])
        self.assertEqual(sg["IpPermissionsEgress"][0]["IpRanges"], [{"CidrIp": "0.0.0.0/0"}])
        self.assertEqual(self.ec2.describe_addresses()["Addresses"], [])
        self.assertEqual(self.ec2.describe_addresses_attribute(Attribute="domain-name")["Addresses"], [])

    def test_images(self):
        img = self.ec2.describe_images(Filters=[{"Name": "name", "Values": ["mini"]}])["Images"][0]
        self.assertEqual((img["ImageId"], img["State"], img["RootDeviceType"]), (AMI, "available", "ebs"))
        self.assertTrue(img["BlockDeviceMappings"][0]["Ebs"]["SnapshotId"].startswith("snap-"))
        self.assertEqual(self.ec2.describe_images(Owners=["self"])["Images"], [])
        self.assertEqual(len(self.ec2.describe_images(Owners=["spinifex"])["Images"]), 1)
        self.assertEqual(code_of(self.ec2.deregister_image, ImageId=AMI), "AuthFailure")


class KeyPairs(Base):
    def test_life(self):
        made = self.ec2.create_key_pair(KeyName="made/by us", KeyType="ed25519", TagSpecifications=[
            {"ResourceType": "key-pair", "Tags": [{"Key": "who", "Value": "me"}]}])
        self.assertTrue(made["KeyMaterial"].startswith("-----BEGIN OPENSSH PRIVATE KEY-----"))
        rsa = self.ec2.create_key_pair(KeyName="rsa")
        self.assertTrue(rsa["KeyMaterial"].startswith("-----BEGIN RSA PRIVATE KEY-----"))
        self.assertRegex(rsa["KeyFingerprint"], r"^([0-9a-f]{2}:){19}[0-9a-f]{2}$")
        ppk = self.ec2.create_key_pair(KeyName="putty", KeyType="ed25519", KeyFormat="ppk")
        self.assertTrue(ppk["KeyMaterial"].startswith("PuTTY-User-Key-File-"))
        self.ec2.delete_key_pair(KeyName="putty")
        imported = self.ec2.import_key_pair(KeyName="imported", PublicKeyMaterial=KEY.encode())
        names = [k["KeyName"] for k in self.ec2.describe_key_pairs()["KeyPairs"]]
        self.assertEqual(sorted(names), ["imported", "made/by us", "rsa"])
        got = self.ec2.describe_key_pairs(Filters=[{"Name": "tag:who", "Values": ["m*"]}], IncludePublicKey=True)["KeyPairs"]
        self.assertEqual([k["KeyPairId"] for k in got], [made["KeyPairId"]])
        self.assertTrue(got[0]["PublicKey"].startswith("ssh-ed25519 "))
        self.assertEqual(code_of(self.ec2.import_key_pair, KeyName="imported", PublicKeyMaterial=KEY.encode()), "InvalidKeyPair.Duplicate")
        self.assertEqual(code_of(self.ec2.import_key_pair, KeyName="x", PublicKeyMaterial=b"ssh-rsa nonsense"), "InvalidKey.Format")
        self.ec2.delete_key_pair(KeyPairId=imported["KeyPairId"])
        for n in ("made/by us", "rsa", "never was"):
            self.ec2.delete_key_pair(KeyName=n)
        self.assertEqual(self.ec2.describe_key_pairs()["KeyPairs"], [])
        self.assertEqual(code_of(self.ec2.describe_key_pairs, KeyNames=["rsa"]), "InvalidKeyPair.NotFound")


class Instances(Base):
    def test_life(self):
        self.ec2.import_key_pair(KeyName="life", PublicKeyMaterial=KEY.encode())
        self.addCleanup(self.ec2.delete_key_pair, KeyName="life")
        r = self.ec2.run_instances(
            ImageId=AMI, InstanceType="t3.micro", MinCount=1, MaxCount=1, KeyName="life", UserData="#!/bin/sh\necho hi\n",
            TagSpecifications=[{"ResourceType": t, "Tags": [{"Key": "Name", "Value": "web"}]} for t in
                               ("instance", "volume", "network-interface")],
            BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 5}},
                                 {"DeviceName": "/dev/sdf", "Ebs": {"VolumeSize": 1, "DeleteOnTermination": False}}],
            MetadataOptions={"HttpTokens": "optional"}, Monitoring={"Enabled": True})
        i = r["Instances"][0]
        iid = i["InstanceId"]
        self.addCleanup(self.end, self.ec2, [iid])
        self.assertEqual(i["State"], {"Code": 0, "Name": "pending"})
        self.assertRegex(iid, r"^i-[0-9a-f]{17}$")
        self.assertRegex(r["ReservationId"], r"^r-[0-9a-f]{17}$")
        self.ec2.get_waiter("instance_running").wait(InstanceIds=[iid], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        self.ec2.get_waiter("instance_status_ok").wait(InstanceIds=[iid], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        i = self.describe(iid)
        self.assertEqual(i["KeyName"], "life")
        self.assertEqual(i["Monitoring"]["State"], "enabled")
        self.assertEqual(i["MetadataOptions"]["HttpTokens"], "optional")
        self.assertTrue(i["PrivateIpAddress"].startswith("172.31."))
        self.assertIn("PublicIpAddress", i)
        self.assertEqual(i["Tags"], [{"Key": "Name", "Value": "web"}])
        self.assertEqual([m["DeviceName"] for m in i["BlockDeviceMappings"]], ["/dev/sda1", "/dev/sdf"])
        self.assertEqual({m["Ebs"]["Status"] for m in i["BlockDeviceMappings"]}, {"attached"})
        keep = i["BlockDeviceMappings"][1]["Ebs"]["VolumeId"]
        root = i["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
        ip, pub = i["PrivateIpAddress"], i["PublicIpAddress"]

        st = self.ec2.stop_instances(InstanceIds=[iid])["StoppingInstances"][0]
        self.assertEqual((st["PreviousState"]["Name"], st["CurrentState"]["Name"]), ("running", "stopping"))
        self.ec2.get_waiter("instance_stopped").wait(InstanceIds=[iid], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        wait_for("public address given back", lambda: "PublicIpAddress" not in self.describe(iid))
        self.assertEqual(self.describe(iid)["StateReason"]["Code"], "Client.UserInitiatedShutdown")
        st = self.ec2.start_instances(InstanceIds=[iid])["StartingInstances"][0]
        self.assertEqual((st["PreviousState"]["Name"], st["CurrentState"]["Name"]), ("stopped", "pending"))
        self.ec2.get_waiter("instance_running").wait(InstanceIds=[iid], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        self.assertEqual(self.describe(iid)["PrivateIpAddress"], ip)
        self.assertIn("PublicIpAddress", self.describe(iid))
        self.ec2.reboot_instances(InstanceIds=[iid])
        self.assertEqual(self.describe(iid)["State"]["Name"], "running")
        self.assertIn("hello from the guest", self.ec2.get_console_output(InstanceId=iid)["Output"])

        st = self.ec2.terminate_instances(InstanceIds=[iid])["TerminatingInstances"][0]
        self.assertEqual(st["CurrentState"]["Name"], "shutting-down")
        self.ec2.get_waiter("instance_terminated").wait(InstanceIds=[iid], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        wait_for("root volume gone", lambda: code_of(self.ec2.describe_volumes, VolumeIds=[root]) == "InvalidVolume.NotFound")
        wait_for("other volume free", lambda: self.ec2.describe_volumes(VolumeIds=[keep])["Volumes"][0]["State"] == "available")
        self.ec2.delete_volume(VolumeId=keep)
        self.ec2.get_waiter("volume_deleted").wait(VolumeIds=[keep], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        i = self.describe(iid)
        self.assertEqual(i["State"]["Name"], "terminated")
        self.assertNotIn("PrivateIpAddress", i)
        del pub

    def test_client_token_under_concurrency_makes_one(self):
        def go(_):
            return self.ec2.run_instances(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1, ClientToken="one-token")
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            ids = {r["Instances"][0]["InstanceId"] for r in pool.map(go, range(32))}
        self.addCleanup(self.end, self.ec2, list(ids))
        self.assertEqual(len(ids), 1)
        self.assertEqual(code_of(self.ec2.run_instances, ImageId=AMI, InstanceType="t3.micro", MinCount=1, MaxCount=1,
                                 ClientToken="one-token"), "IdempotentParameterMismatch")

    def test_concurrent_launches_share_no_address(self):
        def go(_):
            return self.ec2.run_instances(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1)["Instances"][0]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            made = list(pool.map(go, range(12)))
        ids = [i["InstanceId"] for i in made]
        self.addCleanup(self.end, self.ec2, ids)
        shown = [self.describe(i) for i in ids]
        self.assertEqual(len({i["PrivateIpAddress"] for i in shown}), 12)
        self.assertEqual(len({i["PublicIpAddress"] for i in shown}), 12)
        pages = list(self.ec2.get_paginator("describe_instances").paginate(PaginationConfig={"PageSize": 5}, Filters=[
            {"Name": "instance-id", "Values": ids}]))
        self.assertEqual(sorted(i["InstanceId"] for p in pages for r in p["Reservations"] for i in r["Instances"]), sorted(ids))
        self.assertGreaterEqual(len(pages), 3)

    def test_capacity(self):
        before = self.ec2.describe_instances()["Reservations"]
        self.assertEqual(code_of(self.ec2.run_instances, ImageId=AMI, InstanceType="m6i.large", MinCount=3, MaxCount=3),
                         "InsufficientInstanceCapacity")
        ids = self.launch(InstanceType="m6i.large", MinCount=1, MaxCount=5)
        self.assertLess(len(ids), 3)  # as many as fit
        self.assertEqual(code_of(self.ec2.run_instances, ImageId=AMI, InstanceType="m6i.large", MinCount=1, MaxCount=1),
                         "InsufficientInstanceCapacity")
        self.end(self.ec2, ids)
        ids = self.launch(InstanceType="m6i.large")
        self.assertEqual(len(ids), 1)
        self.assertLessEqual(len(before), len(self.ec2.describe_instances()["Reservations"]))

    def test_a_failed_launch_leaves_nothing(self):
        def left():
            return (len(self.ec2.describe_volumes()["Volumes"]), len(self.ec2.describe_network_interfaces()["NetworkInterfaces"]),
                    self.ec2.describe_subnets()["Subnets"][0]["AvailableIpAddressCount"])
        before = left()
        code_of(self.ec2.run_instances, ImageId=AMI, InstanceType="m6i.large", MinCount=9, MaxCount=9)
        self.assertEqual(left(), before)

    def test_dry_run(self):
        with self.assertRaises(ClientError) as c:
            self.ec2.run_instances(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1, DryRun=True)
        self.assertEqual(c.exception.response["Error"]["Code"], "DryRunOperation")
        self.assertEqual(c.exception.response["ResponseMetadata"]["HTTPStatusCode"], 412)
        self.assertEqual(code_of(self.ec2.run_instances, ImageId="ami-0000000000000dead", InstanceType="t3.nano", MinCount=1, MaxCount=1,
                                 DryRun=True), "InvalidAMIID.NotFound")

    def test_attributes(self):
        iid = self.running(UserData="first")
        for name in ("instanceType", "kernel", "ramdisk", "userData", "disableApiTermination", "instanceInitiatedShutdownBehavior",
                     "rootDeviceName", "blockDeviceMapping", "productCodes", "sourceDestCheck", "groupSet", "ebsOptimized",
                     "sriovNetSupport", "enaSupport", "enclaveOptions", "disableApiStop"):
            with self.subTest(attribute=name):
                got = self.ec2.describe_instance_attribute(InstanceId=iid, Attribute=name)
                self.assertEqual(got["InstanceId"], iid)
        got = self.ec2.describe_instance_attribute(InstanceId=iid, Attribute="userData")["UserData"]["Value"]
        self.assertEqual(base64.b64decode(got), b"first")
        self.ec2.modify_instance_attribute(InstanceId=iid, DisableApiTermination={"Value": True})
        self.assertEqual(code_of(self.ec2.terminate_instances, InstanceIds=[iid]), "OperationNotPermitted")
        self.ec2.modify_instance_attribute(InstanceId=iid, DisableApiTermination={"Value": False})
        self.assertEqual(code_of(self.ec2.modify_instance_attribute, InstanceId=iid, InstanceType={"Value": "t3.small"}),
                         "IncorrectInstanceState")
        m = self.ec2.modify_instance_metadata_options(InstanceId=iid, HttpTokens="optional", HttpPutResponseHopLimit=3)
        self.assertEqual(m["InstanceMetadataOptions"]["HttpPutResponseHopLimit"], 3)
        self.assertEqual(self.describe(iid)["MetadataOptions"]["HttpTokens"], "optional")
        sg = self.ec2.create_security_group(GroupName="attr", Description="d")["GroupId"]
        self.ec2.modify_instance_attribute(InstanceId=iid, Groups=[sg])
        self.assertEqual([g["GroupId"] for g in self.describe(iid)["SecurityGroups"]], [sg])
        self.assertEqual(code_of(self.ec2.delete_security_group, GroupId=sg), "DependencyViolation")
        self.end(self.ec2, [iid])
        self.ec2.delete_security_group(GroupId=sg)

    def test_status_filters_and_credits(self):
        iid = self.running()
        s = self.ec2.describe_instance_status(InstanceIds=[iid])["InstanceStatuses"][0]
        self.assertEqual((s["SystemStatus"]["Status"], s["InstanceStatus"]["Details"][0]["Status"]), ("ok", "passed"))
        c = self.ec2.describe_instance_credit_specifications(InstanceIds=[iid])["InstanceCreditSpecifications"]
        self.assertEqual(c, [{"InstanceId": iid, "CpuCredits": "unlimited"}])

        def found(*filters):
            r = self.ec2.describe_instances(Filters=[{"Name": n, "Values": v} for n, v in filters])["Reservations"]
            return [i["InstanceId"] for x in r for i in x["Instances"]]
        self.assertIn(iid, found(("instance-state-name", ["running"])))
        self.assertIn(iid, found(("instance-type", ["t3.n?no", "x"]), ("vpc-id", ["vpc-*"])))
        self.assertEqual(found(("instance-type", ["t3.nano"]), ("image-id", ["ami-nothing"])), [])
        self.ec2.create_tags(Resources=[iid], Tags=[{"Key": "tier", "Value": "a*b"}])
        self.assertEqual(found(("tag:tier", ["a\\*b"])), [iid])
        self.assertEqual(found(("tag-key", ["tier"])), [iid])
        self.assertEqual(self.ec2.unmonitor_instances(InstanceIds=[iid])["InstanceMonitorings"][0]["Monitoring"]["State"], "disabled")


class Volumes(Base):
    def test_life(self):
        iid = self.running()
        v = self.ec2.create_volume(AvailabilityZone=AZ, Size=1, VolumeType="gp3", TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": "k", "Value": "v"}]}], ClientToken="vol-token")
        vol = v["VolumeId"]
        self.assertEqual((v["Size"], v["Iops"], v["Throughput"], v["VolumeType"]), (1, 3000, 125, "gp3"))
        again = self.ec2.create_volume(AvailabilityZone=AZ, Size=1, VolumeType="gp3", TagSpecifications=[
            {"ResourceType": "volume", "Tags": [{"Key": "k", "Value": "v"}]}], ClientToken="vol-token")
        self.assertEqual(again["VolumeId"], vol)
        self.ec2.get_waiter("volume_available").wait(VolumeIds=[vol], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        a = self.ec2.attach_volume(VolumeId=vol, InstanceId=iid, Device="/dev/sdf")
        self.assertEqual(a["State"], "attaching")
        self.ec2.get_waiter("volume_in_use").wait(VolumeIds=[vol], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        self.assertEqual(code_of(self.ec2.attach_volume, VolumeId=vol, InstanceId=iid, Device="/dev/sdg"), "VolumeInUse")
        self.assertEqual(code_of(self.ec2.delete_volume, VolumeId=vol), "VolumeInUse")
        other = self.ec2.create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
        self.ec2.get_waiter("volume_available").wait(VolumeIds=[other], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        self.assertEqual(code_of(self.ec2.attach_volume, VolumeId=other, InstanceId=iid, Device="/dev/sdf"), "InvalidParameterValue")
        root = [m["Ebs"]["VolumeId"] for m in self.describe(iid)["BlockDeviceMappings"] if m["DeviceName"] == "/dev/sda1"][0]
        self.assertEqual(code_of(self.ec2.detach_volume, VolumeId=root), "OperationNotPermitted")
        wait_for("attached", lambda: self.ec2.describe_volumes(VolumeIds=[vol])["Volumes"][0]["Attachments"][0]["State"] == "attached")
        self.assertEqual(self.ec2.describe_volume_status(VolumeIds=[vol])["VolumeStatuses"][0]["VolumeStatus"]["Status"], "ok")
        self.assertEqual(self.ec2.detach_volume(VolumeId=vol)["State"], "detaching")
        self.ec2.get_waiter("volume_available").wait(VolumeIds=[vol], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        self.assertEqual(code_of(self.ec2.detach_volume, VolumeId=vol), "IncorrectState")
        self.assertEqual(self.ec2.describe_volumes(Filters=[{"Name": "tag:k", "Values": ["v"]}])["Volumes"][0]["VolumeId"], vol)
        self.assertFalse(self.ec2.describe_volume_attribute(VolumeId=vol, Attribute="autoEnableIO")["AutoEnableIO"]["Value"])
        for x in (vol, other):
            self.ec2.delete_volume(VolumeId=x)
        self.ec2.get_waiter("volume_deleted").wait(VolumeIds=[vol, other], WaiterConfig={"Delay": 1, "MaxAttempts": 30})

    def test_root_volume_of_a_stopped_instance_can_be_repaired_elsewhere(self):
        iid, helper = self.running(), self.running()
        self.ec2.stop_instances(InstanceIds=[iid])
        self.ec2.get_waiter("instance_stopped").wait(InstanceIds=[iid], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        root = self.describe(iid)["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
        for target, device in ((helper, "/dev/sdf"), (iid, "/dev/sda1")):
            self.ec2.detach_volume(VolumeId=root)
            self.ec2.get_waiter("volume_available").wait(VolumeIds=[root], WaiterConfig={"Delay": 1, "MaxAttempts": 30})
            if target == helper:
                self.assertEqual(code_of(self.ec2.start_instances, InstanceIds=[iid]), "IncorrectInstanceState")
            self.ec2.attach_volume(VolumeId=root, InstanceId=target, Device=device)
            wait_for("attached", lambda: self.ec2.describe_volumes(VolumeIds=[root])["Volumes"][0]["Attachments"][0]["State"] == "attached")
        self.ec2.start_instances(InstanceIds=[iid])
        self.ec2.get_waiter("instance_running").wait(InstanceIds=[iid], WaiterConfig={"Delay": 1, "MaxAttempts": 30})


class SecurityGroups(Base):
    def test_rules(self):
        sg = self.ec2.create_security_group(GroupName="rules", Description="for tests")["GroupId"]
        self.addCleanup(lambda: code_of(self.ec2.delete_security_group, GroupId=sg))
        perms = [{"IpProtocol": "tcp", "FromPort": 80, "ToPort": 81,
                  "IpRanges": [{"CidrIp": "10.0.0.5/8", "Description": "all"}, {"CidrIp": "192.0.2.0/24"}],
                  "Ipv6Ranges": [{"CidrIpv6": "2001:db8::1/32"}]},
                 {"IpProtocol": "icmp", "FromPort": 8, "ToPort": -1, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]},
                 {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": sg}]}]
        r = self.ec2.authorize_security_group_ingress(GroupId=sg, IpPermissions=perms)
        self.assertEqual(len(r["SecurityGroupRules"]), 5)
        g = self.ec2.describe_security_groups(GroupIds=[sg])["SecurityGroups"][0]
        self.assertEqual(g["IpPermissions"][0]["IpRanges"][0], {"CidrIp": "10.0.0.0/8", "Description": "all"})
        self.assertEqual(g["IpPermissions"][0]["Ipv6Ranges"][0]["CidrIpv6"], "2001:db8::/32")
        self.assertEqual(len(g["IpPermissionsEgress"]), 1)
        dup = [{"IpProtocol": "6", "FromPort": 80, "ToPort": 81, "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "other words"}]}]
        self.assertEqual(code_of(self.ec2.authorize_security_group_ingress, GroupId=sg, IpPermissions=dup), "InvalidPermission.Duplicate")
        self.assertEqual(code_of(self.ec2.authorize_security_group_egress, GroupId=sg, IpPermissions=[
            {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]), "InvalidPermission.Duplicate")
        self.ec2.revoke_security_group_egress(GroupId=sg, IpPermissions=[{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}])
        self.assertEqual(code_of(self.ec2.revoke_security_group_egress, GroupId=sg, IpPermissions=[
            {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]), "InvalidPermission.NotFound")
        rules = self.ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [sg]}])["SecurityGroupRules"]
        self.assertEqual(len(rules), 5)
        one = rules[0]["SecurityGroupRuleId"]
        self.ec2.create_tags(Resources=[one], Tags=[{"Key": "a", "Value": "b"}])
        self.assertEqual(self.ec2.describe_security_group_rules(SecurityGroupRuleIds=[one])["SecurityGroupRules"][0]["Tags"],
                         [{"Key": "a", "Value": "b"}])
        self.ec2.revoke_security_group_ingress(GroupId=sg, SecurityGroupRuleIds=[one])
        self.assertEqual(code_of(self.ec2.revoke_security_group_ingress, GroupId=sg, SecurityGroupRuleIds=[one]),
                         "InvalidSecurityGroupRuleId.NotFound")
        self.assertEqual(len(self.ec2.describe_security_group_rules(Filters=[{"Name": "group-id", "Values": [sg]}])["SecurityGroupRules"]), 4)
        self.assertEqual(code_of(self.ec2.create_security_group, GroupName="rules", Description="x"), "InvalidGroup.Duplicate")
        self.ec2.authorize_security_group_ingress(GroupName="rules", IpProtocol="tcp", FromPort=22, ToPort=22, CidrIp="0.0.0.0/0")
        waiter = self.ec2.get_waiter("security_group_exists")
        waiter.wait(GroupIds=[sg], WaiterConfig={"Delay": 1, "MaxAttempts": 2})
        default = self.ec2.describe_security_groups(GroupNames=["default"])["SecurityGroups"][0]["GroupId"]
        self.assertEqual(code_of(self.ec2.delete_security_group, GroupId=default), "CannotDelete")


class Tags(Base):
    def test_one_store_for_all(self):
        iid = self.launch(TagSpecifications=[{"ResourceType": "instance", "Tags": [{"Key": "a", "Value": "1"}]}])[0]
        vpc = self.ec2.describe_vpcs()["Vpcs"][0]["VpcId"]
        self.ec2.create_tags(Resources=[iid, vpc], Tags=[{"Key": "b", "Value": "2"}, {"Key": "a", "Value": "3"}])
        self.assertEqual(self.describe(iid)["Tags"], [{"Key": "a", "Value": "3"}, {"Key": "b", "Value": "2"}])
        self.assertEqual(self.ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"][0]["Tags"][0], {"Key": "a", "Value": "3"})
        t = self.ec2.describe_tags(Filters=[{"Name": "resource-id", "Values": [iid]}, {"Name": "key", "Values": ["b"]}])["Tags"]
        self.assertEqual(t, [{"Key": "b", "ResourceId": iid, "ResourceType": "instance", "Value": "2"}])
        self.ec2.delete_tags(Resources=[iid], Tags=[{"Key": "a", "Value": "other"}, {"Key": "b"}])
        self.assertEqual(self.describe(iid)["Tags"], [{"Key": "a", "Value": "3"}])
        self.ec2.delete_tags(Resources=[vpc])
        self.assertNotIn("Tags", self.ec2.describe_vpcs(VpcIds=[vpc])["Vpcs"][0])
        many = [{"Key": f"k{n}", "Value": "v"} for n in range(51)]
        self.assertEqual(code_of(self.ec2.create_tags, Resources=[iid], Tags=many), "TagLimitExceeded")
        self.assertEqual(code_of(self.ec2.create_tags, Resources=[iid], Tags=[{"Key": "aws:x", "Value": "v"}]), "InvalidParameterValue")


class Negative(Base):
    """Bad input gets the code of the EC2 API reference and changes nothing."""

    def test_codes(self):
        ec2 = self.ec2
        run = dict(ImageId=AMI, InstanceType="t3.nano", MinCount=1, MaxCount=1)
        iid = self.running()
        gone = "i-0123456789abcdef0"
        vol = ec2.create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
        self.addCleanup(ec2.delete_volume, VolumeId=vol)
        perm = [{"IpProtocol": "tcp", "FromPort": 1, "ToPort": 2, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
        default = ec2.describe_security_groups(GroupNames=["default"])["SecurityGroups"][0]["GroupId"]

        def with_(base, **kw):
            return dict(base, **kw)
        rows = [
            (ec2.describe_instances, dict(InstanceIds=["nonsense"]), "InvalidInstanceID.Malformed"),
            (ec2.describe_instances, dict(InstanceIds=["i-XYZ"]), "InvalidInstanceID.Malformed"),
            (ec2.describe_instances, dict(InstanceIds=[gone]), "InvalidInstanceID.NotFound"),
            (ec2.describe_instances, dict(InstanceIds=[iid], MaxResults=5), "InvalidParameterCombination"),
            (ec2.describe_instances, dict(MaxResults=2), "InvalidParameterValue"),
            (ec2.describe_instances, dict(NextToken="garbage"), "InvalidNextToken"),
            (ec2.describe_instances, dict(Filters=[{"Name": "colour", "Values": ["red"]}]), "InvalidParameterValue"),
            (ec2.start_instances, dict(InstanceIds=[gone]), "InvalidInstanceID.NotFound"),
            (ec2.stop_instances, dict(InstanceIds=["vol-0123456789abcdef0"]), "InvalidInstanceID.Malformed"),
            (ec2.stop_instances, dict(InstanceIds=[iid], Hibernate=True), "UnsupportedHibernationConfiguration"),
            (ec2.terminate_instances, dict(InstanceIds=[iid, gone]), "InvalidInstanceID.NotFound"),
            (ec2.reboot_instances, dict(InstanceIds=[gone]), "InvalidInstanceID.NotFound"),
            (ec2.get_console_output, dict(InstanceId=gone), "InvalidInstanceID.NotFound"),
            (ec2.run_instances, with_(run, ImageId="ami-0000000000000dead"), "InvalidAMIID.NotFound"),
            (ec2.run_instances, with_(run, ImageId="image"), "InvalidAMIID.Malformed"),
            (ec2.run_instances, with_(run, InstanceType="t3.gigantic"), "InvalidParameterValue"),
            (ec2.run_instances, with_(run, KeyName="nobody"), "InvalidKeyPair.NotFound"),
            (ec2.run_instances, with_(run, SubnetId="subnet-0123456789abcdef0"), "InvalidSubnetID.NotFound"),
            (ec2.run_instances, with_(run, SecurityGroupIds=["sg-0123456789abcdef0"]), "InvalidGroup.NotFound"),
            (ec2.run_instances, with_(run, SecurityGroups=["no such"]), "InvalidGroup.NotFound"),
            (ec2.run_instances, with_(run, MinCount=2), "InvalidParameterValue"),
            (ec2.run_instances, with_(run, MinCount=0), "InvalidParameterValue"),
            (ec2.run_instances, with_(run, PrivateIpAddress="10.0.0.9"), "InvalidParameterValue"),
            (ec2.run_instances, with_(run, PrivateIpAddress="172.31.0.1"), "InvalidParameterValue"),
            (ec2.run_instances, with_(run, UserData="x" * 20000), "InvalidParameterValue"),
            (ec2.run_instances, with_(run, Placement={"AvailabilityZone": "mars-1a"}), "InvalidParameterValue"),
            (ec2.run_instances, with_(run, Placement={"Tenancy": "dedicated"}), "UnsupportedOperation"),
            (ec2.run_instances, with_(run, HibernationOptions={"Configured": True}), "UnsupportedOperation"),
            (ec2.run_instances, with_(run, IamInstanceProfile={"Name": "p"}), "UnsupportedOperation"),
            (ec2.run_instances, with_(run, InstanceMarketOptions={"MarketType": "spot"}), "UnsupportedOperation"),
            (ec2.run_instances, with_(run, LaunchTemplate={"LaunchTemplateName": "lt"}), "UnsupportedOperation"),
            (ec2.run_instances, with_(run, BlockDeviceMappings=[{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 1}}]),
             "InvalidBlockDeviceMapping"),
            (ec2.run_instances, with_(run, BlockDeviceMappings=[{"DeviceName": "bogus", "Ebs": {"VolumeSize": 1}}]),
             "InvalidBlockDeviceMapping"),
            (ec2.run_instances, with_(run, SubnetId="subnet-0123456789abcdef0", NetworkInterfaces=[{"DeviceIndex": 0}]),
             "InvalidParameterCombination"),
            (ec2.run_instances, with_(run, MetadataOptions={"HttpPutResponseHopLimit": 65}), "InvalidParameterValue"),
            (ec2.run_instances, with_(run, TagSpecifications=[{"ResourceType": "vpc", "Tags": [{"Key": "a", "Value": "b"}]}]),
             "InvalidParameterValue"),
            (ec2.create_volume, dict(AvailabilityZone="mars-1a", Size=1), "InvalidZone.NotFound"),
            (ec2.create_volume, dict(AvailabilityZone=AZ), "MissingParameter"),
            (ec2.create_volume, dict(AvailabilityZone=AZ, Size=0), "InvalidParameterValue"),
            (ec2.create_volume, dict(AvailabilityZone=AZ, Size=70000, VolumeType="gp3"), "InvalidParameterValue"),
            (ec2.create_volume, dict(AvailabilityZone=AZ, Size=10, VolumeType="gp3", Iops=2), "InvalidParameterValue"),
            (ec2.create_volume, dict(AvailabilityZone=AZ, Size=10, VolumeType="gp2", Iops=100), "InvalidParameterCombination"),
            (ec2.create_volume, dict(AvailabilityZone=AZ, Size=10, VolumeType="io2", Iops=100, MultiAttachEnabled=True), "UnsupportedOperation"),
            (ec2.create_volume, dict(AvailabilityZone=AZ, SnapshotId="snap-0123456789abcdef0"), "InvalidSnapshot.NotFound"),
            (ec2.delete_volume, dict(VolumeId="vol-0123456789abcdef0"), "InvalidVolume.NotFound"),
            (ec2.delete_volume, dict(VolumeId="vol-1"), "InvalidVolumeID.Malformed"),
            (ec2.attach_volume, dict(VolumeId=vol, InstanceId=gone, Device="/dev/sdf"), "InvalidInstanceID.NotFound"),
            (ec2.attach_volume, dict(VolumeId=vol, InstanceId=iid, Device="nonsense"), "InvalidParameterValue"),
            (ec2.detach_volume, dict(VolumeId=vol), "IncorrectState"),
            (ec2.create_security_group, dict(GroupName="default", Description="d"), "InvalidParameterValue"),
            (ec2.create_security_group, dict(GroupName="sg-x", Description="d"), "InvalidParameterValue"),
            (ec2.create_security_group, dict(GroupName="x", Description="d", VpcId="vpc-0123456789abcdef0"), "InvalidVpcID.NotFound"),
            (ec2.delete_security_group, dict(GroupId="sg-0123456789abcdef0"), "InvalidGroup.NotFound"),
            (ec2.authorize_security_group_ingress, dict(GroupId=default, IpPermissions=[
                {"IpProtocol": "tcp", "FromPort": 9, "ToPort": 3, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]), "InvalidParameterValue"),
            (ec2.authorize_security_group_ingress, dict(GroupId=default, IpPermissions=[
                {"IpProtocol": "tcp", "FromPort": 1, "ToPort": 3, "IpRanges": [{"CidrIp": "0.0.0.0/33"}]}]), "InvalidParameterValue"),
            (ec2.authorize_security_group_ingress, dict(GroupId=default, IpPermissions=[
                {"IpProtocol": "xyz", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]), "InvalidParameterValue"),
            (ec2.authorize_security_group_ingress, dict(GroupId=default, IpPermissions=perm + perm), "InvalidParameterValue"),
            (ec2.authorize_security_group_ingress, dict(GroupId=default), "MissingParameter"),
            (ec2.create_tags, dict(Resources=["x-1"], Tags=[{"Key": "a", "Value": "b"}]), "InvalidID"),
            (ec2.create_key_pair, dict(KeyName=""), "MissingParameter"),
            (ec2.describe_vpc_attribute, dict(VpcId="vpc-0123456789abcdef0", Attribute="enableDnsSupport"), "InvalidVpcID.NotFound"),
            (ec2.describe_images, dict(ImageIds=["ami-0123456789abcdef0"]), "InvalidAMIID.NotFound"),
            (ec2.describe_subnets, dict(SubnetIds=["subnet-0123456789abcdef0"]), "InvalidSubnetID.NotFound"),
            (ec2.describe_addresses, dict(AllocationIds=["eipalloc-0123456789abcdef0"]), "InvalidAllocationID.NotFound"),
            (ec2.create_vpc, dict(CidrBlock="10.0.0.0/16"), "InvalidAction"),
            (ec2.describe_fpga_images, dict(), "InvalidAction"),
        ]
        self.assertGreaterEqual(len(rows), 50)
        for call, kw, want in rows:
            with self.subTest(call=call.__name__, kw=str(kw)[:120]):
                self.assertEqual(code_of(call, **kw), want)

    def test_plural_names_all_unknown_ids(self):
        a, b = "i-0123456789abcdef0", "i-0123456789abcdef1"
        with self.assertRaises(ClientError) as c:
            self.ec2.describe_instances(InstanceIds=[a, b])
        self.assertEqual(c.exception.response["Error"]["Message"], f"The instance IDs '{a}, {b}' do not exist")


class Waiters(Base):
    """Every waiter of the model whose operation is here ends with the stock SDK."""

    def test_all(self):
        iid = self.running()
        other = self.running()
        self.ec2.terminate_instances(InstanceIds=[other])
        stopped = self.running()
        self.ec2.stop_instances(InstanceIds=[stopped])
        self.ec2.import_key_pair(KeyName="waiter", PublicKeyMaterial=KEY.encode())
        self.addCleanup(self.ec2.delete_key_pair, KeyName="waiter")
        i = self.describe(iid)
        vol = self.ec2.create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
        gone = self.ec2.create_volume(AvailabilityZone=AZ, Size=1)["VolumeId"]
        wait_for("made", lambda: self.ec2.describe_volumes(VolumeIds=[gone])["Volumes"][0]["State"] == "available")
        self.ec2.delete_volume(VolumeId=gone)
        self.addCleanup(self.ec2.delete_volume, VolumeId=vol)
        snap = self.ec2.create_snapshot(VolumeId=i["BlockDeviceMappings"][0]["Ebs"]["VolumeId"])["SnapshotId"]
        self.addCleanup(self.ec2.delete_snapshot, SnapshotId=snap)
        igw = self.ec2.describe_internet_gateways()["InternetGateways"][0]["InternetGatewayId"]
        args = {
            "image_available": dict(ImageIds=[AMI]), "image_exists": dict(ImageIds=[AMI]),
            "instance_exists": dict(InstanceIds=[iid]), "instance_running": dict(InstanceIds=[iid]),
            "instance_status_ok": dict(InstanceIds=[iid]), "instance_stopped": dict(InstanceIds=[stopped]),
            "instance_terminated": dict(InstanceIds=[other]), "system_status_ok": dict(InstanceIds=[iid]),
            "internet_gateway_exists": dict(InternetGatewayIds=[igw]), "key_pair_exists": dict(KeyNames=["waiter"]),
            "network_interface_available": None,  # none is free: interfaces are made with instances so far
            "security_group_exists": dict(GroupIds=[i["SecurityGroups"][0]["GroupId"]]),
            "snapshot_completed": dict(SnapshotIds=[snap]), "subnet_available": dict(SubnetIds=[i["SubnetId"]]), "volume_available": dict(VolumeIds=[vol]),
            "volume_deleted": dict(VolumeIds=[gone]), "volume_in_use": dict(VolumeIds=[i["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]]),
            "vpc_available": dict(VpcIds=[i["VpcId"]]), "vpc_exists": dict(VpcIds=[i["VpcId"]]),
        }
        here = {h[len("ec2_"):] for h in handlers()}
        for name in self.ec2.waiter_names:
            waiter = self.ec2.get_waiter(name)
            op = botocore.xform_name(waiter.config.operation)
            with self.subTest(waiter=name):
                if op in here:
                    self.assertIn(name, args, f"{op} is here: say how to wait for {name}")
                    if args[name] is not None:
                        waiter.wait(WaiterConfig={"Delay": 1, "MaxAttempts": 60}, **args[name])


def handlers():
    """The operations that the gateway has, from the generated prototypes."""
    for folder, _, files in os.walk(cloud.build):
        if "ec2_handlers.h" in files:
            with open(os.path.join(folder, "ec2_handlers.h")) as f:
                return re.findall(r"^int (ec2_\w+)\(", f.read(), re.M)
    raise FileNotFoundError("ec2_handlers.h")


class Restarts(Base):
    def test_a_store_that_does_not_answer_is_no_internal_error(self):
        """503, which clients try again; what is known is still told."""
        self.ec2.describe_vpcs()
        pid = cloud.procs["state"].pid
        os.kill(pid, signal.SIGSTOP)
        try:
            with self.assertRaises(ClientError) as e:
                self.ec2.create_key_pair(KeyName="outage")
            r = e.exception.response
            self.assertEqual((r["ResponseMetadata"]["HTTPStatusCode"], r["Error"]["Code"]), (503, "Unavailable"))
            self.assertTrue(self.ec2.describe_vpcs()["Vpcs"])
        finally:
            os.kill(pid, signal.SIGCONT)
        wait_for("answers again", lambda: code_of(self.ec2.describe_vpcs) == "no error", timeout=30)

    def test_gateway_and_store_killed_and_back(self):
        iid = self.running()
        for name in ("awsgw", "state"):
            cloud.kill9(name)
            cloud.start(name)
            wait_for(f"answers after {name}", lambda: code_of(self.ec2.describe_vpcs) == "no error", timeout=30)
            self.assertEqual(self.describe(iid)["State"]["Name"], "running")
        token_page = self.ec2.describe_instance_types(MaxResults=5).get("NextToken")
        cloud.kill9("awsgw")
        cloud.start("awsgw")
        self.assertTrue(self.ec2.describe_instance_types(MaxResults=5, NextToken=token_page)["InstanceTypes"])


if __name__ == "__main__":
    unittest.main(verbosity=1)
