"""The clients: what a verified lookup costs beyond the bare request, and how fast a command starts.

The gateway has one core, and this process another. `Client.resolve` is compared with the same requests through
`http.client`, whose answers are read but not verified, in alternating rounds; the best round of each side counts.
`AsyncClient` resolves with several tasks, on asyncio's event loop and on uvloop's. A batch verifies the keys of one map
together.

``coregw cat`` of a small file is timed from starting the process to its end, and compared with a bare interpreter.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import uvloop

import report
from bench_gateway import create_map, key, start_gateway
from coregw import AsyncClient, Client
from coregw.client.operations import lookup as operations

TASKS, BATCH = 16, 1000


def http_client_requests(url: str, root: str) -> Callable[[list[list[str]]], None]:
    """Return what sends resolves through `http.client` and reads the answers."""
    connection = HTTPConnection(url.removeprefix("http://"))
    headers = {"Content-Type": "application/json"}

    def send(paths: list[list[str]]) -> None:
        for path in paths:
            body = json.dumps({"profile": "core.resolve/v0alpha1", "root": root, "segments": path})
            connection.request("POST", "/v1/resolve", body, headers)
            answer = connection.getresponse()
            assert answer.read()
            assert answer.status == 200

    return send


def resolve_batch(client: Client, root: str, paths: list[list[str]]) -> None:
    """Resolve paths with a proof for each, as `resolve_many` does for those that lead into nested maps."""
    client._run(operations._resolve(client.settings, root, paths))  # noqa: SLF001


async def _resolve_all(url: str, root: str, paths: list[list[str]]) -> None:
    remaining = iter(paths)
    async with AsyncClient(url) as client:

        async def worker() -> None:
            for path in remaining:
                await client.resolve(root, path)

        await asyncio.gather(*(worker() for _ in range(TASKS)))


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main() -> None:
    args = report.arguments(__doc__)
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("this bench needs two cores: one for the gateway, one for the client")
    arcs, rounds, count, starts = (10_000, 5, 1_000, 10) if args.quick else (1_000_000, 9, 5_000, 30)
    rng = random.Random(7)
    best: dict[str, float] = {}

    def measure(name: str, work: Callable[[], object]) -> None:
        best[name] = min(best.get(name, float("inf")), seconds(work))

    with tempfile.TemporaryDirectory() as folder:
        server = start_gateway(Path(folder))
        server.use_cores({cores[0]})
        os.sched_setaffinity(0, {cores[1]})
        try:
            root = create_map(server.url, arcs)
            send = http_client_requests(server.url, root)
            with Client(server.url) as client:
                payload = client.put_payload(b"a small file\n")
                small = client.create_root({"docs/readme": payload})
                cat = (sys.executable, "-m", "coregw", "cat", small, "docs/readme", "--gateway", server.url)
                for _ in range(rounds):
                    paths = [key(rng.randrange(arcs)) for _ in range(count)]
                    measure("http.client", lambda paths=paths: send(paths))
                    measure("resolve", lambda paths=paths: [client.resolve(root, path) for path in paths])
                    measure("async", lambda paths=paths: asyncio.run(_resolve_all(server.url, root, paths)))
                    measure("uvloop", lambda paths=paths: uvloop.run(_resolve_all(server.url, root, paths)))
                    measure("multiproof", lambda paths=paths: client.resolve_many(root, paths[:BATCH]))
                    measure("resolve batch", lambda paths=paths: resolve_batch(client, root, paths[:BATCH]))
                for _ in range(starts):
                    measure("cat", lambda: run(*cat))
                    measure("bare", lambda: run(sys.executable, "-c", "pass"))
        finally:
            server.stop()
    add_figures(args, best, count, arcs)


def add_figures(args: object, best: dict[str, float], count: int, arcs: int) -> None:
    """Report the ratios, and the values they are computed from."""
    notes = (
        f"A map of {arcs:,} arcs, all pages cached; the gateway on one core, the client on another.",
        f"AsyncClient with {TASKS} tasks; batches of {BATCH:,} keys. The best round of each side counts.",
    )
    figures = report.Report("client", "Clients", args, notes)  # type: ignore[arg-type]
    bare, resolve = best["http.client"] / count, best["resolve"] / count
    figures.add("Client.resolve / http.client", resolve / bare, better="lower", bar=1.5, guarded=True)
    figures.add("AsyncClient.resolve / http.client", best["async"] / count / bare, better="lower", guarded=True)
    for loop, name in (("async", "AsyncClient"), ("uvloop", "AsyncClient on uvloop")):
        figures.add(
            f"{name}, verified resolves/s", count / best[loop], "1/s", better="higher", bar=6000, recorded=False
        )
    figures.add("Client, verified resolves/s", 1 / resolve, "1/s", recorded=False)
    figures.add("http.client, requests/s", 1 / bare, "1/s", recorded=False)
    for kind in ("multiproof", "resolve batch"):
        figures.add(f"keys/s in a {kind} / one by one", resolve * BATCH / best[kind], better="higher", guarded=True)
        figures.add(f"keys/s in a {kind}", BATCH / best[kind], "1/s", recorded=False)
    figures.add("coregw cat / bare interpreter", best["cat"] / best["bare"], better="lower", guarded=True)
    figures.add("coregw cat", 1000 * best["cat"], "ms", better="lower", bar=120, recorded=False)
    figures.add("bare interpreter", 1000 * best["bare"], "ms", recorded=False)
    sent = "requests through http.client, not verified"
    names = {sent: bare, "Client": resolve, "AsyncClient": best["async"] / count, "on uvloop": best["uvloop"] / count}
    rates = {name: 1 / each for name, each in names.items()}
    figures.chart("Verified lookups/s with one core for the client", "1/s", rates, better="higher", floors={sent})
    figures.headline("Python: lookups with `Client`, verified", rates["Client"], "1/s", sent, rates[sent])
    figures.headline(
        f"Python: keys with `Client`, {BATCH:,} in a multiproof, verified", BATCH / best["multiproof"], "1/s"
    )
    figures.finish()


if __name__ == "__main__":
    main()
