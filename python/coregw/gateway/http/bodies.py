"""Request bodies, bounded in size and, over all requests, in memory.

Litestar's body parsing is not used: it turns malformed text into a 500, and applies one limit to all routes. Deadlines
are enforced by the connection (`coregw.gateway.http.connection`), which reports a missed one through an `Arrival`.
"""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TYPE_CHECKING

from coregw.engine.scheduling import CALLER, ClientDisconnected
from coregw.errors import TooLarge
from coregw.gateway.http.requests import declared_length
from coregw.gateway.limits.arrival import arrival_of
from coregw.gateway.limits.memory import SMALL_BYTES, Account, BodyMemory
from coregw.gateway.limits.peers import peer_of
from coregw.gateway.metrics import BODIES

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive

__all__ = ["Bodies"]


class Bodies:
    """Reads request bodies. A gateway has one instance, since the limit on memory holds for all requests together."""

    def __init__(self, memory: BodyMemory) -> None:
        """Args: the memory of all request bodies."""
        self._memory = memory

    @property
    def held(self) -> int:
        """The bytes of all request bodies in memory."""
        return self._memory.held

    @contextmanager
    def streamed(
        self, scope: HTTPScope, receive: Receive, limit: int, *, buffered: int, factor: int = 1
    ) -> Iterator[AsyncIterator[bytes]]:
        """Return a context with the body's chunks, none of them empty, as they arrive.

        Args:
            scope: The ASGI scope of the request.
            receive: Its ASGI receive channel, not read from yet.
            limit: Limit on the length of the body.
            buffered: The most memory that the reader of the chunks needs for them, in bytes.
            factor: How many bytes of memory it may need for a byte of the body, until it needs that.

        Raises:
            TooLarge: If Content-Length is more than `limit`; then nothing is read. The chunks raise it if the body is
                longer than `limit`, as well as what `whole` raises.
        """
        body = _Incoming(scope, receive, limit)
        account = _account(self._memory, scope)
        try:
            yield _counted(body, account, buffered, factor)
        finally:
            account.close()

    def whole(self, scope: HTTPScope, receive: Receive, limit: int) -> AbstractAsyncContextManager[bytes]:
        """Return a context manager that reads the whole body and counts its memory until it exits.

        What the engine does with it is dropped if the client disconnects.

        Raises:
            TooLarge: If the body is longer than `limit`. If Content-Length says so, nothing is read.
            Unavailable: If all request bodies together, or those of one address, exceed their limit.
            InvalidInput: If the body misses a deadline.
            ClientDisconnected: If the client disconnects.
        """
        return _Whole(self._memory, scope, _Incoming(scope, receive, limit))


def _account(memory: BodyMemory, scope: HTTPScope) -> Account:
    return memory.account(peer_of(scope).address, arrival_of(scope))


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
        if self.has_more and (arrival := arrival_of(self._scope)) is not None and arrival.failure is not None:
            raise arrival.failure
        chunk = message.get("body", b"")
        self._length += len(chunk)
        if self._length > self._limit:
            raise _too_large(self._limit)
        if not self.has_more:
            BODIES.add(self._length)
        return chunk

    async def take_turn(self, size: int) -> None:
        """Wait until the event loop has time for a chunk of this many bytes, which are counted already.

        Raises:
            ClientDisconnected: If the client disconnects meanwhile.
        """
        peer = peer_of(self._scope)
        if await peer.share.wait(size) and peer.has_left():
            raise ClientDisconnected("the client disconnected before its request body was read")


async def _counted(body: _Incoming, account: Account, buffered: int, factor: int) -> AsyncIterator[bytes]:
    while body.has_more:
        if chunk := await body.next_chunk():
            further = min(len(chunk) * factor, buffered - account.held)
            if further > 0:
                account.add(further)
            await body.take_turn(len(chunk))
            yield chunk


class _Whole(AbstractAsyncContextManager[bytes]):
    """See `Bodies.whole`."""

    __slots__ = ("_account", "_incoming", "_memory", "_scope", "_small")

    def __init__(self, memory: BodyMemory, scope: HTTPScope, incoming: _Incoming) -> None:
        self._memory = memory
        self._scope = scope
        self._incoming = incoming
        self._small = 0  # the size of a body that needs no account, since it is complete
        self._account: Account | None = None

    async def __aenter__(self) -> bytes:
        CALLER.set(peer_of(self._scope))  # each request is a task of its own, with its own context
        first = await self._incoming.next_chunk()
        if not self._incoming.has_more and len(first) <= SMALL_BYTES:
            self._memory.count(len(first))
            self._small = len(first)
            return first
        self._account = _account(self._memory, self._scope)
        try:
            self._account.add(len(first))
            await self._incoming.take_turn(len(first))
            return await self._joined(first, self._account) if self._incoming.has_more else first
        except BaseException:
            self._account.close()
            raise

    async def _joined(self, first: bytes, account: Account) -> bytes:
        buffer = io.BytesIO()
        buffer.write(first)
        while self._incoming.has_more:
            chunk = await self._incoming.next_chunk()
            account.add(len(chunk))
            await self._incoming.take_turn(len(chunk))
            buffer.write(chunk)
        return buffer.getvalue()  # shares the buffer's memory instead of copying a large body

    async def __aexit__(self, *_: object) -> None:
        if self._account is None:
            self._memory.count(-self._small)
        else:
            self._account.close()


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the request body is longer than the limit of {limit} bytes")
