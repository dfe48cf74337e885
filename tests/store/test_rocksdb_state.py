"""Damage to the rows that a store keeps about itself: its epoch, its dates, and the limit of expired roots."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

import serving
from coregw import Map, payload_cid
from coregw._core import Cid
from coregw.engine import Engine
from coregw.errors import StoreDamaged, Unavailable
from coregw.store import CHUNK_BYTES, Stored
from coregw.store.collection import collect_in_turn
from coregw.store.rocksdb import CACHE_BYTES, RocksStore, open_store
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import (
    EPOCH_KEY,
    EXPIRED_KEY,
    TIME_KEY,
    UNDATED_KEY,
    Family,
    epoch_of_upload,
    upload_of_chunk,
)
from rocksdb_support import are_held, keys
from store_payloads import multihash_of, random_bytes, read, upload
from upkeep_site import Time

pytestmark = pytest.mark.anyio

ARCS = {"a": payload_cid(b"a")}
OLD, NEW = (bytes(Cid(Map(ARCS | more).root)) for more in ({}, {"b": payload_cid(b"b")}))
PAYLOADS = [random_bytes(seed, CHUNK_BYTES + 450) for seed in range(3)]
STATE = [EPOCH_KEY, EXPIRED_KEY, UNDATED_KEY, TIME_KEY]


async def opened(path: Path, clock: Time) -> RocksStore:
    """Open a store for writing, as a gateway does."""
    store = await open_store(path, clock=clock.clock(), read_only_if_needed=True)
    assert store.read_only is None, store.read_only
    return store


async def create(store: RocksStore) -> None:
    """Store `NEW`."""
    await Engine(store).create_root(json.dumps({"arcs": ARCS | {"b": payload_cid(b"b")}}).encode())


async def stored(path: Path) -> Time:
    """Store payloads in several openings, and a root that has expired and that no collection has removed."""
    clock = Time()
    for payload in PAYLOADS:
        async with await opened(path, clock) as store:
            await Engine(store).create_root(json.dumps({"arcs": ARCS}).encode())
            await upload(store, payload)
            clock.seconds += 1200
    async with await opened(path, clock) as store, collect_in_turn(store, 60, 1) as collection:
        assert await collection.expire() == []
    async with await opened(path, clock) as store:
        assert await are_held(store, [OLD]) == [False]
    return clock


def damage(path: Path, *names: bytes) -> None:
    """Overwrite rows of a store's state, each of which is in a block of its own."""
    database = Database(path, CACHE_BYTES)
    between = [prefix + b"%d" % i + random_bytes(i, 40) for prefix in (b"eq", b"m", b"s", b"uo") for i in range(300)]
    database.write([(Family.META, key, random_bytes(i, 40)) for i, key in enumerate(between)])
    database.flush()
    database.compact(Family.META, None, None)
    database._release()  # closing would write the time again
    for name in names:
        assert overwrite_in_ssts(path, name[1:])  # the first letter may be shared with the key before


def overwrite_in_ssts(path: Path, pattern: bytes) -> bool:
    """Overwrite what begins with a pattern, and some of the bytes after it: whether there was any."""
    tables = [table for table in (path / "rocksdb").glob("*.sst") if pattern in table.read_bytes()]
    for table in tables:
        content = bytearray(table.read_bytes())
        start = content.index(pattern) + len(pattern)
        content[start : start + 30] = bytes(30)
        table.write_bytes(content)
    return bool(tables)


@pytest.mark.parametrize("names", [[EPOCH_KEY], [EXPIRED_KEY], [TIME_KEY], [UNDATED_KEY], STATE], ids=str)
async def test_a_store_whose_state_is_damaged_is_written_to_and_renews_it(
    tmp_path: Path, names: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    clock = await stored(tmp_path)
    damage(tmp_path, *names)
    with caplog.at_level(logging.WARNING, "coregw"):
        async with await opened(tmp_path, clock) as store:
            await create(store)
            assert await are_held(store, [NEW]) == [True]
            for payload in PAYLOADS:
                assert await read(store, multihash_of(payload)) == payload
    said = [record.getMessage() for record in caplog.records if "is not readable" in record.getMessage()]
    assert [name for name in STATE if any(repr(name.decode()) in line for line in said)] == sorted(names)
    assert all(str(tmp_path) in line and "fsck --repair" in line for line in said)
    caplog.clear()
    async with await opened(tmp_path, clock) as store:
        assert await are_held(store, [NEW]) == [True]
    assert not [record for record in caplog.records if "is not readable" in record.getMessage()]


async def test_no_upload_id_is_used_twice_after_the_epoch_is_lost(tmp_path: Path) -> None:
    clock = await stored(tmp_path)
    damage(tmp_path, EPOCH_KEY)
    async with await opened(tmp_path, clock) as store:
        before = {epoch_of_upload(upload_of_chunk(key)) for key in keys(store, Family.CHUNKS)}
        await upload(store, random_bytes(2 * CHUNK_BYTES, 9))
        after = {epoch_of_upload(upload_of_chunk(key)) for key in keys(store, Family.CHUNKS)}
        (added,) = after - before
        assert added > max(before)
        assert added == store._database.epoch
    async with await opened(tmp_path, clock) as store:
        assert store._database.epoch == added + 1


async def test_an_epoch_is_later_than_those_of_chunks_that_an_earlier_clock_dated(tmp_path: Path) -> None:
    """An epoch that was lost twice, the second time with the clock set back."""
    clock = await stored(tmp_path)
    damage(tmp_path, EPOCH_KEY)
    async with await opened(tmp_path, clock) as store:
        await upload(store, random_bytes(2 * CHUNK_BYTES, 9))
        first = store._database.epoch
    assert overwrite_in_ssts(tmp_path, EPOCH_KEY[1:])
    clock.seconds -= 1_000_000_000
    async with await opened(tmp_path, clock) as store:
        assert store._database.epoch > first


async def test_a_clock_that_is_a_century_ahead_leaves_room_for_epochs(tmp_path: Path) -> None:
    clock = await stored(tmp_path)
    damage(tmp_path, EPOCH_KEY)
    clock.seconds += 100 * 365 * 86_400
    for _ in range(2):
        async with await opened(tmp_path, clock) as store:
            await create(store)


async def test_roots_stay_held_until_a_collection_if_the_limit_of_expired_roots_is_lost(tmp_path: Path) -> None:
    clock = await stored(tmp_path)
    damage(tmp_path, EXPIRED_KEY)
    async with await opened(tmp_path, clock) as store:
        await create(store)
        assert await are_held(store, [OLD, NEW]) == [True, True]  # everything below is there until its row is removed
        async with collect_in_turn(store, 60, 1) as collection:
            assert await collection.expire() == []
            assert await collection.remove(Stored.ROOTS, [OLD, NEW]) == [True, False]
        assert await are_held(store, [OLD, NEW]) == [False, True]
    async with await opened(tmp_path, clock) as store:
        assert await are_held(store, [OLD, NEW]) == [False, True]


@pytest.mark.parametrize("name", [EPOCH_KEY, TIME_KEY, UNDATED_KEY], ids=str)
async def test_a_collection_removes_nothing_older_than_the_start_if_dates_are_lost(tmp_path: Path, name: bytes) -> None:
    clock = await stored(tmp_path)
    damage(tmp_path, name)
    async with await opened(tmp_path, clock) as store, collect_in_turn(store, 20, 1) as collection:
        payloads = [multihash_of(payload) for payload in PAYLOADS]
        assert await collection.expire() == []
        assert await collection.remove(Stored.PAYLOADS, payloads) == [False] * 3
        assert await collection.remove(Stored.ROOTS, [OLD]) == [False]


async def test_rows_may_be_missing_where_the_epoch_is_missing(tmp_path: Path) -> None:
    clock = await stored(tmp_path)
    database = Database(tmp_path, CACHE_BYTES)
    database.write([(Family.META, EPOCH_KEY, None)])
    database.close()
    with pytest.raises(StoreDamaged, match="lost its epoch"):
        await open_store(tmp_path)
    async with await open_store(tmp_path, clock=clock.clock(), read_only_if_needed=True) as store:
        assert store.read_only is not None
        with pytest.raises(Unavailable, match="may be lost"):
            await are_held(store, [NEW])
    async with await open_store(tmp_path, clock=clock.clock(), salvage=True) as store:
        await create(store)
        assert await are_held(store, [NEW]) == [True]


@pytest.mark.parametrize("names", [[EPOCH_KEY], [EXPIRED_KEY], [TIME_KEY], [UNDATED_KEY], STATE], ids=str)
async def test_fsck_names_the_rows_and_a_repair_renews_them(tmp_path: Path, names: list[bytes]) -> None:
    clock = await stored(tmp_path)
    damage(tmp_path, *names)
    checked = serving.run("fsck", "--json", "--data", tmp_path)
    assert checked.returncode == 4, checked
    assert json.loads(checked.stdout)["lost_state"] == [name.decode() for name in sorted(names)]
    lines = serving.run("fsck", "--data", tmp_path).stdout
    assert [name for name in STATE if f"lost row {name.decode()!r} of the store's state" in lines] == names
    repaired = serving.run("fsck", "--repair", "--json", "--data", tmp_path)
    assert json.loads(repaired.stdout)["found"]["lost_state"] == [name.decode() for name in sorted(names)]
    assert json.loads(repaired.stdout)["repaired"]["lost_state"] == []
    async with await opened(tmp_path, clock) as store:
        await create(store)
        assert await are_held(store, [NEW]) == [True]
        for payload in PAYLOADS:
            assert await read(store, multihash_of(payload)) == payload


async def test_fsck_checks_a_store_whose_path_is_not_in_utf_8(tmp_path: Path) -> None:
    await stored(tmp_path / "store")
    path = tmp_path / os.fsdecode(b"\xff")
    (tmp_path / "store").rename(path)
    checked = serving.run("fsck", "--data", path)
    assert (checked.returncode, checked.stdout[:6]) == (0, "sound:")


@pytest.mark.parametrize("name", STATE, ids=str)
async def test_fsck_names_a_malformed_row(tmp_path: Path, name: bytes) -> None:
    clock = await stored(tmp_path)
    database = Database(tmp_path, CACHE_BYTES)
    database.write([(Family.META, name, b"malformed")])
    database.flush()
    database._release()
    database._unlock()
    checked = serving.run("fsck", "--json", "--data", tmp_path)
    assert json.loads(checked.stdout)["lost_state"] == [name.decode()]
    assert serving.run("fsck", "--repair", "--data", tmp_path).returncode == 0
    async with await opened(tmp_path, clock) as store:
        await create(store)
