#!/bin/bash
# Builds with AddressSanitizer and UBSan and runs every test. The last line: N passed, N failed, N skipped.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
build=$root/build-check

if [ "$(id -u)" = 0 ]; then
    "$root/tools/packages.sh" install check
fi
if [ ! -f "$build/build.ninja" ]; then
    quietly as_caller meson setup "$build" "$root" -Db_sanitize=address,undefined -Db_lundef=false
fi
jobs=$(nproc)
mem=$(awk '/MemAvailable/ {print int($2 / 1000000)}' /proc/meminfo)
[ "$jobs" -le "$mem" ] || jobs=$((mem > 0 ? mem : 1))
cd "$build"
as_caller ninja -j "$jobs" --quiet

# Leaks in the tools that tests start (python) are not ours; ours are found because the tests end in order.
status=0
log=$(mktemp)
meson test --no-rebuild --print-errorlogs --num-processes "$jobs" "$@" >"$log" 2>&1 || status=$?
grep -vE '^ *[0-9]+/[0-9]+ .* OK ' "$log" | tail -n 200 || true
count() { awk -v k="$1" '$1 == k":" {n = $2} END {print n + 0}' "$log"; }
counts() { awk -v k="$1 $2" 'index($0, k":") == 1 {n = $3} END {print n + 0}' "$log"; }
passed=$(($(count Ok) + $(counts Expected Fail)))
failed=$(($(count Fail) + $(count Timeout) + $(counts Unexpected Pass)))
skipped=$(count Skipped)
rm -f "$log"
if [ "$passed" = 0 ] && [ "$failed" = 0 ]; then
    failed=1
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$status" = 0 ] && [ "$failed" = 0 ]
