#!/bin/bash
# Builds build-deb/spinifex_VERSION_ARCH.deb: a release build, without tests, below /usr. Needs no root when the packages for building are there.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
out=$root/build-deb
stage=$out/stage
[ "$(id -u)" != 0 ] || "$root/tools/packages.sh" install
command -v dpkg-shlibdeps >/dev/null || die 'dpkg-dev is not installed: apt-get install dpkg-dev'

rm -rf "$stage"
as_caller mkdir -p "$out"
if [ ! -f "$out/tree/build.ninja" ]; then
    quietly as_caller meson setup "$out/tree" "$root" --buildtype release --prefix /usr -Dtests=false
fi
say 'building'
as_caller ninja -C "$out/tree" --quiet | grep -v 'no work to do' || [ "${PIPESTATUS[0]}" = 0 ]
say 'packing'
as_caller env DESTDIR="$stage" meson install -C "$out/tree" --no-rebuild --strip --quiet
install_as() { as_caller install -D -m "$1" "$2" "$stage/$3"; }
made() { as_caller tee "$stage/$1" >/dev/null; }
as_caller mkdir -p "$stage/DEBIAN" "$stage/usr/share/doc/spinifex" "$stage/usr/share/bash-completion/completions" "$stage/usr/share/man/man1"
for f in README.md LICENSE docs; do as_caller cp -r "$root/$f" "$stage/usr/share/doc/spinifex/"; done
as_caller mv "$stage/usr/share/doc/spinifex/LICENSE" "$stage/usr/share/doc/spinifex/copyright"
"$stage/usr/bin/spx" completion bash | made usr/share/bash-completion/completions/spx
"$stage/usr/bin/spx" manual | gzip -9n | made usr/share/man/man1/spx.1.gz
find "$stage" -type d -exec chmod 755 {} +
find "$stage/usr/share/doc" "$stage/usr/share/man" "$stage/usr/share/bash-completion" -type f -exec chmod 644 {} +
for f in postinst prerm postrm; do install_as 755 "$root/packaging/deb/$f" "DEBIAN/$f"; done

# What the programs are linked with, then what they start.
mapfile -t programs < <(find "$stage/usr/bin" "$stage/usr/libexec" -type f -perm -u+x)
work=$(as_caller mktemp -d)
trap 'rm -rf "$work"' EXIT
as_caller mkdir "$work/debian"
printf 'Source: spinifex\n\nPackage: spinifex\nArchitecture: any\n' | as_caller tee "$work/debian/control" >/dev/null
libraries=$(cd "$work" && as_caller dpkg-shlibdeps --ignore-missing-info -O "${programs[@]/#/-e}" 2>/dev/null | sed -n 's/^shlibs:Depends=//p')
[ -n "$libraries" ] || die 'dpkg-shlibdeps found no libraries'
version=$("$stage/usr/bin/spx" version | cut -d' ' -f2)
arch=$(dpkg --print-architecture)
case $arch in arm64) qemu=qemu-system-arm ;; *) qemu=qemu-system-x86 ;; esac
made DEBIAN/control <<CONTROL
Package: spinifex
Version: $version
Architecture: $arch
Maintainer: Spinifex maintainers <root@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$stage" | cut -f1)
Depends: $libraries, $qemu, qemu-utils, systemd
Recommends: ovmf | qemu-efi-aarch64, awscli, chrony
Section: admin
Priority: optional
Description: cloud for one box or a few that speaks AWS
 EC2 instances (QEMU), EBS volumes with snapshots, S3 objects and VPC
 networks on your own hardware, without internet. The AWS CLI, SDKs and
 Terraform work unchanged.
CONTROL
deb=$out/spinifex_${version}_$arch.deb
as_caller dpkg-deb --root-owner-group --build "$stage" "$deb" >/dev/null
rm -rf "$stage"
echo "$deb"
say 'what to type next, there'
echo "  sudo apt install ./$(basename "$deb")
  sudo spx admin init --node node1 --nodes 1
  sudo systemctl start spinifex.target"
