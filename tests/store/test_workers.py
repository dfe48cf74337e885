"""A store in worker processes: reads of SSTs, calls to the owner process, and the end of either process."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from rocksdict import Rdict

from coregw.errors import CoregwError, Unavailable
from coregw.store import CHUNK_BYTES, Store, Stored, Table
from coregw.store.memory import MemoryStore
from coregw.store.rocksdb import RocksStore
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.replica import Replica
from coregw.store.workers import RemoteStore, share_store
from rocksdb_support import are_held, assert_payloads_are_whole, get_pages, put_pages, put_roots
from store_payloads import multihash_of, random_bytes, read, upload
from worker_processes import open_files
from worker_support import SlowStore, replica_of, shared, worker_of

pytestmark = pytest.mark.anyio

ROOT = b"\x01root"


def digest(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8, "big")).digest()


def page(number: int) -> bytes:
    return digest(number) * 64


async def put_numbered_pages(store: Store, numbers: range) -> None:
    for start in numbers[::128]:
        await put_pages(store, [(digest(i), page(i)) for i in range(start, min(start + 128, numbers.stop))])


# --- reads of SSTs ----------------------------------------------------------------------------------------------------


async def test_write_once_rows_and_payloads_in_ssts_are_read_without_the_owner(rocks: RocksStore) -> None:
    data = bytes(range(256)) * (CHUNK_BYTES // 128) + b"more"
    name = multihash_of(data)
    await put_numbered_pages(rocks, range(300))
    await upload(rocks, data)
    await rocks.flush()
    replica = replica_of(rocks)
    replica.refresh()
    async with shared(MemoryStore(), replica) as (worker, _):  # an owner that has nothing
        assert await get_pages(worker, [digest(i) for i in range(301)]) == [*map(page, range(300)), None]
        assert await worker.stat_payloads([name, b"other"]) == [len(data), None]
        assert await read(worker, name, 5) == data[5:]


async def test_mutable_rows_are_read_from_the_owner_although_ssts_show_them(rocks: RocksStore) -> None:
    await rocks.put({Table.RECORDS: [(b"key", b"old")]})
    await rocks.flush()
    async with worker_of(rocks) as worker:
        await rocks.put({Table.RECORDS: [(b"key", b"new")]})
        assert await worker.get(Table.RECORDS, [b"key"]) == [b"new"]
        assert await worker.list_rows(Table.RECORDS, b"k", None, 1) == [(b"key", b"new")]


async def test_held_roots_are_read_from_the_owner_although_ssts_show_them(rocks: RocksStore) -> None:
    await put_roots(rocks, [ROOT])
    await rocks.flush()
    replica = replica_of(rocks)
    replica.refresh()
    async with shared(MemoryStore(), replica) as (worker, _):  # an owner whose roots have expired
        assert await are_held(worker, [ROOT]) == [False]
        assert await worker.renew(Stored.ROOTS, [ROOT]) == [None]


async def test_a_worker_learns_that_roots_expired_although_it_asks_for_nothing(rocks: RocksStore) -> None:
    async with worker_of(rocks) as worker:
        assert worker.expiries == 0
        async with rocks.collect(60) as collection:
            assert await collection.expire() == []
        async with asyncio.timeout(30):
            while worker.expiries == 0:
                await asyncio.sleep(0.01)


async def test_a_replica_does_not_show_the_log(rocks: RocksStore) -> None:
    replica = replica_of(rocks)
    await put_roots(rocks, [ROOT])
    replica.refresh()
    replica.refresh()
    assert await replica.get(Family.ROOTS, [ROOT]) == [None]
    replica.close()


async def test_rows_outside_the_ssts_are_read_from_the_owner(rocks: RocksStore) -> None:
    await put_numbered_pages(rocks, range(5))
    await rocks.flush()
    await put_numbered_pages(rocks, range(5, 10))
    async with worker_of(rocks) as worker:
        assert await get_pages(worker, [digest(i) for i in range(11)]) == [*map(page, range(10)), None]


async def test_a_payload_with_chunks_outside_the_ssts_is_read_in_full(rocks: RocksStore) -> None:
    data = random_bytes(12 * CHUNK_BYTES + 5)  # more than a memtable, so some chunks are in SSTs
    name = multihash_of(data)
    await upload(rocks, data)
    async with worker_of(rocks) as worker:
        assert await read(worker, name) == data
        assert await read(worker, name, 7, CHUNK_BYTES + 7) == data[7:][:CHUNK_BYTES]


async def test_rows_of_ssts_that_the_owner_has_deleted_are_still_found(rocks: RocksStore) -> None:
    wanted = [digest(i) for i in range(4000)]
    await put_numbered_pages(rocks, range(2000))
    await rocks.flush()
    replica = replica_of(rocks)
    replica.refresh()
    before = {path.name for path in (rocks.path / "rocksdb").glob("*.sst")}
    await put_numbered_pages(rocks, range(2000, 4000))
    await rocks.flush()
    rocks._database._families[Family.PAGES].compact_range(None, None)
    assert before - {path.name for path in (rocks.path / "rocksdb").glob("*.sst")}, "nothing was deleted"
    assert await replica.get(Family.PAGES, wanted) == [*map(page, range(2000)), *[None] * 2000]  # it has them open
    async with shared(rocks, replica) as (worker, _):
        assert await get_pages(worker, wanted) == [*map(page, range(4000))]
        replica.refresh()
        assert await replica.get(Family.PAGES, wanted) == [*map(page, range(4000))]


class UnreadableRdict:
    """rocksdict's view of a store whose SSTs were deleted before it opened them."""

    def __init__(self, *arguments: object, **named: object) -> None:
        self._inner = Rdict(*arguments, **named)

    def get_column_family(self, name: str) -> UnreadableRdict:
        return self

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        raise Exception(f"IO error: No such file or directory: While open a file for {len(keys)} keys")

    def try_catch_up_with_primary(self) -> None:
        self._inner.try_catch_up_with_primary()

    def close(self) -> None:
        self._inner.close()


async def test_ssts_that_cannot_be_read_are_logged_once_and_so_is_their_end(
    rocks: RocksStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replica = replica_of(rocks)
    with monkeypatch.context() as patched:
        patched.setattr("coregw.store.rocksdb.replica.Rdict", None)
        for _ in range(5):
            replica.refresh()
    replica.refresh()
    replica.close()
    begun, ended = [record.getMessage() for record in caplog.records if record.name == "coregw.store.rocksdb.replica"]
    assert "cannot be read, so all reads go to the owner process: " in begun
    assert " can be read again after " in ended


async def test_a_failed_read_of_ssts_is_repeated_by_the_owner(
    rocks: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_numbered_pages(rocks, range(3))
    monkeypatch.setattr("coregw.store.rocksdb.replica.Rdict", UnreadableRdict)
    replica = replica_of(rocks)
    replica.refresh()
    async with shared(rocks, replica) as (worker, _):
        assert await get_pages(worker, [digest(2), digest(3)]) == [page(2), None]


async def test_without_readable_ssts_every_read_goes_to_the_owner(
    rocks: RocksStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await put_numbered_pages(rocks, range(3))
    async with shared(rocks, Replica(tmp_path / "no store", "test", cache_bytes=1 << 20, threads=1)) as (worker, _):
        while "cannot be read, so all reads" not in caplog.text:
            await asyncio.sleep(0)
        assert await get_pages(worker, [digest(1)]) == [page(1)]


async def test_a_replica_that_opens_in_part_releases_its_files_and_opens_again(
    rocks: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Rdict] = []  # kept alive, so that only `close` closes them

    class Partial:
        def __init__(self, *arguments: object, **named: object) -> None:
            opened.append(Rdict(*arguments, **named))

        def get_column_family(self, name: str) -> Rdict:
            if name == Family.CHUNKS:
                raise RuntimeError("not now")
            return opened[-1].get_column_family(name)

        def close(self) -> None:
            opened[-1].close()

    def is_log_open() -> bool:
        return any(name.endswith("/workers/test/LOG") for name in open_files(os.getpid()))

    await put_numbered_pages(rocks, range(10))
    await rocks.flush()
    replica = replica_of(rocks)
    with monkeypatch.context() as patched:
        patched.setattr("coregw.store.rocksdb.replica.Rdict", Partial)
        replica.refresh()
    assert len(opened) == 1
    assert not is_log_open()
    assert await replica.get(Family.PAGES, [digest(1)]) == [None]
    replica.refresh()
    assert is_log_open()
    assert await replica.get(Family.PAGES, [digest(1)]) == [page(1)]
    replica.close()
    assert not is_log_open()


# --- calls to the owner -----------------------------------------------------------------------------------------------


async def test_a_thousand_rows_are_read_from_the_owner(rocks: RocksStore) -> None:
    await put_numbered_pages(rocks, range(1000))
    async with shared(rocks) as (worker, _):
        wanted = [digest(i) for i in range(1100)]
        assert await get_pages(worker, wanted) == [*map(page, range(1000)), *[None] * 100]


async def test_the_owner_counts_reads_that_ssts_could_have_answered(rocks: RocksStore) -> None:
    here, there = socket.socketpair()
    misses: list[None] = []
    owner = await share_store(rocks, there, lambda: misses.append(None))
    async with await RemoteStore.connect(here) as worker:
        await get_pages(worker, [digest(1)])
        await worker.stat_payloads([b"name"])
        assert len(misses) == 2
        await worker.get(Table.RECORDS, [b"key"])
        await put_roots(worker, [ROOT])
        await worker.healthy()
        assert len(misses) == 2
    await owner.ended()


async def test_exactly_one_compare_and_set_from_several_processes_wins(rocks: RocksStore) -> None:
    async with worker_of(rocks, "1") as one, shared(rocks) as (two, _):
        value: bytes | None = None
        for number in range(20):
            values = [b"%d %d" % (number, i) for i in range(9)]
            stores: list[Store] = [one, two, rocks] * 3
            won = await asyncio.gather(
                *(
                    store.compare_and_set(Table.RECORDS, b"key", value, new)
                    for store, new in zip(stores, values, strict=True)
                )
            )
            assert won.count(True) == 1
            value = values[won.index(True)]
            for store in (one, two, rocks):
                assert await store.get(Table.RECORDS, [b"key"]) == [value]


async def test_a_call_whose_caller_is_cancelled_still_happens(rocks: RocksStore) -> None:
    async with worker_of(rocks) as worker:
        call = asyncio.create_task(put_roots(worker, [ROOT]))
        await asyncio.sleep(0)
        call.cancel()
        await put_roots(worker, [b"another"])
        assert await are_held(rocks, [ROOT]) == [True]


async def test_an_upload_to_a_slow_owner_gets_backpressure_and_other_calls_do_not() -> None:
    slow, data = SlowStore(), bytes(5 * CHUNK_BYTES)
    async with shared(slow) as (worker, _):
        async with worker.begin_payload() as writer:
            writing = asyncio.create_task(writer.write(data))
            for _ in range(5):
                assert await worker.healthy()
            assert not writing.done()
            slow.may_go.set()
            await writing
            assert await writer.commit(multihash_of(data))
        assert await slow.stat_payloads([multihash_of(data)]) == [len(data)]


class BrokenStore(MemoryStore):
    """A store with a bug."""

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        raise ZeroDivisionError("for the log only")


async def test_a_bug_in_the_owner_is_an_internal_error_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    async with shared(BrokenStore()) as (worker, _):
        with caplog.at_level(logging.ERROR), pytest.raises(CoregwError) as caught:
            await are_held(worker, [ROOT])
    assert caught.value.code == "internal"
    assert "for the log only" not in caught.value.message
    assert "for the log only" in caplog.text


# --- the end of a process ---------------------------------------------------------------------------------------------


async def test_the_uploads_of_a_worker_that_dies_are_aborted(rocks: RocksStore) -> None:
    here, there = socket.socketpair()
    owner = await share_store(rocks, there)
    worker = await RemoteStore.connect(here)
    async with worker.begin_payload() as writer:
        await writer.write(bytes(3 * CHUNK_BYTES))
        await worker.healthy()
        owner.hang_up()  # the connection ends as if the worker had died
        await owner.ended()
        await put_roots(rocks, [ROOT])  # queued after the deletions
        assert await assert_payloads_are_whole(rocks) == 0
        with pytest.raises(Unavailable):
            await writer.commit(b"multihash")


async def test_calls_in_progress_are_unavailable_when_the_owner_ends() -> None:
    here, there = socket.socketpair()
    slow, lost = SlowStore(), asyncio.Event()
    owner = await share_store(slow, there)
    worker = await RemoteStore.connect(here, on_lost=lost.set)
    writer = worker.begin_payload()
    commit = asyncio.create_task(writer.commit(b"multihash"))
    await worker.healthy()
    owner.hang_up()
    with pytest.raises(Unavailable, match="has ended"):
        await commit
    await lost.wait()
    with pytest.raises(Unavailable, match="has ended"):
        await put_pages(worker, [])
    assert not await worker.healthy()
    await worker.close()
    slow.may_go.set()
    await owner.ended()
