"""How many round trips to the store a look-up takes: what is read at the same time counts once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Sequence

import pytest

from coregw import payload_cid
from coregw.engine import Engine
from coregw.store import Table
from coregw.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

LEAF = payload_cid(b"leaf")
LEVELS = [(1, 1), (40_000, 2)]
"""Numbers of arcs, and the levels of pages of their maps."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class DistantStore(MemoryStore):
    """A store that answers all reads in flight at once, and counts how often."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0
        self.is_distant = False
        self._waiting: list[asyncio.Event] = []

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        if self.is_distant:
            arrival = asyncio.Event()
            self._waiting.append(arrival)
            await arrival.wait()
        return await super().get(table, keys)

    async def count(self, call: Coroutine[object, object, bytes]) -> int:
        """Run a call, and return how many rounds it took."""
        self.rounds, self.is_distant = 0, True
        task = asyncio.create_task(call)
        while not task.done():
            for _ in range(20):  # until everything that can be asked for is asked for
                await asyncio.sleep(0)
            if self._waiting:
                self.rounds += 1
                waiting, self._waiting = self._waiting, []
                for arrival in waiting:
                    arrival.set()
            await asyncio.sleep(0.001)  # worker threads
        self.is_distant = False
        await task
        return self.rounds


def lookup(root: str, key: str) -> bytes:
    return json.dumps({"profile": "core.resolve/v0alpha1", "root": root, "segments": [key]}).encode()


@pytest.mark.parametrize(("arcs", "levels"), LEVELS)
async def test_a_cold_look_up_takes_one_round_for_each_level_of_pages(arcs: int, levels: int) -> None:
    store = DistantStore()
    maker = Engine(store)
    root = json.loads(await maker.create_root(json.dumps({"arcs": {f"k{i}": LEAF for i in range(arcs)}}).encode()))
    engine = Engine(store)  # nothing is cached
    assert await store.count(engine.resolve(lookup(root["root"], "k0"))) == levels
    assert await store.count(engine.resolve(lookup(root["root"], "k0"))) == 0
    warm = [await store.count(engine.resolve(lookup(root["root"], f"k{i}"))) for i in range(0, arcs, 7)][-20:]
    assert max(warm) <= 1  # inner pages are cached


async def test_a_look_up_in_a_root_that_is_not_held_takes_one_round() -> None:
    store = DistantStore()
    absent = json.loads(await Engine(MemoryStore()).create_root(json.dumps({"arcs": {"k": LEAF}}).encode()))["root"]
    engine = Engine(store)

    async def resolve() -> bytes:
        with pytest.raises(Exception, match="no root"):
            await engine.resolve(lookup(absent, "k"))
        return b""

    assert await store.count(resolve()) == 1
