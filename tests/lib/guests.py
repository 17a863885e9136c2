"""What tests with real guests share: a cloud in a network namespace with the small image, and ways into its guests.

Needs root. The small image is taken from SPX_MINI (a raw disk), or built (that needs the package archive, or its cache).
"""
import os
import subprocess
import sys

from cloud import REGION, Cloud, find_binary, isolate, wait_for

from botocore.exceptions import ClientError, WaiterError

AZ = REGION + "a"
SLOW = {"Delay": 1, "MaxAttempts": 180}
SERVICES = ("state", "predastore", "viperblock", "vpcd", "compute", "awsgw")

cloud = None
ami = None
key_file = None


def set_up(services=SERVICES):
    global cloud, ami, key_file
    image = os.environ.get("SPX_MINI") or build_image()  # before there is no network but our own
    isolate()
    cloud = Cloud()
    try:
        # Users of its own: what the kernel counts per user (locked memory) is not shared with another test.
        cloud.init(uid_base=70000 + os.getpid() % 200 * 1000)
        cloud.only(*services)
        cloud.start(*services)
        ec2 = cloud.client("ec2")
        wait_for("instance types", lambda: ec2.describe_instance_types()["InstanceTypes"])
        cloud.spx("admin", "images", "import", image, "--name", "mini", "--boot-mode", "bios")
        ami = wait_for("image", lambda: [i["ImageId"] for i in ec2.describe_images(Filters=[
            {"Name": "name", "Values": ["mini*"]}, {"Name": "state", "Values": ["available"]}])["Images"]])[0]
        key_file = os.path.join(cloud.dir, "id")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key_file], check=True)
        for account in ("one", "two"):
            cloud.aws("ec2", "import-key-pair", "--key-name", "me", "--public-key-material", f"fileb://{key_file}.pub", account=account)
            client = cloud.client("ec2", account)
            default = client.describe_security_groups(GroupNames=["default"])["SecurityGroups"][0]["GroupId"]
            client.authorize_security_group_ingress(GroupId=default, IpPermissions=[
                {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]},
                {"IpProtocol": "icmp", "FromPort": -1, "ToPort": -1, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}])
    except BaseException:
        show_logs()
        cloud.close()
        raise


def build_image():
    """The disk, kept in the build folder; the builder sees by itself when it is up to date."""
    build = os.environ["SPX_BUILD"]
    image = os.path.join(build, "mini.raw")
    script = os.path.join(os.path.dirname(__file__), "..", "..", "packaging", "mini", "build.sh")
    subprocess.run([script, "--out", image, "--tool", find_binary(build, "minitool")], check=True, timeout=600)
    return image


def tear_down():
    for account in ("one", "two"):
        if account in cloud.keys:
            ec2 = cloud.client("ec2", account)
            try:
                ids = [i["InstanceId"] for r in ec2.describe_instances()["Reservations"] for i in r["Instances"]]
                if ids:
                    ec2.terminate_instances(InstanceIds=ids)
                    ec2.get_waiter("instance_terminated").wait(InstanceIds=ids, WaiterConfig=SLOW)
            except ClientError:
                pass
    cloud.close()


def show_logs():
    for name in SERVICES:
        print(f"--- {name}\n{cloud.log(name)}", file=sys.stderr)


def ssh(address, command, timeout=60):
    return subprocess.run(["ssh", "-i", key_file, "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                           "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5", f"root@{address}", command],
                          capture_output=True, text=True, timeout=timeout)


class Guest:
    """One instance and a way into it."""

    def __init__(self, iid, account="one"):
        self.id = iid
        self.account = account
        self.ec2 = cloud.client("ec2", account)

    @staticmethod
    def launch(n=1, account="one", **kw):
        ec2 = cloud.client("ec2", account)
        args = dict(ImageId=ami, InstanceType="t3.nano", KeyName="me", MinCount=n, MaxCount=n)
        args.update(kw)
        guests = [Guest(i["InstanceId"], account) for i in ec2.run_instances(**args)["Instances"]]
        try:
            ec2.get_waiter("instance_running").wait(InstanceIds=[g.id for g in guests], WaiterConfig=SLOW)
        except WaiterError:
            for g in guests:
                print(f"--- {g.id}: {g.state()} {g.describe().get('StateReason')}", file=sys.stderr)
            show_logs()
            raise
        return guests

    def describe(self):
        return self.ec2.describe_instances(InstanceIds=[self.id])["Reservations"][0]["Instances"][0]

    @property
    def ip(self):
        return self.describe()["PublicIpAddress"]

    @property
    def private_ip(self):
        return self.describe()["PrivateIpAddress"]

    def console(self):
        return self.ec2.get_console_output(InstanceId=self.id, Latest=True).get("Output", "")

    def ssh(self, command, check=True, timeout=60):
        p = ssh(self.ip, command, timeout)
        if check and p.returncode != 0:
            raise AssertionError(f"{self.id}: {command}: exit {p.returncode}\n{p.stdout}{p.stderr}")
        return p.stdout.strip() if check else p

    def ready(self, timeout=120):
        try:
            wait_for(f"ssh into {self.id}", lambda: self.ssh("true", check=False, timeout=20).returncode == 0, timeout, 0.5)
        except (AssertionError, subprocess.TimeoutExpired):
            print(f"--- console of {self.id}\n{self.console()[-3000:]}", file=sys.stderr)
            show_logs()
            raise
        return self

    def disk(self, volume):
        """The name in the guest of an attached volume: its serial is the id without the dash."""
        serial = volume.replace("-", "")
        return "/dev/" + wait_for(f"{volume} in {self.id}", lambda: self.ssh(
            f"for d in /sys/block/vd*; do [ \"$(cat $d/serial)\" = {serial} ] && basename $d; done; true"), 60)

    def state(self):
        return self.describe()["State"]["Name"]

    def terminate(self):
        self.ec2.terminate_instances(InstanceIds=[self.id])
        self.ec2.get_waiter("instance_terminated").wait(InstanceIds=[self.id], WaiterConfig=SLOW)


def code_of(call, **kw):
    try:
        call(**kw)
    except ClientError as e:
        return e.response["Error"]["Code"]
    return "no error"
