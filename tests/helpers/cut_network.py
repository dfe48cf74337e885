"""A network that cuts every connection, between a client and a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coregw.client import AsyncClient, ClientSettings
from network import Proxy, proxy_of

CUT = 3_000_000
SETTINGS = ClientSettings(retry_seconds=60, backoff_seconds=0.001, backoff_max_seconds=0.01)


@asynccontextmanager
async def cutting(gateway: str, cut_after: int = CUT) -> AsyncIterator[tuple[Proxy, AsyncClient]]:
    """Yield a proxy that cuts each connection after so many bytes, and a client of the gateway behind it."""
    async with proxy_of(int(gateway.rpartition(":")[2])) as proxy:
        proxy.cut_after = cut_after
        async with AsyncClient(f"http://127.0.0.1:{proxy.port}", SETTINGS) as client:
            yield proxy, client
