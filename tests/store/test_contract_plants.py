"""What every store does with plants: each id is taken once, for good."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coregw.errors import InvalidInput, StorageFull
from coregw.store import Store
from coregw.store.rocksdb import open_store

pytestmark = pytest.mark.anyio

LEAST, MOST = -(2**63), 2**63 - 1
IDS = [LEAST, LEAST + 1, -(2**53) - 1, -1, 0, 1, 255, 256, 2**53 + 1, MOST - 1, MOST]


async def test_a_plant_is_kept_as_it_was_put(store: Store) -> None:
    assert await store.get_plant(7) is None
    assert await store.put_plant(7, b"fern")
    assert await store.get_plant(7) == b"fern"


async def test_an_id_that_is_taken_stays_with_its_plant(store: Store) -> None:
    assert await store.put_plant(7, b"fern")
    assert not await store.put_plant(7, b"moss")
    assert not await store.put_plant(7, b"fern")
    assert await store.get_plant(7) == b"fern"


async def test_every_int64_is_an_id_of_its_own(store: Store) -> None:
    assert all([await store.put_plant(plant_id, b"plant %d" % plant_id) for plant_id in IDS])
    assert [await store.get_plant(plant_id) for plant_id in IDS] == [b"plant %d" % plant_id for plant_id in IDS]


@pytest.mark.parametrize("plant_id", [LEAST - 1, MOST + 1])
async def test_an_id_that_is_no_int64_is_refused(store: Store, plant_id: int) -> None:
    for call in (store.put_plant(plant_id, b"fern"), store.get_plant(plant_id)):
        with pytest.raises(InvalidInput, match=str(plant_id)):
            await call


async def test_of_many_plants_with_one_id_exactly_one_is_kept(store: Store) -> None:
    for plant_id in range(5):
        plants = [b"plant %d" % number for number in range(20)]
        kept = await asyncio.gather(*(store.put_plant(plant_id, plant) for plant in plants))
        assert kept.count(True) == 1
        assert await store.get_plant(plant_id) == plants[kept.index(True)]


async def test_a_plant_is_neither_a_record_nor_anything_else(store: Store) -> None:
    now = datetime(2024, 2, 29, tzinfo=UTC)
    record = await store.publish("p", "p", b"\x01root", None, now)
    for plant_id in IDS:
        await store.put_plant(plant_id, b"fern")
    assert await store.list_records("p", None, 10) == [record]
    assert await store.history("p", "p", 0, 10) == [record]
    assert await store.get_pages([b"p" + bytes(8)]) == [None]


async def test_a_full_store_keeps_no_plant(full_store: Store) -> None:
    with pytest.raises(StorageFull):
        await full_store.put_plant(7, b"fern")
    assert await full_store.get_plant(7) is None


async def test_plants_are_there_after_a_restart(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as before:
        assert all([await before.put_plant(plant_id, b"plant %d" % plant_id) for plant_id in IDS])
    async with await open_store(tmp_path) as after:
        assert [await after.get_plant(plant_id) for plant_id in IDS] == [b"plant %d" % plant_id for plant_id in IDS]
        assert not any([await after.put_plant(plant_id, b"moss") for plant_id in IDS])
