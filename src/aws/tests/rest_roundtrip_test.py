#!/usr/bin/env python3
"""Random inputs and outputs of every operation of S3: botocore writes a request, the C codec routes and decodes it; the C codec
writes an answer, botocore parses it. Both sides must be equal.

    rest_roundtrip_test.py DRIVER [--seed N] [--rounds N]

Without botocore >= 1.43 it fails: the test must not pass by being skipped. SPX_PYTHON names an interpreter that has one.
"""
import datetime
import email.utils
import json
import random
import subprocess
import sys
import urllib.parse
import xml.etree.ElementTree

import botocore
import botocore.awsrequest
import botocore.loaders
import botocore.model
import botocore.parsers
import botocore.serialize

from roundtrip_test import rand_value, same

# The same requests as their successors, so never chosen; or not at our endpoints at all.
NOT_ROUTED = {'GetBucketLifecycle', 'PutBucketLifecycle', 'GetBucketNotification', 'PutBucketNotification', 'ListDirectoryBuckets',
              'WriteGetObjectResponse'}
# Answers that are event streams: Select is not there.
NO_ANSWER = {'SelectObjectContent'}
HEADER_WORDS = ['a', 'B-7', 'x y', 'a;b="c"', '%41', 'w/x', "it's", '*', '<&>', '1, 2']
KEYS = ['a', 'a/b', '/lead', 'a//b', 'a/../b', 'tr/', '%41', 'a+b c', 'é/日本', '😀', '?&=#', "'<>\"", '.', '~_-!*()', 'x' * 1024]


def header_text(r):
    return ' '.join(r.choice(HEADER_WORDS) for _ in range(r.randint(1, 3)))


def rand_header(r, shape, name):
    kind = shape.type_name
    if kind == 'map':
        return {f'k-{r.randint(0, 99)}': header_text(r) for _ in range(r.randint(1, 3))}
    if kind == 'list':
        return [r.choice(shape.member.enum) for _ in range(r.randint(1, 3))]
    if kind == 'string' and not shape.enum:
        return header_text(r)
    return rand_value(r, shape, [name], False)


def rand_top(r, shape, is_full):
    """The members of an input or output, each in the form that its place can carry."""
    out = {}
    for name, m in shape.members.items():
        at = m.serialization.get('location')
        if m.serialization.get('streaming') or m.type_name == 'blob':
            continue
        if not (name in shape.required_members or is_full or r.random() < 0.4):
            continue
        if at == 'uri':
            v = r.choice(KEYS) if name == 'Key' else 'bucket-1'
        elif at in ('header', 'headers'):
            v = rand_header(r, m, name)
        elif at == 'querystring' and m.type_name == 'string' and not m.enum:
            v = r.choice(KEYS)
        elif m.type_name == 'string' and shape.serialization.get('payload') == name:
            v = '{"a": "é"}'  # an empty body is no policy
        else:
            v = rand_value(r, m, [name], is_full)
        if v not in (None, {}, []):
            out[name] = v
    return out


def plain(v):
    """As JSON carries it: times in seconds, but for Expires, which is a text in the tables and a time in botocore's clients only."""
    if isinstance(v, dict):
        return {k: email.utils.format_datetime(x, True) if k == 'Expires' else plain(x) for k, x in v.items()}
    if isinstance(v, list):
        return [plain(x) for x in v]
    if isinstance(v, datetime.datetime):
        return int(v.timestamp())
    return v


def tidy(v):
    """Without empty lists and structures: flattened ones leave no trace."""
    if isinstance(v, dict):
        return {k: tidy(x) for k, x in v.items() if tidy(x) != []}
    return [tidy(x) for x in v] if isinstance(v, list) else v


class Driver:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, **what):
        self.p.stdin.write(json.dumps(what).encode() + b'\n')
        self.p.stdin.flush()
        return json.loads(self.p.stdout.readline())

    def close(self):
        self.p.stdin.close()
        return self.p.wait()


def check_input(op, driver, serializer, r, is_full, is_vhost):
    value = rand_top(r, op.input_shape, is_full)
    rq = serializer.serialize_to_request(value, op)
    query = urllib.parse.urlencode(rq['query_string'], quote_via=urllib.parse.quote) if rq['query_string'] else ''
    path, _, fixed = rq['url_path'].partition('?')
    query = '&'.join(q for q in (fixed, query, 'x-id=' + op.name) if q)
    headers = [[k, str(v)] for k, v in rq['headers'].items()]
    host = 's3.test'
    if is_vhost and 'Bucket' in value:
        host, path = 'bucket-1.S3.test:8443', path[len('/bucket-1'):] or '/'
    body = (rq['body'] if isinstance(rq['body'], str) else (rq['body'] or b'').decode()).replace('\r', '&#xD;')  # as its clients do
    got = driver.ask(mode='in', method=rq['method'], path=path, query=query, headers=[['Host', host]] + headers, body=body)
    want = {'op': op.name, 'bucket': value.get('Bucket'), 'key': value.get('Key'), 'input': plain(tidy(value))}
    got = {k: tidy(v) for k, v in got.items()}
    return got == want, want, got, body


def check_output(op, driver, parser, r, is_full):
    shape = op.output_shape
    value = rand_top(r, shape, is_full) if shape is not None else {}
    ans = driver.ask(mode='out', op=op.name, output=plain(value))
    if 'error' in ans:
        return False, value, ans
    headers = botocore.awsrequest.HeadersDict(ans['headers'])
    body = ans['body'].encode()
    got = parser.parse({'status_code': ans['status'], 'headers': headers, 'body': body}, shape) if shape is not None else {}
    meta = got.pop('ResponseMetadata', {'RequestId': headers['x-amz-request-id'], 'HostId': headers['x-amz-id-2']})
    if op.name == 'GetBucketLocation' and 'LocationConstraint' in value:
        got = {'LocationConstraint': xml.etree.ElementTree.fromstring(body).text}
    got = {k: v for k, v in got.items() if not shape.members[k].serialization.get('streaming') and shape.members[k].type_name != 'blob'}
    want = tidy(value)
    payload = shape.serialization.get('payload') if shape is not None else None
    if payload and shape.members[payload].type_name == 'structure':
        want.setdefault(payload, {})
        got.setdefault(payload, {})
    got.pop('ExpiresString', None)
    for side in (want, got):  # absent and empty cannot be told apart
        for name in ('Metadata', 'Policy'):
            if not side.get(name):
                side.pop(name, None)
    good = (same(shape, want, tidy(got)) if shape is not None else not body) and ans['status'] == op.http.get('responseCode', 200)
    good = good and (meta.get('RequestId'), meta.get('HostId')) == ('request-1', 'host-1')
    return good and (not body or headers['Content-Type'] in ('application/xml', 'application/json')), want, (got, ans)


def check_errors(driver, parser, failures):
    cases = (('NoSuchKey', 'not < there', 404), ('SlowDown', 'wait', 503), ('NotImplemented', 'é', 501), ('MalformedXML', 'x', 400),
             ('OpenFailed', 'secret path', 500))
    for code, text, status in cases:
        ans = driver.ask(mode='error', code=code, text=text)
        headers = botocore.awsrequest.HeadersDict(ans['headers'])
        got = parser.parse({'status_code': ans['status'], 'headers': headers, 'body': ans['body'].encode()}, None)
        shown = (got['Error']['Code'], got['Error']['Message'], got['ResponseMetadata']['RequestId'], ans['status'])
        want = (code, text, 'request-1', status) if status != 500 else ('InternalError', shown[1], 'request-1', 500)
        if shown != want or 'secret' in ans['body'] or (code == 'NoSuchKey' and got['Error']['Key'] != 'k & <k>'):
            failures.append(f'error {code}: {ans}')
    return len(cases)


def main(argv):
    have = tuple(int(x) for x in botocore.__version__.split('.')[:2])
    if have < (1, 43):
        sys.exit(f'botocore {botocore.__version__} is too old, 1.43 is needed; SPX_PYTHON names another interpreter')
    seed = int(argv[argv.index('--seed') + 1]) if '--seed' in argv else 1
    rounds = int(argv[argv.index('--rounds') + 1]) if '--rounds' in argv else 4
    model = botocore.model.ServiceModel(botocore.loaders.Loader().load_service_model('s3', 'service-2'), 's3')
    serializer, parser = botocore.serialize.create_serializer('rest-xml'), botocore.parsers.create_parser('rest-xml')
    driver, failures, n = Driver(argv[0]), [], 0
    for name in model.operation_names:
        op = model.operation_model(name)
        for i in range(rounds):
            r = random.Random(f'{seed}/{name}/{i}')
            if name not in NOT_ROUTED:
                n += 1
                good, want, got, body = check_input(op, driver, serializer, r, i == 0, i % 2 == 1)
                if not good:
                    failures.append(f'{name} input, seed {seed} round {i}:\n  want {want}\n  got  {got}\n  body {body}')
            if name not in NO_ANSWER and name not in NOT_ROUTED:
                n += 1
                good, want, got = check_output(op, driver, parser, r, i == 0)
                if not good:
                    failures.append(f'{name} output, seed {seed} round {i}:\n  want {want}\n  got  {got}')
    n += check_errors(driver, parser, failures)
    rc = driver.close()
    for f in failures[:10]:
        print(f)
    print(f'{n} round trips, {len(failures)} failures, driver ended with {rc}')
    sys.exit(1 if failures or rc or n < 200 * rounds else 0)


if __name__ == '__main__':
    main(sys.argv[1:])
