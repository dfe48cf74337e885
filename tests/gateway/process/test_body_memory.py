"""The memory that a request body takes: at most eight bytes for each of its bytes, whatever it contains."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

import coregw
import serving
from large_bodies import (
    EMPTY,
    MIB,
    LargeBody,
    bodies_of_changes,
    bodies_of_creations,
    bodies_of_queries,
)

MAX_BYTES_PER_BYTE = 8

MAX_KEPT = 2 * MIB
"""What a gateway may keep of earlier bodies, in bytes, to be measured with the next one; else a new one is started."""

BODIES = (bodies_of_queries, bodies_of_creations, bodies_of_changes)

ALLOCATORS = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536", "MIMALLOC_PURGE_DELAY": "0"}
"""Settings with which glibc and mimalloc return memory as soon as it is free, so that the rest can be told apart."""


EMPTY_MAP = coregw.Map({}).root
ONE_ELEMENT = coregw.List([EMPTY]).root


def memory(pid: int, field: str) -> int:
    """A field of ``/proc/PID/status`` in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) * 1024


def settled(pid: int) -> int:
    """The resident memory when it no longer shrinks: allocators return memory after some milliseconds."""
    least, unchanged = memory(pid, "VmRSS"), 0
    while unchanged < 3:
        time.sleep(0.01)
        now = memory(pid, "VmRSS")
        least, unchanged = (now, 0) if now < least else (least, unchanged + 1)
    return least


def bytes_per_byte(pid: int, start: int, client: httpx2.Client, sent: LargeBody) -> float:
    """The peak of a gateway while it answers, less its memory at the start, divided by the length of the body.

    So what it keeps of earlier bodies counts as well: it could hide what this body takes.
    """
    settled(pid)
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # resets the peak
    answer = client.post(sent.route, content=sent.body, headers=dict(sent.headers))
    assert answer.status_code == sent.status, (sent.route, sent.about, answer.text[:300])
    return (memory(pid, "VmHWM") - start) / len(sent.body)


@contextmanager
def warm_gateway(data: Path) -> Iterator[tuple[int, httpx2.Client]]:
    """A gateway with an empty map and a list of one element, which has loaded its modules: its PID, and a client."""
    environ = serving.ADMIN | ALLOCATORS
    limits = {"json_body_bytes": 16 * MIB, "resolve_batch_body_bytes": 16 * MIB}
    with (
        serving.process(data, environ, **limits) as running,
        httpx2.Client(base_url=running.url, timeout=60) as client,
    ):
        create_empty_map_and_list(client)
        # Loads modules and starts threads, of the front for long queries too, which are not the bodies'.
        for route in ("/admin/v1/scopes/s/roots", "/v1/verify/resolve"):
            answer = client.post(
                route, content=b"{" + b" " * 900_000 + b"}", headers={"Authorization": f"Bearer {serving.ADMIN_TOKEN}"}
            )
            assert answer.status_code == 400
        yield running.popen.pid, client


def measured(bodies: Iterator[LargeBody], data: Path) -> Iterator[tuple[LargeBody, float]]:
    """Each of the bodies, with the memory that a gateway takes for each of its bytes."""
    sent = next(bodies, None)
    for number in itertools.count():
        if sent is None:
            return
        with warm_gateway(data / str(number)) as (pid, client):
            start = settled(pid)
            while sent is not None:
                ratio = bytes_per_byte(pid, start, client, sent)
                for _ in range(2):  # a peak contains what the store does at the same time, so the least one counts
                    if ratio > MAX_BYTES_PER_BYTE:
                        ratio = min(ratio, bytes_per_byte(pid, start, client, sent))
                yield sent, ratio
                sent = next(bodies, None)
                if settled(pid) - start > MAX_KEPT:
                    break


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("bodies", BODIES)
def test_a_body_takes_at_most_eight_bytes_of_memory_for_each_of_its_bytes(
    bodies: Callable[[str, str], Iterator[LargeBody]], tmp_path: Path
) -> None:
    table, too_much = [], []
    for sent, ratio in measured(bodies(EMPTY_MAP, ONE_ELEMENT), tmp_path):
        table.append(f"{ratio:4.1f}  {len(sent.body) / MIB:4.1f} MiB  {sent.route:.24}  {sent.about}")
        if ratio > MAX_BYTES_PER_BYTE:
            too_much.append(table[-1])
    print("", *table, sep="\n")
    assert too_much == []


def create_empty_map_and_list(client: httpx2.Client) -> None:
    """Create an empty map, and a list of one element."""
    assert client.post("/v1/roots", json={"arcs": {}}).json()["root"] == EMPTY_MAP
    deltas = [{"kind": "list", "changes": [{"index": 0, "after": {"target": EMPTY}}]}]
    assert client.post(f"/v1/roots/{EMPTY_MAP}/mutations", json={"deltas": deltas}).json()["new_root"] == ONE_ELEMENT


def test_every_route_that_accepts_a_body_is_measured(client: httpx2.Client) -> None:
    routes = {sent.route for bodies in BODIES for sent in bodies("map", "list")}
    operations = client.get("/openapi.json").json()["paths"]
    accepting = {path for path, item in operations.items() if "requestBody" in item.get("post", {})}
    accepting |= {path for path in operations if path.endswith("/freeze")}  # refuses a body, but reads it
    patterns = [re.sub(r"\{[^}]*\}", "[^/]+", path) for path in accepting]
    assert len(patterns) > 10
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, route) for route in routes)] == []
