"""The gateway under load: what a warm resolve costs beyond the HTTP stack, and what a batch saves.

wrk requests keys of one map over 64 keep-alive connections, with a uniform and with a Zipf distribution. Three servers
get the same requests in turn: the gateway; the gateway with an engine that returns a constant of the same size, which
measures the HTTP stack on that route; and a bare ASGI application on the same server. The server has one core
and wrk another. The figure is the CPU time per request (user and system, all threads of the server process), since
other processes may use the machine; the minimum over all rounds counts, per server.

A batch may use all cores, so its throughput is measured as well, with both cores for the gateway: proofs per second,
relative to single requests per second. Of a multiproof, the CPU time per key counts, with the server on one core: in
JSON, and as the bare proof.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2

import report
from coregw import payload_cid

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")
CONNECTIONS, BATCH_CONNECTIONS, BATCH = 64, 4, 1000
ZIPF = 1.0
"""The exponent: the key of rank n is requested 1/n as often as the most popular one."""


@dataclass
class Measured:
    """The best values over all rounds, for one server and one kind of request."""

    cpu: float = float("inf")
    """CPU seconds per request."""
    p50: float = float("inf")
    p99: float = float("inf")
    """Seconds from sending a request to receiving its response."""
    rate: float = 0.0
    """Requests per second."""

    def update(self, wrk: dict[str, int], cpu: float) -> None:
        if wrk["failed"] or not wrk["requests"]:
            sys.exit(f"wrk reports failed requests: {wrk}")
        self.cpu = min(self.cpu, cpu / wrk["requests"])
        self.p50, self.p99 = min(self.p50, wrk["p50"] / 1e6), min(self.p99, wrk["p99"] / 1e6)
        self.rate = max(self.rate, wrk["requests"] / wrk["microseconds"] * 1e6)


class Server:
    """A child process that runs one of the variants."""

    def __init__(self, kind: str, folder: Path, answer: Path) -> None:
        command = [sys.executable, str(HERE / "gateway_variants.py"), kind, str(folder / kind), str(answer)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "http://" not in line:
            sys.exit(f"the server {kind!r} did not start")
        self.url = line.split()[-1]

    def use_cores(self, cores: set[int]) -> None:
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):  # a thread that has ended meanwhile
                os.sched_setaffinity(int(task.name), cores)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()

    def load(
        self, into: Measured, cores: str, requests: Path, connections: int, seconds: float, accept: str | None = None
    ) -> None:
        """Send requests for some seconds, and record what wrk and the kernel measured."""
        command = ["taskset", "-c", cores, "wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s"]
        before = self.cpu_seconds()
        script = [*command, "-s", str(HERE / "requests.lua"), self.url, "--", str(requests)]
        script += [accept] if accept else []
        done = subprocess.run(script, capture_output=True, text=True, check=True)
        cpu = self.cpu_seconds() - before
        into.update(json.loads(done.stdout.strip().splitlines()[-1]), cpu)


def key(number: int) -> list[str]:
    return ["users", f"{number:08}", "profile"]


def create_map(url: str, arcs: int) -> str:
    """Create the map in the gateway and return its root."""
    target = payload_cid(b"profile")
    answer = httpx2.post(f"{url}/v1/roots", json={"arcs": {"/".join(key(n)): target for n in range(arcs)}}, timeout=300)
    return str(answer.raise_for_status().json()["root"])


def uniform(rng: random.Random, arcs: int) -> Iterator[int]:
    while True:
        yield rng.randrange(arcs)


def zipf(rng: random.Random, arcs: int) -> Iterator[int]:
    """Yield numbers of keys in a Zipf distribution; the popular keys are random, and so spread over the map."""
    sums = list(itertools.accumulate(1 / place**ZIPF for place in range(1, arcs + 1)))
    order = list(range(arcs))
    rng.shuffle(order)
    while True:
        yield order[bisect.bisect(sums, rng.random() * sums[-1])]


def resolve_requests(file: Path, root: str, numbers: Iterator[int], count: int) -> Path:
    bodies = ({"profile": "core.resolve/v0alpha1", "root": root, "segments": key(next(numbers))} for _ in range(count))
    file.write_text("".join(f"POST /v1/resolve {json.dumps(body)}\n" for body in bodies))
    return file


def multiproof_requests(file: Path, root: str, rng: random.Random, arcs: int, count: int) -> Path:
    def body() -> dict[str, object]:
        keys = [key(number) for number in rng.sample(range(arcs), BATCH)]
        return {"profile": "core.map-proof/v0alpha1", "root": root, "keys": keys}

    file.write_text("".join(f"POST /v1/map-proof {json.dumps(body())}\n" for _ in range(count)))
    return file


def batch_requests(file: Path, root: str, numbers: Iterator[int], count: int) -> Path:
    bodies = ({"root": root, "paths": [key(next(numbers)) for _ in range(BATCH)]} for _ in range(count))
    file.write_text("".join(f"POST /v1/resolve/batch {json.dumps(body)}\n" for body in bodies))
    return file


@contextlib.contextmanager
def servers(folder: Path, arcs: int) -> Iterator[tuple[dict[str, Server], str]]:
    """Start the three variants and create the map. The constant is one of the gateway's responses."""
    answer = folder / "answer.json"
    running = {"gateway": Server("gateway", folder, answer)}
    try:
        root = create_map(running["gateway"].url, arcs)
        request = {"profile": "core.resolve/v0alpha1", "root": root, "segments": key(arcs // 2)}
        found = httpx2.post(f"{running['gateway'].url}/v1/resolve", json=request)
        answer.write_bytes(found.raise_for_status().content)
        running |= {kind: Server(kind, folder, answer) for kind in ("constant", "raw")}
        yield running, root
    finally:
        for server in running.values():
            server.stop()


def main() -> None:
    args = report.arguments(__doc__)
    if shutil.which("wrk") is None:
        sys.exit("this bench needs wrk, a load generator: apt-get install wrk, or see github.com/wg/wrk")
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("this bench needs two cores: one for the gateway, one for the load")
    arcs, rounds, seconds, count = (100_000, 2, 1, 20_000) if args.quick else (1_000_000, 5, 3, 100_000)
    rng = random.Random(7)
    measured: dict[tuple[str, str], Measured] = {}
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder), arcs) as (running, root):
        top = Path(folder)
        resolves = {
            "uniform": resolve_requests(top / "uniform", root, uniform(rng, arcs), count),
            "zipf": resolve_requests(top / "zipf", root, zipf(rng, arcs), count),
        }
        batches = batch_requests(top / "batches", root, uniform(rng, arcs), 20 if args.quick else 200)
        multiproofs = multiproof_requests(top / "multiproofs", root, rng, arcs, 20 if args.quick else 200)
        kinds = [("gateway", "uniform"), ("constant", "uniform"), ("raw", "uniform"), ("gateway", "zipf")]
        more = [("gateway", asked) for asked in ("single", "batch", "multiproof", "bare multiproof")]
        measured = {kind: Measured() for kind in [*kinds, *more]}
        gateway, other = running["gateway"], str(cores[1])
        for file in (batches, resolves["uniform"]):  # warm-up
            gateway.load(Measured(), other, file, BATCH_CONNECTIONS, 2 * seconds)
        for _ in range(rounds):
            for server in running.values():
                server.use_cores({cores[0]})
            for kind, asked in kinds:
                into = measured[kind, asked]
                running[kind].load(into, other, resolves[asked], CONNECTIONS, seconds)
            for asked, accept in (("multiproof", None), ("bare multiproof", "application/octet-stream")):
                gateway.load(measured["gateway", asked], other, multiproofs, BATCH_CONNECTIONS, seconds, accept)
            gateway.use_cores({cores[0], cores[1]})
            both = f"{cores[0]},{cores[1]}"
            into = measured["gateway", "single"]
            gateway.load(into, both, resolves["uniform"], CONNECTIONS, seconds)
            into = measured["gateway", "batch"]
            gateway.load(into, both, batches, BATCH_CONNECTIONS, seconds)
    add_figures(args, measured, arcs)


def add_figures(args: object, measured: dict[tuple[str, str], Measured], arcs: int) -> None:
    """Report the ratios, and the values they are computed from."""
    notes = (
        f"A map of {arcs:,} arcs, all pages cached; the server on one core, wrk on another, {CONNECTIONS} connections.",
        "Constant: the same route, with an engine that returns a constant. Raw: bare ASGI. Same server, same sizes.",
    )
    figures = report.Report("gateway", "Resolves through HTTP", args, notes)  # type: ignore[arg-type]
    constant, raw = measured["constant", "uniform"], measured["raw", "uniform"]
    for asked in ("uniform", "zipf"):
        real = measured["gateway", asked]
        name = f"resolve, {asked} keys"
        above = (real.cpu - constant.cpu) * 1e6
        figures.add("CPU time above a constant response", above, "µs", series=name, better="lower", bar=15)
        figures.add("CPU time / constant response", real.cpu / constant.cpu, series=name, better="lower", guarded=True)
        figures.add("CPU time / raw ASGI", real.cpu / raw.cpu, series=name, better="lower", guarded=True)
        figures.add("p99 / p99 of a constant response", real.p99 / constant.p99, series=name, better="lower", bar=2)
        figures.add("p50 / p50 of a constant response", real.p50 / constant.p50, series=name, better="lower")
    batch, single = measured["gateway", "batch"], measured["gateway", "single"]
    name = f"resolve/batch of {BATCH:,} paths"
    gain = batch.rate * BATCH / single.rate
    figures.add("proofs/s / single requests/s", gain, series=name, better="higher", bar=10)
    gain = single.cpu * BATCH / batch.cpu
    figures.add("the same, by CPU time", gain, series=name, better="higher", guarded=True)
    multiproof = measured["gateway", "multiproof"]
    per_key = multiproof.cpu / BATCH * 1e6
    name = f"multiproof of {BATCH:,} random keys"
    figures.add("CPU time per key", per_key, "µs", series=name, better="lower", bar=1.5)
    figures.add("CPU time per key / single resolve", per_key / single.cpu / 1e6, series=name, better="lower")
    bare = measured["gateway", "bare multiproof"]
    name = f"multiproof of {BATCH:,} random keys, binary"
    figures.add("CPU time per key", bare.cpu / BATCH * 1e6, "µs", series=name, better="lower", bar=1.5)
    figures.add("CPU time / JSON", bare.cpu / multiproof.cpu, series=name, better="lower")
    picture(figures, measured, arcs)
    for (server, asked), each in measured.items():
        cells = {"CPU time": (each.cpu * 1e6, "µs"), "requests/s": (each.rate, "1/s")}
        cells |= {"p50": (each.p50 * 1e3, "ms"), "p99": (each.p99 * 1e3, "ms")}
        for what, (value, unit) in cells.items():
            figures.add(what, value, unit, series=f"{server}, {asked}", recorded=False)
    figures.finish()


def picture(figures: report.Report, measured: dict[tuple[str, str], Measured], arcs: int) -> None:
    """Draw the requests per second of one core, and name the figures that the README shows."""
    names = {
        "a bare ASGI application": ("raw", "uniform"),
        "the route with a constant response": ("constant", "uniform"),
        "a lookup, proven": ("gateway", "uniform"),
        "popular keys (Zipf)": ("gateway", "zipf"),
    }
    rates = {name: measured[kind].rate for name, kind in names.items()}
    raw, constant, resolve, _ = names
    figures.chart("Requests/s with one core for the gateway", "1/s", rates, better="higher", floors={raw, constant})
    multiproof, what = measured["gateway", "multiproof"].rate * BATCH, f"of a map of {arcs:,} keys, one core"
    figures.headline(f"Python: lookups over HTTP, proven, {what}", rates[resolve], "1/s", constant, rates[constant])
    figures.headline(
        f"Python: keys over HTTP, {BATCH:,} in a multiproof, {what}", multiproof, "1/s", resolve, rates[resolve]
    )


if __name__ == "__main__":
    main()
