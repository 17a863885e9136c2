#!/bin/bash
# packages.sh list|missing|install [run]: Debian packages (12 and 13) that building and running need; with "run", those for running only.
# What is there already is found without apt, so that a second run takes no time.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# name            why
packages_build() {
    cat <<'LIST'
gcc               compiler
libc6-dev         C library, static too for the helper in the small image
meson             build description
ninja-build       build
pkg-config        finds libraries
python3           tables of the AWS API at build time
libjansson-dev    JSON in
libexpat1-dev     XML in
libssl-dev        TLS, digests, certificates
libcurl4-openssl-dev  HTTP client
libsqlite3-dev    the embedded store
libmnl-dev        netlink
liburing-dev      disks without a system call per request
libnftables-dev   one atomic nftables document in process
libseccomp-dev    allow-lists of the parts that read foreign bytes
libisal-dev       Reed-Solomon and CRCs in vector instructions
zlib1g-dev        images and requests in gzip
liblzma-dev       images in xz
libzstd-dev       images in zstd
libexpat1-dev     XML in
librocksdb-dev    index of the object store
LIST
}
packages_test() {
    cat <<'LIST'
libcmocka-dev     unit tests
binutils          a boot sector for tests of the guest monitor
clang-format-14   formatting (Debian 12)
clang-format      formatting
python3-venv      boto3 of the tests, in a folder of its own
zstd              images as people have them
busybox           ping that says what it got
procps            ps: is a guest really gone
openssl           a second opinion on certificates and keys
libhttp-parser-dev  a second opinion on HTTP/1
rclone            a client of S3
s3cmd             another
s3fs              a bucket as a folder
nodejs            the newest SDK of AWS for JavaScript
libnbd-bin        clients of NBD
fio               another, and a load for disks
xfsprogs          a file system that shares extents
btrfs-progs       another
LIST
    # nodejs of other archives than Debian's brings its own.
    command -v npm >/dev/null || echo 'npm               fetches that SDK'
}
packages_run() {
    cat <<'LIST'
qemu-system-x86   guests
qemu-utils        conversion of images
ovmf              guests that start by UEFI
nftables          looking at rules
iproute2          looking at links
curl              images by URL
e2fsprogs         the root of the small image
xz-utils          modules of the kernel in the small image (Debian 13)
openssh-client    the first login
util-linux        runuser, unshare
ca-certificates   images over HTTPS
LIST
}
packages_soak() {
    cat <<'LIST'
gcc-aarch64-linux-gnu  the build for arm64
libc6-dev-arm64-cross  its C library
clang             a second compiler, and libFuzzer
libclang-rt-14-dev  its run time (Debian 12)
libclang-rt-dev   its run time
mmdebstrap        empty Debians to build, install and purge in
LIST
}
# The AWS CLI: whatever the caller has; Debian's package when he has none.
packages_cli() {
    find_aws >/dev/null || echo 'awscli            the stock AWS CLI'
}

list() {
    packages_run
    [ "${1:-}" = run ] && return
    packages_build
    [ "${1:-}" = check ] || [ "${1:-}" = soak ] && packages_test
    [ "${1:-}" = soak ] && packages_soak
    packages_cli
}
is_there() {
    [ "$(dpkg-query -W -f '${db:Status-Abbrev}' "$1" 2>/dev/null)" = 'ii ' ]
}
exists() {
    apt-cache show "$1" >/dev/null 2>&1
}
missing() {
    local name
    while read -r name _; do
        is_there "$name" || echo "$name"
    done < <(list "${1:-}")
}

case ${1:-} in
list) list "${2:-}" ;;
missing) missing "${2:-}" ;;
install)
    mapfile -t want < <(missing "${2:-}")
    [ "${#want[@]}" -gt 0 ] || exit 0
    need_root packages
    # What this release does not have (clang-format-14 in Debian 13) is missing for ever: no reason to ask the archive again.
    if exists gcc; then
        known=0
        for p in "${want[@]}"; do exists "$p" && known=1; done
        [ "$known" = 1 ] || exit 0
    fi
    quietly apt-get update || true # without internet the packages may still be in the cache
    have=()
    for p in "${want[@]}"; do # clang-format-14 is Debian 12's, and so on: what a release does not have is left out
        if exists "$p"; then have+=("$p"); fi
    done
    [ "${#have[@]}" -gt 0 ] || exit 0
    say "installing ${have[*]}"
    DEBIAN_FRONTEND=noninteractive quietly apt-get install -y --no-install-recommends "${have[@]}"
    mkdir -p /var/cache/spinifex # for whoever wants to be rid of them again (tools/purge.sh)
    printf '%s\n' "${have[@]}" >>/var/cache/spinifex/packages
    ;;
*) die "usage: packages.sh list|missing|install [run|check|soak]" ;;
esac
