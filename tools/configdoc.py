#!/usr/bin/env python3
"""Keeps the table of keys in docs/guides/configuration.md equal to what "spx config doc" says.

  tools/configdoc.py SPX FILE           writes the table into FILE
  tools/configdoc.py --check SPX FILE   exit status 1 when the table is another
"""
import subprocess
import sys

check = sys.argv[1] == "--check"
spx, path = sys.argv[2:4] if check else sys.argv[1:3]
table = subprocess.run([spx, "config", "doc"], capture_output=True, text=True, check=True).stdout
with open(path) as f:
    old = f.read()
start = old.index("| key | type | default | meaning |")
new = old[:start] + table
if check and new != old:
    sys.exit(f"{path} is not what {spx} config doc says: tools/configdoc.py {spx} {path}")
if not check:
    with open(path, "w") as f:
        f.write(new)
