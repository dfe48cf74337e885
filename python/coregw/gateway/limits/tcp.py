"""State of a TCP connection in the kernel. Sockets of another kind, or on another system than Linux, look open."""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from typing import Final

__all__ = ["CONTINUE", "arrived_bytes", "is_half_closed", "is_reset"]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""Tells a client that has closed its side to read from one that has gone, whose system answers with a reset.

Any client of HTTP/1.1 may get this interim response, and ignores it (RFC 9110 section 15.2.1).
"""

_INT: Final = struct.Struct("i")

_CLOSE: Final = 7  # linux/include/net/tcp_states.h
_CLOSE_WAIT: Final = 8


def is_reset(connection: socket.socket) -> bool:
    """Whether the peer has reset a connection, so that it can neither read nor write."""
    return _state(connection) == _CLOSE


def is_half_closed(connection: socket.socket) -> bool:
    """Whether the peer has closed its side of a connection. It may read, or have gone without reading."""
    return _state(connection) == _CLOSE_WAIT


def arrived_bytes(connection: socket.socket) -> int:
    """Return how many bytes wait to be read."""
    try:
        found = fcntl.ioctl(connection, termios.FIONREAD, bytes(_INT.size))
    except OSError:
        return 0
    return int(_INT.unpack(found)[0])


def _state(connection: socket.socket) -> int | None:
    """Return the TCP state; None if it is another kind of socket, or the system does not tell."""
    if connection.family == socket.AF_UNIX or not hasattr(socket, "TCP_INFO"):
        return None
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return None
