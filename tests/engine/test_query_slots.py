"""Queries that wait for a slot keep little memory, all together."""

from __future__ import annotations

import asyncio
import json

import pytest

from coregw import payload_cid
from coregw._core import Operation
from coregw.engine import Engine
from coregw.engine.scheduling import MAX_KEPT_BYTES, QuerySlots, QueryState
from coregw.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

LONG, SHORT = "\0" * 4090, "users/0001"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Long keys cost more of the budget: of 2,000 nodes, a query lists fifteen of them.
@pytest.mark.parametrize(
    ("path", "budget", "is_kept"), [(LONG, 70_000, False), (LONG, 2_000, True), (SHORT, 2_000, True)]
)
async def test_a_query_that_has_found_much_does_not_wait_with_it(path: str, budget: int, is_kept: bool) -> None:
    engine = Engine(MemoryStore())
    cid = payload_cid(b"x")
    arcs = {f"{path}{number:04}": cid for number in range(500)}
    root = json.loads(await engine.create_root(json.dumps({"arcs": arcs}).encode()))["root"]
    body = json.dumps({"profile": "core.scan/v0alpha1", "root": root, "prefix": []}).encode()
    answer = await engine.scan(body)
    query = QueryState(lambda: Operation.scan(engine.cache, body), max_nodes=1 << 30)
    assert not isinstance(query.begin(budget), bytes), "the answer is not written yet"
    assert (query.held_bytes > MAX_KEPT_BYTES) is not is_kept
    slots = QuerySlots(1, 32)
    async with slots.occupy(QueryState(lambda: Operation.scan(engine.cache, body), 1)):
        waiting = asyncio.create_task(_finish(slots, query))
        await asyncio.sleep(0)
        assert (query.operation is not None) is is_kept
    assert await waiting == answer
    await engine.close()


async def _finish(slots: QuerySlots, query: QueryState) -> bytes:
    """Wait for a slot, and run a query to its end, which begins again if it was dropped."""
    async with slots.occupy(query):
        if query.operation is None:
            query.begin(2_000)
        assert query.operation is not None
        while not isinstance(query.polled, bytes):
            query.polled = query.operation.poll(1 << 30)
        return query.polled
