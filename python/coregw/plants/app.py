"""The plant store's application: one route behind a bearer token, its OpenAPI document, and a health check."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import uvicorn
from litestar import Litestar, Request, Response, post, route
from litestar.exceptions import HTTPException
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from coregw.errors import CoregwError, InvalidInput, TooLarge, Unavailable
from coregw.gateway.access import WRITE, Access, AccessToken, TokenPolicy
from coregw.gateway.listener import listen, url_of
from coregw.gateway.logs import AccessLog
from coregw.gateway.replies import problem_of
from coregw.gateway.requests import check_json_type, query_parameters
from coregw.gateway.settings import Settings
from coregw.plants.messages import Error, Plant, decode_plant, document, encode
from coregw.store import Store, Table
from coregw.store.rocksdb import RocksStore, open_store

if TYPE_CHECKING:
    from litestar.handlers import HTTPRouteHandler
    from litestar.types import Message, Scope

__all__ = ["ID_TAKEN", "MAX_BODY_BYTES", "PATH", "TOKEN_VARIABLE", "create_app", "plant_key", "put_plant", "run"]

PATH: Final = "/plants"

TOKEN_VARIABLE: Final = "PLANTS_ACCESS_TOKEN"  # noqa: S105 - the variable's name, no token

MAX_BODY_BYTES: Final = 64 << 10
"""The largest body of a request."""

ID_TAKEN: Final = 409
"""The ``error`` of a taken id. Its status is 400 like that of invalid bodies, so clients need the number to tell."""

_MAX_HEAD_BYTES: Final = 32 << 10
_CONNECTIONS: Final = 512
"""More get 503; each may hold a body of at most `MAX_BODY_BYTES` in memory."""

_IDLE_SECONDS: Final = 30
_SHUTDOWN_SECONDS: Final = 30
_HEALTH_SECONDS: Final = 5.0
_JSON: Final = "application/json"

logger = logging.getLogger("coregw.plants")


def run(data: Path, host: str, port: int, on_ready: Callable[[str], None], *, logs_requests: bool = False) -> None:
    """Run the plant store on a RocksDB store until SIGINT or SIGTERM, which exit with code 0.

    The token that clients must send is that of ``PLANTS_ACCESS_TOKEN``.

    Args:
        data: The directory of the store; created if missing.
        host: The address to listen on.
        port: The port; 0 picks a free one.
        on_ready: Called with the URL when the store is open.
        logs_requests: Whether each request is logged.

    Raises:
        Unavailable: If the address or the store is in use.
        InvalidInput: If the directory contains something else than a store, or the token cannot be sent in a header.
        StoreDamaged: If the store's files are corrupt.
    """
    failures: list[CoregwError] = []

    async def opened() -> RocksStore:
        try:
            return await open_store(data)
        except CoregwError as error:
            failures.append(error)  # uvicorn would only log it
            raise

    app = create_app(opened, AccessToken.from_environment(TOKEN_VARIABLE))
    with listen(Settings(host=host, port=port), _CONNECTIONS) as listener:
        url = url_of(listener)
        app.on_startup.append(lambda: on_ready(url))
        config = uvicorn.Config(
            AccessLog(app) if logs_requests else app,
            http="h11",  # its parser bounds the head of a request
            ws="none",
            lifespan="on",
            log_config=None,
            log_level="critical",  # it logs each malformed request
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        )
        for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises the signal again when it has shut down
            signal.signal(number, lambda *_: sys.exit(0))
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except SystemExit:  # it did not start, or a signal has ended it
            if failures:
                raise failures[0] from None
            raise


def create_app(open_store: Callable[[], Awaitable[Store]], token: AccessToken | None) -> Litestar:
    """Create the application.

    Args:
        open_store: Opens the store when the application starts; it is closed when the application ends.
        token: The token that clients must send; None omits the route that creates plants, and logs a warning.
    """

    @asynccontextmanager
    async def opened(app: Litestar) -> AsyncIterator[None]:
        app.state.store = store = await open_store()
        try:
            yield
        finally:
            await store.close()

    handlers: list[HTTPRouteHandler] = [openapi_document, healthz]
    if token is not None:
        handlers.append(_create_route(token))
    else:
        logger.warning("%s is not set, so there is no %s", TOKEN_VARIABLE, PATH)
    return Litestar(
        route_handlers=handlers,
        lifespan=[opened],
        exception_handlers={Exception: _handle_exception, HTTPException: _handle_exception},
        before_send=[_add_headers],
        request_max_body_size=MAX_BODY_BYTES,
        openapi_config=None,  # it has no formats of integers, and bounds as floats, which are not those of int64
        logging_config=None,
        debug=False,
    )


def _create_route(token: AccessToken) -> HTTPRouteHandler:
    access = Access(TokenPolicy(write_token=token))

    @post(PATH, status_code=200)
    async def create_plant(request: Request[Any, Any, Any]) -> Response[bytes]:
        """``POST /plants``. Checks the token before reading anything else of the request."""
        await access.check(request.scope, WRITE)
        query_parameters(request.scope)
        check_json_type(request.scope)
        try:
            new = decode_plant(await request.body())
        except RequestEntityTooLarge:
            raise TooLarge(f"the body is longer than the limit of {MAX_BODY_BYTES} bytes") from None
        plant = encode(Plant(name=new.name, tag=new.tag))
        if not await put_plant(request.app.state.store, new.id, plant):
            return _failure(400, f"the id {new.id} is taken by another plant", error=ID_TAKEN)
        return Response(plant, media_type=_JSON)

    return create_plant


@route("/openapi.json", http_method=["GET", "HEAD"])
async def openapi_document(request: Request[Any, Any, Any]) -> Response[bytes]:
    """The OpenAPI document, which needs no token."""
    query_parameters(request.scope)
    return Response(document(), media_type=_JSON)


@route("/healthz", http_method=["GET", "HEAD"])
async def healthz(request: Request[Any, Any, Any]) -> Response[bytes]:
    """Whether the store can be read and written, which needs no token: 200 or 503."""
    query_parameters(request.scope)
    store = cast("Store", request.app.state.store)
    try:
        async with asyncio.timeout(_HEALTH_SECONDS):
            is_healthy = await store.healthy()
    except TimeoutError:
        raise Unavailable("the store does not respond") from None
    if not is_healthy:
        raise Unavailable("the store cannot be read or written")
    return Response(b'{"status":"ok"}', media_type=_JSON, headers={"Cache-Control": "no-store"})


def _failure(
    status: int, message: str, *, error: int | None = None, headers: Mapping[str, str] | None = None
) -> Response[bytes]:
    """Return the response for a failure; `error` is the number in its body, `status` if None."""
    body = encode(Error(error=status if error is None else error, message=message))
    return Response(body, status_code=status, media_type=_JSON, headers=headers)


def _handle_exception(request: Request[Any, Any, Any], error: Exception) -> Response[bytes]:
    """Return the response for an exception of a route or of the routing, with what of it a client may know."""
    problem = problem_of(request.scope, error)
    return _failure(problem.status, problem.message, headers=problem.all_headers)


async def _add_headers(message: Message, _: Scope) -> None:
    """Add the headers of every response, failures and unknown routes included."""
    if message["type"] == "http.response.start":
        message["headers"] = [*message["headers"], (b"x-content-type-options", b"nosniff")]


# --- rows -------------------------------------------------------------------------------------------------------------


def plant_key(plant_id: int) -> bytes:
    """Return the key of a plant in `Table.RECORDS`: ``p`` and the id, in the order of ids, negative ones included.

    Raises:
        InvalidInput: `plant_id` is not an int64.
    """
    if not -(1 << 63) <= plant_id < 1 << 63:
        raise InvalidInput(f"plant id {plant_id}: not a 64-bit integer")
    return b"p" + (plant_id + (1 << 63)).to_bytes(8, "big")


async def put_plant(store: Store, plant_id: int, plant: bytes) -> bool:
    """Store a plant under its id, durably, unless the id is taken: a plant never changes.

    Returns:
        True if this plant was stored, False if the id was taken: nothing changed, and the plant that has it is durable.
        Of concurrent plants with one id exactly one is stored.

    Raises:
        InvalidInput: `plant_id` is not an int64.
        Unavailable: The store cannot write at the moment (`StorageFull`: it has no room).
    """
    return await store.compare_and_set(Table.RECORDS, plant_key(plant_id), None, plant)
