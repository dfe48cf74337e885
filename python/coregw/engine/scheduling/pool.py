"""Worker threads with a multilevel feedback queue: the operation that has run least is served first.

An operation runs in time slices, and is queued again after each. So a short operation waits only for the slices in
progress and for others that are as short, however many long ones there are. Slices grow with the time that an
operation has run for, so a long one is queued only a few times.

```
level   has run      slice
0       < 1 ms       1 ms      a new operation: before all others
1       < 2 ms       1 ms
2       < 4 ms       2 ms
...
5, ...  < 32 ms, ... 16 ms
```
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple, TypeVar

__all__ = ["WorkerPool", "level_of", "slice_seconds"]

R = TypeVar("R")

_SHORTEST_SECONDS: Final = 0.001
_MAX_GROWTH: Final = 4
"""How often the slice doubles: a slice of 16 ms is as long as a few switches of threads."""


def level_of(busy_seconds: float) -> int:
    """Return the level of an operation that has run for this long; lower ones are served first."""
    return int(busy_seconds / _SHORTEST_SECONDS).bit_length()


def slice_seconds(level: int) -> float:
    """Return the length of the time slice of an operation at this level."""
    return _SHORTEST_SECONDS * 2.0 ** min(max(level - 1, 0), _MAX_GROWTH)


class _Call(NamedTuple):
    """A call that waits for a thread, or runs. They are compared by level, then by number."""

    level: int
    number: int
    work: Callable[[], Any]
    done: asyncio.Future[Any]


class WorkerPool:
    """A number of worker threads. For tasks of one event loop."""

    def __init__(self, threads: int) -> None:
        """Args: how many calls run at once."""
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="coregw-engine")
        self._count = self._free = threads
        self._waiting: list[_Call] = []
        self._running: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def jobs(self) -> int:
        """How many calls run or wait; a cancelled call that waits counts until a thread would take it."""
        return self._count - self._free + len(self._waiting)

    async def run(self, work: Callable[[], R], level: int = 0) -> R:
        """Call a function in a thread as soon as one is free for it. Raises what the function raises.

        If cancelled, it does not wait for a call that has begun.

        Args:
            work: The function.
            level: How long the operation that it belongs to has run already; see `level_of`.
        """
        done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        call = _Call(level, next(self._numbers), work, done)
        if self._free:
            self._free -= 1
            self._idle.clear()
            self._start(call)
        else:
            heapq.heappush(self._waiting, call)
        try:
            return await done
        finally:
            del call, done  # an exception refers to this frame: as a cycle, they would keep what the call used

    async def close(self) -> None:
        """Wait for all calls. Idempotent."""
        await self._idle.wait()
        await asyncio.to_thread(self._threads.shutdown)

    def _start(self, call: _Call) -> None:
        self._running[call.number] = call.done
        # An exception refers to the frames of its thread. As a cycle, they would keep what the call used if its future,
        # which has the exception, were in one of them.
        self._threads.submit(self._work, call.number, call.work, call.done.get_loop())

    def _work(self, number: int, work: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        """Make a call, in a thread."""
        try:
            result = work()
        except BaseException as error:  # noqa: BLE001 - raised where the call is awaited
            loop.call_soon_threadsafe(self._end, number, None, error)
        else:
            loop.call_soon_threadsafe(self._end, number, result, None)

    def _end(self, number: int, result: object, error: BaseException | None) -> None:
        """Give the thread to the next call, and the result to the caller."""
        while self._waiting:
            following = heapq.heappop(self._waiting)
            if not following.done.cancelled():
                self._start(following)
                break
        else:
            self._free += 1
            if self._free == self._count:
                self._idle.set()
        done = self._running.pop(number)
        if done.cancelled():
            return
        if error is None:
            done.set_result(result)
        else:
            done.set_exception(error)
