"""Uploads in chunks, for stores that send each somewhere: how bytes are gathered, and how an upload ends.

Leaves out where the chunks go, which a store's own writer says (`coregw.store._rocks_payloads`, `coregw.store.remote`).
"""

from __future__ import annotations

import asyncio
import io
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, Self

from coregw.errors import InvalidInput
from coregw.store import CHUNK_BYTES


def check_one_chunk(data: bytes) -> None:
    """Refuses a payload that is longer than `Store.put_payload` takes (`InvalidInput`)."""
    if len(data) > CHUNK_BYTES:
        raise InvalidInput(f"the payload has {len(data):,} bytes; at most {CHUNK_BYTES:,} are put at once")


class ChunkWriter(ABC):
    """One upload; see `coregw.store.PayloadWriter`.

    While one chunk is on its way, the next one is gathered. The last one is not sent by itself: the commit takes it
    along, so that a payload of one chunk is one message.
    """

    def __init__(self) -> None:
        self._sent = 0
        self._settled = False  # whether there is nothing left that `_abort` would have to drop
        self._buffer = io.BytesIO()
        self._under_way: asyncio.Future[Any] | None = None
        self._ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._buffer.close()
        under_way = self._under_way
        if under_way is not None and not under_way.cancel() and not under_way.cancelled():
            under_way.exception()  # nobody else will hear of it
        if self._sent and not self._settled:
            await self._abort()

    async def write(self, chunk: bytes) -> None:
        """See `coregw.store.PayloadWriter.write`."""
        self._require_open()
        rest = memoryview(chunk)
        while rest:
            # A full chunk is sent when more follows, so that the last one never is.
            if self._buffer.tell() == CHUNK_BYTES:
                await self._send_on()
            rest = rest[self._buffer.write(rest[: CHUNK_BYTES - self._buffer.tell()]) :]

    async def commit(self, multihash: bytes) -> bool:
        """See `coregw.store.PayloadWriter.commit`."""
        self._require_open()
        self._ended = True
        await self._arrived()
        return await self._finish(self._buffer.getvalue(), multihash)

    @abstractmethod
    def _send(self, chunk: bytes) -> asyncio.Future[Any]:
        """Sends chunk number `_sent`, which is full; the future ends when it has arrived, or has its error."""

    @abstractmethod
    async def _finish(self, last: bytes, multihash: bytes) -> bool:
        """Makes what was sent, and the last chunk (perhaps empty), a payload; True if it is newly stored."""

    @abstractmethod
    async def _abort(self) -> None:
        """Drops what was sent. Nobody will hear of the chunk that is on its way, if one is."""

    async def _send_on(self) -> None:
        try:
            await self._arrived()
            chunk, self._buffer = self._buffer.getvalue(), io.BytesIO()  # no copy
            self._under_way = self._send(chunk)
        except BaseException:
            self._ended = True  # a chunk is missing now
            raise
        self._sent += 1

    async def _arrived(self) -> None:
        """Waits for the chunk that is on its way; raises what went wrong with it."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            await under_way

    def _require_open(self) -> None:
        if self._ended:
            raise InvalidInput("the upload has ended: nothing can be written to it or committed")
