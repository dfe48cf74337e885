"""Responses with immutable bytes: conditional GET, single ranges, and HEAD (RFC 9110 sections 13 and 14)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from coregw.engine import Engine, StoredPayload
from coregw.gateway.http.conditions import Unsatisfiable, is_listed, parse_range, range_applies
from coregw.gateway.http.problems import Problem
from coregw.gateway.http.replies import Reply
from coregw.gateway.http.requests import header

if TYPE_CHECKING:
    from litestar.types import HTTPScope

__all__ = ["IMMUTABLE", "Representation"]

IMMUTABLE: Final = "public, max-age=31536000, immutable"
"""The Cache-Control of responses that never change."""


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

    async def get(self, engine: Engine, scope: HTTPScope) -> Reply:
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
        body = await self._read(engine, start, end)
        if not isinstance(body, bytes):
            headers["Content-Length"] = str(end - start)
        return Reply(body, status, self.media_type, headers)

    def head(self, scope: HTTPScope) -> Reply:
        """Return the response to a HEAD, which ignores Range (RFC 9110 section 14.2)."""
        if self._is_known(scope):
            return Reply(status=304, headers=self._headers())
        return Reply(media_type=self.media_type, headers=self._headers() | {"Content-Length": str(self._size)})

    async def _read(self, engine: Engine, start: int, end: int) -> bytes | AsyncGenerator[bytes, None]:
        """Return bytes at once if they fit in one chunk, else as a stream."""
        if isinstance(self.content, bytes):
            return self.content[start:end]
        small = await engine.payloads.read_small(self.content, start, end)
        if small is not None:
            return small
        return cast("AsyncGenerator[bytes, None]", engine.payloads.read(self.content, start, end))

    def _headers(self) -> dict[str, str]:
        return {"ETag": self.etag, "Cache-Control": IMMUTABLE, "Accept-Ranges": "bytes", **self.extra_headers}

    def _is_known(self, scope: HTTPScope) -> bool:
        """Whether the client has the bytes already."""
        return is_listed(self.etag, header(scope, b"if-none-match") or "")

    @property
    def _size(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.size
