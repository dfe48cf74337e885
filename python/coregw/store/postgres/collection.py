"""Collection of garbage in PostgreSQL, and the work in the background.

Each step takes the gate in exclusive mode (`coregw.store.postgres.schema`), so it happens between writes, of whichever
gateway. One connection holds an advisory lock for the whole collection: if it is lost, another gateway may begin one.

The background work lets the store's clock advance, notices what other gateways did, and sweeps what was left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Final, Self
from uuid import UUID

import asyncpg

from coregw.errors import CoregwError, Unavailable
from coregw.store.ages import Expiries
from coregw.store.collection import Item
from coregw.store.postgres.connections import Connection, Row, translated
from coregw.store.postgres.payloads import PostgresPayloads, drop_upload, drop_uploads
from coregw.store.postgres.schema import NOW, TICK, TICK_SECONDS
from coregw.store.protocol import Stored
from coregw.telemetry import RepeatedFailure

__all__ = ["PostgresCollection", "Upkeep"]

_LOCK: Final = "SELECT pg_try_advisory_lock('gate'::regclass::oid::int, 1)"

_UNLOCK: Final = "SELECT pg_advisory_unlock('gate'::regclass::oid::int, 1)"
"""The end of the connection releases the lock, too, but some time after this process has closed it."""

_LIST: Final = {  # octet_length reads nothing of what is stored out of line
    Stored.PAGES: "SELECT key, octet_length(key) + octet_length(value), 0 FROM pages",
    Stored.ROOTS: "SELECT key, octet_length(key) + octet_length(value), dated FROM roots",
    Stored.PAYLOADS: "SELECT multihash AS key, size, dated FROM payloads",
}

_RECORDS: Final = "SELECT key, value FROM records ORDER BY key"

_FETCHED_AT_ONCE: Final = 500

_KEY: Final = {Stored.PAGES: "key", Stored.ROOTS: "key", Stored.PAYLOADS: "multihash"}

_TABLES: Final = {Stored.PAGES: ("pages", "guides"), Stored.ROOTS: ("roots",), Stored.PAYLOADS: ("payloads", "chunks")}


class PostgresCollection:
    """One collection; see `coregw.store.collection.Collection`.

    Args:
        payloads: The payloads of the store.
        grace_seconds: What is younger is spared.
        expiries: Those of the store.
        claim: Checks that the bucket is still that of this store.
    """

    def __init__(
        self,
        payloads: PostgresPayloads,
        grace_seconds: float,
        expiries: Expiries,
        claim: Callable[[], Awaitable[object]],
    ) -> None:
        self._claim = claim
        self._payloads = payloads
        self._database = payloads.database
        self._grace_ms = int(grace_seconds * 1000)
        self._expiries = expiries
        self._stack = AsyncExitStack()
        self._connection: Connection = None
        self.began: int = 0
        self.before: int = 0

    async def __aenter__(self) -> Self:
        """Begin. Raises `Unavailable` if another gateway is collecting garbage, and as the claim to the bucket."""
        await self._claim()
        self._connection = await self._stack.enter_async_context(self._database.session())
        try:
            if not (await self._call(_LOCK))[0][0]:
                raise Unavailable(
                    "garbage is being collected already, or a backup, a copy or a check lists what is held, by this or "
                    "another process; try again when it has ended"
                )
            self.before = (await self._call("SELECT coregw_begin($1)", self._grace_ms))[0][0]
            self.began = (await self._call("SELECT clock FROM state"))[0][0]
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End, durably. If the connection is lost, the next collection does that."""
        try:
            if not self._connection.is_closed():
                await self._call("SELECT coregw_end($1)", self.before)
                await self._call(_UNLOCK)
        except Unavailable:
            if exc is None:
                raise
        finally:
            self._expiries.tell()  # it may have removed payloads
            await self._stack.aclose()

    async def list_items(self, kind: Stored, after: bytes | None, limit: int) -> list[Item]:
        """See `coregw.store.collection.Collection.list_items`."""
        where = f"WHERE {_KEY[kind]} > $2" if after is not None else "WHERE $2::bytea IS NULL"
        rows = await self._call(f"{_LIST[kind]} {where} ORDER BY 1 LIMIT $1", limit, after)
        return [Item(*row) for row in rows]

    async def records(self) -> AsyncGenerator[list[tuple[bytes, bytes]]]:
        """See `coregw.store.collection.RecordedCollection.records`. Holds a snapshot of the database meanwhile."""
        self._database.require_open()
        try:
            async with self._connection.transaction(isolation="repeatable_read", readonly=True):
                cursor = await self._connection.cursor(_RECORDS)
                while rows := await cursor.fetch(_FETCHED_AT_ONCE):
                    yield [(row[0], row[1]) for row in rows]
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise translated(error) from error

    async def keep(self, roots: Sequence[bytes]) -> list[bool]:
        """See `coregw.store.collection.Collection.keep`."""
        held = {row[0] for row in await self._call("SELECT coregw_keep($1)", roots)}
        return [root in held for root in roots]

    async def expire(self) -> list[bytes]:
        """See `coregw.store.collection.Collection.expire`."""
        late = [row[0] for row in await self._call("SELECT coregw_expire($1)", self.before)]
        if not late:
            self._expiries.note(self._expiries.count + 1)
        return late

    async def remove(self, kind: Stored, keys: Sequence[bytes]) -> list[bool]:
        """See `coregw.store.collection.Collection.remove`. What is removed is removed durably."""
        if kind is Stored.ROOTS:
            rows = await self._call("SELECT coregw_remove_roots($1)", keys)
        elif kind is Stored.PAGES:
            rows = await self._call("SELECT coregw_remove_pages($1, $2)", keys, self.before)
        else:
            rows = await self._call("SELECT * FROM coregw_remove_payloads($1, $2)", keys, self.before)
            uploads: list[UUID] = [row[1] for row in rows if row[1] is not None]
            await drop_uploads(self._database, self._payloads.chunks, uploads)
        removed = {row[0] for row in rows}
        return [key in removed for key in keys]

    async def compact(self, kinds: Sequence[Stored], progress: Callable[[float], None]) -> None:
        """Make the space of removed rows available to new ones (VACUUM); files shrink at their ends only."""
        tables = [table for kind in kinds for table in _TABLES[kind]]
        for number, table in enumerate(tables, 1):
            await self._call(f"VACUUM (ANALYZE) {table}")
            progress(number / len(tables))

    async def _call(self, query: str, *arguments: object) -> list[Row]:
        self._database.require_open()
        try:
            rows: list[Row] = await self._connection.fetch(query, *arguments)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
            raise translated(error) from error
        return rows


logger = logging.getLogger("coregw.store")

_REFRESH_SECONDS: Final = 2.0

_HEARTBEAT_SECONDS: Final = 60.0

_SWEEP_SECONDS: Final = 600.0

_ABANDONED_MS: Final = 3_600_000
"""An upload without a heartbeat for this long is dropped: its gateway has died."""

_ATTEMPTS_MS: Final = 86_400_000
"""How long an attempt is remembered: no call is repeated for this long."""

_DROPPED_AT_ONCE: Final = 100

_FOLDED_FROM: Final = 1000


class Upkeep:
    """The background task of one store.

    Args:
        payloads: The payloads of the store.
        refresh: Reads the state of the store.
        claim: Checks that the bucket is still that of this store.
    """

    def __init__(
        self, payloads: PostgresPayloads, refresh: Callable[[], Awaitable[None]], claim: Callable[[], Awaitable[object]]
    ) -> None:
        self._claim = claim
        self._payloads = payloads
        self._database = payloads.database
        self._refresh = refresh
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End the task. Idempotent."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        beats, sweeps = loop.time() + _HEARTBEAT_SECONDS, loop.time() + _SWEEP_SECONDS
        ticks = loop.time()
        waits = RepeatedFailure(logger, "the upkeep of the store waits", "the upkeep of the store continues")
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                await self._refresh()
                if loop.time() >= ticks:
                    ticks = loop.time() + TICK_SECONDS
                    await self._database.write(TICK)
                if loop.time() >= beats:
                    beats = loop.time() + _HEARTBEAT_SECONDS
                    await self._beat()
                if loop.time() >= sweeps:
                    sweeps = loop.time() + _SWEEP_SECONDS
                    await self.sweep()
                waits.ends()
            except CoregwError as error:
                waits.occurs(error)
            except Exception:
                logger.exception("the upkeep of the store failed")

    async def _beat(self) -> None:
        """Say that the uploads in progress live."""
        if self._payloads.uploads:
            await self._database.write(
                f"UPDATE uploads SET seen = {NOW} WHERE upload IN ("  # noqa: S608 - a constant
                "SELECT upload FROM uploads WHERE upload = ANY ($1) ORDER BY upload FOR UPDATE)",
                list(self._payloads.uploads),
            )

    async def sweep(self, abandoned_ms: int = _ABANDONED_MS) -> int:
        """Drop abandoned uploads and forget old attempts; return how many uploads were dropped.

        Any number of gateways may do this at once. A commit that comes after all finds its upload dropped.

        Raises:
            InvalidInput: The bucket is that of another database now; no chunk was removed.
            Unavailable: The database or the bucket does not answer.
        """
        await self._database.write(
            f"UPDATE uploads SET is_dropped = true WHERE upload IN (SELECT upload FROM uploads "  # noqa: S608
            f"WHERE NOT is_dropped AND seen < {NOW} - $1::bigint FOR UPDATE SKIP LOCKED)",
            abandoned_ms,
        )
        await self._database.write(
            f"DELETE FROM attempts WHERE attempt IN (SELECT attempt FROM attempts "  # noqa: S608
            f"WHERE dated < {NOW} - $1::bigint FOR UPDATE SKIP LOCKED)",
            _ATTEMPTS_MS,
        )
        await self._fold_sizes()
        await self._claim()
        dropped = 0
        while True:
            rows = await self._database.read("SELECT upload FROM uploads WHERE is_dropped LIMIT $1", _DROPPED_AT_ONCE)
            for row in rows:
                await drop_upload(self._database, self._payloads.chunks, row[0])
            dropped += len(rows)
            if len(rows) < _DROPPED_AT_ONCE:
                return dropped

    async def _fold_sizes(self) -> None:
        """Sum the changes of sizes up to one row."""
        (row,) = await self._database.read("SELECT count(*) FROM sizes")
        if row[0] >= _FOLDED_FROM:
            await self._database.write(
                "WITH taken AS (DELETE FROM sizes WHERE ctid IN (SELECT ctid FROM sizes FOR UPDATE SKIP LOCKED) "
                "RETURNING change) INSERT INTO sizes SELECT sum(change) FROM taken HAVING count(*) > 0"
            )
