"""Imports of CARs in memory, beside spooled ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

import coregw
from car_files import block, car_of_payloads, cid, header
from coregw.engine import Engine, EngineLimits
from coregw.store import Table
from coregw.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

SLOW = b"a payload that takes long"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class SlowStore(MemoryStore):
    """A store that waits before it stores one payload; it counts the writes of rows."""

    def __init__(self) -> None:
        super().__init__()
        self.is_reached, self.may_go_on = asyncio.Event(), asyncio.Event()
        self.puts = 0

    async def put_payloads(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        if any(data == SLOW for _, data in payloads):
            self.is_reached.set()
            await self.may_go_on.wait()
        return await super().put_payloads(payloads)

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        self.puts += 1
        return await super().put(rows, durable, requires, since)


async def in_chunks(car: bytes) -> AsyncIterator[bytes]:
    yield car


async def test_a_car_in_memory_does_not_wait_for_spooled_imports() -> None:
    store = SlowStore()
    engine = Engine(store, EngineLimits(cars_at_once=1))
    slow = asyncio.create_task(engine.cars.import_car(in_chunks(car_of_payloads(SLOW))))
    await store.is_reached.wait()
    datas = [bytes([number]) * 5000 for number in range(100)]
    imported = json.loads(await asyncio.wait_for(engine.cars.import_whole(car_of_payloads(*datas)), 30))
    assert imported["blocks"] == 100
    assert not slow.done()
    store.may_go_on.set()
    assert json.loads(await slow)["blocks"] == 1
    await engine.close()


async def test_only_a_car_with_trees_asks_for_the_time_of_its_payloads() -> None:
    store = SlowStore()
    engine = Engine(store)
    await engine.cars.import_whole(car_of_payloads(b"a", b"b"))
    assert store.puts == 0
    root = cid(0x303110, b"\0")
    car = header(root) + block(root, b"\0") + block(cid(0x55, b"a"), b"a")
    assert json.loads(await engine.cars.import_whole(car))["roots"] == [coregw.Map({}).root]
    assert store.puts == 2
    await engine.close()
