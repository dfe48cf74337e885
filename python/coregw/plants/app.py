"""The plant store as an application of its own: one route behind a bearer token, and its document.

Leaves out how it is served, alone or beside a gateway (`coregw.plants.service`), and where plants are kept (the store).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from litestar import Litestar, Response, get, post
from litestar.exceptions import HTTPException

from coregw.gateway.bodies import check_json_type, query_parameters
from coregw.gateway.context import Gateway, json_response
from coregw.gateway.docs import page_handlers
from coregw.gateway.problems import AnyRequest
from coregw.gateway.tokens import AccessToken
from coregw.plants.messages import Plant, decode_plant, encode
from coregw.plants.openapi import document
from coregw.plants.problems import ID_TAKEN, failure, handle_exception
from coregw.plants.rows import put_plant

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler
    from litestar.types import Message, Scope

__all__ = ["PATH", "TOKEN_VARIABLE", "create_app"]

PATH: Final = "/plants"

TOKEN_VARIABLE: Final = "PLANTS_ACCESS_TOKEN"  # noqa: S105 - the variable's name, no token


def create_app(
    context: Callable[[], Gateway],
    token: AccessToken | None,
    document_path: str,
    further: Iterable[HTTPRouteHandler] = (),
) -> Litestar:
    """The plant store as an ASGI application.

    Args:
        context: Gives the engine that plants are kept with, the limits, and the reader of bodies; asked at each
            request, since a gateway in front has them only once it has started.
        token: What a client must carry; without it there is no route to create plants by.
        document_path: Where the OpenAPI document is; the page that shows it is ``docs`` beside it.
        further: Routes that are there as well, and not in the document.
    """
    beside = document_path.rpartition("/")[0]
    handlers: list[HTTPRouteHandler] = [_document_route(document_path), *page_handlers(f"{beside}/docs"), *further]
    if token is not None:
        handlers.append(_create_route(context, token))
    return Litestar(
        route_handlers=handlers,
        exception_handlers={Exception: handle_exception, HTTPException: handle_exception},
        before_send=[_add_headers],
        openapi_config=None,
        logging_config=None,
        debug=False,
    )


def _create_route(context: Callable[[], Gateway], token: AccessToken) -> HTTPRouteHandler:
    @post(PATH, status_code=200)
    async def create_plant(request: AnyRequest) -> Response[bytes]:
        """``POST /plants``. The token is asked for first: nothing of a stranger's request is read."""
        token.check(request)
        shared = context()
        query_parameters(request)
        check_json_type(request)
        async with shared.bodies.whole(request, shared.settings.plant_body_bytes) as body:
            new = decode_plant(body)
        plant = encode(Plant(name=new.name, tag=new.tag))
        if not await put_plant(shared.engine.store, new.id, plant):
            return failure(400, f"there is a plant with the id {new.id} already", error=ID_TAKEN)
        return json_response(plant)

    return create_plant


def _document_route(path: str) -> HTTPRouteHandler:
    text = document()

    @get(path)
    async def openapi_document(request: AnyRequest) -> Response[bytes]:
        """The document; who may read it needs no token, since it holds nothing of anybody's."""
        query_parameters(request)
        return json_response(text)

    return openapi_document


async def _add_headers(message: Message, _: Scope) -> None:
    """Adds what every answer has, failures and unknown routes included."""
    if message["type"] == "http.response.start":
        message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]
