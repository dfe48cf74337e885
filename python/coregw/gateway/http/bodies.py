"""Request bodies, bounded in size and, over all requests, in memory.

Litestar's body parsing is not used: it turns malformed text into a 500, and applies one limit to all routes. Deadlines
are enforced by the connection (`coregw.gateway.http.connection`), which reports a missed one through the scope.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING, Final

from coregw.errors import InvalidInput, TooLarge, Unavailable
from coregw.gateway.http.requests import declared_length
from coregw.gateway.metrics.requests import BODIES

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive

__all__ = ["BODY_OVERDUE", "Bodies", "ClientDisconnected"]

BODY_OVERDUE: Final = "coregw.body_overdue"
"""The ASGI extension that the connection adds to the scope when a request body misses its deadline."""


class ClientDisconnected(InvalidInput):
    """A client that disconnected before its request body was complete. Nobody reads the response."""


class Bodies:
    """Reads request bodies. A gateway has one instance, since the limit on memory holds for all requests together."""

    def __init__(self, buffered_bytes: int) -> None:
        """Begin with an empty buffer.

        Args:
            buffered_bytes: Limit on the memory of all request bodies together.
        """
        self._max_buffered = buffered_bytes
        self._buffered = 0

    async def chunks(self, scope: HTTPScope, receive: Receive, limit: int) -> AsyncIterator[bytes]:
        """Yield the body in non-empty chunks as they arrive.

        Args:
            scope: The ASGI scope of the request.
            receive: Its ASGI receive channel, not read from yet.
            limit: Limit on the length of the body.

        Raises:
            TooLarge: If the body is longer than `limit`. If Content-Length says so, nothing is read.
            InvalidInput: If the body misses a deadline.
            ClientDisconnected: If the client disconnects.
        """
        body = _Incoming(scope, receive, limit)
        while body.has_more:
            if chunk := await body.next_chunk():
                yield chunk

    def whole(self, scope: HTTPScope, receive: Receive, limit: int) -> AbstractAsyncContextManager[bytes]:
        """Return a context manager that reads the whole body and counts its memory until it exits.

        Raises:
            Unavailable: If all request bodies together exceed their limit.
            InvalidInput: As `chunks`.
        """
        return _Whole(self, _Incoming(scope, receive, limit))

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Count `size` bytes while the context is active, for a body that is streamed.

        Raises:
            Unavailable: If all request bodies together exceed their limit.
        """
        self.count(size)
        try:
            yield
        finally:
            self.count(-size)

    def count(self, size: int) -> None:
        """Count `size` further bytes as in use; fewer if it is negative.

        Raises:
            Unavailable: If all request bodies together exceed their limit.
        """
        if size > 0 and self._buffered + size > self._max_buffered:
            raise Unavailable("request bodies exceed the gateway's memory for them; retry later")
        self._buffered += size


class _Incoming:
    """A request body that is being received."""

    __slots__ = ("_length", "_limit", "_receive", "_scope", "has_more")

    def __init__(self, scope: HTTPScope, receive: Receive, limit: int) -> None:
        if (declared_length(scope) or 0) > limit:
            raise _too_large(limit)
        self._scope = scope
        self._receive = receive
        self._limit = limit
        self._length = 0
        self.has_more = True

    async def next_chunk(self) -> bytes:
        """Receive the next chunk, which may be empty, and update `has_more`."""
        message = await self._receive()
        if message["type"] != "http.request":
            raise ClientDisconnected("the client disconnected before its request body was complete")
        self.has_more = message.get("more_body", False)
        if self.has_more and BODY_OVERDUE in (self._scope.get("extensions") or ()):
            raise InvalidInput("the request body did not arrive in time")
        chunk = message.get("body", b"")
        self._length += len(chunk)
        if self._length > self._limit:
            raise _too_large(self._limit)
        if not self.has_more:
            BODIES.add(self._length)
        return chunk


class _Whole(AbstractAsyncContextManager[bytes]):
    """See `Bodies.whole`."""

    __slots__ = ("_bodies", "_counted", "_incoming")

    def __init__(self, bodies: Bodies, incoming: _Incoming) -> None:
        self._bodies = bodies
        self._incoming = incoming
        self._counted = 0

    async def __aenter__(self) -> bytes:
        try:
            first = await self._next_chunk()
            return await self._joined(first) if self._incoming.has_more else first
        except BaseException:
            self._bodies.count(-self._counted)
            raise

    async def _joined(self, first: bytes) -> bytes:
        buffer = io.BytesIO()
        buffer.write(first)
        while self._incoming.has_more:
            buffer.write(await self._next_chunk())
        return buffer.getvalue()  # shares the buffer's memory instead of copying a large body

    async def _next_chunk(self) -> bytes:
        chunk = await self._incoming.next_chunk()
        self._bodies.count(len(chunk))
        self._counted += len(chunk)
        return chunk

    async def __aexit__(self, *_: object) -> None:
        self._bodies.count(-self._counted)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the request body is longer than the limit of {limit} bytes")
