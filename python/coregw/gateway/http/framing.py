"""Parsing that `GatewayProtocol` adds: checks of heads, limited trailers, ignored upgrades, paused reading."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, NamedTuple

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from coregw._core import Origins

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent, HTTPResponseBodyEvent

__all__ = [
    "HEAD_END",
    "SHORTEST_HEAD",
    "Cycle",
    "Fault",
    "HeldFlow",
    "Rejected",
    "Trailers",
    "check_head",
    "head_without_upgrade",
    "replace_host",
]

HEAD_END: Final = b"\r\n\r\n"
"""What every head ends with; the parser accepts no other line ends."""

SHORTEST_HEAD: Final = len(b"GET / HTTP/1.0\r\n\r\n")
"""The least number of bytes that a request takes."""

_HOST: Final = re.compile(rb"[0-9A-Za-z!$&'()*+,;=\-._~:\[\]@%]*")
"""The characters of a Host (RFC 3986 section 3.2)."""
_AUTHORITY: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.\-]*://([^/?#]*)")
"""The start of a target in absolute form (RFC 9112 section 3.2.2), with what stands for Host."""
_CHECKED: Final = frozenset([b"host", b"content-length", b"transfer-encoding", b"origin", b"sec-fetch-site"])
"""The headers that `check_head` looks at."""

_MAX_DIGITS: Final = 20  # of a Content-Length; the parser accepts values below 2^64, with any number of zeros before

_WRITE_BUFFER_BYTES: Final = 16 << 10
"""Unsent bytes of a connection that do not count; with more, nothing further is written."""

_LARGE_BYTES: Final = _WRITE_BUFFER_BYTES
"""A part of a body from this size on is not copied to be sent with its chunk head, and counts until it is freed."""

_Headers = list[tuple[bytes, bytes]]


class Fault(NamedTuple):
    """Why a request is refused: a key of `coregw.errors.ERROR_CODES`, and a sentence."""

    code: str
    message: str


class Rejected(Exception):
    """Stops the parser. Its text is the reason for the 400."""


class Trailers(_Headers):
    """Stands in for a request's headers after its head: discards trailers, up to a limit on their bytes."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__()
        self.size = 0
        self._max_bytes = max_bytes

    def append(self, field: tuple[bytes, bytes]) -> None:
        """Count one trailer."""
        self.size += len(field[0]) + len(field[1])
        if self.size > self._max_bytes:
            raise Rejected(f"the trailers are longer than the limit of {self._max_bytes} bytes")


class Cycle(RequestResponseCycle):
    """uvicorn's, but that large parts of a chunked body are sent without a copy, and that `HeldFlow` counts them."""

    flow: HeldFlow

    def send(self, message: ASGISendEvent) -> Awaitable[None]:  # type: ignore[override]
        """ASGI send."""
        if message["type"] == "http.response.body" and self.scope["method"] != "HEAD":
            size = len(message.get("body", b""))
            if size >= _LARGE_BYTES:
                return self._send_large(message, size)
        return super().send(message)

    async def _send_large(self, message: HTTPResponseBodyEvent, size: int) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected or self.response_complete:
            return
        self.flow.part_bytes = size
        if message.get("more_body") and self.chunked_encoding:
            self.transport.writelines((b"%x\r\n" % size, message["body"], b"\r\n"))
        else:
            await super().send(message)
        self.flow.settle()


class HeldFlow(FlowControl):
    """Flow control that knows what a transport holds, and can stop reading although applications wait for bodies.

    A transport holds all of a large part of a body until the system has taken its last byte. So nothing is written
    after it until then, and all of it counts.

    Attributes:
        holds: Whether reading stays stopped.
        part_bytes: The size of a large part that the transport holds; 0 if there is none.
    """

    holds = False
    part_bytes = 0

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__(transport)
        transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)

    def settle(self) -> None:
        """Pause writing if the transport holds a part that has been written. Idempotent."""
        if self.part_bytes:
            if self._transport.get_write_buffer_size():
                self._transport.set_write_buffer_limits(0)
            else:
                self.part_bytes = 0

    def resume_writing(self) -> None:
        """Note that the transport holds no large part."""
        super().resume_writing()
        if self.part_bytes:
            self.part_bytes = 0
            self._transport.set_write_buffer_limits(_WRITE_BUFFER_BYTES)

    def hold(self) -> None:
        """Stop reading until `holds` is false and `resume_reading` is called."""
        self.holds = True
        self.pause_reading()

    def resume_reading(self) -> None:
        """Read again, unless `holds` is true. Called when an application receives, and when it has responded."""
        if self.read_paused and not self.holds:
            super().resume_reading()


def check_head(
    method: bytes, target: bytes, headers: _Headers, origins: Origins, *, is_http_1_1: bool, max_bytes: int
) -> tuple[int, Fault | None]:
    """Check the head of a request. Return its Content-Length, or 0, and why `origins` refuses it, if it does.

    Raises:
        Rejected: If it is too long, has not exactly one valid Host, or a transfer coding other than chunked.
    """
    size = len(target)
    hosts = length = 0
    host: bytes | None = None
    codings: list[bytes] = []
    origin = site = None
    for name, value in headers:
        size += len(name) + len(value)
        if name not in _CHECKED:
            continue
        if name == b"host":
            hosts += 1
            host = value
            if _HOST.fullmatch(value) is None:
                raise Rejected("invalid Host header")
        elif name == b"content-length":
            if len(value) > _MAX_DIGITS:
                raise Rejected(f"Content-Length has {len(value)} digits, expected at most {_MAX_DIGITS}")
            length = int(value)
        elif name == b"transfer-encoding":
            codings.append(value.strip().lower())
        elif name == b"origin":
            origin = value
        else:
            site = value
    if size > max_bytes:
        raise Rejected(f"the request line and headers are longer than the limit of {max_bytes} bytes")
    if hosts > 1 or (is_http_1_1 and not hosts):
        raise Rejected(f"{hosts} Host headers, expected exactly one")
    if codings and not (is_http_1_1 and codings == [b"chunked"]):  # another coding would be stored undecoded
        raise Rejected("unsupported Transfer-Encoding, expected chunked in HTTP/1.1")
    refusal = origins.refusal(method, host, origin, site)
    return length, None if refusal is None else Fault(*refusal)


def replace_host(target: bytes, headers: _Headers, *, is_http_1_1: bool) -> None:
    """Replace the value of Host by the authority of a target in absolute form (RFC 9112 section 3.2.2), if it is one.

    HTTP/1.0 may leave Host out; then it is added. An invalid or missing Host stays one, for `check_head` to refuse.

    Raises:
        Rejected: If the authority is empty or has user information.
    """
    if target[:1] == b"/" or (absolute := _AUTHORITY.match(target)) is None:
        return
    authority = absolute[1]
    if not authority or b"@" in authority:
        raise Rejected("invalid authority in the request target")
    if not is_http_1_1 and all(name != b"host" for name, _ in headers):
        headers.append((b"host", authority))
    for place, (name, value) in enumerate(headers):
        if name == b"host" and _HOST.fullmatch(value) is not None:
            headers[place] = (name, authority)


def head_without_upgrade(method: bytes, target: bytes, version: str, headers: _Headers) -> bytes:
    """Return a request's head without its Upgrade header, which the gateway ignores (RFC 9110 section 7.8)."""
    lines = [b"%b %b HTTP/%b" % (method, target, version.encode())]
    lines += [b"%b: %b" % (name, value) for name, value in headers if name != b"upgrade"]
    return b"\r\n".join(lines) + HEAD_END
