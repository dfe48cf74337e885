"""One garbage collection in RocksDB; see `coregw.store.collection`.

What is removed is decided in the committer's thread, row by row, after every write that came before. Rows are deleted
one by one, since range deletions slow down nearby reads; compaction returns their space.
"""

# ruff: noqa: D102 - the protocol documents the methods
from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, Self

from coregw.store import Stored
from coregw.store.collection import Item
from coregw.store.rocksdb.committer import Committer, Transaction
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.garbage.dates import Dates, root_rows
from coregw.store.rocksdb.layout import (
    EXPIRED_KEY,
    Family,
    PayloadRow,
    Row,
    chunk_key,
    encode_date,
    payload_date,
)
from coregw.store.rocksdb.reader import Reader

__all__ = ["RocksCollection"]

_COMPACTED: Final = {
    Stored.PAGES: (Family.PAGES,),
    Stored.ROOTS: (Family.ROOTS,),
    Stored.PAYLOADS: (Family.PAYLOADS, Family.CHUNKS, Family.META),
}

_COMPACTED_AT_ONCE: Final = 16
"""Into how many ranges the keys of pages are divided, so that each compaction is short and needs little room."""


class RocksCollection:
    """One garbage collection; see `coregw.store.collection.Collection`."""

    def __init__(self, reader: Reader, committer: Committer, dates: Dates, grace_seconds: float) -> None:
        self._reader = reader
        self._committer = committer
        self._dates = dates
        self._grace_seconds = grace_seconds
        self.began = 0
        self.before = 0

    async def __aenter__(self) -> Self:
        def begin(_: Transaction) -> tuple[int, int]:
            return self._dates.ages.clock.now(), self._dates.ages.begin(self, self._grace_seconds)

        try:
            self.began, self.before = await self._committer.submit(begin, size=0, durable=False)
        except asyncio.CancelledError:  # it may have begun
            await self._end()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        await self._committer.submit(lambda _: self._dates.ages.end(self), size=0, durable=True)

    async def list_items(self, kind: Stored, after: bytes | None, limit: int) -> list[Item]:
        return await self._reader.run(lambda database: self._list(database, kind, after, limit))

    async def keep(self, roots: Sequence[bytes]) -> list[bool]:
        rows = root_rows(roots)

        def keep(transaction: Transaction) -> list[bool]:
            return [self._dates.keep_root(transaction, row) for row in rows]

        return await self._committer.submit(keep, reads=rows, size=0, durable=True)

    async def expire(self) -> list[bytes]:
        ages = self._dates.ages

        def expire(transaction: Transaction) -> list[bytes]:
            late = ages.take_late()
            if not late:
                transaction.put(Row(Family.META, EXPIRED_KEY), encode_date(self.before))
                ages.expire(self.before)
            return late

        return await self._committer.submit(expire, size=0, durable=True)

    async def remove(self, kind: Stored, keys: Sequence[bytes]) -> list[bool]:
        removals: dict[Stored, Callable[[Transaction, bytes], bool]] = {
            Stored.PAGES: self._remove_page,
            Stored.ROOTS: self._remove_root,
            Stored.PAYLOADS: self._remove_payload,
        }
        reads = [] if kind is Stored.PAGES else [Row(Family(kind), key) for key in keys]
        if kind is Stored.PAYLOADS:
            reads += [payload_date(key) for key in keys]

        def remove(transaction: Transaction) -> list[bool]:
            return [removals[kind](transaction, key) for key in keys]

        # Pages and payloads may only be gone after the roots that led to them, so these are deleted durably.
        return await self._committer.submit(remove, reads=reads, size=0, durable=kind is Stored.ROOTS)

    async def compact(self, kinds: Sequence[Stored], progress: Callable[[float], None]) -> None:
        parts: list[tuple[Family, bytes | None, bytes | None]] = []
        for family in (family for kind in kinds for family in _COMPACTED[kind]):
            if family is Family.PAGES:
                bounds = [None, *(bytes([256 // _COMPACTED_AT_ONCE * i]) for i in range(1, _COMPACTED_AT_ONCE)), None]
                parts += [(family, start, end) for start, end in itertools.pairwise(bounds)]
            else:
                parts.append((family, None, None))
        for done, part in enumerate(parts, 1):
            await self._reader.run(lambda database, part=part: database.compact(*part))  # type: ignore[misc]
            progress(done / len(parts))
        await self._reader.run(lambda database: database.flush())  # or the log keeps what was removed

    # --- in other threads ---------------------------------------------------------------------------------------------

    def _list(self, database: Database, kind: Stored, after: bytes | None, limit: int) -> list[Item]:
        rows = database.scan(Family(kind), b"" if after is None else after + b"\0", None, limit)
        if kind is Stored.PAGES:
            return [Item(key, len(key) + len(value), 0) for key, value in rows]
        if kind is Stored.ROOTS:
            return [Item(key, len(key) + len(value), self._dates.of_root(value) or 0) for key, value in rows]
        found = database.get(Family.META, [payload_date(key).key for key, _ in rows])
        return [
            Item(key, PayloadRow.decode(key, value).size, self._dates.of_payload(date))
            for (key, value), date in zip(rows, found, strict=True)
        ]

    def _remove_page(self, transaction: Transaction, digest: bytes) -> bool:
        if self._dates.ages.recent.may_hold(digest, self.before):
            return False
        transaction.delete(Row(Family.PAGES, digest))
        return True

    def _remove_root(self, transaction: Transaction, root: bytes) -> bool:
        row = Row(Family.ROOTS, root)
        stored = transaction.get(row)
        if stored is None or self._dates.ages.is_held(self._dates.of_root(stored)):
            return False
        transaction.delete(row)
        return True

    def _remove_payload(self, transaction: Transaction, multihash: bytes) -> bool:
        row, date = Row(Family.PAYLOADS, multihash), payload_date(multihash)
        stored = transaction.get(row)
        if stored is None or self._dates.of_payload(transaction.get(date)) >= self.before:
            return False
        payload = PayloadRow.decode(multihash, stored)
        transaction.delete(row)
        transaction.delete(date)
        for number in range(payload.chunks):
            transaction.delete(Row(Family.CHUNKS, chunk_key(payload.upload_id, number)))
        return True
