"""Length-prefixed MessagePack frames on a connected Unix socket.

Short messages overtake long ones that wait to be sent: a call that takes a millisecond would otherwise wait until the
payloads of all uploads before it have passed the socket, which has room for a part of one only.

Both ends are coregw's own, so nothing here guards against a malicious peer; asyncio reports one that has gone
(`connection_lost`).
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Final, Self, cast

import msgspec

__all__ = ["FrameProtocol"]

_HEADER_BYTES: Final = 4

_LONG_BYTES: Final = 64 << 10
"""A longer message is sent when less than this is buffered; shorter ones at once."""

_ENCODER: Final = msgspec.msgpack.Encoder()


class FrameProtocol(asyncio.Protocol, ABC):
    """One end of a connection. A subclass defines what happens to received frames."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._long: deque[bytearray] = deque()
        self._is_paused = False
        self._has_ended = asyncio.Event()

    async def connect(self, connection: socket.socket) -> Self:
        """Take over a connected Unix socket."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self, sock=connection)
        return self

    @abstractmethod
    def frame_received(self, frame: bytes) -> None:
        """Handle a complete frame. Must be quick."""

    def send(self, message: Any, *, is_ordered: bool = False) -> None:  # noqa: ANN401 - anything that MessagePack can encode
        """Send a message. It is buffered as long as the other end is busy, so the caller bounds how many there are.

        Args:
            message: The message.
            is_ordered: Whether it must not overtake earlier messages, as a short one may.
        """
        frame = bytearray(_HEADER_BYTES)
        _ENCODER.encode_into(message, frame, _HEADER_BYTES)
        frame[:_HEADER_BYTES] = (len(frame) - _HEADER_BYTES).to_bytes(_HEADER_BYTES, "big")
        if self._transport is None or self._has_ended.is_set():
            return
        if (self._is_paused or self._long) and (is_ordered or len(frame) > _LONG_BYTES):
            self._long.append(frame)
        else:
            self._transport.write(frame)

    def hang_up(self) -> None:
        """Close the connection after sending what is buffered."""
        if self._transport is not None:
            while self._long:
                self._transport.write(self._long.popleft())
            self._transport.close()

    async def wait_ended(self) -> None:
        """Return when the connection has ended, closed by either end."""
        await self._has_ended.wait()

    # --- called by the event loop -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # noqa: D102 - asyncio's
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_LONG_BYTES)

    def pause_writing(self) -> None:  # noqa: D102 - asyncio's
        self._is_paused = True

    def resume_writing(self) -> None:  # noqa: D102 - asyncio's
        self._is_paused = False
        while self._long and not self._is_paused and self._transport is not None:
            self._transport.write(self._long.popleft())

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
        self._long.clear()
        self._has_ended.set()
