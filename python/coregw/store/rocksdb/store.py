"""`RocksStore`, a `coregw.store.Store` on RocksDB: joins the reader, the committer and the payloads."""

# ruff: noqa: D102 - the protocol documents the methods

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar

from coregw._core import PayloadChunk
from coregw.concurrency import result_of
from coregw.errors import CoregwError, StoreDamaged
from coregw.store.ages import SLICE_SECONDS, Clock
from coregw.store.collection import Identity, Usage
from coregw.store.protocol import ListedPage, Put, Stored, Table, WriteOutcomes, check_listing, check_renewal, key_range
from coregw.store.rocksdb.committer import CommitFigures, Committer, Request, Transaction
from coregw.store.rocksdb.database import Database, FamilyFigures
from coregw.store.rocksdb.directory import DATABASE, checkpoint_directory, write_identity
from coregw.store.rocksdb.garbage import Dates, RocksCollection, root_rows
from coregw.store.rocksdb.layout import EPOCH_KEY, FAMILIES, TIME_KEY, Family, RowKey, base_of
from coregw.store.rocksdb.payloads import (
    RocksPayloads,
    RocksPayloadWriter,
    RocksUpload,
    find_small,
    note_left,
    read_part,
)
from coregw.store.rocksdb.reader import Reader

__all__ = ["CACHE_BYTES", "READ_THREADS", "RESERVE_BYTES", "RocksStore", "StoreFigures", "open_store"]

_T = TypeVar("_T")


class StoreFigures(NamedTuple):
    """A store.

    Attributes:
        families: By name of the column family.
        background_errors: RocksDB's failed flushes and compactions.
        free_bytes: Free space on its disk.
        reserve_bytes: Free space below which nothing is stored.
        queued: Writes that wait for the committer.
        commits: What the committer has counted.
    """

    families: dict[str, FamilyFigures]
    background_errors: int
    free_bytes: int
    reserve_bytes: int
    queued: int
    commits: CommitFigures


CACHE_BYTES: Final = 32 << 20
"""The default size of RocksDB's block cache. Parsed pages have a cache of their own in front of it."""

RESERVE_BYTES: Final = 128 << 20
"""The default free space below which nothing more is stored."""

READ_THREADS: Final = 4
"""The default number of concurrent reads."""


async def open_store(
    path: str | PathLike[str],
    *,
    cache_bytes: int = CACHE_BYTES,
    reserve_bytes: int = RESERVE_BYTES,
    quota_bytes: int = 0,
    read_threads: int = READ_THREADS,
    salvage: bool = False,
    slice_seconds: float = SLICE_SECONDS,
    clock: Clock | None = None,
    read_only_if_needed: bool = False,
) -> RocksStore:
    """Open the store in a directory, which is created if it is missing or empty.

    Deletes what unfinished uploads left. If the last process did not close the store, replays its log: some 64 MiB at
    most.

    Args:
        path: The directory.
        cache_bytes: Memory for RocksDB's block cache. Memtables take up to some 38 MiB more.
        reserve_bytes: With less free space than this on the disk, writes that need room raise `StorageFull`.
        quota_bytes: With more data than this in the store, writes that need room raise `StorageFull`; 0 sets no limit.
        read_threads: The maximum number of concurrent reads.
        salvage: Open a store whose log is damaged or lost, with what can still be read. Acknowledged writes may be
            lost, so leave this decision to an operator.
        slice_seconds: How exactly it is remembered when pages were put (`coregw.store.ages`).
        clock: The clock that dates roots and payloads; None makes one.
        read_only_if_needed: Open a store whose disk is full for reading; writes raise `StorageFull` until there is
            room, and succeed some seconds later. Open a damaged store for reading, as far as RocksDB can read it; all
            writes raise `Unavailable`. If acknowledged writes may be lost, what is absent raises `Unavailable` as well,
            and so does every read of `Table.RECORDS`.

    Raises:
        InvalidInput: The path is not a directory, or the directory holds something other than a store.
        Unavailable: Another process has the store open, a newer coregw wrote it, or the directory cannot be used.
        StorageFull: The disk is full.
        StoreDamaged: The store's files are corrupt or missing.
    """
    database = await asyncio.to_thread(
        Database,
        Path(path),
        cache_bytes,
        salvage=salvage,
        read_only_if_needed=read_only_if_needed,
        clock=clock,
    )
    return RocksStore(
        database,
        reserve_bytes=reserve_bytes,
        quota_bytes=quota_bytes,
        read_threads=read_threads,
        slice_seconds=slice_seconds,
    )


class RocksStore:
    """A `coregw.store.collection.CollectableStore` on RocksDB. Use `open_store`; ``async with`` closes it."""

    def __init__(
        self,
        database: Database,
        *,
        reserve_bytes: int,
        read_threads: int,
        quota_bytes: int = 0,
        slice_seconds: float = SLICE_SECONDS,
    ) -> None:
        self._database = database
        self._dates = Dates(database, slice_seconds)
        self._committer = Committer(database, reserve_bytes, quota_bytes)
        self._reserve_bytes = reserve_bytes
        self._reader = Reader(database, self._committer, read_threads)
        self._payloads = RocksPayloads(self._reader, self._committer, self._dates)
        self._closing = threading.Lock()
        self._is_closed = False

    @property
    def path(self) -> Path:
        """The store's directory."""
        return self._database.path

    @property
    def identity(self) -> Identity | None:
        return self._database.identity

    async def identify(self, identity: Identity) -> None:
        await asyncio.to_thread(write_identity, self.path, identity)
        self._database.identity = identity

    @property
    def expiries(self) -> int:
        return self._dates.ages.expiries.count

    def watch_expiries(self, on_expiry: Callable[[], None]) -> None:
        self._dates.ages.expiries.watch(on_expiry)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def read_only(self) -> str | None:
        """Why nothing can be written, since the store is damaged or its disk was full at the start; None if neither."""
        state = self._database.read_only
        return None if state is None else state.reason

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        read = self._reader.get if table is Table.PAGES else self._reader.get_durable
        rows = await read(FAMILIES[table], keys)
        return [self._dates.shown(table, row) for row in rows] if table is Table.ROOTS else rows

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
        differences: Sequence[tuple[bytes, bytes]] = (),
    ) -> int:
        put = Put(rows, requires, since, differences=differences)
        durable = durable or put.is_durable  # only pages survive `Database.reopen`

        def perform(transaction: Transaction) -> int:
            return self._dates.put_rows(transaction, put, self._dates.bases.choose(transaction, [put]))

        return await self._committer.submit(
            perform,
            reads=root_rows([*requires, *(put.roots if put.reads_roots else ())]),
            size=put.size,
            durable=durable,
            after_sync=durable,
        )

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
        requires: Sequence[bytes] = (),
    ) -> bool:
        row = RowKey(FAMILIES[table], key)

        def compare_and_set(transaction: Transaction) -> bool:
            if self._dates.shown(table, transaction.get(row)) != expected:
                return False
            self._dates.require(transaction, requires)
            self._dates.put(transaction, table, [(key, value), *further], self._dates.ages.clock.now())
            return True

        size = Put({table: [(key, value), *further]}, requires, None).size
        reads = [row, *root_rows(requires)]
        # Durable also if it fails: the write that it lost against may still wait for the same sync.
        return await self._committer.submit(compare_and_set, reads=reads, size=size, durable=True)

    async def list_rows(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        check_listing(limit)
        family = FAMILIES[table]
        start, end = key_range(prefix, after)
        epoch = self._reader.epoch
        rows = await self._reader.run(lambda database: database.scan(family, start, end, limit))
        if table is not Table.PAGES:
            await self._reader.wait_durable(family, [key for key, _ in rows], epoch)
        shown = [(key, value) for key, row in rows if (value := self._dates.shown(table, row)) is not None]
        if len(shown) < len(rows) == limit:  # some are expired roots
            shown += await self.list_rows(table, prefix, rows[-1][0], limit - len(shown))
        return shown

    async def list_pages(self, after: bytes | None, limit: int) -> list[ListedPage]:
        check_listing(limit)
        start, end = key_range(b"", after)
        pages = await self._reader.run(lambda database: database.scan_pages(start, end, limit))
        return [
            ListedPage.whole(digest, page)
            if difference is None
            else ListedPage(digest, page, len(digest) + len(difference), base_of(difference))
            for digest, page, difference in pages
        ]

    async def keep_as_bases(self, digests: Sequence[bytes], before: int | None) -> None:
        keep = partial(self._dates.keep_as_bases, digests=digests, before=before)
        reads = [RowKey(Family.PAGES, digest) for digest in digests]
        await self._committer.submit(keep, reads=reads, size=0, durable=False)

    async def delete(self, table: Table, keys: Sequence[bytes]) -> None:
        families = (Family.PAGES, Family.DIFFERENCES) if table is Table.PAGES else (FAMILIES[table],)

        def delete(transaction: Transaction) -> None:
            for key in keys:
                self._dates.bases.forget(key)
                for family in families:
                    transaction.delete(RowKey(family, key))

        await self._committer.submit(delete, size=0, durable=True)

    async def renew(self, kind: Stored, keys: Sequence[bytes], below_held: bool = False) -> list[int | None]:
        check_renewal(kind)
        if kind is Stored.PAYLOADS:
            return await self._payloads.renew(keys, below_held=below_held)
        renew = partial(self._dates.renew_roots, roots=keys)
        return await self._committer.submit(renew, reads=root_rows(keys), size=0, durable=True)

    # --- payloads -----------------------------------------------------------------------------------------------------

    def begin_payload(self) -> RocksPayloadWriter:
        return self._payloads.begin()

    async def put_payloads(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        return await self._payloads.put(payloads)

    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]:
        return await self._payloads.stat(multihashes)

    async def get_payloads(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        return await self._payloads.get(multihashes)

    def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._payloads.read(multihash, start, end)

    # --- the store as a whole -----------------------------------------------------------------------------------------

    def thread_calls(self) -> RocksThreadCalls:
        return RocksThreadCalls(self._database, self._committer, self._dates, self._payloads)

    def collect(self, grace_seconds: float) -> RocksCollection:
        return RocksCollection(self._reader, self._committer, self._dates, grace_seconds)

    async def usage(self) -> Usage:
        return await self._reader.run(lambda database: Usage(database.file_bytes(), database.data_bytes()))

    async def flush(self) -> None:
        """Flush what is only in memtables and in the log to SSTs, so that the next start replays no log.

        Raises:
            StorageFull, Unavailable: The disk has no room, or the store is closed.
        """
        await self._reader.run(lambda database: database.flush())

    async def figures(self) -> StoreFigures:
        """Return figures for metrics. They take some 100 microseconds in a worker thread.

        Raises:
            Unavailable: The store is closed.
        """

        def read(database: Database) -> StoreFigures:
            committer = self._committer
            free, errors = database.free_bytes(), database.background_errors()
            sizes = database.figures()
            return StoreFigures(sizes, errors, free, self._reserve_bytes, committer.queued, committer.figures)

        return await self._reader.run(read)

    async def record_time(self) -> None:
        """Record the time of the store's clock, with which a store that is made of a checkpoint continues.

        Raises:
            StorageFull, Unavailable: The disk has no room, or the store is closed or read-only.
        """
        await self._committer.submit(
            lambda transaction: transaction.put(RowKey(Family.META, TIME_KEY), self._database.time_row()),
            size=0,
            durable=False,
        )

    @asynccontextmanager
    async def checkpoint(self) -> AsyncIterator[Path]:
        """Hold a copy of the store of this moment: a directory that could be opened, of hard links to table files.

        It has everything that was acknowledged before. Table files that the store would delete meanwhile stay on the
        disk until the end. There is at most one at a time.

        Raises:
            StorageFull, Unavailable: The disk has no room for flushing the memtables, the store is closed, or there is
                a checkpoint already.
        """
        self._reader.require_open()
        with checkpoint_directory(self.path) as target:
            await self.flush()
            await self._reader.run(lambda database: database.checkpoint(target / DATABASE))
            yield target

    async def healthy(self) -> bool:
        try:
            (epoch,) = await self._reader.get(Family.META, [EPOCH_KEY])
        except CoregwError:
            return False
        return epoch is not None and not self._committer.has_failed

    async def obstacles(self) -> list[str]:
        if self.read_only is not None:
            return [self.read_only]
        if not await self.healthy():
            return ["the store cannot be read, or its last write failed"]
        return await self._reader.run(lambda _: self._committer.obstacles())

    async def close(self) -> None:
        await result_of(asyncio.ensure_future(asyncio.to_thread(self._close)))  # once begun, closing is completed

    def _close(self) -> None:
        with self._closing:
            if not self._is_closed:
                self._is_closed = True
                self._reader.close()
                self._committer.close()
                self._database.close()


class RocksThreadCalls:
    """`coregw.store.protocol.ThreadCalls` of a `RocksStore`.

    Args:
        database: The database.
        committer: Its writer, which knows which rows are not durable yet.
        dates: The dates of its rows.
        payloads: Its payloads.
    """

    def __init__(self, database: Database, committer: Committer, dates: Dates, payloads: RocksPayloads) -> None:
        self._database = database
        self._committer = committer
        self._dates = dates
        self._payloads = payloads
        self._uploads: dict[int, RocksUpload] = {}

    def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        epoch, family = self._committer.epoch, FAMILIES[table]
        rows = self._database.get(family, keys)
        if table is not Table.PAGES:
            self._wait_durable(family, keys, rows, epoch)
        return [self._dates.shown(table, row) for row in rows] if table is Table.ROOTS else rows

    def find_payloads(self, multihashes: Sequence[bytes], most: int) -> list[tuple[int, bytes | None] | None]:
        epoch = self._committer.epoch
        found = find_small(self._database, multihashes, most)
        self._wait_durable(Family.PAYLOADS, multihashes, found, epoch)
        return found

    def read_payload(self, multihash: bytes, start: int, end: int) -> bytes:
        epoch = self._committer.epoch
        part = read_part(self._database, multihash, start, end)
        self._wait_durable(Family.PAYLOADS, [multihash], [part], epoch)
        return part

    def _wait_durable(self, family: Family, keys: Sequence[bytes], found: Sequence[object], epoch: int) -> None:
        """Wait until the rows of `keys` that were found are durable; rows are named only if some may not be."""
        rows = (RowKey(family, key) for key, each in zip(keys, found, strict=True) if each is not None)
        self._committer.wait_durable_in_thread(rows, epoch)

    def write(
        self,
        payloads: Sequence[tuple[bytes, bytes]],
        puts: Sequence[Put],
        renewals: Sequence[Sequence[bytes]],
        chunks: Sequence[PayloadChunk] = (),
        dropped: Sequence[int] = (),
    ) -> WriteOutcomes:
        parts = [self._chunk_request(chunk) for chunk in chunks]
        ends = [upload.drop() for number in dropped if (upload := self._uploads.pop(number, None)) is not None]
        stored, put, held = self._commit(
            [
                _Group(self._payloads.request, payloads),
                _Group(self._put_request, puts),
                _Group(self._renewal_request, renewals),  # apart, since a full disk allows these
            ],
            [*parts, *ends],
        )
        for request in ends:
            if (error := _failure_of(request)) is not None:
                note_left(error)
        written = [_failure_of(request) for request in parts]
        for chunk, failure in zip(chunks, written, strict=True):
            if chunk.ends is not None and failure is None:
                self._uploads.pop(chunk.upload, None)  # it may be dropped already
        return WriteOutcomes([each if isinstance(each, CoregwError) else None for each in stored], put, held, written)

    def _chunk_request(self, chunk: PayloadChunk) -> Request:
        upload = self._uploads.get(chunk.upload)
        if upload is None:
            upload = self._uploads[chunk.upload] = self._payloads.begin_upload()
        return upload.chunk(chunk.data) if chunk.ends is None else upload.end(chunk.data, chunk.ends)

    def _put_request(self, puts: Sequence[Put]) -> Request:
        def perform(transaction: Transaction) -> list[int | CoregwError]:
            chosen = self._dates.bases.choose(transaction, puts)
            return [_outcome_of(partial(self._dates.put_rows, transaction, put, chosen)) for put in puts]

        roots = [root for put in puts for root in (*put.requires, *(put.roots if put.reads_roots else ()))]
        durable = any(put.is_durable for put in puts)
        size = sum(put.size for put in puts)
        return Request(perform, root_rows(roots), size, durable=durable, after_sync=durable, count=len(puts))

    def _renewal_request(self, renewals: Sequence[Sequence[bytes]]) -> Request:
        def perform(transaction: Transaction) -> list[list[int | None] | CoregwError]:
            return [_outcome_of(partial(self._dates.renew_roots, transaction, roots)) for roots in renewals]

        rows = root_rows([root for roots in renewals for root in roots])
        return Request(perform, rows, 0, durable=True, count=len(renewals))

    def _commit(self, groups: Sequence[_Group], others: Sequence[Request] = ()) -> list[list[Any]]:
        """Make the writes of each group by one request, and return what each of them returns or raises.

        Other requests have their results or errors then.
        """
        requests = [group.request(group.writes) if group.writes else None for group in groups]
        try:
            self._committer.commit([*filter(None, requests), *others])
        except CoregwError as error:
            for request in others:
                request.error = error
            return [[error] * len(group.writes) for group in groups]
        return [self._outcomes_of(*each) for each in zip(requests, groups, strict=True)]

    def _outcomes_of(self, request: Request | None, group: _Group) -> list[Any]:
        if request is None:
            return []
        if request.error is None:
            return list(request.result)
        if isinstance(_failure_of(request), StoreDamaged) and len(group.writes) > 1:  # a row that one of them reads
            return [self._commit([_Group(group.request, [each])])[0][0] for each in group.writes]
        return [request.error] * len(group.writes)


class _Group(NamedTuple):
    """Writes of one kind.

    Attributes:
        request: Returns the request for some of them, whose result has what each of them returns or raises.
        writes: The writes.
    """

    request: Callable[[Sequence[Any]], Request]
    writes: Sequence[Any]


def _failure_of(request: Request) -> CoregwError | None:
    """Return why a request has failed; raises what is not the store's."""
    if request.error is None or isinstance(request.error, CoregwError):
        return request.error
    raise request.error


def _outcome_of(action: Callable[[], _T]) -> _T | CoregwError:
    """Return what an action returns or raises."""
    try:
        return action()
    except CoregwError as error:
        return error
