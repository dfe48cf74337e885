"""Drives operations: meets what they wait for, and polls them again.

An `Operation` does no I/O. It returns its response, or a `Need` (`rust/ops/src/run.rs`):

    poll -> response                     most queries: all pages are cached, nothing is awaited
    poll -> Need.pages   -> store.get -> supply_pages     -> poll ...
    poll -> Need.roots   -> store.get -> supply_roots     -> poll ...
    poll -> Need.renewal -> store.renew -> supply_roots   -> poll ...
    poll -> Need.span    -> read      -> supply_bytes     -> poll ...
    poll -> Need.store   -> store.put                     -> poll ...
    poll -> Need.budget  -> a worker thread               -> poll ...
    poll -> Need.output, Need.payloads   -> the caller of `advance`
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import ParamSpec, TypeVar

from coregw._core import Cid, Need, Operation, PageCache
from coregw.engine.pages import PageReads
from coregw.engine.placement import (
    HEAVY_BODY_BYTES,
    MAX_LOOP_BYTES,
    MAX_LOOP_PAGES,
    SPANS_PER_VISIT,
    WORKER_BUDGET_FACTOR,
)
from coregw.engine.roots import COMPLETE, INCOMPLETE
from coregw.errors import RootNotFound, StoreDamaged, Unavailable
from coregw.store import Store, Stored, Table

__all__ = ["Driver", "ReadSpan"]

P = ParamSpec("P")
R = TypeVar("R")

ReadSpan = Callable[[int, int], bytes]
"""Reads the bytes from a start to an end (exclusive), fewer at the end. Called in worker threads."""


class Driver:
    """Drives operations over one store. For tasks of one event loop."""

    def __init__(
        self,
        store: Store,
        cache: PageCache,
        *,
        budget: int,
        worker_threads: int,
        heavy_requests: int,
        max_nodes: int,
        seconds: float,
    ) -> None:
        """Takes the settings of `Engine` with the same names, and the cache of the operations to drive."""
        self._store = store
        self._cache = cache
        self._budget = budget
        self._workers = ThreadPoolExecutor(worker_threads, thread_name_prefix="coregw-engine")
        self._heavy = asyncio.Semaphore(heavy_requests)
        self._max_nodes = max_nodes
        self._seconds = seconds
        self.page_reads = PageReads(store)
        """Reads of pages from the store."""
        self.jobs = 0
        """How many calls are running in worker threads or waiting for one."""
        self._expiries = store.expiries
        self._incomplete: set[bytes] = set()
        """Roots that were found to have lost pages, until they are stored again."""

    async def close(self) -> None:
        """Wait for reads in flight and for worker threads. Idempotent."""
        await self.page_reads.close()
        await asyncio.to_thread(self._workers.shutdown)

    def place_for(self, request: bytes) -> AbstractAsyncContextManager[object]:
        """Return a context that limits the number of heavy requests in progress."""
        return self._heavy if len(request) > HEAVY_BODY_BYTES else nullcontext()

    async def answer(self, start: Callable[[PageCache, bytes], Operation], request: bytes) -> bytes:
        """Make the query `start(cache, request)`, and drive it to its response."""
        weight = len(request)
        self._refresh_held()
        if weight > MAX_LOOP_BYTES:
            return await self.query(await self.in_worker(start, self._cache, request), weight)
        operation = start(self._cache, request)
        operation.limit_nodes(self._max_nodes)
        polled = operation.poll(self._budget)
        # Most queries end here: nothing is awaited, so no timeout is needed.
        return polled if isinstance(polled, bytes) else await self._drive_from(operation, polled, on_loop=True)

    async def query(self, operation: Operation, weight: int) -> bytes:
        """Drive a query to its response; it visits at most ``max_nodes`` nodes. As `drive`, otherwise.

        Raises:
            TooLarge: If it needs more nodes.
        """
        operation.limit_nodes(self._max_nodes)
        return await self.drive(operation, weight)

    async def drive(self, operation: Operation, weight: int) -> bytes:
        """Drive an operation to its response.

        Args:
            operation: The operation.
            weight: Its work, in bytes of a query (`coregw.engine.placement`). A query checks its budget between nodes,
                but a change may do much for all its coordinates at once; so heavy work starts in a worker thread.

        Raises:
            Unavailable: If it takes longer than ``seconds``, writing aside.
        """
        self._refresh_held()
        on_loop = weight <= MAX_LOOP_BYTES
        return await self._drive_from(operation, operation.poll(self._budget) if on_loop else None, on_loop=on_loop)

    async def drive_to_end(self, operation: Operation) -> bytes:
        """Drive an operation to its response in worker threads, however long it takes."""
        return _response(await self.advance(operation))

    async def _drive_from(self, operation: Operation, polled: bytes | Need | None, *, on_loop: bool) -> bytes:
        if isinstance(polled, bytes):
            return polled
        try:
            async with asyncio.timeout(self._seconds) as deadline:
                return _response(await self.advance(operation, polled, on_loop=on_loop, deadline=deadline))
        except TimeoutError:
            raise Unavailable(f"this took longer than {self._seconds:g} seconds") from None

    async def advance(
        self,
        operation: Operation,
        polled: bytes | Need | None = None,
        *,
        on_loop: bool = False,
        deadline: asyncio.Timeout | None = None,
        read: ReadSpan | None = None,
    ) -> bytes | Need:
        """Drive an operation to its response, or to a need for output or payloads, which the caller meets.

        Args:
            operation: The operation.
            polled: What it returned last, if that was not handled yet.
            on_loop: Whether it is polled on the event loop unless its budget is spent.
            deadline: Cleared when something is written: a write is not given up halfway.
            read: Reads spans of the CAR that is imported.
        """
        if polled is None:
            self._refresh_held()
            polled = await self._poll_in_worker(operation, read)
        while isinstance(polled, Need):
            if (roots := polled.roots) is not None:
                operation.supply_roots(await self.are_held(roots))
            elif (roots := polled.renewal) is not None:
                sizes = await self._store.renew(Stored.ROOTS, roots)
                pairs = zip(roots, sizes, strict=True)
                operation.supply_roots([size is not None and root not in self._incomplete for root, size in pairs])
            elif polled.pages is not None:
                await self._load_pages(operation, polled)
            elif (trees := polled.store) is not None:
                if deadline is not None:
                    deadline.reschedule(None)
                await self._put_trees(operation, *trees)
            elif polled.output is not None or polled.payloads is not None:
                return polled
            if on_loop and not polled.budget:
                polled = operation.poll(self._budget)
            else:
                polled = await self._poll_in_worker(operation, read)
        return polled

    async def _poll_in_worker(self, operation: Operation, read: ReadSpan | None) -> bytes | Need:
        budget = self._budget * WORKER_BUDGET_FACTOR
        if read is None:
            return await self.in_worker(operation.poll, budget)
        return await self.in_worker_to_end(_poll_reading, operation, budget, read)

    async def _load_pages(self, operation: Operation, need: Need) -> None:
        """Read pages and supply them.

        Raises:
            RootNotFound: One is missing since its root has expired. The cache may not have known that, and an operation
                may take longer than the collection of the garbage that its root has become.
        """
        pages = await self.page_reads.get(need.pages or [])
        if None in pages:
            await self._require_unexpired(
                {tree for tree, page in zip(need.trees or [], pages, strict=True) if not page}
            )
        if len(pages) > MAX_LOOP_PAGES:
            await self.in_worker(operation.supply_pages, pages)
        else:
            operation.supply_pages(pages)

    async def _require_unexpired(self, trees: set[bytes]) -> None:
        """Raise `RootNotFound` if one of `trees`, whose pages are missing, is not held, since roots have expired."""
        if not self._store.expiries:
            return
        roots = sorted(trees)
        for root, row in zip(roots, await self._store.get(Table.ROOTS, roots), strict=True):
            if row is None:
                self._forget_held()
                raise RootNotFound(f"the store no longer holds the root {Cid(root).text}")

    async def _put_trees(
        self,
        operation: Operation,
        pages: Sequence[tuple[bytes, bytes]],
        roots: Sequence[bytes],
        requires: Sequence[bytes],
    ) -> None:
        """Store pages, and then the records of roots.

        Raises:
            RootNotFound: A root with whose tree they share pages has expired.
            Unavailable: Also if pages that the operation stored earlier may have been removed as garbage.
            StoreDamaged: A root with whose tree they share pages has lost some.
        """
        if not self._incomplete.isdisjoint(requires):
            names = ", ".join(Cid(root).text for root in self._incomplete.intersection(requires))
            raise StoreDamaged(f"{names} has lost pages, so nothing can be based on it before it is healed")
        rows = (
            {Table.PAGES: pages, Table.ROOTS: [(root, COMPLETE) for root in roots]} if roots else {Table.PAGES: pages}
        )
        try:
            now = await self._store.put(rows, bool(roots), requires, operation.since)
            operation.since = operation.since or now
            self._incomplete.difference_update(roots)
        except RootNotFound as error:
            self._forget_held()
            raise RootNotFound(f"a root that this change is based on has expired: {error}") from None

    async def are_held(self, roots: Sequence[bytes]) -> list[bool]:
        """Return whether the store holds each root. Only "yes" is cached, until roots expire.

        An answer that says that a root is stored needs `Store.renew` or a write that requires it.
        """
        self._refresh_held()
        held = [self._cache.is_held(root) for root in roots]
        if unknown := [root for root, known in zip(roots, held, strict=True) if not known]:
            rows = await self._store.get(Table.ROOTS, unknown)
            found = {root: row is not None for root, row in zip(unknown, rows, strict=True)}
            self._incomplete.difference_update(unknown)
            self._incomplete.update(root for root, row in zip(unknown, rows, strict=True) if row == INCOMPLETE)
            for root, is_held in found.items():
                if root in self._incomplete:
                    continue  # asked for again, as it may be healed
                if is_held and self._store.expiries == self._expiries:  # or it may have expired while it was read
                    self._cache.remember(root)
            held = [known or found[root] for root, known in zip(roots, held, strict=True)]
        return held

    def _refresh_held(self) -> None:
        """Forget which roots are held if some have expired."""
        if self._store.expiries != self._expiries:
            self._forget_held()

    def _forget_held(self) -> None:
        self._expiries = self._store.expiries
        self._cache.forget_held()

    async def call(self, weight: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function, here or in a worker thread; `weight` is its work, in bytes of a query."""
        if weight <= MAX_LOOP_BYTES:
            return function(*args, **kwargs)
        return await self.in_worker(function, *args, **kwargs)

    async def in_worker(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in a worker thread."""
        loop = asyncio.get_running_loop()
        self.jobs += 1
        try:
            return await loop.run_in_executor(self._workers, lambda: function(*args, **kwargs))
        finally:
            self.jobs -= 1

    async def in_worker_to_end(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in a worker thread; if cancelled, wait for it to return first.

        For functions that use what the caller cleans up.
        """
        call = asyncio.ensure_future(self.in_worker(function, *args, **kwargs))
        try:
            return await asyncio.shield(call)
        except asyncio.CancelledError:
            await asyncio.wait([call])
            raise
        finally:
            # The exception of the call refers to this frame: as a cycle, they would keep what the call used.
            del call


def _response(polled: bytes | Need) -> bytes:
    if isinstance(polled, Need):
        raise TypeError(f"only a caller of `advance` can meet {polled!r}")
    return polled


def _poll_reading(operation: Operation, budget: int, read: ReadSpan) -> bytes | Need:
    """Poll, and supply spans as long as it waits for nothing else, up to a limit."""
    for _ in range(SPANS_PER_VISIT):
        polled = operation.poll(budget)
        if isinstance(polled, bytes) or polled.span is None:
            return polled
        operation.supply_bytes(read(*polled.span))
    return operation.poll(budget)
