#!/usr/bin/env python3
"""What boto's S3 client sends (puts from bytes and streams with every checksum, presigned URLs, browser forms, odd keys), the C parts must
accept, with the right size and checksums; after one byte changed anywhere they must not.

    s3_client_test.py DRIVER [--n N]
"""
import base64
import hashlib
import io
import random
import subprocess
import sys
import time
import urllib.parse
import zlib

import botocore.awsrequest
import botocore.session
from botocore.config import Config
from urllib3.filepost import encode_multipart_formdata

SECRET = 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY'
KEYS = ['k', 'a b', 'a+b', 'é', '日本/x', 'a//b', '/lead', 'x%2Fy', '~t', 'a?b#c', "!*'()", '=&;:,@$', 'a/../b', './c', 'tail/', '%', '"<>', 'A' * 300]


class Driver:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, req, now):
        method, path, query, body, headers = req

        def h(s):
            if s is None:
                return '-'
            return (s if isinstance(s, bytes) else s.encode('latin-1' if s.isascii() else 'utf-8')).hex()
        words = [h(method), h(path), h(query), h(body), h(str(int(now)))]
        for k, v in headers:
            words += [h(k), h(v) if v else '']
        self.p.stdin.write(' '.join(words) + '\n')
        self.p.stdin.flush()
        return self.p.stdout.readline().split()


class Capture:
    """A boto client whose requests go nowhere: the last one is kept."""

    def __init__(self, scheme, is_temporary, **config):
        session = botocore.session.Session()
        session.set_credentials('ASIAEXAMPLE' if is_temporary else 'AKIDEXAMPLE', SECRET, 'token/+=' if is_temporary else None)
        s3 = {'addressing_style': 'path', **config.pop('s3', {})}
        self.client = session.create_client('s3', region_name='us-east-1', endpoint_url=f'{scheme}://s3.local:8443',
                                            config=Config(s3=s3, signature_version='s3v4', **config))
        self.client.meta.events.register('before-send.s3.*', self.take)
        self.last = None

    def take(self, request, **_):
        self.last = prepared(request)
        return botocore.awsrequest.AWSResponse(request.url, 200, {'ETag': '"x"'}, io.BytesIO(b''))

    def call(self, op, **args):
        try:
            getattr(self.client, op)(**args)
        except Exception:  # the empty answer is no good XML for some
            pass
        return self.last


def prepared(request):
    body = request.body
    if body is None:
        body = b''
    elif hasattr(body, 'read'):
        body = body.read()
    elif isinstance(body, str):
        body = body.encode()
    parts = urllib.parse.urlsplit(request.url)
    headers = [('Host', 's3.local:8443')]
    for k, v in request.headers.items():
        v = v.decode('latin-1') if isinstance(v, bytes) else v
        if k.lower() not in ('host', 'transfer-encoding'):
            headers.append((k, v))
    return request.method, parts.path, parts.query or None, bytes(body), headers


class Stream(io.RawIOBase):
    """Cannot be rewound."""

    def __init__(self, data):
        self.f = io.BytesIO(data)

    def readable(self):
        return True

    def read(self, n=-1):
        return self.f.read(n)

    def seekable(self):
        return True

    def seek(self, *a):
        return self.f.seek(*a)

    def tell(self):
        return self.f.tell()


def expect(algorithm, data):
    if algorithm == 'CRC32':
        return base64.b64encode(zlib.crc32(data).to_bytes(4, 'big')).decode()
    if algorithm in ('SHA1', 'SHA256'):
        return base64.b64encode(hashlib.new(algorithm.lower(), data).digest()).decode()
    return None


def change(r, req):
    """One byte of what is signed or summed is another."""
    method, path, query, body, headers = req
    auth = ''.join(v for k, v in headers if k.lower() == 'authorization')
    signed = auth.split('SignedHeaders=')[1].split(',')[0].split(';') if auth else []
    if query and 'X-Amz-SignedHeaders=' in query:
        signed = urllib.parse.unquote(query.split('X-Amz-SignedHeaders=')[1].split('&')[0]).split(';')
    part = r.choice(['query', 'body', 'header', 'header', 'method', 'path'])
    if part == 'query' and query:
        i = r.randrange(len(query))
        new = query[:i] + chr(ord(query[i]) ^ 1) + query[i + 1:]
        # A hex digit of an escape in another case is the same byte.
        return (method, path, new, body, headers) if urllib.parse.unquote_plus(new) != urllib.parse.unquote_plus(query) else None
    if part == 'body' and body:
        i = r.randrange(len(body))
        if body[i] in b'\r\n':
            return None  # line ends may be written in more than one way
        return method, path, query, body[:i] + bytes([body[i] ^ 1]) + body[i + 1:], headers
    if part == 'method':
        return ('POST' if method == 'PUT' else 'PUT'), path, query, body, headers
    if part == 'path':
        return method, path + 'x', query, body, headers
    at = [i for i, (k, v) in enumerate(headers) if k.lower() in signed + ['authorization'] and v.strip()]
    if part == 'header' and at:
        i = r.choice(at)
        k, v = headers[i]
        v = v.strip()
        j = r.randrange(len(v))
        new = v[:j] + ('!' if v[j] == ' ' else chr(ord(v[j]) ^ 1)) + v[j + 1:]
        return method, path, query, body, headers[:i] + [(k, new)] + headers[i + 1:]
    return None


def puts(r, clients):
    """A PUT of random bytes: the request, the bytes, and the checksum that must come out."""
    data = r.randbytes(r.choice([0, 1, 5, 100, 8191, 8192, 70000, 1100000]))
    args = {'Bucket': 'films', 'Key': r.choice(KEYS), 'Body': Stream(data) if r.random() < 0.5 else data}
    algorithm = r.choice([None, 'CRC32', 'SHA1', 'SHA256'])
    if algorithm:
        args['ChecksumAlgorithm'] = algorithm
    if r.random() < 0.3:
        args['Metadata'] = {'name': r.choice(['x', 'a  b', '1,2'])}
    if r.random() < 0.2:
        args['ContentMD5'] = base64.b64encode(hashlib.md5(data).digest()).decode()
    if r.random() < 0.3:
        args['ContentEncoding'] = 'gzip'
    if r.random() < 0.3:
        args.update(UploadId='abc/+=', PartNumber=3)
        for k in ('Metadata', 'ContentEncoding'):
            args.pop(k, None)
        req = r.choice(clients).call('upload_part', **args)
    else:
        req = r.choice(clients).call('put_object', **args)
    return req, data, algorithm


def others(r, clients):
    c = r.choice(clients)
    key = r.choice(KEYS)
    what = r.randrange(5)
    if what == 0:
        return c.call('get_object', Bucket='films', Key=key, Range='bytes=0-9')
    if what == 1:
        return c.call('list_objects_v2', Bucket='films', Prefix=key, Delimiter=r.choice(['/', '+', ' ', 'é']), StartAfter=r.choice(KEYS))
    if what == 2:
        return c.call('delete_objects', Bucket='films', Delete={'Objects': [{'Key': k} for k in r.sample(KEYS, 3) if k != './c']})
    if what == 3:
        return c.call('copy_object', Bucket='films', Key=key, CopySource={'Bucket': 'films', 'Key': r.choice(KEYS)}, MetadataDirective='COPY')
    return c.call('put_object_tagging', Bucket='films', Key=key, Tagging={'TagSet': [{'Key': 'a', 'Value': 'é b'}]})


def presigned(r, clients):
    c = r.choice(clients)
    op, method, args = r.choice([('get_object', 'GET', {}), ('put_object', 'PUT', {}), ('put_object', 'PUT', {'ContentType': 'text/plain'}),
                                 ('get_object', 'GET', {'ResponseContentType': 'a/b; c="d e"'}), ('head_object', 'HEAD', {'VersionId': 'x y'}),
                                 ('put_object', 'PUT', {'StorageClass': 'STANDARD', 'Metadata': {'a': 'b c'}})])
    url = c.client.generate_presigned_url(op, Params={'Bucket': 'films', 'Key': r.choice(KEYS), **args}, ExpiresIn=r.choice([1, 60, 604800]))
    parts = urllib.parse.urlsplit(url)
    headers = [('Host', 's3.local:8443')]
    if 'ContentType' in args:
        headers.append(('Content-Type', args['ContentType']))
    query = urllib.parse.parse_qs(parts.query)
    for name in query['X-Amz-SignedHeaders'][0].split(';'):
        value = {'x-amz-storage-class': 'STANDARD', 'x-amz-meta-a': 'b c'}.get(name)
        if value:
            headers.append((name, value))
    return method, parts.path, parts.query, b'' if method != 'PUT' else r.randbytes(50), headers


def form(r, clients):
    c = r.choice(clients)
    data = r.randbytes(r.choice([0, 10, 100000]))
    key = r.choice(['k', 'dir/${filename}', 'é b'])
    fields, conditions = {}, [['content-length-range', 0, 100000]]
    if r.random() < 0.5:
        fields['x-amz-meta-a'] = 'b c'
        conditions.append({'x-amz-meta-a': 'b c'})
    if r.random() < 0.5:
        fields['success_action_status'] = '201'
        conditions.append(['starts-with', '$success_action_status', '2'])
    post = c.client.generate_presigned_post('films', key, Fields=fields, Conditions=conditions, ExpiresIn=600)
    parts = [(k, v.encode()) for k, v in post['fields'].items()] + [('file', ('x.bin', data))]
    body, content_type = encode_multipart_formdata(parts)
    return ('FORM', '/films', None, body, [('Host', 's3.local:8443'), ('Content-Type', content_type)]), data


def make_clients():
    out = []
    for scheme in ('http', 'https'):
        for is_temporary in (False, True):
            for checksums in ('when_supported', 'when_required'):
                for is_signed in (None, True):
                    s3 = {} if is_signed is None else {'payload_signing_enabled': True}
                    out.append(Capture(scheme, is_temporary, request_checksum_calculation=checksums, s3=s3))
    return out


def main(argv):
    n = int(argv[argv.index('--n') + 1]) if '--n' in argv else 600
    driver, r, bad, n_changed, kinds = Driver(argv[0]), random.Random(11), [], 0, {}
    clients = make_clients()
    now = time.time()
    for i in range(n):
        data, algorithm = None, None
        kind = r.choice(['put', 'put', 'other', 'presigned', 'form'])
        if kind == 'put':
            req, data, algorithm = puts(r, clients)
        elif kind == 'form':
            req, data = form(r, clients)
        else:
            req = (others if kind == 'other' else presigned)(r, clients)
        sha = dict((k.lower(), v) for k, v in req[4]).get('x-amz-content-sha256', '-')
        label = kind + ' ' + (sha if not sha[:1].isdigit() and not sha[:1].islower() else 'sha256')
        kinds[label] = kinds.get(label, 0) + 1
        got = driver.ask(req, now)
        if got[0] != 'ok' or got[1] != '123456789012':
            bad.append(f'refused {got}: {req[0]} {req[1]}?{req[2]} {req[4]}')
            continue
        if data is not None:
            want = [str(len(data)), hashlib.md5(data).hexdigest()]
            if got[2:4] != want:
                bad.append(f'{got}, want {want}: {req[:3]} {req[4]}')
            if algorithm and (got[4] != algorithm or got[5] != expect(algorithm, data)):
                bad.append(f'{got}, want {algorithm} {expect(algorithm, data)}')
        changed = change(r, req) if kind != 'form' else None
        if kind == 'presigned' and changed and changed[3] != req[3]:
            changed = None  # the body of a presigned PUT is not signed
        if kind == 'put' and changed and changed[3] != req[3] and sha == 'UNSIGNED-PAYLOAD' and not any(
                k.lower().startswith('x-amz-checksum-') or k.lower() == 'content-md5' for k, _ in req[4]):
            changed = None  # nothing speaks of this body
        if changed:
            n_changed += 1
            got = driver.ask(changed, now)
            if got[0] == 'ok':
                bad.append(f'accepted although changed: {req[:3]} {req[4]} -> {changed[:3]} {changed[4]}')
    req, _ = form(r, clients)
    if driver.ask(req, now + 86400)[0] == 'ok' or driver.ask(presigned(r, clients), now + 8 * 86400)[0] == 'ok':
        bad.append('accepted too late')
    driver.p.stdin.close()
    rc = driver.p.wait()
    for b in bad[:10]:
        print(b[:1500])
    print(kinds)
    needed = ('put STREAMING-UNSIGNED-PAYLOAD-TRAILER', 'put sha256', 'put UNSIGNED-PAYLOAD', 'presigned -', 'form -')
    missing = [k for k in needed if not kinds.get(k)]
    print(f'{n} requests, {n_changed} changed ones, {len(bad)} wrong, missing kinds {missing}, driver ended with {rc}')
    sys.exit(1 if bad or rc or missing or n_changed < n // 3 else 0)


if __name__ == '__main__':
    main(sys.argv[1:])
