"""A gateway or a static tree as a source of checked objects, for exports."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from coregw.client.connection import ConnectionOptions
from coregw.client.settings import ClientSettings
from coregw.client.static.upstream import HttpUpstream
from coregw.client.transport.address import Address
from coregw.engine.objects.checks import ObjectChecks
from coregw.store.origin import OriginStore

__all__ = ["open_source"]


@asynccontextmanager
async def open_source(
    url: str, settings: ClientSettings, connection: ConnectionOptions | None = None
) -> AsyncGenerator[tuple[OriginStore, HttpUpstream], None]:
    """Open a store that reads from an address, and what counts its requests.

    Raises:
        InvalidInput: `url` is not an address.
    """
    upstream = HttpUpstream(Address.parse(url), settings, connection)
    store = OriginStore(upstream, ObjectChecks(), requests_at_once=settings.connections)
    try:
        yield store, upstream
    finally:
        await store.close()
