"""Bounded concurrency over many items."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

__all__ = ["for_each"]

T = TypeVar("T")


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
