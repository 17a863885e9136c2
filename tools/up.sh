#!/bin/bash
# From a clean Debian 12 or 13 to a guest that the stock AWS CLI launched. May be run again: what is there is used.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root up
start=$SECONDS

config=${SPX_CONFIG:-/etc/spinifex/spinifex.toml}
if [ ! -f "$config" ]; then
    # Before anything is installed. Later, spx itself looks.
    while IFS='|' read -r port what option; do
        who=$(listener "$port")
        [ -z "$who" ] || die "TCP port $port, of $what, is used by $who: end it, or make the node with another port:
  sudo tools/packages.sh install && make build && sudo build/src/spx/spx admin init --node node1 --nodes 1 $option N && sudo make up"
    done <<'PORTS'
9999|the AWS API (nodes.node1.awsgw.port)|--port
8443|S3 (nodes.node1.predastore.port)|--s3-port
9998|metrics (nodes.node1.awsgw.metrics_port)|--metrics-port
PORTS
fi
"$root/tools/packages.sh" install
say 'building'
"$root/tools/build.sh"

if [ ! -f "$config" ]; then
    say 'first start: configuration, certificates, an account'
    "$spx" admin init --node node1 --nodes 1 --no-profile
fi
# What runs is a copy that only root can change, where the users of services and guests reach it. New programs are taken into use at
# once: services are started anew, guests run on.
SPX_LIBEXEC=$("$spx" config get data_dir)/programs
export SPX_LIBEXEC
install -d -m 755 "$SPX_LIBEXEC"
is_new=
while read -r program; do
    own=$SPX_LIBEXEC/$(basename "$program")
    if ! cmp -s "$program" "$own"; then
        install -m 755 "$program" "$own.new"
        mv "$own.new" "$own"
        is_new=yes
    fi
done < <(find "$build/src" -name tests -prune -o -name 'spx-*' -type f -perm -u+x -print)
if [ "$is_new" ] && [ -f "$("$spx" config get run_dir)/up.lock" ]; then
    "$spx" down --keep-guests
fi
say 'starting the services'
"$spx" up --detach
# The AWS CLI below shall read the files that the profile is written into, as the caller's own will.
for name in AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE; do
    value=$(caller_env "$name")
    [ -z "$value" ] || export "$name=$value"
done
"$spx" profile write
say 'the small image'
# Package lists may be old, and there may be no archive at all: then the image of an earlier run serves.
image=$("$spx" admin images build mini 2>/dev/null | tail -n 1) ||
    { quietly apt-get update || true; image=$("$spx" admin images build mini | tail -n 1); } ||
    image=$("$spx" get images --output json | python3 -c '
import json, sys
print(next((i["image"] for i in json.load(sys.stdin) if i["name"].startswith("spinifex-mini-") and i["status"] == "available"), ""))')
[ -n "$image" ] || die 'there is no small image, and none could be built (see above)'
echo "$image"

# The stock AWS CLI of the caller. Versions before 2.13 read no endpoint from a profile, so it is given: "spx aws" adds nothing else.
aws_dir=$(dirname "$(find_aws)")
aws() {
    as_caller env -u AWS_CA_BUNDLE -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY -u AWS_SESSION_TOKEN \
        -u AWS_ENDPOINT_URL -u AWS_REGION -u AWS_DEFAULT_REGION PATH="$PATH:$aws_dir" AWS_PROFILE=spinifex AWS_PAGER= "$spx" aws "$@"
}

say 'a guest'
key=$caller_home/.ssh/id_ed25519
if [ ! -f "$key.pub" ] || [ -f "$caller_home/.ssh/spinifex_ed25519" ]; then
    key=$caller_home/.ssh/spinifex_ed25519
    as_caller mkdir -p -m 700 "$caller_home/.ssh"
    [ -f "$key" ] || as_caller ssh-keygen -q -t ed25519 -N '' -C "$caller@spinifex" -f "$key"
fi
if [ "$(aws ec2 describe-key-pairs --filters Name=key-name,Values=me --query 'length(KeyPairs)' --output text)" = 0 ]; then
    aws ec2 import-key-pair --key-name me --public-key-material "fileb://$key.pub" --output text >/dev/null
fi
group=$(aws ec2 describe-security-groups --filters Name=group-name,Values=ssh --query 'SecurityGroups[0].GroupId' --output text)
if [ "$group" = None ]; then
    group=$(aws ec2 create-security-group --group-name ssh --description 'SSH and ping from anywhere' --query GroupId --output text)
    aws ec2 authorize-security-group-ingress --group-id "$group" --ip-permissions \
        'IpProtocol=tcp,FromPort=22,ToPort=22,IpRanges=[{CidrIp=0.0.0.0/0}]' \
        'IpProtocol=icmp,FromPort=-1,ToPort=-1,IpRanges=[{CidrIp=0.0.0.0/0}]' >/dev/null
fi
state() { aws ec2 describe-instances --instance-ids "$id" --query 'Reservations[0].Instances[0].State.Name' --output text; }
console() { aws ec2 get-console-output --instance-id "$id" --latest --query Output --output text; }
before= # what the guest said before this start
id=$(aws ec2 describe-instances --filters Name=tag:Name,Values=hello Name=instance-state-name,Values=pending,running,stopping,stopped \
    --query 'Reservations[0].Instances[0].InstanceId' --output text)
if [ "$id" = None ]; then
    id=$(aws ec2 run-instances --image-id "$image" --instance-type t3.micro --key-name me --security-group-ids "$group" \
        --tag-specifications 'ResourceType=instance,Tags=[{Key=Name,Value=hello}]' --query 'Instances[0].InstanceId' --output text)
    echo "$id launched"
else
    echo "$id is there"
    [ "$(state)" != stopping ] || aws ec2 wait instance-stopped --instance-ids "$id"
    if [ "$(state)" = stopped ]; then
        before=$(console)
        aws ec2 start-instances --instance-ids "$id" --output text >/dev/null
    fi
fi
if ! aws ec2 wait instance-running --instance-ids "$id"; then
    aws ec2 describe-instances --instance-ids "$id" --query 'Reservations[0].Instances[0].StateReason.Message' --output text >&2
    die "the guest $id does not run: the reason is above, logs are in $("$spx" config get data_dir)/log"
fi

# Ready is what it said after its last start.
end=$((SECONDS + 180))
until log=$(console) && [ "$log" != "$before" ] && awk '/spinifex-mini: boot start|reboot: Power down/ {r = 0} /spinifex-mini: ready/ {r = 1} END {exit !r}' <<<"$log"; do
    if [ "$SECONDS" -ge "$end" ]; then
        printf '%s\n' "$log" | tail -n 40
        die "the guest $id did not come up within three minutes; its boot log is above"
    fi
    sleep 1
done
say "boot log of $id"
printf '%s\n' "$log" | tr -d '\r' | tail -n 25
ip=$(aws ec2 describe-instances --instance-ids "$id" --query 'Reservations[0].Instances[0].PublicIpAddress' --output text)

# Versions before 2.13 (1.29) read no endpoint from a profile, as Debian 12's.
old=
version=$(as_caller env PATH="$PATH:$aws_dir" aws --version 2>&1 | sed -n 's,^aws-cli/\([0-9]*\)\.\([0-9]*\)\..*,\1 \2,p')
read -r major minor <<<"${version:-0 0}"
if [ "$major" -lt 2 ] && [ "$minor" -lt 29 ] || [ "$major" = 2 ] && [ "$minor" -lt 13 ]; then
    old="  alias aws='$spx aws'     # this AWS CLI is too old to find the endpoint in the profile
"
fi
say "done in $((SECONDS - start)) s; what to type next"
cat <<NEXT
  export AWS_PROFILE=spinifex
${old}  aws sts get-caller-identity
  aws ec2 describe-instances --instance-ids $id
  aws s3 mb s3://first-bucket
  ssh -i $key root@$ip
  $spx profile show --for terraform    # or boto3, node, rclone
  sudo $spx get nodes
  sudo $spx doctor
  sudo make down
NEXT
