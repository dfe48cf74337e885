"""Frames of HTTP/2 (RFC 9113) as bytes, also such as no library sends."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator

__all__ = [
    "CONTINUATION",
    "DATA",
    "END_HEADERS",
    "END_STREAM",
    "GOAWAY",
    "HEADERS",
    "PING",
    "PREFACE",
    "RST_STREAM",
    "SETTINGS",
    "WINDOW_UPDATE",
    "field_block",
    "frame",
    "frames_of",
]

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, END_HEADERS = 1, 4


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """Return a frame of this type."""
    return len(payload).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + payload


def field_block(fields: Iterable[tuple[str | bytes, str | bytes]]) -> bytes:
    """Return names and values, whatever they contain, as literals without indexing (RFC 7541 section 6.2.2)."""
    return b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)


def _text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    length = len(data)
    if length < 127:
        return bytes([length]) + data
    coded, length = b"\x7f", length - 127
    while length >= 128:
        coded, length = coded + bytes([length & 127 | 128]), length >> 7
    return coded + bytes([length]) + data


def frames_of(connection: socket.socket) -> Iterator[tuple[int, int, int, bytes]]:
    """Receive frames until the connection ends. Yields type, flags, stream and payload of each."""
    received = b""
    while True:
        while len(received) >= 9 and len(received) >= 9 + int.from_bytes(received[:3]):
            size = int.from_bytes(received[:3])
            yield received[3], received[4], int.from_bytes(received[5:9]), received[9 : 9 + size]
            received = received[9 + size :]
        try:
            more = connection.recv(1 << 16)
        except ConnectionResetError:
            return
        if not more:
            return
        received += more
