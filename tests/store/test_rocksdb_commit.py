"""How the RocksDB store writes: shared syncs, what is shown when, aborts, stalls, and full disks."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coregw.errors import InvalidInput, StorageFull, Unavailable
from coregw.store import CHUNK_BYTES, Store
from coregw.store._rocks_layout import Family
from coregw.store.rocksdb import RocksStore, open_store
from store.rocks_support import keys, kill_after

pytestmark = pytest.mark.anyio

Put = Callable[[Store, bytes], Coroutine[None, None, bytes]]
Multihash = Callable[[bytes], bytes]

NOW = datetime(2024, 2, 29, tzinfo=UTC)


class Gate:
    """Stands before a store's syncs: counts them, and holds them up while it is shut."""

    def __init__(self, store: RocksStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs = 0
        self.reached = threading.Event()
        self.open = threading.Event()
        self.open.set()
        sync = store._database.sync

        def counted() -> None:
            self.syncs += 1
            self.reached.set()
            assert self.open.wait(30)
            sync()

        monkeypatch.setattr(store._database, "sync", counted)

    async def shut_behind(self, work: Coroutine[None, None, object]) -> asyncio.Task[object]:
        """Starts `work`, and returns when it waits for its sync."""
        self.open.clear()
        self.reached.clear()
        started = asyncio.create_task(work)
        assert await asyncio.to_thread(self.reached.wait, 30)
        return started


@pytest.fixture
def gate(rocks: RocksStore, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(rocks, monkeypatch)


def deny(store: RocksStore, monkeypatch: pytest.MonkeyPatch, method: str, error: Exception) -> None:
    def denied(*_: object) -> None:
        raise error

    monkeypatch.setattr(store._database, method, denied)


# --- syncs ------------------------------------------------------------------------------------------------------------


async def test_small_uploads_that_wait_together_share_one_sync(rocks: RocksStore, gate: Gate, put: Put) -> None:
    first = await gate.shut_behind(put(rocks, b"first"))
    rest = [asyncio.ensure_future(put(rocks, b"upload %d" % i)) for i in range(64)]
    while rocks._committer._queue.qsize() < 64:
        await asyncio.sleep(0)
    assert not any(upload.done() for upload in [first, *rest])
    gate.open.set()
    await asyncio.gather(first, *rest)
    assert gate.syncs == 2


async def test_nothing_is_acknowledged_before_its_sync(rocks: RocksStore, gate: Gate, put: Put) -> None:
    now = datetime.now(UTC)
    for work in (
        rocks.put_roots([b"root"]),
        put(rocks, b"payload"),
        put(rocks, bytes(2 * CHUNK_BYTES)),
        rocks.publish("scope", "name", b"root", None, now),
        rocks.freeze("scope", "name", now),
    ):
        started = await gate.shut_behind(work)
        assert not started.done()
        gate.open.set()
        await started


async def test_pages_alone_are_acknowledged_without_a_sync(rocks: RocksStore, gate: Gate) -> None:
    await rocks.put_pages([(bytes(32), b"page")])
    assert gate.syncs == 0


async def test_a_root_with_its_pages_costs_one_sync_and_pages_before_cost_one_more(
    rocks: RocksStore, gate: Gate
) -> None:
    await rocks.put_roots([b"root 1"], [(bytes(32), b"page")])
    assert gate.syncs == 1
    await rocks.put_pages([(bytes(32), b"page")])
    await rocks.put_roots([b"root 2"])
    assert gate.syncs == 3


async def test_what_is_not_durable_yet_is_not_shown(
    rocks: RocksStore, gate: Gate, put: Put, multihash: Multihash
) -> None:
    async def first_chunk() -> bytes:
        return await anext(rocks.read_payload(multihash(b"data")))

    for write, reads in (
        (lambda: rocks.put_roots([b"root"]), [lambda: rocks.has_roots([b"root"])]),
        (
            lambda: put(rocks, b"data"),
            [
                lambda: rocks.stat_payload(multihash(b"data")),
                lambda: rocks.has_payloads([multihash(b"data")]),
                first_chunk,
            ],
        ),
        (
            lambda: rocks.publish("scope", "name", b"root", None, NOW),
            [
                lambda: rocks.get_record("scope", "name"),
                lambda: rocks.list_records("scope", None, 5),
                lambda: rocks.history("scope", "name", 0, 5),
            ],
        ),
        (
            lambda: rocks.put_plant(7, b"fern"),
            [lambda: rocks.get_plant(7)],
        ),
    ):
        written = await gate.shut_behind(write())
        waiting = [asyncio.ensure_future(read()) for read in reads]
        await rocks.get_pages([bytes(32)] * 3)
        done, _ = await asyncio.wait(waiting, timeout=0.05)
        assert not done
        gate.open.set()
        await written
        assert all(await asyncio.gather(*waiting))


async def test_the_second_of_two_uploads_is_not_told_that_the_first_is_there_before_it_is_durable(
    rocks: RocksStore, gate: Gate, put: Put, multihash: Multihash
) -> None:
    async def again() -> bool:
        async with rocks.begin_payload() as writer:
            await writer.write(b"data")
            return await writer.commit(multihash(b"data"))

    first = await gate.shut_behind(put(rocks, b"data"))
    second = asyncio.ensure_future(again())
    await asyncio.sleep(0.01)
    assert not second.done()
    gate.open.set()
    await first
    assert await second is False
    assert gate.syncs == 2


async def test_the_second_of_two_plants_is_not_told_that_its_id_is_taken_before_that_is_durable(
    rocks: RocksStore, gate: Gate
) -> None:
    first = await gate.shut_behind(rocks.put_plant(7, b"fern"))
    second = asyncio.ensure_future(rocks.put_plant(7, b"moss"))
    await asyncio.sleep(0.01)
    assert not second.done()
    gate.open.set()
    assert await first is True
    assert await second is False


async def test_a_failed_sync_is_told_to_all_that_waited_for_it_and_to_the_health_check(
    rocks: RocksStore, monkeypatch: pytest.MonkeyPatch, put: Put, multihash: Multihash
) -> None:
    with monkeypatch.context() as patched:
        deny(rocks, patched, "sync", Unavailable("the disk does not answer"))
        results = await asyncio.gather(*(put(rocks, b"upload %d" % i) for i in range(10)), return_exceptions=True)
        assert [type(result) for result in results] == [Unavailable] * 10
        assert not await rocks.healthy()
        with pytest.raises(Unavailable):  # it is written, but who knows whether it will stay
            await rocks.has_payloads([multihash(b"upload 1")])
    await rocks.put_roots([b"root"])
    assert await rocks.healthy()


# --- aborts -----------------------------------------------------------------------------------------------------------


def assert_nothing_is_left(store: RocksStore, chunks: int = 0) -> None:
    assert keys(store._database, Family.UPLOADS) == []
    assert len(keys(store._database, Family.CHUNKS)) == chunks


async def test_a_broken_off_upload_leaves_nothing(rocks: RocksStore) -> None:
    with pytest.raises(ConnectionError):
        async with rocks.begin_payload() as writer:
            await writer.write(bytes(5 * CHUNK_BYTES))
            raise ConnectionError
    assert_nothing_is_left(rocks)


async def test_a_cancelled_upload_leaves_nothing(rocks: RocksStore) -> None:
    writing = asyncio.Event()

    async def upload() -> None:
        async with rocks.begin_payload() as writer:
            while True:
                await writer.write(bytes(CHUNK_BYTES))
                writing.set()

    task = asyncio.create_task(upload())
    await writing.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert_nothing_is_left(rocks)


@pytest.mark.parametrize("size", [10, 3 * CHUNK_BYTES])
async def test_a_commit_that_is_cancelled_is_all_or_nothing(
    rocks: RocksStore, gate: Gate, multihash: Multihash, size: int
) -> None:
    data = bytes(size)

    async def upload() -> None:
        async with rocks.begin_payload() as writer:
            await writer.write(data)
            await writer.commit(multihash(data))

    task = await gate.shut_behind(upload())
    task.cancel()
    await asyncio.sleep(0)
    gate.open.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    (held,) = await rocks.has_payloads([multihash(data)])
    if held:
        assert b"".join([chunk async for chunk in rocks.read_payload(multihash(data))]) == data
    assert_nothing_is_left(rocks, chunks=-(-size // CHUNK_BYTES) if held else 0)


async def test_the_copy_of_a_payload_that_was_there_is_deleted(rocks: RocksStore, put: Put) -> None:
    data = bytes(3 * CHUNK_BYTES)
    await asyncio.gather(*(put(rocks, data) for _ in range(5)))
    assert_nothing_is_left(rocks, chunks=3)


async def test_a_commit_that_fails_leaves_nothing(
    rocks: RocksStore, monkeypatch: pytest.MonkeyPatch, multihash: Multihash
) -> None:
    data = bytes(3 * CHUNK_BYTES)
    with pytest.raises(StorageFull):
        async with rocks.begin_payload() as writer:
            await writer.write(data)
            with monkeypatch.context() as patched:
                patched.setattr(rocks._committer, "_reserve_bytes", 1 << 62)
                await writer.commit(multihash(data))
    assert_nothing_is_left(rocks)
    assert await rocks.has_payloads([multihash(data)]) == [False]


async def test_a_chunk_that_fails_is_told_by_the_next_call_and_ends_the_upload(
    rocks: RocksStore, monkeypatch: pytest.MonkeyPatch, multihash: Multihash
) -> None:
    with pytest.raises(StorageFull):
        async with rocks.begin_payload() as writer:
            await writer.write(bytes(CHUNK_BYTES + 1))
            monkeypatch.setattr(rocks._committer, "_reserve_bytes", 1 << 62)
            for _ in range(3):
                await writer.write(bytes(CHUNK_BYTES))
    assert_nothing_is_left(rocks)


# --- stalls and full disks --------------------------------------------------------------------------------------------


async def test_a_write_that_rocksdb_would_delay_waits_outside_and_goes_through(
    rocks: RocksStore, monkeypatch: pytest.MonkeyPatch, put: Put
) -> None:
    batches = []
    root = rocks._database._root

    class Busy:
        def write(self, batch: object, options: object) -> None:
            batches.append(batch)
            if len(batches) < 4:
                raise Exception("Result incomplete: Write stall")
            root.write(batch, options)  # type: ignore[arg-type]

        def flush_wal(self, sync: bool) -> None:
            root.flush_wal(sync)

    monkeypatch.setattr(rocks._database, "_root", Busy())
    multihash = await put(rocks, b"data")
    monkeypatch.undo()
    assert len(batches) == 4
    assert await rocks.stat_payload(multihash) == 4


async def test_a_write_that_rocksdb_delays_for_good_is_given_up(
    rocks: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coregw.store._rocks_database._STALL_LIMIT", 0.01)
    monkeypatch.setattr(rocks._database, "_try_write", lambda *_: False)
    with pytest.raises(Unavailable, match="does not keep up"):
        await rocks.put_roots([b"root"])
    monkeypatch.undo()
    assert await rocks.has_roots([b"root"]) == [False]


async def test_more_waiting_writes_than_the_limit_are_refused(
    rocks: RocksStore, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coregw.store._rocks_committer._MAX_WAITING", 3)
    first = await gate.shut_behind(rocks.put_roots([b"root"]))
    waiting = [asyncio.ensure_future(rocks.put_roots([b"root %d" % i])) for i in range(5)]
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    gate.open.set()
    results = await asyncio.gather(first, *waiting, return_exceptions=True)
    assert [type(result) for result in results] == [type(None)] * 4 + [Unavailable] * 2


async def test_an_upload_that_lost_a_chunk_has_ended(
    rocks: RocksStore, multihash: Multihash, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = random.Random(1).randbytes(3 * CHUNK_BYTES)
    async with rocks.begin_payload() as writer:
        monkeypatch.setattr("coregw.store._rocks_committer._MAX_WAITING", 0)
        with pytest.raises(Unavailable):
            await writer.write(data)
        monkeypatch.undo()
        with pytest.raises(InvalidInput, match="ended"):
            await writer.write(data)
        with pytest.raises(InvalidInput, match="ended"):
            await writer.commit(multihash(data))
    assert await rocks.has_payloads([multihash(data)]) == [False]


async def test_room_that_comes_back_is_used(tmp_path: Path, put: Put) -> None:
    async with await open_store(tmp_path, reserve_bytes=1 << 62) as store:
        with pytest.raises(StorageFull, match="in reserve"):
            await put(store, b"data")
        store._committer._reserve_bytes = 0
        assert await store.stat_payload(await put(store, b"data")) == 4


async def test_a_disk_that_takes_no_more_keeps_what_was_acknowledged(tmp_path: Path, multihash: Multihash) -> None:
    # The process may write no file past 2 MiB, which the store meets as it meets a full disk: in the middle of a write.
    said = kill_after(
        tmp_path,
        """
        import resource
        store = await open_store(path)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, 2 << 20))
        for i in range(1000):
            try:
                await put(store, random.Random(i).randbytes(100_000))
            except Exception as error:
                say(type(error).__name__)
                break
            say(i)
        for i in range(i):
            assert await store.stat_payload(multihash(random.Random(i).randbytes(100_000))) == 100_000
        try:
            await store.put_roots([b"root"])
            say("stored")
        except Exception as error:
            say(type(error).__name__)
        await asyncio.sleep(60)
        """,
        lambda lines: "StorageFull\n" in lines[:-1],
    )
    acknowledged = [int(line) for line in said if line.isdecimal()]
    assert len(acknowledged) > 10
    assert said[-1] in ("StorageFull", "Unavailable", "stored")
    async with await open_store(tmp_path) as store:
        for i in acknowledged:
            data = random.Random(i).randbytes(100_000)
            assert b"".join([chunk async for chunk in store.read_payload(multihash(data))]) == data
        for payload in keys(store._database, Family.PAYLOADS):
            data = b"".join([chunk async for chunk in store.read_payload(payload)])
            assert multihash(data) == payload
        assert await store.has_roots([b"root"]) == [said[-1] == "stored"]
