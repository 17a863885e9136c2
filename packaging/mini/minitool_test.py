"""minitool's HTTP client against a server on loopback that answers well, badly, slowly or not at all."""
import socket
import subprocess
import sys
import threading
import time

TOOL = sys.argv[1]
BIG = b"x" * 200_000

# name, bytes that the server sends (None: it never answers), arguments, wanted status, wanted output
CASES = [
    ("body by length", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", [], 0, b"hi"),
    ("body by length, connection kept", b"HTTP/1.1 200 OK\r\ncontent-length:2\r\n\r\nhiKEEP", [], 0, None),
    ("body until close", b"HTTP/1.0 200 OK\r\n\r\nall of it", [], 0, b"all of it"),
    ("bytes of any value", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\x00\x1f\x8b\xff", [], 0, b"\x00\x1f\x8b\xff"),
    ("large", b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + BIG, [], 0, BIG),
    ("not found", b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno.", [], 4, b""),
    ("refused", b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", [], 3, b""),
    ("head shown", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", ["-i"], 4, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
    ("not HTTP", b"SSH-2.0-x\r\n", [], 7, b""),
    ("cut in the head", b"HTTP/1.1 200 OK\r\nConte", [], 7, b""),
    ("empty", b"", [], 7, b""),
    ("status that is no number", b"HTTP/1.1 2x0 OK\r\n\r\n", [], 7, b""),
    ("silence", None, ["-t", "1"], 7, b""),
]


def serve(listener, answer, seen):
    conn, _ = listener.accept()
    head = b""
    while b"\r\n\r\n" not in head:
        piece = conn.recv(4096)
        if not piece:
            break
        head += piece
    seen.append(head)
    if answer is None:
        time.sleep(2)
    else:
        conn.sendall(answer)
    conn.close()


def main():
    n_bad = 0
    for name, answer, args, want_rc, want_out in CASES:
        listener = socket.create_server(("127.0.0.1", 0))
        seen = []
        thread = threading.Thread(target=serve, args=(listener, answer, seen), daemon=True)
        thread.start()
        url = "http://127.0.0.1:%d/a/b" % listener.getsockname()[1]
        start = time.monotonic()
        r = subprocess.run([TOOL, "http", "-H", "X-One: 1", *args, url], capture_output=True, timeout=10)
        took = time.monotonic() - start
        listener.close()
        ok = r.returncode == want_rc and (want_out is None or r.stdout == want_out) and took < 4
        ok = ok and seen and seen[0].startswith(b"GET /a/b HTTP/1.1\r\nHost: 127.0.0.1:") and b"\r\nX-One: 1\r\n" in seen[0]
        if not ok:
            n_bad += 1
            print("FAILED: %s: status %d, output %r, %.1f s, request %r" % (name, r.returncode, r.stdout[:80], took, seen))
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    for name, args, want_rc in [
        ("nobody listens", ["http", "http://127.0.0.1:%d/" % port], 7),
        ("a name instead of an address", ["http", "http://localhost/"], 2),
        ("another scheme", ["http", "https://127.0.0.1/"], 2),
        ("no URL", ["http"], 2),
        ("bad time limit", ["http", "-t", "1x", "http://127.0.0.1/"], 2),
        ("grow without arguments", ["grow"], 2),
        ("grow of a disk that is not there", ["grow", "nosuch", "2", "/"], 1),
        ("grow with a long name", ["grow", "x" * 40, "2", "/"], 2),
        ("no command", [], 2),
    ]:
        r = subprocess.run([TOOL, *args], capture_output=True, timeout=10)
        if r.returncode != want_rc:
            n_bad += 1
            print("FAILED: %s: status %d, wanted %d" % (name, r.returncode, want_rc))
    print("%d cases, %d failed" % (len(CASES) + 9, n_bad))
    return 1 if n_bad else 0


sys.exit(main())
