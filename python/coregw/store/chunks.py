"""Uploads cut into chunks: the part of a `coregw.store.PayloadWriter` that every store shares.

A store's own writer says where a chunk goes (`coregw.store.rocksdb.payloads`, `coregw.store.postgres.payloads`).
"""

from __future__ import annotations

import asyncio
import io
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from coregw.errors import InvalidInput
from coregw.store.protocol import CHUNK_BYTES

__all__ = ["ChunkWriter"]


class ChunkWriter(ABC):
    """One upload; see `coregw.store.PayloadWriter`.

    The next chunk is gathered while the previous one is in flight. The last chunk is sent with the commit, so a payload
    of one chunk takes one message.
    """

    def __init__(self) -> None:
        self._sent = 0
        self._is_settled = False
        """Whether `_abort` would find nothing to drop."""
        self._buffer = io.BytesIO()
        self._in_flight: asyncio.Future[Any] | None = None
        self._has_ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._has_ended = True
        self._buffer.close()
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None and not in_flight.cancel() and not in_flight.cancelled():
            in_flight.exception()  # retrieved, or asyncio would log it
        del in_flight  # its exception refers to the chunk, which is not held while the upload is aborted
        if self._sent and not self._is_settled:
            await self._abort()

    async def write(self, chunk: bytes) -> None:
        """See `coregw.store.PayloadWriter.write`."""
        self._require_open()
        rest = memoryview(chunk)
        while rest:
            # A full chunk is sent only when more bytes follow, so the last chunk is left to the commit.
            if self._buffer.tell() == CHUNK_BYTES:
                await self._send_buffer()
            rest = rest[self._buffer.write(rest[: CHUNK_BYTES - self._buffer.tell()]) :]

    async def commit(self, multihash: bytes) -> bool:
        """See `coregw.store.PayloadWriter.commit`."""
        self._require_open()
        self._has_ended = True
        await self._wait_in_flight()
        return await self._finish(self._buffer.getvalue(), multihash)

    @abstractmethod
    def _send(self, chunk: bytes) -> asyncio.Future[Any]:
        """Send chunk number `_sent`, which is full. The future resolves when the chunk is written, or has failed."""

    @abstractmethod
    async def _finish(self, last: bytes, multihash: bytes) -> bool:
        """Make the chunks sent, and the last one, a payload; True if it is newly stored.

        `last` is empty only if nothing was written at all.
        """

    @abstractmethod
    async def _abort(self) -> None:
        """Drop the chunks sent. One of them may still be in flight."""

    async def _send_buffer(self) -> None:
        try:
            await self._wait_in_flight()
            chunk, self._buffer = self._buffer.getvalue(), io.BytesIO()  # no copy
            self._in_flight = self._send(chunk)
        except BaseException:
            self._has_ended = True  # a chunk is missing
            raise
        self._sent += 1

    async def _wait_in_flight(self) -> None:
        """Wait for the chunk in flight; raises its error."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is not None:
            await in_flight

    def _require_open(self) -> None:
        if self._has_ended:
            raise InvalidInput("the upload has ended: it takes no more bytes and no other commit")
