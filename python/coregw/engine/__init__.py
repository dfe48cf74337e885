"""The engine: request bytes in, response bytes out, over one store. The only place where a store and _core meet.

The extension does all work on trees and says what it needs (pages, root records, more time); the engine fetches that
and lets it go on. What is found in the cache is answered on the event loop, without a thread; disk reads are the
store's business; long work moves to worker threads. Writing goes pages first, root records last, then the answer.

Leaves out HTTP, limits on bodies, and what a status is (``coregw.gateway``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from coregw import _core
from coregw._core import Build, Cid, Mutation, Operation, PageCache
from coregw.engine.cars import CarLimits, Cars
from coregw.engine.driver import Driver
from coregw.engine.payloads import Payloads, StoredPayload
from coregw.engine.publications import Publications
from coregw.engine.resolve_batches import read_resolve_batch
from coregw.errors import ProofError
from coregw.store import Store, Table

__all__ = ["CarLimits", "Cars", "Engine", "Payloads", "Publications", "StoredPayload"]

BATCH_BYTES: Final = 1 << 20
"""The most bytes of pages given to the store at once."""

CHANGE_WEIGHT: Final = 16
"""A byte of a mutation is as much work as this many of a query: each of its coordinates is a walk, hashes and pages."""

PATH_COST: Final = 4096
"""Bytes of a request that cost about as much as resolving one path of a batch."""


class Engine:
    """Answers queries and makes changes over one store. Safe for any number of tasks of one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        cache_bytes: int = 256 << 20,
        budget: int = 4096,
        worker_threads: int = 4,
        held_roots: int = 65_536,
        heavy_requests: int = 2,
        max_lookups: int = 10_000,
        operation_seconds: float = 30.0,
        batches_at_once: int = 8,
        batch_answer_bytes: int = 64 << 20,
        cars: CarLimits = CarLimits(),  # noqa: B008 - a tuple
    ) -> None:
        """Wraps a store. The engine closes it (`close`).

        Args:
            store: Where pages, root records and payloads are.
            cache_bytes: Memory for parsed pages.
            budget: Tree nodes that a query may visit before it leaves the event loop.
            worker_threads: Threads for long work.
            held_roots: How many roots known to be held are remembered.
            heavy_requests: Root creations and mutations with large bodies worked on at once.
            max_lookups: Look-ups that one resolve may need.
            operation_seconds: Time one query or change may take, writing aside.
            batches_at_once: Batches of resolves worked on at once.
            batch_answer_bytes: The longest answer to a batch of resolves.
            cars: What CARs are taken in and written.
        """
        self.store: Final = store
        """Where everything is kept; for services beside the gateway that keep rows of their own."""
        self._cache = PageCache(cache_bytes, held_roots)
        self._driver = Driver(
            store,
            self._cache,
            budget=budget,
            worker_threads=worker_threads,
            heavy_requests=heavy_requests,
            seconds=operation_seconds,
        )
        self._max_lookups = max_lookups
        self._batches = asyncio.Semaphore(batches_at_once)
        self._batch_answer_bytes = batch_answer_bytes
        self.payloads: Final = Payloads(store, self._driver)
        self.publications: Final = Publications(store, self._driver)
        self.cars: Final = Cars(store, self._driver, self._cache, cars)

    async def close(self) -> None:
        """Waits for worker threads and closes the store. Idempotent."""
        await self._driver.close()
        await self.store.close()

    async def healthy(self) -> bool:
        """Whether the store can read and write. Cheap."""
        return await self.store.healthy()

    # --- queries ------------------------------------------------------------------------------------------------------

    async def resolve(self, request: bytes) -> bytes:
        """Answers a resolve request (protocol section 5) with its result, both as JSON.

        Raises:
            InvalidInput: It is no such request.
            RootNotFound: The store does not hold the root.
            PathNotFound: The path leads nowhere, as far as this store knows.
            Unavailable: The query took too long, or the store does not answer.
            StoreDamaged: A page is missing or is not what its digest says.
        """
        return await self._driver.answer(Operation.resolve, request, self._max_lookups)

    async def read(self, request: bytes) -> bytes:
        """Answers a read request. As `resolve`; a `NotFound` of a read has the proof of the absence as details.

        Raises:
            TooLarge: A range has more than 10,000 segments. Else as `resolve`.
        """
        return await self._driver.answer(Operation.read, request)

    async def map_proof(self, request: bytes) -> bytes:
        """Answers a map-proof request. Raises as `resolve`, but absence is an answer."""
        return await self._driver.answer(Operation.map_proof, request)

    async def scan(self, request: bytes) -> bytes:
        """Answers a scan request. Raises as `resolve`; an empty listing is an answer."""
        return await self._driver.answer(Operation.scan, request)

    async def diff(self, a: str, b: str, prefix: str, after: str | None, limit: int) -> bytes:
        """The differences between two maps with their proofs, a page of them, as JSON. Cost as their number x depth.

        Args:
            a: The root of the first map.
            b: The root of the second map.
            prefix: The path, in text form, that all differences are at or below; empty for all.
            after: The path, in text form, behind which the page starts; None for the first page.
            limit: The most differences, 1 to 1,000.

        Raises:
            InvalidInput: A root is no CID or no map (code ``kind_mismatch``, also for maps of different suites), a
                path is none or `after` is outside the prefix (code ``invalid_path``), or the limit is another number.
            RootNotFound: The store does not hold one of the roots.
            Unavailable, StoreDamaged: As `resolve`.
        """
        operation = Operation.diff(self._cache, a, b, prefix, after, limit)
        return await self._driver.drive(operation, 0)

    async def resolve_batch(self, request: bytes) -> bytes:
        """Answers a batch of resolves of one root, which share what is fetched.

        Raises:
            TooLarge: More than 1,000 paths, or the outcomes together are longer than ``batch_answer_bytes``. Else as
                `resolve`, but what is not found is the outcome of its path alone.
        """
        limits = self._max_lookups, self._batch_answer_bytes
        async with self._batches:
            batch = await self._driver.call(len(request), read_resolve_batch, self._cache, request, *limits)
            return await self._driver.drive(batch, max(len(request), len(batch) * PATH_COST))

    async def verify_resolve(self, request: bytes, result: bytes) -> str | None:
        """Checks a resolve result: None if it is proven, else why not. O(size).

        Raises:
            InvalidInput: `request` is no resolve request.
        """
        return await self._verdict(_core.verify_resolve, request, result)

    async def verify_read(self, request: bytes, result: bytes) -> str | None:
        """Checks a read result, or the details of a read's 404: None if it is proven, else why not. O(size).

        Raises:
            InvalidInput: `request` is no read request.
        """
        return await self._verdict(_core.verify_read, request, result)

    async def _verdict(self, verify: Callable[[bytes, bytes], object], request: bytes, result: bytes) -> str | None:
        try:
            await self._driver.call(len(request) + len(result), verify, request, result)
        except ProofError as error:
            return error.message
        return None

    # --- changes ------------------------------------------------------------------------------------------------------

    async def create_root(self, request: bytes) -> str:
        """Makes a map from the JSON of ``POST /v1/roots`` and returns its root; durable on return. O(n log n).

        Raises:
            InvalidInput: It is no such request; the message names the arc.
            Unavailable: The store cannot write now (`StorageFull`: it has no room).
        """
        async with self._driver.place_for(request):
            build = await self._driver.in_worker(Build.arcs, request)
            await self._keep(build.next_pages, [bytes(Cid(build.root))])
            return build.root

    async def mutate(self, base_root: str, request: bytes) -> bytes:
        """Applies the deltas of a mutation request to a base root; the receipt as JSON, durable on return.

        Raises:
            InvalidInput: It is no such request, or `base_root` is no root.
            RootNotFound: The base root, or an object named in a delta, is not held.
            Conflict: A delta does not fit; the message names delta and coordinate. Nothing was stored.
            Unavailable: It took too long, or the store cannot write now (`StorageFull`: it has no room).
        """
        async with self._driver.place_for(request):
            mutation = await self._driver.call(len(request), Mutation, self._cache, base_root, request)
            receipt = await self._driver.drive(mutation, CHANGE_WEIGHT * len(request))
            await self._keep(mutation.next_pages, mutation.roots)
            return receipt

    async def _keep(self, next_pages: Callable[[int], list[tuple[bytes, bytes]]], roots: Sequence[bytes]) -> None:
        """Stores pages, then root records. Roots that are held have their pages already."""
        if all(await self._driver.are_held(roots)):
            return
        pages = await self._driver.in_worker(next_pages, BATCH_BYTES)
        while following := await self._driver.in_worker(next_pages, BATCH_BYTES):
            await self.store.put({Table.PAGES: pages}, durable=False)
            pages = following
        await self.store.put({Table.PAGES: pages, Table.ROOTS: [(root, b"") for root in roots]})
        for root in roots:
            self._cache.remember(root)
