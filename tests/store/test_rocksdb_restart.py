"""Durability of the RocksDB store: restarts, killed processes, and simulated power cuts."""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coregw.engine.publications import RecordTable
from coregw.errors import Conflict
from coregw.store import CHUNK_BYTES, Store
from coregw.store.rocksdb import open_store
from coregw.store.rocksdb.layout import Family
from rocksdb_support import (
    are_held,
    assert_payloads_are_whole,
    forget_mark,
    get_pages,
    keys,
    kill_after,
    log_file,
    put_roots,
    run_until_dead,
)
from store_payloads import multihash_of, random_bytes, read, upload

pytestmark = pytest.mark.anyio

NOW = datetime(2024, 2, 29, tzinfo=UTC)


async def test_everything_survives_a_restart(tmp_path: Path) -> None:
    data = random_bytes(2 * CHUNK_BYTES + 1)
    async with await open_store(tmp_path) as store:
        records = RecordTable(store)
        await put_roots(store, [b"root"], [(bytes(32), b"page")])
        assert await upload(store, data)
        assert await upload(store, b"")
        await records.publish("docs", "main", b"root", None, NOW)
        await records.publish("docs", "main", b"root 2", 1, NOW)
        frozen = await records.freeze("docs", "main", NOW)
    for _ in range(2):
        async with await open_store(tmp_path) as store:
            records = RecordTable(store)
            assert await are_held(store, [b"root"]) == [True]
            assert await get_pages(store, [bytes(32)]) == [b"page"]
            assert await read(store, multihash_of(data)) == data
            assert await read(store, multihash_of(b"")) == b""
            assert await records.get("docs", "main") == frozen
            assert [record.revision for record in await records.history("docs", "main", 0, 9)] == [1, 2]
            with pytest.raises(Conflict, match="frozen"):
                await records.publish("docs", "main", b"root", None, NOW)


async def test_a_closed_store_has_an_empty_log(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        await put_roots(store, [b"root"], [(bytes(32), b"page")])
        await upload(store, bytes(CHUNK_BYTES))
        assert log_file(tmp_path).stat().st_size > CHUNK_BYTES
    assert log_file(tmp_path).stat().st_size == 0


async def test_uploads_of_different_runs_do_not_mix(tmp_path: Path) -> None:
    datas = [random_bytes(CHUNK_BYTES + run) for run in range(4)]
    for data in datas:
        async with await open_store(tmp_path) as store:
            await upload(store, data)
    async with await open_store(tmp_path) as store:
        assert [await read(store, multihash_of(data)) for data in datas] == datas


async def test_the_unfinished_uploads_of_a_killed_process_are_deleted(tmp_path: Path) -> None:
    run_until_dead(
        tmp_path,
        """
        store = await open_store(path)
        await upload(store, b"small")
        await upload(store, bytes(CHUNK_BYTES + 1))
        writers = [store.begin_payload() for _ in range(3)]
        for i, writer in enumerate(writers):
            await writer.__aenter__()
            await writer.write(bytes(5 * CHUNK_BYTES))
        await upload(store, b"last")  # its sync makes the chunks before it durable
        die()
        """,
    )
    for _ in range(2):
        async with await open_store(tmp_path) as store:
            assert await assert_payloads_are_whole(store) == 3


async def test_an_upload_in_progress_when_the_store_is_closed_is_deleted(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        writer = store.begin_payload()
        await writer.write(bytes(4 * CHUNK_BYTES))
    async with await open_store(tmp_path) as store:
        assert await assert_payloads_are_whole(store) == 0


BUSY = """
    store = await open_store(path)

    async def payloads(task):
        for i in range(10_000):
            size = 1 + (7919 * i + task) % (5000 if i % 5 else 2 * CHUNK_BYTES + 5000)
            data = random.Random(f"{task} {i}").randbytes(size)
            await upload(store, data)
            say("payload", task, i, size)

    async def roots(task):
        for i in range(10_000):
            name = f"{task} {i}".encode()
            await put_pages(store, [(multihash_of(name + b"%d" % k), name * 50) for k in range(5)])
            await put_roots(store, [name], [(multihash_of(name + b"last"), name)])
            say("root", task, i)

    async def records(task):
        for i in range(10_000):
            record = await RecordTable(store).publish("scope", "name", b"%d %d" % (task, i), None, datetime.now(UTC))
            say("record", record.revision, record.root.decode())

    await asyncio.gather(*(work(task) for work in (payloads, roots, records) for task in range(4)))
"""


async def test_acknowledged_writes_survive_kills(tmp_path: Path) -> None:
    printed: list[str] = []
    for _ in range(3):
        printed = kill_after(tmp_path, BUSY, lambda lines: len(lines) >= 150)
    async with await open_store(tmp_path) as store:
        records = RecordTable(store)
        newest = await records.get("scope", "name")
        assert newest is not None
        revisions = {record.revision: record.root for record in await records.history("scope", "name", 0, 100_000)}
        assert sorted(revisions) == list(range(1, newest.revision + 1))
        for line in printed:
            kind, *words = line.split()
            if kind == "payload":
                task, i, size = map(int, words)
                data = random.Random(f"{task} {i}").randbytes(size)
                assert await read(store, multihash_of(data)) == data
            elif kind == "root":
                name = " ".join(words).encode()
                assert await are_held(store, [name]) == [True]
                await assert_pages_are_present(store, name)
            else:
                assert revisions[int(words[0])] == " ".join(words[1:]).encode()
        await assert_payloads_are_whole(store)


async def assert_pages_are_present(store: Store, root: bytes) -> None:
    digests = [multihash_of(root + b"%d" % k) for k in range(5)] + [multihash_of(root + b"last")]
    assert await get_pages(store, digests) == [root * 50] * 5 + [root]


async def test_with_a_log_truncated_anywhere_roots_have_their_pages_and_payloads_their_bytes(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    kill_after(whole, BUSY, lambda lines: len(lines) >= 120)
    size = log_file(whole).stat().st_size
    positions = random.Random(5)
    found = set()
    for _ in range(12):
        shutil.rmtree(cut, ignore_errors=True)
        shutil.copytree(whole, cut)
        forget_mark(cut)  # as if nothing after the cut had been acknowledged
        with log_file(cut).open("r+b") as log:
            log.truncate(positions.randrange(size))
        async with await open_store(cut) as store:
            roots = keys(store, Family.ROOTS)
            for root in roots:
                await assert_pages_are_present(store, root)
            payloads = await assert_payloads_are_whole(store)
            records = RecordTable(store)
            record = await records.get("scope", "name")
            revisions = await records.history("scope", "name", 0, 100_000) if record else []
            assert [record.revision for record in revisions] == list(range(1, len(revisions) + 1))
            found.add((len(roots), payloads))
    assert len(found) > 1  # the positions made a difference


@pytest.mark.parametrize("is_one_put", [True, False])
async def test_holes_torn_into_the_unsynced_log_by_a_power_cut_leave_no_root_without_pages(
    tmp_path: Path, is_one_put: bool
) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    # Dies when the root's record is written and about to be synced; prints how much of the log was synced before.
    (synced,) = run_until_dead(
        whole,
        f"""
        from pathlib import Path
        from coregw.store.rocksdb import CACHE_BYTES, RocksStore
        from coregw.store.rocksdb.database import Database
        from coregw.store.rocksdb.layout import Family

        class Dying(Database):
            synced = None

            def sync(self):
                if self.get(Family.ROOTS, [b"1"])[0] is not None:
                    say(self.synced)
                    die()
                super().sync()
                logs = sorted((self.path / "rocksdb").glob("*.log"))
                self.synced = logs[-1].stat().st_size

        database = Dying(Path(path), CACHE_BYTES, salvage=False)
        store = RocksStore(database, reserve_bytes=0, read_threads=1)
        await put_roots(store, [b"0"])
        pages = [(multihash_of(b"1%d" % k), b"1" * 50 * 100) for k in range(50)]
        if {is_one_put}:
            await put_roots(store, [b"1"], pages)
        else:
            await put_pages(store, pages)
            await put_roots(store, [b"1"])
        """,
    )
    length = log_file(whole).stat().st_size
    assert length > int(synced)
    kept = []
    for offset in range(int(synced), length, max(4096, (length - int(synced)) // 12)):
        shutil.rmtree(torn, ignore_errors=True)
        shutil.copytree(whole, torn)
        with log_file(torn).open("r+b") as log:
            log.seek(offset)
            log.write(bytes(min(4096, length - offset)))
        async with await open_store(torn) as store:
            assert await are_held(store, [b"0"]) == [True]
            (is_held,) = await are_held(store, [b"1"])
            kept.append(is_held)
            pages = await get_pages(store, [multihash_of(b"1%d" % k) for k in range(50)])
            assert not is_held or None not in pages
    assert not all(kept)
