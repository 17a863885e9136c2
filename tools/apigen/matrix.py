#!/usr/bin/env python3
"""Writes docs/support-matrix.md from the .api and .ops files; with --check it fails when the file is not what it would write.

    matrix.py [--check] API_DIR OUT.md service...
"""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apifile import read_api, read_ops  # noqa: E402

TITLES = {'ebs': 'EBS direct APIs', 'ec2': 'EC2', 'iam': 'IAM', 's3': 'S3', 'sts': 'STS'}


def lines(api_dir, services):
    yield '# Which AWS operations are there'
    yield ''
    yield 'Made by `tools/apigen/matrix.py` from `src/aws/api/*.ops`; do not edit. *full*: everything AWS documents for it that makes'
    yield 'sense here; *partial*: what is missing is refused with an error, never ignored. Operations that are not listed answer'
    yield '`InvalidAction`; S3 has a list of what answers `NotImplemented`.'
    yield ''
    apis = {}
    for s in services:
        apis[s] = read_api(os.path.join(api_dir, s + '.api'))
        read_ops(os.path.join(api_dir, s + '.ops'), apis[s])
    yield '| service | API version | full | partial | of |'
    yield '|---|---|---|---|---|'
    for s in services:
        states = [o.state for o in apis[s].ops.values()]
        yield f'| {TITLES.get(s, s)} | {apis[s].head["version"]} | {states.count("full")} | {states.count("partial")} | {len(states)} |'
    for s in services:
        done = sorted(o.name for o in apis[s].ops.values() if o.state != 'no')
        if not done:
            continue
        yield ''
        yield f'## {TITLES.get(s, s)}'
        yield ''
        yield '| operation | state | remarks |'
        yield '|---|---|---|'
        for name in done:
            o = apis[s].ops[name]
            yield f'| {name} | {o.state} | {o.note} |'
        if apis[s].head['protocol'] == 'rest-xml':
            yield from absent(apis[s])


def absent(api):
    """REST: what is known and answers 501; the deprecated twins of others and what has no route at all are not told."""
    yield ''
    yield 'Known, authenticated, authorised and answered 501 `NotImplemented`:'
    names = sorted(o.name for o in api.ops.values() if o.state == 'no' and o.is_routed and not o.old)
    yield ', '.join(names) + '.'


def main(argv):
    check = argv[:1] == ['--check']
    api_dir, out, *services = argv[1:] if check else argv
    text = '\n'.join(lines(api_dir, services)) + '\n'
    if check:
        with open(out, encoding='utf-8') as f:
            if f.read() != text:
                sys.exit(f'{out} is out of date: run tools/apigen/matrix.py {api_dir} {out} {" ".join(services)}')
        return
    with open(out, 'w', encoding='utf-8') as f:
        f.write(text)


if __name__ == '__main__':
    main(sys.argv[1:])
