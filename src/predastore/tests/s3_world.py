"""The object store with real services in a temporary folder, and requests made byte by byte.

World: spx-state, spx-awsgw (accounts are made through it) and spx-predastore on free ports of 127.0.0.1.
Client: signs for itself, so that a test can send what no SDK would: wrong lengths, torn chunks, forged signatures.
"""
import datetime
import hashlib
import hmac
import os
import signal
import socket
import ssl
import sys
import time
import urllib.parse
import xml.etree.ElementTree as ET

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "tests", "lib"))
from cloud import Cloud, REGION, free_port  # noqa: E402

import boto3  # noqa: E402
import botocore.config  # noqa: E402

# Memory that was freed comes back soon, so that a test can ask how much is in use.
os.environ["ASAN_OPTIONS"] = ":".join(filter(None, [os.environ.get("ASAN_OPTIONS"), "quarantine_size_mb=1:thread_local_quarantine_size_kb=64"]))

EMPTY = hashlib.sha256(b"").hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"


class World(Cloud):
    ORDER = ("state", "awsgw", "predastore")
    USERS = {"state": 1, "awsgw": 2, "predastore": 5}

    def __init__(self, drives=1, edit=None, uid_base=0):
        super().__init__()
        self.s3_port = free_port()
        self.drives = [os.path.join(self.dir, f"drive{i + 1}") for i in range(drives)]
        for d in self.drives:
            os.makedirs(d)
        self.init("--s3-port", str(self.s3_port), "--drives", ",".join(self.drives), uid_base=uid_base)
        if edit:
            with open(self.config) as f:
                text = edit(f.read())
            with open(self.config, "w") as f:
                f.write(text)

    def up(self):
        self.start("state", "awsgw", "predastore")
        return self

    def restart(self, how=signal.SIGTERM):
        p = self.procs.pop("predastore")
        p.send_signal(how)
        p.wait(60)
        self.start("predastore")

    def s3(self, account="one", **kw):
        key, secret, _ = self.account(account)
        cfg = botocore.config.Config(retries={"max_attempts": 0}, max_pool_connections=64, read_timeout=60,
                                     signature_version="s3v4",
                                     s3={"addressing_style": "path"}, **kw)
        return boto3.client("s3", region_name=REGION, endpoint_url=f"https://127.0.0.1:{self.s3_port}", verify=self.ca,
                            aws_access_key_id=key, aws_secret_access_key=secret, config=cfg)

    def raw(self, account="one"):
        key, secret, _ = self.account(account)
        return Client(self.s3_port, self.ca, key, secret)

    def local(self):
        """The unix socket on which other services of the node come."""
        return Client(os.path.join(self.run, "predastore-s3.sock"), None, None, None)


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def code(self):
        try:
            return ET.fromstring(self.body).findtext("Code")
        except ET.ParseError:
            return None

    def xml(self, path):
        return ET.fromstring(self.body).findtext(path)

    def __repr__(self):
        return f"<{self.status} {self.headers} {self.body[:400]!r}>"


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


class Client:
    def __init__(self, where, ca, key, secret):
        self.where, self.key, self.secret = where, key, secret
        self.context = None
        if ca:
            self.context = ssl.create_default_context(cafile=ca)
            self.context.check_hostname = False

    # ---- signatures ----

    def signing_key(self, date):
        k = mac(("AWS4" + self.secret).encode(), date)
        for part in (REGION, "s3", "aws4_request"):
            k = mac(k, part)
        return k

    def sign(self, method, path, query, headers, payload, when=None):
        """Adds X-Amz-Date, x-amz-content-sha256 and Authorization; returns (signature, key, scope, date)."""
        when = when or datetime.datetime.now(datetime.timezone.utc)
        stamp = when.strftime("%Y%m%dT%H%M%SZ")
        headers.setdefault("x-amz-date", stamp)
        headers.setdefault("x-amz-content-sha256", payload)
        signed = sorted(k.lower() for k in headers if k.lower() not in ("content-length", "expect", "transfer-encoding", "connection"))
        lower = {k.lower(): str(v).strip() for k, v in headers.items()}
        fields = sorted(f if "=" in f else f + "=" for f in query.split("&")) if query else []
        canonical = "\n".join([method, path, "&".join(fields),
                               "".join(f"{k}:{lower[k]}\n" for k in signed), ";".join(signed), headers["x-amz-content-sha256"]])
        scope = f"{stamp[:8]}/{REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        key = self.signing_key(stamp[:8])
        signature = mac(key, text).hex()
        headers["Authorization"] = (f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={';'.join(signed)}, "
                                    f"Signature={signature}")
        return signature, key, scope, stamp

    def presign(self, method, path, query="", expires=60, when=None):
        when = when or datetime.datetime.now(datetime.timezone.utc)
        stamp = when.strftime("%Y%m%dT%H%M%SZ")
        scope = f"{stamp[:8]}/{REGION}/s3/aws4_request"
        more = {"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Credential": f"{self.key}/{scope}", "X-Amz-Date": stamp,
                "X-Amz-Expires": str(expires), "X-Amz-SignedHeaders": "host"}
        fields = query.split("&") if query else []
        fields += [f"{k}={urllib.parse.quote(v, safe='-_.~')}" for k, v in more.items()]
        canonical = "\n".join([method, path, "&".join(sorted(fields)), f"host:{self.host}\n", "host", UNSIGNED])
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        return "&".join(fields) + "&X-Amz-Signature=" + mac(self.signing_key(stamp[:8]), text).hex()

    @property
    def host(self):
        return f"127.0.0.1:{self.where}" if isinstance(self.where, int) else "127.0.0.1"

    # ---- sockets ----

    def connect(self, timeout=30, source=None):
        if isinstance(self.where, str):
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(timeout)
            s.connect(self.where)
            return s
        s = socket.create_connection(("127.0.0.1", self.where), timeout=timeout, source_address=(source, 0) if source else None)
        return self.context.wrap_socket(s, server_hostname="127.0.0.1") if self.context else s

    def head(self, method, path, query="", headers=None, payload=EMPTY, length=None, when=None, is_signed=True):
        """The bytes of a request's head."""
        h = {"Host": self.host, **(headers or {})}
        if is_signed:
            self.sign(method, path, query, h, payload, when)
        if length is not None:
            h["Content-Length"] = str(length)
        target = path + ("?" + query if query else "")
        return (f"{method} {target} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in h.items()) + "\r\n").encode("latin-1")

    def request(self, method, path, query="", headers=None, body=b"", payload=None, is_signed=True, when=None):
        payload = payload or hashlib.sha256(body).hexdigest()
        length = len(body) if body or method in ("PUT", "POST") else None
        head = self.head(method, path, query, headers, payload, length, when, is_signed)
        return self.send(head + body, method)

    def send(self, data, method="GET"):
        with self.connect() as s:
            s.sendall(data)
            return read_answer(s, method)

    def chunked(self, path, parts, headers=None, kind="STREAMING-AWS4-HMAC-SHA256-PAYLOAD", trailer=None, spoil=None, decoded=None,
                method="PUT", query=""):
        """An aws-chunked upload; 'spoil' gets the list of framed chunks and returns the bytes that are sent instead."""
        size = sum(len(p) for p in parts) if decoded is None else decoded
        h = {"Host": self.host, "x-amz-decoded-content-length": str(size), "content-encoding": "aws-chunked", **(headers or {})}
        if trailer:
            h["x-amz-trailer"] = trailer[0]
        signature, key, scope, stamp = self.sign(method, path, query, h, kind)
        is_signed = kind.startswith("STREAMING-AWS4")
        frames = []
        for p in [*parts, b""]:
            if is_signed:
                text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", stamp, scope, signature, EMPTY, hashlib.sha256(p).hexdigest()])
                signature = mac(key, text).hex()
                frames.append(f"{len(p):x};chunk-signature={signature}\r\n".encode() + p + (b"\r\n" if p or not trailer else b""))
            else:
                frames.append(f"{len(p):x}\r\n".encode() + p + (b"\r\n" if p else b""))
        if trailer:
            line = f"{trailer[0]}:{trailer[1]}\n"
            end = line.replace("\n", "\r\n")
            if is_signed:
                text = "\n".join(["AWS4-HMAC-SHA256-TRAILER", stamp, scope, signature, hashlib.sha256(line.encode()).hexdigest()])
                end += f"x-amz-trailer-signature:{mac(key, text).hex()}\r\n"
            frames.append(end.encode() + b"\r\n")
        elif not is_signed:
            frames.append(b"\r\n")
        body = spoil(frames) if spoil else b"".join(frames)
        h["Content-Length"] = str(len(body))
        target = path + ("?" + query if query else "")
        data = (f"{method} {target} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in h.items()) + "\r\n").encode() + body
        return self.send(data, method)


def read_head(f):
    line = f.readline()
    if not line:
        return None, None
    status = int(line.split()[1])
    headers = {}
    while True:
        line = f.readline().strip()
        if not line:
            return status, headers
        k, _, v = line.decode("latin-1").partition(":")
        headers[k.strip().lower()] = v.strip()


def read_answer(s, method="GET", skip_continue=True):
    f = s.makefile("rb")
    status, headers = read_head(f)
    while status == 100 and skip_continue:
        status, headers = read_head(f)
    if status is None:
        return Answer(0, {}, b"")
    if method == "HEAD" or status in (100, 204, 304):
        return Answer(status, headers, b"")
    if headers.get("transfer-encoding") == "chunked":
        body = b""
        while True:
            n = int(f.readline(), 16)
            body += f.read(n)
            f.readline()
            if n == 0:
                return Answer(status, headers, body)
    if "content-length" in headers:
        return Answer(status, headers, f.read(int(headers["content-length"])))
    return Answer(status, headers, f.read())


def wait_gone(fn, timeout=10):
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if fn():
            return True
        time.sleep(0.05)
    return False
