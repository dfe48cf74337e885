"""A store that another process has open: what is read without asking, what is asked, and what the end of each means."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rocksdict import Rdict

from coregw.errors import Conflict, CoregwError, Unavailable
from coregw.store import CHUNK_BYTES, Store
from coregw.store._rocks_layout import Family
from coregw.store._rocks_replica import Replica
from coregw.store.memory import MemoryPayloadWriter, MemoryStore
from coregw.store.remote import RemoteStore
from coregw.store.rocksdb import RocksStore
from coregw.store.sharing import share
from store.remote_support import remote
from store.rocks_support import keys
from worker_processes import open_files

pytestmark = pytest.mark.anyio

ROOT = b"\x01root"


def digest(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8, "big")).digest()


def page(number: int) -> bytes:
    return digest(number) * 64


async def put_pages(store: Store, numbers: range) -> None:
    for start in numbers[::128]:
        await store.put_pages([(digest(i), page(i)) for i in range(start, min(start + 128, numbers.stop))])


def to_table_files(rocks: RocksStore, *families: Family) -> None:
    for family in families:
        rocks._database._families[family].flush()


def replica_of(rocks: RocksStore) -> Replica:
    return Replica(rocks.path, "test", cache_bytes=1 << 20, threads=2)


async def test_what_is_in_table_files_is_read_without_asking(
    rocks: RocksStore, put: Callable[..., asyncio.Future[bytes]]
) -> None:
    data = bytes(range(256)) * (CHUNK_BYTES // 128) + b"more"
    await put_pages(rocks, range(300))
    await rocks.put_roots([ROOT])
    name = await put(rocks, data)
    to_table_files(rocks, Family.PAGES, Family.ROOTS, Family.PAYLOADS, Family.CHUNKS)
    replica = replica_of(rocks)
    replica.refresh()
    here, there = socket.socketpair()
    shared = await share(MemoryStore(), there)  # whoever asks finds nothing
    async with await RemoteStore.connect(here, replica) as files:
        assert await files.get_pages([digest(i) for i in range(301)]) == [*map(page, range(300)), None]
        assert await files.has_roots([ROOT, b"other"]) == [True, False]
        assert await files.has_payloads([name, b"other"]) == [True, False]
        assert await files.stat_payload(name) == len(data)
        assert b"".join([piece async for piece in files.read_payload(name, 5)]) == data[5:]
    await shared.ended()


async def test_a_payload_of_which_a_part_is_in_table_files_is_read_whole(
    rocks: RocksStore, put: Callable[..., asyncio.Future[bytes]]
) -> None:
    data = hashlib.shake_256(b"payload").digest(3 * CHUNK_BYTES + 5)
    name = await put(rocks, data)
    to_table_files(rocks, Family.PAYLOADS)
    async with remote(rocks) as files:
        assert b"".join([piece async for piece in files.read_payload(name)]) == data
        assert (
            b"".join([piece async for piece in files.read_payload(name, 7, CHUNK_BYTES + 7)]) == data[7:][:CHUNK_BYTES]
        )


async def test_what_was_in_files_that_their_owner_deletes_is_found_all_the_same(rocks: RocksStore) -> None:
    await put_pages(rocks, range(2000))
    to_table_files(rocks, Family.PAGES)
    replica = replica_of(rocks)
    replica.refresh()
    here, there = socket.socketpair()
    shared = await share(rocks, there)
    before = {path.name for path in (rocks.path / "rocksdb").glob("*.sst")}
    await put_pages(rocks, range(2000, 4000))
    to_table_files(rocks, Family.PAGES)
    rocks._database._families[Family.PAGES].compact_range(None, None)
    assert before - {path.name for path in (rocks.path / "rocksdb").glob("*.sst")}, "nothing was deleted"
    wanted = [digest(i) for i in range(4000)]
    assert await replica.get(Family.PAGES, wanted) == [*map(page, range(2000)), *[None] * 2000]  # it had opened it
    async with await RemoteStore.connect(here, replica) as store:
        assert await store.get_pages(wanted) == [*map(page, range(4000))]
        replica.refresh()
        assert await replica.get(Family.PAGES, wanted) == [*map(page, range(4000))]
    await shared.ended()


async def test_many_pages_are_asked_for_in_several_messages(rocks: RocksStore) -> None:
    await put_pages(rocks, range(1000))
    async with remote(rocks, replica=False) as store:
        wanted = [digest(i) for i in range(1100)]
        assert await store.get_pages(wanted) == [*map(page, range(1000)), *[None] * 100]


class Deleted:
    """A family as the binding reads it when a table file is gone that it had not opened."""

    def get(self, keys: list[bytes]) -> list[bytes | None]:
        raise Exception(f"IO error: No such file or directory: While open a file for {len(keys)} keys")


async def test_a_read_that_fails_is_asked_of_the_owner(rocks: RocksStore) -> None:
    await put_pages(rocks, range(3))
    replica = replica_of(rocks)
    replica.refresh()
    here, there = socket.socketpair()
    shared = await share(rocks, there)
    async with await RemoteStore.connect(here, replica) as store:
        await store.healthy()
        replica._families = dict.fromkeys(Family, Deleted())  # type: ignore[arg-type]
        assert await store.get_pages([digest(2), digest(3)]) == [page(2), None]
    await shared.ended()


async def test_a_replica_shows_nothing_of_the_log(rocks: RocksStore) -> None:
    replica = replica_of(rocks)
    await rocks.put_roots([ROOT])
    replica.refresh()
    replica.refresh()
    assert await replica.get(Family.ROOTS, [ROOT]) == [None]
    replica.close()


async def test_without_readable_table_files_everything_is_asked(
    rocks: RocksStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await put_pages(rocks, range(3))
    here, there = socket.socketpair()
    shared = await share(rocks, there)
    files = Replica(tmp_path / "no store", "test", cache_bytes=1 << 20, threads=1)
    async with await RemoteStore.connect(here, files) as store:
        while "cannot be read now" not in caplog.text:
            await asyncio.sleep(0)
        assert await store.get_pages([digest(1)]) == [page(1)]
    await shared.ended()


async def test_table_files_that_are_opened_in_part_are_let_go_of_and_opened_again(
    rocks: RocksStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Rdict] = []  # kept, so that what is left open stays open

    class Partial:
        def __init__(self, *arguments: object, **named: object) -> None:
            opened.append(Rdict(*arguments, **named))

        def get_column_family(self, name: str) -> Rdict:
            if name == Family.CHUNKS:
                raise RuntimeError("not now")
            return opened[-1].get_column_family(name)

        def close(self) -> None:
            opened[-1].close()

    def log_is_open() -> bool:
        return any(name.endswith("/workers/test/LOG") for name in open_files(os.getpid()))

    await put_pages(rocks, range(10))
    to_table_files(rocks, Family.PAGES)
    replica = replica_of(rocks)
    with monkeypatch.context() as patched:
        patched.setattr("coregw.store._rocks_replica.Rdict", Partial)
        replica.refresh()
    assert len(opened) == 1
    assert not log_is_open()
    assert await replica.get(Family.PAGES, [digest(1)]) == [None]
    replica.refresh()
    assert log_is_open()
    assert await replica.get(Family.PAGES, [digest(1)]) == [page(1)]
    replica.close()
    assert not log_is_open()


async def test_of_many_publishers_in_several_processes_one_wins_each_revision(rocks: RocksStore) -> None:
    async with remote(rocks) as one, remote(rocks, replica=False) as two:
        outcomes: list[str] = []
        refusals: list[str] = []

        async def publish(store: Store, revision: int) -> None:
            try:
                record = await store.publish("scope", "name", ROOT, revision, datetime.now(UTC))
            except Conflict as conflict:
                refusals.append(conflict.code)
            else:
                outcomes.append(f"revision {record.revision}")

        for revision in range(20):
            await asyncio.gather(*(publish(store, revision) for store in (one, two, rocks) for _ in range(3)))
            assert outcomes[revision:] == [f"revision {revision + 1}"]
            assert await one.get_record("scope", "name") == await two.get_record("scope", "name")
        assert refusals == ["revision_mismatch"] * 8 * 20


async def test_what_a_process_that_dies_had_uploaded_is_dropped(rocks: RocksStore) -> None:
    here, there = socket.socketpair()
    shared = await share(rocks, there)
    store = await RemoteStore.connect(here)
    async with store.begin_payload() as writer:
        await writer.write(bytes(3 * CHUNK_BYTES))
        await store.healthy()
        store._connection.hang_up()  # as the end of a process does
        await shared.ended()
        await rocks.put_roots([ROOT])  # behind the deletions
        assert keys(rocks._database, Family.UPLOADS) == []
        assert keys(rocks._database, Family.CHUNKS) == []
        with pytest.raises(Unavailable):
            await writer.commit(b"multihash")


class Slow(MemoryStore):
    """A store whose uploads wait."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    def begin_payload(self) -> MemoryPayloadWriter:
        writer = super().begin_payload()
        write = writer.write

        async def waiting(chunk: bytes) -> None:
            await self.go.wait()
            await write(chunk)

        writer.write = waiting  # type: ignore[method-assign]
        return writer


async def test_an_upload_waits_for_a_store_that_lags_behind(multihash: Callable[[bytes], bytes]) -> None:
    here, there = socket.socketpair()
    slow = Slow()
    shared = await share(slow, there)
    async with await RemoteStore.connect(here) as store:
        data = bytes(5 * CHUNK_BYTES)
        async with store.begin_payload() as writer:
            writing = asyncio.create_task(writer.write(data))
            for _ in range(5):
                assert await store.healthy()  # other calls don't wait
            assert not writing.done()
            slow.go.set()
            await writing
            assert await writer.commit(multihash(data))
        assert await slow.stat_payload(multihash(data)) == len(data)
    await shared.ended()


async def test_calls_under_way_hear_that_the_owner_has_gone() -> None:
    here, there = socket.socketpair()
    slow, gone = Slow(), asyncio.Event()
    shared = await share(slow, there)
    store = await RemoteStore.connect(here, on_lost=gone.set)
    writer = store.begin_payload()
    commit = asyncio.create_task(writer.commit(b"multihash"))
    await store.healthy()
    shared.hang_up()
    with pytest.raises(Unavailable, match="has ended"):
        await commit
    await gone.wait()
    with pytest.raises(Unavailable, match="has ended"):
        await store.put_pages([])
    assert not await store.healthy()
    await store.close()
    slow.go.set()
    await shared.ended()


async def test_a_call_whose_caller_gives_up_happens_all_the_same(rocks: RocksStore) -> None:
    async with remote(rocks) as store:
        call = asyncio.create_task(store.put_roots([ROOT]))
        await asyncio.sleep(0)
        call.cancel()
        await store.put_roots([b"another"])
        assert await rocks.has_roots([ROOT]) == [True]


class Broken(MemoryStore):
    """A store with a mistake in it."""

    async def has_roots(self, roots: object) -> list[bool]:
        raise ZeroDivisionError("what only the log may say")


async def test_a_mistake_in_the_owner_is_an_error_that_tells_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    here, there = socket.socketpair()
    shared = await share(Broken(), there)
    async with await RemoteStore.connect(here) as store:
        with caplog.at_level(logging.ERROR), pytest.raises(CoregwError) as caught:
            await store.has_roots([ROOT])
    await shared.ended()
    assert caught.value.code == "internal"
    assert "only the log" not in caught.value.message
    assert "only the log" in caplog.text
