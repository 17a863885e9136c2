#!/bin/bash
# Installs programs, units and documents below PREFIX (default /usr/local); DESTDIR is honoured.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
[ -n "${DESTDIR:-}" ] || need_root install
build=$root/build-install
if [ ! -f "$build/build.ninja" ]; then
    quietly as_caller meson setup "$build" "$root" --prefix "${PREFIX:-/usr/local}" --buildtype release -Dtests=false
fi
cd "$build"
as_caller ninja --quiet
meson install --no-rebuild --quiet
