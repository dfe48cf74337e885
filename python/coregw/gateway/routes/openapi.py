"""The OpenAPI 3.1 document, built from what routes declare about themselves."""

from __future__ import annotations

from typing import Any, Final

from litestar import Request, route

from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.replies import Reply, json_reply
from coregw.gateway.http.requests import query_parameters

__all__ = ["handlers"]


@route(
    "/openapi.json",
    http_method=["GET", "HEAD"],
    opt={DESCRIPTION: Description("This document.", answer="application/json")},
)
async def openapi_document(request: Request[Any, Any, Any]) -> Reply:
    """``GET`` and ``HEAD /openapi.json``: what `coregw.gateway.docs.document` built when the gateway started."""
    query_parameters(request.scope)
    return json_reply(request.app.state["openapi"])


handlers: Final = (openapi_document,)
