#!/bin/bash
# Installs programs, units and documents below PREFIX (default /usr/local); DESTDIR is honoured.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[ -n "${DESTDIR:-}" ] || need_root install
prefix=${PREFIX:-/usr/local}
build=$root/build-install

if [ "$(id -u)" = 0 ] && [ -z "${DESTDIR:-}" ]; then
    "$root/tools/packages.sh" install
fi
if [ ! -f "$build/build.ninja" ]; then
    quietly as_caller meson setup "$build" "$root" --buildtype release -Dtests=false
fi
quietly as_caller meson configure "$build" --prefix "$prefix"
cd "$build"
say 'building'
as_caller ninja --quiet | grep -v 'no work to do' || [ "${PIPESTATUS[0]}" = 0 ]
quietly meson install --no-rebuild
doc=${DESTDIR:-}$prefix/share/doc/spinifex
install -d -m 755 "$doc"
cp -r "$root/README.md" "$root/LICENSE" "$root/docs" "$doc/"
find "$doc" -type f -exec chmod 644 {} +

if [ -n "${DESTDIR:-}" ]; then
    exit 0
fi
# Users, the run folder and the units, where there is a systemd to tell.
if [ -d /run/systemd/system ]; then
    systemd-sysusers "$prefix/lib/sysusers.d/spinifex.conf"
    systemd-tmpfiles --create "$prefix/lib/tmpfiles.d/spinifex.conf"
    systemctl daemon-reload
fi
# A node that an older version made gets what this one needs besides.
[ ! -f /etc/spinifex/spinifex.toml ] || "$prefix/bin/spx" admin prepare
say 'installed; what to type next'
[ -f /etc/spinifex/spinifex.toml ] || echo '  sudo spx admin init --node node1 --nodes 1'
cat <<NEXT
  sudo systemctl enable --now spinifex.target
  sudo spx get nodes
  sudo spx admin images build mini
NEXT
