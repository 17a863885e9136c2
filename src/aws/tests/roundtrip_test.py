#!/usr/bin/env python3
"""Random inputs and outputs of every operation of EC2, IAM and STS: botocore writes them, the C codec reads them into its
structures and writes XML, botocore reads that, and both sides must be equal.

    roundtrip_test.py DRIVER [--seed N] [--rounds N]

Without botocore >= 1.43 it fails: the test must not pass by being skipped. SPX_PYTHON names an interpreter that has one.
"""
import base64
import datetime
import random
import re
import subprocess
import sys
import urllib.parse

import botocore
import botocore.loaders
import botocore.model
import botocore.parsers
import botocore.serialize

SERVICES = ('ec2', 'iam', 'sts')
UNCHECKED = set()
WORDS = ['a', 'i-0123456789abcdef0', 'é', '日本', '<&>"\'', ' x ', 'a+b=c&d', '%41', '😀', 'line\nbreak', 'cr\rlf', 'tab\t.']


def rand_text(r, shape):
    lo, hi = int(shape.metadata.get('min', 0)), int(shape.metadata.get('max', 40))
    n = r.randint(lo, min(hi, lo + 20)) if hi >= lo else lo
    s = ''
    while len(s) < n:
        s += r.choice(WORDS)
    pattern = shape.metadata.get('pattern')
    if not pattern:
        return s[:n]
    try:
        re.compile(pattern)
    except re.error:  # \p{L} and the like
        UNCHECKED.add(shape.name)
        return s[:n]
    for t in (s[:n], 'a' * max(n, 1), '1' * max(n, 1), '/' + 'a' * n + '/', 'v1', 'aa:' * 16, 'A' * max(n, 1), 'https://a', '123456789012'):
        if re.fullmatch(pattern, t, re.ASCII) and lo <= len(t) <= hi:
            return t
    UNCHECKED.add(shape.name)  # no text at hand that the pattern takes: such a case goes without the checks
    return s[:n]


def rand_number(r, shape):
    kind = shape.type_name
    lo, hi = shape.metadata.get('min'), shape.metadata.get('max')
    if kind in ('float', 'double'):
        if lo is not None:
            return r.uniform(float(lo), float(hi))
        return r.choice([0.0, 1.5, -2.25, r.uniform(-1e6, 1e6) if kind == 'double' else 0.125, 1e300 if kind == 'double' else 2.0])
    bits = 31 if kind == 'integer' else 63
    lo = -2**bits if lo is None else int(lo)
    hi = 2**bits - 1 if hi is None else min(int(hi), 2**bits - 1)
    return r.choice([lo, hi, r.randint(lo, hi), max(lo, min(hi, 7))])


def rand_value(r, shape, path, is_full):
    """is_full: every member there is, lists of one element; else about half of them."""
    kind = shape.type_name
    if kind == 'structure':
        out = {}
        for name, m in shape.members.items():
            need = name in shape.required_members
            if need or is_full or r.random() < (0.5 if len(path) < 3 else 0.25):
                v = rand_value(r, m, path + [name], is_full)
                if v is not None and v != {}:
                    out[name] = v
        if not out and shape.members:
            for name, m in shape.members.items():
                v = rand_value(r, m, path + [name], is_full)
                if v not in (None, {}, []):
                    out[name] = v
                    break
        return out
    if kind == 'list':
        lo = max(int(shape.metadata.get('min', 1)), 1)
        hi = lo if is_full else max(lo, min(int(shape.metadata.get('max', 3)), lo + 2))
        vs = [rand_value(r, shape.member, path, is_full) for _ in range(r.randint(lo, hi))]
        return [v for v in vs if v not in (None, {}, [])]
    if kind == 'map':
        keys = {rand_value(r, shape.key, path, is_full) for _ in range(r.randint(1, 3))}
        return {k: rand_value(r, shape.value, path, is_full) for k in sorted(keys)}
    if kind == 'string':
        return r.choice(shape.enum) if shape.enum else rand_text(r, shape)
    if kind == 'boolean':
        return r.random() < 0.5
    if kind == 'timestamp':
        return datetime.datetime.fromtimestamp(r.randint(0, 4102444800), datetime.timezone.utc)
    if kind == 'blob':
        lo = int(shape.metadata.get('min', 0))
        return bytes(r.randrange(256) for _ in range(r.randint(lo, lo + 20)))
    return rand_number(r, shape)


class Driver:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, service, name, mode, form):
        self.p.stdin.write(f'{service} {name} {int(mode)} {form}\n'.encode())
        self.p.stdin.flush()
        word, n = self.p.stdout.readline().split()
        return word == b'ok', self.p.stdout.read(int(n))

    def close(self):
        self.p.stdin.close()
        return self.p.wait()


class Case:
    """One shape, serialised as if it were the input of an operation and parsed as if it were an output."""

    def __init__(self, model, service):
        proto = model.metadata['protocol']
        self.serializer = (botocore.serialize.EC2Serializer if proto == 'ec2' else botocore.serialize.QuerySerializer)()
        self.parser = (botocore.parsers.EC2QueryParser if proto == 'ec2' else botocore.parsers.QueryParser)()
        self.service, self.proto = service, proto

    def form(self, shape, value):
        params = {}
        self.serializer._serialize(params, value, shape)
        return urllib.parse.urlencode(params)

    def parse(self, shape, xml):
        root = self.parser._parse_xml_string_to_dom(xml)
        return self.parser._parse_shape(shape, root)


def check_answers(model, case, driver, seed, failures):
    """Whole answers and error bodies, as botocore's clients read them. Gives how many there were."""
    n = 0
    for op_name in model.operation_names:
        op = model.operation_model(op_name)
        shape = op.output_shape
        r = random.Random(f'{seed}/answer/{op_name}')
        value = rand_value(r, shape, [], False) if shape is not None and shape.members else {}
        ok, xml = driver.ask(case.service, op_name, 2, case.form(shape, value) if value else '')
        n += 1
        got = case.parser.parse({'status_code': 200, 'headers': {}, 'body': xml}, shape) if ok else {}
        meta = got.pop('ResponseMetadata', {})
        for name, m in shape.members.items() if shape is not None else ():
            if case.proto == 'ec2' and op_name.startswith('Describe') and m.type_name == 'list' and not op_name.endswith('Attribute'):
                value.setdefault(name, [])  # the sets of a Describe are always there
        good = same(shape, value, got) if shape is not None else got == {}
        if not ok or meta.get('RequestId') != 'request-1' or not good:
            failures.append(f'{case.service} {op_name} answer, seed {seed}:\n  sent {value}\n  got  {got} {meta}')
    for code, text in (('InvalidAMIID.NotFound', "The image id '[ami-1]' does not exist"), ('DryRunOperation', 'a < b & "c" > é')):
        _, xml = driver.ask(case.service, code, 3, text)
        n += 1
        got = case.parser.parse({'status_code': 400, 'headers': {}, 'body': xml}, None)
        if (got['Error']['Code'], got['Error']['Message'], got['ResponseMetadata'].get('RequestId')) != (code, text, 'request-1'):
            failures.append(f'{case.service} error {code}: {got}')
    return n


def same(shape, a, b):
    """Equal, but for what the wire cannot tell: XML has no empty text apart from an absent one in structures without members."""
    kind = shape.type_name
    if kind == 'structure':
        keys = set(a) | set(b)
        return all(k in shape.members and k in a and k in b and same(shape.members[k], a[k], b[k]) for k in keys)
    if kind == 'list':
        return len(a) == len(b) and all(same(shape.member, x, y) for x, y in zip(a, b))
    if kind == 'map':
        return set(a) == set(b) and all(same(shape.value, a[k], b[k]) for k in a)
    if kind == 'float':
        return abs(a - b) <= 1e-6 * max(1.0, abs(a))
    if kind == 'blob':
        return bytes(a) == (b if isinstance(b, bytes) else base64.b64decode(b))
    return a == b


def main(argv):
    have = tuple(int(x) for x in botocore.__version__.split('.')[:2])
    if have < (1, 43):
        sys.exit(f'botocore {botocore.__version__} is too old, 1.43 is needed; SPX_PYTHON names another interpreter')
    seed = int(argv[argv.index('--seed') + 1]) if '--seed' in argv else 1
    rounds = int(argv[argv.index('--rounds') + 1]) if '--rounds' in argv else 2
    driver, failures, n, n_checked, size, total = Driver(argv[0]), [], 0, 0, 0, {}
    loader = botocore.loaders.Loader()
    for service in SERVICES:
        model = botocore.model.ServiceModel(loader.load_service_model(service, 'service-2'), service)
        case = Case(model, service)
        for op_name in model.operation_names:
            op = model.operation_model(op_name)
            for direction, shape in (('in', op.input_shape), ('out', op.output_shape)):
                for i in range(rounds if shape is not None and shape.members else 0):
                    r = random.Random(f'{seed}/{service}/{op_name}/{direction}/{i}')
                    UNCHECKED.clear()
                    value = rand_value(r, shape, [], i == 0)
                    is_checked = direction == 'in' and not UNCHECKED
                    ok, xml = driver.ask(service, shape.name, is_checked, case.form(shape, value))
                    n_checked += is_checked
                    n, size = n + 1, size + len(xml)
                    total[service, direction] = total.get((service, direction), 0) + 1
                    back = case.parse(shape, xml) if ok else None
                    if not ok or not same(shape, value, back):
                        failures.append(f'{service} {op_name} {direction} seed {seed} round {i}:\n  sent {value}\n  got  '
                                        f'{back if ok else xml.decode()}')
        n += check_answers(model, case, driver, seed, failures)
    rc = driver.close()
    for f in failures[:20]:
        print(f)
    print(f'{n} round trips ({n_checked} checked against the model), {len(failures)} failures, driver ended with {rc}, {size} bytes of XML; {total}')
    if n < 1900 * rounds // 2:
        print('too few cases: the models did not load')
    sys.exit(1 if failures or rc or n < 1900 * rounds // 2 else 0)


if __name__ == '__main__':
    main(sys.argv[1:])
