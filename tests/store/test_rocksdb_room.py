"""Writes of the RocksDB store that have to wait or are refused: full disks, stalls and full queues."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from rocksdict import Rdict

from coregw.errors import InvalidInput, StorageFull, Unavailable
from coregw.store import CHUNK_BYTES, Table
from coregw.store.rocksdb import RocksStore
from rocksdb_support import (
    NO_ROOM,
    ROOM,
    ControlledDatabase,
    are_held,
    assert_payloads_are_whole,
    kill_after,
    put_roots,
)
from store_payloads import multihash_of, random_bytes, read, upload
from stores import opened

pytestmark = pytest.mark.anyio


# --- full disks -------------------------------------------------------------------------------------------------------


async def test_a_commit_without_room_leaves_nothing(store: RocksStore, database: ControlledDatabase) -> None:
    data = bytes(3 * CHUNK_BYTES)
    with pytest.raises(StorageFull):
        async with store.begin_payload() as writer:
            await writer.write(data)
            database.free = NO_ROOM
            await writer.commit(multihash_of(data))
    assert await assert_payloads_are_whole(store) == 0


async def test_a_chunk_without_room_fails_the_next_call_of_its_upload_and_leaves_nothing(
    store: RocksStore, database: ControlledDatabase
) -> None:
    with pytest.raises(StorageFull):
        async with store.begin_payload() as writer:
            await writer.write(bytes(CHUNK_BYTES + 1))
            database.free = NO_ROOM
            for _ in range(3):
                await writer.write(bytes(CHUNK_BYTES))
    assert await assert_payloads_are_whole(store) == 0


async def test_rows_are_deleted_without_room(store: RocksStore, database: ControlledDatabase) -> None:
    await store.put({Table.RECORDS: [(b"key", b"value")]})
    database.free = NO_ROOM
    await store.delete(Table.RECORDS, [b"key"])
    assert await store.get(Table.RECORDS, [b"key"]) == [None]


async def test_writes_succeed_again_when_there_is_room(store: RocksStore, database: ControlledDatabase) -> None:
    database.free = NO_ROOM
    with pytest.raises(StorageFull, match="0 bytes free, less than the reserve of 1,048,576"):
        await upload(store, b"data")
    database.free = ROOM
    assert await upload(store, b"data")


async def test_a_store_whose_files_cannot_grow_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    # A limit of 2 MiB on files fails a write in its middle, as a full disk does.
    printed = kill_after(
        tmp_path,
        """
        import resource
        store = await open_store(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
        for i in range(1000):
            try:
                await upload(store, random.Random(i).randbytes(100_000))
            except Exception as error:
                say(type(error).__name__)
                break
            say(i)
        names = [multihash_of(random.Random(each).randbytes(100_000)) for each in range(i)]
        assert await store.stat_payloads(names) == [100_000] * i
        try:
            await put_roots(store, [b"root"])
            say("stored")
        except Exception as error:
            say(type(error).__name__)
        await asyncio.sleep(60)
        """,
        lambda lines: "StorageFull\n" in lines[:-1],
    )
    acknowledged = [int(line) for line in printed if line.isdecimal()]
    assert len(acknowledged) > 10
    assert printed[-1] in ("StorageFull", "Unavailable", "stored")
    async with opened("rocksdb", tmp_path) as store:
        assert isinstance(store, RocksStore)
        for i in acknowledged:
            assert len(await read(store, multihash_of(random.Random(i).randbytes(100_000)))) == 100_000
        await assert_payloads_are_whole(store)
        assert await are_held(store, [b"root"]) == [printed[-1] == "stored"]


# --- stalls and queues ------------------------------------------------------------------------------------------------


class StallingRdict:
    """rocksdict's database, whose writes RocksDB refuses with a stall some number of times."""

    stalls = 0

    def __init__(self, *arguments: object) -> None:
        self._inner = Rdict(*arguments)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def write(self, batch: object, options: object) -> None:
        if StallingRdict.stalls:
            StallingRdict.stalls -= 1
            raise Exception("Result incomplete: Write stall")
        self._inner.write(batch, options)


@pytest.fixture
async def stalling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RocksStore]:
    monkeypatch.setattr("coregw.store.rocksdb.database.Rdict", StallingRdict)
    async with opened("rocksdb", tmp_path / "stalling") as store:
        assert isinstance(store, RocksStore)
        yield store
        StallingRdict.stalls = 0


async def test_a_stalled_write_is_repeated_until_rocksdb_accepts_it(stalling: RocksStore) -> None:
    StallingRdict.stalls = 3
    assert await upload(stalling, b"data")
    assert StallingRdict.stalls == 0
    assert await read(stalling, multihash_of(b"data")) == b"data"


async def test_a_write_that_stays_stalled_is_unavailable(stalling: RocksStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coregw.store.rocksdb.rows.STALL_SECONDS", 0.01)
    StallingRdict.stalls = 1 << 30
    with pytest.raises(Unavailable, match="does not keep up"):
        await put_roots(stalling, [b"root"])
    StallingRdict.stalls = 0
    assert await are_held(stalling, [b"root"]) == [False]


async def test_a_full_queue_refuses_writes(
    store: RocksStore, database: ControlledDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coregw.store.rocksdb.committer.MAX_WAITING", 3)
    first = await database.hold(put_roots(store, [b"root"]))
    waiting = [asyncio.ensure_future(put_roots(store, [b"root %d" % i])) for i in range(5)]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    database.release()
    results = await asyncio.gather(first, *waiting, return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 4 + [Unavailable] * 2


async def test_an_upload_that_lost_a_chunk_has_ended(store: RocksStore, monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_bytes(3 * CHUNK_BYTES)
    async with store.begin_payload() as writer:
        with monkeypatch.context() as patched:
            patched.setattr("coregw.store.rocksdb.committer.MAX_WAITING", 0)
            with pytest.raises(Unavailable):
                await writer.write(data)
        with pytest.raises(InvalidInput, match="ended"):
            await writer.write(data)
        with pytest.raises(InvalidInput, match="ended"):
            await writer.commit(multihash_of(data))
    assert await store.stat_payloads([multihash_of(data)]) == [None]
