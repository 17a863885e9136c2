#!/bin/bash
# What takes too long for every change: the tests three times over, a build with clang, a build for arm64, ten minutes of fuzzing.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

say 'clang'
if command -v clang >/dev/null; then
    [ -f "$root/build-clang/build.ninja" ] || CC=clang quietly as_caller env CC=clang meson setup "$root/build-clang" "$root"
    as_caller ninja -C "$root/build-clang" --quiet
else
    echo 'clang is not installed: left out'
fi
say 'arm64'
if [ "$(id -u)" = 0 ]; then
    "$root/tools/packages.sh" install soak
fi
as_caller "$root/tools/arm64-root.sh" "$root/build-arm64-root"
[ -f "$root/build-arm64/build.ninja" ] ||
    quietly as_caller meson setup "$root/build-arm64" "$root" --cross-file "$root/build-arm64-root/cross.ini" -Dtests=false
as_caller ninja -C "$root/build-arm64" --quiet
say 'fuzzing'
if command -v clang >/dev/null; then
    [ -f "$root/build-fuzz/build.ninja" ] || quietly as_caller env CC=clang meson setup "$root/build-fuzz" "$root" -Dfuzz=true \
        -Db_sanitize=address,undefined -Db_lundef=false
    as_caller ninja -C "$root/build-fuzz" --quiet
    mapfile -t targets < <(find "$root/build-fuzz/src" -name '*_fuzz' -type f -perm -u+x)
    for t in "${targets[@]}"; do
        name=$(basename "$t" _fuzz)
        [ -d "$root/fuzz/corpus/$name" ] || name=${name#*_} # some carry the name of their room: net_http1_parse
        found=$(as_caller mktemp -d)
        quietly as_caller "$t" -max_total_time=$((${SOAK_FUZZ_SECONDS:-600} / ${#targets[@]})) "$found" "$root/fuzz/corpus/$name"
        rm -rf "$found"
    done
fi
if [ "$(id -u)" = 0 ] && command -v mmdebstrap >/dev/null; then
    for release in bookworm trixie; do
        say "a package for $release"
        "$root/tests/soak/deb_root.sh" "$release"
    done
fi
say 'tests, three times'
SPX_CHURN_SECONDS=${SOAK_CHURN_SECONDS:-120} SPX_RACE_ROUNDS=50 SPX_ATTACH_ROUNDS=${SOAK_ATTACH_ROUNDS:-1000} "$root/tools/check.sh" --repeat 3
