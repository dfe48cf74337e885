"""Group commit of the RocksDB store: shared syncs, durable before visible, aborted uploads, full disks and stalls."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Rdict

from coregw.errors import InvalidInput, StorageFull, Unavailable
from coregw.store import CHUNK_BYTES, Table
from coregw.store.rocksdb import CACHE_BYTES, RocksStore
from coregw.store.rocksdb.database import Database
from coregw.store.testing.support import multihash_of, random_bytes, read, upload
from store.rocksdb_support import (
    are_held,
    assert_payloads_are_whole,
    get_pages,
    kill_after,
    put_pages,
    put_roots,
    writes_resumed,
)
from stores import opened

pytestmark = pytest.mark.anyio

ROOM, NO_ROOM = 1 << 40, 0
RESERVE = 1 << 20


class ControlledDatabase(Database):
    """A database whose syncs are counted and can be held up or fail, and whose disk can be full."""

    def __init__(self, path: Path) -> None:
        self.syncs = 0
        self.free = ROOM
        self.error: Exception | None = None
        self.is_waiting = threading.Event()
        self.may_sync = threading.Event()
        self.may_sync.set()
        super().__init__(path, CACHE_BYTES, salvage=False)
        self.syncs = 0

    def sync(self) -> None:
        self.syncs += 1
        self.is_waiting.set()
        assert self.may_sync.wait(30)
        if self.error is not None:
            raise self.error
        super().sync()

    def free_bytes(self) -> int:
        return self.free

    async def hold(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Start `work`, and return when it waits for its sync, which waits for `release`."""
        self.may_sync.clear()
        self.is_waiting.clear()
        task = asyncio.create_task(work)
        assert await asyncio.to_thread(self.is_waiting.wait, 30)
        return task

    def release(self) -> None:
        self.may_sync.set()


@pytest.fixture
def database(tmp_path: Path) -> ControlledDatabase:
    return ControlledDatabase(tmp_path / "store")


@pytest.fixture
async def store(database: ControlledDatabase) -> AsyncIterator[RocksStore]:
    async with RocksStore(database, reserve_bytes=RESERVE, read_threads=2) as made:
        yield made


# --- syncs ------------------------------------------------------------------------------------------------------------


async def test_writes_that_are_queued_together_share_one_sync(store: RocksStore, database: ControlledDatabase) -> None:
    first = await database.hold(upload(store, b"first"))
    others = [asyncio.ensure_future(upload(store, b"upload %d" % i)) for i in range(64)]
    for _ in range(10):
        await asyncio.sleep(0)  # every upload is queued after its first step
    assert not any(each.done() for each in [first, *others])
    database.release()
    assert all(await asyncio.gather(first, *others))
    assert database.syncs == 2


async def test_durable_writes_are_acknowledged_after_their_sync(
    store: RocksStore, database: ControlledDatabase
) -> None:
    for write in (
        put_roots(store, [b"root"]),
        store.compare_and_set(Table.RECORDS, b"key", None, b"value"),
        store.delete(Table.RECORDS, [b"key"]),
        store.put_payloads([(multihash_of(b"short"), b"short")]),
        upload(store, b"payload"),
        upload(store, bytes(2 * CHUNK_BYTES)),
    ):
        task = await database.hold(write)
        assert not task.done()
        database.release()
        await task


async def test_a_put_that_need_not_be_durable_is_acknowledged_without_a_sync(
    store: RocksStore, database: ControlledDatabase
) -> None:
    await put_pages(store, [(bytes(32), b"page")])
    assert database.syncs == 0


async def test_earlier_puts_are_synced_before_a_durable_one_is_written(
    store: RocksStore, database: ControlledDatabase
) -> None:
    await put_roots(store, [b"root 1"], [(bytes(32), b"page")])
    assert database.syncs == 1
    await put_pages(store, [(bytes(32), b"page")])
    await put_roots(store, [b"root 2"])
    assert database.syncs == 3


async def test_rows_and_payloads_are_not_visible_before_they_are_durable(
    store: RocksStore, database: ControlledDatabase
) -> None:
    name = multihash_of(b"data")
    cases: list[tuple[Coroutine[Any, Any, object], list[Callable[[], Awaitable[object]]]]] = [
        (put_roots(store, [b"root"]), [lambda: are_held(store, [b"root"])]),
        (upload(store, b"data"), [lambda: store.stat_payloads([name]), lambda: anext(store.read_payload(name))]),
        (
            store.compare_and_set(Table.RECORDS, b"key", None, b"value"),
            [
                lambda: store.get(Table.RECORDS, [b"key"]),
                lambda: store.list_rows(Table.RECORDS, b"k", None, 5),
                lambda: store.compare_and_set(Table.RECORDS, b"key", b"value", b"new"),
            ],
        ),
    ]
    for write, reads in cases:
        written = await database.hold(write)
        waiting = [asyncio.ensure_future(read()) for read in reads]
        await get_pages(store, [bytes(32)])  # other reads do not wait
        done, _ = await asyncio.wait(waiting, timeout=0.05)
        assert not done
        database.release()
        await written
        assert all(await asyncio.gather(*waiting))


async def test_a_duplicate_upload_is_acknowledged_when_the_first_one_is_durable(
    store: RocksStore, database: ControlledDatabase
) -> None:
    first = await database.hold(upload(store, b"data"))
    second = asyncio.ensure_future(upload(store, b"data"))
    await asyncio.sleep(0.01)
    assert not second.done()
    database.release()
    assert await first is True
    assert await second is False


async def test_a_lost_put_if_absent_is_reported_when_the_winner_is_durable(
    store: RocksStore, database: ControlledDatabase
) -> None:
    first = await database.hold(store.compare_and_set(Table.RECORDS, b"key", None, b"one"))
    second = asyncio.ensure_future(store.compare_and_set(Table.RECORDS, b"key", None, b"two"))
    await asyncio.sleep(0.01)
    assert not second.done()
    database.release()
    assert await first is True
    assert await second is False


async def test_a_failed_sync_fails_all_its_writes_and_the_health_check(
    store: RocksStore, database: ControlledDatabase
) -> None:
    database.error = Unavailable("the disk does not answer")
    results = await asyncio.gather(*(upload(store, b"upload %d" % i) for i in range(10)), return_exceptions=True)
    assert [type(result) for result in results] == [Unavailable] * 10
    assert not await store.healthy()
    with pytest.raises(Unavailable):  # the row exists, but may not be durable
        await store.stat_payloads([multihash_of(b"upload 1")])
    database.error = None
    await writes_resumed(store)
    await put_roots(store, [b"root"])
    assert await store.healthy()


async def test_a_write_whose_caller_is_cancelled_still_happens(store: RocksStore, database: ControlledDatabase) -> None:
    task = await database.hold(put_roots(store, [b"root"]))
    task.cancel()
    await asyncio.sleep(0)
    database.release()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await are_held(store, [b"root"]) == [True]


# --- aborted uploads --------------------------------------------------------------------------------------------------


async def test_an_aborted_upload_leaves_no_chunks(store: RocksStore) -> None:
    with pytest.raises(ConnectionError):
        async with store.begin_payload() as writer:
            await writer.write(bytes(5 * CHUNK_BYTES))
            raise ConnectionError
    assert await assert_payloads_are_whole(store) == 0


async def test_a_cancelled_upload_leaves_no_chunks(store: RocksStore) -> None:
    writing = asyncio.Event()

    async def upload_forever() -> None:
        async with store.begin_payload() as writer:
            while True:
                await writer.write(bytes(CHUNK_BYTES))
                writing.set()

    task = asyncio.create_task(upload_forever())
    await writing.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await assert_payloads_are_whole(store) == 0


@pytest.mark.parametrize("size", [10, 3 * CHUNK_BYTES])
async def test_a_cancelled_commit_stores_the_whole_payload_or_nothing(
    store: RocksStore, database: ControlledDatabase, size: int
) -> None:
    task = await database.hold(upload(store, random_bytes(size)))
    task.cancel()
    await asyncio.sleep(0)
    database.release()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await assert_payloads_are_whole(store) <= 1


async def test_the_chunks_of_duplicate_uploads_are_deleted(store: RocksStore) -> None:
    await asyncio.gather(*(upload(store, bytes(3 * CHUNK_BYTES)) for _ in range(5)))
    assert await assert_payloads_are_whole(store) == 1


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
    monkeypatch.setattr("coregw.store.rocksdb.database.STALL_SECONDS", 0.01)
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
