"""The gateway as a Litestar application: an engine over a store, all routes, and what holds for every request.

Any ASGI server runs it, such as ``uvicorn --factory coregw.gateway:create_app``: it needs no server of its own to be
safe. `coregw.gateway.server` runs it with the limits on connections that a server has to keep.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, cast

from litestar import Litestar
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException

from coregw._core import Origins, Proxies
from coregw.engine import Engine, EngineLimits
from coregw.gateway.access import (
    OPERATE,
    READ,
    WRITE_TOKEN_VARIABLE,
    Access,
    AccessToken,
    TokenPolicy,
    action_of,
    warn_of_open_writes,
)
from coregw.gateway.context import Gateway
from coregw.gateway.description import description_of
from coregw.gateway.limits.machine import Limits
from coregw.gateway.limits.peers import Peers
from coregw.gateway.logs import CURRENT, AccessLog
from coregw.gateway.metrics import counts_of
from coregw.gateway.openapi import build_document
from coregw.gateway.replies import Problem, Reply, handle_exception, problem_of
from coregw.gateway.routes import health, ipfs, objects, pages, payloads, publications, queries, roots
from coregw.gateway.routes.publications import TOKEN_VARIABLE, admin_router
from coregw.gateway.settings import Settings
from coregw.gateway.stores import open_settings_store
from coregw.gateway.tracing import tracing
from coregw.store import Store

if TYPE_CHECKING:
    from litestar.connection import ASGIConnection
    from litestar.handlers.base import BaseRouteHandler
    from litestar.types import ASGIApp, ControllerRouterHandler, HTTPScope, Message, Receive, Scope, Send

__all__ = ["Application", "Rules", "create_app", "create_app_over", "open_engine", "response_headers"]

_GROUPS: Final = (queries, payloads, objects, ipfs, roots, publications, health, pages)
"""The modules with the routes for everybody."""

_Headers = list[tuple[bytes, bytes]]

_HEADERS: Final[_Headers] = [(b"x-content-type-options", b"nosniff")]
_VERIFY_HEADERS: Final[_Headers] = [*_HEADERS, (b"x-core-verification-role", b"diagnostic")]
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
_CHECKED: Final = (b"host", b"origin", b"sec-fetch-site")
_SLASHES: Final = re.compile("//+")


async def open_engine(settings: Settings, limits: Limits, store: Store | None = None) -> Engine:
    """Open an engine over `store`, or over the one that the settings name.

    Raises:
        InvalidInput, Unavailable, StoreDamaged: As `coregw.gateway.stores.open_settings_store`.
    """
    if store is None:
        store = await open_settings_store(settings, limits)
    return Engine(store, engine_limits(settings, limits))


def engine_limits(settings: Settings, limits: Limits) -> EngineLimits:
    """Return the limits of an engine."""
    return EngineLimits(
        cache_bytes=limits.cache_bytes,
        held_roots=limits.held_roots,
        node_budget=limits.node_budget,
        worker_threads=limits.worker_threads,
        max_nodes=limits.max_nodes,
        operation_seconds=limits.operation_seconds,
        long_queries=limits.long_queries,
        batch_answer_bytes=limits.batch_answer_bytes,
        heavy_requests=limits.heavy_requests,
        change_bytes=limits.change_bytes,
        payload_bytes=limits.payload_bytes,
        car_blocks=limits.car_blocks,
        cars_at_once=limits.cars_at_once,
        build_run_bytes=limits.build_run_bytes,
        build_spool_bytes=limits.build_spool_bytes,
        spool=settings.data if settings.data.is_dir() else None,  # a store in memory has no directory
        reserve_bytes=settings.reserve_bytes,
    )


def create_app(
    store: Store | None = None, settings: Settings | None = None, *, limits: Limits | None = None
) -> Litestar:
    """Return the gateway as an application that opens its engine when it starts, and closes it when it ends.

    The tokens are those of ``GATEWAY_WRITE_TOKEN`` and ``GATEWAY_ADMIN_TOKEN`` in the environment. What
    ``coregw serve`` does beside serving clients is not part of it: the management addresses, and garbage collections.

    Args:
        store: The store, which the application closes when it ends; None opens the one that the settings name.
        settings: The settings; None loads them from the environment. Those of connections are the server's business,
            but for `host`: on loopback, requests may not name hosts that `hosts` does not have.
        limits: The limits; None derives them from the settings.

    Raises:
        InvalidInput, Unavailable: If the settings or a token are malformed, or there is too little memory. The lifespan
            raises what `open_engine` does.
    """
    settings = Settings.load() if settings is None else settings
    of_all = Limits.of(settings) if limits is None else limits
    admin_token = AccessToken.from_environment(TOKEN_VARIABLE)
    write_token = AccessToken.from_environment(WRITE_TOKEN_VARIABLE)

    @asynccontextmanager
    async def opened(_: Litestar) -> AsyncIterator[None]:
        warn_of_open_writes(settings)
        engine = await open_engine(settings, of_all, store)
        try:
            async with tracing() as traced:
                app.state["gateway"] = Gateway.over(engine, settings, of_all)
                app.wrap(traced)
                yield
        finally:
            await engine.close()

    operators = admin_token if settings.management_host_and_port is None else None
    app = _compose(settings, operators, write_token, [opened])
    return app


def create_app_over(
    gateway: Gateway, admin_token: AccessToken | None = None, write_token: AccessToken | None = None
) -> Application:
    """Return the application of an open engine, which the caller closes.

    Args:
        gateway: The engine and the limits.
        admin_token: The token that the administration routes require; without one they do not exist.
        write_token: The token that the other routes that write require; without one, anybody may use them.
    """
    app = _compose(gateway.settings, admin_token, write_token)
    app.state["gateway"] = gateway
    return app


def _compose(
    settings: Settings,
    admin_token: AccessToken | None,
    write_token: AccessToken | None,
    lifespan: Sequence[Callable[[Litestar], AbstractAsyncContextManager[None]]] = (),
) -> Application:
    """Return the application without a gateway, which has to be in its state when requests arrive."""
    policy = TokenPolicy(settings.read_only, write_token, admin_token)
    rules = Rules(
        Origins(settings.hosts, settings.allow_origin, settings.host),
        Proxies(settings.proxies),
        Access(policy),
        headers=response_headers(settings.allow_origin),
        access_log=settings.access_log,
    )
    handlers = [
        *(handler for group in _GROUPS for handler in group.handlers),
        *pages.page_handlers(),
        *pages.explorer_handlers(),
        *([admin_router()] if policy.has_operators else []),
    ]
    app = Application(rules, handlers, lifespan=lifespan)
    app.state["openapi"] = cache(partial(build_document, app))  # few ask for it
    return app


@dataclass(frozen=True, slots=True)
class Rules:
    """What an application does with every request, before it is routed, and with every response.

    Attributes:
        origins: Which hosts requests may name, and which web pages may write. It is checked here although a server may
            have done so: an application cannot know that, a check takes two microseconds, and without one any page
            that somebody visits could read from, or write to, a gateway on that person's machine.
        proxies: The addresses of clients to which no limit per address applies.
        access: Who may do what.
        headers: Returns the headers of all responses to requests for a path.
        access_log: Whether each request is logged.
    """

    origins: Origins
    proxies: Proxies
    access: Access
    headers: Callable[[str], _Headers] = lambda _: _HEADERS
    access_log: bool = False

    def refuse_stranger(self, scope: HTTPScope) -> Reply | None:
        """Return the response to a request that names a host of others, or is a write of another origin's page."""
        found: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in _CHECKED:
                found[name] = value if name not in found else b"%b, %b" % (found[name], value)
        host, origin, site = (found.get(name) for name in _CHECKED)
        refused = self.origins.refusal(scope["method"].encode(), host, origin, site)
        return None if refused is None else Problem(*refused).reply()

    async def refuse_client(self, scope: HTTPScope) -> Reply | None:
        """Return the response to a request that may not even read, or not operate if it is for the administration.

        Unknown paths below that are part of it: so no client learns which paths and methods exist.
        """
        operates = self.access.policy.has_operators and _is_admin(scope["path"])
        refused = await self.access.refusal(scope, OPERATE if operates else READ)
        return None if refused is None else problem_of(scope, refused).reply()


class Application(Litestar):
    """A Litestar application that treats all requests by the same rules, also those that have no route.

    Litestar's middleware and guards run after routing, so a 404 or a 405 has none. What must hold for these as well is
    done here, around the application: access, headers, counts, shares of addresses, and the access log.

    Args:
        rules: What is done with every request.
        route_handlers: The routes.
        lifespan: Opened when the application starts, and closed when it ends.
    """

    def __init__(
        self,
        rules: Rules,
        route_handlers: Sequence[ControllerRouterHandler],
        *,
        lifespan: Sequence[Callable[[Litestar], AbstractAsyncContextManager[None]]] = (),
    ) -> None:
        super().__init__(
            route_handlers=route_handlers,
            guards=[_check_access],
            exception_handlers={Exception: handle_exception, HTTPException: handle_exception},
            lifespan=list(lifespan),
            state=State({"access": rules.access}),
            openapi_config=None,
            logging_config=None,
            debug=False,
        )
        self._rules = rules
        self._entry: ASGIApp = Peers(self._answer, rules.proxies)
        if rules.access_log:
            self._entry = AccessLog(self._entry)
        self._outermost: ASGIApp = self._entry

    def wrap(self, wrapper: Callable[[ASGIApp], ASGIApp]) -> None:
        """Let an ASGI application that `wrapper` makes answer requests. It replaces that of an earlier call."""
        self._outermost = wrapper(self._entry)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's types
        """ASGI entry point."""
        if scope["type"] == ScopeType.HTTP:
            await self._outermost(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count the response by the template of its route."""
        request = cast("HTTPScope", scope)
        request["path"], request["root_path"] = _own_path(request), ""  # so Litestar routes what the rules have seen
        CURRENT.set(request)  # servers run each request as a task of its own, with its own context
        began = time.perf_counter_ns()
        status = took = size = 0
        refusal, headers = self._rules.refuse_stranger(request), _HEADERS
        if refusal is None:
            refusal, headers = await self._rules.refuse_client(request), self._rules.headers(scope["path"])

        async def send_counted(message: Message) -> None:
            nonlocal status, took, size
            if message["type"] == "http.response.start":
                status, took = message["status"], time.perf_counter_ns() - began
                message["headers"] = [*message["headers"], *headers]
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        try:
            await (super().__call__ if refusal is None else refusal)(request, receive, send_counted)
        finally:
            if status:
                counts_of(request["method"], request.get("path_template")).add(status, took, size)


async def _check_access(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Litestar's guard of its routes. Raises `CoregwError` if a request may not use one."""
    scope = cast("HTTPScope", connection.scope)  # there are no routes of another type
    action = action_of(description_of(handler.opt, scope["method"]), connection.path_params)
    await Access.of(connection).check(scope, action)


def _own_path(scope: HTTPScope) -> str:
    """Return the path of a request below that at which a server has mounted the application."""
    path, above = scope["path"], scope.get("root_path", "").rstrip("/")
    return path[len(above) :] or "/" if path == above or path.startswith(f"{above}/") else path


def _normalized(path: str) -> str:
    """Return a path without empty segments and without a slash at its end, as Litestar routes it."""
    return _SLASHES.sub("/", "/" + path.strip("/"))


def _is_admin(path: str) -> bool:
    """Whether a path is that of the administration or below it, in any spelling that is routed there."""
    return _ADMIN in path and f"{_normalized(path)}/".startswith(f"{_ADMIN}/")


def response_headers(allowed_origin: str) -> Callable[[str], _Headers]:
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

    def headers(path: str) -> _Headers:
        if _is_admin(path):
            return _HEADERS
        return verify if "/verify/" in path and _normalized(path) in _VERIFY_PATHS else plain

    return headers
