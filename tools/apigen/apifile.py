"""Reads src/aws/api/<service>.api and .ops (the forms are described in extract.py and in src/aws/README.md)."""
import re

SCALARS = {'string', 'integer', 'long', 'float', 'double', 'boolean', 'timestamp', 'blob'}
STATES = ('no', 'partial', 'full')


class Member:
    def __init__(self, words):
        self.name, self.shape = words[0], words[1]
        opts, flags = split(words[2:])
        self.loc, self.query, self.ts = opts.get('loc'), opts.get('q'), opts.get('ts')
        self.req, self.idem, self.flat = 'req' in flags, 'idem' in flags, 'flat' in flags
        self.at = opts.get('at', 'body')
        self.payload, self.stream, self.attr = 'payload' in flags, 'stream' in flags, 'attr' in flags


class Shape:
    def __init__(self, kind, name):
        self.kind, self.name = kind, name
        self.members, self.values = [], []
        self.elem = self.key = self.loc = self.kloc = self.vloc = self.min = self.max = self.ts = self.pattern = None
        self.flat = self.sensitive = self.is_open = self.events = False
        self.ns = None


class Op:
    def __init__(self, words):
        self.name = words[0]
        opts, flags = split(words[1:])
        self.input, self.output, self.wrap = opts.get('in'), opts.get('out'), opts.get('wrap')
        self.token, self.limit = opts.get('token'), opts.get('limit')
        self.errors = opts['errors'].split(',') if 'errors' in opts else []
        self.unsigned = 'unsigned' in flags
        self.state, self.resources, self.note = 'no', [], ''
        # REST: method, URI, status of success; the member that names the checksum's algorithm; roots of the bodies
        self.method, self.uri, self.status = (opts['http'].split(',') + ['200'])[:3] if 'http' in opts else (None, None, 200)
        self.status = int(self.status)
        self.sum_member, _, required = opts.get('checksum', '').partition(',')
        self.sum_required = required == 'required'
        self.root_in, self.root_out, self.old = opts.get('root'), None, 'old' in flags
        self.action, self.is_routed = None, True


class Api:
    def __init__(self):
        self.head, self.ops, self.errors, self.shapes = {}, {}, [], {}


def split(words):
    opts, flags = {}, set()
    for w in words:
        k, sep, v = w.partition('=')
        if sep:
            opts[k] = v
        else:
            flags.add(w)
    return opts, flags


def shape_of(kind, words):
    s = Shape(kind, words[0])
    rest = words[1:]
    if kind == 'enum':
        s.values = [w.replace('%20', ' ').replace('%25', '%') for w in rest]
        return s
    if kind == 'list':
        s.elem, rest = rest[0], rest[1:]
    elif kind == 'map':
        s.key, s.elem, rest = rest[0], rest[1], rest[2:]
    opts, flags = split(rest)
    s.ns, s.events = opts.get('ns'), 'events' in flags
    s.loc, s.kloc, s.vloc, s.ts = opts.get('loc'), opts.get('kloc'), opts.get('vloc'), opts.get('ts')
    s.min, s.max = opts.get('min'), opts.get('max')
    s.flat, s.sensitive = 'flat' in flags, 'sensitive' in flags
    return s


def read_api(path):
    api, cur = Api(), None
    with open(path, encoding='utf-8') as f:
        for n, line in enumerate(f, 1):
            line, _, pattern = line.rstrip('\n').partition(' pattern=')
            words = line.split(' ')
            if line == '':
                continue
            if line.startswith('  '):
                cur.members.append(Member(line[2:].split(' ')))
                continue
            kind, words = words[0], words[1:]
            if kind == 'op':
                api.ops[words[0]] = Op(words)
            elif kind == 'error':
                opts, _ = split(words[1:])
                api.errors.append((words[0], opts['code'], int(opts['status'])))
            elif kind in ('struct', 'list', 'map', 'enum') or (kind in SCALARS and words):
                cur = shape_of(kind, words)
                cur.pattern = pattern or None
                api.shapes[cur.name] = cur
            elif kind in ('service', 'source', 'version', 'protocol', 'xmlns', 'id', 'signing'):
                api.head[kind] = ' '.join(words)
            else:
                raise SystemExit(f'{path}:{n}: unknown line "{kind}"')
    return api


def read_ops(path, api):
    """Adds state and resources to the operations; every line must name an operation of the model."""
    with open(path, encoding='utf-8') as f:
        for n, line in enumerate(f, 1):
            line, _, note = line.partition('#')
            words = line.split()
            if not words:
                continue
            if words[0] == 'open-enum':
                for w in words[1:]:
                    if w not in api.shapes:
                        raise SystemExit(f'{path}:{n}: no enum {w}')
                    api.shapes[w].is_open = True
                continue
            if words[0] not in api.ops:
                raise SystemExit(f'{path}:{n}: {words[0]} is not an operation of the model')
            if words[1] not in STATES:
                raise SystemExit(f'{path}:{n}: state is one of {STATES}')
            op = api.ops[words[0]]
            opts, _ = split([w for w in words[2:] if '=' in w])
            for k in opts:
                if k not in ('action', 'root', 'route'):
                    raise SystemExit(f'{path}:{n}: unknown option "{k}"')
            op.action, op.root_out, op.is_routed = opts.get('action'), opts.get('root'), opts.get('route') != '-'
            op.state, op.resources, op.note = words[1], [w for w in words[2:] if '=' not in w], note.strip()
            for member in re.findall(r'\{([^}]*)\}', ' '.join(op.resources)):
                if not has_path(api, op.input, member.removesuffix('?').split('.')):
                    raise SystemExit(f'{path}:{n}: {op.name} has no member {member}')


def has_path(api, shape, names):
    """Members of structures, through lists of them, down to a text."""
    for name in names:
        while shape in api.shapes and api.shapes[shape].kind == 'list':
            shape = api.shapes[shape].elem
        found = [m for m in getattr(api.shapes.get(shape), 'members', []) if m.name == name]
        if not found:
            return False
        shape = found[0].shape
    return True


def snake(name):
    """RunInstances -> run_instances, ClientIDs -> client_ids: the rule of the AWS SDK for Python, so that names can be guessed."""
    m = re.search('[A-Z]{2,}s$', name)
    if m:
        head = name[:m.start()]
        name = (head + '_' if head else '') + m.group().lower()
    name = re.sub('(.)([A-Z][a-z]+)', r'\1_\2', name)
    name = re.sub('([a-z0-9])([A-Z])', r'\1_\2', name)
    return re.sub('_+', '_', re.sub(r'\W', '_', name)).lower()


KEYWORDS = set('auto break case char const continue default do double else enum extern float for goto if inline int long '
               'register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while '
               'bool true false asm typeof linux unix'.split())


def field(name):
    f = snake(name)
    if f in KEYWORDS:
        return f + '_'
    return '_' + f if f[0].isdigit() else f
