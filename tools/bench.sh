#!/bin/bash
# Every bench of the tree, one after the other.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build=$root/build-bench
python=$("$root/tools/python.sh") # a client of S3 for bench/s3
if [ ! -f "$build/build.ninja" ]; then
    quietly as_caller env SPX_PYTHON="$python" meson setup "$build" "$root" --buildtype release
fi
cd "$build"
as_caller ninja --quiet
meson test --no-rebuild --benchmark --verbose --num-processes 1 "$@"
