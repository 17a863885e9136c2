"""What benches share: rows with a value of each round beside a target, CPU time of processes, nginx as a peer, the machine, and the files of results."""
import datetime
import json
import os
import platform
import socket
import statistics
import subprocess
import time

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
TICK_US = 1e6 / os.sysconf("SC_CLK_TCK")
rows = []


def cpu_us(pids):
    """utime and stime of the processes, in ticks of the kernel (10 ms)."""
    total = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            total += (int(fields[11]) + int(fields[12])) * TICK_US
        except FileNotFoundError:
            pass
    return total


def run_us(pids):
    """The same, finer: time that their threads ran. Threads that ended meanwhile are not in it."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            try:
                with open(f"/proc/{pid}/task/{task}/schedstat") as f:
                    total += int(f.read().split()[0]) / 1000
            except FileNotFoundError:
                pass
    return total


def rss_kib(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(next(line for line in f if line.startswith("VmRSS")).split()[1])


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return [pid, *map(int, f.read().split())]


class Row:
    """One figure: a value of each round, beside a target; can_tell: whether this machine can judge it."""

    def __init__(self, name, unit, values, target=None, is_max=True, note="", can_tell=True):
        self.name, self.unit, self.target, self.note = name, unit, target, note
        self.value = statistics.median(values)
        self.low, self.high = min(values), max(values)
        self.ok = None if target is None or not can_tell else (self.value <= target if is_max else self.value >= target)
        self.sign = "<=" if is_max else ">="
        rows.append(self)
        print(self.text(), flush=True)

    def text(self):
        word = {True: "ok", False: "NOT REACHED", None: "cannot tell"}[self.ok]
        target = "" if self.target is None else f"  {self.sign} {self.target:g} {word}"
        return f"{self.name:58} {self.value:12,.2f} {self.unit:9} [{self.low:,.2f} - {self.high:,.2f}]{target}  {self.note}"

    def json(self):
        return {"name": self.name, "value": round(self.value, 3), "unit": self.unit, "target": self.target, "ok": self.ok,
                "range": [round(self.low, 3), round(self.high, 3)], "note": self.note}


class Nginx:
    """Serves <folder>/nginx-root over TLS and takes files by WebDAV."""

    def __init__(self, folder, cert, key):
        import cloud as cloud_lib  # here: bench/block needs no client of AWS
        self.port = cloud_lib.free_port()
        self.root = os.path.join(folder, "nginx-root")
        os.makedirs(self.root)
        os.makedirs(os.path.join(folder, "nginx-tmp"))
        conf = os.path.join(folder, "nginx.conf")
        user = "user root;" if os.geteuid() == 0 else ""
        with open(conf, "w") as f:
            f.write(f"""{user} worker_processes 2; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log;
                events {{ worker_connections 8192; }}
                http {{ access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000; client_max_body_size 0;
                client_body_temp_path {folder}/nginx-tmp; proxy_temp_path {folder}/nginx-tmp; fastcgi_temp_path {folder}/nginx-tmp;
                uwsgi_temp_path {folder}/nginx-tmp; scgi_temp_path {folder}/nginx-tmp; default_type application/octet-stream;
                server {{ listen 127.0.0.1:{self.port} ssl; ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;
                root {self.root}; dav_methods PUT DELETE; create_full_put_path on; }} }}""")
        self.proc = subprocess.Popen(["nginx", "-p", folder, "-c", conf], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                break
            except OSError:
                time.sleep(0.05)
        self.url = f"https://localhost:{self.port}"

    def pids(self):
        return children(self.proc.pid)

    def stop(self):
        self.proc.terminate()
        self.proc.wait()


def wrk(url, requests, body, conns, seconds):
    """One run over a file of requests: operations, seconds, percentiles; anything but success ends the bench."""
    p = subprocess.run(["wrk", "-t2", f"-c{conns}", f"-d{seconds}s", "--timeout", "30s", "-s", os.path.join(os.path.dirname(__file__), "load.lua"), url,
                        "--", requests, str(body)], capture_output=True, text=True)
    got = json.loads(p.stderr.strip().splitlines()[-1])
    if got["status"] or got["socket"] or not got["requests"]:
        raise SystemExit(f"wrk {url} {requests}: {got} {p.stdout}{p.stderr}")
    return got


def machine(**more):
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    fs = subprocess.run(["stat", "-f", "-c", "%T", "/tmp"], capture_output=True, text=True).stdout.strip()
    return {"cpu": model, "cpus": os.cpu_count(), "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / GIB, 1),
            "kernel": platform.release().split("-")[0], "file_system": fs, "load_1min": os.getloadavg()[0], **more}


def nginx_version():
    return {"nginx": subprocess.run(["nginx", "-v"], capture_output=True, text=True).stderr.strip().split("/")[-1],
            "openssl": subprocess.run(["openssl", "version"], capture_output=True, text=True).stdout.split()[1]}


def write_results(bench, title, path, before, how, **more):
    """The rows as JSON and, beside it, as a table for people."""
    doc = {"bench": bench, "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"), "machine": before,
           "load_1min_at_end": os.getloadavg()[0], **more, "rows": [r.json() for r in rows]}
    with open(path, "w") as f:
        json.dump(doc, f, indent=1)
        f.write("\n")
    versions = "".join(f", {k} {before[k]}" for k in ("nginx", "openssl", "iperf3", "qemu") if k in before)
    with open(os.path.splitext(path)[0] + ".md", "w") as f:
        f.write(f"# {title}, {doc['date']}\n\n{before['cpu']}, {before['cpus']} CPUs, {before['memory_gib']} GiB, Linux {before['kernel']}, "
                f"{before['file_system']}{versions}. Load at the start {before['load_1min']:.1f}, at the end {doc['load_1min_at_end']:.1f}. {how}\n\n"
                "| what | value | unit | range | target | reached |\n|---|---|---|---|---|---|\n")
        for r in rows:
            target = "" if r.target is None else f"{r.sign} {r.target:g}"
            f.write(f"| {r.name}{'; ' + r.note if r.note else ''} | {r.value:,.2f} | {r.unit} | {r.low:,.2f} - {r.high:,.2f} | {target} | "
                    f"{'' if r.ok is None else 'yes' if r.ok else 'no'} |\n")
