"""OpenTelemetry tracing: one span for each request, sent by OTLP. Off unless configured; then it costs nothing.

It is on if ``OTEL_EXPORTER_OTLP_ENDPOINT`` is set; OpenTelemetry's other variables apply as well
(``OTEL_SERVICE_NAME``, ``OTEL_TRACES_SAMPLER``). A span has the route template, never a path, a header or a byte of a
body.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from litestar.enums import ScopeType

from coregw import __version__
from coregw.extras import missing_extra

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send
    from opentelemetry.trace import Tracer

__all__ = ["is_traced", "tracing"]

Wrap = Callable[["ASGIApp"], "ASGIApp"]

_SERVICE: Final = "coregw"
_ENDPOINT: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"
_CARRIED: Final = frozenset({b"traceparent", b"tracestate"})


def is_traced() -> bool:
    """Whether requests are traced in this process."""
    return bool(os.environ.get(_ENDPOINT))


@asynccontextmanager
async def tracing() -> AsyncIterator[Wrap]:
    """Yield a function that adds tracing to an application, or returns it as it is if tracing is off.

    At the end, the spans that have not been sent are sent, for a limited time.

    Raises:
        MissingExtraError: If tracing is on and the extra ``otel`` is not installed.
    """
    if not is_traced():
        yield lambda app: app
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise missing_extra(error, "tracing", "otel") from error
    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": _SERVICE}
    provider = TracerProvider(resource=Resource.create(named | {"service.version": __version__}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    tracer = provider.get_tracer(_SERVICE, __version__)
    try:
        yield lambda app: _Traced(app, tracer)
    finally:
        await asyncio.to_thread(provider.shutdown)


class _Traced:
    """An ASGI application with a span for each request."""

    def __init__(self, app: ASGIApp, tracer: Tracer) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415 - only if tracing is on
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._app = app
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()
        self._kind = SpanKind.SERVER
        self._failure = Status(StatusCode.ERROR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point. Only scopes of type ``http`` have spans."""
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        carrier = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _CARRIED}
        with self._tracer.start_as_current_span(
            scope["method"], self._propagator.extract(carrier), self._kind, record_exception=False
        ) as span:
            span.set_attribute("http.request.method", scope["method"])

            async def send_traced(message: Message) -> None:
                if message["type"] == "http.response.start":
                    route = scope.get("path_template")
                    if route:
                        span.update_name(f"{scope['method']} {route}")
                        span.set_attribute("http.route", route)
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(self._failure)
                await send(message)

            await self._app(scope, receive, send_traced)
