"""HTTP responses: complete bodies, bodies in chunks, errors, and representations with conditions and ranges.

Handlers return a `Reply`, which Litestar accepts since it is an ASGI application. Litestar's own streaming responses
are not used: when a client disconnects they leave a reference cycle that holds the last chunk, and the garbage
collector runs rarely here (`coregw.heap`).

Exceptions become a status, a code and a message (protocol section 5, *Errors*). One that has no code in
`coregw.errors.ERROR_CODES` is a 500 ``internal``, which shows a client nothing and logs everything. Routes and the
engine raise `coregw.errors` classes and know nothing of statuses. Preconditions and ranges are those of RFC 9110,
sections 13 and 14.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from msgspec import UNSET

from coregw._core import precondition_status, select_range
from coregw.engine import StoredPayload
from coregw.errors import ERROR_CODES, CoregwError, StoreDamaged
from coregw.gateway.context import Gateway
from coregw.gateway.description import OCTETS, Description
from coregw.gateway.logs import REQUEST_ID_HEADER, loggable_path, request_id
from coregw.gateway.metrics import REFUSALS
from coregw.gateway.requests import header_bytes
from coregw.messages import ErrorBody, encode
from coregw.text import without_surrogates

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Send

__all__ = [
    "CONDITIONS",
    "IMMUTABLE",
    "UNCACHED",
    "Problem",
    "Reply",
    "Representation",
    "conditional",
    "described",
    "gated",
    "handle_exception",
    "json_reply",
    "log_failure",
    "method_not_allowed",
    "problem_of",
]

logger = logging.getLogger("coregw.gateway")

_NO_HEADERS: Final[Mapping[str, str]] = {}


class Reply:
    """A response, as an ASGI application that sends it."""

    __slots__ = ("body", "headers", "status")

    def __init__(
        self,
        body: bytes | AsyncGenerator[bytes, None] = b"",
        status: int = 200,
        media_type: str = "",
        headers: Mapping[str, str] = _NO_HEADERS,
    ) -> None:
        """Prepare a response.

        Args:
            body: The whole body, or its chunks. Chunks are generated only as fast as the client reads them, and the
                generator is always closed. If it raises, the connection is closed before the body is complete.
            status: The HTTP status.
            media_type: The Content-Type; none if empty.
            headers: Further headers. Content-Length is added unless it is among them or the body is streamed.
        """
        self.status = status
        self.body = body
        self.headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        if media_type:
            self.headers.append((b"content-type", media_type.encode("latin-1")))
        if isinstance(body, bytes) and "Content-Length" not in headers and status not in (204, 304):
            self.headers.append((b"content-length", b"%d" % len(body)))

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """ASGI entry point for the ``http`` scope."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        body, is_head = self.body, scope["method"] == "HEAD"
        if isinstance(body, bytes):
            await send({"type": "http.response.body", "body": b"" if is_head else body, "more_body": False})
        elif is_head:
            await body.aclose()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            try:
                await _stream(body, receive, send)
            except StoreDamaged as error:  # each read of what is damaged fails again
                log_failure(scope, error)  # and the server closes the connection, since the body is not complete


def json_reply(body: bytes, status: int = 200, headers: Mapping[str, str] = _NO_HEADERS) -> Reply:
    """Return a response whose body is JSON text already."""
    return Reply(body, status, "application/json", headers)


async def _stream(body: AsyncGenerator[bytes, None], receive: Receive, send: Send) -> None:
    disconnected = asyncio.ensure_future(_disconnection(receive))
    try:
        async with aclosing(body) as chunks:
            chunk = await anext(chunks, None)  # at once: a slot for which there was room may be taken otherwise
            while chunk is not None:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                del chunk  # not held until the next one has its turn
                # An empty part waits until the client has read this one. Otherwise the next would be held as well.
                await send({"type": "http.response.body", "body": b"", "more_body": True})
                chunk = await _next_unless(disconnected, chunks)
            if disconnected.done():
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        disconnected.cancel()


async def _next_unless(disconnected: asyncio.Future[None], chunks: AsyncGenerator[bytes, None]) -> bytes | None:
    """Return the next chunk; None after the last one, or at once if the client disconnects."""
    following: asyncio.Future[bytes | None] = asyncio.ensure_future(anext(chunks, None))
    either: list[asyncio.Future[Any]] = [following, disconnected]
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        return None if disconnected.done() else await following
    finally:
        if not following.done():
            following.cancel()
            await asyncio.wait([following])  # only then can the generator be closed
        if not following.cancelled():
            following.exception()  # retrieved, or asyncio would log it
        del following, either  # an exception refers to this frame: as a cycle, they would keep the chunk


async def _disconnection(receive: Receive) -> None:
    """Return when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


# --- errors -----------------------------------------------------------------------------------------------------------

UNCACHED: Final[Mapping[str, str]] = MappingProxyType({"Cache-Control": "no-store"})
"""The header of all errors but proven absences. Without it, caches may keep a 404 or 405 (RFC 9111 section 4.2.2)."""

_HEADERS_BY_CODE: Final[Mapping[str, Mapping[str, str]]] = MappingProxyType(
    {"unavailable": {"Retry-After": "1"}, "unauthorized": {"WWW-Authenticate": "Bearer"}}
)


class Problem(NamedTuple):
    """A failure as a client learns of it.

    Attributes:
        code: A key of `coregw.errors.ERROR_CODES`.
        message: One sentence for a person.
        details: The ``details`` member as JSON text, or None.
        headers: Headers besides those that all responses with this code have, or instead of them.
    """

    code: str
    message: str
    details: bytes | None = None
    headers: Mapping[str, str] = MappingProxyType({})

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return ERROR_CODES[self.code].status

    @property
    def all_headers(self) -> dict[str, str]:
        """The headers of the response besides its Content-Type and length."""
        return {**UNCACHED, **_HEADERS_BY_CODE.get(self.code, {}), **self.headers}

    def reply(self) -> Reply:
        """Return the response, and count it for metrics."""
        REFUSALS[self.code] += 1
        details = UNSET if self.details is None else msgspec.Raw(self.details)
        body = encode(ErrorBody(error=self.code, message=without_surrogates(self.message), details=details))
        return json_reply(body, self.status, self.all_headers)


class _Refusal(Response[None]):
    """A `Reply` as Litestar's exception handlers return it."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(None, status_code=reply.status)
        self._reply = reply

    def to_asgi_response(self, *_: object, **__: object) -> Any:  # noqa: ANN401 - it is an ASGI application
        """Return the reply, which also has a Content-Type and a length if the request is a HEAD."""
        return self._reply


def handle_exception(request: Request[Any, Any, Any], error: Exception) -> Response[None]:
    """Return the response to an exception, as Litestar's exception handlers do."""
    return _Refusal(problem_of(request.scope, error).reply())


def problem_of(scope: HTTPScope, error: Exception) -> Problem:
    """Return what a client may know of an exception. Logs those that are the gateway's own fault."""
    if isinstance(error, CoregwError) and error.code in ERROR_CODES and error.code != "internal":
        return Problem(error.code, error.message, error.details)
    if isinstance(error, NotFoundException):
        return Problem("route_not_found", f"no route has the path {scope['path']!r:.200}")
    if isinstance(error, MethodNotAllowedException):
        return method_not_allowed(scope, (error.headers or {}).get("allow", "").split(", "))
    if isinstance(error, HTTPException) and error.status_code == 400:
        return Problem("invalid_request", error.detail)
    log_failure(scope, error)
    headers = {REQUEST_ID_HEADER: request_id(scope)}
    return Problem("internal", ERROR_CODES["internal"].meaning, headers=headers)


def log_failure(scope: HTTPScope, error: Exception) -> None:
    """Log a failure of the gateway; damage without a traceback, as each read of what is damaged fails again."""
    method, path = scope["method"], loggable_path(scope["path"])
    if isinstance(error, StoreDamaged):
        logger.error("%s '%s' failed: %s", method, path, " ".join(error.message.split()))
    else:
        logger.error("%s '%s' failed", method, path, exc_info=error)


def method_not_allowed(scope: HTTPScope, allowed: list[str]) -> Problem:
    """Return the failure of a request whose path has a route, but not for its method."""
    methods = ", ".join(sorted(allowed))
    return Problem("method_not_allowed", f"{scope['method']} is not one of {methods}", headers={"Allow": methods})


# --- conditions and ranges --------------------------------------------------------------------------------------------

IMMUTABLE: Final = "public, max-age=31536000, immutable"
"""The Cache-Control of responses that never change."""

CONDITIONS: Final = ("If-Match", "If-None-Match")
"""The headers that `conditional` evaluates, as a `Description` names them."""

_MAX_UNGATED_BYTES: Final = 64 << 10
"""Payloads up to this size are read without waiting for a turn."""


def described(get: str, head: str, etag: str, codes: tuple[str, ...], known: str) -> Mapping[str, Description]:
    """Describe a GET and a HEAD that are answered as `Representation.reply` does.

    Args:
        get: What the bytes are.
        head: What a HEAD tells.
        etag: What the entity tag is.
        codes: Error codes, without those of the range and of preconditions.
        known: When the answer is 304.
    """
    headers = {"ETag": etag, "Cache-Control": IMMUTABLE}
    codes = (*codes, "precondition_failed")
    return {
        "GET": Description(
            get,
            answer=OCTETS,
            codes=(*codes, "range_not_satisfiable"),
            request_headers=("Range", "If-Range", *CONDITIONS),
            headers=headers | {"Content-Range": "Which bytes these are, with 206."},
            others={304: known, 206: "The requested range of bytes."},
        ),
        "HEAD": Description(head, codes=codes, request_headers=CONDITIONS, headers=headers, others={304: known}),
    }


def conditional(scope: HTTPScope, etag: str, headers: Mapping[str, str]) -> Reply | None:
    """Return the response to a GET or HEAD whose preconditions are not met: 304 or 412; None if they are met.

    Args:
        scope: The ASGI scope.
        etag: The strong entity tag of what would be sent, in quotes.
        headers: The headers of a 304, the entity tag among them.
    """
    match, none_match = header_bytes(scope, b"if-match"), header_bytes(scope, b"if-none-match")
    if match is None and none_match is None:
        return None
    status = precondition_status(etag.encode("latin-1"), match, none_match)
    if status == 412:
        return Problem("precondition_failed", f"If-Match does not name the ETag {etag}").reply()
    return None if status is None else Reply(status=status, headers=headers)


class Representation(NamedTuple):
    """What a URL names, and how it is sent.

    Attributes:
        content: A stored payload, or the bytes themselves.
        media_type: Its Content-Type.
        etag: Its strong entity tag, in quotes.
        extra_headers: Further headers of a success.
    """

    content: StoredPayload | bytes
    media_type: str
    etag: str
    extra_headers: Mapping[str, str] = MappingProxyType({})

    async def reply(self, gateway: Gateway, scope: HTTPScope) -> Reply:
        """Return the response to a GET or a HEAD, which ignores Range (RFC 9110 section 14.2)."""
        return self._head(scope) if scope["method"] == "HEAD" else await self._get(gateway, scope)

    async def _get(self, gateway: Gateway, scope: HTTPScope) -> Reply:
        """Return everything, one range, 304 or 412."""
        headers = self._headers()
        if (unmet := conditional(scope, self.etag, headers)) is not None:
            return unmet
        wanted = None
        if (ranges := header_bytes(scope, b"range")) is not None:
            wanted = select_range(ranges, header_bytes(scope, b"if-range"), self.etag.encode("latin-1"), self._size)
        start, end = wanted or (0, self._size)
        if wanted is not None and start == end:
            size = {"Content-Range": f"bytes */{self._size}"}
            return Problem("range_not_satisfiable", f"the payload has {self._size} bytes", headers=size).reply()
        status = 200
        if wanted is not None:
            status = 206
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{self._size}"
        body = await self._read(gateway, start, end)
        if not isinstance(body, bytes):
            headers["Content-Length"] = str(end - start)
        return Reply(body, status, self.media_type, headers)

    def _head(self, scope: HTTPScope) -> Reply:
        headers = self._headers()
        if (unmet := conditional(scope, self.etag, headers)) is not None:
            return unmet
        return Reply(media_type=self.media_type, headers=headers | {"Content-Length": str(self._size)})

    async def _read(self, gateway: Gateway, start: int, end: int) -> bytes | AsyncGenerator[bytes, None]:
        """Return bytes at once if they fit in one chunk, else as a stream."""
        if isinstance(self.content, bytes):
            return self.content[start:end]
        payloads = gateway.engine.payloads
        if end - start <= _MAX_UNGATED_BYTES:
            small = await payloads.read_small(self.content, start, end)
        else:
            async with gateway.chunk_reads:
                small = await payloads.read_small(self.content, start, end)
        return gated(payloads.read(self.content, start, end), gateway.chunk_reads) if small is None else small

    def _headers(self) -> dict[str, str]:
        return {"ETag": self.etag, "Cache-Control": IMMUTABLE, "Accept-Ranges": "bytes", **self.extra_headers}

    @property
    def _size(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.size


async def gated(chunks: AsyncIterator[bytes], reads: asyncio.Semaphore) -> AsyncGenerator[bytes, None]:
    """Yield chunks, each read in turn. Otherwise the first chunks of all streams that begin would be held at once.

    Args:
        chunks: An asynchronous generator.
        reads: `coregw.gateway.context.Gateway.chunk_reads`.
    """
    async with aclosing(cast("AsyncGenerator[bytes, None]", chunks)) as open_chunks:
        while True:
            async with reads:
                chunk = await anext(open_chunks, None)
            if chunk is None:
                return
            yield chunk
            del chunk  # not held while the next one waits for its turn
