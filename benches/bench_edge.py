"""A warm edge compared with its upstream, and what a mirror moves.

An edge (``coregw serve --upstream``) that has read everything once gets the same requests as its upstream, in
alternating rounds: lookups in cached pages, lookups with a cache of parsed pages too small for any, and downloads.
The figure is the CPU time per request of the edge, divided by that of the upstream.

A mirror copies a map to an empty gateway, then the same map with changed arcs. The figure is the bytes of all bodies
that it sends and receives, divided by those of the proven differences.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sys
import tempfile
from pathlib import Path

import httpx2

import report
from bench_workers import PAGE_ARCS, Gateway, Measured, gateway, load, warm
from coregw import payload_cid
from coregw.client import Client

PAYLOAD_BYTES = 64 << 10
CACHED, COLD, DOWN = "lookup, cached", "lookup, cold", "64 KiB download"
CHANGES = 1000

Results = dict[str, tuple[Measured, Measured]]
"""The upstream and the edge, by kind of request."""


def paths_of(arcs: int) -> list[str]:
    return [f"users/{number:08}/profile" for number in range(arcs)]


def prepare(upstream: Gateway, folder: Path, arcs: int, payloads: int) -> tuple[str, dict[str, Path]]:
    """Fill a gateway; return the root of its map, and files with requests of each kind."""
    rng = random.Random(11)
    target, paths = payload_cid(b"profile"), paths_of(arcs)
    with Client(upstream.url) as client:
        root = client.build(dict.fromkeys(paths, target))
        cids = [client.put_payload(rng.randbytes(PAYLOAD_BYTES)) for _ in range(payloads)]
    request = {"profile": "core.resolve/v0alpha1", "root": root}
    asked = [json.dumps(request | {"segments": rng.choice(paths).split("/")}) for _ in range(20_000)]
    lookups, downloads = folder / "lookups", folder / "downloads"
    lookups.write_text("".join(f"POST /v1/resolve {body}\n" for body in asked))
    downloads.write_text("".join(f"GET /v1/cas/{cid}\n" for cid in cids))
    with httpx2.Client(base_url=upstream.url) as plain:
        for cid in cids:
            plain.get(f"/v1/cas/{cid}").raise_for_status()
    return root, {CACHED: lookups, COLD: lookups, DOWN: downloads}


def measure(upstream: Gateway, edge: Gateway, requests: dict[str, Path], rounds: int, seconds: float) -> Results:
    """Load both in alternating rounds. The first one is warm-up."""
    results = {what: (Measured(), Measured()) for what in requests}
    for number in range(rounds + 1):
        for what, both in results.items():
            for server, into in zip((upstream, edge), both, strict=True):
                before = server.cpu_seconds()
                summary = load(server.url, requests[what], seconds)
                (into if number else Measured()).update(summary, server.cpu_seconds() - before)
    return results


def compared(folder: Path, arcs: int, payloads: int, rounds: int, seconds: float) -> Results:
    """Measure with a large cache of parsed pages, then lookups with one that holds none."""
    results: Results = {}
    for name, size, kinds in (("large", "1GiB", (CACHED, DOWN)), ("small", "1MiB", (COLD,))):
        place = folder / name
        place.mkdir()
        with contextlib.ExitStack() as stack:
            upstream = stack.enter_context(gateway(place / "upstream", 1, cache_bytes=size))
            edge = stack.enter_context(gateway(place / "edge", 1, cache_bytes=size, upstream=upstream.url))
            root, requests = prepare(upstream, place, arcs, payloads)
            visits = [path.split("/") for path in paths_of(arcs)[::PAGE_ARCS]]
            batches: list[dict[str, object]] = [
                {"root": root, "paths": visits[at : at + 1000]} for at in range(0, len(visits), 1000)
            ]
            for server in (upstream, edge):
                warm(server.url, batches)
            results |= measure(upstream, edge, {kind: requests[kind] for kind in kinds}, rounds, seconds)
    return results


def mirrored(folder: Path, arcs: int) -> tuple[float, float]:
    """Return the bytes that a mirror of changed arcs moves, and those of the differences."""
    one, two = payload_cid(b"one"), payload_cid(b"two")
    before = dict.fromkeys(paths_of(arcs), one)
    changed = random.Random(5).sample(sorted(before), CHANGES)
    with gateway(folder / "a", 1) as a, gateway(folder / "b", 1) as b, Client(a.url) as source, Client(b.url) as other:
        first, second = source.build(before), source.build(before | dict.fromkeys(changed, two))
        source.mirror(first, other, payloads=False)
        moved = source.mirror(second, other, payloads=False, bases=[first])
        answer = httpx2.get(f"{a.url}/v1/roots/{first}/diff/{second}?limit=1000", timeout=60).raise_for_status()
    if moved.base != first or moved.arcs != CHANGES:
        sys.exit(f"the mirror did something else: {moved}")
    return moved.sent + moved.received, len(answer.content)


def main() -> None:
    args = report.arguments(__doc__)
    if shutil.which("wrk") is None:
        sys.exit("this bench needs wrk, a load generator: apt-get install wrk, or see github.com/wg/wrk")
    arcs, payloads, rounds, seconds = (100_000, 200, 2, 1) if args.quick else (1_000_000, 1000, 6, 2)
    with tempfile.TemporaryDirectory() as name:
        results = compared(Path(name), arcs, payloads, rounds, seconds)
        moved, differences = mirrored(Path(name), arcs)
    notes = (
        f"A map of {arcs:,} arcs; 64 connections. The edge has read all of it before.",
        f"Mirror: {CHANGES:,} changed arcs, without payloads; bytes of all bodies in both directions.",
    )
    figures = report.Report("edge", "A warm edge, and mirrors", args, notes)
    for what, (upstream, edge) in results.items():
        ratio = edge.cpu / upstream.cpu
        figures.add("CPU time / upstream", ratio, series=what, better="lower", bar=1.15, guarded=True)
        for who, each in (("upstream", upstream), ("edge", edge)):
            figures.add(f"CPU time, {who}", each.cpu * 1e6, "µs", series=what, recorded=False)
            figures.add(f"requests/s, {who}", each.rate, "1/s", series=what, recorded=False)
    ratio = moved / differences
    figures.add("bytes / bytes of the differences", ratio, series="mirror", better="lower", bar=3, guarded=True)
    figures.finish()


if __name__ == "__main__":
    main()
