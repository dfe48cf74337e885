"""Bounded concurrency over many items, and long work in threads that ends when its caller is cancelled."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar, TypeVarTuple

__all__ = ["for_each", "in_thread"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


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


async def in_thread(work: Callable[[*Ts, Callable[[int], object]], T], *args: *Ts) -> T:
    """Return ``work(*args, check)`` from a thread. If this is cancelled, `check` raises, so that the thread ends soon.

    Args:
        work: A callable whose last argument is a callback for progress, called again and again with a number.
        args: Its other arguments.
    """
    is_stopped = threading.Event()

    def check(_: int) -> None:
        if is_stopped.is_set():
            raise InterruptedError

    try:
        return await asyncio.to_thread(work, *args, check)
    finally:
        is_stopped.set()
