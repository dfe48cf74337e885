"""Running a gateway in this process: a socket, its front, signals, and graceful shutdown.

``coregw serve`` calls `run`; `GatewayServer` is for a program that has an event loop of its own.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Final

from coregw._core import Listener
from coregw.errors import InvalidInput
from coregw.gateway.access import WRITE_TOKEN_VARIABLE, AccessToken, warn_of_open_writes
from coregw.gateway.app import create_app_over, open_engine, response_headers
from coregw.gateway.collectors import front_source
from coregw.gateway.context import Gateway
from coregw.gateway.front import serve_front
from coregw.gateway.limits.descriptors import fit_descriptors
from coregw.gateway.limits.machine import Limits, warn_of_memory
from coregw.gateway.listener import (
    announce,
    listen_for_clients,
    open_certificate,
    run_in_thread,
    scheme_of,
    url_of,
)
from coregw.gateway.logs import log_to_stderr
from coregw.gateway.management import serve_management
from coregw.gateway.routes.publications import TOKEN_VARIABLE
from coregw.gateway.settings import Settings
from coregw.gateway.stores import location_of
from coregw.gateway.tracing import tracing
from coregw.heap import limit_collector
from coregw.store import Store

__all__ = ["GatewayServer", "announce", "run"]

logger = logging.getLogger("coregw.gateway")

_SWITCH_SECONDS: Final = 0.001
"""How long a thread of the interpreter computes while another one waits. With Python's 5 ms, a read of the store, which
enters the interpreter three times, takes 15 ms beside a thread that computes."""


def run(
    settings: Settings,
    on_ready: Callable[[str], None] = announce,
    on_reloadable: Callable[[Callable[[], None]], None] = lambda _: None,
) -> None:
    """Run a gateway until SIGINT or SIGTERM, then finish the requests in flight, close the store, and return.

    Args:
        settings: The address, the data directory, and what the limits are derived from.
        on_ready: Called with the address when connections are accepted.
        on_reloadable: Called with a function that reads the certificate's files again, if there is TLS.

    Raises:
        Unavailable: If the address or the store is in use, or the process may open too few files or has too
            little memory; the message says which and why.
        InvalidInput: If the data directory contains something else than a store, a token cannot be sent in a header,
            `memory` does not suffice, or the certificate cannot be used.
        StoreDamaged: If the store's files are corrupt.
    """
    log_to_stderr(settings)
    warn_of_open_writes(settings)
    sys.setswitchinterval(_SWITCH_SECONDS)
    warn_of_memory(settings)
    limits = fit_descriptors(Limits.of(settings))
    admin_token = AccessToken.from_environment(TOKEN_VARIABLE)
    write_token = AccessToken.from_environment(WRITE_TOKEN_VARIABLE)

    def ready(url: str) -> None:
        limit_collector()  # what was allocated during the start leaves the collector's view
        on_ready(url)

    server = GatewayServer(settings, on_ready=ready, admin_token=admin_token, write_token=write_token, limits=limits)
    if settings.tls_files is not None:
        on_reloadable(server.reload)
    run_in_thread(server.serve, server.stop)


class GatewayServer:
    """One gateway in one event loop."""

    def __init__(
        self,
        settings: Settings,
        store: Store | None = None,
        on_ready: Callable[[str], None] | None = None,
        *,
        admin_token: AccessToken | None = None,
        write_token: AccessToken | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Prepare a gateway; nothing is opened yet.

        Args:
            settings: The address, and what the limits are derived from.
            store: The store to serve, closed at the end; None opens the one that the settings name.
            on_ready: Called with the address when connections are accepted.
            admin_token: The token of the administration routes; without one they do not exist.
            write_token: The token of the routes that write; without one, anybody may use them.
            limits: The limits; None derives them from the settings.

        Raises:
            InvalidInput, Unavailable: As `Limits.of`, and if the certificate that the settings name cannot be used.
        """
        self._settings = settings
        self._certificate = open_certificate(settings)
        self._limits = Limits.of(settings) if limits is None else limits
        self._admin_token = admin_token
        self._write_token = write_token
        self._store = store
        self._on_ready = on_ready
        self._is_started = self._is_stopped = False
        self._stopping: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._urls: list[str] = []  # where clients are served, for the management

    async def serve(self) -> None:
        """Serve until `stop` is called. Raises as `run`.

        Not in the main thread: signals would end the server of the application alone, which takes them.
        """
        settings, limits = self._settings, self._limits
        stopping = asyncio.Event()
        self._stopping = asyncio.get_running_loop(), stopping
        if self._is_stopped:
            stopping.set()
        with closing(listen_for_clients(settings, limits.backlog)) as listener:
            engine = await open_engine(settings, limits, self._store)
            try:
                directory = settings.data if self._store is None else None  # a store of the caller's may have none
                async with (
                    serve_management(settings, limits, engine, directory, self._admin_token, self._phase) as management,
                    tracing() as traced,
                ):
                    self._urls = management.urls
                    token = self._admin_token if settings.management_host_and_port is None else None
                    gateway = Gateway.over(engine, settings, limits)
                    app = traced(create_app_over(gateway, token, self._write_token))
                    headers = response_headers(settings.allow_origin)("/")
                    async with serve_front(
                        gateway, app, headers, listener, self._certificate, write_token=self._write_token
                    ) as running:
                        management.sources.append(front_source(running.front, running.reads, gateway))
                        self._announce(listener)
                        try:
                            await stopping.wait()
                        finally:
                            self._is_stopped = True
            finally:
                await engine.close()
        logger.info("stopped")

    def _phase(self) -> str | None:
        if self._is_stopped:
            return "the gateway is shutting down"
        return None if self._is_started else "the gateway is starting"

    def stop(self) -> None:
        """Begin to shut down, from any thread: no new connections; `serve` returns when requests are finished."""
        self._is_stopped = True
        if self._stopping is not None:
            loop, stopping = self._stopping
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(stopping.set)

    def reload(self) -> None:
        """Read the certificate's files again, for new connections, and log the result. For any thread.

        If they cannot be used, the old certificate stays.
        """
        if self._certificate is None:
            return
        try:
            self._certificate.reload()
        except InvalidInput as error:
            logger.error("the certificate stays the old one: %s", error)
        else:
            logger.info("new connections get the certificate in %s", self._settings.tls_certificate)

    def _announce(self, listener: Listener) -> None:
        url = url_of(listener, scheme_of(self._settings))
        self._is_started = True
        logger.info("listening on %s, data in %s", url, location_of(self._settings))
        self._urls.append(url)
        if self._on_ready is not None:
            self._on_ready(url)
