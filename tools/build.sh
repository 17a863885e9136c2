#!/bin/bash
# Builds everything that runs into build/, as the person who called.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

jobs=$(nproc)
# A compiler takes up to 700 MB: small boxes must not swap.
mem=$(awk '/MemAvailable/ {print int($2 / 700000)}' /proc/meminfo)
[ "$jobs" -le "$mem" ] || jobs=$((mem > 0 ? mem : 1))

if [ ! -f "$build/build.ninja" ]; then
    quietly as_caller meson setup "$build" "$root" -Dtests=false
fi
cd "$build"
quietly as_caller ninja build.ninja # when meson files changed
as_caller ninja -j "$jobs" --quiet | grep -v "no work to do" || [ "${PIPESTATUS[0]}" = 0 ]
