#!/bin/bash
# Builds with AddressSanitizer and UBSan and runs every test, or those that the arguments of "meson test" choose:
#   sudo make check         tools/check.sh --suite unit         (without root: only tests that need none)
# The last line: N passed, N failed, N skipped.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

if [ "$(id -u)" = 0 ]; then
    "$root/tools/packages.sh" install check
else
    [ $# -gt 0 ] || die 'tests start guests and networks of their own, which only root may: sudo make check
(without root: tools/check.sh --suite unit --suite fuzz)'
    mapfile -t lost < <("$root/tools/packages.sh" missing check)
    [ "${#lost[@]}" = 0 ] || echo "not installed, which may be too little: ${lost[*]}"
fi
build=$(check_folder)
python=$("$root/tools/python.sh")
if [ ! -f "$build/build.ninja" ] || [ "$(cat "$build/python.txt" 2>/dev/null)" != "$python" ]; then
    reconfigure=()
    [ ! -f "$build/build.ninja" ] || reconfigure=(--reconfigure)
    quietly as_caller env SPX_PYTHON="$python" meson setup "${reconfigure[@]}" "$build" "$root" -Db_sanitize=address,undefined -Db_lundef=false
    as_caller tee "$build/python.txt" <<<"$python" >/dev/null
fi
jobs=$(nproc)
mem=$(awk '/MemAvailable/ {print int($2 / 1000000)}' /proc/meminfo)
[ "$jobs" -le "$mem" ] || jobs=$((mem > 0 ? mem : 1))
start=$SECONDS
cd "$build"
say 'building'
quietly as_caller env SPX_PYTHON="$python" ninja build.ninja # when meson files changed
as_caller ninja -j "$jobs" --quiet all meson-test-prereq | grep -v 'no work to do' || [ "${PIPESTATUS[0]}" = 0 ]
built=$((SECONDS - start))

# Tests call the AWS CLI by its name; sudo may have shortened the path.
if aws=$(find_aws); then
    PATH=$PATH:$(dirname "$aws")
fi
# The small image, once for all tests; package lists may be old.
mini() {
    as_caller "$root/packaging/mini/build.sh" --out "$build/mini.raw" --tool "$build/packaging/mini/minitool"
}
if [ "$(id -u)" = 0 ] && [ -z "${SPX_MINI:-}" ]; then
    quietly mini 2>/dev/null || { quietly apt-get update || true; quietly mini; }
    export SPX_MINI=$build/mini.raw
fi
say 'testing'
status=0
log=$(mktemp)
# Most tests wait for disks and guests more than they work: one more at a time than there are processors. A slow machine is no fault.
SPX_PYTHON=$python meson test --no-rebuild --print-errorlogs --num-processes $((jobs + 1)) --timeout-multiplier 3 "$@" >"$log" 2>&1 || status=$?
grep -vE '^ *[0-9]+/[0-9]+ .* OK ' "$log" | tail -n 200 || true
# Lines as " 7/90 spinifex:unit / base/str   OK   0.02s": how long each suite took.
awk -v built="$built" 'BEGIN {printf "build %d s", built}
    $1 ~ /^[0-9]+\/[0-9]+$/ {for (i = 2; i <= NF; i++) if ($i ~ /^[0-9.]+s$/) {sub(/.*:/, "", $2); t[$2] += $i; n[$2]++}}
    END {for (s in t) printf "; %s: %d tests, %d s", s, n[s], t[s]; print ""}' "$log"
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
