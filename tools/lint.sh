#!/bin/bash
# Edges of rooms, banned calls, sizes (tools/lint), then clang-format.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"
status=0
[ ! -x tools/lint ] || tools/lint || status=1
format=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$format" ]; then
    echo 'clang-format is not installed: formatting was not looked at'
elif [[ $("$format" --version) != *'version 14.'* ]]; then
    echo 'clang-format is not version 14, whose result counts: formatting was not looked at'
else
    find src tests fuzz packaging -name '*.[ch]' -print0 | xargs -0 -r "$format" --dry-run --Werror || status=1
fi
exit $status
