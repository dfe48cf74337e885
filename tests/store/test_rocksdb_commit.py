"""Group commit of the RocksDB store: shared syncs, durable before visible, and aborted uploads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from coregw.errors import StoreDamaged, Unavailable
from coregw.store import CHUNK_BYTES, Table
from coregw.store.collection import Stored
from coregw.store.rocksdb import RocksStore, open_store
from rocksdb_support import (
    RESERVE,
    ControlledDatabase,
    are_held,
    assert_payloads_are_whole,
    flip_bit_in_ssts,
    get_pages,
    put_pages,
    put_roots,
    writes_resumed,
)
from store_payloads import multihash_of, random_bytes, upload

pytestmark = pytest.mark.anyio


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
    threads = store.blocking()
    cases: list[tuple[Coroutine[Any, Any, object], list[Callable[[], Awaitable[object]]]]] = [
        (
            put_roots(store, [b"root"]),
            [lambda: are_held(store, [b"root"]), lambda: asyncio.to_thread(threads.get, Table.ROOTS, [b"root"])],
        ),
        (
            upload(store, b"data"),
            [
                lambda: store.stat_payloads([name]),
                lambda: anext(store.read_payload(name)),
                lambda: asyncio.to_thread(threads.find_payloads, [name], 100),
                lambda: asyncio.to_thread(threads.read_payload, name, 0, 4),
            ],
        ),
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


async def test_a_damaged_row_fails_the_requests_that_read_it_and_not_others_of_their_group(tmp_path: Path) -> None:
    data = [b"payload %d" % i for i in range(3)]
    async with await open_store(tmp_path / "store") as before:
        assert await upload(before, data[0])
    assert flip_bit_in_ssts(
        tmp_path / "store", b"\x14" + multihash_of(data[0])
    )  # the payload's row, after the length of its value
    database = ControlledDatabase(tmp_path / "store")
    async with RocksStore(database, reserve_bytes=RESERVE, read_threads=2) as store:
        first = await database.hold(upload(store, b"first"))
        others = [asyncio.ensure_future(store.put_payloads([(multihash_of(each), each)])) for each in data]
        await asyncio.sleep(0)
        database.release()
        await first
        results = await asyncio.gather(*others, return_exceptions=True)
        assert isinstance(results[0], StoreDamaged)
        assert results[1:] == [[True], [True]]
        assert database.syncs == 2


async def test_pages_that_a_collection_removes_do_not_pile_up_until_its_end(
    store: RocksStore, database: ControlledDatabase
) -> None:
    async with store.collect(0) as collection:
        for start in range(0, 150_000, 5000):
            await collection.remove(Stored.PAGES, [b"%032d" % (start + i) for i in range(5000)])
        assert database.syncs == 1


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
