"""Group commit of the RocksDB store: shared syncs, durable before visible, and aborted uploads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from coregw._core import PayloadChunk
from coregw.errors import RootNotFound, StorageFull, StoreDamaged, Unavailable
from coregw.store import CHUNK_BYTES, Table
from coregw.store.collection import Stored
from coregw.store.protocol import Put, WriteOutcomes
from coregw.store.rocksdb import RocksStore, open_store
from coregw.store.rocksdb.layout import Family
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
from store_payloads import multihash_of, random_bytes, read, upload

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
    threads = store.thread_calls()
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


# --- batches of threads -----------------------------------------------------------------------------------------------


def a_put(root: bytes, *, requires: Sequence[bytes] = (), replaces: bytes | None = None) -> Put:
    page = (multihash_of(root)[2:], b"page of " + root)
    return Put({Table.PAGES: [page], Table.ROOTS: [(root, b"")]}, requires, None, replaces)


async def test_each_write_of_a_batch_has_an_outcome_and_all_share_a_sync(
    store: RocksStore, database: ControlledDatabase
) -> None:
    await put_roots(store, [b"held"])
    syncs = database.syncs
    payloads = [(multihash_of(data), data) for data in (b"one", b"", b"one")]
    puts = [a_put(b"a", requires=[b"held"]), a_put(b"b", requires=[b"absent"]), a_put(b"c")]
    outcomes = await asyncio.to_thread(store.thread_calls().write, payloads, puts, [[b"held", b"absent"], []])
    assert database.syncs <= syncs + 2  # the renewals, which a full disk allows, may come in a batch of their own
    assert outcomes.payloads == [None, None, None]
    assert [type(each) for each in outcomes.puts] == [int, RootNotFound, int]
    assert outcomes.renewals == [[0, None], []]
    assert await store.stat_payloads([name for name, _ in payloads]) == [3, 0, 3]
    assert await are_held(store, [b"a", b"b", b"c"]) == [True, False, True]
    assert await get_pages(store, [multihash_of(b"b")[2:]]) == [None]


async def test_a_root_that_is_held_with_a_value_that_is_not_replaced_is_renewed(store: RocksStore) -> None:
    def value(root: bytes, value: bytes) -> Put:
        return Put({Table.ROOTS: [(root, value)]}, (), None)

    write = store.thread_calls().write
    await asyncio.to_thread(write, [], [value(b"whole", b"whole"), value(b"lost", b"incomplete")], [])
    puts = [
        a_put(b"whole", requires=[b"absent"], replaces=b"incomplete"),
        a_put(b"lost", replaces=b"incomplete"),
        a_put(b"new"),
    ]
    outcomes = await asyncio.to_thread(write, [], puts, [])
    assert [type(each) for each in outcomes.puts] == [int, int, int]
    assert await store.get(Table.ROOTS, [b"whole", b"lost", b"new"]) == [b"whole", b"", b""]
    pages = await get_pages(store, [multihash_of(root)[2:] for root in (b"whole", b"lost", b"new")])
    assert [page is not None for page in pages] == [False, True, True]


async def test_a_full_disk_refuses_what_needs_room_and_allows_renewals(
    store: RocksStore, database: ControlledDatabase
) -> None:
    await put_roots(store, [b"held"])
    database.free = 0
    payload = (multihash_of(b"data"), b"data")
    outcomes = await asyncio.to_thread(store.thread_calls().write, [payload], [a_put(b"a")], [[b"held"]])
    assert [type(each) for each in [*outcomes.payloads, *outcomes.puts]] == [StorageFull, StorageFull]
    assert outcomes.renewals == [[0]]
    assert not any(await are_held(store, [b"a"]))


async def test_a_row_that_cannot_be_read_fails_only_the_write_that_reads_it(
    store: RocksStore, database: ControlledDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = database.get_rows

    def get_rows(family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        if b"damaged" in keys:
            raise StoreDamaged("a block is damaged")
        return read(family, keys)

    await put_roots(store, [b"damaged", b"held"])
    monkeypatch.setattr(database, "get_rows", get_rows)
    payload = (multihash_of(b"data"), b"data")
    puts = [a_put(b"a", requires=[b"damaged"]), a_put(b"b", requires=[b"held"])]
    outcomes = await asyncio.to_thread(store.thread_calls().write, [payload], puts, [[b"damaged"], [b"held"]])
    assert outcomes.payloads == [None]
    assert [type(each) for each in outcomes.puts] == [StoreDamaged, int]
    assert [type(each) for each in outcomes.renewals] == [StoreDamaged, list]


async def test_a_closed_store_refuses_a_batch(store: RocksStore) -> None:
    write = store.thread_calls().write
    await store.close()
    outcomes = await asyncio.to_thread(write, [(multihash_of(b"data"), b"data")], [a_put(b"a")], [[b"a"]])
    assert all(isinstance(each, Unavailable) for group in outcomes for each in group)


# --- payloads that threads write chunk by chunk -----------------------------------------------------------------------


LONG = random_bytes(2 * CHUNK_BYTES + 7)


def chunks_of(number: int, data: bytes = LONG) -> list[PayloadChunk]:
    """The chunks of an upload with this number."""
    starts = range(0, len(data), CHUNK_BYTES)
    return [
        PayloadChunk(number, data[at : at + CHUNK_BYTES], multihash_of(data) if at == starts[-1] else None)
        for at in starts
    ]


def chunk_writer(store: RocksStore) -> Callable[..., Awaitable[WriteOutcomes]]:
    """Return what writes chunks, and drops uploads by their numbers, from a thread."""
    calls = store.thread_calls()

    async def write(*chunks: PayloadChunk, dropped: Sequence[int] = ()) -> WriteOutcomes:
        return await asyncio.to_thread(calls.write, [], [], [], chunks, dropped)

    return write


async def test_a_payload_is_stored_with_its_last_chunk_and_its_upload_is_over(store: RocksStore) -> None:
    write = chunk_writer(store)
    for parts in zip(chunks_of(7), chunks_of(8), strict=True):  # the same payload, twice
        assert await store.stat_payloads([multihash_of(LONG)]) == [None]
        outcomes = await write(*parts)
        assert outcomes.chunks == [None, None]
    assert await read(store, multihash_of(LONG)) == LONG
    await write(dropped=[7, 8, 9])
    assert await assert_payloads_are_whole(store) == 1


async def test_chunks_share_a_sync_with_other_writes_and_need_none_before_the_last(
    store: RocksStore, database: ControlledDatabase
) -> None:
    write = store.thread_calls().write
    first, second, last = chunks_of(1)
    syncs = database.syncs
    await asyncio.to_thread(write, [], [], [], [first])
    assert database.syncs == syncs
    await asyncio.to_thread(write, [(multihash_of(b"data"), b"data")], [], [], [second])
    assert database.syncs == syncs + 1
    await asyncio.to_thread(write, [(multihash_of(b"more"), b"more")], [a_put(b"a")], [], [last])
    assert database.syncs == syncs + 2  # what came before it is durable


@pytest.mark.parametrize("written", [1, 2, 3])
async def test_a_dropped_upload_leaves_nothing_unless_its_payload_is_stored(store: RocksStore, written: int) -> None:
    write = chunk_writer(store)
    *parts, last = chunks_of(1)[:written]
    for part in parts:
        await write(part)
    await write(last, dropped=[1])  # its client has left
    assert await assert_payloads_are_whole(store) == (written == 3)


async def test_a_chunk_that_finds_no_room_says_so_and_its_upload_can_be_dropped(
    store: RocksStore, database: ControlledDatabase
) -> None:
    write = store.thread_calls().write
    first, second, last = chunks_of(1)
    await asyncio.to_thread(write, [], [], [], [first])
    database.free = 0
    for part in (second, last):
        outcomes = await asyncio.to_thread(write, [], [], [[b"absent"]], [part])
        assert ([type(each) for each in outcomes.chunks], outcomes.renewals) == ([StorageFull], [[None]])
    await asyncio.to_thread(write, [], [], [], [], [1])
    assert await assert_payloads_are_whole(store) == 0


async def test_chunks_of_an_upload_that_began_before_the_store_was_reopened_are_refused(
    store: RocksStore, database: ControlledDatabase
) -> None:
    write = chunk_writer(store)
    first, second, last = chunks_of(1)
    await write(first)
    database.error = Unavailable("a failed sync")
    with pytest.raises(Unavailable):
        await put_roots(store, [b"root"])
    database.error = None
    await writes_resumed(store)
    for part in (second, last):
        outcomes = await write(part)
        assert [type(each) for each in outcomes.chunks] == [Unavailable]
    await write(dropped=[1])
    for part in chunks_of(2):
        assert (await write(part)).chunks == [None]
    assert await assert_payloads_are_whole(store) == 1
