"""The engine of a gateway: one object over a store, with an operation for each request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from coregw import _core
from coregw._core import Operation, PageCache
from coregw.engine.builds import Builds
from coregw.engine.cars import Cars
from coregw.engine.completeness import CHECK_FACTOR, check_complete
from coregw.engine.driver import Driver
from coregw.engine.objects import Objects
from coregw.engine.payloads import Payloads
from coregw.engine.publications import PublicationStore
from coregw.engine.scheduling import (
    MULTIPROOF_FACTOR,
    MUTATION_NODES_FACTOR,
    EngineLimits,
    batch_weight,
    mutation_weight,
    verify_weight,
)
from coregw.store import Store

__all__ = ["Engine", "EngineFigures"]


class EngineFigures(NamedTuple):
    """What an engine has counted since it was made, and what it holds now.

    Attributes:
        cache_hits: Pages found in the cache.
        cache_misses: Pages that were not in the cache.
        cache_bytes: Memory that the cache takes.
        cache_max_bytes: Limit on that memory.
        pages_read: Pages read from the store.
        jobs: Calls that are running in worker threads or waiting for one.
    """

    cache_hits: int
    cache_misses: int
    cache_bytes: int
    cache_max_bytes: int
    pages_read: int
    jobs: int


class Engine:
    """Queries and mutations over one store. Any number of tasks of one event loop may use it."""

    def __init__(self, store: Store, limits: EngineLimits | None = None) -> None:
        """Wrap a store, which `close` closes.

        Args:
            store: Pages, root records and payloads.
            limits: Bounds of memory, time and concurrency; None for those of `EngineLimits`.
        """
        limits = limits or EngineLimits()
        self.store: Final = store
        """The store, for services that keep rows of their own in it."""
        self.cache: Final = PageCache(limits.cache_bytes, limits.held_roots)
        """What is known about the store, for a front that answers queries itself."""
        self._driver = Driver(store, self.cache, limits)
        self._limits = limits
        self._checks = asyncio.Semaphore(limits.heavy_requests)
        self.payloads: Payloads = Payloads(store, self._driver)
        self.objects: Final = Objects(store, self._driver)
        self.publications: PublicationStore = PublicationStore(store)
        self.cars: Cars = Cars(store, self._driver, self.cache, limits)
        self.builds: Builds = Builds(store, self._driver, self.cache, limits)

    async def close(self) -> None:
        """Wait for worker threads and close the store. Idempotent."""
        await self._driver.close()
        await self.store.close()

    async def healthy(self) -> bool:
        """Return whether the store can read and write. Cheap."""
        return await self.store.healthy()

    def figures(self) -> EngineFigures:
        """Return figures for metrics. O(1)."""
        cache, driver = self.cache, self._driver
        return EngineFigures(
            cache.hits, cache.misses, cache.used_bytes, cache.max_bytes, driver.page_reads.pages_read, driver.jobs
        )

    # --- queries ------------------------------------------------------------------------------------------------------

    async def resolve(self, request: bytes) -> bytes:
        """Answer a resolve request (protocol section 5) with its result, both as JSON.

        Raises:
            InvalidInput: If the request is malformed.
            RootNotFound: If the store does not hold the root.
            PathNotFound: If the path does not resolve in this store.
            TooLarge: If the query visits more than ``max_nodes`` nodes.
            Unavailable: If the query takes too long, or the store does not answer.
            StoreDamaged: If a page is missing or damaged.
        """
        return await self._answer(Operation.resolve, request)

    async def read(self, request: bytes) -> bytes:
        """Answer a read request. The details of a `NotFound` contain the proof of the absence.

        Raises:
            TooLarge: If a range has more than 10,000 segments. Otherwise as `resolve`.
        """
        return await self._answer(Operation.read, request)

    async def map_proof(self, request: bytes, *, bare: bool = False) -> bytes:
        """Answer a map-proof request. Raises as `resolve`, but an absent key is an answer.

        Args:
            request: The request, as JSON.
            bare: Whether the answer is the bytes of the proof, and nothing else, instead of the result.
        """
        start = partial(Operation.map_proof, self.cache, request, bare=bare)
        return await self._driver.answer(start, MULTIPROOF_FACTOR * len(request))

    async def scan(self, request: bytes) -> bytes:
        """Answer a scan request. Raises as `resolve`, but an empty listing is an answer."""
        return await self._answer(Operation.scan, request)

    async def _answer(self, operation: Callable[[PageCache, bytes], Operation], request: bytes) -> bytes:
        return await self._driver.answer(partial(operation, self.cache, request), len(request))

    async def diff(self, a: str, b: str, prefix: str, after: str | None, limit: int) -> bytes:
        """Return one page of the differences between two maps, with their proofs, as JSON. O(differences x depth).

        Args:
            a: The root of the first map.
            b: The root of the second map.
            prefix: The path, in text form, at or below which differences are listed; empty for all.
            after: The path, in text form, after which the page starts; None for the first page.
            limit: The limit on differences, 1 to 1,000.

        Raises:
            InvalidInput: If a root is not a CID or not a map (code ``kind_mismatch``, also if the suites differ), a
                path is invalid or `after` is outside the prefix (code ``invalid_path``), or the limit is out of range.
            RootNotFound: If the store does not hold one of the roots.
            Unavailable, StoreDamaged: As `resolve`.
        """
        return await self._driver.answer(partial(Operation.diff, self.cache, a, b, prefix, after, limit), 0)

    async def resolve_batch(self, request: bytes) -> bytes:
        """Answer a batch of resolves of one root, which share what is fetched.

        Raises:
            TooLarge: If there are more than 1,000 paths, all together visit more than ``max_nodes`` nodes, or the
                outcomes are longer than ``batch_answer_bytes``. Otherwise as `resolve`, but what is not found is the
                outcome of its path alone.
        """
        start = partial(Operation.resolve_batch, self.cache, request, self._limits.batch_answer_bytes)
        return await self._driver.answer(start, batch_weight(request))

    async def check_complete(self, root: str, *, renews: bool = True) -> bytes:
        """Return whether a root is held completely, as JSON. A positive answer is durable.

        O(1) after the first positive answer that renews; that takes O(pages + payloads), with a write for each payload
        while garbage is collected.

        Args:
            root: The root CID.
            renews: Whether everything below it counts as stored now, if it is held completely. Otherwise nothing is
                written.

        Raises:
            InvalidInput: If `root` is not a root CID.
            Unavailable: If the store cannot write.
        """
        async with self._checks:
            seconds = CHECK_FACTOR * self._limits.operation_seconds
            return await check_complete(self.store, self._driver, self.cache, root, seconds, renews=renews)

    async def verify_resolve(self, envelope: bytes) -> bytes:
        """Return whether a resolve result is proven, and why not: ``{"profile": ..., "valid": ...}``. O(size).

        Args:
            envelope: The request and the claimed result, ``{"request": ..., "result": ...}``.

        Raises:
            InvalidInput: If the envelope is malformed, or the request is not a resolve request.
        """
        return await self._driver.call(verify_weight(envelope), _core.resolve_verdict, envelope)

    async def verify_read(self, envelope: bytes) -> bytes:
        """Verify a read result, or the details of a 404, as `verify_resolve` does.

        Raises:
            InvalidInput: If the envelope is malformed, or the request is not a read request.
        """
        return await self._driver.call(verify_weight(envelope), _core.read_verdict, envelope)

    # --- changes ------------------------------------------------------------------------------------------------------

    async def create_root(self, request: bytes) -> bytes:
        """Make the map of a ``POST /v1/roots`` body, and return ``{"root": ...}``; durable on return. O(n log n).

        Raises:
            InvalidInput: If the request is malformed; the message names the arc.
            TooLarge: If it needs too much memory.
            Unavailable: If the store cannot write (`StorageFull`: it is full), or all changes need too much memory.
        """
        async with self._driver.changes.place_for(request):
            weight = mutation_weight(request)
            operation = await self._driver.call(weight, Operation.create_root, self.cache, request)
            return await self._driver.drive_to_end(operation, weight)

    async def mutate(self, base_root: str, request: bytes) -> bytes:
        """Apply the deltas of a mutation request to a base root, and return the receipt; durable on return.

        Raises:
            InvalidInput: If the request is malformed, or `base_root` is not a root.
            RootNotFound: If the base root, or an object that a delta names, is not held.
            Conflict: If a delta does not fit; the message names delta and coordinate. No root was stored.
            TooLarge: If it visits too many nodes, or needs too much memory.
            Unavailable: If it takes too long, or the store cannot write (`StorageFull`: it is full).
        """
        async with self._driver.changes.place_for(request):
            operation = await self._driver.call(len(request), Operation.mutate, self.cache, base_root, request)
            operation.limit_nodes(MUTATION_NODES_FACTOR * self._limits.max_nodes + len(request))
            return await self._driver.drive(operation, mutation_weight(request))
