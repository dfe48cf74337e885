"""Conditional GET and HEAD, and responses with immutable bytes: single ranges too (RFC 9110 sections 13 and 14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from coregw._core import precondition_status, select_range
from coregw.engine import StoredPayload
from coregw.gateway.context import Gateway
from coregw.gateway.description import OCTETS, Description
from coregw.gateway.http.problems import Problem
from coregw.gateway.http.replies import Reply
from coregw.gateway.http.requests import header_bytes

if TYPE_CHECKING:
    from litestar.types import HTTPScope

__all__ = ["CONDITIONS", "IMMUTABLE", "Representation", "conditional", "described_get", "described_head", "gated"]

IMMUTABLE: Final = "public, max-age=31536000, immutable"
"""The Cache-Control of responses that never change."""

CONDITIONS: Final = ("If-Match", "If-None-Match")
"""The headers that `conditional` evaluates, as a `Description` names them."""

_MAX_UNGATED_BYTES: Final = 64 << 10
"""Payloads up to this size are read without waiting for a turn."""


def described_get(about: str, etag: str, codes: tuple[str, ...], known: str) -> Description:
    """Describe a GET that returns bytes as `Representation.get` does.

    Args:
        about: What the bytes are.
        etag: What the entity tag is.
        codes: Error codes, without those of the range and of preconditions.
        known: When the answer is 304.
    """
    return Description(
        about,
        answer=OCTETS,
        codes=(*codes, "precondition_failed", "range_not_satisfiable"),
        request_headers=("Range", "If-Range", *CONDITIONS),
        headers={"ETag": etag, "Cache-Control": IMMUTABLE, "Content-Range": "Which bytes these are, with 206."},
        others={304: known, 206: "The requested range of bytes."},
    )


def described_head(about: str, etag: str, codes: tuple[str, ...], known: str) -> Description:
    """Describe a HEAD that answers as `Representation.head` does. Arguments as for `described_get`."""
    return Description(
        about,
        codes=(*codes, "precondition_failed"),
        request_headers=CONDITIONS,
        headers={"ETag": etag, "Cache-Control": IMMUTABLE},
        others={304: known},
    )


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

    async def get(self, gateway: Gateway, scope: HTTPScope) -> Reply:
        """Return the response to a GET: everything, one range, 304 or 412."""
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

    def head(self, scope: HTTPScope) -> Reply:
        """Return the response to a HEAD, which ignores Range (RFC 9110 section 14.2)."""
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
