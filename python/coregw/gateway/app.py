"""The Litestar application: routes, the headers that every answer has, and the engine's life.

Leaves out sockets, signals and HTTP framing (`server`, `wire`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from coregw.engine import CarLimits, Engine
from coregw.gateway import batches, cars, cas, diff, health, ipfs, resolve, roots
from coregw.gateway.admin import admin_router
from coregw.gateway.application import Application
from coregw.gateway.bodies import Bodies
from coregw.gateway.context import Gateway
from coregw.gateway.docs import page_handlers
from coregw.gateway.openapi import build_document, openapi_document
from coregw.gateway.problems import handle_exception
from coregw.gateway.settings import Settings
from coregw.gateway.tokens import AccessToken
from coregw.store import Store
from coregw.store.rocksdb import open_store

__all__ = ["create_app", "open_engine"]

_HEADERS: Final = [(b"x-content-type-options", b"nosniff")]
_VERIFY_HEADERS: Final = [*_HEADERS, (b"x-core-verification-role", b"diagnostic")]
_ADMIN: Final = "/admin/"
_VERIFY_PATHS: Final = frozenset({"/v1/verify/resolve", "/v1/verify/read"})


async def open_engine(settings: Settings, store: Store | None = None) -> Engine:
    """An engine over `store`, or over the RocksDB store in ``settings.data``.

    Raises:
        InvalidInput, Unavailable, StoreDamaged: As `coregw.store.rocksdb.open_store`.
    """
    if store is None:
        store = await open_store(
            settings.data,
            cache_bytes=settings.store_cache_bytes,
            reserve_bytes=settings.reserve_bytes,
            read_threads=settings.store_threads,
            salvage=settings.salvage,
        )
    return Engine(
        store,
        cache_bytes=settings.cache_bytes,
        budget=settings.node_budget,
        worker_threads=settings.worker_threads,
        held_roots=settings.held_roots,
        heavy_requests=settings.heavy_requests,
        max_lookups=settings.max_lookups,
        operation_seconds=settings.operation_seconds,
        batches_at_once=settings.batches_at_once,
        batch_answer_bytes=settings.batch_answer_bytes,
        cars=CarLimits(
            payload_bytes=min(settings.payload_bytes, 2**32 - 1),
            blocks=settings.car_blocks,
            at_once=settings.cars_at_once,
            exports=settings.car_exports,
            spool=settings.data if settings.data.is_dir() else None,  # none where the store is no directory
            reserve_bytes=settings.reserve_bytes,
        ),
    )


def create_app(settings: Settings, engine: Engine | None = None, admin_token: AccessToken | None = None) -> Application:
    """The gateway as an ASGI application.

    Args:
        settings: Its limits.
        engine: What it answers from; the caller closes it. If None, the application opens the store in
            ``settings.data`` when it starts and closes it when it stops.
        admin_token: What opens the administration routes; without it there are none.
    """

    @asynccontextmanager
    async def life(app: Application) -> AsyncIterator[None]:
        own = engine if engine is not None else await open_engine(settings)
        app.state["gateway"] = Gateway(own, settings, Bodies(settings))
        try:
            yield
        finally:
            if engine is None:
                await own.close()

    handlers = [
        *resolve.handlers,
        *cas.handlers,
        *ipfs.handlers,
        *roots.handlers,
        *batches.handlers,
        *diff.handlers,
        *cars.handlers,
        *health.handlers,
        openapi_document,
        *page_handlers("/docs"),
    ]
    admin = [] if admin_token is None else [admin_router(admin_token)]
    app = Application(
        handle_exception,
        _extra_headers(settings.allow_origin),
        route_handlers=[*handlers, *admin],
        lifespan=[life],
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    app.state["openapi"] = build_document(app)
    return app


def _extra_headers(allowed: str) -> Callable[[str], list[tuple[bytes, bytes]]]:
    """Gives what every answer to a path has, failures and unknown routes included.

    Pages of the one origin `allowed`, or of any (``*``), may ask all but the administration routes. The headers are the
    same for every request, so caches need no Vary. The methods here need no leave; OPTIONS answers with these as well.
    """
    cors = [
        (b"access-control-allow-origin", allowed.encode()),
        (b"access-control-allow-headers", b"*"),
        (b"access-control-expose-headers", b"*"),
        (b"access-control-max-age", b"7200"),
    ]
    plain, verify = ([*each, *(cors if allowed != "none" else [])] for each in (_HEADERS, _VERIFY_HEADERS))

    def extra_headers(path: str) -> list[tuple[bytes, bytes]]:
        if path.startswith(_ADMIN):
            return _HEADERS
        return verify if path.rstrip("/") in _VERIFY_PATHS else plain

    return extra_headers
