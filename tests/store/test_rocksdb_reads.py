"""Reads of a RocksDB store that run side by side: long ones leave threads to short ones."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from coregw.errors import InvalidInput, PayloadNotFound
from coregw.store import CHUNK_BYTES, Stored, Table
from coregw.store.rocksdb import RocksStore
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import Family
from store_contract import older

DOWNLOADS = 8


@pytest.mark.anyio
async def test_downloads_leave_threads_to_short_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(2 * CHUNK_BYTES)
    multihash = b"\x12\x20" + hashlib.sha256(data).digest()
    is_disk_slow, goes_on = threading.Event(), threading.Event()
    get = Database.get

    def slow(database: Database, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        if family is Family.CHUNKS and is_disk_slow.is_set():
            goes_on.wait()
        return get(database, family, keys)

    monkeypatch.setattr(Database, "get", slow)
    database = Database(tmp_path, 1 << 20, salvage=False)
    async with RocksStore(database, reserve_bytes=0, read_threads=2) as store:
        async with store.begin_payload() as writer:
            await writer.write(data)
            await writer.commit(multihash)
        is_disk_slow.set()

        async def download() -> int:
            return sum([len(chunk) async for chunk in store.read_payload(multihash, 0, len(data))])

        downloads = [asyncio.ensure_future(download()) for _ in range(DOWNLOADS)]
        await asyncio.wait(downloads, timeout=0.1)
        try:
            async with asyncio.timeout(60):  # reads queued after the downloads would wait forever
                assert await store.healthy()
                assert await store.get(Table.PAGES, [bytes(32)]) == [None]
                assert await store.stat_payloads([multihash]) == [len(data)]
        finally:
            goes_on.set()
        assert await asyncio.gather(*downloads) == [len(data)] * DOWNLOADS


@pytest.mark.anyio
async def test_a_download_that_waits_to_be_read_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(2 * CHUNK_BYTES)
    multihash = b"\x12\x20" + hashlib.sha256(data).digest()
    goes_on = threading.Event()
    get = Database.get
    chunks_read = 0

    def slow_after_the_first(database: Database, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        nonlocal chunks_read
        chunks_read += family is Family.CHUNKS
        if chunks_read > 1:
            goes_on.wait()
        return get(database, family, keys)

    monkeypatch.setattr(Database, "get", slow_after_the_first)
    async with RocksStore(Database(tmp_path, 1 << 20, salvage=False), reserve_bytes=0, read_threads=2) as store:
        async with store.begin_payload() as writer:
            await writer.write(data)
            await writer.commit(multihash)
        chunks = store.read_payload(multihash, 0, len(data))
        first = await anext(chunks)
        following = asyncio.ensure_future(anext(chunks))
        while chunks_read < 2:
            await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):  # the thread that has read it may not have let go of it yet
            async with asyncio.timeout(60):
                while sys.getrefcount(first) > 2:  # this test's, and that of the call
                    await asyncio.sleep(0.01)
        while_waiting = sys.getrefcount(first)
        goes_on.set()
        assert await following == data[CHUNK_BYTES:]
        assert while_waiting <= 2


@pytest.mark.anyio
async def test_payloads_are_read_with_the_rows_that_were_found_for_their_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row is read once for its size and its chunk, unless what it names was removed meanwhile."""
    payloads = [(b"\x12\x20" + hashlib.sha256(data).digest(), data) for data in (b"one", b"two", b"")]
    names = [multihash for multihash, _ in payloads]
    read: list[Family] = []
    get = Database.get

    def noted(database: Database, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        read.append(family)
        return get(database, family, keys)

    monkeypatch.setattr(Database, "get", noted)
    async with RocksStore(Database(tmp_path, 1 << 20, salvage=False), reserve_bytes=0, read_threads=2) as store:
        await store.put_payloads(payloads)
        read.clear()
        assert await store.stat_payloads(names) == [3, 3, 0]
        assert await store.get_payloads(names[:2]) == [b"one", b"two"]
        assert read == [Family.PAYLOADS, Family.CHUNKS]
        assert await store.stat_payloads(names) == [3, 3, 0]
        await older()
        async with store.collect(0.0) as collection:
            assert await collection.remove(Stored.PAYLOADS, names) == [True] * 3
        assert await store.get_payloads(names) == [None] * 3
        await store.put_payloads(payloads)
        assert await store.stat_payloads(names) == [3, 3, 0]
        await older()
        async with store.collect(0.0) as collection:
            assert await collection.remove(Stored.PAYLOADS, names) == [True] * 3
        await store.put_payloads(payloads)  # under other upload ids
        assert await store.get_payloads(names) == [b"one", b"two", b""]


@pytest.mark.anyio
async def test_threads_read_small_payloads_with_their_sizes(tmp_path: Path) -> None:
    payloads = [b"", b"x" * 100, b"y" * 101, bytes(2 * CHUNK_BYTES)]
    names = [b"\x12\x20" + hashlib.sha256(data).digest() for data in payloads]
    async with RocksStore(Database(tmp_path, 1 << 20, salvage=False), reserve_bytes=0, read_threads=2) as store:
        for name, data in zip(names, payloads, strict=True):
            async with store.begin_payload() as writer:
                await writer.write(data)
                await writer.commit(name)
        found = await asyncio.to_thread(store.thread_calls().find_payloads, [*names, b"\x12\x20" + bytes(32)], 100)
        read = store.thread_calls().read_payload
        long, size = bytes(range(256)) * (CHUNK_BYTES // 128 + 1), 2 * CHUNK_BYTES + 256
        name = b"\x12\x20" + hashlib.sha256(long).digest()
        async with store.begin_payload() as writer:
            await writer.write(long)
            await writer.commit(name)
        for start, end in [
            (0, 1),
            (0, CHUNK_BYTES),
            (CHUNK_BYTES - 1, CHUNK_BYTES + 1),
            (size - 5, size + 9),
            (size, size),
        ]:
            assert await asyncio.to_thread(read, name, start, end) == long[start:end]
        with pytest.raises(PayloadNotFound):
            await asyncio.to_thread(read, b"\x12\x20" + bytes(32), 0, 1)
        with pytest.raises(InvalidInput):
            await asyncio.to_thread(read, name, 2, 1)
    assert found == [(0, b""), (100, b"x" * 100), (101, None), (2 * CHUNK_BYTES, None), None]
