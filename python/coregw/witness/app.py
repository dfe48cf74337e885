"""The HTTP side of a witness, an ASGI application: ``POST /add-checkpoint``, ``GET /{origin hash}/checkpoint``."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio.to_thread
from litestar.enums import ScopeType

from coregw.errors import InvalidInput, TooLarge
from coregw.gateway.context import Gateway
from coregw.gateway.http.connection import refusal
from coregw.gateway.http.dispatch import Counted
from coregw.gateway.http.replies import Reply
from coregw.gateway.server import Service
from coregw.gateway.tokens import AccessToken
from coregw.witness.cosigning import MAX_REQUEST_BYTES, Refused, Witness

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

__all__ = ["witness_service"]

_MONITORED: Final = re.compile("/([0-9a-f]{64})/checkpoint")
_TEXT: Final = "text/plain; charset=utf-8"


def witness_service(witness: Witness) -> Service:
    """Return the service of a witness, for `coregw.gateway.server.GatewayServer`: with its limits and deadlines."""

    def make(shared: Gateway, _: AccessToken | None) -> ASGIApp:
        return Counted(_App(witness, shared))

    return Service(make, refusal)


class _App:
    """The application."""

    def __init__(self, witness: Witness, shared: Gateway) -> None:
        self._witness = witness
        self._shared = shared

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point for the ``http`` scope."""
        if scope["type"] != ScopeType.HTTP:
            return
        try:
            reply = await self._answer(scope, receive)
        except Refused as error:
            reply = Reply(error.body.encode(), error.status, error.media_type)
        except TooLarge as error:
            reply = Reply(f"{error.message}\n".encode(), 413, _TEXT)
        except InvalidInput as error:
            reply = Reply(f"{error.message}\n".encode(), 400, _TEXT)
        await reply(scope, receive, send)

    async def _answer(self, scope: HTTPScope, receive: Receive) -> Reply:
        method, path = scope["method"], scope["path"]
        if path == "/add-checkpoint":
            if method != "POST":
                return Reply(b"expected POST\n", 405, _TEXT, {"Allow": "POST"})
            async with self._shared.bodies.whole(scope, receive, MAX_REQUEST_BYTES) as body:
                line = await anyio.to_thread.run_sync(partial(self._witness.add_checkpoint, bytes(body)))
            return Reply(line.encode(), 200, _TEXT)
        monitored = _MONITORED.fullmatch(path)
        if monitored is None:
            return Reply(b"not found\n", 404, _TEXT)
        if method not in {"GET", "HEAD"}:
            return Reply(b"expected GET\n", 405, _TEXT, {"Allow": "GET, HEAD"})
        note = await anyio.to_thread.run_sync(self._witness.checkpoint, monitored[1])
        return Reply(note.encode(), 200, _TEXT, {"Cache-Control": "no-store"})
