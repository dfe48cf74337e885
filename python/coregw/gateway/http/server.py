"""uvicorn's server as the gateway uses it: its configuration, signals, and a callback when it accepts connections."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from coregw.gateway.http.connection import GatewayProtocol, protocol_for
from coregw.gateway.limits.accepting import Acceptor
from coregw.gateway.settings import Settings

if TYPE_CHECKING:
    import socket

    from litestar.types import ASGIApp

__all__ = ["HttpServer"]


class HttpServer(uvicorn.Server):
    """Calls back when it is ready, and shuts down on a signal without raising the signal again afterwards."""

    def __init__(
        self,
        settings: Settings,
        app: ASGIApp,
        on_ready: Callable[[], None],
        *,
        handles_signals: bool = True,
    ) -> None:
        """Configure a server; `serve` runs it on sockets.

        Args:
            settings: The limits.
            app: The ASGI application.
            on_ready: Called when connections are accepted.
            handles_signals: Whether SIGINT and SIGTERM stop it, if it runs in the main thread.
        """
        protocol = protocol_for(settings)
        super().__init__(_config(settings, app, protocol))
        self.shared: Final = protocol.shared
        """What its connections share."""
        self._protocol = protocol
        self._acceptors: list[Acceptor] = []
        self._on_ready = on_ready
        self._handles_signals = handles_signals

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on the sockets, and call back."""
        await super().startup([])
        self._acceptors = [
            Acceptor(each, self._create_protocol, self.config.backlog, self.shared.share) for each in sockets or []
        ]
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, close the sockets, and finish the requests in flight."""
        for acceptor in self._acceptors:
            await acceptor.close()
        await super().shutdown(sockets)

    def _create_protocol(self) -> GatewayProtocol:
        return self._protocol(self.config, self.server_state, self.lifespan.state)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM while the context is active, if this server is to."""
        if not self._handles_signals or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _config(settings: Settings, app: ASGIApp, protocol: type[GatewayProtocol]) -> uvicorn.Config:
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it logs a warning for each malformed request
    asgi: Any = app
    return uvicorn.Config(
        asgi,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=settings.backlog,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
