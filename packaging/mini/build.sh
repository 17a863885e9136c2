#!/bin/bash
# Makes the small bootable image from Debian packages of this machine's release. Needs no root, mounts nothing, installs nothing.
#   build.sh --out FILE [--work FOLDER] [--tool MINITOOL] [--debs FOLDER]
# FILE      the raw disk: MBR, a FAT partition that starts by BIOS (syslinux) and by UEFI (systemd-boot), an ext4 root.
# --work    where packages are kept between builds (default: $XDG_CACHE_HOME/spinifex/mini or ~/.cache/spinifex/mini)
# --tool    the static helper built from minitool.c (default: beside this script; else it is compiled)
# --debs    take packages from this folder instead of the archive: for a machine without internet
# The same packages and scripts give the same bytes. FILE.inputs records what went in; when nothing changed, nothing is done.
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out='' work='' tool='' debs=''
die() { echo "mini: $*" >&2; exit 1; }
while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || die "usage: build.sh --out FILE [--work FOLDER] [--tool MINITOOL] [--debs FOLDER]"
    case $1 in
    --out) out=$2 ;;
    --work) work=$2 ;;
    --tool) tool=$2 ;;
    --debs) debs=$2 ;;
    *) die "unknown option $1" ;;
    esac
    shift 2
done
[ -n "$out" ] || die "--out FILE is missing"
arch=$(dpkg --print-architecture)
[ "$arch" = amd64 ] || die "only amd64 is supported, this machine is $arch"
for c in dpkg-deb apt-cache apt-get mke2fs sha256sum gzip find sort debugfs; do
    command -v "$c" >/dev/null || PATH=$PATH:/usr/sbin:/sbin command -v "$c" >/dev/null || die "$c is missing"
done
PATH=$PATH:/usr/sbin:/sbin

# Files in the image belong to root: without being root, a user namespace makes it look so.
if [ "$(id -u)" != 0 ] && [ -z "${MINI_IN_NAMESPACE:-}" ]; then
    export MINI_IN_NAMESPACE=1
    args=(--out "$out")
    [ -z "$work" ] || args+=(--work "$work")
    [ -z "$tool" ] || args+=(--tool "$tool")
    [ -z "$debs" ] || args+=(--debs "$debs")
    exec unshare --user --map-root-user -- "$here/build.sh" "${args[@]}"
fi

work=${work:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/spinifex/mini}
mkdir -p "$work/debs" "$(dirname "$out")"
tmp=$(mktemp -d "$work/build.XXXXXX")
trap 'rm -rf "$tmp"' EXIT

if [ -z "$tool" ] && [ -x "$here/minitool" ]; then
    tool=$here/minitool
elif [ -z "$tool" ]; then
    tool=$tmp/minitool
    cc -std=gnu17 -D_GNU_SOURCE -O2 -static -s -o "$tool" "$here/minitool.c" || die "minitool: build it first, or give --tool"
fi

# --- packages -----------------------------------------------------------------------------------------------------------------
if [ -n "$debs" ]; then
    mapfile -t files < <(find "$debs" -maxdepth 1 -name '*.deb' | sort)
    [ "${#files[@]}" -gt 0 ] || die "no packages in $debs"
    sums=$(sha256sum "${files[@]}" | sed 's| .*/| |')
else
    kernel=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$kernel" ] || die "the package lists do not know linux-image-cloud-amd64: run apt-get update"
    # The closure of the programs in the image; the tools that only build it need no libraries beyond the C library.
    mapfile -t closure < <(apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
        --no-enhances dropbear-bin busybox | grep -v '^[ <|]' | grep -v -e debconf -e '^gcc-' -e '^libgcc-s1' | sort -u)
    packages=("$kernel" "${closure[@]}" busybox-static syslinux syslinux-common mtools cpio systemd-boot-efi)
    mapfile -t uris < <(cd "$tmp" && apt-get download --print-uris "${packages[@]}" | sort -u)
    sums=$(for u in "${uris[@]}"; do read -r _ name _ hash <<<"$u"; echo "$hash $name"; done)
    files=()
    for u in "${uris[@]}"; do read -r _ name _ _ <<<"$u"; files+=("$work/debs/$name"); done
fi
[ -n "$sums" ] || die "no packages found"

inputs=$(
    echo "$sums"
    cd "$here"
    find build.sh initrd-init rootfs -type f | sort | xargs sha256sum
    sha256sum <"$tool"
)
if [ -f "$out" ] && [ "$(cat "$out.inputs" 2>/dev/null)" = "$inputs" ]; then
    echo "mini: $out is up to date"
    exit 0
fi
if [ -z "$debs" ]; then
    missing=0
    for f in "${files[@]}"; do [ -f "$f" ] || missing=1; done
    if [ $missing = 1 ]; then
        echo "mini: fetching packages"
        (cd "$work/debs" && apt-get -o APT::Sandbox::User=root -q download "${packages[@]}" >/dev/null) || die "a package cannot be fetched: run apt-get update, or give --debs FOLDER"
    fi
fi
x=$tmp/x
mkdir "$x"
for f in "${files[@]}"; do
    case ${f##*/} in
    linux-image-*) mkdir -p "$tmp/kernel"; dpkg-deb -x "$f" "$tmp/kernel" ;;
    busybox-static_*) mkdir -p "$tmp/static"; dpkg-deb -x "$f" "$tmp/static" ;;
    *) dpkg-deb -x "$f" "$x" ;;
    esac
done
busybox=$(find "$tmp/static" -path '*/bin/busybox' -type f | head -n 1)
vmlinuz=$(find "$tmp/kernel/boot" -name 'vmlinuz-*' | head -n 1)
modules=$(find "$tmp/kernel" -type d -path '*/modules/*' -name kernel | head -n 1)
[ -n "$busybox" ] && [ -n "$vmlinuz" ] && [ -n "$modules" ] || die "kernel or busybox are not among the packages"
find_x() { find "$x" -path "*$1" \( -type f -o -type l \) | sort | head -n 1 | grep . || die "$1 is not in the packages"; }

# Programs of the packages run with the packages' own libraries: what this machine has does not matter.
libs=$(find "$x" -type d -name x86_64-linux-gnu -printf '%p:')
loader=$(find_x /ld-linux-x86-64.so.2)
run_x() {
    local program
    program=$(find_x "$1")
    shift
    "$loader" --library-path "$libs" "$program" "$@"
}

# --- kernel modules, dependencies first -----------------------------------------------------------------------------------------
# module NAME FOLDER: copies the module (unpacked) and what it depends on, and appends the file names to FOLDER/order.
module() {
    local name=${1//-/_} file dep
    [ ! -e "$2/$name.ko" ] || return 0
    file=$(find "$modules" \( -name "$name.ko*" -o -name "${name//_/-}.ko*" \) | head -n 1)
    if [ -z "$file" ]; then
        grep -q "/${name//_/[-_]}\.ko" "$modules/../modules.builtin" || die "the kernel has no module $name"
        return 0
    fi
    case $file in
    *.xz) xz -dc "$file" ;;
    *.zst) zstd -dqc "$file" ;;
    *) cat "$file" ;;
    esac >"$tmp/module.ko"
    local own=$tmp/module.$name
    mv "$tmp/module.ko" "$own"
    for dep in $(grep -aoP '(?<=\0)depends=\K[^\0]*|^depends=\K[^\0]*' "$own" | head -n 1 | tr ',' ' '); do
        module "$dep" "$2"
    done
    mv "$own" "$2/$name.ko"
    echo "$name.ko" >>"$2/order"
}

# --- first stage: finds the root disk -----------------------------------------------------------------------------------------
ird=$tmp/initrd
mkdir -p "$ird"/{bin,dev,proc,sys,root,modules}
cp "$busybox" "$ird/bin/busybox"
install -m 755 "$here/initrd-init" "$ird/init"
for m in virtio_pci virtio_blk; do module "$m" "$ird/modules"; done
find "$ird" -exec touch -h -d @0 {} +
(cd "$ird" && find . | sort | run_x /bin/cpio --quiet --reproducible --owner=0:0 -o -H newc) | gzip -9n >"$tmp/initrd.img"

# --- root file system ------------------------------------------------------------------------------------------------------
root=$tmp/root
mkdir -p "$root"/{bin,sbin,usr/bin,usr/sbin,lib/modules,lib64,etc/dropbear,dev,proc,sys,run,tmp,mnt,root/.ssh,var/log,var/lib/mini}
chmod 700 "$root/root" "$root/root/.ssh" "$root/etc/dropbear"
cp -r "$here/rootfs/." "$root/"
chmod 755 "$root"/etc/init.d/* "$root/usr/share/udhcpc/mini.script"
install -m 755 "$(find_x /bin/busybox)" "$root/bin/busybox"
install -m 755 "$tool" "$root/usr/bin/minitool"
for p in dropbear dropbearkey dbclient; do
    install -m 755 "$(find "$x" -path "*/bin/$p" -o -path "*/sbin/$p" -type f | head -n 1)" "$root/usr/bin/$p"
done
ln -s /usr/bin/dropbear "$root/usr/sbin/dropbear"
# The libraries that these programs name, as the loader of the packages themselves finds them.
for p in "$root"/usr/bin/{dropbear,dropbearkey,dbclient} "$root/bin/busybox"; do
    "$loader" --library-path "$libs" --list "$p" | sed -n 's/^\t\([^ ]*\) => \(\/[^ ]*\).*/\1 \2/p'
done | sort -u | while read -r name path; do
    case $name in /*) continue ;; esac # the loader itself
    case $path in "$x"/*) cp -L "$path" "$root/lib/$name" ;; *) die "$name comes from this machine: $path" ;; esac
done
cp -L "$loader" "$root/lib64/ld-linux-x86-64.so.2"
for a in $("$loader" --library-path "$libs" "$root/bin/busybox" --list); do
    case $a in
    [[]*) d=bin ;;
    init | getty | reboot | poweroff | halt | ip | ifconfig | route | insmod | rmmod | modprobe | fdisk | mke2fs | mkfs.* | udhcpc | syslogd | klogd) d=sbin ;;
    *) d=bin ;;
    esac
    [ "$a" = busybox ] || ln -sf /bin/busybox "$root/$d/$a"
done
ln -sf /bin/busybox "$root/sbin/mkfs.ext2"
for m in virtio_net virtio_rng button evdev; do module "$m" "$root/lib/modules"; done
ln -s /run/resolv.conf "$root/etc/resolv.conf"
ln -s /proc/mounts "$root/etc/mtab"
printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' >"$root/etc/passwd"
printf 'root:x:0:\ntty:x:5:\nnogroup:x:65534:\n' >"$root/etc/group"
printf 'root:*:19000:0:99999:7:::\nnobody:*:19000:0:99999:7:::\n' >"$root/etc/shadow"
chmod 600 "$root/etc/shadow"
printf '/bin/sh\n' >"$root/etc/shells"
printf 'mini\n' >"$root/etc/hostname"
printf '127.0.0.1 localhost\n' >"$root/etc/hosts"
printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n' >"$root/etc/nsswitch.conf"
printf 'NAME="Spinifex mini"\nID=spinifex-mini\nPRETTY_NAME="Spinifex mini (Debian packages)"\n' >"$root/etc/os-release"
printf 'Spinifex mini \\n \\l\n' >"$root/etc/issue"
find "$root" -exec touch -h -d @0 {} +

# --- the disk ----------------------------------------------------------------------------------------------------------------
# Sectors of 512 bytes: 2048 on, the FAT partition; behind it the root, last so that it can grow.
fat_mib=24 root_mib=28
fat_start=2048 fat_n=$((fat_mib * 2048))
root_start=$((fat_start + fat_n)) root_n=$((root_mib * 2048))
export SOURCE_DATE_EPOCH=0 E2FSPROGS_FAKE_TIME=1 MTOOLS_SKIP_CHECK=1
disk=$tmp/disk.img
truncate -s $(((root_start + root_n) * 512)) "$disk"
le32() { printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 & 255)) $(($1 >> 8 & 255)) $(($1 >> 16 & 255)) $(($1 >> 24 & 255)); }
part() { printf '\\x%02x\\xfe\\xff\\xff\\x%02x\\xfe\\xff\\xff' "$1" "$2"; le32 "$3"; le32 "$4"; }
put() { dd of="$disk" bs=1 seek="$1" conv=notrunc status=none; }
put 0 <"$(find_x /SYSLINUX/mbr.bin)"
# shellcheck disable=SC2059
printf "$(le32 0x5f696e69)\\0\\0$(part 128 239 $fat_start $fat_n)$(part 0 131 $root_start $root_n)" | put 440
printf '\x55\xaa' | put 510

fat=$tmp/fat.img
truncate -s $((fat_n * 512)) "$fat"
m() { local c=$1; shift; run_x /bin/mtools -c "$c" -i "$fat" "$@"; }
m mformat -H $fat_start -N 5f6d696e -v MINI -T $fat_n -h 255 -s 63 ::
options='console=ttyS0,115200n8 no_timer_check root=/dev/vda2'
printf 'DEFAULT mini\nPROMPT 0\nTIMEOUT 0\nLABEL mini\n  LINUX /vmlinuz\n  INITRD /initrd.img\n  APPEND %s\n' "$options" >"$tmp/syslinux.cfg"
printf 'timeout 0\ndefault mini\n' >"$tmp/loader.conf"
printf 'title Spinifex mini\nlinux /vmlinuz\ninitrd /initrd.img\noptions %s\n' "$options" >"$tmp/mini.conf"
cp "$vmlinuz" "$tmp/vmlinuz"
touch -d @315532800 "$tmp"/{vmlinuz,initrd.img,syslinux.cfg,loader.conf,mini.conf} # the oldest time that FAT can say
m mmd ::/EFI ::/EFI/BOOT ::/loader ::/loader/entries
m mcopy -m "$tmp/vmlinuz" "$tmp/initrd.img" "$tmp/syslinux.cfg" ::/
m mcopy -m "$(find_x /systemd-bootx64.efi)" ::/EFI/BOOT/BOOTX64.EFI
m mcopy -m "$tmp/loader.conf" ::/loader/
m mcopy -m "$tmp/mini.conf" ::/loader/entries/
# syslinux calls mtools by its many names.
mkdir "$tmp/bin"
mtools=$(find_x /bin/mtools)
for c in mcopy mattrib mmove mdel mformat; do
    printf '#!/bin/sh\nexec "%s" --library-path "%s" "%s" -c %s "$@"\n' "$loader" "$libs" "$mtools" $c >"$tmp/bin/$c"
    chmod 755 "$tmp/bin/$c"
done
PATH=$tmp/bin:$PATH run_x /usr/bin/syslinux --install "$fat"
dd if="$fat" of="$disk" bs=1M seek=1 conv=notrunc,sparse status=none

# The reserved descriptors leave room to grow to 1000 times the size without moving anything.
ext=$tmp/ext4.img
truncate -s $((root_n * 512)) "$ext"
mke2fs -q -t ext4 -d "$root" -L mini-root -U 6d696e69-7370-496e-8966-65780000a001 -b 4096 -m 1 -J size=4 \
    -E hash_seed=6d696e69-7370-496e-8966-65780000a002,lazy_itable_init=0,lazy_journal_init=0 -F "$ext"
# mke2fs copies the times of change, which no tool can set on the source files: they would differ in every build.
n_inodes=$(find "$root" | wc -l)
for ((i = 2; i < n_inodes + 16; i++)); do
    for field in atime ctime mtime crtime; do
        printf 'sif <%d> %s @0\nsif <%d> %s_extra 0\n' $i $field $i $field
    done
done >"$tmp/times"
debugfs -w -f "$tmp/times" "$ext" >/dev/null 2>&1
dd if="$ext" of="$disk" bs=1M seek=$((root_start / 2048)) conv=notrunc,sparse status=none

fallocate --dig-holes "$disk" 2>/dev/null || true
size=$(stat -c %s "$disk")
[ "$size" -lt $((64 << 20)) ] || die "the image has grown to $size bytes"
sha256sum <"$disk" | cut -d' ' -f1 >"$tmp/disk.sha256"
chmod 644 "$disk"
rm -f "$out.inputs"
cp --sparse=always "$disk" "$out.new"
sync "$out.new"
mv "$out.new" "$out"
echo "$inputs" >"$out.inputs"
echo "mini: $out $((size >> 20)) MiB, sha256 $(cat "$tmp/disk.sha256")"
