"""The high-water mark: a store that lost the end of a log or of its MANIFEST is refused, and no other."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from coregw.errors import StoreDamaged, Unavailable
from coregw.store.rocksdb import CACHE_BYTES, RocksStore, open_store
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.mark import (
    MARK,
    Durable,
    Extent,
    HighWaterMarkFile,
    log_name,
    log_numbers,
    read_mark,
)
from coregw.store.rocksdb.wal import complete_end
from rocksdb_support import (
    are_held,
    forget_mark,
    killed_with_several_logs,
    log_file,
    put_pages,
    put_roots,
    run_until_dead,
)

pytestmark = pytest.mark.anyio

ROOTS = [b"root %d" % i for i in range(40)]
BLOCK = 32 << 10


def manifest(path: Path) -> Path:
    """The MANIFEST in use."""
    return path / "rocksdb" / (path / "rocksdb" / "CURRENT").read_text().strip()


def ssts(path: Path) -> set[str]:
    return {file.name for file in (path / "rocksdb").glob("*.sst")}


def cut_off(file: Path, count: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(file.stat().st_size - count)


async def assert_refused(path: Path, name: str) -> None:
    """The store does not open, the message names the file and says what to do, and no file is touched."""
    before = {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}
    with pytest.raises(StoreDamaged) as caught:
        await open_store(path)
    assert name in caught.value.message
    assert "coregw fsck --repair" in caught.value.message
    assert {file: file.read_bytes() for file in path.rglob("*") if file.is_file()} == before


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose process was killed right after it had acknowledged `ROOTS`; never opened since."""
    path = tmp_path_factory.mktemp("killed") / "store"
    run_until_dead(
        path,
        """
        store = await open_store(path)
        for i in range(40):
            await put_roots(store, [b"root %d" % i], [(b"%032d" % i, random.Random(i).randbytes(3000))])
        die()
        """,
    )
    return path


@pytest.fixture
def copy(killed: Path, tmp_path: Path) -> Path:
    shutil.copytree(killed, tmp_path / "copy")
    return tmp_path / "copy"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, 64, 50_000])
async def test_a_log_without_its_last_acknowledged_bytes_is_damage(copy: Path, count: int) -> None:
    cut_off(log_file(copy), count)
    await assert_refused(copy, log_file(copy).name)
    async with await open_store(copy, salvage=True) as store:
        assert (await are_held(store, ROOTS)).index(False) >= 20
    await (await open_store(copy)).close()


@pytest.mark.parametrize("count", [1, 30, 64])
async def test_a_manifest_without_its_end_is_damage_after_a_kill(copy: Path, count: int) -> None:
    cut_off(manifest(copy), count)
    await assert_refused(copy, manifest(copy).name)


@pytest.mark.parametrize("count", [1, 30, 64])
async def test_a_manifest_without_its_end_is_damage_after_a_clean_stop(tmp_path: Path, count: int) -> None:
    for i in range(3):
        async with await open_store(tmp_path) as store:
            await put_roots(store, [b"root %d" % i])
    cut_off(manifest(tmp_path), count)
    tables = ssts(tmp_path)
    await assert_refused(tmp_path, manifest(tmp_path).name)
    assert ssts(tmp_path) == tables  # RocksDB would have deleted those that the MANIFEST names no more


async def test_a_removed_newest_log_is_damage(copy: Path) -> None:
    log = log_file(copy)
    log.rename(log.with_name("000001.log"))
    await assert_refused(copy, log.name)


async def test_each_of_several_logs_is_required(tmp_path: Path) -> None:
    logs = killed_with_several_logs(tmp_path / "whole")
    for name in logs:
        copy = tmp_path / f"without-{name}"
        shutil.copytree(tmp_path / "whole", copy)
        (copy / "rocksdb" / name).unlink()
        with pytest.raises(StoreDamaged):
            await open_store(copy)


@pytest.mark.parametrize("harm", ["zeroed", "of a recycled log", "too long"])
async def test_a_record_that_no_checksum_covers_is_damage(copy: Path, harm: str) -> None:
    log = log_file(copy)
    data = bytearray(log.read_bytes())
    last_block = len(data) - len(data) % BLOCK
    starts = (complete_end(data, 0, end) for end in range(last_block, len(data)))
    start = next(start for start in starts if start >= last_block)
    if harm == "zeroed":
        data[start : start + 7] = bytes(7)
    elif harm == "too long":
        data[start + 5] ^= 0x70
    else:
        data[start + 6] ^= 4
    log.write_bytes(data)
    await assert_refused(copy, log.name)


async def test_an_older_manifest_is_damage(tmp_path: Path) -> None:
    await (await open_store(tmp_path / "store")).close()
    shutil.copytree(tmp_path / "store", tmp_path / "old")
    async with await open_store(tmp_path / "store") as store:
        await put_roots(store, [b"root"])
    old = manifest(tmp_path / "old")
    shutil.copy(old, manifest(tmp_path / "store").with_name(old.name))
    (tmp_path / "store" / "rocksdb" / "CURRENT").write_text(f"{old.name}\n")
    await assert_refused(tmp_path / "store", old.name)


async def test_a_damaged_mark_is_damage_and_one_intact_slot_is_enough(copy: Path) -> None:
    mark = copy / "rocksdb" / MARK
    slots = mark.read_bytes()
    expected = read_mark(copy / "rocksdb")
    assert expected is not None
    damaged = bytearray(slots)
    damaged[20] ^= 1
    damaged[4096 + 20] ^= 1
    mark.write_bytes(damaged)
    await assert_refused(copy, MARK)
    mark.write_bytes(damaged[:4096] + slots[4096:])
    assert read_mark(copy / "rocksdb") is not None
    mark.write_bytes(slots[:4096] + damaged[4096:])
    assert read_mark(copy / "rocksdb") is not None
    async with await open_store(copy) as store:
        assert all(await are_held(store, ROOTS))


# --- what is not ------------------------------------------------------------------------------------------------------


async def test_a_torn_record_after_the_acknowledged_ones_is_dropped(copy: Path) -> None:
    with log_file(copy).open("ab") as log:
        log.write(b"\x12\x34\x56\x78\xff\x10\x01 a record whose process was killed while it wrote it")
    async with await open_store(copy) as store:
        assert all(await are_held(store, ROOTS))


async def test_torn_writes_after_the_acknowledged_ones_are_cut_off(copy: Path) -> None:
    log = log_file(copy)
    data = log.read_bytes()
    last = complete_end(data, 0, len(data) - 1)
    rest = bytearray(data[last:])  # a record of the right form ...
    rest[30] ^= 1  # ... and the wrong checksum, with one behind it that is whole
    with log.open("ab") as opened:
        opened.write(rest + data[last:])
    forgotten = copy.with_name("forgotten")
    shutil.copytree(copy, forgotten)
    forget_mark(forgotten)
    with pytest.raises(StoreDamaged, match="checksum"):  # without the mark it may be acknowledged
        await open_store(forgotten)
    async with await open_store(copy) as store:
        assert all(await are_held(store, ROOTS))


async def test_no_log_of_an_open_store_is_cut_off(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        await put_roots(store, ROOTS)
        with log_file(tmp_path).open("ab") as log:
            log.write(b"the beginning of a record")
        size = log_file(tmp_path).stat().st_size
        with pytest.raises(Unavailable, match="in use"):
            await open_store(tmp_path)
        assert log_file(tmp_path).stat().st_size == size


async def test_a_store_of_an_earlier_version_has_no_mark_and_gets_one(copy: Path) -> None:
    forget_mark(copy)
    async with await open_store(copy) as store:
        assert all(await are_held(store, ROOTS))
        assert (copy / "rocksdb" / MARK).stat().st_size == 8192


async def test_a_store_killed_again_and_again_while_it_starts_opens(killed: Path, tmp_path: Path) -> None:
    # Each start is killed after a random time of its recovery, so the next one meets what it left.
    path = tmp_path / "copy"
    shutil.copytree(killed, path)
    for turn in range(4):
        run_until_dead(
            path,
            f"""
            import threading
            threading.Timer({turn} * 0.03, die).start()
            store = await open_store(path)
            for i in range(100_000):
                await put_roots(store, [b"more %d" % i])
            """,
        )
    async with await open_store(path) as store:
        assert all(await are_held(store, ROOTS))


class HeldDatabase(Database):
    """A database whose syncs can be left out, as at the moment before a power cut."""

    syncs = True

    def sync(self) -> None:
        if self.syncs:
            super().sync()


async def test_the_mark_claims_only_what_was_synced(tmp_path: Path) -> None:
    database = HeldDatabase(tmp_path, CACHE_BYTES, salvage=False)
    async with RocksStore(database, reserve_bytes=0, read_threads=1) as store:
        await put_roots(store, [b"root"])
        synced = log_file(tmp_path).stat().st_size
        database.syncs = False
        await put_pages(store, [(bytes(32), bytes(1000))])
        await put_roots(store, [b"root 2"])
        assert log_file(tmp_path).stat().st_size > synced + 1000
        found = read_mark(tmp_path / "rocksdb")
        assert found is not None
        assert found.logs[-1] == Extent(int(log_file(tmp_path).stem), synced)
        database.syncs = True
        await put_roots(store, [b"root 3"])
        found = read_mark(tmp_path / "rocksdb")
        assert found is not None
        assert found.logs[-1].size == log_file(tmp_path).stat().st_size


async def test_a_store_opens_whose_mark_was_refreshed_before_the_first_sync_of_a_log(tmp_path: Path) -> None:
    """Rows that wait for no sync may fill a log, and RocksDB deletes the one before it when its rows are in SSTs."""
    database = Database(tmp_path, CACHE_BYTES)
    for number in range(2):
        database.write([(Family.PAGES, b"page %d" % number, b"")])
        database.flush()  # begins another log, and deletes those before it
    database.write([(Family.PAGES, b"page 2", b"")])
    database.refresh_mark()
    mark = read_mark(tmp_path / "rocksdb")
    assert mark is not None
    assert len(mark.logs) == 1
    copy = tmp_path.with_name("copy")
    shutil.copytree(tmp_path, copy)  # as a kill leaves it
    database.close()
    Database(copy, CACHE_BYTES).close()
    shutil.copytree(tmp_path, tmp_path.with_name("earlier"))
    file = HighWaterMarkFile.create(
        tmp_path.with_name("earlier") / "rocksdb", mark._replace(logs=())
    )  # as versions before wrote
    file.close()
    Database(tmp_path.with_name("earlier"), CACHE_BYTES).close()


async def test_a_log_that_is_flushed_and_deleted_before_it_is_opened_fails_no_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup flushes in a thread of its own, also between the listing of the logs and the opening of the newest."""
    path = tmp_path / "store"
    database = Database(path, CACHE_BYTES)
    flushed: list[int] = []

    def list_and_flush(directory: Path) -> list[int]:
        numbers = log_numbers(directory)
        if not flushed:
            flushed.append(numbers[-1])
            database.flush()
            while (directory / log_name(numbers[-1])).exists():  # deleted by a thread of RocksDB
                time.sleep(0.001)
        return numbers

    with closing(database):
        database.write([(Family.PAGES, b"page 0", b"")])
        database.flush()  # begins another log
        with monkeypatch.context() as patched:
            patched.setattr("coregw.store.rocksdb.mark.log_numbers", list_and_flush)
            database.write([(Family.PAGES, b"page 1", b"")])
        database.write([(Family.PAGES, b"page 2", b"")])
        database.sync()
        found = read_mark(path / "rocksdb")
        assert found is not None
        assert found.newest == Extent(int(log_file(path).stem), log_file(path).stat().st_size)
        assert found.newest.number > flushed[0]
        shutil.copytree(path, tmp_path / "copy")  # as a kill leaves it
    reopened = Database(tmp_path / "copy", CACHE_BYTES)
    assert reopened.get(Family.PAGES, [b"page %d" % number for number in range(3)]) == [b""] * 3
    reopened.close()


async def test_a_directory_without_logs_fails_a_write(tmp_path: Path) -> None:
    database = Database(tmp_path, CACHE_BYTES)
    with closing(database):
        database.write([(Family.PAGES, b"page 0", b"")])
        database.flush()
        for number in log_numbers(tmp_path / "rocksdb"):
            (tmp_path / "rocksdb" / log_name(number)).unlink()
        with pytest.raises(Unavailable, match="log"):
            database.write([(Family.PAGES, b"page 1", b"")])


async def test_an_idle_store_syncs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = Database(tmp_path, CACHE_BYTES, salvage=False)
    async with RocksStore(database, reserve_bytes=0, read_threads=1) as store:
        await put_roots(store, [b"root"])
        await asyncio.to_thread(database.refresh_mark)
        synced: list[int] = []
        with monkeypatch.context() as patched:
            patched.setattr("os.fsync", synced.append)
            for _ in range(3):
                database.refresh_mark()
        assert synced == []


async def test_the_mark_of_a_closed_store_covers_all_of_its_files(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        await put_roots(store, ROOTS)
    found = read_mark(tmp_path / "rocksdb")
    assert found is not None
    assert found.manifest == Extent(int(manifest(tmp_path).name[9:]), manifest(tmp_path).stat().st_size)
    assert found.logs[-1] == Extent(int(log_file(tmp_path).stem), log_file(tmp_path).stat().st_size)


async def test_rocksdb_records_its_logs_in_the_manifest(tmp_path: Path) -> None:
    await (await open_store(tmp_path)).close()
    options = max((tmp_path / "rocksdb").glob("OPTIONS-*")).read_text()
    assert "track_and_verify_wals_in_manifest=true" in options


# --- the file and the records -----------------------------------------------------------------------------------------


def test_a_mark_is_read_as_it_was_written_last(tmp_path: Path) -> None:
    states = [Durable(Extent(5, i), tuple(Extent(n, n * i) for n in range(7, 7 + i))) for i in range(9)]
    file = HighWaterMarkFile.create(tmp_path, states[0])
    assert read_mark(tmp_path) == states[0]
    for state in states:
        file.write(state)
        assert read_mark(tmp_path) == state
        if len(state.logs) % 3 == 0:
            file.sync()
    file.close()


def test_a_mark_of_more_logs_than_fit_keeps_the_newest(tmp_path: Path) -> None:
    HighWaterMarkFile.create(tmp_path, Durable(Extent(1, 1), tuple(Extent(n, n) for n in range(1000)))).close()
    found = read_mark(tmp_path)
    assert found is not None
    assert 200 < len(found.logs) < 260
    assert found.logs[-1] == Extent(999, 999)


def entry(size: int, position: int) -> Iterator[bytes]:
    """An entry of a log as RocksDB writes it, with checksums of zero."""
    is_first = True
    while True:
        left = BLOCK - position % BLOCK
        if left < 7:
            yield bytes(left)
            position += left
            continue
        part = min(size, left - 7)
        size -= part
        kind = {(True, True): 1, (True, False): 2, (False, False): 3, (False, True): 4}[is_first, not size]
        yield bytes(4) + part.to_bytes(2, "little") + bytes([kind]) + b"x" * part
        position += 7 + part
        is_first = False
        if not size:
            return


def test_complete_entries_end_where_they_were_written() -> None:
    sizes = random.Random(1)
    for _ in range(20):
        data = b""
        ends = [0]
        for _ in range(8):
            data += b"".join(entry(sizes.choice([1, 7, 1000, BLOCK - 14, BLOCK - 10, 3 * BLOCK]), len(data)))
            ends.append(len(data))
        for end in (*ends, *(sizes.randrange(len(data)) for _ in range(20))):
            assert complete_end(data, 0, end) == max(each for each in ends if each <= end)
        assert all(complete_end(data, start, len(data)) == len(data) for start in ends)


@pytest.mark.parametrize("harm", [lambda kind: 0, lambda kind: kind ^ 4, lambda kind: 3])
def test_entries_end_before_a_malformed_record(harm: Callable[[int], int]) -> None:
    first = b"".join(entry(100, 0))
    data = bytearray(first + b"".join(entry(100, len(first))))
    data[len(first) + 6] = harm(data[len(first) + 6])
    assert complete_end(data, 0, len(data)) == len(first)
