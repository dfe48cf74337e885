"""Taking requests in: media types, query parameters, and bodies bounded in size, in time and in memory.

Leaves out what a body means. Litestar's own body parsing is not used: it turns bad text into a 500, and it has one
limit where this gateway has three.
"""

from __future__ import annotations

import asyncio
import io
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final
from urllib.parse import parse_qsl

from coregw.errors import InvalidInput, TooLarge, Unavailable
from coregw.gateway.problems import AnyRequest, ClientGone
from coregw.gateway.settings import Settings

__all__ = ["Bodies", "check_identity", "check_json_type", "declared_length", "query_parameters"]

_JSON_TYPE: Final = re.compile(r'\s*application/json\s*(;\s*charset\s*=\s*("utf-8"|utf-8)\s*)?;?\s*', re.IGNORECASE)
_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def check_json_type(request: AnyRequest) -> None:
    """Takes ``application/json`` in UTF-8, and no Content-Type at all.

    Raises:
        InvalidInput: It is another type (code ``unsupported_media_type``).
    """
    given = ", ".join(request.headers.getall("content-type", []))
    if given and _JSON_TYPE.fullmatch(given) is None:
        message = f"the body comes as {given!r}; send it with Content-Type: application/json"
        raise InvalidInput(message, code="unsupported_media_type")
    check_identity(request)


def check_identity(request: AnyRequest) -> None:
    """Refuses a body that is compressed: it would be stored, or read, as something that it is not.

    Raises:
        InvalidInput: It has a Content-Encoding (code ``unsupported_media_type``).
    """
    coding = ", ".join(request.headers.getall("content-encoding", []))
    if coding.strip().lower() not in ("", "identity"):
        raise InvalidInput(f"the body is coded as {coding!r}, must be sent as it is", code="unsupported_media_type")


def query_parameters(request: AnyRequest, *allowed: str) -> dict[str, str]:
    """The query parameters by name, each at most once.

    Raises:
        InvalidInput: One is unknown, comes twice, or is no percent-encoded UTF-8.
    """
    text = request.scope["query_string"].decode("latin-1")
    if not text:
        return {}
    if _BAD_ESCAPE.search(text) or not text.isascii():
        raise InvalidInput("the query string is not percent-encoded")
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict", max_num_fields=16)
    except (ValueError, UnicodeDecodeError):
        raise InvalidInput("the query string is not a list of name=value in percent-encoded UTF-8") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in allowed:
            known = f"known are: {', '.join(allowed)}" if allowed else "this route takes none"
            raise InvalidInput(f"unknown query parameter {name!r}; {known}")
        if name in found:
            raise InvalidInput(f"query parameter {name!r} comes twice")
        found[name] = value
    return found


def declared_length(request: AnyRequest) -> int | None:
    """The length of the body as its Content-Length says, None if it does not. The server has checked that it is one."""
    declared = request.headers.get("content-length")
    return None if declared is None else int(declared)


class Bodies:
    """Reads request bodies within the settings. One for the whole gateway, since memory is counted over all of them."""

    def __init__(self, settings: Settings) -> None:
        self._idle_seconds = settings.body_idle_seconds
        self._body_seconds = settings.body_seconds
        self._most_buffered = settings.buffered_bytes
        self._buffered = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes counted at this moment."""
        return self._buffered

    async def chunks(self, request: AnyRequest, limit: int) -> AsyncIterator[bytes]:
        """The body in pieces as they arrive, without empty ones.

        Args:
            request: The request; its body must not have been read yet.
            limit: The most bytes of the whole body.

        Raises:
            TooLarge: It is longer than `limit`; if it says so itself, before any of it is read.
            InvalidInput: It pauses or takes too long, or the client left (`ClientGone`).
        """
        if (declared_length(request) or 0) > limit:
            raise _too_large(limit)
        deadline = asyncio.get_running_loop().time() + self._body_seconds
        count = 0
        more = True
        while more:
            chunk, more = await self._receive(request, deadline)
            count += len(chunk)
            if count > limit:
                raise _too_large(limit)
            if chunk:
                yield chunk

    async def _receive(self, request: AnyRequest, deadline: float) -> tuple[bytes, bool]:
        """The next piece of a body, and whether more follow."""
        pause = asyncio.get_running_loop().time() + self._idle_seconds
        try:
            async with asyncio.timeout_at(min(pause, deadline)):
                message = await request.receive()
        except TimeoutError:
            raise InvalidInput("the body did not arrive in time") from None
        if message["type"] != "http.request":
            raise ClientGone("the client left before its body was whole")
        return message.get("body", b""), message.get("more_body", False)

    @asynccontextmanager
    async def whole(self, request: AnyRequest, limit: int) -> AsyncIterator[bytes]:
        """The whole body; its memory is counted until the block ends.

        Raises:
            Unavailable: All request bodies together are past ``buffered_bytes``.
            As `chunks`.
        """
        buffer = io.BytesIO()
        counted = 0
        try:
            async for chunk in self.chunks(request, limit):
                self._count(len(chunk))
                counted += len(chunk)
                buffer.write(chunk)
            yield buffer.getvalue()  # shares the buffer: no second copy of a large body
        finally:
            self._buffered -= counted

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Counts `size` bytes for the length of the block, for a body that is passed on in pieces.

        Raises:
            Unavailable: All request bodies together are past ``buffered_bytes``.
        """
        self._count(size)
        try:
            yield
        finally:
            self._buffered -= size

    def _count(self, size: int) -> None:
        if self._buffered + size > self._most_buffered:
            raise Unavailable("too many large requests at once; try again")
        self._buffered += size


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is longer than {limit} bytes")
