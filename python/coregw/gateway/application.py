"""Litestar, with a short way to the handlers that need nothing of it but a request.

What Litestar does for each request (routing, signature models, encoding responses, two layers of exception handlers)
costs several times what a look-up does. So a handler whose path is plain, or ends in its one parameter, and that no
guard stands before, is called at once, and its response is sent as Litestar would send it. All else goes through
Litestar: HEAD, OPTIONS, methods and paths that there are not, and paths in another spelling.

Leaves out what is served (`app`), and what is no valid request (`wire`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from litestar import Litestar, Request, Response
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.routes import HTTPRoute

if TYPE_CHECKING:
    from litestar.types import HTTPScope, LifeSpanReceive, LifeSpanScope, LifeSpanSend, Message, Receive, Scope, Send

__all__ = ["Application"]

_SHORT_METHODS: Final = ("GET", "POST")
_DIRECT_TYPES: Final = ("application/json", "application/octet-stream", "application/vnd.ipld.raw")
"""Media types that go out as they are; Litestar adds a charset to some others."""


_Request = Request[Any, Any, Any]
_Headers = list[tuple[bytes, bytes]]


_Handler = Callable[..., Awaitable[Response[Any]]]


class _Short(NamedTuple):
    """A handler, the name of its parameter, if it has one, and the status of responses that say none."""

    handle: _Handler
    parameter: str | None
    status: int


class Application(Litestar):
    """A Litestar application that answers most requests without Litestar's detours."""

    def __init__(
        self,
        on_error: Callable[[_Request, Exception], Response[bytes]],
        extra_headers: Callable[[str], _Headers],
        **options: Any,  # noqa: ANN401 - Litestar's own
    ) -> None:
        """Makes the application, and a table of the short ways.

        Args:
            on_error: Makes the response to any exception of a handler or of the routing.
            extra_headers: Gives the headers that every answer to a path has, failures and unknown paths included.
            options: As for Litestar.
        """
        self._on_error = on_error
        self._extra_headers = extra_headers
        handlers: dict[int | type[Exception], Any] = {Exception: on_error, HTTPException: on_error}
        super().__init__(**options, exception_handlers=handlers, before_send=[self._add_headers])
        self._short: dict[tuple[str, str], _Short] = {}
        self._plain_paths = {route.path for route in self.routes}
        for route in self.routes:
            if isinstance(route, HTTPRoute):
                self._shorten(route)

    @property
    def short_ways(self) -> frozenset[tuple[str, str]]:
        """The methods and paths with a short way; what ends in a slash has a parameter behind it."""
        return frozenset(self._short)

    def _shorten(self, route: HTTPRoute) -> None:
        """Notes the short ways to the handlers of a path."""
        above, _, last = route.path.rpartition("/")
        known = list(route.path_parameters)
        for method in _SHORT_METHODS:
            if method not in route.route_handler_map:
                continue
            handler, _ = route.route_handler_map[method]
            if handler.resolve_guards() or set(handler.parsed_fn_signature.parameters) != {"request", *known}:
                continue
            if not known:
                self._short[method, route.path] = _Short(handler.fn, None, handler.status_code)
            elif last == f"{{{known[0]}:str}}":
                self._short[method, f"{above}/"] = _Short(handler.fn, known[0], handler.status_code)

    async def __call__(
        self, scope: Scope | LifeSpanScope, receive: Receive | LifeSpanReceive, send: Send | LifeSpanSend
    ) -> None:
        """Answers one request, or lives one life."""
        if scope["type"] == ScopeType.HTTP:
            scope, receive, send = cast("HTTPScope", scope), cast("Receive", receive), cast("Send", send)
            path, method = scope["path"], scope["method"]
            short = self._short.get((method, path))
            if short is not None and short.parameter is None:
                await self._answer(short, {}, scope, receive, send)
                return
            above, slash, last = path.rpartition("/")
            short = self._short.get((method, above + slash))
            if short is not None and short.parameter is not None and last and path not in self._plain_paths:
                await self._answer(short, {short.parameter: last}, scope, receive, send)
                return
        await super().__call__(scope, receive, send)

    async def _answer(
        self, short: _Short, parameters: dict[str, str], scope: HTTPScope, receive: Receive, send: Send
    ) -> None:
        """Calls a handler and sends what it returns. What goes wrong while sending is the server's to log."""
        scope["app"] = scope["litestar_app"] = self  # where a request looks for its application
        request: _Request = Request(scope, receive, send)
        try:
            response = await short.handle(request, **parameters)
        except Exception as error:  # noqa: BLE001 - as Litestar's own way, where `on_error` judges all of them too
            response = self._on_error(request, error)
        status, media_type, body = response.status_code or short.status, response.media_type, response.content
        if not body or media_type not in _DIRECT_TYPES or type(response) is not Response:
            await response.to_asgi_response(app=None, request=request, status_code=status)(
                scope, receive, partial(self._send_with_headers, scope, send)
            )
            return
        headers = [
            (b"content-type", media_type.encode()),
            (b"content-length", b"%d" % len(body)),
            *((name.lower().encode("latin-1"), text.encode("latin-1")) for name, text in response.headers.items()),
            *self._extra_headers(scope["path"]),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    async def _send_with_headers(self, scope: Scope, send: Send, message: Message) -> None:
        await self._add_headers(message, scope)
        await send(message)

    async def _add_headers(self, message: Message, scope: Scope) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *self._extra_headers(scope["path"])]
