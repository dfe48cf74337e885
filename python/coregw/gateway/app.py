"""Composition of the gateway: an engine over a store, hot routes, Litestar's routes, and the headers of all responses.

``coregw.gateway.server`` runs it on a socket.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from litestar import Litestar
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException

from coregw.engine import Engine, EngineLimits
from coregw.errors import Unauthorized
from coregw.gateway.access import AccessToken
from coregw.gateway.context import Gateway
from coregw.gateway.description import description_of
from coregw.gateway.http.dispatch import Dispatcher, normalize
from coregw.gateway.http.problems import handle_exception, problem_of
from coregw.gateway.openapi import build_document
from coregw.gateway.routes import health, ipfs, objects, pages, payloads, publications, queries, roots
from coregw.gateway.routes.publications import admin_router
from coregw.gateway.settings import Settings
from coregw.gateway.stores import open_settings_store
from coregw.store import Store

if TYPE_CHECKING:
    from litestar.connection import ASGIConnection
    from litestar.handlers.base import BaseRouteHandler
    from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

__all__ = ["HOT", "Guarded", "create_app", "open_engine"]

HOT: Final = (*queries.hot, *payloads.hot, *objects.hot)
"""The routes in front of Litestar."""

_GROUPS: Final = (queries, ipfs, roots, publications, health, pages)
"""The modules with the routes that Litestar serves for everybody."""

_HEADERS: Final = [(b"x-content-type-options", b"nosniff")]
_VERIFY_HEADERS: Final = [*_HEADERS, (b"x-core-verification-role", b"diagnostic")]
_EXPOSED: Final = (
    b"Content-Length",
    b"Content-Range",
    b"X-Chunked-Output",
    b"X-Ipfs-Path",
    b"X-Ipfs-Roots",
    b"X-Stream-Output",
)
"""What IPFS gateways expose to web pages (gateway-conformance, *TestCors*)."""

_ADMIN: Final = "/admin"
_VERIFY_PATHS: Final = frozenset({"/v1/verify/resolve", "/v1/verify/read"})


async def open_engine(settings: Settings, store: Store | None = None) -> Engine:
    """Open an engine over `store`, or over the one that the settings name.

    Raises:
        InvalidInput, Unavailable, StoreDamaged: As `coregw.gateway.stores.open_settings_store`.
    """
    if store is None:
        store = await open_settings_store(settings)
    return Engine(store, engine_limits(settings))


def engine_limits(settings: Settings) -> EngineLimits:
    """Return what the settings say of an engine."""
    return EngineLimits(
        cache_bytes=settings.cache_bytes,
        held_roots=settings.held_roots,
        node_budget=settings.node_budget,
        worker_threads=settings.worker_threads,
        max_nodes=settings.max_nodes,
        operation_seconds=settings.operation_seconds,
        long_queries=settings.long_queries,
        batch_answer_bytes=settings.batch_answer_bytes,
        heavy_requests=settings.heavy_requests,
        change_bytes=settings.change_bytes,
        payload_bytes=min(settings.payload_bytes, 2**32 - 1),
        car_blocks=settings.car_blocks,
        cars_at_once=settings.cars_at_once,
        build_run_bytes=settings.build_run_bytes,
        build_spool_bytes=settings.build_spool_bytes,
        spool=settings.data if settings.data.is_dir() else None,  # a store in memory has no directory
        reserve_bytes=settings.reserve_bytes,
    )


def create_app(gateway: Gateway, admin_token: AccessToken | None = None) -> Dispatcher:
    """Return the gateway as an ASGI application. It has no lifespan: the caller closes the engine.

    Args:
        gateway: The engine and the limits.
        admin_token: The token that the administration routes require; without one they do not exist.
    """
    litestar = Litestar(
        route_handlers=[
            *(handler for group in _GROUPS for handler in group.handlers),
            *pages.page_handlers(),
            *pages.explorer_handlers(),
            *([] if admin_token is None else [admin_router()]),
        ],
        guards=[_check_write_access],
        exception_handlers={Exception: handle_exception, HTTPException: handle_exception},
        state=State({"gateway": gateway}),
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    litestar.state["openapi"] = build_document(HOT, litestar)
    served = litestar if admin_token is None else Guarded(litestar, admin_token)
    return Dispatcher(gateway, HOT, served, _response_headers(gateway.settings.allow_origin))


def _check_write_access(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Litestar's guard of its routes. Raises `CoregwError` if a request may not use one."""
    scope = cast("HTTPScope", connection.scope)  # there are no routes of another type
    description = description_of(handler.opt, scope["method"])
    if description is not None:
        gateway: Gateway = connection.app.state["gateway"]
        gateway.write_access.check(description, scope)


class Guarded:
    """An application that requires a token for every path of the administration, or for every path.

    Routing comes after it: without the token no client learns which paths exist, or which methods they have.

    Attributes:
        app: The application behind it.
    """

    def __init__(self, app: ASGIApp, token: AccessToken, *, everywhere: bool = False) -> None:
        self.app = app
        self._token = token
        self._everywhere = everywhere

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point."""
        if scope["type"] == ScopeType.HTTP and (self._everywhere or _is_admin(scope["path"])):
            try:
                self._token.check(scope)
            except Unauthorized as error:
                await problem_of(scope, error).reply()(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _is_admin(path: str) -> bool:
    """Whether a path is that of the administration or below it, in any spelling that is routed there."""
    return _ADMIN in path and f"{normalize(path)}/".startswith(f"{_ADMIN}/")


def _response_headers(allowed_origin: str) -> Callable[[str], list[tuple[bytes, bytes]]]:
    """Return a function from a path to the headers of all its responses, errors and unknown paths included.

    Web pages of the allowed origin, or of any (``*``), may use all but the administration routes. The headers do not
    depend on the request, so caches need no Vary. The wildcards allow all headers but Authorization; the others are
    named for clients that look for the names.
    """
    cors = [
        (b"access-control-allow-origin", allowed_origin.encode()),
        (b"access-control-allow-methods", b"GET, HEAD, OPTIONS, POST"),
        (b"access-control-allow-headers", b"*, Authorization, Content-Type, Range, User-Agent, X-Requested-With"),
        (b"access-control-expose-headers", b"*, " + b", ".join(_EXPOSED)),
        (b"access-control-max-age", b"7200"),
    ]
    plain, verify = ([*each, *(cors if allowed_origin != "none" else [])] for each in (_HEADERS, _VERIFY_HEADERS))

    def headers(path: str) -> list[tuple[bytes, bytes]]:
        if _is_admin(path):
            return _HEADERS
        return verify if "/verify/" in path and normalize(path) in _VERIFY_PATHS else plain

    return headers
