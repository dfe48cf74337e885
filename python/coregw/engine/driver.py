"""Drives operations: meets what they wait for, and polls them again.

An `Operation` does no I/O. It returns its response, or a `Need` (`rust/ops/src/run.rs`):

    poll -> response                     most queries: all pages are cached, nothing is awaited
    poll -> Need.pages   -> store.get -> supply_pages     -> poll ...
    poll -> Need.roots   -> store.get -> supply_roots     -> poll ...   (a query's top pages at the same time)
    poll -> Need.renewal -> store.renew -> supply_roots   -> poll ...
    poll -> Need.span    -> read      -> supply_bytes     -> poll ...
    poll -> Need.store   -> store.put                     -> poll ...
    poll -> Need.budget  -> a slice in a worker thread    -> poll ...
    poll -> Need.output, Need.payloads   -> the caller of `advance`
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, ParamSpec, TypeVar

from coregw._core import Cid, Need, Operation, PageCache
from coregw.concurrency import finish
from coregw.engine.pages import INCOMPLETE, GuidedPages, PageReads, put_guided, put_of_trees
from coregw.engine.scheduling import (
    MAX_KEPT_QUERIES,
    MAX_LOADING_QUERIES,
    MAX_LOOP_BYTES,
    MAX_LOOP_PAGES,
    SPANS_PER_VISIT,
    WORKER_BUDGET_FACTOR,
    ChangeSlots,
    EngineLimits,
    Execution,
    QuerySlots,
    QueryState,
    ReadSpan,
    WorkerPool,
    level_of,
    require_caller,
    slice_seconds,
)
from coregw.errors import RootNotFound, StoreDamaged, Unavailable
from coregw.store import Store, Stored, Table
from coregw.store.protocol import GuidedStore

__all__ = ["Driver"]

P = ParamSpec("P")
R = TypeVar("R")

_MAX_OPENED_TOGETHER: Final = 8
"""Top pages are read together with the records of at most this many roots; a batch of more waits for all anyway."""


class Driver:
    """Drives operations over one store. For tasks of one event loop."""

    def __init__(self, store: Store, cache: PageCache, limits: EngineLimits) -> None:
        """Args: the store, the cache of the operations to drive, and the limits of the engine."""
        self._store = store
        self._cache = cache
        self._budget = limits.node_budget
        self._pool = WorkerPool(limits.worker_threads)
        self.changes = ChangeSlots(limits)
        """Slots and memory of root creations, imports and mutations."""
        self._loading = QuerySlots(MAX_LOADING_QUERIES, 0)
        self._long = QuerySlots(limits.long_queries, MAX_KEPT_QUERIES)
        self._max_nodes = limits.max_nodes
        self._seconds = limits.operation_seconds
        self.page_reads = PageReads(store)
        """Reads of pages from the store."""
        self._guided = GuidedPages(store, self.page_reads)
        store.watch_expiries(cache.expire)
        self._incomplete: set[bytes] = set()
        """Roots that were found to have lost pages, until they are stored again."""

    async def close(self) -> None:
        """Wait for reads in flight and for worker threads. Idempotent."""
        await self.page_reads.close()
        await self._pool.close()

    @property
    def jobs(self) -> int:
        """How many calls are running in worker threads or waiting for one."""
        return self._pool.jobs

    async def answer(self, start: Callable[[], Operation], weight: int) -> bytes:
        """Make a query, and drive it to its response; it visits at most ``max_nodes`` nodes.

        What it finds takes memory, so it needs a slot to read many pages, and another after its first time slice. If
        many queries wait for a thread or a slot already, it is dropped, and starts again when it has one. So a short
        query does not wait for the slots of long ones, and most of those that wait hold nothing but their requests.

        Args:
            start: Makes the query.
            weight: The work of the query, in bytes.

        Raises:
            TooLarge: If it needs more nodes.
            Unavailable: If it takes longer than ``seconds``.
            ClientDisconnected: If the caller leaves before it ends.
        """
        query = QueryState(start, self._max_nodes, on_loop=weight <= MAX_LOOP_BYTES)
        if query.on_loop:
            polled = query.begin(self._budget)
            if isinstance(polled, bytes):  # as of most queries: nothing is awaited, so no timeout is needed
                return polled
            if polled.budget and self.jobs > MAX_KEPT_QUERIES:
                query.drop()
        async with self._in_time():
            await self._resume(query, max_level=0, max_pages=MAX_LOOP_PAGES)
            if isinstance(query.polled, Need) and not query.polled.budget:
                async with self._loading.occupy(query):
                    await self._resume(query, max_level=0)
            if isinstance(query.polled, Need):
                async with self._long.occupy(query):
                    query.on_loop = False
                    await self._resume(query)
        return _response(query.polled)

    async def _resume(self, query: QueryState, max_level: float = math.inf, max_pages: float = math.inf) -> None:
        """Continue a query within limits, or begin it again in a worker thread if it was dropped."""
        if query.operation is None:
            require_caller()
            await self.in_worker(query.begin_slice, self._budget * WORKER_BUDGET_FACTOR)
        query.max_level, query.max_pages = max_level, max_pages
        query.polled = await self.advance(query)

    async def drive(self, operation: Operation, weight: int) -> bytes:
        """Drive a change to its response.

        Args:
            operation: The operation.
            weight: Its work, in bytes of a query (`coregw.engine.scheduling`). It may do much for all its
                coordinates at once, so heavy work starts in a worker thread.

        Raises:
            TooLarge: If it needs too much memory.
            Unavailable: If it takes longer than ``seconds``, writing aside, or all changes need too much memory.
        """
        execution = self._begun(operation, weight)
        if isinstance(execution.polled, bytes):
            return execution.polled
        async with self._in_time() as execution.deadline:
            with self.changes.holding(operation):
                return _response(await self.advance(execution))

    async def drive_to_end(self, operation: Operation, weight: int = MAX_LOOP_BYTES + 1) -> bytes:
        """Drive a change to its response, however long it takes; otherwise as `drive`."""
        execution = self._begun(operation, weight)
        if isinstance(execution.polled, bytes):
            return execution.polled
        with self.changes.holding(operation):
            return _response(await self.advance(execution))

    def _begun(self, operation: Operation, weight: int) -> Execution:
        """Return the execution of a change, which has been polled if it runs on the event loop."""
        on_loop = weight <= MAX_LOOP_BYTES
        return Execution(operation, operation.poll(self._budget) if on_loop else None, on_loop=on_loop)

    @asynccontextmanager
    async def _in_time(self) -> AsyncGenerator[asyncio.Timeout, None]:
        """Raise `Unavailable` if the context takes longer than ``seconds``."""
        try:
            async with asyncio.timeout(self._seconds) as deadline:
                yield deadline
        except TimeoutError:
            raise Unavailable(f"this took longer than {self._seconds:g} seconds") from None

    async def advance(self, execution: Execution) -> bytes | Need:
        """Drive an operation to its response, or to a need for output or payloads, which the caller meets.

        After a need that exceeds the limits of the execution, it continues from there; after another one the operation
        is polled again.

        Raises:
            ClientDisconnected: If the caller leaves while it runs or waits.
        """
        operation, polled = execution.operation, execution.polled
        assert operation is not None  # noqa: S101 - it has begun
        if polled is None:
            polled = await self._poll(execution, operation, on_loop=execution.on_loop)
        execution.polled = None
        early: dict[bytes, bytes] = {}
        while isinstance(polled, Need):
            require_caller()
            self.changes.hold(operation)
            if (roots := polled.roots) is not None:
                lookahead = self._lookahead(operation, roots) if execution.is_query else {}
                if sum(map(len, lookahead.values())) > execution.max_pages:
                    return polled
                early = await self._open_trees(operation, roots, lookahead)
            elif (roots := polled.renewal) is not None:
                await self._renew(execution, operation, roots)
            elif (pages := polled.pages) is not None:
                if len(pages) > execution.max_pages:
                    return polled
                await self._load_pages(operation, polled, early)
            elif (trees := polled.store) is not None:
                if execution.deadline is not None:
                    execution.deadline.reschedule(None)
                await self._put_trees(operation, *trees)
            elif polled.span is None and (not polled.budget or level_of(operation.busy_seconds) > execution.max_level):
                return polled
            polled = await self._poll(execution, operation, on_loop=execution.on_loop and not polled.budget)
        return polled

    async def _renew(self, execution: Execution, operation: Operation, roots: Sequence[bytes]) -> None:
        """Renew roots, and supply whether each is held."""
        if execution.renews:
            found: Sequence[object] = await self._store.renew(Stored.ROOTS, roots)
        else:
            found = await self._store.get(Table.ROOTS, roots)
        pairs = zip(roots, found, strict=True)
        operation.supply_roots([each is not None and not self._is_incomplete(root) for root, each in pairs])

    def poll_in_thread(self, operation: Operation) -> bytes | Need:
        """Poll an operation once, in the worker thread that calls this."""
        return operation.poll(self._budget * WORKER_BUDGET_FACTOR)

    async def _poll(self, execution: Execution, operation: Operation, *, on_loop: bool) -> bytes | Need:
        """Poll on the event loop, or for a time slice in a worker thread."""
        if on_loop:
            return operation.poll(self._budget)
        budget = self._budget * WORKER_BUDGET_FACTOR
        level = level_of(operation.busy_seconds)
        if execution.read is None:
            return await self._pool.run(partial(operation.poll, budget, slice_seconds(level)), level)
        polling = self._pool.run(partial(_poll_reading, operation, budget, execution.read), level)
        return await finish(asyncio.ensure_future(polling))

    def _lookahead(self, operation: Operation, roots: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """Return the top pages of roots that are read together with their records, and what is looked for below."""
        unknown = [root for root in roots if not self._cache.is_held(root)]
        return self._guided.lookahead(operation, unknown) if len(unknown) <= _MAX_OPENED_TOGETHER else {}

    async def _open_trees(
        self, operation: Operation, roots: Sequence[bytes], lookahead: Mapping[bytes, Sequence[bytes]]
    ) -> dict[bytes, bytes]:
        """Supply whether each root is held; return pages by digest that it will ask for next.

        Reading both at once saves a round trip to a store on another machine. These are the top pages, and the inner
        pages on the paths to keys, as far as the store has guides.
        """
        held, pages = await asyncio.gather(self.are_held(roots), self._guided.read_early(lookahead))
        operation.supply_roots(held)
        return pages

    async def _load_pages(self, operation: Operation, need: Need, early: dict[bytes, bytes]) -> None:
        """Read pages, except for those that were read early, which are taken, and supply them.

        Raises:
            RootNotFound: One is missing since its root has expired. The cache may not have known that, and an operation
                may take longer than the collection of the garbage that its root has become.
        """
        wanted = need.pages or []
        missing = [digest for digest in wanted if digest not in early]
        read = iter(await self.page_reads.get(missing) if missing else [])
        pages = [early.pop(digest) if digest in early else next(read) for digest in wanted]
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
                self._cache.expire()
                raise RootNotFound(f"the store no longer holds the root {Cid(root).text}")

    async def _put_trees(
        self,
        operation: Operation,
        pages: Sequence[tuple[bytes, bytes]],
        differences: Sequence[tuple[bytes, bytes]],
        roots: Sequence[bytes],
        requires: Sequence[bytes],
    ) -> None:
        """Store pages, and then the records of roots.

        Raises:
            RootNotFound: A root with whose tree they share pages has expired.
            Unavailable: Also if pages that the operation stored earlier may have been removed as garbage.
            StoreDamaged: A root with whose tree they share pages has lost some.
        """
        if incomplete := [Cid(root).text for root in requires if self._is_incomplete(root)]:
            names = ", ".join(incomplete)
            raise StoreDamaged(f"{names} has lost pages, so nothing can be based on it before it is healed")
        try:
            guided = isinstance(self._store, GuidedStore)
            put = put_of_trees(pages, differences, roots, requires, operation.since, guided=guided)
            now = await put_guided(self._store, put, durable=bool(roots))
            operation.since = operation.since or now
            self._incomplete.difference_update(roots)
        except RootNotFound as error:
            self._cache.expire()
            raise RootNotFound(f"a root that this change is based on has expired: {error}") from None

    def _is_incomplete(self, root: bytes) -> bool:
        """Whether a root was found to have lost pages, and not to be complete since; the front may have stored it."""
        return root in self._incomplete and not self._cache.is_held(root)

    async def are_held(self, roots: Sequence[bytes]) -> list[bool]:
        """Return whether the store holds each root. Only "yes" is cached, until roots expire.

        An answer that says that a root is stored needs `Store.renew` or a write that requires it.
        """
        held = [self._cache.is_held(root) for root in roots]
        if unknown := [root for root, known in zip(roots, held, strict=True) if not known]:
            generation = self._cache.generation
            rows = await self._store.get(Table.ROOTS, unknown)
            found = {root: row is not None for root, row in zip(unknown, rows, strict=True)}
            self._incomplete.difference_update(unknown)
            self._incomplete.update(root for root, row in zip(unknown, rows, strict=True) if row == INCOMPLETE)
            for root, is_held in found.items():
                if root in self._incomplete:
                    continue  # asked for again, as it may be healed
                if is_held:
                    self._cache.remember(root, generation)
            held = [known or found[root] for root, known in zip(roots, held, strict=True)]
        return held

    async def call(self, weight: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function, here or in a worker thread; `weight` is its work, in bytes of a query."""
        if weight <= MAX_LOOP_BYTES:
            return function(*args, **kwargs)
        return await self.in_worker(function, *args, **kwargs)

    async def in_worker(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in a worker thread."""
        return await self._pool.run(partial(function, *args, **kwargs))

    async def in_worker_to_end(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call a function in a worker thread; if cancelled, wait for it to return first.

        For functions that use what the caller cleans up.
        """
        return await finish(asyncio.ensure_future(self._pool.run(partial(function, *args, **kwargs))))


def _response(polled: bytes | Need | None) -> bytes:
    if not isinstance(polled, bytes):
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
