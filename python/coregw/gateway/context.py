"""Context of all routes: the engine, the settings, and the reader of request bodies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self, cast

from coregw.engine import Engine
from coregw.gateway.limits.descriptors import max_spools
from coregw.gateway.limits.machine import Limits
from coregw.gateway.limits.memory import BodyMemory
from coregw.gateway.limits.slots import Slots
from coregw.gateway.requests import Bodies, check_json_type, query_parameters
from coregw.gateway.settings import Settings

if TYPE_CHECKING:
    from litestar import Request
    from litestar.types import HTTPScope, Receive

__all__ = ["Gateway"]


_CHUNK_READS: Final = 16
"""Chunks of 1 MiB; the store reads no more than a few at once."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """One running gateway.

    Attributes:
        engine: Answers requests.
        settings: What its operator has decided.
        limits: Everything else that is limited.
        bodies: Reads request bodies.
        imports: The CAR imports in progress, most of which are being received.
        exports: The CAR exports in progress.
        builds: The maps in progress whose arcs are streamed, most of which are being received.
        payload_streams: The answers with many payloads in progress.
        chunk_reads: Limits the chunks of payloads that are being read, or have been and are not sent yet.
        phase: Returns why the process is not serving clients, or None if it is.
    """

    engine: Engine
    settings: Settings
    limits: Limits
    bodies: Bodies
    imports: Slots
    exports: Slots
    builds: Slots
    payload_streams: Slots
    chunk_reads: asyncio.Semaphore
    phase: Callable[[], str | None] = lambda: None

    @classmethod
    def over(cls, engine: Engine, settings: Settings, limits: Limits | None = None) -> Self:
        """Return a gateway without requests; without limits, it has those of the settings."""
        limits = Limits.of(settings) if limits is None else limits
        largest = max(limits.roots_body_bytes, limits.mutation_body_bytes)
        total = limits.buffered_bytes
        memory = BodyMemory(total, largest=largest, per_address=limits.share_of_address(total))
        imports = limits.share_of_address(limits.cars_at_once)
        exports = limits.share_of_address(limits.car_exports)
        streams = limits.share_of_address(limits.payload_streams)
        return cls(
            engine,
            settings,
            limits,
            Bodies(memory),
            Slots("imports", max_spools(limits.connections), imports, time.monotonic),
            Slots("exports", limits.car_exports, exports, time.monotonic),
            Slots("builds", limits.builds, limits.share_of_address(limits.builds), time.monotonic),
            Slots("streams of payloads", limits.payload_streams, streams, time.monotonic),
            asyncio.Semaphore(_CHUNK_READS),
        )

    async def obstacles(self) -> list[str]:
        """Return why this gateway cannot serve all requests at the moment, as sentences; none if it is ready."""
        phase = self.phase()
        try:
            async with asyncio.timeout(self.limits.store_seconds):
                found = await self.engine.store.obstacles()
        except TimeoutError:
            found = ["the store does not respond"]
        return found if phase is None else [phase, *found]

    @classmethod
    def of(cls, request: Request[Any, Any, Any]) -> Self:
        """Return the gateway to which Litestar's request was sent."""
        return cast("Self", request.app.state["gateway"])

    def json_body(self, scope: HTTPScope, receive: Receive, limit: int) -> AbstractAsyncContextManager[bytes]:
        """Read the whole body of a request that has a JSON body and no query parameters, as `Bodies.whole` does.

        Raises:
            InvalidInput: If the request has query parameters, or its body is of another type.
        """
        query_parameters(scope)
        check_json_type(scope)
        return self.bodies.whole(scope, receive, limit)
