"""Bodies that are sent piece by piece.

Litestar's own streaming responses leave a cycle of objects, with the last piece in it, where a client breaks off. That
needs the collector, which looks seldom here (`coregw.gateway.heap`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

from litestar.response import Stream
from litestar.response.streaming import ASGIStreamingResponse

if TYPE_CHECKING:
    from litestar.types import Receive, Send

__all__ = ["Pieces"]


class Pieces(Stream):
    """A response whose content is an asynchronous generator of bytes.

    It is asked for no further piece once the client is gone, and closed in any case. A failure under way cuts the
    connection.
    """

    def to_asgi_response(self, *arguments: Any, **options: Any) -> ASGIStreamingResponse:  # noqa: ANN401 - Litestar's
        """As Litestar's, sent in the way of this module."""
        made = cast("ASGIStreamingResponse", super().to_asgi_response(*arguments, **options))
        return _Sending(
            iterator=made.iterator,
            headers={name.decode("latin-1"): value.decode("latin-1") for name, value in made.encode_headers()},
            is_head_response=made.is_head_response,
            status_code=made.status_code,
        )


class _Sending(ASGIStreamingResponse):
    """Sends pieces and watches the client, with nothing that refers to itself."""

    async def send_body(self, send: Send, receive: Receive) -> None:
        leaving = asyncio.ensure_future(_left(receive))
        try:
            async with aclosing(cast("AsyncGenerator[bytes, None]", self.iterator)) as pieces:
                async for piece in pieces:
                    if leaving.done():
                        return
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            leaving.cancel()


async def _left(receive: Receive) -> None:
    """Returns when the client is gone."""
    while (await receive())["type"] != "http.disconnect":
        pass
