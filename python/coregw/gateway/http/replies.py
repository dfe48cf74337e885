"""HTTP responses: complete bodies, and bodies streamed in chunks.

Handlers of hot routes and of Litestar routes both return a `Reply`, which Litestar accepts since it is an ASGI
application. Litestar's own streaming responses are not used: when a client disconnects they leave a reference cycle
that holds the last chunk, and the garbage collector runs rarely here (`coregw.gateway.heap`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Send

__all__ = ["Reply", "json_reply"]

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

    def declared_bytes(self) -> int:
        """Return the Content-Length; 0 if there is none."""
        return next((int(value) for name, value in self.headers if name == b"content-length"), 0)

    async def __call__(self, scope: HTTPScope, receive: Receive, send: Send) -> None:
        """ASGI entry point for the ``http`` scope."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        if isinstance(self.body, bytes):
            await send({"type": "http.response.body", "body": self.body, "more_body": False})
        elif scope["method"] == "HEAD":
            await self.body.aclose()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await _stream(self.body, receive, send)


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
