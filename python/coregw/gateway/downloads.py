"""Answers with immutable bytes, for every route that has some: conditional and single-range GET, and HEAD.

Leaves out what the bytes are and under which CID they are asked for (`cas`, `ipfs`), and how headers are read
(`conditions`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from litestar import Response

from coregw.engine import StoredPayload
from coregw.gateway.conditions import ByteRange, Unsatisfiable, etag_listed, parse_range, range_applies
from coregw.gateway.context import Gateway
from coregw.gateway.problems import AnyRequest, problem
from coregw.gateway.streams import Pieces

__all__ = ["CACHE_FOR_EVER", "Content", "answer_get", "answer_head"]

CACHE_FOR_EVER: Final = "public, max-age=31536000, immutable"

Content = StoredPayload | bytes
"""A payload that is yet to be read, or bytes that are here."""


async def answer_get(
    request: AnyRequest, content: Content, media_type: str, etag: str, others: Mapping[str, str] | None = None
) -> Response[bytes] | Pieces:
    """The answer to a GET: the whole, the one range asked for, or that the client has it already.

    Args:
        request: The request, whose conditions and range count.
        content: The bytes.
        media_type: Their Content-Type.
        etag: Their strong entity tag, in quotes.
        others: Further headers of a success.
    """
    headers = _headers(etag, others)
    if _is_known(request, etag):
        return Response(b"", status_code=304, headers=headers)
    size = _size(content)
    asked = None
    if range_applies(request.headers.get("if-range"), etag):
        asked = parse_range(", ".join(request.headers.getall("range", [])), size)
    if isinstance(asked, Unsatisfiable):
        return problem("range_not_satisfiable", f"there are {size} bytes", headers={"Content-Range": f"bytes */{size}"})
    return await _send(Gateway.of(request), content, asked, media_type, headers)


def answer_head(
    request: AnyRequest, content: Content, media_type: str, etag: str, others: Mapping[str, str] | None = None
) -> Response[None]:
    """The answer to a HEAD: what `answer_get` says of the whole. Range has no meaning here (RFC 9110 section 14.2)."""
    headers = _headers(etag, others)
    if _is_known(request, etag):
        return Response(None, status_code=304, headers=headers)
    headers |= {"Content-Type": media_type, "Content-Length": str(_size(content))}
    return Response(None, media_type="text/plain", headers=headers)  # Litestar renders None as no bytes only as text


def _headers(etag: str, others: Mapping[str, str] | None) -> dict[str, str]:
    return {"ETag": etag, "Cache-Control": CACHE_FOR_EVER, "Accept-Ranges": "bytes", **(others or {})}


def _is_known(request: AnyRequest, etag: str) -> bool:
    """Whether the client has the bytes already."""
    return etag_listed(", ".join(request.headers.getall("if-none-match", [])), etag)


def _size(content: Content) -> int:
    return len(content) if isinstance(content, bytes) else content.size


async def _send(
    gateway: Gateway, content: Content, asked: ByteRange | None, media_type: str, headers: dict[str, str]
) -> Response[bytes] | Pieces:
    """The whole, or a range of it: at once if it is one chunk, else chunk by chunk."""
    start, end = asked or (0, _size(content))
    status = 200
    if asked is not None:
        status = 206
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{_size(content)}"
    if isinstance(content, bytes):
        return Response(content[start:end], status_code=status, media_type=media_type, headers=headers)
    small = await gateway.engine.payloads.read_small(content, start, end)
    if small is not None:
        return Response(small, status_code=status, media_type=media_type, headers=headers)
    headers["Content-Length"] = str(end - start)
    chunks = gateway.engine.payloads.read(content, start, end)
    return Pieces(chunks, status_code=status, media_type=media_type, headers=headers)
