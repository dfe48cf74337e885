"""Running the gateway: a socket, uvicorn, signals, and a clean end.

``run`` is what ``coregw serve`` calls; `GatewayServer` is for a program that has an event loop of its own. Leaves out
processes and TLS: several gateways can't share one RocksDB directory, and TLS belongs to a proxy in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import uvicorn

from coregw.engine import Engine
from coregw.errors import Unavailable
from coregw.gateway.admin import TOKEN_VARIABLE
from coregw.gateway.app import create_app, open_engine
from coregw.gateway.settings import Settings
from coregw.gateway.tokens import AccessToken
from coregw.gateway.wire import Refusal, protocol_for, refusal
from coregw.store import Store

if TYPE_CHECKING:
    from litestar.types import ASGIApp

__all__ = ["GATEWAY", "GatewayServer", "Service", "announce", "run"]

logger = logging.getLogger("coregw.gateway")


@dataclass(frozen=True, slots=True)
class Service:
    """What a server answers with, so that other services can share its sockets, its limits and its store.

    Attributes:
        create_app: Makes the application over an open engine, which it does not close; the token opens the gateway's
            administration routes.
        refusal: Words the answer to what is no HTTP request, and so never reaches the application.
    """

    create_app: Callable[[Settings, Engine, AccessToken | None], ASGIApp]
    refusal: Refusal


GATEWAY: Final = Service(create_app, refusal)
"""The gateway alone."""


def announce(url: str) -> None:
    """Writes the one line that tells a person, or the program that started this one, where the gateway listens."""
    sys.stdout.write(f"coregw: listening on {url}\n")
    sys.stdout.flush()


def run(settings: Settings, on_ready: Callable[[str], None] = announce, service: Service = GATEWAY) -> None:
    """Runs a gateway until SIGINT or SIGTERM, then lets requests under way finish, closes the store, and returns.

    Args:
        settings: Where it listens, where its data is, and all limits.
        on_ready: Called with the address once connections are accepted.
        service: What it answers with.

    Raises:
        Unavailable: The address or the store is taken; the message says which and why.
        InvalidInput: The data directory holds something else than a store, or a token can't travel in a header.
        StoreDamaged: The store's files are corrupt.
    """
    logging.basicConfig(level=settings.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    admin_token = AccessToken.from_environment(TOKEN_VARIABLE)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(GatewayServer(settings, on_ready=on_ready, admin_token=admin_token, service=service).serve())


class GatewayServer:
    """One gateway in one event loop."""

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        on_ready: Callable[[str], None] | None = None,
        *,
        admin_token: AccessToken | None = None,
        service: Service = GATEWAY,
    ) -> None:
        """Prepares a gateway; nothing is opened yet.

        Args:
            settings: Where it listens, and all limits.
            store: The store to serve, closed at the end; None opens the one in ``settings.data``.
            on_ready: Called with the address once connections are accepted.
            admin_token: What opens the administration routes; without it there are none.
            service: What it answers with.
        """
        self._settings = settings
        self._admin_token = admin_token
        self._service = service
        self._store = store
        self._on_ready = on_ready
        self._server: _Uvicorn | None = None
        self._stopped = False

    async def serve(self) -> None:
        """Serves until `stop`, or a signal if this is the main thread. Raises as `run`."""
        with _listen(self._settings) as listener:
            engine = await open_engine(self._settings, self._store)
            try:
                app = self._service.create_app(self._settings, engine, self._admin_token)
                config = _config(self._settings, app, self._service.refusal)
                self._server = _Uvicorn(config, self._ready(listener))
                self._server.should_exit = self._stopped
                await self._server.serve([listener])
            finally:
                await engine.close()
        logger.info("stopped")

    def stop(self) -> None:
        """Begins the end, from any thread: no new connections, requests under way finish, `serve` returns."""
        self._stopped = True
        if self._server is not None:
            self._server.should_exit = True

    def _ready(self, listener: socket.socket) -> Callable[[], None]:
        host, port = listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

        def ready() -> None:
            logger.info("listening on %s, data in %s", url, self._settings.data)
            if self._on_ready is not None:
                self._on_ready(url)

        return ready


class _Uvicorn(uvicorn.Server):
    """Says when it is ready, and takes a signal as a wish to end well, not as a reason to die of it afterwards."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _config(settings: Settings, app: ASGIApp, refusal: Refusal) -> uvicorn.Config:
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # its warnings are one line for each bad client
    return uvicorn.Config(
        app,
        http=protocol_for(settings, refusal),
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=settings.backlog,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )


def _listen(settings: Settings) -> socket.socket:
    """A bound socket for the first address of the host that can be had."""
    where = f"{settings.host}:{settings.port}"
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        return socket.create_server(address, family=family, backlog=settings.backlog)
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no such host"
        raise Unavailable(f"cannot listen on {where}: {reason}") from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Uvloop where there is one; it is twice as fast on sockets."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return None
    return uvloop.new_event_loop
