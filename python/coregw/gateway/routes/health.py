"""Whether the gateway and its store work (``/healthz``), and whether to send it requests (``/readyz``)."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from litestar import Request, route

from coregw._core import __version__
from coregw.errors import Unavailable
from coregw.gateway.context import Gateway
from coregw.gateway.description import DESCRIPTION, Description
from coregw.gateway.replies import Reply, json_reply
from coregw.gateway.requests import query_parameters
from coregw.messages import Health, Readiness, encode

__all__ = ["handlers"]


@route(
    "/healthz",
    http_method=["GET", "HEAD"],
    opt={DESCRIPTION: Description("Whether the store can be read and written, and the version.", answer=Health)},
)
async def healthz(request: Request[Any, Any, Any]) -> Reply:
    """``GET`` and ``HEAD /healthz``: 200, or 503 ``unavailable``."""
    gateway = Gateway.of(request)
    query_parameters(request.scope)
    try:
        async with asyncio.timeout(gateway.limits.store_seconds):
            healthy = await gateway.engine.healthy()
    except TimeoutError:
        raise Unavailable("the store does not respond") from None
    if not healthy:
        raise Unavailable("the store cannot be read or written")
    return json_reply(encode(Health(status="ok", version=__version__)), headers={"Cache-Control": "no-store"})


@route(
    "/readyz",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: Description(
            "Whether all requests can be served; the details of a 503 have the `reasons` why not.", answer=Readiness
        )
    },
)
async def readyz(request: Request[Any, Any, Any]) -> Reply:
    """``GET`` and ``HEAD /readyz``: 200, or 503 ``unavailable`` while starting, stopping, full or read-only."""
    gateway = Gateway.of(request)
    query_parameters(request.scope)
    reasons = await gateway.obstacles()
    if reasons:
        raise Unavailable(f"not ready: {'; '.join(reasons)}", details=json.dumps({"reasons": reasons}).encode())
    return json_reply(encode(Readiness(status="ready")), headers={"Cache-Control": "no-store"})


handlers: Final = (healthz, readyz)
