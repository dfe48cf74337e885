"""HTTP requests: headers, media types, query parameters, and bodies that are bounded in size and in memory.

Litestar's body parsing is not used: it turns malformed text into a 500, and applies one limit to all routes. Deadlines
are the front's, which drops the connection of a client that misses one.
"""

from __future__ import annotations

import io
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from coregw._core import is_media_type, negotiate
from coregw.engine.scheduling import CALLER, ClientDisconnected
from coregw.errors import InvalidInput, TooLarge
from coregw.gateway.limits.arrival import arrival_of
from coregw.gateway.limits.memory import SMALL_BYTES, Account, BodyMemory
from coregw.gateway.limits.peers import peer_of
from coregw.gateway.metrics import BODIES

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive

__all__ = [
    "Bodies",
    "check_content_coding",
    "check_json_type",
    "check_payload_type",
    "declared_length",
    "has_media_type",
    "header",
    "header_bytes",
    "preferred",
    "query_integer",
    "query_parameters",
]

_JSON: Final = "application/json"
_INTEGER: Final = re.compile("0|[1-9][0-9]{0,15}")
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def header(scope: HTTPScope, name: bytes) -> str | None:
    """Return a header's value, several joined with commas; None if the request has no such header.

    Args:
        scope: The ASGI scope.
        name: The header's name in lower case.
    """
    value = header_bytes(scope, name)
    return None if value is None else value.decode("latin-1")


def header_bytes(scope: HTTPScope, name: bytes) -> bytes | None:
    """Return a header's value as `header` does, undecoded."""
    values = [value for each, value in scope["headers"] if each == name]
    return b", ".join(values) if values else None


def declared_length(scope: HTTPScope) -> int | None:
    """Return the Content-Length in bytes, which the server has validated; None if there is none."""
    declared = header(scope, b"content-length")
    return int(declared) if declared else None


def check_json_type(scope: HTTPScope) -> None:
    """Check that the body is ``application/json`` in UTF-8, or has no Content-Type.

    Raises:
        InvalidInput: If it has another type or is compressed (code ``unsupported_media_type``).
    """
    given = header(scope, b"content-type")
    if given and given != _JSON and not has_media_type(scope, f"{_JSON}; charset=utf-8"):
        raise InvalidInput(f"Content-Type is {given!r:.200}, expected application/json", code="unsupported_media_type")
    check_content_coding(scope)


def check_payload_type(scope: HTTPScope) -> None:
    """Check that the body is a payload of any type, as it is: not compressed, and not the parts of a form.

    Raises:
        InvalidInput: If it is either (code ``unsupported_media_type``).
    """
    given = header(scope, b"content-type")
    if given and given.lstrip().lower().startswith("multipart/"):
        message = f"Content-Type is {given!r:.200}; a payload is sent as it is, not as a part of a form"
        raise InvalidInput(message, code="unsupported_media_type")
    check_content_coding(scope)


def has_media_type(scope: HTTPScope, *offers: str) -> bool:
    """Whether the body's Content-Type is one of some media types; false if there is none. O(length).

    Args:
        scope: The ASGI scope.
        offers: Media types with the parameters that they may have (`coregw._core.is_media_type`).
    """
    given = header_bytes(scope, b"content-type")
    return given is not None and is_media_type(given, list(offers))


def preferred(scope: HTTPScope, *offers: str) -> int | None:
    """Return the index of the media type that Accept wants most; None if it wants none of them or is absent.

    Args:
        scope: The ASGI scope.
        offers: Media types with their parameters (`coregw._core.negotiate`).
    """
    accept = header_bytes(scope, b"accept")
    return None if accept is None else negotiate(accept, list(offers))


def check_content_coding(scope: HTTPScope) -> None:
    """Check that the body is not compressed.

    Raises:
        InvalidInput: If it has a Content-Encoding other than identity (code ``unsupported_media_type``).
    """
    coding = header(scope, b"content-encoding")
    if coding and coding.strip().lower() not in ("", "identity"):
        raise InvalidInput(f"Content-Encoding is {coding!r:.200}, expected none", code="unsupported_media_type")


def query_parameters(scope: HTTPScope, *allowed: str) -> dict[str, str]:
    """Return the query parameters by name.

    Raises:
        InvalidInput: If a parameter is unknown or repeated, or the query is not percent-encoded UTF-8.
    """
    text = scope["query_string"].decode("latin-1")
    if not text:
        return {}
    if _BAD_ESCAPE.search(text) or not text.isascii():
        raise InvalidInput("query string: not percent-encoded")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=16)
    except (ValueError, UnicodeDecodeError):
        raise InvalidInput("query string: not a list of name=value pairs in percent-encoded UTF-8") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in allowed:
            expected = f"expected {' or '.join(allowed)}" if allowed else "this route has none"
            raise InvalidInput(f"unknown query parameter {name!r:.100}; {expected}")
        if name in found:
            raise InvalidInput(f"query parameter {name!r} is repeated")
        found[name] = value
    return found


def query_integer(name: str, text: str, minimum: int, maximum: int) -> int:
    """Return a query parameter that is an integer within bounds, both inclusive. Raises `InvalidInput`."""
    if not _INTEGER.fullmatch(text) or not minimum <= int(text) <= maximum:
        raise InvalidInput(f"query parameter {name!r} is {text!r:.100}, expected {minimum} to {maximum}")
    return int(text)


# --- bodies -----------------------------------------------------------------------------------------------------------


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
        return _Whole(self._memory, scope, receive, limit)


def _account(memory: BodyMemory, scope: HTTPScope) -> Account:
    return memory.account(peer_of(scope).address, arrival_of(scope))


class _Incoming:
    """A request body that is being received."""

    __slots__ = ("_length", "_limit", "_receive", "has_more")

    def __init__(self, scope: HTTPScope, receive: Receive, limit: int) -> None:
        if (declared_length(scope) or 0) > limit:
            raise _too_large(limit)
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
        chunk = message.get("body", b"")
        self._length += len(chunk)
        if self._length > self._limit:
            raise _too_large(self._limit)
        if not self.has_more:
            BODIES.add(self._length)
        return chunk


async def _counted(body: _Incoming, account: Account, buffered: int, factor: int) -> AsyncIterator[bytes]:
    while body.has_more:
        if chunk := await body.next_chunk():
            further = min(len(chunk) * factor, buffered - account.held)
            if further > 0:
                account.add(further)
            yield chunk


class _Whole(AbstractAsyncContextManager[bytes]):
    """See `Bodies.whole`."""

    __slots__ = ("_account", "_incoming", "_memory", "_receive", "_scope", "_small", "_watching")

    def __init__(self, memory: BodyMemory, scope: HTTPScope, receive: Receive, limit: int) -> None:
        self._memory = memory
        self._scope = scope
        self._receive = receive
        self._incoming = _Incoming(scope, receive, limit)
        self._watching = ExitStack()
        self._small = 0  # the size of a body that needs no account, since it is complete
        self._account: Account | None = None

    async def __aenter__(self) -> bytes:
        peer = peer_of(self._scope)
        CALLER.set(peer)  # each request is a task of its own, with its own context
        body = await self._received()
        self._watching.enter_context(peer.watched(self._receive))
        return body

    async def _received(self) -> bytes:
        first = await self._incoming.next_chunk()
        if not self._incoming.has_more and len(first) <= SMALL_BYTES:
            self._memory.count(len(first))
            self._small = len(first)
            return first
        self._account = _account(self._memory, self._scope)
        try:
            self._account.add(len(first))
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
            buffer.write(chunk)
        return buffer.getvalue()  # shares the buffer's memory instead of copying a large body

    async def __aexit__(self, *_: object) -> None:
        self._watching.close()
        if self._account is None:
            self._memory.count(-self._small)
        else:
            self._account.close()


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the request body is longer than the limit of {limit} bytes")
