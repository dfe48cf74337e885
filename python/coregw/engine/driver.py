"""Drives the extension's work on trees: supplies what it asks for, and chooses where it runs.

What finds all in the cache runs on the event loop, without a thread; long work moves to worker threads. Leaves out what
is asked, and what becomes of an answer (`coregw.engine`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, ParamSpec, TypeVar

from coregw._core import Mutation, Need, Operation, PageCache, ResolveBatch
from coregw.errors import Unavailable
from coregw.store import Store, Table

__all__ = ["Driver"]

P = ParamSpec("P")
R = TypeVar("R")

HEAVY_BODY_BYTES: Final = 1 << 20
"""Larger root creations, mutations and batches wait for a place: they need memory several times their body's size."""

INLINE_BODY_BYTES: Final = 64 << 10
"""Larger bodies are parsed and worked on in a worker thread: a millisecond is what the event loop may lose."""

INLINE_PAGES: Final = 32
"""More pages at once are checked and parsed in a worker thread."""

WORKER_BUDGET_FACTOR: Final = 16
"""A worker's turn is this many times the event loop's; after each turn it is checked whether time is up."""


class Driver:
    """Runs work on trees over one store. For tasks of one event loop."""

    def __init__(
        self, store: Store, cache: PageCache, *, budget: int, worker_threads: int, heavy_requests: int, seconds: float
    ) -> None:
        """Takes what `Engine` was told, under the same names, and the cache of the work that it will drive."""
        self._store = store
        self._cache = cache
        self._budget = budget
        self._workers = ThreadPoolExecutor(worker_threads, thread_name_prefix="coregw-engine")
        self._heavy = asyncio.Semaphore(heavy_requests)
        self._seconds = seconds

    async def close(self) -> None:
        """Waits for worker threads. Idempotent."""
        await asyncio.to_thread(self._workers.shutdown)

    def place_for(self, request: bytes) -> AbstractAsyncContextManager[object]:
        """A place among the heavy requests, where this is one."""
        return self._heavy if len(request) > HEAVY_BODY_BYTES else nullcontext()

    async def answer(self, start: Callable[..., Operation], request: bytes, *arguments: int) -> bytes:
        """Makes an operation of a request, with what else `start` takes, and drives it to its answer."""
        size = len(request)
        if size > INLINE_BODY_BYTES:
            return await self.drive(await self.in_worker(start, self._cache, request, *arguments), size)
        work = start(self._cache, request, *arguments)
        turn = work.run(self._budget)
        # Most queries end here, since all is in the cache: nothing waits, so no clock is set.
        return turn if isinstance(turn, bytes) else await self._drive_on(work, turn, is_small=True)

    async def drive(self, work: Operation | Mutation | ResolveBatch, size: int) -> bytes:
        """Runs a query or change to its end, supplying what it asks for: its answer. `size` is that of its request.

        A query minds its budget between nodes; a change may take long for all its coordinates at once. So what a large
        request asks for is done in a worker thread from the start.
        """
        is_small = size <= INLINE_BODY_BYTES
        return await self._drive_on(work, work.run(self._budget) if is_small else None, is_small=is_small)

    async def _drive_on(
        self, work: Operation | Mutation | ResolveBatch, turn: bytes | Need | None, *, is_small: bool
    ) -> bytes:
        """Drives from what its last turn gave, if it had one."""
        if isinstance(turn, bytes):
            return turn
        try:
            async with asyncio.timeout(self._seconds):
                turn = turn or await self._run_in_worker(work)
                while isinstance(turn, Need):
                    turn = await self._supply(work, turn, is_small=is_small)
                return turn
        except TimeoutError:
            raise Unavailable(f"this took longer than {self._seconds:g} seconds") from None

    async def _supply(self, work: Operation | Mutation | ResolveBatch, need: Need, *, is_small: bool) -> bytes | Need:
        """Fetches one need, and runs on."""
        if need.budget:
            return await self._run_in_worker(work)
        if need.roots is not None:
            work.supply_roots(await self.are_held(need.roots))
        elif need.pages is not None:
            pages = await self._store.get(Table.PAGES, need.pages)
            if len(pages) > INLINE_PAGES:
                await self.in_worker(work.supply_pages, pages)
            else:
                work.supply_pages(pages)
        return work.run(self._budget) if is_small else await self._run_in_worker(work)

    async def _run_in_worker(self, work: Operation | Mutation | ResolveBatch) -> bytes | Need:
        return await self.in_worker(work.run, self._budget * WORKER_BUDGET_FACTOR)

    async def are_held(self, roots: Sequence[bytes]) -> list[bool]:
        """Whether the store has a record of each root. Only "yes" is remembered: a root is never deleted."""
        held = [self._cache.is_held(root) for root in roots]
        if unknown := [root for root, known in zip(roots, held, strict=True) if not known]:
            rows = await self._store.get(Table.ROOTS, unknown)
            found = {root: row is not None for root, row in zip(unknown, rows, strict=True)}
            for root, is_held in found.items():
                if is_held:
                    self._cache.remember(root)
            held = [known or found[root] for root, known in zip(roots, held, strict=True)]
        return held

    async def call(self, size: int, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a function that takes time in proportion to a request's `size`: here, or in a worker thread."""
        if size <= INLINE_BODY_BYTES:
            return function(*args, **kwargs)
        return await self.in_worker(function, *args, **kwargs)

    async def in_worker(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls a function in a worker thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._workers, lambda: function(*args, **kwargs))
