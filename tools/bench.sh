#!/bin/bash
# Every bench of the tree, one after the other.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build=$root/build-bench
if [ ! -f "$build/build.ninja" ]; then
    quietly as_caller meson setup "$build" "$root" --buildtype release
fi
cd "$build"
as_caller ninja --quiet
meson test --no-rebuild --benchmark --verbose --num-processes 1 "$@"
