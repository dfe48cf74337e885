"""Unread responses: how much a client has not read, and whether it reads fast enough."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import termios
from typing import Final

from coregw.gateway.limits.pace import Pace, Rate
from coregw.gateway.limits.unsent import Unsent

__all__ = ["Outgoing", "reset"]

_MIN_WAIT_SECONDS: Final = 1.0
_INT: Final = struct.Struct("i")
_NO_LINGER: Final = struct.pack("ii", 1, 0)


class Outgoing:
    """The unread bytes of one connection, from the moment they are many until they are few.

    It disconnects a client that reads too slowly. Bytes count as read when the client's system has acknowledged them:
    a connection's send buffer holds megabytes, so a slow reader makes no progress that the process could see otherwise.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        part_bytes: int,
        rate: Rate,
        unsent: Unsent,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Begin to watch; `stop` must be called.

        Args:
            transport: The connection.
            part_bytes: What it holds until it has no unsent bytes.
            rate: The pace at which the client has to read.
            unsent: Counts what all connections hold.
            loop: The event loop.
        """
        now = loop.time()
        self._transport = transport
        self._part_bytes = part_bytes
        self._unsent = unsent
        self._loop = loop
        self._wait = min(_MIN_WAIT_SECONDS, rate.pause_seconds)
        self._pace = Pace(rate, now)
        self._left = self._unread()
        self._read_at = now
        self._timer = loop.call_at(self._pace.deadline, self._check)
        unsent.hold(self, self._held(), now)

    def stop(self) -> None:
        """Stop watching: the client has read enough, or is gone."""
        self._timer.cancel()
        self._unsent.release(self)

    def update(self, now: float) -> tuple[int, float]:
        """Return the bytes in the process's memory that the client keeps there, and when it last made progress."""
        left = self._unread()
        if left < self._left:
            self._pace.move(self._left - left, now)
            self._read_at = now
        self._left = left
        return self._held(), self._read_at

    def reset(self) -> None:
        """Disconnect the client at once."""
        self.stop()
        reset(self._transport)

    def _check(self) -> None:
        now = self._loop.time()
        size, _ = self.update(now)
        if self._pace.deadline <= now:
            self._unsent.slow += 1
            self.reset()
            return
        self._timer = self._loop.call_at(max(self._pace.deadline, now + self._wait), self._check)
        self._unsent.hold(self, size, now)

    def _held(self) -> int:
        return max(self._transport.get_write_buffer_size(), self._part_bytes)

    def _unread(self) -> int:
        return self._transport.get_write_buffer_size() + _queued(self._transport)


def _queued(transport: asyncio.Transport) -> int:
    """Return the bytes that the system has taken, and the client's system has not acknowledged."""
    try:
        found = fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(_INT.size))
    except (OSError, ValueError):  # closed already, so its number is invalid
        return 0
    return int(_INT.unpack(found)[0])


def reset(transport: asyncio.Transport) -> None:
    """End a connection with a RST, so that the kernel frees what the client does not read."""
    connection = transport.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
