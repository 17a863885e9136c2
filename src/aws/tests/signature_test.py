#!/usr/bin/env python3
"""botocore signs (header and presigned form, with and without a session token, odd paths and queries), the C verifier must accept; after
one change anywhere it must not.

    signature_test.py DRIVER [--n N]
"""
import random
import subprocess
import sys
import time
import urllib.parse

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

SECRET = 'wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY'
TEXTS = ['a', 'b c', '~-_.', 'é', '日本', 'a/b', 'a+b', '%', '&=', '', '!*\'()', 'A', '"', '<>', ':;,@', '0' * 40]


class Driver:
    def __init__(self, path):
        self.p = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, method, path, query, body, headers, now):
        def h(s):
            if s is None:
                return '-'
            return (s if isinstance(s, bytes) else s.encode()).hex()
        words = [h(method), h(path), h(query), h(body), h(str(int(now)))]
        for k, v in headers:
            words += [h(k), h(v) if v else '']
        self.p.stdin.write(' '.join(words) + '\n')
        self.p.stdin.flush()
        return self.p.stdout.readline().strip()


def make(r):
    """A signed request as (method, path, query, body, headers)."""
    creds = Credentials('AKIDEXAMPLE', SECRET) if r.random() < 0.6 else Credentials('ASIAEXAMPLE', SECRET, 'token/+=')
    is_presigned = r.random() < 0.4
    method = 'GET' if is_presigned or r.random() < 0.3 else 'POST'
    path = r.choice(['/', '/', '/a/b', '/a//b/', '/a/../b', '/./x', '/' + urllib.parse.quote('b c'), '/%E6%97%A5'])
    params = [(r.choice(TEXTS[:6]) or 'k', r.choice(TEXTS)) for _ in range(r.randint(0, 5))]
    query = '&'.join(urllib.parse.quote(k, safe='-_.~') + '=' + urllib.parse.quote(v, safe='-_.~') for k, v in params)
    body = urllib.parse.urlencode([('Action', 'X'), ('V', r.choice(TEXTS))]) if method == 'POST' else ''
    url = 'https://localhost:9999' + path + ('?' + query if query else '')
    headers = {'Content-Type': 'application/x-www-form-urlencoded; charset=utf-8'} if body else {}
    if r.random() < 0.5:
        headers['X-Extra'] = r.choice(['a', 'a  b', '  lead', 'x; y="z"'])
    request = AWSRequest(method=method, url=url, data=body.encode(), headers=headers)
    auth = (botocore.auth.SigV4QueryAuth if is_presigned else botocore.auth.SigV4Auth)(creds, 'ec2', 'us-east-1')
    auth.add_auth(request)
    parts = urllib.parse.urlsplit(request.url)
    out = [('Host', 'localhost:9999')] + [(k, v) for k, v in request.headers.items() if k.lower() != 'host']
    return method, parts.path, parts.query or None, body, out


def change(r, req):
    """The request with one byte of a part that is signed changed; None when there is nothing to change."""
    method, path, query, body, headers = req
    part = r.choice(['query', 'body', 'header', 'method', 'path'])
    signed = ''
    for k, v in headers:
        if k.lower() == 'authorization':
            signed = v.split('SignedHeaders=')[1].split(',')[0]

    def flip(s):
        i = r.randrange(len(s))
        return s[:i] + chr(ord(s[i]) ^ 1) + s[i + 1:]
    if part == 'query' and query:
        # Only inside values: a changed escape may be a malformed one, which is refused too, but for another reason.
        return method, path, flip(query), body, headers
    if part == 'body' and body:
        return method, path, query, flip(body), headers
    if part == 'method':
        return ('PUT' if method == 'GET' else 'GET'), path, query, body, headers
    if part == 'path':
        return method, path + 'x', query, body, headers
    at = [i for i, (k, v) in enumerate(headers) if k.lower() in signed.split(';') + ['authorization'] and v.strip()]
    if part == 'header' and at:
        i = r.choice(at)
        k, v = headers[i]
        v = v.strip()
        j = r.randrange(len(v))
        new = v[:j] + ('!' if v[j] == ' ' else chr(ord(v[j]) ^ 1)) + v[j + 1:]
        return method, path, query, body, headers[:i] + [(k, new)] + headers[i + 1:]
    return None


def main(argv):
    n = int(argv[argv.index('--n') + 1]) if '--n' in argv else 1500
    driver, r, bad, n_changed = Driver(argv[0]), random.Random(7), [], 0
    now = time.time()
    for i in range(n):
        req = make(r)
        got = driver.ask(*req, now)
        if got != 'ok':
            bad.append(f'refused ({got}): {req}')
        changed = change(r, req)
        if changed and changed != req:
            n_changed += 1
            got = driver.ask(*changed, now)
            if got == 'ok':
                bad.append(f'accepted although changed: {req} -> {changed}')
    req = make(r)
    if driver.ask(*req, now + 8 * 86400) == 'ok':
        bad.append('accepted a week later')
    driver.p.stdin.close()
    rc = driver.p.wait()
    for b in bad[:10]:
        print(b)
    print(f'{n} signed requests, {n_changed} changed ones, {len(bad)} wrong, driver ended with {rc}')
    sys.exit(1 if bad or rc or n_changed < n // 3 else 0)


if __name__ == '__main__':
    main(sys.argv[1:])
