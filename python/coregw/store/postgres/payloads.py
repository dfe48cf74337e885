"""Payloads in PostgreSQL, in rows and in chunks, and the room that there is for them.

```
begin   a row of `uploads`          so that a sweep finds what is left of an upload that was not committed
write   chunks
commit  one transaction: the payload's row, and the row of `uploads` removed; or, if the payload is held already,
        the payload renewed, and the upload listed as dropped
```
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, TypeVar
from uuid import UUID, uuid4

from coregw.errors import PayloadNotFound, StorageFull, StoreDamaged, Unavailable
from coregw.store.chunks import ChunkWriter
from coregw.store.postgres.connections import ConnectionPool
from coregw.store.postgres.schema import NOW
from coregw.store.protocol import CHUNK_BYTES, check_payload_sizes, check_range, check_whole_payload

__all__ = ["Chunks", "PostgresPayloadWriter", "PostgresPayloads", "Room", "RowChunks", "drop_upload", "drop_uploads"]

T = TypeVar("T")


class Room:
    """The room in a store. For tasks of one event loop.

    Args:
        quota_bytes: What the rows and payloads of all gateways may take together; None for no limit.

    Attributes:
        used_bytes: What they took when that was counted last, and what this process has begun to write since then.
        is_disk_full: Whether the last write failed for lack of room on the disk of the database.
    """

    def __init__(self, quota_bytes: int | None) -> None:
        self.quota_bytes = quota_bytes
        self.used_bytes = 0
        self.is_disk_full = False

    def require(self, size: int) -> None:
        """Count this many bytes as used.

        Raises:
            StorageFull: They exceed the quota.
        """
        if refusal := self.refusal(size):
            raise refusal

    def refusal(self, size: int) -> StorageFull | None:
        """Count bytes as `require`, and return what it raises."""
        if self.quota_bytes is not None and self.used_bytes + size > self.quota_bytes:
            return StorageFull(f"the store holds at most {self.quota_bytes:,} bytes; {size:,} more do not fit")
        self.used_bytes += size
        return None

    async def watch(self, write: Awaitable[T]) -> T:
        """Return the result of a write, and note whether it failed for lack of room."""
        try:
            result = await write
        except StorageFull:
            self.is_disk_full = True
            raise
        self.is_disk_full = False
        return result

    def obstacles(self) -> list[str]:
        """Return why there is no room, as sentences."""
        if self.quota_bytes is not None and self.used_bytes >= self.quota_bytes:
            return [f"the store holds at most {self.quota_bytes:,} bytes, and all of them are used"]
        return ["the disk of the database is full"] if self.is_disk_full else []


class Chunks(Protocol):
    """Chunks of uploads, numbered from 0."""

    @property
    def inline_bytes(self) -> int:
        """The size up to which a payload is kept in its row of the database."""

    async def put(self, upload: UUID, number: int, data: bytes) -> None:
        """Store a chunk, durably. Raises `StorageFull` or `Unavailable`."""

    async def get(self, upload: UUID, number: int, start: int, end: int) -> bytes | None:
        """Return the bytes of a chunk from `start` to `end`, fewer if it has fewer; None if it is missing."""

    async def drop(self, upload: UUID) -> None:
        """Remove all chunks of an upload. Repeating it is harmless."""


class RowChunks:
    """Chunks in rows of the database."""

    inline_bytes: Final = CHUNK_BYTES

    def __init__(self, database: ConnectionPool) -> None:
        self._database = database

    async def put(self, upload: UUID, number: int, data: bytes) -> None:
        """See `Chunks.put`."""
        await self._database.write(
            "INSERT INTO chunks VALUES ($1, $2, $3) ON CONFLICT (upload, number) DO UPDATE SET data = excluded.data",
            upload,
            number,
            data,
        )

    async def get(self, upload: UUID, number: int, start: int, end: int) -> bytes | None:
        """See `Chunks.get`."""
        rows = await self._database.read(
            "SELECT substring(data FROM $3 FOR $4) FROM chunks WHERE upload = $1 AND number = $2",
            upload,
            number,
            start + 1,
            end - start,
        )
        return rows[0][0] if rows else None

    async def drop(self, upload: UUID) -> None:
        """See `Chunks.drop`."""
        await self._database.write("DELETE FROM chunks WHERE upload = $1", upload)


async def drop_upload(database: ConnectionPool, chunks: Chunks, upload: UUID) -> None:
    """Remove the chunks of an upload that is listed as dropped, and then its row."""
    await chunks.drop(upload)
    await database.write("DELETE FROM uploads WHERE upload = $1 AND is_dropped", upload)


async def drop_uploads(database: ConnectionPool, chunks: Chunks, uploads: Sequence[UUID]) -> None:
    """Remove the chunks of dropped uploads; a failure leaves the rest to the sweep."""
    with suppress(Unavailable):
        await asyncio.gather(*(drop_upload(database, chunks, upload) for upload in uploads))


_ADD: Final = "SELECT * FROM coregw_add_payloads($1, $2, $3, $4, $5)"

_KEYS_AT_ONCE: Final = 1000

_CHUNKS_AT_ONCE: Final = 8


class PostgresPayloads:
    """The payloads of one store. For tasks of one event loop.

    Args:
        database: The database.
        chunks: Where chunks are.
        room: Says whether there is room.
    """

    def __init__(self, database: ConnectionPool, chunks: Chunks, room: Room) -> None:
        self.database: Final = database
        self.chunks: Final = chunks
        self.room: Final = room
        self.uploads: set[UUID] = set()
        """The uploads in progress; the sweep is told that they live."""

    # --- writes -------------------------------------------------------------------------------------------------------

    async def begin_upload(self, upload: UUID) -> None:
        """Record an upload before its first chunk."""
        self.uploads.add(upload)
        await self.database.write(f"INSERT INTO uploads VALUES ($1, {NOW}) ON CONFLICT DO NOTHING", upload)  # noqa: S608

    async def drop_upload(self, upload: UUID) -> None:
        """End an upload that is not committed."""
        self.uploads.discard(upload)
        await self.database.write("UPDATE uploads SET is_dropped = true WHERE upload = $1", upload)
        await drop_upload(self.database, self.chunks, upload)

    async def add(self, rows: Sequence[tuple[bytes, int, bytes | None, UUID | None]]) -> set[bytes]:
        """Store distinct payloads, given as multihash, size, and either data or upload; return which are new.

        Raises:
            Unavailable: An upload was dropped; nothing is stored.
        """
        ordered = sorted(rows, key=lambda row: row[0])
        columns = [list(column) for column in zip(*ordered, strict=True)]
        stored = {row[0] for row in await self.room.watch(self.database.write(_ADD, *columns, uuid4()))}
        uploads = {upload: multihash for multihash, _, _, upload in ordered if upload is not None}
        self.uploads.difference_update(uploads)
        if dropped := [upload for upload, multihash in uploads.items() if multihash not in stored]:
            await drop_uploads(self.database, self.chunks, dropped)
        return stored

    async def put(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """See `coregw.store.Store.put_payloads`."""
        check_payload_sizes(payloads)
        self.database.require_open()
        if not payloads:
            return []
        distinct = dict(reversed(payloads))
        self.room.require(sum(map(len, distinct.values())))
        return await self.database.to_end(lambda: self._put(payloads, distinct))

    async def _put(self, payloads: Sequence[tuple[bytes, bytes]], distinct: dict[bytes, bytes]) -> list[bool]:
        long = {multihash: uuid4() for multihash, data in distinct.items() if len(data) > self.chunks.inline_bytes}
        if long:
            held = await self.stat(list(long))
            held_names = {name for name, size in zip(long, held, strict=True) if size is not None}
            long = {name: upload for name, upload in long.items() if name not in held_names}
            await asyncio.gather(*(self._put_chunk(upload, distinct[name]) for name, upload in long.items()))
            # What is held is dated by the same call; if garbage was collected meanwhile, it is stored in its row.
        rows = [(name, len(data), None if name in long else data, long.get(name)) for name, data in distinct.items()]
        stored = await self.add(rows)
        first: list[bool] = []
        for multihash, _ in payloads:
            first.append(multihash in stored)
            stored.discard(multihash)
        return first

    async def _put_chunk(self, upload: UUID, data: bytes) -> None:
        await self.begin_upload(upload)
        await self.chunks.put(upload, 0, data)

    # --- reads --------------------------------------------------------------------------------------------------------

    async def stat(self, multihashes: Sequence[bytes]) -> list[int | None]:
        """See `coregw.store.Store.stat_payloads`."""
        self.database.require_open()
        sizes: dict[bytes, int] = {}
        for start in range(0, len(multihashes), _KEYS_AT_ONCE):
            keys = multihashes[start : start + _KEYS_AT_ONCE]
            rows = await self.database.read("SELECT multihash, size FROM payloads WHERE multihash = ANY ($1)", keys)
            sizes.update((row[0], row[1]) for row in rows)
        return [sizes.get(multihash) for multihash in multihashes]

    async def get(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        """See `coregw.store.Store.get_payloads`."""
        self.database.require_open()
        found: dict[bytes, bytes] = {}
        for start in range(0, len(multihashes), _KEYS_AT_ONCE):
            rows = await self.database.read(
                "SELECT multihash, size, upload, data FROM payloads WHERE multihash = ANY ($1)",
                multihashes[start : start + _KEYS_AT_ONCE],
            )
            for row in rows:
                check_whole_payload(row[0], row[1])
            slots = asyncio.Semaphore(_CHUNKS_AT_ONCE)

            async def one(row: Any, slots: asyncio.Semaphore = slots) -> None:  # noqa: ANN401 - a row
                async with slots:
                    payload = b"".join([piece async for piece in self._read_row(row, 0, row["size"])])
                found[row["multihash"]] = payload

            await asyncio.gather(*map(one, rows))
        return [found.get(multihash) for multihash in multihashes]

    async def read(self, multihash: bytes, start: int, end: int | None) -> AsyncIterator[bytes]:
        """See `coregw.store.Store.read_payload`."""
        check_range(start, end)
        self.database.require_open()
        while True:
            rows = await self.database.read(
                "SELECT multihash, size, upload, substring(data FROM $2 FOR $3) AS data, $4::int AS data_from "
                "FROM payloads WHERE multihash = $1",
                multihash,
                (first := min(start, CHUNK_BYTES)) + 1,
                CHUNK_BYTES if end is None else max(0, min(end, CHUNK_BYTES) - first),
                first,
            )
            if not rows:
                raise PayloadNotFound(f"no payload has the multihash {multihash.hex()}")
            row = rows[0]
            stop = row["size"] if end is None else min(end, row["size"])
            try:
                async for piece in self._read_row(row, start, stop):
                    start += len(piece)
                    yield piece
                return
            except StoreDamaged:  # or the payload was removed as garbage, and perhaps stored again
                again = await self.database.read("SELECT upload FROM payloads WHERE multihash = $1", multihash)
                if again and again[0][0] == row["upload"]:
                    raise

    async def _read_row(self, row: Any, start: int, stop: int) -> AsyncIterator[bytes]:  # noqa: ANN401 - a row
        """Yield the bytes from `start` to `stop` of the payload of a row."""
        if start >= stop:
            return
        name = row["multihash"].hex()
        if row["upload"] is None:
            offset = start - row.get("data_from", 0)
            piece: bytes = (row["data"] or b"")[offset : offset + stop - start]
            if len(piece) != stop - start:
                raise StoreDamaged(f"the payload {name} has {len(row['data'] or b'')} of {row['size']} bytes")
            yield piece
            return
        while start < stop:
            self.database.require_open()
            number, offset = divmod(start, CHUNK_BYTES)
            size = min(CHUNK_BYTES - offset, stop - start)
            chunk = await self.chunks.get(row["upload"], number, offset, offset + size)
            if chunk is None or len(chunk) != size:
                raise StoreDamaged(f"chunk {number} of the payload {name} is missing or has the wrong size")
            start += size
            yield chunk


class PostgresPayloadWriter(ChunkWriter):
    """One upload; see `coregw.store.PayloadWriter`."""

    def __init__(self, payloads: PostgresPayloads) -> None:
        super().__init__()
        self._payloads = payloads
        self._upload = uuid4()

    async def write(self, chunk: bytes) -> None:
        """See `coregw.store.PayloadWriter.write`."""
        self._payloads.database.require_open()
        self._payloads.room.require(len(chunk))
        await super().write(chunk)

    def _send(self, chunk: bytes) -> asyncio.Future[Any]:
        number = self._sent

        async def send() -> None:
            if number == 0:
                await self._payloads.begin_upload(self._upload)
            await self._payloads.room.watch(self._payloads.chunks.put(self._upload, number, chunk))

        return asyncio.ensure_future(self._payloads.database.to_end(send))

    async def _finish(self, last: bytes, multihash: bytes) -> bool:
        payloads = self._payloads
        payloads.database.require_open()
        payloads.room.require(len(last))
        return await payloads.database.to_end(lambda: self._finish_to_end(last, multihash))

    async def _finish_to_end(self, last: bytes, multihash: bytes) -> bool:
        payloads = self._payloads
        size = self._sent * CHUNK_BYTES + len(last)
        if size <= payloads.chunks.inline_bytes:
            return bool(await payloads.add([(multihash, size, last, None)]))
        if not self._sent:
            await payloads.begin_upload(self._upload)
            self._sent = 1  # so that leaving the block drops it
            await payloads.chunks.put(self._upload, 0, last)
        else:
            await payloads.chunks.put(self._upload, self._sent, last)
        stored = await payloads.add([(multihash, size, None, self._upload)])
        self._is_settled = True
        return bool(stored)

    async def _abort(self) -> None:
        await self._payloads.database.to_end(lambda: self._payloads.drop_upload(self._upload))
