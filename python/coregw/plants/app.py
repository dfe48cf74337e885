"""The plant store's ASGI application: one route behind a bearer token, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from litestar import Litestar, Request, get, post
from litestar.exceptions import HTTPException

from coregw.gateway.context import Gateway
from coregw.gateway.http.replies import Reply, json_reply
from coregw.gateway.http.requests import query_parameters
from coregw.gateway.routes.docs import page_handlers
from coregw.gateway.tokens import AccessToken
from coregw.plants.messages import Plant, decode_plant, encode
from coregw.plants.openapi import document
from coregw.plants.problems import ID_TAKEN, failure, handle_exception
from coregw.plants.rows import put_plant
from coregw.plants.settings import body_limit

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler
    from litestar.types import Message, Scope

__all__ = ["PATH", "TOKEN_VARIABLE", "create_app"]

PATH: Final = "/plants"

TOKEN_VARIABLE: Final = "PLANTS_ACCESS_TOKEN"  # noqa: S105 - the variable's name, no token


def create_app(
    shared: Gateway,
    token: AccessToken | None,
    document_path: str,
    further: Iterable[HTTPRouteHandler] = (),
) -> Litestar:
    """Create the ASGI application.

    Args:
        shared: The engine, the settings and the reader of request bodies.
        token: The token that clients must send; None omits the route that creates plants.
        document_path: The path of the OpenAPI document; the page that shows it is ``docs`` in the same folder.
        further: Additional routes, which the document does not mention.
    """
    folder = document_path.rpartition("/")[0]
    handlers: list[HTTPRouteHandler] = [_document_route(document_path), *page_handlers(f"{folder}/docs"), *further]
    if token is not None:
        handlers.append(_create_route(shared, token))
    return Litestar(
        route_handlers=handlers,
        exception_handlers={Exception: handle_exception, HTTPException: handle_exception},
        before_send=[_add_headers],
        openapi_config=None,
        logging_config=None,
        debug=False,
    )


def _create_route(shared: Gateway, token: AccessToken) -> HTTPRouteHandler:
    body_bytes = body_limit(shared.settings)

    @post(PATH, status_code=200)
    async def create_plant(request: Request[Any, Any, Any]) -> Reply:
        """``POST /plants``. Checks the token before reading anything else of the request."""
        token.check(request.scope)
        shared.write_access.check_not_read_only()
        async with shared.json_body(request.scope, request.receive, body_bytes) as body:
            new = decode_plant(body)
        plant = encode(Plant(name=new.name, tag=new.tag))
        if not await put_plant(shared.engine.store, new.id, plant):
            return failure(400, f"the id {new.id} is taken by another plant", error=ID_TAKEN)
        return json_reply(plant)

    return create_plant


def _document_route(path: str) -> HTTPRouteHandler:
    text = document()

    @get(path)
    async def openapi_document(request: Request[Any, Any, Any]) -> Reply:
        """The OpenAPI document, which needs no token."""
        query_parameters(request.scope)
        return json_reply(text)

    return openapi_document


async def _add_headers(message: Message, _: Scope) -> None:
    """Add the headers of every response, failures and unknown routes included."""
    if message["type"] == "http.response.start":
        message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]
