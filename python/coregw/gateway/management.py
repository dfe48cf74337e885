"""The management server: health, metrics, names, administration and maintenance, beside the address for clients.

It listens on the control socket (`coregw.gateway.control`), where all requests need the token in the data directory,
and on ``COREGW_MANAGEMENT_ADDRESS`` if that is set, where administration and maintenance need that of the environment.
It has connections and memory for bodies of its own, so it answers when clients have exhausted those of the main
address.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from litestar import Request, Router, route

from coregw import __version__
from coregw._core import Origins, Proxies
from coregw.engine import Engine
from coregw.errors import CoregwError, Unavailable
from coregw.gateway import maintenance
from coregw.gateway.access import Access, AccessToken, TokenPolicy
from coregw.gateway.app import Application, Rules, response_headers
from coregw.gateway.collectors import database_samples, engine_source, job_samples, process_samples, store_samples
from coregw.gateway.context import Gateway
from coregw.gateway.control import control_file, listen_for_control
from coregw.gateway.description import DESCRIPTION, Description
from coregw.gateway.front import serve_front
from coregw.gateway.limits.machine import MANAGEMENT_BYTES, Limits
from coregw.gateway.listener import listen_for_clients, serving, url_of
from coregw.gateway.maintenance import Management
from coregw.gateway.metrics import CONTENT_TYPE, Sample, Sums, expose, number, request_samples
from coregw.gateway.openapi import MANAGEMENT, build_document
from coregw.gateway.replies import Reply
from coregw.gateway.requests import query_parameters
from coregw.gateway.routes import health, pages, publications
from coregw.gateway.routes.publications import admin_router
from coregw.gateway.settings import Settings
from coregw.store.rocksdb import RocksStore

if TYPE_CHECKING:
    from coregw.store.postgres import PostgresStore

__all__ = ["create_management_app", "serve_management"]


@route(
    "/metrics",
    http_method=["GET", "HEAD"],
    opt={DESCRIPTION: Description("What the gateway has counted, in Prometheus' text format.", answer="text/plain")},
)
async def metrics(request: Request[Any, Any, Any]) -> Reply:
    """``GET`` and ``HEAD /metrics``. If the store does not answer in time, its sizes are left out."""
    query_parameters(request.scope)
    management = Management.of(request)
    sums = Sums()
    for source in (request_samples, process_samples, *management.sources):
        sums.add(source())
    sums.add(await _store_samples(management))
    sums.add(await _state_samples(management))
    text = await asyncio.to_thread(expose, sums)
    return Reply(text, media_type=CONTENT_TYPE, headers={"Cache-Control": "no-store"})


async def _store_samples(management: Management) -> list[Sample]:
    store = management.gateway.engine.store
    try:
        async with asyncio.timeout(management.gateway.limits.store_seconds):
            if isinstance(store, RocksStore):
                return list(store_samples(await store.figures()))
            if management.gateway.settings.is_shared:
                return list(database_samples(await cast("PostgresStore", store).figures()))
            return []
    except (CoregwError, TimeoutError):
        return []


async def _state_samples(management: Management) -> Iterator[Sample]:
    obstacles = await management.gateway.obstacles()
    return iter(
        [
            number("coregw_ready", float(not obstacles)),
            number("coregw_info", 1, __version__),
            *job_samples(management.jobs),
        ]
    )


logger = logging.getLogger("coregw.management")


_CONNECTIONS: Final = 64


@asynccontextmanager
async def serve_management(
    settings: Settings,
    limits: Limits,
    engine: Engine,
    directory: Path | None,
    token: AccessToken | None,
    phase: Callable[[], str | None],
) -> AsyncIterator[Management]:
    """Run the management server while the context is active.

    Args:
        settings: The settings.
        limits: The limits; here, bodies have memory of their own.
        engine: The engine over the store.
        directory: The data directory, for the control socket; None if the store has none.
        token: The token for administration and maintenance by TCP; without one, TCP has neither.
        phase: Returns why clients are not served at the moment, or None if they are.

    Raises:
        Unavailable: If the TCP address is in use or does not exist. If there can be no control socket, that is logged.
    """
    own = replace(limits, connections=_CONNECTIONS, buffered_bytes=MANAGEMENT_BYTES)
    gateway = replace(Gateway.over(engine, settings, own), phase=phase)
    management = Management(gateway, sources=[engine_source(engine)])
    async with AsyncExitStack() as stack:
        if settings.management_host_and_port is not None:
            host, port = settings.management_host_and_port
            address = msgspec.structs.replace(settings, host=host, port=port)
            listener = stack.enter_context(closing(listen_for_clients(address, _CONNECTIONS)))
            app, headers = create_management_app(management, token), response_headers("none")("/")
            public = replace(gateway, settings=address)
            await stack.enter_async_context(serve_front(public, app, headers, listener, hot=False))
            management.addresses.append(url_of(listener))
        if directory is not None:
            try:
                control = stack.enter_context(listen_for_control(directory, getattr(engine.store, "identity", None)))
            except Unavailable as error:  # serving the data is more important
                logger.error("no command can reach this gateway: %s", error)
            else:
                private = create_management_app(
                    management, AccessToken(str(control_file(directory)), control.token), is_private=True
                )
                patience = settings.shutdown_seconds
                await stack.enter_async_context(
                    serving(control.socket, private, connections=_CONNECTIONS, patience=patience)
                )
                management.addresses.append(control.address)
        stack.push_async_callback(management.jobs.close)
        if settings.gc_seconds:
            collecting = asyncio.create_task(maintenance.run_on_schedule(management))
            stack.callback(collecting.cancel)
        logger.info("management on %s", ", ".join(management.addresses) or "no address")
        yield management


def create_management_app(
    management: Management, token: AccessToken | None, *, is_private: bool = False
) -> Application:
    """Return the application of one address: without a token it has health, metrics and public names only.

    Who signs a name reads its public log at the same address. A private one needs the token for all that it has, and
    takes any Host: no web page can connect to a Unix socket.
    """
    settings = management.gateway.settings
    hosts, (host, _) = settings.hosts, settings.management_host_and_port or (settings.host, 0)
    policy = TokenPolicy(control_token=token) if is_private else TokenPolicy(admin_token=token)
    rules = Rules(
        Origins("*" if is_private else hosts, settings.allow_origin, host),
        Proxies(settings.proxies),
        Access(policy),
        access_log=settings.access_log,
    )
    restricted = [admin_router(), Router("/admin/v1/maintenance", route_handlers=list(maintenance.handlers))]
    handlers = [
        metrics,
        *(handler for group in (health, pages, publications) for handler in group.handlers),
        *(restricted if policy.has_operators else []),
    ]
    app = Application(rules, handlers)
    document = cache(partial(build_document, app, MANAGEMENT))
    app.state.update(gateway=management.gateway, management=management, openapi=document)
    return app
