"""The store on PostgreSQL: rows, and everything about the store as a whole."""

# ruff: noqa: D102 - the protocol documents the methods
from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast
from uuid import uuid4

from coregw.errors import CoregwError, RootNotFound, StorageFull, StoreDamaged, Unavailable
from coregw.store.addresses import check_database_address, masked
from coregw.store.ages import Expiries
from coregw.store.collection import Identity, Usage
from coregw.store.postgres.checks import check_server, identify, split_unsafe
from coregw.store.postgres.collection import PostgresCollection, Upkeep
from coregw.store.postgres.connections import ConnectionPool, Query, Replicas, columns
from coregw.store.postgres.guides import DESCENTS_ON_PRIMARY, Guides, guide_columns
from coregw.store.postgres.payloads import Chunks, PostgresPayloads, PostgresPayloadWriter, Room, RowChunks
from coregw.store.postgres.schema import migrate
from coregw.store.protocol import (
    Guide,
    Put,
    Stored,
    Table,
    WriteOutcomes,
    check_listing,
    check_payload_sizes,
    check_renewal,
    key_range,
)

if TYPE_CHECKING:
    from coregw.store.buckets import BucketChunks

__all__ = ["PostgresFigures", "PostgresStore", "open_store"]


class PostgresFigures(NamedTuple):
    """What a store's database and this process's connections to it are doing.

    Attributes:
        data_bytes: Rows, guides and payloads; what a quota limits.
        page_bytes: Files of the tables of pages and guides, and of their indexes.
        payload_bytes: Files of payloads and chunks in the database.
        pages: The number of pages, as the database estimates it.
        payloads: The number of payloads, as the database estimates it.
        uploads: Uploads in progress, of all gateways, and those that are being dropped.
        standbys: Standbys that are connected to the primary.
        connections: Open connections of this process.
        connections_in_use: Of these, those that are in use.
        retries: Calls of this process that were repeated.
        oldest_write_seconds: How long the oldest write in progress of this process has been waiting.
        replica_hits: Pages of this process that a standby returned.
    """

    data_bytes: int
    page_bytes: int
    payload_bytes: int
    pages: int
    payloads: int
    uploads: int
    standbys: int
    connections: int
    connections_in_use: int
    retries: int
    oldest_write_seconds: float
    replica_hits: int


_KEYS_AT_ONCE: Final = 1000
_PROBE_SECONDS: Final = 2.0
_STALLED_SECONDS: Final = 5.0
_GET: Final = {
    Table.PAGES: "SELECT key, value FROM pages WHERE key = ANY ($1)",
    Table.ROOTS: "SELECT key, value FROM roots WHERE key = ANY ($1) AND dated >= (SELECT expired_before FROM state)",
    Table.RECORDS: "SELECT key, value FROM records WHERE key = ANY ($1)",
}
_GET_PAGES: Final = f"{_GET[Table.PAGES]} UNION ALL SELECT NULL, expiries::text::bytea FROM state"  # noqa: S608
"""Pages, and without a key how often roots have expired: a page may be missing since its root has expired."""
_READS: Final[tuple[Query, ...]] = ((_GET_PAGES, []), (_GET[Table.ROOTS], []), (DESCENTS_ON_PRIMARY, [], []))
"""What a lookup reads; prepared on the first connections."""
_LIST: Final = {
    Table.PAGES: "SELECT key, value FROM pages WHERE",
    Table.ROOTS: "SELECT key, value FROM roots WHERE dated >= (SELECT expired_before FROM state) AND",
    Table.RECORDS: "SELECT key, value FROM records WHERE",
}
_WRITE: Final = f"SELECT * FROM coregw_write({', '.join(f'${number}' for number in range(1, 15))})"  # noqa: S608
_RENEW_PAYLOADS: Final = "SELECT * FROM coregw_renew_payloads($1)"
_PORTION_BYTES: Final = 256 << 10
"""Writes of twice as many bytes are two calls at the same time, and so on: the database uses a processor for each."""
_TABLES: Final = ("pages", "roots", "records", "payloads", "chunks", "uploads", "attempts", "sizes", "guides")
_FILES: Final = "SELECT ({})::bigint".format(" + ".join(f"pg_total_relation_size('{table}')" for table in _TABLES))
"""The query for the size of all tables and indexes."""
_FIGURES: Final = """
SELECT (SELECT coalesce(sum(change), 0)::bigint FROM sizes),
  pg_total_relation_size('pages') + pg_total_relation_size('guides'),
  pg_total_relation_size('payloads') + pg_total_relation_size('chunks'),
  (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'pages'::regclass),
  (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'payloads'::regclass),
  (SELECT count(*) FROM uploads), (SELECT count(*) FROM pg_stat_replication)
"""
"""The query for the first columns of `PostgresFigures`."""
_REFRESH: Final = "SELECT expiries, pg_is_in_recovery() FROM state"
_USED: Final = "SELECT coalesce(sum(change), 0)::bigint FROM sizes"
_SLICE: Final = "UPDATE state SET slice_ms = $1 WHERE slice_ms < $1"


async def open_store(
    url: str,
    *,
    bucket: str | None = None,
    connections: int = 4,
    quota_bytes: int | None = None,
    slice_seconds: float = 300.0,
    adopt: bool = False,
) -> PostgresStore:
    """Open the store in a database, and create or migrate its tables.

    Args:
        url: The address ``postgresql://USER[:PASSWORD]@HOST[:PORT]/DATABASE``. Several hosts, separated by commas, are
            the servers of one cluster: writes go to the primary, reads of pages to a standby first. Options of libpq
            follow a question mark, such as ``sslmode=verify-full``; others are settings of the sessions, such as
            ``search_path=NAME``. ``unsafe=NAME[,NAME]`` is ours: what the database may do although it can lose data
            (`coregw.store.postgres.checks.UNSAFE`).
        bucket: The address of a bucket for chunks (`coregw.store.addresses.BucketAddress`); None keeps them in
            the database. Every gateway on a store uses the same.
        connections: The maximum number of connections of this process, at least 2. A garbage collection uses one
            more, and standbys 2.
        quota_bytes: What the rows and payloads of all gateways may take together, about; None for no limit.
        slice_seconds: How exactly it is remembered when pages were put. The coarsest of all gateways applies.
        adopt: Whether the database takes the place of another incarnation of the store, which has claimed the bucket.

    Raises:
        InvalidInput: An address is malformed, a newer version of coregw has migrated the tables, or the bucket is that
            of another store, or without `adopt` of another incarnation of this one.
        Unavailable: The database or the bucket does not answer, refuses us, or is not fit for a store.
    """
    check_database_address(url)
    url, unsafe = split_unsafe(url)
    bucket_chunks = None if bucket is None else _open_bucket(bucket)
    database = await ConnectionPool.connect(url, max(2, connections))
    try:
        await check_server(database, unsafe, max(2, connections) + 1)
        async with database.session() as connection:
            await migrate(connection)
        claim = partial(identify, database, bucket_chunks)
        identity = await claim(adopt=adopt)
        await database.write(_SLICE, int(slice_seconds * 1000))
        await database.warm(*_READS)
        chunks = bucket_chunks or RowChunks(database)
        store = PostgresStore(database, url, chunks, Room(quota_bytes), identity, claim)
        await store.refresh()
    except BaseException:
        await database.close()
        raise
    return store


class PostgresStore:
    """A `coregw.store.collection.CollectableStore` in PostgreSQL. Use `open_store`; ``async with`` closes it.

    Any number of processes may have the store open. Acknowledged writes of each are visible to all at once.
    """

    def __init__(
        self,
        database: ConnectionPool,
        url: str,
        chunks: Chunks,
        room: Room,
        identity: Identity,
        claim: Callable[..., Awaitable[Identity]],
    ) -> None:
        self._identity = identity
        self._claim = claim
        self._database = database
        self._room = room
        self._payloads = PostgresPayloads(database, chunks, room)
        self._replicas = Replicas(url, _READS)
        self._guides = Guides(database, self._replicas)
        self._expiries: Final = Expiries()
        self._upkeep: Upkeep | None = Upkeep(self._payloads, self.refresh, self._claim)
        self.address: Final = masked(url)
        """The address of the database, without its password."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def identity(self) -> Identity:
        """See `coregw.store.collection.CollectableStore.identity`."""
        return self._identity

    async def identify(self, identity: Identity) -> None:
        """See `coregw.store.collection.CollectableStore.identify`. The bucket is claimed anew."""
        self._database.require_open()
        self._identity = await self._claim(given=identity)

    @property
    def expiries(self) -> int:
        """See `coregw.store.Store.expiries`. May lag behind other gateways' collections by some seconds."""
        return self._expiries.count

    def watch_expiries(self, on_expiry: Callable[[], None]) -> None:
        """See `coregw.store.Store.watch_expiries`. Other gateways' collections are noticed some seconds later."""
        self._expiries.watch(on_expiry)

    async def refresh(self) -> None:
        """Notice what other gateways did: expired roots, and used space.

        Raises:
            Unavailable: The database does not answer, or is not the primary any more.
        """
        (row,) = await self._database.read(_REFRESH)
        if row[1]:
            raise Unavailable("the database is a standby, which accepts no writes")
        self._note_expiries(row[0])
        if self._room.quota_bytes is not None:
            (row,) = await self._database.read(_USED)
            self._room.used_bytes = row[0]

    def _note_expiries(self, expiries: int | None) -> None:
        if expiries is not None:
            self._expiries.note(expiries)

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        self._database.require_open()
        if not keys:
            return []
        found: dict[bytes | None, bytes] = {}
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            asked = keys[start : start + _KEYS_AT_ONCE]
            if table is Table.PAGES and self._replicas.is_used:
                found.update((row[0], row[1]) for row in await self._replicas.read(_GET[table], asked))
                asked = [key for key in asked if key not in found]
            if asked and table is Table.PAGES:
                found.update(await self._database.read(_GET_PAGES, asked))
                self._note_expiries(int(found.pop(None)))
            elif asked:
                found.update(await self._database.read(_GET[table], asked))
        return [found.get(key) for key in keys]

    async def get_descents(self, keys: Mapping[bytes, Sequence[bytes]]) -> dict[bytes, bytes]:
        self._database.require_open()
        found, expiries = await self._guides.get_descents(keys)
        self._note_expiries(expiries)
        return found

    async def list_guides(self, after: bytes | None, limit: int) -> list[Guide]:
        self._database.require_open()
        return await self._guides.list(after, limit)

    async def set_guides(self, pages: Sequence[bytes], guides: Sequence[Guide]) -> None:
        self._database.require_open()
        await self._room.watch(self._guides.set(pages, guides))

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
        guides: Sequence[Guide] = (),
    ) -> int:
        self._database.require_open()
        put = Put(rows, requires, since, None, guides)
        self._room.require(put.size)
        (outcome,) = await self._call([put])
        if isinstance(outcome, CoregwError):
            raise outcome
        return int(outcome)

    async def write(
        self, payloads: Sequence[tuple[bytes, bytes]], puts: Sequence[Put], renewals: Sequence[Sequence[bytes]]
    ) -> WriteOutcomes:
        check_payload_sizes(payloads)
        self._database.require_open()
        writes: list[_Write] = [*payloads, *puts, *map(list, renewals)]
        refusals = [self._room.refusal(_size_of(write)) for write in writes]
        admitted = [write for write, refusal in zip(writes, refusals, strict=True) if refusal is None]
        portions = _portions_of(admitted, self._database.size - 1)
        found = chain.from_iterable(await asyncio.gather(*map(self._call_each, portions)))
        outcomes: list[Any] = [
            next(found) if refusal is None else await self._renewed_or(refusal, write)
            for write, refusal in zip(writes, refusals, strict=True)
        ]
        middle = len(payloads) + len(puts)
        return WriteOutcomes(outcomes[: len(payloads)], outcomes[len(payloads) : middle], outcomes[middle:])

    async def _renewed_or(self, refusal: CoregwError, write: _Write) -> int | CoregwError:
        """Renew the roots of a put for which there is no room, if they are held; return why it is refused if not."""
        try:
            if isinstance(write, Put) and write.renews(await self.get(Table.ROOTS, write.roots)):
                return 0 if None not in await self.renew(Stored.ROOTS, write.roots) else refusal
        except CoregwError as error:
            return error
        return refusal

    async def _call_each(self, writes: Sequence[_Write]) -> list[Any]:
        """Make writes by one call, and return what each of them returns or raises."""
        try:
            return await self._call(writes) if writes else []
        except CoregwError as error:
            if isinstance(error, StorageFull | StoreDamaged) and len(writes) > 1:  # what one of them needs
                return [(await self._call_each([write]))[0] for write in writes]
            return [error] * len(writes)

    async def _call(self, writes: Sequence[_Write]) -> list[Any]:
        """Make writes by one call, and return the result of each, or the error that concerns it alone."""
        (row,) = await self._room.watch(self._database.write(_WRITE, *_write_arguments(writes)))
        self._note_expiries(row["expiries"])
        renewed = set(row["renewed"] or ())
        puts = zip(row["outcomes"] or (), row["missing"] or (), strict=True)
        outcomes: list[Any] = []
        for write in writes:
            if isinstance(write, Put):
                outcomes.append(_error_of(*next(puts)) or row["at"])
            elif isinstance(write, list):
                outcomes.append([0 if root in renewed else None for root in write])
            else:
                outcomes.append(None)
        return outcomes

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
        requires: Sequence[bytes] = (),
    ) -> bool:
        self._database.require_open()
        self._room.require(len(key) + len(value) + sum(len(pair[0]) + len(pair[1]) for pair in further))
        (row,) = await self._room.watch(
            self._database.write(
                f"SELECT * FROM coregw_set_{table}($1, $2, $3, $4, $5, $6, $7)",  # noqa: S608 - an enumeration
                key,
                expected,
                value,
                *columns(further),
                list(requires),
                uuid4(),
            )
        )
        self._note_expiries(row["expiries"])
        if error := _error_of(row["outcome"], row["missing"]):
            raise error
        return bool(row["outcome"] == "written")

    async def list_rows(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        check_listing(limit)
        self._database.require_open()
        first, end = key_range(prefix, after)
        where = "key >= $1 AND key < $3" if end is not None else "key >= $1 AND $3::bytea IS NULL"
        rows = await self._database.read(f"{_LIST[table]} {where} ORDER BY key LIMIT $2", first, limit, end)
        return [(row[0], row[1]) for row in rows]

    async def delete(self, table: Table, keys: Sequence[bytes]) -> None:
        self._database.require_open()
        if keys:
            (row,) = await self._database.write(f"SELECT coregw_delete_{table}($1, $2)", list(keys), uuid4())
            self._note_expiries(row[0])

    async def renew(self, kind: Stored, keys: Sequence[bytes], below_held: bool = False) -> list[int | None]:
        check_renewal(kind)
        self._database.require_open()
        if not keys:
            return []
        if kind is Stored.ROOTS:
            (held,) = await self._call([list(keys)])
            return cast("list[int | None]", held)
        rows = await self._room.watch(self._database.write(_RENEW_PAYLOADS, list(keys)))
        sizes = {row[0]: row[1] for row in rows}
        return [sizes.get(key) for key in keys]

    # --- payloads -----------------------------------------------------------------------------------------------------

    def begin_payload(self) -> PostgresPayloadWriter:
        self._database.require_open()
        return PostgresPayloadWriter(self._payloads)

    async def put_payloads(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        return await self._payloads.put(payloads)

    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]:
        return await self._payloads.stat(multihashes)

    async def get_payloads(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        return await self._payloads.get(multihashes)

    def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        return self._payloads.read(multihash, start, end)

    # --- the store as a whole -----------------------------------------------------------------------------------------

    def collect(self, grace_seconds: float) -> PostgresCollection:
        """See `coregw.store.collection.CollectableStore.collect`. At most one gateway collects at a time."""
        self._database.require_open()
        return PostgresCollection(self._payloads, grace_seconds, self._expiries, self._claim)

    async def usage(self) -> Usage:
        """See `coregw.store.collection.CollectableStore.usage`. Files are those of tables and indexes."""
        self._database.require_open()
        (files,) = await self._database.read(_FILES)
        (data,) = await self._database.read(_USED)
        return Usage(files[0], data[0])

    async def figures(self) -> PostgresFigures:
        """Return what the database and its connections are doing. Cheap."""
        self._database.require_open()
        (row,) = await self._database.read(_FIGURES)
        connected, in_use = self._database.in_use
        own = (connected, in_use, self._database.retries, self._database.oldest_write_seconds, self._replicas.hits)
        return PostgresFigures._make([*row, *own])

    async def sweep(self, abandoned_ms: int) -> int:
        """Drop uploads of any gateway that gave no sign of life for this long; return how many. Also runs by itself."""
        self._database.require_open()
        assert self._upkeep is not None  # noqa: S101 - the store is open
        return await self._upkeep.sweep(abandoned_ms)

    async def healthy(self) -> bool:
        return await self._outage() is None

    async def obstacles(self) -> list[str]:
        outage = await self._outage()
        return [outage] if outage is not None else self._room.obstacles()

    async def _outage(self) -> str | None:
        """Why the store can't be read or written, apart from a lack of room."""
        try:
            self._database.require_open()
            (row,) = await self._database.read(_REFRESH, seconds=_PROBE_SECONDS)
        except CoregwError as error:
            return error.message
        if row[1]:
            return "the database is a standby, which accepts no writes"
        if (seconds := self._database.oldest_write_seconds) > _STALLED_SECONDS:
            return f"the database has not confirmed a write for {seconds:.0f} s; it may be waiting for a standby"
        return None

    async def close(self) -> None:
        upkeep, self._upkeep = self._upkeep, None
        if upkeep is not None:
            await upkeep.close()
        await self._replicas.close()
        with suppress(CoregwError):
            await self._database.close()


def _open_bucket(url: str) -> BucketChunks:
    from coregw.store.buckets import BucketChunks  # noqa: PLC0415 - needs an extra of its own

    return BucketChunks(url)


_Write = tuple[bytes, bytes] | Put | list[bytes]
"""A payload, rows, or roots to renew."""


def _size_of(write: _Write) -> int:
    """What a write may add to the store, in bytes."""
    if type(write) is tuple:
        return len(write[1])
    return write.size if isinstance(write, Put) else 0


def _portions_of(writes: list[_Write], most: int) -> list[list[_Write]]:
    """Divide writes into portions of about the same size, in order."""
    *starts, total = accumulate(map(_size_of, writes), initial=0)
    count = min(total // _PORTION_BYTES, most)
    if count < 2:
        return [writes]
    portions: list[list[_Write]] = [[] for _ in range(count)]
    for write, start in zip(writes, starts, strict=True):
        portions[start * count // (total + 1)].append(write)
    return portions


def _write_arguments(writes: Sequence[_Write]) -> list[object]:
    """Return the arguments of the call that makes writes."""
    puts = [write for write in writes if isinstance(write, Put)]
    payloads = sorted({write[0]: write[1] for write in writes if type(write) is tuple}.items())
    rows = [
        (number, kind, key, value)
        for number, put in enumerate(puts, 1)
        for kind, pairs in [*put.rows.items(), ("requires", [(root, b"") for root in put.requires])]
        for key, value in dict(pairs).items()
    ]
    # Pages and roots may be put twice. A record may have been replaced by another call in between.
    attempts = [uuid4() if put.rows.get(Table.RECORDS) else None for put in puts]
    return [
        [put.since for put in puts],
        attempts,
        [put.replaces for put in puts],
        *([row[column] for row in rows] for column in range(4)),
        *guide_columns(guide for put in puts for guide in put.guides),
        [root for write in writes if isinstance(write, list) for root in write],
        [name for name, _ in payloads],
        [data for _, data in payloads],
        uuid4(),
    ]


def _error_of(outcome: str, missing: bytes | None) -> CoregwError | None:
    """Return what a call raises by what the database says has become of it."""
    if outcome == "missing":
        return RootNotFound(f"the store does not hold the root {(missing or b'').hex()} (binary CID)")
    if outcome == "swept":
        return Unavailable("garbage was collected between the first and the last write of this change; try again")
    return None
