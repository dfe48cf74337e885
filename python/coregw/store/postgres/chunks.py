"""Chunks of uploads: in rows of the database here, or in a bucket (`coregw.store.postgres.bucket`)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol
from uuid import UUID

from coregw.errors import Unavailable
from coregw.store import CHUNK_BYTES
from coregw.store.postgres.connections.database import Database

__all__ = ["Chunks", "RowChunks", "drop_upload", "drop_uploads"]


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

    def __init__(self, database: Database) -> None:
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


async def drop_upload(database: Database, chunks: Chunks, upload: UUID) -> None:
    """Remove the chunks of an upload that is listed as dropped, and then its row."""
    await chunks.drop(upload)
    await database.write("DELETE FROM uploads WHERE upload = $1 AND is_dropped", upload)


async def drop_uploads(database: Database, chunks: Chunks, uploads: Sequence[UUID]) -> None:
    """Remove the chunks of dropped uploads; a failure leaves the rest to the sweep."""
    with suppress(Unavailable):
        await asyncio.gather(*(drop_upload(database, chunks, upload) for upload in uploads))
