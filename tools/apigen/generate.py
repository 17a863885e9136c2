#!/usr/bin/env python3
"""Makes C from src/aws/api/<service>.api and .ops: structures (<service>.h), handler prototypes (<service>_handlers.h) and
const tables without relocations (<service>_tables.c; their layout: src/aws/table.h).

    generate.py SERVICE.api SERVICE.ops OUT.h OUT_handlers.h OUT_tables.c

The folder that OUT.h lies in, from its last "aws/", is what C files include it by.
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from apifile import field, read_api, read_ops, snake  # noqa: E402

NONE = 0xffff
TYPES = {'string': 'STR', 'enum': 'ENUM', 'boolean': 'BOOL', 'integer': 'INT', 'long': 'LONG', 'float': 'FLOAT',
         'double': 'DOUBLE', 'timestamp': 'TIME', 'blob': 'BLOB', 'struct': 'STRUCT', 'list': 'LIST', 'map': 'MAP'}
CTYPES = {'string': 'struct str', 'enum': 'struct str', 'boolean': 'struct opt_bool', 'integer': 'struct opt_i64',
          'long': 'struct opt_i64', 'float': 'struct opt_f64', 'double': 'struct opt_f64', 'timestamp': 'struct opt_time',
          'blob': 'struct str'}
LOCS = {'body': 'BODY', 'uri': 'URI', 'query': 'QUERY', 'header': 'HEADER', 'headers': 'HEADERS', 'status': 'STATUS'}
METHODS = ('GET', 'HEAD', 'PUT', 'POST', 'DELETE')
NEEDS = {'uploadId': 'AWS_NEED_UPLOAD_ID', 'partNumber': 'AWS_NEED_PART', 'id': 'AWS_NEED_ID', 'x-amz-copy-source': 'AWS_NEED_SOURCE'}
TS = {None: 0, 'iso8601': 1, 'unixTimestamp': 2, 'rfc822': 3}


class Pool:
    def __init__(self):
        self.at, self.items, self.size = {}, [], 0
        self.add('')

    def add(self, s):
        if s not in self.at:
            self.at[s] = self.size
            self.items.append(s)
            self.size += len(s.encode()) + 1
        return self.at[s]

    def emit(self):
        for s in self.items:
            yield '    "' + s.replace('\\', '\\\\').replace('"', '\\"').replace('?', '\\?') + '\\0"'


class Gen:
    def __init__(self, api, header):
        self.api, self.svc, self.header_name = api, api.head['service'], header
        self.pool = Pool()
        self.names = sorted(api.shapes)
        self.idx = {n: i for i, n in enumerate(self.names)}
        self.is_ec2, self.is_rest = api.head['protocol'] == 'ec2', api.head['protocol'].startswith('rest-')
        self.is_json = api.head['protocol'] == 'rest-json'

    def tag(self, name):
        return f'{self.svc}_{snake(name)}'

    def entry_tag(self, name):
        """Of a map's entries; S3 has a map Metadata and a structure MetadataEntry."""
        tag = self.tag(name) + '_entry'
        return self.tag(name) + '_pair' if any(self.tag(n) == tag for n in self.names) else tag

    def ctype(self, shape):
        """The type of an element or map value: structures in line."""
        if shape.kind == 'struct':
            return f'struct {self.tag(shape.name)}'
        if shape.kind == 'list' and self.api.shapes[shape.elem].kind in ('string', 'enum'):
            return 'struct aws_str_list'
        if shape.kind in ('list', 'map'):
            return f'struct {self.tag(shape.name)}'
        return CTYPES[shape.kind]

    def member_ctype(self, shape):
        return self.ctype(shape) + (' *' if shape.kind == 'struct' else ' ')

    def flat_name(self, m):
        """A flattened list goes by the name of its elements (query only)."""
        s = self.api.shapes[m.shape]
        return s.loc if s.kind == 'list' and (m.flat or s.flat) else None

    def name_in(self, m):
        if self.is_rest:  # header names are looked up in lower case; xsi:type is the attribute "type"
            name = self.name_out(m)
            return name.lower() if m.at in ('header', 'headers') else name.partition(':')[2] if m.attr else name
        if not self.is_ec2:
            return self.flat_name(m) or m.loc or m.name
        if m.query:
            return m.query
        return m.loc[0].upper() + m.loc[1:] if m.loc else m.name

    def name_out(self, m):
        if self.is_rest:
            return m.loc or self.flat_name(m) or m.name
        return self.flat_name(m) or m.loc or m.name

    # ---- the header
    def header(self):
        svc, up = self.svc, self.svc.upper()
        yield f'/* {svc}.h — input and output structures of the service "{svc}", made by tools/apigen from {svc}.api.'
        yield ' * Not here: the tables (<service>_tables.c), handlers. What absent means: aws/shape.h.'
        yield ' * Threads, memory, errors: plain values in the arena of a call. */'
        yield '#pragma once'
        yield '#include "aws/shape.h"'
        yield '#include "aws/table.h"'
        yield ''
        yield f'extern const struct aws_service aws_service_{svc};'
        yield ''
        yield f'enum {svc}_op {{'
        for n in sorted(self.api.ops):
            yield f'    {up}_OP_{snake(n).upper()},'
        yield f'    {up}_OP_N'
        yield '};'
        yield ''
        yield from self.enum_macros()
        yield from self.struct_defs()

    def enum_macros(self):
        for n in self.names:
            s, seen = self.api.shapes[n], set()
            if s.kind != 'enum':
                continue
            for v in s.values:
                c = f'{self.svc}_{snake(n)}_{re.sub("[^A-Za-z0-9]", "_", v)}'.upper()
                while c in seen:
                    c += '_'
                seen.add(c)
                yield f'#define {c} STR("{v}")'
        yield ''

    def struct_defs(self):
        shapes = [self.api.shapes[n] for n in self.names]
        for s in shapes:
            if s.kind == 'struct':
                yield f'struct {self.tag(s.name)};'
        done = set()
        for s in shapes:
            if s.kind in ('list', 'map'):
                yield from self.list_def(s, done)
        yield ''
        for s in shapes:
            if s.kind == 'struct':
                yield f'struct {self.tag(s.name)} {{'
                for m in s.members:
                    yield f'    {self.member_ctype(self.api.shapes[m.shape])}{field(m.name)};'
                if not s.members:
                    yield '    char empty_; /* no members */'
                yield '};'
        for s in shapes:
            if s.kind == 'map':
                yield f'struct {self.entry_tag(s.name)} {{'
                yield '    struct str key;'
                yield f'    {self.ctype(self.api.shapes[s.elem])} value;'
                yield '};'

    def list_def(self, s, done):
        if s.name in done:
            return
        done.add(s.name)
        if s.kind == 'map':
            yield f'struct {self.entry_tag(s.name)};'
            yield f'struct {self.tag(s.name)} {{'
            yield f'    struct {self.entry_tag(s.name)} *v;'
        else:
            elem = self.api.shapes[s.elem]
            if elem.kind in ('string', 'enum'):
                return
            if elem.kind in ('list', 'map'):
                yield from self.list_def(elem, done)
            yield f'struct {self.tag(s.name)} {{'
            yield f'    {self.ctype(elem)} *v;'
        yield '    size_t n;'
        yield '    bool is_set;'
        yield '};'

    # ---- prototypes
    def handlers(self):
        svc, up = self.svc, self.svc.upper()
        yield f'/* {svc}_handlers.h — prototypes of the handlers of "{svc}", made by tools/apigen from {svc}.ops.'
        yield ' * Not here: anything else.'
        yield ' * Threads:  handlers are called from any request thread.'
        yield ' * Memory:   input and output live in the arena of the call.'
        yield ' * Errors:   negative errno and *err with an AWS error code as its name. */'
        yield '#pragma once'
        yield '#include "base/err.h"'
        yield ''
        yield 'struct aws_call;'
        yield ''
        for n in sorted(self.api.ops):
            if self.api.ops[n].state != 'no':
                yield f'int {svc}_{snake(n)}(struct aws_call *call, const void *input, void *output, struct err *err);'
        yield ''
        yield f'/* X(NAME, function) for each operation that is full or partial. */'
        yield f'#define {up}_OPS_IMPLEMENTED(X) \\'
        rows = [f'    X({up}_OP_{snake(n).upper()}, {svc}_{snake(n)})'
                for n in sorted(self.api.ops) if self.api.ops[n].state != 'no']
        yield ' \\\n'.join(rows)

    # ---- REST
    def payload(self, shape_name):
        return next((m for m in self.api.shapes[shape_name].members if m.payload), None) if shape_name else None

    def root_out(self, o):
        """The root element of an answer: the .ops file's, the payload's name, or AWS's usual form."""
        p = self.payload(o.output)
        return o.root_out or (self.name_out(p) if p else o.name + 'Result')

    def rest_op(self, o):
        add = self.pool.add
        if not self.is_rest:
            return '.uri = 0'
        p_in, p_out = self.payload(o.input), self.payload(o.output)
        flags = ['AWS_REST_SUM'] if o.sum_member else []
        flags += ['AWS_REST_SUM_REQUIRED'] if o.sum_required else []
        flags += ['AWS_REST_STREAM_IN'] if p_in and p_in.stream else []
        flags += ['AWS_REST_STREAM_OUT'] if p_out and p_out.stream else []
        root_in = o.root_in or (self.name_out(p_in) if p_in and self.api.shapes[p_in.shape].kind == 'struct' else '')
        return (f'{add(o.uri)}, {add(o.action or o.name)}, {add(root_in)}, {add(o.sum_member.replace("-", ""))}, {o.status}, '
                f'AWS_M_{o.method}, {" | ".join(flags) or 0}')

    def routes(self):
        """Rows sorted by level, sub-resource and method: those of one sub-resource lie together."""
        rows = []
        for i, n in enumerate(sorted(self.api.ops)):
            o = self.api.ops[n]
            if o.old or not o.is_routed:
                continue
            path, _, query = o.uri.partition('?')
            level = {'/': 0, '/{Bucket}': 1, '/{Bucket}/{Key+}': 2}.get(path)
            if level is None:
                sys.exit(f'{n}: no route for {path}')
            sub, _, value = query.partition('&')[0].partition('=')
            needs = [NEEDS[self.name_out(m)] for m in self.api.shapes[o.input].members
                     if m.req and (m.at == 'query' or self.name_out(m) == 'x-amz-copy-source')] if o.input else []
            rows.append((level, sub, METHODS.index(o.method), n, value, ' | '.join(sorted(needs)) or '0', i))
        rows.sort(key=lambda r: (r[0], r[1].encode(), r[2], r[3]))
        return [f'    {{{self.pool.add(sub)}, {self.pool.add(value)}, {i}, {level}, AWS_M_{METHODS[m]}, {needs}}}'
                for level, sub, m, _, value, needs, i in rows]

    # ---- tables
    def tables(self):
        svc, add = self.svc, self.pool.add
        members, by_in, enums, limits, shapes, ops, errors = [], [], [], ['    {.has_min = 0}'], [], [], []
        for n in self.names:
            s = self.api.shapes[n]
            first, count, size, el_in, el_out, lim = 0, 0, '0', 0, 0, 0
            elem = self.idx[s.elem] if s.elem else NONE
            key = self.idx[s.key] if s.key else NONE
            if s.min is not None or s.max is not None or s.pattern is not None:
                limits.append(f'    {{{float(s.min or 0)!r}, {float(s.max or 0)!r}, {add(s.pattern or "")}, '
                              f'{int(s.min is not None)}, {int(s.max is not None)}}}')
                lim = len(limits) - 1
            if s.kind == 'struct':
                first, count, size = len(members), len(s.members), f'sizeof(struct {self.tag(n)})'
                order = sorted(range(count), key=lambda i: self.name_in(s.members[i]).encode())
                by_in += [str(i) for i in order]
                # S3's deprecated notification shapes have a member "Event" and a list of them: in bodies it may be.
                names = [self.name_in(m) for m in s.members if m.at != 'body']
                if len(set(names)) != len(names) or set(names) & {self.name_in(m) for m in s.members if m.at == 'body'}:
                    sys.exit(f'{n}: two members have one name on the wire')
                if s.ns and not s.ns.startswith('xsi,'):
                    sys.exit(f'{n}: no codec for the namespace {s.ns}')
                for m in s.members:
                    flags = int(m.req) | int(m.idem) << 1 | int(m.flat) << 2 | TS[m.ts] << 3
                    flags |= int(m.payload) << 7 | int(m.stream) << 8 | int(m.attr) << 9
                    members.append(f'    {{{add(m.name)}, {add(self.name_in(m))}, {add(self.name_out(m))}, '
                                   f'offsetof(struct {self.tag(n)}, {field(m.name)}), {self.idx[m.shape]}, {flags}, AWS_LOC_{LOCS[m.at]}}}')
            elif s.kind == 'enum':
                first, count = len(enums), len(s.values)
                enums += [str(add(v)) for v in sorted(s.values, key=str.encode)]
            elif s.kind == 'list':
                size = f'sizeof({self.ctype(self.api.shapes[s.elem])})'
                el_in, el_out = add(s.loc or 'member'), add(s.loc or ('item' if self.is_ec2 else 'member'))
            elif s.kind == 'map':
                size = f'sizeof(struct {self.entry_tag(n)})'
                el_in, el_out = add(s.kloc or 'key'), add(s.vloc or 'value')
            flags = int(s.flat) << 2 | TS[s.ts] << 3 | int(s.sensitive) << 5 | int(s.is_open) << 6
            flags |= int(any(m.attr for m in s.members)) << 7
            shapes.append(f'    {{{add(n)}, {el_in}, {el_out}, {first}, {size}, {count}, {elem}, {key}, {lim}, '
                          f'AWS_T_{TYPES[s.kind]}, {flags}}}')
        for n in sorted(self.api.ops):
            o = self.api.ops[n]
            inp = self.idx[o.input] if o.input else NONE
            out = self.idx[o.output] if o.output else NONE
            wrap = o.wrap or ('' if self.is_ec2 else self.root_out(o) if self.is_rest else n + 'Result')
            tin, tout = (o.token or ',').split(',')
            ops.append(f'    {{{add(n)}, {add(wrap)}, {add(" ".join(o.resources))}, {add(tin)}, {add(tout)}, {add(o.limit or "")}, '
                       f'{inp}, {out}, AWS_OP_{o.state.upper()}, {int(o.unsigned)}, {self.rest_op(o)}}}')
        for _, code, status in sorted(set(('', c, st) for _, c, st in self.api.errors), key=lambda e: e[1].encode()):
            errors.append(f'    {{{add(code)}, {status}}}')
        routes = self.routes() if self.is_rest and not self.is_json else []
        yield f'/* Made by tools/apigen from {svc}.api and {svc}.ops. */'
        yield f'#include "{self.header_name}"'
        yield '#include <stddef.h>'
        yield ''
        yield 'static const char pool[] ='
        yield from self.pool.emit()
        yield ';'
        yield from table('struct aws_member', 'members', members)
        yield from table('uint16_t', 'by_in', by_in, ', ', 16)
        yield from table('uint32_t', 'enums', enums, ', ', 16)
        yield from table('struct aws_limit', 'limits', limits)
        yield from table('struct aws_shape', 'shapes', shapes)
        yield from table('struct aws_op', 'ops', ops)
        yield from table('struct aws_error_row', 'errors', errors)
        yield from table('struct aws_route', 'routes', routes) if self.is_rest else ()
        h = self.api.head
        yield ''
        yield f'const struct aws_service aws_service_{svc} = {{'
        for k, v in (('name', svc), ('version', h['version']), ('xmlns', h.get('xmlns', '')), ('signing', h['signing']),
                     ('id', h['id'])):
            yield f'    .{k} = "{v}",'
        yield f'    .protocol = AWS_PROTOCOL_{h["protocol"].upper().replace("-", "_")},'
        yield '    .pool = pool, .members = members, .by_in = by_in, .enums = enums, .limits = limits, .shapes = shapes,'
        yield '    .ops = ops, .errors = errors,'
        if self.is_rest:
            yield f'    .routes = routes, .n_routes = {len(routes)},'
        yield f'    .n_shapes = {len(shapes)}, .n_ops = {len(ops)}, .n_errors = {len(errors)}, .pool_size = sizeof(pool),'
        yield f'    .rodata_size = sizeof(pool) + sizeof(members) + sizeof(by_in) + sizeof(enums) + sizeof(limits) + sizeof(shapes) + sizeof(ops) +'
        yield f'                   sizeof(errors){" + sizeof(routes)" if self.is_rest else ""},'
        yield '};'


def table(ctype, name, rows, sep=',\n', per_line=1):
    yield ''
    yield f'static const {ctype} {name}[] = {{'
    if not rows:
        rows = ['    {0}'] if ctype.startswith('struct') else ['0']
    if per_line > 1:
        for i in range(0, len(rows), per_line):
            yield '    ' + sep.join(rows[i:i + per_line]) + ','
    else:
        yield sep.join(rows)
    yield '};'


def write(path, lines):
    with open(path, 'w', encoding='utf-8') as f:
        f.write('\n'.join(lines) + '\n')


def main(argv):
    api_path, ops_path, out_h, out_handlers, out_c = argv
    api = read_api(api_path)
    read_ops(ops_path, api)
    full = os.path.abspath(out_h).replace(os.sep, '/')
    g = Gen(api, full[full.rindex('/aws/') + 1:])
    if api.head['protocol'] not in ('ec2', 'query', 'rest-json', 'rest-xml'):
        sys.exit(f'{api_path}: no codec for protocol {api.head["protocol"]}')
    if len(g.names) >= NONE:
        sys.exit(f'{api_path}: too many shapes')
    write(out_h, g.header())
    write(out_handlers, g.handlers())
    write(out_c, g.tables())


if __name__ == '__main__':
    main(sys.argv[1:])
