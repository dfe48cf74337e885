"""Messages between two processes of one machine: each with its length before it, on a connected socket.

What a message means is its users' (`coregw.store.sharing`, `coregw.store.remote`). Both ends are coregw's own, so that
nothing here guards against a peer that lies; of a peer that is gone asyncio tells (`connection_lost`).
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from typing import Any, Final, Self, cast

import msgspec

_HEADER: Final = 4
_ENCODER: Final = msgspec.msgpack.Encoder()


class Frames(asyncio.Protocol, ABC):
    """One end of a connection. A subclass says what happens to what arrives."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._writable = asyncio.Event()
        self._writable.set()
        self._ended = asyncio.Event()

    async def connect(self, connection: socket.socket) -> Self:
        """Takes over a connected Unix socket."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=connection)
        return self

    @abstractmethod
    def received(self, frame: bytes) -> None:
        """Called with each whole message. Must be quick."""

    async def send(self, message: Any) -> None:  # noqa: ANN401 - anything that MessagePack has
        """Sends a message, all of it or nothing; returns when the other end does not lag behind by much."""
        frame = bytearray(_HEADER)
        _ENCODER.encode_into(message, frame, _HEADER)
        frame[:_HEADER] = (len(frame) - _HEADER).to_bytes(_HEADER, "big")
        if self._transport is not None and not self._ended.is_set():
            self._transport.write(frame)
        await self._writable.wait()

    def hang_up(self) -> None:
        """Ends the connection, once what was sent is gone."""
        if self._transport is not None:
            self._transport.close()

    async def hung_up(self) -> None:
        """Returns when the connection has ended, from whichever end."""
        await self._ended.wait()

    # --- called by the event loop -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= _HEADER:
            start = at + _HEADER
            end = start + int.from_bytes(buffer[at:start], "big")
            if len(buffer) < end:
                break
            self.received(bytes(memoryview(buffer)[start:end]))
            at = end
        del buffer[:at]

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()
        self._writable.set()
