"""Whether the gateway and its store can do their work. Leaves out numbers: no metrics here."""

from __future__ import annotations

import asyncio
from typing import Final

from litestar import Response, route

from coregw._core import __version__
from coregw.errors import Unavailable
from coregw.gateway.bodies import query_parameters
from coregw.gateway.context import Gateway, json_response
from coregw.gateway.openapi import DOC, Doc
from coregw.gateway.problems import AnyRequest
from coregw.messages import Health, encode

__all__ = ["handlers"]


@route(
    "/healthz",
    http_method=["GET", "HEAD"],
    opt={DOC: Doc("Whether the store can be read and written, and what runs here.", answer=Health)},
)
async def healthz(request: AnyRequest) -> Response[bytes]:
    """``GET`` and ``HEAD /healthz``: 200, or 503 ``unavailable``."""
    gateway = Gateway.of(request)
    query_parameters(request)
    try:
        async with asyncio.timeout(gateway.settings.store_seconds):
            healthy = await gateway.engine.healthy()
    except TimeoutError:
        raise Unavailable("the store does not answer") from None
    if not healthy:
        raise Unavailable("the store cannot be read or written")
    return json_response(encode(Health(status="ok", version=__version__)), headers={"Cache-Control": "no-store"})


handlers: Final = [healthz]
