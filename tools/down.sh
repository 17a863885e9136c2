#!/bin/bash
# Stops guests, then services, and keeps all data.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
need_root down
if [ ! -x "$spx" ]; then
    echo 'nothing was built, so nothing runs'
    exit 0
fi
exec "$spx" down
