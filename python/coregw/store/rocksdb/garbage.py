"""Garbage of a RocksDB store: the dates it goes by, and its collection.

What is removed is decided by the committer, row by row, after every write that came before. Rows are deleted
one by one, since range deletions slow down nearby reads; compaction returns their space.

Dates change in the same order: methods with a transaction run in the thread that writes, one at a time; so
`coregw.store.ages` needs no lock.
"""

# ruff: noqa: D102 - the protocol documents the methods

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from coregw._core import join_differences
from coregw.errors import StoreDamaged
from coregw.store.ages import Ages
from coregw.store.collection import Item
from coregw.store.protocol import Put, Stored, Table
from coregw.store.rocksdb.committer import Committer, Transaction
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import (
    EXPIRED_KEY,
    FAMILIES,
    Family,
    PayloadRow,
    RootRow,
    RowKey,
    base_of,
    chunk_key,
    decode_date,
    encode_date,
    is_kept_base,
    kept_base,
    payload_date,
    root_date,
)
from coregw.store.rocksdb.reader import Reader

__all__ = ["Dates", "RocksCollection", "root_rows"]


def root_rows(roots: Sequence[bytes]) -> list[RowKey]:
    """The rows of roots."""
    return [RowKey(Family.ROOTS, root) for root in roots]


_MAX_BASES: Final = 32_768
_MAX_JOINED: Final = 4096


class Bases:
    """Pages that are stored as a whole, so that others may be stored as differences to them. For one thread.

    Args:
        database: The database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[bytes] = set()
        self._joined: dict[bytes, bytes] = {}
        """Differences of some pages to bases. They are right in any case; whether a base is there is asked again."""
        self._epoch = database.epoch

    def choose(self, transaction: Transaction, puts: Sequence[Put]) -> dict[bytes, bytes]:
        """Choose the pages to store as differences. Writes nothing. Two batches of reads, seldom three.

        Returns:
            By the digest of each page, its difference to one that is stored as a whole.
        """
        changed = [pair for put in puts for pair in put.differences]
        if not changed:
            return {}
        sizes = {digest: len(page) for put in puts for digest, page in put.rows.get(Table.PAGES, ())}
        with suppress(StoreDamaged):  # then they are stored as a whole
            short = self._shortened(changed, sizes)
            deleted = transaction.deleted(Family.PAGES)  # perhaps since they are kept as bases alone from now on
            whole = self._whole({base_of(each) for each in short.values()} - deleted)
            chosen = {
                digest: each for digest, each in short.items() if base_of(each) in whole and digest not in deleted
            }
            self._joined |= chosen
            return chosen
        return {}

    def forget(self, digest: bytes) -> None:
        """Note that a page is removed."""
        self._known.discard(digest)

    def _shortened(self, changed: Sequence[tuple[bytes, bytes]], sizes: Mapping[bytes, int]) -> dict[bytes, bytes]:
        """Join differences to pages that are differences themselves, and leave out those that get long."""
        if len(self._joined) > _MAX_JOINED:
            self._joined.clear()
        unknown = [old for _, each in changed if (old := base_of(each)) not in self._joined]
        rows = self._database.get_rows(Family.DIFFERENCES, [*unknown, *(digest for digest, _ in changed)])
        firsts = dict(zip(unknown, rows, strict=False))
        short: dict[bytes, bytes] = {}
        for (digest, difference), own in zip(changed, rows[len(unknown) :], strict=True):
            old = base_of(difference)
            first = self._joined.get(old) or firsts[old]
            joined: bytes | None = difference
            # What is there may also be a base that was kept alone, and is a page again.
            if first is not None and not is_kept_base(old, first):
                joined = join_differences(first, difference, sizes[digest])
            # A base must not be replaced: one that is kept alone, or, if a change is undone, the one of the old page.
            if joined is not None and base_of(joined) != digest and (own is None or not is_kept_base(digest, own)):
                short[digest] = joined
        return short

    def _whole(self, digests: set[bytes]) -> set[bytes]:
        """Return which of these pages are stored as a whole."""
        if len(self._known) > _MAX_BASES or self._epoch != self._database.epoch:
            self._known.clear()
            self._epoch = self._database.epoch
        if unknown := list(digests - self._known):
            bases = zip(unknown, self._database.get_bases(unknown), strict=True)
            self._known.update(digest for digest, page in bases if page is not None)
        return digests & self._known


class Dates:
    """The dates of one database.

    Args:
        database: The database.
        slice_seconds: See `Ages`.
    """

    def __init__(self, database: Database, slice_seconds: float) -> None:
        self.bases: Final = Bases(database)
        self.ages: Final = Ages(
            database.clock,
            undated=database.undated,
            expired_before=database.expired_before,
            slice_seconds=slice_seconds,
        )

    # --- reading ------------------------------------------------------------------------------------------------------

    def of_root(self, stored: bytes | None) -> int | None:
        """The date of a root's row; None if there is no row."""
        return None if stored is None else max(root_date(stored) or 0, self.ages.undated)

    def of_payload(self, stored: bytes | None) -> int:
        """The date of a payload whose date row is `stored`."""
        return max(0 if stored is None else decode_date(stored), self.ages.undated)

    def shown(self, table: Table, stored: bytes | None) -> bytes | None:
        """The value of a table's row as the store shows it; None if it is absent, or an expired root."""
        if table is not Table.ROOTS or stored is None:
            return stored
        return RootRow.decode(stored).value if self.ages.is_held(self.of_root(stored)) else None

    async def is_collecting(self, committer: Committer) -> bool:
        """Whether a collection is in progress, in the order of writes."""
        return await committer.submit(lambda _: self.ages.is_collecting, size=0, durable=False)

    # --- writing ------------------------------------------------------------------------------------------------------

    def put(self, transaction: Transaction, table: Table, pairs: Sequence[tuple[bytes, bytes]], now: int) -> None:
        """Write rows of a table at the time `now`, those of roots with this date."""
        if table is Table.PAGES:
            self.ages.recent.add([key for key, _ in pairs], now)
        elif table is Table.ROOTS:
            pairs = [(key, RootRow(now, value).encode()) for key, value in pairs]
        transaction.put_all(FAMILIES[table], pairs)

    def put_rows(self, transaction: Transaction, put: Put, chosen: Mapping[bytes, bytes]) -> int:
        """Write rows, and return the store's time, as `coregw.store.Store.put`. Raises before it writes, or never.

        Args:
            transaction: The transaction.
            put: The rows.
            chosen: What `Bases.choose` has returned for this put, and others.
        """
        now = self.ages.clock.now()
        differences = [(digest, chosen[digest]) for digest, _ in put.differences if digest in chosen]
        if roots := put.roots:
            rows = root_rows(roots) if put.reads_roots else []
            states = [self.shown(Table.ROOTS, transaction.get(row)) for row in rows]
            if put.renews(states):
                self.renew_roots(transaction, roots)
                return now
            if any(state is not None for state in states):
                differences = []  # pages of a root that has lost some are stored as a whole, beside damaged differences
            self.ages.admit(roots, put.since)
        self.require(transaction, put.requires)
        if differences:
            # Bases count as put now too: no collection in progress knows that they are needed.
            self.ages.recent.add([key for digest, each in differences for key in (digest, base_of(each))], now)
            transaction.put_all(Family.DIFFERENCES, differences)
        for table, pairs in put.rows.items():
            if differences and table is Table.PAGES:
                self.put(transaction, table, [pair for pair in pairs if pair[0] not in chosen], now)
            else:
                self.put(transaction, table, pairs, now)
        return now

    def keep_as_bases(self, transaction: Transaction, digests: Sequence[bytes], before: int | None) -> None:
        """Keep pages as bases alone, as `coregw.store.protocol.DifferenceStore.keep_as_bases`."""
        for digest in digests:
            page = transaction.get(RowKey(Family.PAGES, digest))
            if page is not None and (before is None or not self.ages.recent.may_hold(digest, before)):
                transaction.put(RowKey(Family.DIFFERENCES, digest), kept_base(digest, page))
                transaction.delete(RowKey(Family.PAGES, digest))

    def require(self, transaction: Transaction, roots: Sequence[bytes]) -> None:
        """Check that roots are held; see `Ages.require`."""
        self.ages.require([(row.key, self.of_root(transaction.get(row))) for row in root_rows(roots)])

    def renew_roots(self, transaction: Transaction, roots: Sequence[bytes]) -> list[int | None]:
        """Renew the dates of roots, as `coregw.store.Store.renew`."""
        return [0 if self.renew_root(transaction, row) else None for row in root_rows(roots)]

    def renew_root(self, transaction: Transaction, row: RowKey) -> bool:
        """Renew the date of a root; False if it is not held."""
        stored = transaction.get(row)
        dated = self.of_root(stored)
        if stored is None or not self.ages.is_held(dated):
            return False
        self.ages.note(row.key, dated)
        self._date_root(transaction, row, stored)
        return True

    def keep_root(self, transaction: Transaction, row: RowKey) -> bool:
        """As `renew_root`, on behalf of a collection: a root that is young anyway is not written."""
        stored = transaction.get(row)
        dated = self.of_root(stored)
        if stored is None or not self.ages.is_held(dated):
            return False
        if not self.ages.is_kept(dated):
            self._date_root(transaction, row, stored)
        return True

    def _date_root(self, transaction: Transaction, row: RowKey, stored: bytes) -> None:
        transaction.put(row, RootRow(self.ages.clock.now(), RootRow.decode(stored).value).encode())

    def renew_payload(self, transaction: Transaction, row: RowKey) -> int | None:
        """Renew the date of a payload, and return its size; None if it is not held."""
        stored = transaction.get(row)
        if stored is None:
            return None
        self.date_payloads(transaction, [row.key])
        return PayloadRow.decode(row.key, stored).size

    def date_payloads(self, transaction: Transaction, multihashes: Sequence[bytes]) -> None:
        """Write the dates of payloads that are held."""
        date = encode_date(self.ages.clock.now())
        transaction.put_all(Family.META, [(payload_date(multihash), date) for multihash in multihashes])


_COMPACTED: Final = {
    Stored.PAGES: (Family.PAGES, Family.DIFFERENCES),
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
        self._has_differences = False
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
                transaction.put(RowKey(Family.META, EXPIRED_KEY), encode_date(self.before))
                ages.expire(self.before)
            return late

        return await self._committer.submit(expire, size=0, durable=True)

    async def remove(self, kind: Stored, keys: Sequence[bytes]) -> list[bool]:
        removals: dict[Stored, Callable[[Transaction, bytes], bool]] = {
            Stored.PAGES: self._remove_page,
            Stored.ROOTS: self._remove_root,
            Stored.PAYLOADS: self._remove_payload,
        }
        reads = [] if kind is Stored.PAGES else [RowKey(Family(kind), key) for key in keys]
        if kind is Stored.PAGES and not self._has_differences:
            self._has_differences = await self._reader.run(_has_differences)
        if kind is Stored.PAYLOADS:
            reads += [RowKey(Family.META, payload_date(key)) for key in keys]

        def remove(transaction: Transaction) -> list[bool]:
            return [removals[kind](transaction, key) for key in keys]

        # Pages and payloads may only be gone after the roots that led to them, so these are deleted durably.
        return await self._committer.submit(remove, reads=reads, size=0, durable=kind is Stored.ROOTS)

    async def compact(self, kinds: Sequence[Stored], progress: Callable[[float], None]) -> None:
        parts: list[tuple[Family, bytes | None, bytes | None]] = []
        for family in (family for kind in kinds for family in _COMPACTED[kind]):
            if family in _COMPACTED[Stored.PAGES]:
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
        found = database.get(Family.META, [payload_date(key) for key, _ in rows])
        return [
            Item(key, PayloadRow.decode(key, value).size, self._dates.of_payload(date))
            for (key, value), date in zip(rows, found, strict=True)
        ]

    def _remove_page(self, transaction: Transaction, digest: bytes) -> bool:
        if self._dates.ages.recent.may_hold(digest, self.before):
            return False
        self._dates.bases.forget(digest)
        transaction.delete(RowKey(Family.PAGES, digest))
        if self._has_differences:
            transaction.delete(RowKey(Family.DIFFERENCES, digest))
        return True

    def _remove_root(self, transaction: Transaction, root: bytes) -> bool:
        row = RowKey(Family.ROOTS, root)
        stored = transaction.get(row)
        if stored is None or self._dates.ages.is_held(self._dates.of_root(stored)):
            return False
        transaction.delete(row)
        return True

    def _remove_payload(self, transaction: Transaction, multihash: bytes) -> bool:
        row, date = RowKey(Family.PAYLOADS, multihash), RowKey(Family.META, payload_date(multihash))
        stored = transaction.get(row)
        if stored is None or self._dates.of_payload(transaction.get(date)) >= self.before:
            return False
        payload = PayloadRow.decode(multihash, stored)
        transaction.delete(row)
        transaction.delete(date)
        for number in range(payload.chunks):
            transaction.delete(RowKey(Family.CHUNKS, chunk_key(payload.upload_id, number)))
        return True


def _has_differences(database: Database) -> bool:
    """Whether pages are stored as differences: those that are stored from now on are not old enough to be removed."""
    try:
        return database.last_key(Family.DIFFERENCES) is not None
    except StoreDamaged:
        return True
