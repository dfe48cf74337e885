"""A damaged RocksDB store is opened for reading: what can be read is right, and nothing that was stored is absent."""

from __future__ import annotations

from pathlib import Path

import pytest

from coregw.errors import StoreDamaged, Unavailable
from coregw.store import Table
from coregw.store.ages import Clock
from coregw.store.rocksdb import CACHE_BYTES, RocksStore, open_store
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import UNDATED_KEY, Family
from rocksdb_support import are_held, flip_bit, flip_bit_in_ssts, log_file, put_roots, run_until_dead
from store_payloads import multihash_of, random_bytes, read, upload

pytestmark = pytest.mark.anyio

ROOT, PAYLOAD, KEY = b"r" * 38, random_bytes(450, 7), b"nscope\0name\0"


async def stored(path: Path) -> None:
    """Store a root, a record and a payload, in SSTs."""
    async with await open_store(path) as store:
        await put_roots(store, [ROOT])
        await store.put({Table.RECORDS: [(KEY, b"record")]})
        await upload(store, PAYLOAD)


async def read_only(path: Path) -> RocksStore:
    with pytest.raises(StoreDamaged):
        await open_store(path)
    store = await open_store(path, read_only_if_needed=True)
    assert store.read_only is not None
    assert str(path) in store.read_only
    assert "coregw fsck --repair" in store.read_only
    return store


def table_with(path: Path, pattern: bytes) -> Path:
    return next(table for table in (path / "rocksdb").glob("*.sst") if pattern in table.read_bytes())


async def test_with_a_truncated_sst_the_rows_of_others_are_served(tmp_path: Path) -> None:
    await stored(tmp_path)
    table = table_with(tmp_path, PAYLOAD[:200])
    table.write_bytes(table.read_bytes()[:-100])
    async with await read_only(tmp_path) as store:
        assert await are_held(store, [ROOT, b"s" * 38]) == [True, False]
        assert await store.get(Table.RECORDS, [KEY]) == [b"record"]
        assert await store.stat_payloads([multihash_of(PAYLOAD)]) == [len(PAYLOAD)]
        with pytest.raises(StoreDamaged):
            await read(store, multihash_of(PAYLOAD))
        assert not await store.healthy()


async def test_every_write_is_refused_with_the_reason(tmp_path: Path) -> None:
    await stored(tmp_path)
    table_with(tmp_path, PAYLOAD[:200]).unlink()
    async with await read_only(tmp_path) as store:
        for write in (
            lambda: put_roots(store, [b"t" * 38]),
            lambda: store.put_payloads([(multihash_of(b"x"), b"x")]),
            lambda: store.compare_and_set(Table.RECORDS, KEY, b"record", b"other"),
            lambda: store.delete(Table.RECORDS, [KEY]),
            lambda: upload(store, random_bytes(3_000_000, 1)),
        ):
            with pytest.raises(Unavailable, match="the store is read-only, since it is damaged"):
                await write()  # type: ignore[no-untyped-call]


async def test_a_missing_row_is_no_answer_if_a_log_is_damaged(tmp_path: Path) -> None:
    run_until_dead(
        tmp_path,
        """
        store = await open_store(path)
        await put_roots(store, [b"r" * 38])
        await store.flush()
        await put_roots(store, [b"s" * 38])
        await store.put({Table.RECORDS: [(b"nscope\\0name\\0", b"record")]})
        die()
        """,
    )
    log = log_file(tmp_path)
    flip_bit(log, log.stat().st_size // 3)
    async with await read_only(tmp_path) as store:
        assert await are_held(store, [ROOT]) == [True]
        with pytest.raises(Unavailable, match="may be lost"):
            await are_held(store, [b"x" * 38])
        with pytest.raises(Unavailable, match="may be lost"):
            await store.get(Table.RECORDS, [KEY])
        with pytest.raises(Unavailable, match="may be lost"):
            await store.list_rows(Table.RECORDS, b"n", None, 10)
        with pytest.raises(Unavailable, match="may be lost"):
            await store.stat_payloads([multihash_of(b"never stored")])


async def test_a_read_only_store_is_locked(tmp_path: Path) -> None:
    await stored(tmp_path)
    table_with(tmp_path, PAYLOAD[:200]).unlink()
    printed = run_until_dead(
        tmp_path,
        """
        store = await open_store(path, read_only_if_needed=True)
        import subprocess
        command = [sys.executable, "-P", "-m", "coregw", "fsck", "--repair", "--data", path]
        done = subprocess.run(command, capture_output=True, text=True)
        say(done.returncode, done.stderr.splitlines()[-1])
        die()
        """,
    )
    (message,) = printed
    assert message.startswith(f"5 coregw: the store in {tmp_path} is in use by another process")


async def test_without_a_manifest_nothing_can_be_read_and_the_error_says_what_to_do(tmp_path: Path) -> None:
    await stored(tmp_path)
    next((tmp_path / "rocksdb").glob("MANIFEST-*")).unlink()
    with pytest.raises(StoreDamaged, match="coregw fsck --repair"):
        await open_store(tmp_path, read_only_if_needed=True)


async def test_a_full_disk_at_the_start_allows_reads_and_writes_resume_when_there_is_room(tmp_path: Path) -> None:
    await stored(tmp_path)
    # A limit on the size of files fails all writes of RocksDB, as a full disk does.
    printed = run_until_dead(
        tmp_path,
        """
        import resource
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
        try:
            await open_store(path)
        except Exception as error:
            refused = type(error).__name__
        store = await open_store(path, read_only_if_needed=True)
        seen = await store.get(Table.ROOTS, [b"r" * 38])
        obstacles = await store.obstacles()
        try:
            await put_roots(store, [b"s" * 38])
        except Exception as error:
            failed = type(error).__name__
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        while store.read_only is not None:
            await asyncio.sleep(0.05)
        await put_roots(store, [b"s" * 38])
        say(refused, seen, failed, await store.obstacles(), await store.healthy())
        say(obstacles[0])
        die()
        """,
    )
    assert printed[0] == "StorageFull [b''] StorageFull [] True"
    assert printed[1].startswith("the store is read-only, until its disk has room: ")
    async with await open_store(tmp_path) as store:
        assert await are_held(store, [ROOT, b"s" * 38]) == [True, True]
        assert await read(store, multihash_of(PAYLOAD)) == PAYLOAD


async def test_a_store_that_lost_the_date_of_undated_rows_counts_from_now_and_is_written_to(tmp_path: Path) -> None:
    await stored(tmp_path)
    database = Database(tmp_path, CACHE_BYTES)
    between = [(Family.META, b"m%d" % i + random_bytes(i, 40), random_bytes(i, 40)) for i in range(300)]
    database.write(between)  # so that the row is in another block than the count of openings
    database.flush()
    database.compact(Family.META, None, None)
    database.close()
    assert flip_bit_in_ssts(tmp_path, UNDATED_KEY) == 1
    before = Clock().now()
    database = Database(tmp_path, CACHE_BYTES, read_only_if_needed=True)
    assert database.read_only is None
    assert database.undated >= before
    database.close()
    async with await open_store(tmp_path, read_only_if_needed=True) as store:
        assert await are_held(store, [ROOT]) == [True]
        assert await read(store, multihash_of(PAYLOAD)) == PAYLOAD
        await put_roots(store, [b"s" * 38])
