"""Structural sharing: a change of a few arcs in a map of a million writes only the pages on their paths."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence

import httpx2
import pytest

import coregw
import serving
from coregw.engine import Engine
from coregw.store import Table
from coregw.store.memory import MemoryStore

ARCS = 1_000_000
OLD, NEW = coregw.payload_cid(b"old"), coregw.payload_cid(b"new")
PAGE_BYTES = 8192
MOST_HEIGHT = 5
"""Limit on the pages from the top to a leaf, by the page cut rule for a map of this size."""


class CountingStore(MemoryStore):
    """A store that records the size of each page written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[int] = []

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        self.written += [len(page) for _, page in rows.get(Table.PAGES, ())]
        return await super().put(rows, durable, requires, since)


def path(number: int) -> str:
    return f"{number % 1000:03}/{number % 97:02}/{number}"


async def stored(store: CountingStore) -> str:
    """Store a map of a million arcs and return its root."""
    engine = Engine(store)
    return json.loads(await engine.create_root(json.dumps({"arcs": {path(i): OLD for i in range(ARCS)}}).encode()))[
        "root"
    ]


@pytest.mark.slow
def test_mutation_of_a_large_map_writes_only_pages_on_its_paths() -> None:
    store = CountingStore()
    base = asyncio.run(stored(store))
    assert len(store.written) > 5000
    with serving.thread(store) as url, httpx2.Client(base_url=url) as http:
        for count in (1, 10):
            picked = random.Random(count).sample(range(ARCS), count)
            changes = [{"path": path(i), "before": {"target": OLD}, "after": {"target": NEW}} for i in picked]
            store.written.clear()
            made = http.post(f"/v1/roots/{base}/mutations", json={"deltas": [{"kind": "map", "changes": changes}]})
            assert made.status_code == 201, made.text
            assert 0 < len(store.written) <= count * MOST_HEIGHT
            assert sum(store.written) <= count * 4 * PAGE_BYTES
            new = made.json()["new_root"]
            for root, target in ((base, OLD), (new, NEW)):
                for i in picked:
                    request = {"profile": "core.resolve/v0alpha1", "root": root, "segments": path(i).split("/")}
                    answer = http.post("/v1/resolve", json=request)
                    assert coregw.verify_resolve(json.dumps(request), answer.content) == target, "both stay readable"
