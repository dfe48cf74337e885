"""Waiting for calls of several tasks, work in threads, event loops in threads, and bounded concurrency."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from functools import partial
from typing import Any, Final, Self, TypeVar, TypeVarTuple

__all__ = [
    "Check",
    "EventLoopThread",
    "beside",
    "finish",
    "for_each",
    "in_stoppable_thread",
    "in_thread",
    "result_from_thread",
    "result_of",
    "usable_cores",
]

T = TypeVar("T")

_SIGNAL_SECONDS: Final = 1.0
"""After how long the main thread looks for signals that other threads have received."""


async def result_of(call: asyncio.Future[T]) -> T:
    """Return the result of a call that goes on if this is cancelled.

    As `asyncio.shield`, which from Python 3.14 logs what such a call raises after the cancellation.
    """
    try:
        await asyncio.wait([call])
        return call.result()
    except asyncio.CancelledError:
        call.remove_done_callback(_retrieve)  # one is enough, however many have waited
        call.add_done_callback(_retrieve, context=Context())  # that of the caller would be kept until the call ends
        raise
    finally:
        del call  # its exception refers to this frame: as a cycle, they would keep what the call used


@asynccontextmanager
async def beside(call: asyncio.Future[None], stop: Callable[[], object]) -> AsyncIterator[None]:
    """Let a call run while the context is active. If it ends by itself, the task of the context is cancelled.

    Args:
        call: The call. What it raises is raised at the end of the context.
        stop: Called at the end of the context: makes the call end.
    """
    user, is_over = asyncio.current_task(), False

    def end(_: asyncio.Future[None]) -> None:
        if not is_over and user is not None:
            user.cancel()

    call.add_done_callback(end)
    try:
        yield
    finally:
        is_over = True
        stop()
        await asyncio.wait([call])
        call.result()


async def finish(call: asyncio.Future[T], stop: Callable[[], object] = lambda: None) -> T:
    """Return the result of a call. If this is cancelled, it stops the call, and raises when that has ended.

    Args:
        call: The call, which a cancellation does not reach.
        stop: Called after the first cancellation: makes the call end early.
    """
    try:
        return await result_of(call)
    except asyncio.CancelledError:
        stop()
        while not call.done():
            with suppress(asyncio.CancelledError):  # a further one; the first is raised in the end
                await asyncio.wait([call])
        raise
    finally:
        del call  # as in `result_of`


def _retrieve(call: asyncio.Future[Any]) -> None:
    """Look at the exception of a call, which asyncio would log if nobody did."""
    if not call.cancelled():
        call.exception()


Ts = TypeVarTuple("Ts")

Check = Callable[[int], object]
"""Called again and again by long work, with what it has done since the last call; ends it by an exception."""


async def in_thread(work: Callable[[*Ts], T], *args: *Ts, stop: Callable[[], object] = lambda: None) -> T:
    """Return ``work(*args)`` from a thread; if this is cancelled, as `finish`."""
    return await finish(asyncio.get_running_loop().run_in_executor(None, partial(work, *args)), stop)


async def in_stoppable_thread(work: Callable[[*Ts, Check], T], *args: *Ts) -> T:
    """Return ``work(*args, check)`` from a thread. If this is cancelled, `check` raises, and this waits for the end."""
    is_stopped = threading.Event()

    def check(_: int) -> None:
        if is_stopped.is_set():
            raise InterruptedError

    return await in_thread(work, *args, check, stop=is_stopped.set)


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Await ``work(item)`` for every item, at most `workers` at a time, starting in the order of the items.

    Raises:
        Exception: The first failure of any `work`, after the others were cancelled. It is not wrapped in a group, so
            callers can catch it by its class.
    """
    remaining = iter(items)  # shared: tasks switch only at awaits, so each item goes to one worker

    async def worker() -> None:
        for item in remaining:
            await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(worker())
    except BaseExceptionGroup as failures:
        raise _first(failures) from None


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = failures
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def result_from_thread(call: concurrent.futures.Future[T]) -> T:
    """Wait for the result of a call in another thread, and meanwhile handle signals if this is the main thread.

    Only the main thread runs Python's signal handlers. Where a signal was delivered to another thread, as Linux does if
    the main thread has not yet seen the one before, a wait without a timeout would not run them until the call ends.
    """
    while True:
        try:
            return call.result(_SIGNAL_SECONDS)
        except TimeoutError:
            if call.done():  # it is what the call has raised, or it ended just now
                return call.result()


class EventLoopThread:
    """An event loop in a thread of its own, for code without one. A context manager, which calls `close`.

    It is a daemon thread: a program that forgets to close it can end.

    Attributes:
        loop: The event loop.
    """

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._end: asyncio.Future[None] = self.loop.create_future()
        self._lock = threading.Lock()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="coregw-loop", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine, which runs in the event loop; an exception here, as by ^C, cancels it.

        Raises:
            RuntimeError: The thread is closed.
        """
        with self._lock:  # what the loop is given after its end, nobody would run or cancel
            if self._is_closed:
                call.close()
                raise RuntimeError("the event loop is closed")
            future = asyncio.run_coroutine_threadsafe(call, self.loop)
        try:
            return result_from_thread(future)
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Cancel what still runs, and end the thread. Idempotent."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self.loop.call_soon_threadsafe(self._end.cancel)
        self._thread.join()

    def _run(self) -> None:
        async def wait() -> None:
            await asyncio.wait([self._end])

        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(wait())


def usable_cores() -> int:
    """Return how many cores the threads of this process may run on, of those that the machine has."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
