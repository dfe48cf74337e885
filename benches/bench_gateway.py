"""The gateway under load: CPU time of requests, latencies while Python is busy, and memory of connections.

wrk and h2load request keys of one map and payloads over 64 connections that are kept alive, from ``coregw serve`` and
from bare hyper, which answers a constant of 1,500 bytes over HTTP/1.1. The servers have one core, the client another.
The figure is the CPU time per request (user and system, all threads of the server's process) over that of the constant,
since other processes may use the machine; the minimum over all rounds counts, for each row.

``--today PYTHON`` also measures the gateway of another checkout, by its interpreter, in the same rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import concurrent.futures
import contextlib
import itertools
import json
import os
import random
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

import report
from coregw import payload_cid
from coregw.gateway.limits.machine import least_bytes
from coregw.gateway.settings import Settings

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")
CONNECTIONS, BATCH_CONNECTIONS, BATCH, LISTED = 64, 4, 1000, 100_000
PAYLOAD_BYTES, WARM_PAYLOADS = 4096, 1000
ADMIN = "bench"
IDLE_CONNECTIONS = 10_000
LISTED, LISTED_AT_ONCE = 100_000, 1000
SETTINGS = {"log_level": "error", "connections": str(IDLE_CONNECTIONS + 1000)}
"""Of all gateways. With a quarter of the machine's memory, all pages of a map of 10^6 arcs are cached."""

TODAY_SETTINGS = {"cache_bytes": str(512 << 20), "keep_alive_seconds": "600"}
"""Of the other checkout, whose memory and deadlines are settings of their own."""

READS_PER_SECOND = 200
"""Of reads that are sent at a fixed rate, whatever is answered."""

NOW, TODAY, CONSTANT = "gateway", "today", "constant"


class Server:
    """A server in a process of its own."""

    def __init__(self, command: Sequence[str], environment: dict[str, str] | None = None) -> None:
        env = os.environ | (environment or {})
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # a start is not that of the compiler
        began = time.perf_counter()
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "http://" not in line:
            sys.exit(f"{command} did not start")
        self.url = line.split()[-1]
        self.start_seconds = time.perf_counter() - began
        number = line.split()[0]
        self.pid = int(number) if number.isdigit() else self.process.pid

    def use_cores(self, cores: set[int]) -> None:
        for task in Path(f"/proc/{self.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # a thread that has ended meanwhile
                os.sched_setaffinity(int(task.name), cores)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_bytes(self) -> int:
        """Return its memory without that of files."""
        found = re.search(r"^RssAnon:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text(), re.MULTILINE)
        assert found
        return int(found[1]) << 10

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        self.process.terminate()
        if self.pid != self.process.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, 15)
        self.process.wait()


def start_gateway(data: Path, today: str | None = None, *, is_small: bool = False) -> Server:
    """Start a gateway; a small one has too little memory for the payloads that are requested of it.

    Args:
        data: Its store.
        today: The interpreter of another checkout; None for this one.
        is_small: Whether it has as little memory as it can.
    """
    settings = dict(SETTINGS)
    if today:
        settings |= TODAY_SETTINGS | ({"cache_bytes": str(8 << 20)} if is_small else {})
    elif is_small:
        settings["memory"] = str(least_bytes(Settings(connections=int(SETTINGS["connections"]))))
    options = itertools.chain.from_iterable(("--set", f"{name}={value}") for name, value in settings.items())
    command = [today or sys.executable, str(HERE / "gateway_process.py"), "--port", "0", "--data", str(data), *options]
    return Server(command, {"GATEWAY_ADMIN_TOKEN": ADMIN})


def start_constant() -> Server:
    return Server(["cargo", "bench", "--quiet", "--locked", "-p", "coregw-front", "--bench", "hot", "--", "constant"])


# --- load -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What is requested, and how."""

    name: str
    servers: tuple[str, ...]
    requests: Path
    """Lines for requests.lua. Of HTTP/2, the first one is sent again and again."""
    connections: int = CONNECTIONS
    accept: str = ""
    streams: int = 0
    """Of each connection of HTTP/2; 0 for HTTP/1.1."""


def load(server: Server, row: Row, core: str, seconds: float) -> float:
    """Send requests, and return the server's CPU seconds for each."""
    before = server.cpu_seconds()
    sent = (by_h2load if row.streams else by_wrk)(server.url, row, core, seconds)
    return (server.cpu_seconds() - before) / sent


@contextlib.contextmanager
def listed(url: str, requests: Path, seconds: float) -> Iterator[None]:
    """Let two clients list entries for so many seconds, which the context takes."""
    command = ["wrk", "-t1", "-c2", f"-d{seconds}s", "-s", str(HERE / "requests.lua"), url, "--", str(requests), "", ""]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield
        last = process.communicate()[0].strip().splitlines()[-1]
        if process.returncode or json.loads(last)["failed"]:
            sys.exit(f"listing: wrk reports failed requests: {last}")


def by_wrk(url: str, row: Row, core: str, seconds: float) -> int:
    command = ["taskset", "-c", core, "wrk", "-t1", f"-c{row.connections}", f"-d{seconds}s", "--timeout", "10s"]
    command += ["-s", str(HERE / "requests.lua"), url, "--", str(row.requests), row.accept, f"Bearer {ADMIN}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if found["failed"] or not found["requests"]:
        sys.exit(f"{row.name}: wrk reports failed requests: {found}")
    return int(found["requests"])


def by_h2load(url: str, row: Row, core: str, seconds: float) -> int:
    with row.requests.open() as lines:
        _, path, body = lines.readline().strip().split(" ", 2)
    data = row.requests.with_suffix(".body")
    data.write_text(body)
    count = int(20_000 * seconds)
    command = ["taskset", "-c", core, "h2load", "-t1", f"-c{row.connections}", f"-m{row.streams}", f"-n{count}"]
    command += [f"-d{data}", "-Hcontent-type: application/json", f"{url}{path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"(\d+) succeeded", done.stdout)
    if found is None or int(found[1]) < count:
        sys.exit(f"{row.name}: h2load reports failed requests: {done.stdout}")
    return count


# --- latencies --------------------------------------------------------------------------------------------------------


async def latencies(url: str, requests: Sequence[bytes], rate: float, seconds: float) -> list[float]:
    """Send requests at a fixed rate, and return the time from when each was due to its answer, in order of these times.

    One that finds no free connection waits for it, which counts.
    """
    host, port = urlsplit(url).hostname, urlsplit(url).port
    free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    for _ in range(CONNECTIONS):
        free.put_nowait(await asyncio.open_connection(host, port))
    took: list[float] = []
    begin = time.perf_counter() + 0.1

    async def ask(number: int) -> None:
        due = begin + number / rate
        await asyncio.sleep(due - time.perf_counter())
        reader, writer = await free.get()
        writer.write(requests[number % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        length = re.search(rb"(?i)content-length: (\d+)", head)
        assert length
        await reader.readexactly(int(length[1]))
        took.append(time.perf_counter() - due)
        free.put_nowait((reader, writer))

    await asyncio.gather(*(ask(number) for number in range(int(rate * seconds))))
    while not free.empty():
        free.get_nowait()[1].close()
    return sorted(took)


def p99(times: Sequence[float]) -> float:
    return times[len(times) * 99 // 100]


def raw(line: str) -> bytes:
    """Return the bytes of a request of a line for requests.lua."""
    method, path, body = (line.strip() + "  ").split(" ", 2)
    body = body.strip()
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def idle_bytes(server: Server, request: bytes, count: int) -> float:
    """Return the memory of a connection that has been answered once and is kept, of so many."""
    address = (urlsplit(server.url).hostname, urlsplit(server.url).port)
    opened: list[socket.socket] = []

    def open_more(more: int) -> None:
        new = [socket.create_connection(address, 60) for _ in range(more)]
        opened.extend(new)
        for connection in new:
            connection.sendall(request)
        for connection in new:
            assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")

    open_more(100)
    before = server.memory_bytes()
    open_more(count)
    memory = server.memory_bytes() - before
    for connection in opened:
        connection.close()
    return memory / count


# --- what is requested ------------------------------------------------------------------------------------------------


def key(number: int) -> list[str]:
    return ["users", f"{number:08}", "profile"]


def create_map(url: str, arcs: int) -> str:
    """Create the map in the gateway and return its root."""
    target = payload_cid(b"profile")
    answer = httpx2.post(f"{url}/v1/roots", json={"arcs": {"/".join(key(n)): target for n in range(arcs)}}, timeout=600)
    return str(answer.raise_for_status().json()["root"])


def publish(url: str, root: str) -> None:
    headers = {"Authorization": f"Bearer {ADMIN}"}
    body = {"name": "bench", "root": root}
    httpx2.post(f"{url}/admin/v1/scopes/bench/roots", json=body, headers=headers).raise_for_status()


def upload_payloads(url: str, count: int) -> list[str]:
    """Upload different payloads, and return their CIDs."""
    payloads = [f"{number:08}".encode() * (PAYLOAD_BYTES // 8) for number in range(count)]

    def upload(part: list[bytes]) -> None:
        with httpx2.Client(timeout=60) as client:
            for payload in part:
                client.post(f"{url}/v1/cas", content=payload).raise_for_status()

    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        list(threads.map(upload, (payloads[start::16] for start in range(16))))
    return [payload_cid(payload) for payload in payloads]


def write_lines(file: Path, lines: Iterator[str]) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines))
    return file


def queries(root: str, rng: random.Random, arcs: int, count: int) -> dict[str, Callable[[], Iterator[str]]]:
    """Return the lines of each kind of query."""

    def resolve() -> Iterator[str]:
        for _ in range(count):
            body = {"profile": "core.resolve/v0alpha1", "root": root, "segments": key(rng.randrange(arcs))}
            yield f"POST /v1/resolve {json.dumps(body)}"

    def multiproof() -> Iterator[str]:
        for _ in range(count // 500):
            keys = [key(number) for number in rng.sample(range(arcs), BATCH)]
            body = {"profile": "core.map-proof/v0alpha1", "root": root, "keys": keys}
            yield f"POST /v1/map-proof {json.dumps(body)}"

    def batch() -> Iterator[str]:
        for _ in range(count // 500):
            paths = [key(rng.randrange(arcs)) for _ in range(BATCH)]
            yield f"POST /v1/resolve/batch {json.dumps({'root': root, 'paths': paths})}"

    def listing() -> Iterator[str]:
        for start in range(0, min(arcs, LISTED), LISTED_AT_ONCE):
            body = {"profile": "core.scan/v0alpha1", "root": root, "prefix": [], "after": key(start)}
            yield f"POST /v1/scan {json.dumps(body | {'limit': LISTED_AT_ONCE})}"

    return {"resolve": resolve, "multiproof": multiproof, "batch": batch, "listing": listing}


# --- the bench --------------------------------------------------------------------------------------------------------


class Bench:
    """The servers, and what was measured."""

    def __init__(self, args: argparse.Namespace, top: Path) -> None:
        self.quick: bool = args.quick
        self.arcs, self.rounds, self.seconds = (100_000, 2, 1) if args.quick else (1_000_000, 5, 3)
        self.pythons: dict[str, str | None] = {NOW: None} | ({TODAY: args.today} if args.today else {})
        self.top, self.core = top, sorted(os.sched_getaffinity(0))
        self.servers: dict[str, Server] = {}
        self.cpu: dict[tuple[str, str], float] = {}
        self.rows: list[Row] = []

    def start(self, name: str, server: Server) -> Server:
        self.servers[name] = server
        return server

    def prepare(self) -> None:
        """Start all servers, and store what is requested."""
        rng = random.Random(7)
        self.start(CONSTANT, start_constant())
        gateways = tuple(self.pythons)
        files: dict[str, Path] = {}
        payloads: list[str] = []
        stored: list[str] = []
        for name, python in self.pythons.items():
            url = self.start(name, start_gateway(self.top / name, python)).url
            root = create_map(url, self.arcs)
            publish(url, root)
            if not files:
                count = 20_000 if self.quick else 100_000
                for kind, lines in queries(root, rng, self.arcs, count).items():
                    files[kind] = write_lines(self.top / f"{kind}.txt", lines())
            payloads = upload_payloads(url, WARM_PAYLOADS)
            cold = self.start(f"{name}, small cache", start_gateway(self.top / f"{name}-cold", python, is_small=True))
            stored = upload_payloads(cold.url, 3000 if self.quick else 20_000)
        files["payload"] = write_lines(self.top / "payload.txt", (f"GET /v1/cas/{cid}" for cid in payloads))
        files["stored"] = write_lines(self.top / "stored.txt", (f"GET /v1/cas/{cid}" for cid in stored))
        record = "GET /admin/v1/scopes/bench/roots/bench"
        files["record"] = write_lines(self.top / "record.txt", iter([record]))
        files["new payload"] = write_lines(self.top / "new.txt", iter([f"POST /v1/cas ?{PAYLOAD_BYTES}"]))
        octets = "application/octet-stream"
        small = tuple(f"{name}, small cache" for name in gateways)
        self.rows = [
            Row("constant", (CONSTANT,), files["resolve"]),
            Row("resolve", gateways, files["resolve"]),
            Row("resolve, HTTP/2", (NOW,), files["resolve"], streams=1),
            Row("resolve, HTTP/2, 8 streams", (NOW,), files["resolve"], connections=CONNECTIONS // 8, streams=8),
            Row("payload of 4 KiB", gateways, files["payload"]),
            Row("payload of 4 KiB, from the store", small, files["stored"]),
            Row("payload of 4 KiB, stored durably", gateways, files["new payload"]),
            Row("multiproof", gateways, files["multiproof"], BATCH_CONNECTIONS),
            Row("bare multiproof", gateways, files["multiproof"], BATCH_CONNECTIONS, octets),
            Row("batch", gateways, files["batch"], BATCH_CONNECTIONS),
            Row("record by name", gateways, files["record"]),
        ]

    def measure_cpu(self) -> None:
        for server in self.servers.values():
            server.use_cores({self.core[0]})
        for number in range(self.rounds + 1):  # the first warms
            for row in self.rows:
                for name in row.servers:
                    cpu = load(self.servers[name], row, str(self.core[1]), self.seconds)
                    place = (name.partition(",")[0], row.name)
                    self.cpu[place] = min(self.cpu.get(place, cpu), cpu) if number else float("inf")
        for server in self.servers.values():
            server.use_cores(set(self.core))

    def add_cpu(self, figures: report.Report) -> None:
        constant = self.cpu[CONSTANT, "constant"]
        bars = {
            "resolve": 2.8,
            "resolve, HTTP/2": 4,
            "resolve, HTTP/2, 8 streams": 4,
            "payload of 4 KiB": 2.2,
            "payload of 4 KiB, from the store": 6,
            "payload of 4 KiB, stored durably": 6,
        }
        for name, bar in bars.items():
            for gateway in self.pythons:
                if (gateway, name) not in self.cpu:
                    continue
                cpu = self.cpu[gateway, name]
                ours = gateway == NOW
                what = "CPU time / constant of bare hyper" + ("" if ours else ", today")
                figures.add(what, cpu / constant, series=name, better="lower", bar=bar if ours else None, guarded=ours)
        single = self.cpu[NOW, "resolve"]
        for name, most in {"multiproof": None, "bare multiproof": 1.5, "batch": None}.items():
            series = f"{name} of {BATCH:,} random keys"
            per_key = self.cpu[NOW, name] / BATCH
            figures.add("CPU time per key", per_key * 1e6, "µs", series=series, better="lower", bar=most)
            figures.add(
                "CPU time per key / single resolve", per_key / single, series=series, better="lower", guarded=True
            )
            if TODAY in self.pythons:
                figures.add("CPU time / today", self.cpu[NOW, name] / self.cpu[TODAY, name], series=series)
        if TODAY in self.pythons:
            cold = self.cpu[NOW, "record by name"] / self.cpu[TODAY, "record by name"]
            figures.add("CPU time / today", cold, series="record by name", better="lower", bar=1.6)
        for (gateway, name), cpu in self.cpu.items():
            figures.add("CPU time", cpu * 1e6, "µs", series=f"{name}, {gateway}", recorded=False)

    def add_latencies(self, figures: report.Report) -> None:
        seconds = 3 if self.quick else 10
        warm = [raw(line) for line in (self.top / "resolve.txt").read_text().splitlines()[:5000]]
        stored = [raw(line) for line in (self.top / "stored.txt").read_text().splitlines()]
        count = int(READS_PER_SECOND * seconds)
        # Each pass reads other payloads: those that were read are in the cache.
        unread = (stored[start : start + count] for start in range(0, len(stored), count))
        small = self.servers[f"{NOW}, small cache"]
        # Of this gateway alone: the reads of one in Python wait as long as the call.
        for series, server, requests, work, of, bar in (
            ("p99 of warm reads", self.servers[NOW], itertools.repeat(warm), "hold", p99, 1.5),
            ("median of stored reads", small, unread, "compute", statistics.median, 8),
        ):
            alone, busy = [], []
            for _ in range(1 if self.quick else 3):
                alone.append(of(asyncio.run(latencies(server.url, next(requests), READS_PER_SECOND, seconds))))
                server.say(f"{work} {seconds}")
                busy.append(of(asyncio.run(latencies(server.url, next(requests), READS_PER_SECOND, seconds - 0.5))))
                time.sleep(1)
            what = "while a call holds the GIL" if work == "hold" else "while a thread computes"
            figures.add(f"{what} / alone", min(busy) / min(alone), series=series, better="lower", bar=bar)
            figures.add("alone", min(alone) * 1000, "ms", series=series, recorded=False)

    def add_listings(self, figures: report.Report) -> None:
        """Short reads beside listings, which take a hundred times as long each."""
        seconds = 3 if self.quick else 10
        requests = [raw(line) for line in (self.top / "resolve.txt").read_text().splitlines()[:5000]]
        server, alone, beside = self.servers[NOW], [], []
        for _ in range(1 if self.quick else 3):
            alone.append(p99(asyncio.run(latencies(server.url, requests, READS_PER_SECOND, seconds))))
            with listed(server.url, self.top / "listing.txt", seconds + 1):
                beside.append(p99(asyncio.run(latencies(server.url, requests, READS_PER_SECOND, seconds))))
        name, ratio = f"beside listings of {LISTED:,} entries / alone", min(beside) / min(alone)
        figures.add(name, ratio, series="p99 of warm reads", better="lower", bar=2)

    def add_memory(self, figures: report.Report) -> None:
        # A gateway takes no more connections than it may open files for: three for each, and those that wait.
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 5
        count = min(IDLE_CONNECTIONS // 10 if self.quick else IDLE_CONNECTIONS, most)
        request = raw((self.top / "stored.txt").read_text().splitlines()[0])
        at_start: dict[str, list[tuple[float, int]]] = {gateway: [] for gateway in self.pythons}
        for gateway in self.pythons:
            memory = idle_bytes(self.servers[f"{gateway}, small cache"], request, count)
            suffix, bar = ("", 24) if gateway == NOW else (", today", None)
            figures.add(
                f"memory of each{suffix}", memory / 1024, "KiB", series="idle connections", better="lower", bar=bar
            )
        for _ in range(3 if self.quick else 7):
            for gateway, python in self.pythons.items():
                server = start_gateway(self.top / f"{gateway}-start", python)
                httpx2.get(f"{server.url}/readyz").raise_for_status()
                at_start[gateway].append((server.start_seconds, server.memory_bytes()))
                server.stop()
        best = {gateway: [min(each) for each in zip(*found, strict=True)] for gateway, found in at_start.items()}
        for gateway, (seconds, memory) in best.items():
            figures.add(f"seconds, {gateway}", seconds, "s", series="start", recorded=False)
            figures.add(f"memory, {gateway}", memory / 2**20, "MiB", series="start", recorded=False)
        if TODAY in best:
            for name, ours, theirs in zip(("time", "memory"), best[NOW], best[TODAY], strict=True):
                figures.add(f"{name} / today", ours / theirs, series="start", better="lower", bar=1)


def main() -> None:
    parser = report.parser(__doc__)
    parser.add_argument("--today", help="the interpreter of another checkout, whose gateway is measured as well")
    args = parser.parse_args()
    for tool, package in (("wrk", "wrk"), ("h2load", "nghttp2-client")):
        if shutil.which(tool) is None:
            sys.exit(f"this bench needs {tool}, a load generator: apt-get install {package}")
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit("this bench needs two cores: one for the gateway, one for the load")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, Path(folder))
        notes = (
            f"A map of {bench.arcs:,} arcs, all pages cached; {CONNECTIONS} connections; a core for the server.",
            "Constant: 1,500 bytes of bare hyper over HTTP/1.1 in clear.",
        )
        figures = report.Report("gateway", "Reads through HTTP", args, notes)
        try:
            bench.prepare()
            bench.measure_cpu()
            bench.add_cpu(figures)
            bench.add_latencies(figures)
            bench.add_listings(figures)
            bench.add_memory(figures)
        finally:
            for server in bench.servers.values():
                server.stop()
    picture(figures, bench)
    figures.finish()


def picture(figures: report.Report, bench: Bench) -> None:
    """Draw the requests per second of one core, and name the figures that the README shows."""
    names = {
        "bare hyper, a constant": (CONSTANT, "constant"),
        "a lookup, proven": (NOW, "resolve"),
        "a payload of 4 KiB": (NOW, "payload of 4 KiB"),
        "a request that Python answers": (NOW, "record by name"),
    }
    rates = {name: 1 / bench.cpu[place] for name, place in names.items()}
    constant, resolve, *_ = names
    figures.chart("Requests/s of one core of the gateway", "1/s", rates, better="higher", floors={constant})
    keys, what = BATCH / bench.cpu[NOW, "bare multiproof"], f"of a map of {bench.arcs:,} keys, one core"
    figures.headline(f"Gateway: lookups over HTTP, proven, {what}", rates[resolve], "1/s", constant, rates[constant])
    figures.headline(
        f"Gateway: keys over HTTP, {BATCH:,} in a multiproof, {what}", keys, "1/s", resolve, rates[resolve]
    )


if __name__ == "__main__":
    main()
