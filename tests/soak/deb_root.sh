#!/bin/bash
# In an empty Debian of that release: builds, tests, packs; then, in another empty one, installs the package, starts a node, purges, and compares
# what is left with what was there before.
#   sudo tests/soak/deb_root.sh bookworm|trixie [FOLDER]
set -euo pipefail
release=$1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
work=${2:-/var/tmp/spinifex-$release}
mkdir -p "$work"

# A root with proc, sys, dev, a network of its own (loopback only) when it is told so, and nothing of ours outside.
inside() { # FOLDER is_alone SCRIPT
    local net=()
    [ "$2" = alone ] && net=(-n)
    unshare -m -p -f "${net[@]}" --mount-proc="$1/proc" bash -c '
        mount --rbind "$1" "$1" && mount -t sysfs sysfs "$1/sys" && mount --rbind /dev "$1/dev" && mount -t tmpfs tmpfs "$1/run" && chroot "$1" bash -euo pipefail /root/script.sh' _ "$1" \
        || { echo "$3: failed" >&2; exit 1; }
}
base() { # FOLDER PACKAGES
    [ -d "$1/usr" ] || mmdebstrap --quiet --variant=minbase --include="$2" "$release" "$1"
}

echo "== $release: build, unit tests, package"
base "$work/build" ca-certificates,git,make,dpkg-dev,systemd,iproute2,procps
rm -rf "$work/build/src"
mkdir "$work/build/src"
git -C "$root" archive HEAD | tar -x -C "$work/build/src"
cat >"$work/build/root/script.sh" <<'X'
export LC_ALL=C.UTF-8 CI=true
cd /src
tools/packages.sh install check
meson setup build-check -Db_sanitize=address,undefined -Db_lundef=false >/dev/null # no boto3 is needed for these suites
ninja -C build-check --quiet -k 0
meson test -C build-check --no-rebuild --suite unit --suite fuzz --timeout-multiplier 3 | tail -n 12
make deb
X
inside "$work/build" shared build

echo "== $release: install, start, purge"
base "$work/host" ca-certificates,systemd,iproute2,procps,nftables
cp "$work"/build/src/build-deb/*.deb "$work/host/root/spinifex.deb"
cat >"$work/host/root/script.sh" <<'X'
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
look() { # what a package may have touched
    { find /etc /usr /opt -xdev \( -type f -o -type l \) ! -name ld.so.cache | sort; cat /etc/passwd /etc/group; } >"$1"
}
cd /root
apt-get update -qq
dpkg-deb -f spinifex.deb Depends | sed 's/([^)]*)//g; s/,/ /g' | xargs apt-get install -y -qq --no-install-recommends >/dev/null
look before
apt-get install -y -qq --no-install-recommends ./spinifex.deb >/dev/null
[ -s /usr/share/man/man1/spx.1.gz ] || [ -e /etc/dpkg/dpkg.cfg.d/excludes ]
mkdir -p /run/spinifex && systemd-tmpfiles --create spinifex.conf
X
cp "$work/host/root/script.sh" "$work/host/root/install.sh"
inside "$work/host" shared install
cat >"$work/host/root/script.sh" <<'X'
export LC_ALL=C.UTF-8
ip link set lo up
systemd-tmpfiles --create spinifex.conf
spx admin init --node node1 --nodes 1 >/dev/null
spx up --detach
spx get nodes --output json | grep -q '"Ready"'
spx doctor
spx admin prepare
spx down
apt-get purge -y -qq spinifex
{ find /etc /usr /opt -xdev \( -type f -o -type l \) ! -name ld.so.cache | sort; cat /etc/passwd /etc/group; } >/root/after
diff /root/before /root/after
[ ! -e /var/lib/spinifex ] && [ ! -e /etc/spinifex ]
tables=$(nft list tables)
links=$(ip -br link)
[[ $tables != *spx* && $links != *spx* ]]
echo 'nothing is left'
X
inside "$work/host" alone 'install, start, purge'
