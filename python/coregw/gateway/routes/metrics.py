"""``GET /metrics``: what all processes of the gateway have counted, in Prometheus' text format."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from litestar import Request, route
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from coregw import __version__
from coregw.errors import CoregwError
from coregw.gateway.docs.description import DESCRIPTION, Description
from coregw.gateway.http.replies import Reply
from coregw.gateway.http.requests import query_parameters
from coregw.gateway.maintenance.context import Management
from coregw.gateway.metrics.gathering import own_samples
from coregw.gateway.metrics.maintenance import operation_samples
from coregw.gateway.metrics.samples import Sample, Sums, expose, number
from coregw.gateway.metrics.store import database_samples, store_samples
from coregw.store.rocksdb import RocksStore

if TYPE_CHECKING:
    from coregw.store.postgres import PostgresStore

__all__ = ["handlers"]


@route(
    "/metrics",
    http_method=["GET", "HEAD"],
    opt={
        DESCRIPTION: Description(
            "What all processes of the gateway have counted, in Prometheus' text format.", answer="text/plain"
        )
    },
)
async def metrics(request: Request[Any, Any, Any]) -> Reply:
    """``GET`` and ``HEAD /metrics``. If the store does not answer in time, its sizes are left out."""
    query_parameters(request.scope)
    management = Management.of(request)
    sums = Sums()
    sums.add(own_samples(management.sources))
    sums.add(management.workers.samples())
    sums.add(await _store_samples(management))
    sums.add(await _state_samples(management))
    text = await asyncio.to_thread(expose, sums)
    return Reply(text, media_type=CONTENT_TYPE_PLAIN_0_0_4, headers={"Cache-Control": "no-store"})


async def _store_samples(management: Management) -> list[Sample]:
    store = management.gateway.engine.store
    try:
        async with asyncio.timeout(management.gateway.settings.store_seconds):
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
            *operation_samples(management.operations),
        ]
    )


handlers: Final = (metrics,)
