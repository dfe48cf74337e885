"""The budget of an event loop iteration for long bodies, so that short requests never wait for many of them.

Hashing and storing a chunk takes time on the event loop, and the connection is read on afterwards. So if many uploads
send at once, an iteration takes chunks of at most this many bytes, and later ones take the rest, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

__all__ = ["SHORT_CHUNK_BYTES", "IterationBudget"]

SHORT_CHUNK_BYTES: Final = 32 << 10
"""Chunks of at most this length never wait."""

_ITERATION_BYTES: Final = 512 << 10
"""What one iteration takes: about a millisecond."""


class IterationBudget:
    """Chunks that wait for an iteration of the running event loop, first in, first out."""

    def __init__(self) -> None:
        self._left = _ITERATION_BYTES
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._is_scheduled = False

    @property
    def is_behind(self) -> bool:
        """Whether chunks wait."""
        return bool(self._waiting)

    async def wait(self, size: int) -> bool:
        """Return in an iteration with time for a chunk of this length, and whether that is a later one. O(1)."""
        if size <= SHORT_CHUNK_BYTES:
            return False
        loop = asyncio.get_running_loop()
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._begin, loop)
        if self._left > 0 and not self._waiting:
            self._left -= size
            return False
        admitted: asyncio.Future[None] = loop.create_future()
        self._waiting.append((size, admitted))
        await admitted
        return True

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin an iteration: let chunks pass."""
        self._left = _ITERATION_BYTES
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            loop.call_soon(self._begin, loop)
        while self._waiting and self._left > 0:
            size, admitted = self._waiting.popleft()
            if not admitted.cancelled():
                self._left -= size
                admitted.set_result(None)
