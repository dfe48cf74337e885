"""The part of an event loop iteration that long bodies may take, so that short requests never wait for many of them.

A chunk that has arrived takes the loop's time until it is hashed and stored, and reading goes on when it is taken. So
when many uploads send at once, an iteration takes chunks of this many bytes, and the rest in the next ones, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

__all__ = ["SHORT_CHUNK_BYTES", "LoopShare"]

SHORT_CHUNK_BYTES: Final = 32 << 10
"""Chunks of at most this length never wait."""

_ITERATION_BYTES: Final = 512 << 10
"""What one iteration takes: about a millisecond."""


class LoopShare:
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
        turn: asyncio.Future[None] = loop.create_future()
        self._waiting.append((size, turn))
        await turn
        return True

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin an iteration: let chunks pass."""
        self._left = _ITERATION_BYTES
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            loop.call_soon(self._begin, loop)
        while self._waiting and self._left > 0:
            size, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._left -= size
                turn.set_result(None)
