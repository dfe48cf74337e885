"""Dispatch of requests: hot routes through a table of ASGI handlers, everything else to Litestar.

Litestar's routing, request objects and response conversion cost several times what a cached lookup costs
(``docs/decisions/0020``). Each path is served by exactly one of the two: the table answers all methods of its paths,
OPTIONS and 405 included, in all spellings that Litestar accepts as well.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from litestar.enums import ScopeType

from coregw.errors import StoreDamaged
from coregw.gateway.context import Gateway
from coregw.gateway.description import Description
from coregw.gateway.http.problems import log_failure, method_not_allowed, problem_of
from coregw.gateway.http.replies import Reply
from coregw.gateway.logs import CURRENT
from coregw.gateway.metrics import RouteCounts, counts_of

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

__all__ = ["Dispatcher", "HotRoute", "hot_route", "normalize"]

_Handler = Callable[[Gateway, "HTTPScope", "Receive"], Awaitable[Reply]]
_Headers = list[tuple[bytes, bytes]]

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_SLASHES: Final = re.compile("//+")


@dataclass(frozen=True, slots=True)
class HotRoute:
    """One method of one path of the table.

    Attributes:
        method: The HTTP method.
        path: The path; its last segment may be a parameter, such as ``{cid}``, whose value is in the scope's
            ``path_params``.
        handle: Answers a request. What it raises becomes an error response.
        description: Its part of the OpenAPI document.
    """

    method: str
    path: str
    handle: _Handler
    description: Description


def hot_route(method: str, path: str, description: Description) -> Callable[[_Handler], HotRoute]:
    """Return a decorator that makes a handler a `HotRoute`."""
    return lambda handler: HotRoute(method, path, handler, description)


class _Resource:
    """The hot routes of one path, by method."""

    __slots__ = ("_counts", "allowed", "parameter", "path", "routes")

    def __init__(self, path: str, routes: Iterable[HotRoute]) -> None:
        self.routes: Mapping[str, HotRoute] = {each.method: each for each in routes}
        self.allowed = sorted({*self.routes, "OPTIONS"})
        self.path = path
        self._counts: Mapping[str, RouteCounts] = {each: counts_of(each, path) for each in self.allowed}
        found = _PARAMETER.search(path)
        self.parameter = None if found is None else found[1]

    async def answer(self, gateway: Gateway, scope: HTTPScope, receive: Receive) -> Reply:
        route = self.routes.get(scope["method"])
        if route is not None:
            try:
                gateway.write_access.check(route.description, scope)
                return await route.handle(gateway, scope, receive)
            except Exception as error:  # noqa: BLE001 - `problem_of` logs what it does not know
                return problem_of(scope, error).reply()
        if scope["method"] == "OPTIONS":
            return Reply(status=204, headers={"Allow": ", ".join(self.allowed)})
        return method_not_allowed(scope, self.allowed).reply()

    def count(self, method: str, reply: Reply, nanoseconds: int) -> None:
        """Count a response for metrics. The work for each request is kept below half a microsecond."""
        counts = self._counts.get(method) or counts_of(method, self.path)
        body = reply.body
        counts.add(reply.status, nanoseconds, len(body) if isinstance(body, bytes) else reply.declared_bytes())


class Dispatcher:
    """The gateway as an ASGI application."""

    def __init__(
        self,
        gateway: Gateway,
        hot: Iterable[HotRoute],
        litestar: ASGIApp,
        response_headers: Callable[[str], _Headers],
    ) -> None:
        """Build the table.

        Args:
            gateway: What the handlers of hot routes work with.
            hot: The hot routes.
            litestar: Serves all other paths.
            response_headers: Returns the headers of all responses for a path, errors included.
        """
        self.gateway = gateway
        self.hot = tuple(hot)
        self.litestar = litestar
        self._counted = _Counted(litestar)
        self._response_headers = response_headers
        paths = dict.fromkeys(route.path for route in self.hot)
        resources = {path: _Resource(path, [each for each in self.hot if each.path == path]) for path in paths}
        self._fixed = {path: each for path, each in resources.items() if each.parameter is None}
        self._parametrised = {
            path.rpartition("/")[0]: each for path, each in resources.items() if each.parameter is not None
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point. Scopes other than ``http`` are Litestar's."""
        if scope["type"] != ScopeType.HTTP:
            await self.litestar(scope, receive, send)
            return
        began = time.perf_counter_ns()
        CURRENT.set(scope)  # each request is a task of its own, with its own context
        headers = self._response_headers(scope["path"])

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *headers]
            await send(message)

        resource = self._find(scope)
        if resource is None:
            await self._counted(scope, receive, send_with_headers)
        else:
            scope["path_template"] = resource.path  # for the access log and for tracing
            reply = await resource.answer(self.gateway, scope, receive)
            resource.count(scope["method"], reply, time.perf_counter_ns() - began)
            try:
                await reply(scope, receive, send_with_headers)
            except StoreDamaged as error:  # it has begun: uvicorn closes the connection
                log_failure(scope, error)

    def _find(self, scope: HTTPScope) -> _Resource | None:
        """Return the resource that a path names, and put the path's parameter into the scope."""
        path = scope["path"]
        if (resource := self._fixed.get(path)) is not None:
            return resource
        if path[-1:] == "/" or "//" in path:
            path = normalize(path)
            if (resource := self._fixed.get(path)) is not None:
                return resource
        above, _, last = path.rpartition("/")
        resource = self._parametrised.get(above)
        if resource is not None and resource.parameter is not None:
            scope["path_params"] = {resource.parameter: last}
        return resource


class _Counted:
    """An ASGI application whose responses are counted for metrics, by the route template that Litestar has found."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point. Only scopes of type ``http`` are counted."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        CURRENT.set(scope)
        began = time.perf_counter_ns()
        status = took = size = 0

        async def send_counted(message: Message) -> None:
            nonlocal status, took, size
            if message["type"] == "http.response.start":
                status, took = message["status"], time.perf_counter_ns() - began
            elif message["type"] == "http.response.body":
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self._app(scope, receive, send_counted)
        finally:
            if status:
                counts_of(scope["method"], scope.get("path_template")).add(status, took, size)


def normalize(path: str) -> str:
    """Return a path without empty segments and without a slash at its end, as Litestar routes it."""
    return _SLASHES.sub("/", "/" + path.strip("/"))
