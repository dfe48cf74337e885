"""The engine of an edge: reads as every engine, names from the upstream, and writes refused or passed on."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from coregw.client.static.upstream import HttpUpstream
from coregw.engine import BuildLimits, CarLimits, Engine
from coregw.gateway.edge.names import UpstreamNames
from coregw.gateway.edge.writes import PassedBuilds, PassedCars, PassedPayloads, UpstreamWrites
from coregw.store import Store

__all__ = ["EdgeEngine", "WritingEdgeEngine"]


class EdgeEngine(Engine):
    """An engine over the store of an edge, which accepts no writes.

    Args:
        store: The store.
        upstream: The upstream of names and writes; closed with the engine.
        names: The published names.
        limits: As those of `Engine`.
    """

    def __init__(self, store: Store, upstream: HttpUpstream, names: UpstreamNames, **limits: Any) -> None:  # noqa: ANN401
        super().__init__(store, **limits)
        self._upstream = upstream
        self.publications = names

    async def close(self) -> None:
        """Close the connections, wait for worker threads and close the store. Idempotent."""
        await self._upstream.aclose()
        await super().close()


class WritingEdgeEngine(EdgeEngine):
    """An engine over the store of an edge that passes writes on.

    Args:
        store: The store.
        upstream: The upstream of names and writes; closed with the engine.
        names: The published names.
        writes: Sends writes to the upstream.
        cars: As of `Engine`.
        builds: As of `Engine`.
        limits: The others of `Engine`.
    """

    def __init__(
        self,
        store: Store,
        upstream: HttpUpstream,
        names: UpstreamNames,
        writes: UpstreamWrites,
        *,
        cars: CarLimits,
        builds: BuildLimits,
        **limits: Any,  # noqa: ANN401
    ) -> None:
        super().__init__(store, upstream, names, cars=cars, builds=builds, **limits)
        self._writes = writes
        self.payloads = PassedPayloads(writes, store, self._driver)
        self.cars = PassedCars(writes, store, self._driver, self._cache, cars)
        self.builds = PassedBuilds(writes, store, self._driver, self._cache, builds)

    async def create_root(self, request: bytes) -> bytes:
        """Create a map at the upstream."""
        return await self._writes.send("/v1/roots", request)

    async def mutate(self, base_root: str, request: bytes) -> bytes:
        """Apply a mutation at the upstream."""
        return await self._writes.send(f"/v1/roots/{quote(base_root, safe='')}/mutations", request)

    async def check_complete(self, root: str) -> bytes:
        """Return whether the upstream holds everything below a root, since a client will not send that."""
        return await self._writes.send(f"/v1/roots/{quote(root, safe='')}/complete", None)
