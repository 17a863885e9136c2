#!/bin/bash
# Prints the interpreter for the tests that speak as AWS's own client: SPX_PYTHON, python3 when it has the botocore that our
# tables were made from (or a later 1.43), else one in a folder of its own with boto3 from PyPI.
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
version=1.43.11
venv=$(check_folder)/venv

has_botocore() {
    as_caller "$1" - "$version" 2>/dev/null <<'PY'
import sys
import boto3, botocore
number = lambda v: [int(x) for x in v.split(".")[:3]]
have, want = number(botocore.__version__), number(sys.argv[1])
sys.exit(not (have[:2] == want[:2] and have >= want))
PY
}

for p in "${SPX_PYTHON:-}" "$(command -v python3 || true)" "$venv/bin/python3"; do
    if [ -n "$p" ] && [ -x "$(command -v "$p")" ] && has_botocore "$p"; then
        command -v "$p"
        exit 0
    fi
done
say "boto3 $version from PyPI, for the tests" >&2
quietly as_caller python3 -m venv --clear "$venv" || die 'python3 cannot make an environment: is the package python3-venv installed?'
quietly as_caller "$venv/bin/python3" -m pip install --quiet "boto3==$version" "botocore==$version" ||
    die "no boto3 $version from PyPI (see above): give an interpreter that has it by SPX_PYTHON"
echo "$venv/bin/python3"
