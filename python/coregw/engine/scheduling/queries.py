"""Queries that can be dropped and begin again, and the slots for which they wait."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from coregw._core import Need, Operation
from coregw.engine.scheduling.placement import MAX_KEPT_BYTES
from coregw.engine.scheduling.pool import slice_seconds

__all__ = ["Query", "QuerySlots"]


class Query:
    """A query: what it was asked, and what it has found so far, unless that was dropped.

    Attributes:
        operation: The query in progress; None before it begins, and after `drop`.
        polled: What it returned last; None if that was dropped.
    """

    __slots__ = ("_max_nodes", "_start", "operation", "polled")

    def __init__(self, start: Callable[[], Operation], max_nodes: int) -> None:
        """Args: a function that makes the operation, and the limit on the nodes that it visits."""
        self._start = start
        self._max_nodes = max_nodes
        self.operation: Operation | None = None
        self.polled: bytes | Need | None = None

    def begin(self, budget: int, seconds: float = 0.0) -> bytes | Need:
        """Make the operation, and poll it once. Raises what the request is refused with.

        Args:
            budget: The nodes that it may visit at once.
            seconds: The time after which it returns when these are spent.
        """
        operation = self._start()
        operation.limit_nodes(self._max_nodes)
        self.polled = operation.poll(budget, seconds)
        self.operation = operation
        return self.polled

    def begin_slice(self, budget: int) -> bytes | Need:
        """Begin with a first time slice, in a worker thread; otherwise as `begin`."""
        return self.begin(budget, slice_seconds(0))

    @property
    def held_bytes(self) -> int:
        """The memory of what it has found, in bytes."""
        return 0 if self.operation is None else self.operation.held_bytes

    def drop(self) -> None:
        """Forget what it has found."""
        self.operation = self.polled = None


class QuerySlots:
    """A number of slots for queries, given first in, first out. For tasks of one event loop."""

    def __init__(self, count: int, max_kept: int) -> None:
        """Args: the number of slots, and of queries that wait for one with what they have found."""
        self._slots = asyncio.Semaphore(count)
        self._max_kept = max_kept
        self._kept = 0

    @asynccontextmanager
    async def occupy(self, query: Query) -> AsyncGenerator[None, None]:
        """Wait for a slot, and have it while the context is active.

        The query is dropped if many wait already, or if it would wait with much memory.
        """
        may_wait = self._kept < self._max_kept and query.held_bytes <= MAX_KEPT_BYTES
        is_kept = not self._slots.locked() or may_wait
        if not is_kept:
            query.drop()
        self._kept += is_kept
        try:
            await self._slots.acquire()
        finally:
            self._kept -= is_kept
        try:
            yield
        finally:
            self._slots.release()
