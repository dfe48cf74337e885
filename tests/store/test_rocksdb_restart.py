"""What a RocksDB store keeps when its process ends, is killed, or loses what was not synced."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coregw.errors import Conflict, StoreDamaged
from coregw.store import CHUNK_BYTES, Store
from coregw.store._rocks_layout import Family
from coregw.store.rocksdb import RocksStore, open_store
from store.rocks_support import keys, kill_after, log_file, run_until_dead

pytestmark = pytest.mark.anyio

Put = Callable[[Store, bytes], Coroutine[None, None, bytes]]
Multihash = Callable[[bytes], bytes]

NOW = datetime(2024, 2, 29, tzinfo=UTC)


async def read(store: Store, multihash: bytes) -> bytes:
    return b"".join([chunk async for chunk in store.read_payload(multihash)])


def assert_nothing_of_uploads_but(store: RocksStore, chunks: int) -> None:
    assert keys(store._database, Family.UPLOADS) == []
    assert len(keys(store._database, Family.CHUNKS)) == chunks


async def test_everything_survives_a_restart(tmp_path: Path, put: Put) -> None:
    data = random.Random(1).randbytes(2 * CHUNK_BYTES + 1)
    async with await open_store(tmp_path) as store:
        await store.put_roots([b"root"], [(bytes(32), b"page")])
        large, empty = await put(store, data), await put(store, b"")
        await store.publish("docs", "main", b"root", None, NOW)
        await store.publish("docs", "main", b"root 2", 1, NOW)
        frozen = await store.freeze("docs", "main", NOW)
    for _ in range(2):
        async with await open_store(tmp_path) as store:
            assert await store.has_roots([b"root"]) == [True]
            assert await store.get_pages([bytes(32)]) == [b"page"]
            assert await read(store, large) == data
            assert await read(store, empty) == b""
            assert await store.get_record("docs", "main") == frozen
            assert [record.revision for record in await store.history("docs", "main", 0, 9)] == [1, 2]
            with pytest.raises(Conflict, match="frozen"):
                await store.publish("docs", "main", b"root", None, NOW)


async def test_a_closed_store_leaves_no_log_to_replay(tmp_path: Path, put: Put) -> None:
    async with await open_store(tmp_path) as store:
        await store.put_roots([b"root"], [(bytes(32), b"page")])
        await put(store, bytes(CHUNK_BYTES))
        assert log_file(tmp_path).stat().st_size > CHUNK_BYTES
    assert log_file(tmp_path).stat().st_size == 0


async def test_uploads_of_different_runs_do_not_mix(tmp_path: Path, put: Put) -> None:
    datas = [random.Random(run).randbytes(CHUNK_BYTES + run) for run in range(4)]
    multihashes = []
    for data in datas:
        async with await open_store(tmp_path) as store:
            multihashes.append(await put(store, data))
    async with await open_store(tmp_path) as store:
        assert [await read(store, multihash) for multihash in multihashes] == datas


async def test_a_process_killed_in_the_middle_of_uploads_leaves_nothing_of_them(tmp_path: Path) -> None:
    run_until_dead(
        tmp_path,
        """
        store = await open_store(path)
        await put(store, b"small")
        await put(store, bytes(CHUNK_BYTES + 1))
        writers = [store.begin_payload() for _ in range(3)]
        for i, writer in enumerate(writers):
            await writer.__aenter__()
            await writer.write(bytes(5 * CHUNK_BYTES))
        await put(store, b"after")  # so that what was written before is on the disk
        die()
        """,
    )
    async with await open_store(tmp_path) as store:
        assert_nothing_of_uploads_but(store, chunks=1 + 2 + 1)
    async with await open_store(tmp_path) as store:
        assert_nothing_of_uploads_but(store, chunks=1 + 2 + 1)


async def test_a_store_closed_in_the_middle_of_an_upload_leaves_nothing_of_it(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        writer = store.begin_payload()
        await writer.write(bytes(4 * CHUNK_BYTES))
    async with await open_store(tmp_path) as store:
        assert_nothing_of_uploads_but(store, chunks=0)


BUSY = """
    store = await open_store(path)

    async def payloads(task):
        for i in range(10_000):
            size = 1 + (7919 * i + task) % (5000 if i % 5 else 2 * CHUNK_BYTES + 5000)
            data = random.Random(f"{task} {i}").randbytes(size)
            await put(store, data)
            say("payload", task, i, size)

    async def roots(task):
        for i in range(10_000):
            name = f"{task} {i}".encode()
            await store.put_pages([(multihash(name + b"%d" % k), name * 50) for k in range(5)])
            await store.put_roots([name], [(multihash(name + b"last"), name)])
            say("root", task, i)

    async def records(task):
        for i in range(10_000):
            record = await store.publish("scope", "name", b"%d %d" % (task, i), None, datetime.now(UTC))
            say("record", record.revision, record.root.decode())

    await asyncio.gather(*(work(task) for work in (payloads, roots, records) for task in range(4)))
"""


async def test_whatever_was_acknowledged_survives_a_kill(tmp_path: Path, multihash: Multihash) -> None:
    said: list[str] = []
    for _ in range(3):
        said = kill_after(tmp_path, BUSY, lambda lines: len(lines) >= 150)
    async with await open_store(tmp_path) as store:
        newest = await store.get_record("scope", "name")
        assert newest is not None
        revisions = {record.revision: record.root for record in await store.history("scope", "name", 0, 100_000)}
        assert sorted(revisions) == list(range(1, newest.revision + 1))
        for line in said:
            kind, *words = line.split()
            if kind == "payload":
                task, i, size = map(int, words)
                data = random.Random(f"{task} {i}").randbytes(size)
                assert await read(store, multihash(data)) == data
            elif kind == "root":
                name = " ".join(words).encode()
                assert await store.has_roots([name]) == [True]
                await assert_root_is_whole(store, multihash, name)
            else:
                assert revisions[int(words[0])] == " ".join(words[1:]).encode()
        assert keys(store._database, Family.UPLOADS) == []


async def assert_root_is_whole(store: Store, multihash: Multihash, name: bytes) -> None:
    pages = await store.get_pages([multihash(name + b"%d" % k) for k in range(5)] + [multihash(name + b"last")])
    assert pages == [name * 50] * 5 + [name]


async def test_wherever_the_log_is_cut_off_roots_have_their_pages_and_payloads_their_bytes(
    tmp_path: Path, multihash: Multihash
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    kill_after(whole, BUSY, lambda lines: len(lines) >= 120)
    size = log_file(whole).stat().st_size
    picks = random.Random(5)
    found = set()
    for _ in range(12):
        shutil.rmtree(cut, ignore_errors=True)
        shutil.copytree(whole, cut)
        with log_file(cut).open("r+b") as log:
            log.truncate(picks.randrange(size))
        async with await open_store(cut) as store:
            roots = keys(store._database, Family.ROOTS)
            payloads = keys(store._database, Family.PAYLOADS)
            for root in roots:
                await assert_root_is_whole(store, multihash, root)
            for payload in payloads:
                assert multihash(await read(store, payload)) == payload
            record = await store.get_record("scope", "name")
            revisions = await store.history("scope", "name", 0, 100_000) if record else []
            assert [record.revision for record in revisions] == list(range(1, len(revisions) + 1))
            found.add((len(roots), len(payloads)))
    assert len(found) > 1  # the cuts made a difference


@pytest.mark.parametrize("last_pages", [True, False])
async def test_a_power_cut_that_tears_holes_into_what_was_not_synced_leaves_no_root_without_pages(
    tmp_path: Path, multihash: Multihash, last_pages: bool
) -> None:
    whole, torn = tmp_path / "whole", tmp_path / "torn"
    # Dies when the root's record is written and about to be synced; says how much of the log was synced before.
    (synced,) = run_until_dead(
        whole,
        f"""
        store = await open_store(path)
        await store.put_roots([b"0"])
        log = max(entry.path for entry in os.scandir(path + "/rocksdb") if entry.name.endswith(".log"))
        sync, database, size = store._database.sync, store._database, [os.stat(log).st_size]

        def sync_or_die():
            written = database.get("roots", [b"1"])[0] is not None
            if written:
                say(size[0])
                die()
            sync()
            size[0] = os.stat(log).st_size

        database.sync = sync_or_die
        pages = [(multihash(b"1%d" % k), b"1" * 50 * 100) for k in range(50)]
        if {last_pages}:
            await store.put_roots([b"1"], pages)
        else:
            await store.put_pages(pages)
            await store.put_roots([b"1"])
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
        try:
            store = await open_store(torn)
        except StoreDamaged:  # it does not pass over what it cannot tell from damage to what was synced
            store = await open_store(torn, salvage=True)
        async with store:
            assert await store.has_roots([b"0"]) == [True]
            (held,) = await store.has_roots([b"1"])
            kept.append(held)
            pages = await store.get_pages([multihash(b"1%d" % k) for k in range(50)])
            assert not held or None not in pages
    assert not all(kept)
