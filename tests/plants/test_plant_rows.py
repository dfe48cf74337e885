"""Plants as rows, on every kind of store: an id is used once, for good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coregw.engine.publications import RecordTable
from coregw.errors import InvalidInput, StorageFull
from coregw.plants.rows import plant_key, put_plant
from coregw.store import Store, Table
from coregw.store.memory import MemoryStore
from coregw.store.rocksdb import open_store
from stores import KINDS, opened

pytestmark = pytest.mark.anyio

MIN, MAX = -(2**63), 2**63 - 1
IDS = [MIN, MIN + 1, -(2**53) - 1, -1, 0, 1, 255, 256, 2**53 + 1, MAX - 1, MAX]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path / "store") as store:
        yield store


async def plants_in(store: Store, ids: list[int]) -> list[bytes | None]:
    return await store.get(Table.RECORDS, [plant_key(plant_id) for plant_id in ids])


async def test_a_plant_is_stored_under_its_id(store: Store) -> None:
    assert await put_plant(store, 7, b"fern")
    assert await plants_in(store, [7, 8]) == [b"fern", None]


async def test_a_taken_id_keeps_its_plant(store: Store) -> None:
    assert await put_plant(store, 7, b"fern")
    assert not await put_plant(store, 7, b"moss")
    assert not await put_plant(store, 7, b"fern")
    assert await plants_in(store, [7]) == [b"fern"]


async def test_every_int64_is_a_distinct_id(store: Store) -> None:
    assert all([await put_plant(store, plant_id, b"plant %d" % plant_id) for plant_id in IDS])
    assert await plants_in(store, IDS) == [b"plant %d" % plant_id for plant_id in IDS]


@pytest.mark.parametrize("plant_id", [MIN - 1, MAX + 1])
async def test_an_id_outside_int64_is_refused(plant_id: int) -> None:
    with pytest.raises(InvalidInput, match=str(plant_id)):
        await put_plant(MemoryStore(), plant_id, b"fern")


async def test_exactly_one_of_concurrent_plants_with_one_id_is_stored(store: Store) -> None:
    for plant_id in range(5):
        plants = [b"plant %d" % number for number in range(20)]
        stored = await asyncio.gather(*(put_plant(store, plant_id, plant) for plant in plants))
        assert stored.count(True) == 1
        assert await plants_in(store, [plant_id]) == [plants[stored.index(True)]]


async def test_plants_do_not_collide_with_published_records(store: Store) -> None:
    records = RecordTable(store)
    record = await records.publish("p", "p", b"\x01root", None, datetime(2024, 2, 29, tzinfo=UTC))
    for plant_id in IDS:
        await put_plant(store, plant_id, b"fern")
    assert await records.in_scope("p", None, 10) == [record]
    assert await records.history("p", "p", 0, 10) == [record]


async def test_a_full_store_refuses_a_plant() -> None:
    store = MemoryStore(max_bytes=0)
    with pytest.raises(StorageFull):
        await put_plant(store, 7, b"fern")
    assert await plants_in(store, [7]) == [None]


async def test_plants_survive_a_restart(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as before:
        assert all([await put_plant(before, plant_id, b"plant %d" % plant_id) for plant_id in IDS])
    async with await open_store(tmp_path) as after:
        assert await plants_in(after, IDS) == [b"plant %d" % plant_id for plant_id in IDS]
        assert not any([await put_plant(after, plant_id, b"moss") for plant_id in IDS])
