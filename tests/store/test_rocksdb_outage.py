"""Outages of the RocksDB store: a failed write or sync stops writes, the store is reopened, and nothing is lost."""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable
from coregw.store import CHUNK_BYTES, Table
from coregw.store.rocksdb import CACHE_BYTES, RocksStore
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.directory import require_working_disk
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.options import LEVEL_0_FILES
from coregw.store.rocksdb.rows import Gate
from rocksdb_support import (
    are_held,
    assert_payloads_are_whole,
    flip_bit_in_ssts,
    get_pages,
    keys,
    kill_after,
    put_pages,
    put_roots,
    writes_resumed,
)
from store_payloads import multihash_of, random_bytes, read, upload
from stores import opened

pytestmark = pytest.mark.anyio


class FaultyDatabase(Database):
    """A database on a disk that may fail a sync, and then has only what was synced before."""

    def __init__(self, path: Path) -> None:
        self.fails = 0
        self.syncs = 0
        self.is_broken = False
        self.refused = 0
        super().__init__(path, CACHE_BYTES, salvage=False)

    def sync(self) -> None:
        self.syncs += 1
        if self.fails:
            self.fails -= 1
            self._is_sound = False
            raise Unavailable("IO error: While fdatasync: Input/output error")
        super().sync()
        is_whole = False
        while not is_whole:
            shutil.rmtree(self._synced, ignore_errors=True)
            with suppress(shutil.Error):  # a compaction deleted a file meanwhile
                shutil.copytree(self.path / "rocksdb", self._synced)
                is_whole = True

    def _release(self) -> None:
        was_sound = self._is_sound
        super()._release()
        if not was_sound:  # the operating system drops the pages that it could not write
            shutil.rmtree(self.path / "rocksdb")
            shutil.copytree(self._synced, self.path / "rocksdb")

    def reopen(self) -> None:
        if self.is_broken:
            self.refused += 1
            raise Unavailable("IO error: the disk does not answer")
        super().reopen()

    @property
    def _synced(self) -> Path:
        return self.path.with_name("synced")


@pytest.fixture
def database(tmp_path: Path) -> FaultyDatabase:
    return FaultyDatabase(tmp_path / "store")


@pytest.fixture
async def store(database: FaultyDatabase) -> AsyncIterator[RocksStore]:
    async with RocksStore(database, reserve_bytes=0, read_threads=2) as made:
        yield made


async def fail_a_sync(store: RocksStore, database: FaultyDatabase) -> None:
    """Fail the sync of a root, and return when writes have resumed."""
    database.fails = 1
    with pytest.raises(Unavailable, match="Input/output error"):
        await put_roots(store, [b"unacknowledged"])
    await writes_resumed(store)


async def test_writes_resume_after_a_failed_sync_and_nothing_acknowledged_is_lost(
    store: RocksStore, database: FaultyDatabase
) -> None:
    data = random_bytes(3 * CHUNK_BYTES)
    await upload(store, data)
    await put_roots(store, [b"before"], [(bytes(32), b"page")])
    await fail_a_sync(store, database)
    await put_roots(store, [b"after"])
    assert await are_held(store, [b"before", b"unacknowledged", b"after"]) == [True, False, True]
    assert await get_pages(store, [bytes(32)]) == [b"page"]
    assert await read(store, multihash_of(data)) == data
    await store.close()
    async with opened("rocksdb", database.path) as again:
        assert await are_held(again, [b"before", b"after"]) == [True, True]
        assert await read(again, multihash_of(data)) == data


async def test_a_failed_sync_is_not_repeated_on_the_same_log(store: RocksStore, database: FaultyDatabase) -> None:
    epoch = database.epoch
    await fail_a_sync(store, database)
    assert database.epoch == epoch + 1


async def test_pages_that_were_put_before_a_failed_sync_are_there_after_it(
    store: RocksStore, database: FaultyDatabase
) -> None:
    pages = [(b"%032d" % i, random_bytes(500, i)) for i in range(100)]
    await put_pages(store, pages[:50])
    await put_pages(store, pages[50:])
    await fail_a_sync(store, database)
    await put_roots(store, [b"refers to them"])
    await store.close()
    async with opened("rocksdb", database.path) as again:
        assert await get_pages(again, [key for key, _ in pages]) == [page for _, page in pages]


async def test_an_upload_that_a_failed_sync_interrupts_is_refused_and_leaves_nothing(
    store: RocksStore, database: FaultyDatabase
) -> None:
    data = random_bytes(6 * CHUNK_BYTES)
    with pytest.raises(Unavailable, match="send the request again"):
        async with store.begin_payload() as writer:
            await writer.write(data[: 3 * CHUNK_BYTES])
            await fail_a_sync(store, database)
            await writer.write(data[3 * CHUNK_BYTES :])
            await writer.commit(multihash_of(data))
    assert await store.stat_payloads([multihash_of(data)]) == [None]
    assert await assert_payloads_are_whole(store) == 0
    assert await upload(store, data)


async def test_a_row_is_not_reported_as_durable_if_a_failed_sync_has_lost_it(
    store: RocksStore, database: FaultyDatabase
) -> None:
    epoch = store._reader.epoch
    await fail_a_sync(store, database)
    with pytest.raises(Unavailable, match="reopened"):
        await store._reader.wait_durable(Family.ROOTS, [b"unacknowledged"], epoch)


async def test_reads_go_on_while_the_disk_cannot_be_written_to(store: RocksStore, database: FaultyDatabase) -> None:
    await put_roots(store, [b"before"])
    database.is_broken = True
    database.fails = 1
    for _ in range(5):
        with pytest.raises(Unavailable):
            await put_roots(store, [b"unacknowledged"])
        assert await are_held(store, [b"before"]) == [True]
        assert not await store.healthy()
    syncs = database.syncs
    database.is_broken = False
    await writes_resumed(store)
    assert database.syncs > syncs
    await put_roots(store, [b"after"])


async def test_a_store_that_cannot_be_reopened_yet_answers_reads_when_it_is(
    store: RocksStore, database: FaultyDatabase
) -> None:
    await put_roots(store, [b"before"])
    database.fails = 3  # two attempts to reopen it fail after it was closed
    with pytest.raises(Unavailable):
        await put_roots(store, [b"unacknowledged"])
    await writes_resumed(store)
    assert await are_held(store, [b"before"]) == [True]


def test_a_log_that_rocksdb_deletes_does_not_keep_a_store_from_being_reopened(tmp_path: Path) -> None:
    database = Database(tmp_path, CACHE_BYTES)
    deleted = tmp_path / "rocksdb" / "000001.log"
    deleted.symlink_to(tmp_path / "deleted")  # is listed, and cannot be found
    require_working_disk(tmp_path)
    database.close()


async def test_reads_in_progress_delay_reopening_and_later_ones_wait_for_it(
    store: RocksStore, database: FaultyDatabase
) -> None:
    rows = [(b"key %d" % i, b"value") for i in range(20)]
    await store.put({Table.RECORDS: rows})
    database.fails = 1
    listing = database.keys(Family.RECORDS)
    assert next(listing) == b"key 0"
    with pytest.raises(Unavailable):
        await put_roots(store, [b"unacknowledged"])
    waiting = [asyncio.ensure_future(store.get(Table.PAGES, [bytes(32)])) for _ in range(5)]
    await asyncio.sleep(0.05)
    listing.close()
    assert await asyncio.gather(*waiting) == [[None]] * 5
    await writes_resumed(store)
    assert sorted(keys(store, Family.RECORDS)) == sorted(key for key, _ in rows)


async def test_an_outage_is_logged_once_when_it_begins_and_once_when_it_ends(
    store: RocksStore, database: FaultyDatabase, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    database.is_broken = True
    database.fails = 1
    for i in range(50):
        with pytest.raises(Unavailable):
            await put_roots(store, [b"root %d" % i])
    while database.refused < 2:
        await asyncio.sleep(0.02)
    database.is_broken = False
    await writes_resumed(store)
    await put_roots(store, [b"after"])
    logged = [(record.levelname, record.getMessage().split(":")[0]) for record in caplog.records]
    assert [(level, text.split(" after")[0]) for level, text in logged] == [
        ("ERROR", "writes fail"),
        ("ERROR", "writes still fail"),  # for another reason
        ("WARNING", "writes resumed"),
    ]


async def test_a_full_disk_is_logged_once_and_so_is_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    free = 0
    monkeypatch.setattr(Database, "free_bytes", lambda _: free)
    async with RocksStore(
        Database(tmp_path, CACHE_BYTES, salvage=False), reserve_bytes=1 << 20, read_threads=1
    ) as store:
        for i in range(50):
            with pytest.raises(StorageFull):
                await put_roots(store, [b"root %d" % i])
            await store.delete(Table.RECORDS, [b"key"])
        free = 1 << 40
        for i in range(5):
            await put_roots(store, [b"root %d" % i])
    assert [record.getMessage().split(":")[0].split(" after")[0] for record in caplog.records] == [
        "storage full",
        "writes resumed",
    ]


async def test_writes_resume_in_the_same_process_when_files_can_grow_again(tmp_path: Path) -> None:
    # A limit on the size of files fails writes inside RocksDB, as a full disk does.
    printed = kill_after(
        tmp_path,
        """
        import resource
        store = await open_store(path)
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, hard))
        acknowledged = []
        for i in range(1000):
            try:
                await upload(store, random.Random(i).randbytes(100_000))
            except Exception as error:
                break
            say(i)
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        while not await store.healthy():
            await asyncio.sleep(0.05)
        while True:
            try:
                await upload(store, random.Random(2000).randbytes(100_000))
                break
            except Exception:
                await asyncio.sleep(0.05)
        say(2000)
        say("end")
        await asyncio.sleep(60)
        """,
        lambda lines: "end\n" in lines,
    )
    acknowledged = [int(line) for line in printed if line.isdecimal()]
    assert len(acknowledged) > 10
    async with opened("rocksdb", tmp_path) as store:
        for i in acknowledged:
            data = random.Random(i).randbytes(100_000)
            assert await read(store, multihash_of(data)) == data


async def test_a_damaged_sst_ends_compactions_and_neither_writes_nor_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = [random_bytes(200, i) for i in range(3 + 2 * LEVEL_0_FILES)]
    for i in range(3):
        async with opened("rocksdb", tmp_path) as store:
            await put_until_accepted(store, b"key %02d" % i, values[i])
    assert flip_bit_in_ssts(tmp_path, values[0]) == 1
    for start in (3, 3 + LEVEL_0_FILES):
        async with opened("rocksdb", tmp_path) as store:
            assert isinstance(store, RocksStore)
            for i in range(start, start + LEVEL_0_FILES):
                await put_until_accepted(store, b"key %02d" % i, values[i])
                with suppress(StoreDamaged, Unavailable):
                    await store.flush()
            await put_until_accepted(store, b"last", b"value")
            for i in range(1, start + LEVEL_0_FILES):
                assert await store.get(Table.RECORDS, [b"key %02d" % i]) == [values[i]]
            with pytest.raises(StoreDamaged):
                await store.get(Table.RECORDS, [b"key 00"])
    assert "compactions are disabled until the next start" in caplog.text


async def put_until_accepted(store: RocksStore, key: bytes, value: bytes) -> None:
    """Put a record between two that every SST has, so that no SST is moved unread. Again if an outage prevents it."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await store.put({Table.RECORDS: [(b"a", b""), (key, value), (b"z", b"")]})
            except CoregwError:
                await asyncio.sleep(0.02)


# --- the gate ---------------------------------------------------------------------------------------------------------


def test_a_gate_that_cannot_be_closed_opens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coregw.store.rocksdb.rows.DRAIN_SECONDS", 0.01)
    gate = Gate()
    inside, leave = threading.Event(), threading.Event()

    def stay() -> None:
        with gate:
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=stay)
    thread.start()
    assert inside.wait(30)
    with pytest.raises(Unavailable, match="did not end"), gate.closed():
        pytest.fail("a call is inside")
    with gate:
        leave.set()
        thread.join()
    with gate.closed(), gate:  # the thread that closed it may enter
        pass
