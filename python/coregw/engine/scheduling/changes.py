"""Root creations, imports and mutations in progress: their slots, and the memory that they hold.

The nodes that a mutation has visited and made stay in memory until it ends, and a body of a few kilobytes may make it
visit millions. A new root has its arcs and pages in memory, an import the positions of all blocks. So what all of them
hold together is bounded. If it is exceeded, the change that began first goes on, and each of the others fails when it
needs more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Final, Protocol

from coregw.engine.scheduling.callers import require_caller
from coregw.engine.scheduling.placement import HEAVY_BODY_BYTES, MAX_CHANGES, MAX_LOOP_BYTES, mutation_weight
from coregw.errors import TooLarge, Unavailable

__all__ = ["Changes", "Holder"]


class Holder(Protocol):
    """A change, or a part of one, such as an `Operation` or the reader of a CAR."""

    @property
    def held_bytes(self) -> int:
        """The memory of what it holds. O(1)."""


class Changes:
    """The changes of one engine. For tasks of one event loop."""

    def __init__(self, heavy_requests: int, max_bytes: int) -> None:
        """Args: the number of slots for changes with large bodies, and the limit on the memory of all changes."""
        self._heavy: Final = asyncio.Semaphore(heavy_requests)
        self._others: Final = asyncio.Semaphore(MAX_CHANGES)
        self._max_bytes = max_bytes
        self._held: dict[Holder, int] = {}  # by age
        self.total = 0
        """The memory of all changes, as they last told."""

    def place_for(self, request: bytes) -> AbstractAsyncContextManager[object]:
        """Return a context that limits the number of changes in progress; small ones, which need no thread, are exempt.

        Without it, time slices would let all of them be half done at once. Entering it raises `ClientDisconnected` if
        the caller leaves meanwhile.
        """
        if mutation_weight(request) <= MAX_LOOP_BYTES:
            return nullcontext()
        return _occupied(self._heavy if len(request) > HEAVY_BODY_BYTES else self._others)

    @contextmanager
    def holding(self, holder: Holder) -> Iterator[None]:
        """Count the memory of a change while the context is active: what it holds now, and what `hold` is told.

        Raises:
            TooLarge, Unavailable: As `hold`.
        """
        self._held[holder] = 0
        try:
            self.hold(holder)
            yield
        finally:
            self.total -= self._held.pop(holder)

    def hold(self, holder: Holder) -> None:
        """Note the memory that a change needs now; for others than changes nothing happens. O(1).

        Raises:
            TooLarge: If it alone exceeds the limit.
            Unavailable: If all changes together exceed it, and another one is older.
        """
        held = self._held.get(holder)
        if held is None:
            return
        size = holder.held_bytes
        self.total += size - held
        self._held[holder] = size
        if size > self._max_bytes:
            raise TooLarge(f"the change needs more than {self._max_bytes:,} bytes of memory; send fewer at once")
        if size > held and self.total > self._max_bytes and holder is not next(iter(self._held)):
            raise Unavailable("the changes in progress need too much memory; retry later")


@asynccontextmanager
async def _occupied(slots: asyncio.Semaphore) -> AsyncGenerator[None, None]:
    """Wait for a slot, and have it while the context is active."""
    if slots.locked():
        require_caller()
    async with slots:
        require_caller()
        yield
