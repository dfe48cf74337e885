"""The store on RocksDB, for one process: the gateway's default.

`open_store` opens one. Disk calls run in worker threads, never on the event loop: reads in a small pool, writes in one
committer thread that shares syncs between the tasks that wait for them. The parts are in the ``_rocks_*`` modules; this
one joins them and leaves the rest to them. Decisions: ``docs/decisions/0010-rocksdb-key-layout.md`` and
``0011-log-and-group-commit.md``.
"""

# ruff: noqa: D102 - what the methods do is said once, in the protocol
from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from coregw.errors import CoregwError
from coregw.store import Record
from coregw.store._rocks_committer import Committer, Transaction
from coregw.store._rocks_database import Database
from coregw.store._rocks_layout import EPOCH_KEY, Family, Row
from coregw.store._rocks_payloads import Payloads, RocksPayloadWriter
from coregw.store._rocks_plants import Plants
from coregw.store._rocks_reader import Reader
from coregw.store._rocks_records import Records

__all__ = ["CACHE_BYTES", "READ_THREADS", "RESERVE_BYTES", "RocksStore", "open_store"]

CACHE_BYTES: Final = 32 << 20
"""The default bound of RocksDB's cache of blocks. The core's cache of parsed pages stands before it."""

RESERVE_BYTES: Final = 128 << 20
"""The default room that must be left on the disk for anything more to be stored."""

READ_THREADS: Final = 4
"""The default number of reads at once."""


async def open_store(
    path: str | PathLike[str],
    *,
    cache_bytes: int = CACHE_BYTES,
    reserve_bytes: int = RESERVE_BYTES,
    read_threads: int = READ_THREADS,
    salvage: bool = False,
) -> RocksStore:
    """Opens the store in a directory, which is made if it is missing or empty.

    Deletes what broken-off uploads left. Replays the log that a process left which did not close the store: some 64 MiB
    at most.

    Args:
        path: The directory.
        cache_bytes: The most memory for RocksDB's cache of blocks. Up to some 46 MiB of write buffers come on top.
        reserve_bytes: With less room than this left on the disk, whatever needs room is refused (`StorageFull`).
        read_threads: The most reads at once.
        salvage: Open a store that refuses to open because its log is damaged or lost, with what can still be read.
            Acknowledged writes may be gone, so ask a person first.

    Raises:
        InvalidInput: The path is no directory, or one that holds something other than a coregw store.
        Unavailable: Another process has the store open, a newer coregw wrote it, or the directory cannot be used.
        StorageFull: The disk is full.
        StoreDamaged: The store's files are corrupt or missing.
    """
    database = await asyncio.to_thread(Database, Path(path), cache_bytes, salvage=salvage)
    return RocksStore(database, reserve_bytes=reserve_bytes, read_threads=read_threads)


class RocksStore:
    """A `coregw.store.Store` on RocksDB. Made by `open_store`; ``async with`` closes it."""

    def __init__(self, database: Database, *, reserve_bytes: int, read_threads: int) -> None:
        self._database = database
        self._committer = Committer(database, reserve_bytes)
        self._reader = Reader(database, self._committer, read_threads)
        self._payloads = Payloads(self._reader, self._committer, database.epoch)
        self._records = Records(self._reader, self._committer)
        self._plants = Plants(self._reader, self._committer)
        self._closing = threading.Lock()
        self._closed = False

    @property
    def path(self) -> Path:
        """The store's directory."""
        return self._database.path

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def get_pages(self, digests: Sequence[bytes]) -> list[bytes | None]:
        return await self._reader.get(Family.PAGES, digests)

    async def put_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> None:
        def put(transaction: Transaction) -> None:
            for digest, page in pages:
                transaction.put(Row(Family.PAGES, digest), page)

        await self._committer.submit(put, size=_size(pages), durable=False)

    async def has_roots(self, roots: Sequence[bytes]) -> list[bool]:
        values = await self._reader.get_durable(Family.ROOTS, roots)
        return [value is not None for value in values]

    async def put_roots(self, roots: Sequence[bytes], pages: Sequence[tuple[bytes, bytes]] = ()) -> None:
        def put(transaction: Transaction) -> None:
            for digest, page in pages:
                transaction.put(Row(Family.PAGES, digest), page)
            for root in roots:
                transaction.put(Row(Family.ROOTS, root), b"")

        size = _size(pages) + sum(map(len, roots))
        await self._committer.submit(put, size=size, durable=True, after_sync=True)

    def begin_payload(self) -> RocksPayloadWriter:
        return self._payloads.begin()

    async def put_payload(self, multihash: bytes, data: bytes) -> bool:
        return await self._payloads.put(multihash, data)

    async def stat_payload(self, multihash: bytes) -> int | None:
        return await self._payloads.stat(multihash)

    async def has_payloads(self, multihashes: Sequence[bytes]) -> list[bool]:
        return await self._payloads.has(multihashes)

    def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._payloads.read(multihash, start, end)

    async def get_record(self, scope: str, name: str) -> Record | None:
        return await self._records.get(scope, name)

    async def publish(self, scope: str, name: str, root: bytes, expected_revision: int | None, now: datetime) -> Record:
        return await self._records.publish(scope, name, root, expected_revision, now)

    async def freeze(self, scope: str, name: str, now: datetime) -> Record:
        return await self._records.freeze(scope, name, now)

    async def list_records(self, scope: str, after: str | None, limit: int) -> list[Record]:
        return await self._records.list_records(scope, after, limit)

    async def history(self, scope: str, name: str, after: int, limit: int) -> list[Record]:
        return await self._records.history(scope, name, after, limit)

    async def put_plant(self, plant_id: int, plant: bytes) -> bool:
        return await self._plants.put(plant_id, plant)

    async def get_plant(self, plant_id: int) -> bytes | None:
        return await self._plants.get(plant_id)

    async def flush(self) -> None:
        """Writes what is only in memory and in the log to table files, where other processes can read it.

        Raises:
            StorageFull, Unavailable: The disk has no room, or the store is closed.
        """
        await self._reader.run(lambda database: database.flush())

    async def healthy(self) -> bool:
        try:
            (epoch,) = await self._reader.get(Family.META, [EPOCH_KEY])
        except CoregwError:
            return False
        return epoch is not None and not self._committer.failed

    async def close(self) -> None:
        await asyncio.shield(asyncio.to_thread(self._close))  # a close that begins goes through

    def _close(self) -> None:
        with self._closing:
            if not self._closed:
                self._closed = True
                self._reader.close()
                self._committer.close()
                self._database.close()


def _size(pages: Sequence[tuple[bytes, bytes]]) -> int:
    return sum(len(digest) + len(page) for digest, page in pages)
