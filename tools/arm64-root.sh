#!/bin/bash
# arm64-root.sh FOLDER: the libraries and headers of arm64 that a cross build links, unpacked below FOLDER; the host's own packages and
# architectures stay as they are. Writes FOLDER/cross.ini for meson. Does nothing when it is there already.
set -euo pipefail
dir=$(mkdir -p "$1" && cd "$1" && pwd)
[ -f "$dir/cross.ini" ] && exit 0
mkdir -p "$dir/apt/lists/partial" "$dir/apt/cache/archives/partial" "$dir/root"
: >"$dir/apt/status"
apt=(apt-get -qq -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt/cache" -o "Dir::State::status=$dir/apt/status"
    -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Install-Recommends=false -o Debug::NoLocking=true
    -o APT::Sandbox::User="$(id -un)")
"${apt[@]}" update
"${apt[@]}" install --download-only -y libjansson-dev libexpat1-dev libssl-dev libcurl4-openssl-dev libsqlite3-dev libmnl-dev libnftables-dev \
    libseccomp-dev librocksdb-dev zlib1g-dev liblzma-dev libzstd-dev libisal-dev libc6-dev >/dev/null
for deb in "$dir"/apt/cache/archives/*.deb; do
    dpkg-deb -x "$deb" "$dir/root"
done
rm -rf "$dir/apt"
lib=$dir/root/usr/lib/aarch64-linux-gnu
cat >"$dir/cross.ini.new" <<INI
[binaries]
c = 'aarch64-linux-gnu-gcc'
ar = 'aarch64-linux-gnu-ar'
strip = 'aarch64-linux-gnu-strip'
pkgconfig = 'pkg-config'
[properties]
sys_root = '$dir/root'
pkg_config_libdir = '$lib/pkgconfig:$dir/root/usr/share/pkgconfig'
[built-in options]
c_args = ['--sysroot=$dir/root', '-isystem', '$dir/root/usr/include/aarch64-linux-gnu']
c_link_args = ['--sysroot=$dir/root', '-L$lib', '-Wl,-rpath-link,$lib', '-Wl,-rpath-link,$dir/root/lib/aarch64-linux-gnu']
[host_machine]
system = 'linux'
cpu_family = 'aarch64'
cpu = 'aarch64'
endian = 'little'
INI
mv "$dir/cross.ini.new" "$dir/cross.ini"
