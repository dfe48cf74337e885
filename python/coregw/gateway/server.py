"""Running the gateway in this process: a socket, uvicorn, signals, and a clean end.

``run`` is what ``coregw serve`` calls, and ``run_worker`` each of its workers if it has several; `GatewayServer` is for
a program that has an event loop of its own. Leaves out how several processes are kept running
(`coregw.gateway.supervisor`), and TLS, which belongs to a proxy in front.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import uvicorn

from coregw.engine import Engine
from coregw.errors import Unavailable
from coregw.gateway.app import create_app, open_engine
from coregw.gateway.heap import limit_arenas, limit_collector
from coregw.gateway.http.coalescing import protocol_for
from coregw.gateway.http.connection import Refusal, refusal
from coregw.gateway.listener import announce, listen, log_to_stderr, loop_factory, url_of
from coregw.gateway.routes.admin import TOKEN_VARIABLE
from coregw.gateway.settings import Settings
from coregw.gateway.tokens import AccessToken
from coregw.store import Store
from coregw.store.workers import open_remote

if TYPE_CHECKING:
    from litestar.types import ASGIApp

__all__ = ["GATEWAY", "GatewayServer", "Service", "announce", "run", "run_worker"]

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
    log_to_stderr(settings)
    limit_arenas()
    _allow_connections()
    admin_token = AccessToken.from_environment(TOKEN_VARIABLE)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        ready = _started(on_ready)
        runner.run(GatewayServer(settings, on_ready=ready, admin_token=admin_token, service=service).serve())


def run_worker(settings: Settings, number: int, descriptor: int, service: Service = GATEWAY) -> None:
    """Runs one of several gateways on one store, as `coregw.gateway.supervisor` starts them.

    Args:
        settings: Where it listens, with others, and its own limits.
        number: Which of the workers it is.
        descriptor: The file descriptor of the socket to the process that owns the store.
        service: What it answers with.

    Raises:
        Unavailable: The process that owns the store has ended.
        InvalidInput: A token can't travel in a header.
    """
    log_to_stderr(settings)
    limit_arenas()
    _allow_connections()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_work(settings, number, socket.socket(fileno=descriptor), service))


def _started(on_ready: Callable[[str], None]) -> Callable[[str], None]:
    """Tells of the address when what the start has made is out of the collector's way."""

    def ready(url: str) -> None:
        limit_collector()
        on_ready(url)

    return ready


def _allow_connections() -> None:
    """Raises the process's limit of open files as far as it may: the usual one is below the limit of connections."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _work(settings: Settings, number: int, owner: socket.socket, service: Service) -> None:
    orphaned = asyncio.Event()
    store = await open_remote(
        settings.data,
        owner,
        name=str(number),
        cache_bytes=settings.store_cache_bytes,
        read_threads=settings.store_threads,
        on_lost=orphaned.set,
    )
    admin_token = AccessToken.from_environment(TOKEN_VARIABLE)
    ready = _started(announce)
    server = GatewayServer(settings, store, ready, admin_token=admin_token, service=service, shares_port=True)
    serving = asyncio.create_task(server.serve())
    await asyncio.wait({serving, alone := asyncio.create_task(orphaned.wait())}, return_when=asyncio.FIRST_COMPLETED)
    server.stop()
    await serving
    if alone.done():
        raise Unavailable(f"worker {number} has ended, since the process that owns the store has")
    alone.cancel()


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
        shares_port: bool = False,
    ) -> None:
        """Prepares a gateway; nothing is opened yet.

        Args:
            settings: Where it listens, and all limits.
            store: The store to serve, closed at the end; None opens the one in ``settings.data``.
            on_ready: Called with the address once connections are accepted.
            admin_token: What opens the administration routes; without it there are none.
            service: What it answers with.
            shares_port: Whether other processes listen on the same port.
        """
        self._settings = settings
        self._admin_token = admin_token
        self._service = service
        self._shares_port = shares_port
        self._store = store
        self._on_ready = on_ready
        self._server: _Uvicorn | None = None
        self._stopped = False

    async def serve(self) -> None:
        """Serves until `stop`, or a signal if this is the main thread. Raises as `run`."""
        with listen(self._settings, shared=self._shares_port) as listener:
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
        url = url_of(listener)

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
