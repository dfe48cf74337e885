"""Responses with immutable bytes: conditional GET, single ranges, and HEAD (RFC 9110 sections 13 and 14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from coregw.engine import StoredPayload
from coregw.gateway.context import Gateway
from coregw.gateway.docs.description import OCTETS, Description
from coregw.gateway.http.conditions import Unsatisfiable, is_listed, parse_range, range_applies
from coregw.gateway.http.problems import Problem
from coregw.gateway.http.replies import Reply
from coregw.gateway.http.requests import header

if TYPE_CHECKING:
    from litestar.types import HTTPScope

__all__ = ["IMMUTABLE", "Representation", "described_get", "described_head", "gated"]

IMMUTABLE: Final = "public, max-age=31536000, immutable"
"""The Cache-Control of responses that never change."""


_MAX_UNGATED_BYTES: Final = 64 << 10
"""Payloads up to this size are read without waiting for a turn."""


def described_get(about: str, etag: str, codes: tuple[str, ...], known: str) -> Description:
    """Describe a GET that returns bytes as `Representation.get` does.

    Args:
        about: What the bytes are.
        etag: What the entity tag is.
        codes: Error codes, without that of the range.
        known: When the answer is 304.
    """
    return Description(
        about,
        answer=OCTETS,
        codes=(*codes, "range_not_satisfiable"),
        request_headers=("Range", "If-Range", "If-None-Match"),
        headers={"ETag": etag, "Cache-Control": IMMUTABLE, "Content-Range": "Which bytes these are, with 206."},
        others={304: known, 206: "The requested range of bytes."},
    )


def described_head(about: str, etag: str, codes: tuple[str, ...], known: str) -> Description:
    """Describe a HEAD that answers as `Representation.head` does. Arguments as for `described_get`."""
    return Description(
        about,
        codes=codes,
        request_headers=("If-None-Match",),
        headers={"ETag": etag, "Cache-Control": IMMUTABLE},
        others={304: known},
    )


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
        """Return the response to a GET: everything, one range, or 304."""
        headers = self._headers()
        if self._is_known(scope):
            return Reply(status=304, headers=headers)
        wanted = None
        if range_applies(header(scope, b"if-range"), self.etag):
            wanted = parse_range(header(scope, b"range") or "", self._size)
        if isinstance(wanted, Unsatisfiable):
            size = {"Content-Range": f"bytes */{self._size}"}
            return Problem("range_not_satisfiable", f"the payload has {self._size} bytes", headers=size).reply()
        start, end = wanted or (0, self._size)
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
        if self._is_known(scope):
            return Reply(status=304, headers=self._headers())
        return Reply(media_type=self.media_type, headers=self._headers() | {"Content-Length": str(self._size)})

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

    def _is_known(self, scope: HTTPScope) -> bool:
        """Whether the client has the bytes already."""
        return is_listed(self.etag, header(scope, b"if-none-match") or "")

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
