"""Several workers on one store: the cost of a request with two worker processes, compared with one process.

The same store is served twice, by ``coregw serve`` and by ``coregw serve --workers 2``, and wrk sends requests to both
in turn: lookups in cached pages, lookups with a cache too small for any page, downloads, and uploads. The figure is
the CPU time per request of all processes of a gateway, including the owner of the store. Each answering process is
bound to a core of its own, as on a machine with enough cores; wrk uses what they leave.
"""

from __future__ import annotations

import contextlib
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
from coregw.gateway.limits.machine import least_bytes
from coregw.gateway.settings import GIB, Settings

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")
COUNTS = (1, 2)
CONNECTIONS = 64
PAGE_ARCS = 40
"""A lower bound, roughly, of the adjacent arcs in a page."""
PAYLOAD_BYTES, UPLOAD_BYTES = 64 << 10, 4 << 10
CACHED, COLD, DOWN, UP = "lookup, cached", "lookup, cold", "64 KiB download", "4 KiB upload"
BARS = {CACHED: 1.15, DOWN: 1.15}
"""The highest ratio of CPU time per request, for rows in which nothing crosses between processes."""


@dataclass
class Gateway:
    """A running gateway, of one or several processes."""

    process: subprocess.Popen[str]
    url: str

    def workers(self) -> list[str]:
        threads = Path(f"/proc/{self.process.pid}/task").iterdir()  # any of which may have started them
        return [child for thread in threads for child in (thread / "children").read_text().split()]

    def spread(self) -> None:
        """Bind each answering process to a core of its own."""
        cores = sorted(os.sched_getaffinity(0))
        for number, pid in enumerate(self.workers() or [str(self.process.pid)]):
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.sched_setaffinity(int(task.name), {cores[number % len(cores)]})

    def cpu_seconds(self) -> float:
        """Return the user and system time of all its processes."""
        processes = [str(self.process.pid), *self.workers()]
        stats = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in processes]
        return sum(int(stat[11]) + int(stat[12]) for stat in stats) / TICKS


@dataclass
class Measured:
    """The best values over all rounds, for one gateway and one kind of request."""

    cpu: float = float("inf")
    """CPU seconds per request."""
    rate: float = 0.0
    """Requests per second."""

    def update(self, wrk: dict[str, int], cpu: float) -> None:
        if wrk["failed"] or not wrk["requests"]:
            sys.exit(f"wrk reports failed requests: {wrk}")
        self.cpu = min(self.cpu, cpu / wrk["requests"])
        self.rate = max(self.rate, wrk["requests"] / wrk["microseconds"] * 1e6)


Results = dict[tuple[str, int], Measured]


@contextlib.contextmanager
def gateway(data: Path, workers: int, memory: int | None = None) -> Iterator[Gateway]:
    """Run a gateway, without memory given with the least, whose caches hold next to nothing."""
    memory = least_bytes(Settings(workers=workers)) if memory is None else memory
    options = ["--data", str(data), "--port", "0", "--workers", str(workers)]
    options += ["--set", "log_level=error", "--set", f"memory={memory}"]
    command = [sys.executable, "-P", "-m", "coregw", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if "http://" not in line:
                sys.exit(f"the gateway with {workers} workers did not start")
            running = Gateway(process, line.split()[-1])
            running.spread()
            yield running
        finally:
            process.terminate()


def prepare(folder: Path, arcs: int, payloads: int) -> tuple[dict[str, Path], list[dict[str, object]]]:
    """Fill a store, close it so that everything is in SST files, and copy it.

    Returns:
        The requests of each kind, as files, and batches of lookups that visit every page of the map.
    """
    rng, target = random.Random(11), payload_cid(b"profile")
    paths = [f"users/{number:08}/profile" for number in range(arcs)]
    with gateway(folder / "1", 1, 8 * GIB) as filling, httpx2.Client(base_url=filling.url, timeout=300) as client:
        root = client.post("/v1/roots", json={"arcs": dict.fromkeys(paths, target)}).raise_for_status().json()["root"]
        cids = [client.post("/v1/cas", content=rng.randbytes(PAYLOAD_BYTES)).json()["cid"] for _ in range(payloads)]
    shutil.copytree(folder / "1", folder / "2")
    request = {"profile": "core.resolve/v0alpha1", "root": root}
    asked = [json.dumps(request | {"segments": rng.choice(paths).split("/")}) for _ in range(50_000)]
    lookups = [f"POST /v1/resolve {body}\n" for body in asked]
    lines = {CACHED: lookups, COLD: lookups, DOWN: [f"GET /v1/cas/{cid}\n" for cid in cids]}
    lines[UP] = [f"POST /v1/cas ?{UPLOAD_BYTES}\n"]
    for number, (what, each) in enumerate(lines.items()):
        (folder / f"requests{number}").write_text("".join(each))
        lines[what] = []
    visits = [path.split("/") for path in paths[::PAGE_ARCS]]
    batches: list[dict[str, object]] = [
        {"root": root, "paths": visits[i : i + 1000]} for i in range(0, len(visits), 1000)
    ]
    return {what: folder / f"requests{number}" for number, what in enumerate(lines)}, batches


def warm(url: str, batches: list[dict[str, object]]) -> None:
    """Load the pages into the caches of all workers, over enough connections to reach each of them."""
    for _ in range(12):
        with httpx2.Client(base_url=url, timeout=300) as client:
            for batch in batches:
                client.post("/v1/resolve/batch", json=batch).raise_for_status()


def load(url: str, requests: Path, seconds: float) -> dict[str, int]:
    """Send requests for some seconds and return wrk's summary."""
    wrk = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", "--timeout", "10s", "-s", str(HERE / "requests.lua")]
    done = subprocess.run([*wrk, url, "--", str(requests)], capture_output=True, text=True, check=True)
    summary: dict[str, int] = json.loads(done.stdout.strip().splitlines()[-1])
    return summary


def measure(
    folder: Path,
    requests: dict[str, Path],
    batches: list[dict[str, object]],
    rounds: int,
    seconds: float,
    memory: int | None = None,
) -> Results:
    """Load both gateways in alternating rounds; `batches` and the first are warm-up. See `gateway` for `memory`."""
    results = {(what, count): Measured() for what in requests for count in COUNTS}
    with contextlib.ExitStack() as stack:
        running = {count: stack.enter_context(gateway(folder / str(count), count, memory)) for count in COUNTS}
        for server in running.values():
            warm(server.url, batches)
        for number in range(rounds + 1):
            for (what, count), into in results.items():
                before = running[count].cpu_seconds()
                summary = load(running[count].url, requests[what], seconds)
                (into if number else Measured()).update(summary, running[count].cpu_seconds() - before)
    return results


def main() -> None:
    args = report.arguments(__doc__)
    if shutil.which("wrk") is None:
        sys.exit("this bench needs wrk, a load generator: apt-get install wrk, or see github.com/wg/wrk")
    arcs, payloads, rounds, seconds = (100_000, 200, 2, 1) if args.quick else (1_000_000, 1000, 6, 2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        requests, batches = prepare(folder, arcs, payloads)
        cold = {COLD: requests.pop(COLD)}
        results = measure(folder, requests, batches, rounds, seconds, memory=8 * GIB)
        results |= measure(folder, cold, [], rounds, seconds)
    notes = (
        f"A map of {arcs:,} arcs; {CONNECTIONS} connections; each answering process has a core, wrk the rest.",
        "CPU time of all processes of a gateway; uploads cross from a worker to the owner of the store.",
    )
    figures = report.Report("workers", "Two workers on one store, compared with one process", args, notes)
    for what in (CACHED, COLD, DOWN, UP):
        one, two = results[what, 1], results[what, 2]
        ratio = two.cpu / one.cpu
        figures.add(
            "CPU time per request", ratio, series=what, better="lower", bar=BARS.get(what), guarded=what in BARS
        )
        for count, each in ((1, one), (2, two)):
            figures.add(f"CPU time with {count}", each.cpu * 1e6, "µs", series=what, recorded=False)
            figures.add(f"requests/s with {count}", each.rate, "1/s", series=what, recorded=False)
    figures.finish()


if __name__ == "__main__":
    main()
