"""Context of all routes: the engine, the settings, and the reader of request bodies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Self, cast

from coregw.engine import Engine
from coregw.gateway.access import WriteAccess
from coregw.gateway.limits.descriptors import max_spools
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
        settings: All limits.
        bodies: Reads request bodies.
        imports: The CAR imports in progress, most of which are being received.
        exports: The CAR exports in progress.
        builds: The maps in progress whose arcs are streamed, most of which are being received.
        payload_streams: The answers with many payloads in progress.
        chunk_reads: Limits the chunks of payloads that are being read, or have been and are not sent yet.
        write_access: Who may use the routes that write.
        phase: Returns why the process is not serving clients, or None if it is.
    """

    engine: Engine
    settings: Settings
    bodies: Bodies
    imports: Slots
    exports: Slots
    builds: Slots
    payload_streams: Slots
    chunk_reads: asyncio.Semaphore
    write_access: WriteAccess = field(default_factory=WriteAccess)
    phase: Callable[[], str | None] = lambda: None

    @classmethod
    def over(cls, engine: Engine, settings: Settings) -> Self:
        """Return a gateway without requests."""
        largest = max(settings.roots_body_bytes, settings.mutation_body_bytes)
        total = settings.buffered_bytes
        memory = BodyMemory(total, largest=largest, per_address=settings.share_of_address(total))
        imports = settings.share_of_address(settings.cars_at_once)
        exports = settings.share_of_address(settings.car_exports)
        streams = settings.share_of_address(settings.payload_streams)
        return cls(
            engine,
            settings,
            Bodies(memory),
            Slots("imports", max_spools(settings.connections), imports, time.monotonic),
            Slots("exports", settings.car_exports, exports, time.monotonic),
            Slots("builds", settings.builds, settings.share_of_address(settings.builds), time.monotonic),
            Slots("streams of payloads", settings.payload_streams, streams, time.monotonic),
            asyncio.Semaphore(_CHUNK_READS),
        )

    async def obstacles(self) -> list[str]:
        """Return why this gateway cannot serve all requests at the moment, as sentences; none if it is ready."""
        phase = self.phase()
        try:
            async with asyncio.timeout(self.settings.store_seconds):
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
