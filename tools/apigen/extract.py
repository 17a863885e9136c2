#!/usr/bin/env python3
"""Writes src/aws/api/<service>.api from an installed botocore: facts only (names, types, constraints), no prose.

    python3 tools/apigen/extract.py [--min 1.43] OUT_DIR service...
    python3 tools/apigen/extract.py --check OUT_DIR service...    fails when a file differs from what this botocore gives

Form of the file, one fact a line, shapes and operations sorted by name, members in the model's order:
    service NAME / source (what it was extracted from) / version / protocol / xmlns / id / signing
    op NAME [in=SHAPE] [out=SHAPE] [wrap=ELEMENT] [token=IN,OUT] [limit=MEMBER] [unsigned] [errors=SHAPE,...]
       REST: http=METHOD,URI[,STATUS] [checksum=MEMBER|-[,required]] [root=ELEMENT] [old]     (root: of the input; old: deprecated)
    error SHAPE code=CODE status=N
    struct NAME            members follow, indented: NAME SHAPE [loc=X] [q=X] [req] [idem] [flat] [ts=FORMAT]
       REST: [at=uri|query|header|headers|status] [payload] [stream] [attr]      (at: default is the body; attr: an XML attribute)
       and of the structure: [ns=PREFIX,URI] [events]
    list NAME ELEMENT [loc=X] [flat] [min=N] [max=N]
    map NAME KEY VALUE [kloc=X] [vloc=X] [flat] [min=N] [max=N]
    enum NAME VALUE...     (a space is %20, a percent sign %25)
    string|integer|long|float|double|boolean|timestamp|blob NAME [min=N] [max=N] [sensitive] [ts=FORMAT] [pattern=REST OF LINE]
"""
import gzip
import json
import os
import sys


def newest(folder):
    return sorted(d for d in os.listdir(folder) if os.path.isdir(os.path.join(folder, d)))[-1]


def load(base, service, name):
    path = os.path.join(base, service, newest(os.path.join(base, service)), name)
    if os.path.exists(path + '.gz'):
        with gzip.open(path + '.gz') as f:
            return json.load(f)
    if os.path.exists(path):
        with open(path, encoding='utf-8') as f:
            return json.load(f)
    return {}


def reachable(model):
    todo, seen = [], set()
    for op in model['operations'].values():
        for k in ('input', 'output'):
            if k in op:
                todo.append(op[k]['shape'])
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        s = model['shapes'][name]
        todo += [m['shape'] for m in s.get('members', {}).values()]
        todo += [s[k]['shape'] for k in ('member', 'key', 'value') if k in s]
    return seen


def number(v):
    return str(int(v)) if float(v).is_integer() else repr(v)


def limits(s):
    return [f'{k}={number(s[k])}' for k in ('min', 'max') if k in s]


LOCATIONS = {'uri': 'uri', 'querystring': 'query', 'header': 'header', 'headers': 'headers', 'statusCode': 'status'}


def ref_words(m, target, rest):
    w = []
    loc = m.get('locationName', target.get('locationName'))  # a shape's own name counts where the member has none
    if loc:
        w.append('loc=' + loc)
    if 'queryName' in m:
        w.append('q=' + m['queryName'])
    if m.get('flattened'):
        w.append('flat')
    if 'timestampFormat' in m:
        w.append('ts=' + m['timestampFormat'])
    if rest:
        w += ['at=' + LOCATIONS[m['location']]] if 'location' in m else []
        w += ['attr'] if m.get('xmlAttribute') else []
        w += ['stream'] if m.get('streaming') or target.get('streaming') else []
    return w


def shape_lines(name, s, shapes, rest):
    kind = s['type']
    flat = ['flat'] if s.get('flattened') else []
    if kind == 'structure':
        words = ['struct', name]
        if rest:
            ns = s.get('xmlNamespace')
            words += [f'ns={ns["prefix"]},{ns["uri"]}'] if isinstance(ns, dict) and 'prefix' in ns else []
            words += ['events'] if s.get('eventstream') else []
        yield ' '.join(words)
        required = set(s.get('required', ()))
        for mname, m in s['members'].items():
            words = [mname, m['shape']] + ref_words(m, shapes[m['shape']], rest)
            words += ['payload'] if rest and s.get('payload') == mname else []
            words += ['req'] if mname in required else []
            words += ['idem'] if m.get('idempotencyToken') else []
            yield '  ' + ' '.join(words)
    elif kind == 'list':
        loc = ['loc=' + s['member']['locationName']] if 'locationName' in s['member'] else []
        yield ' '.join(['list', name, s['member']['shape']] + loc + flat + limits(s))
    elif kind == 'map':
        words = ['map', name, s['key']['shape'], s['value']['shape']]
        words += ['kloc=' + s['key']['locationName']] if 'locationName' in s['key'] else []
        words += ['vloc=' + s['value']['locationName']] if 'locationName' in s['value'] else []
        yield ' '.join(words + flat + limits(s))
    elif 'enum' in s:
        assert '' not in s['enum'], name
        yield ' '.join(['enum', name] + [v.replace('%', '%25').replace(' ', '%20') for v in s['enum']])
    else:
        words = [kind, name] + limits(s)
        words += ['sensitive'] if s.get('sensitive') else []
        words += ['ts=' + s['timestampFormat']] if 'timestampFormat' in s else []
        words += ['pattern=' + s['pattern']] if 'pattern' in s else []
        yield ' '.join(words)


def http_words(op):
    http, sums = op['http'], op.get('httpChecksum', {})
    words = [f'http={http["method"]},{http["requestUri"]}' + (f',{http["responseCode"]}' if 'responseCode' in http else '')]
    if 'requestAlgorithmMember' in sums or sums.get('requestChecksumRequired') or op.get('httpChecksumRequired'):
        need = sums.get('requestChecksumRequired') or op.get('httpChecksumRequired')
        words.append('checksum=' + sums.get('requestAlgorithmMember', '-') + (',required' if need else ''))
    words += ['root=' + op['input']['locationName']] if 'locationName' in op.get('input', {}) else []
    return words + (['old'] if op.get('deprecated') else [])


def rest_namespace(model):
    """S3 names its namespace at every payload, not once."""
    uris = {m['xmlNamespace']['uri'] for s in model['shapes'].values() for m in s.get('members', {}).values()
            if 'uri' in m.get('xmlNamespace', ()) and 'prefix' not in m['xmlNamespace']}
    assert len(uris) == 1, uris
    return uris.pop()


def op_line(name, op, pages, rest):
    words = ['op', name]
    words += ['in=' + op['input']['shape']] if 'input' in op else []
    if 'output' in op:
        words.append('out=' + op['output']['shape'])
        words += ['wrap=' + op['output']['resultWrapper']] if 'resultWrapper' in op['output'] else []
    page = pages.get(name)
    if page:
        tin, tout = page.get('input_token'), page.get('output_token')
        if isinstance(tin, str) and isinstance(tout, str):
            words.append(f'token={tin},{tout}')
        words += ['limit=' + page['limit_key']] if 'limit_key' in page else []
    words += http_words(op) if rest else []
    words += ['unsigned'] if op.get('authtype') == 'none' else []
    errors = sorted(e['shape'] for e in op.get('errors', ()))
    words += ['errors=' + ','.join(errors)] if errors else []
    return ' '.join(words)


def botocore_version():
    import botocore
    return botocore.__version__


def extract(base, service):
    model = load(base, service, 'service-2.json')
    pages = load(base, service, 'paginators-1.json').get('pagination', {})
    meta = model['metadata']
    rest = meta['protocol'] in ('rest-xml', 'rest-json')
    # json services name their target and version differently; what is there is written down.
    out = [f'service {service}', f'source botocore {botocore_version()}', f'version {meta["apiVersion"]}', f'protocol {meta["protocol"]}']
    out += [f'xmlns {meta["xmlNamespace"]}'] if 'xmlNamespace' in meta else []
    out += [f'xmlns {rest_namespace(model)}'] if meta['protocol'] == 'rest-xml' and 'xmlNamespace' not in meta else []
    out += [f'id {meta["serviceId"]}', f'signing {meta.get("signingName", meta["endpointPrefix"])}', '']
    out += [op_line(n, model['operations'][n], pages, rest) for n in sorted(model['operations'])]
    out.append('')
    for n in sorted(model['shapes']):
        s = model['shapes'][n]
        if s.get('exception'):
            e = s.get('error', {})
            out.append(f'error {n} code={e.get("code", n)} status={e.get("httpStatusCode", 400)}')
    out.append('')
    for n in sorted(reachable(model)):
        out += shape_lines(n, model['shapes'][n], model['shapes'], rest)
    return '\n'.join(out).replace('\n\n\n', '\n\n') + '\n'


def compare(path, text):
    """The same version must give the same bytes; a newer one may add, but must still know every operation."""
    with open(path, encoding='utf-8') as f:
        have = f.read()
    source = f'source botocore {botocore_version()}'
    if source in have.splitlines() and have != text:
        sys.exit(f'{path} is not what {source} gives: it was edited by hand, or extract.py changed')
    names = [{w[1] for w in (line.split() for line in t.splitlines()) if w[:1] == ['op']} for t in (have, text)]
    if names[0] - names[1]:
        sys.exit(f'{path} has operations that {source} does not know: {sorted(names[0] - names[1])}')


def main(argv):
    import botocore
    least, check = '1.43', argv[:1] == ['--check']
    argv = argv[1:] if check else argv
    if argv and argv[0] == '--min':
        least, argv = argv[1], argv[2:]
    have = tuple(int(x) for x in botocore.__version__.split('.')[:2])
    if have < tuple(int(x) for x in least.split('.')):
        sys.exit(f'botocore {botocore.__version__} is too old: {least} or newer is needed')
    if len(argv) < 2:
        sys.exit(__doc__)
    base = os.path.join(os.path.dirname(botocore.__file__), 'data')
    for service in argv[1:]:
        text = extract(base, service)
        if check:
            compare(os.path.join(argv[0], service + '.api'), text)
            continue
        with open(os.path.join(argv[0], service + '.api'), 'w', encoding='utf-8') as f:
            f.write(text)
        print(f'{service}: {text.count(chr(10))} lines, {len(text)} bytes')


if __name__ == '__main__':
    main(sys.argv[1:])
