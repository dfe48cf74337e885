"""Length-prefixed MessagePack frames on a connected Unix socket.

Both ends are coregw's own, so nothing here guards against a malicious peer; asyncio reports one that has gone
(`connection_lost`).
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from typing import Any, Final, Self, cast

import msgspec

__all__ = ["FrameProtocol"]

_HEADER_BYTES: Final = 4
_ENCODER: Final = msgspec.msgpack.Encoder()


class FrameProtocol(asyncio.Protocol, ABC):
    """One end of a connection. A subclass defines what happens to received frames."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._has_ended = asyncio.Event()

    async def connect(self, connection: socket.socket) -> Self:
        """Take over a connected Unix socket."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=connection)
        return self

    @abstractmethod
    def frame_received(self, frame: bytes) -> None:
        """Handle a complete frame. Must be quick."""

    def send(self, message: Any) -> None:  # noqa: ANN401 - anything that MessagePack can encode
        """Send a message. It is buffered as long as the other end is busy, so the caller bounds how many there are."""
        frame = bytearray(_HEADER_BYTES)
        _ENCODER.encode_into(message, frame, _HEADER_BYTES)
        frame[:_HEADER_BYTES] = (len(frame) - _HEADER_BYTES).to_bytes(_HEADER_BYTES, "big")
        if self._transport is not None and not self._has_ended.is_set():
            self._transport.write(frame)

    def hang_up(self) -> None:
        """Close the connection after sending what is buffered."""
        if self._transport is not None:
            self._transport.close()

    async def wait_ended(self) -> None:
        """Return when the connection has ended, closed by either end."""
        await self._has_ended.wait()

    # --- called by the event loop -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102 - asyncio's
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:  # noqa: D102 - asyncio's
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= _HEADER_BYTES:
            start = at + _HEADER_BYTES
            end = start + int.from_bytes(buffer[at:start], "big")
            if len(buffer) < end:
                break
            self.frame_received(bytes(memoryview(buffer)[start:end]))
            at = end
        del buffer[:at]

    def connection_lost(self, error: Exception | None) -> None:  # noqa: D102 - asyncio's
        self._has_ended.set()
