"""A bounded number of workers over many items: the first failure stops the rest and is raised by itself.

Leaves out queues and results; a worker's function keeps what it makes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import anyio

__all__ = ["for_each"]

T = TypeVar("T")


async def for_each(items: Iterable[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Awaits ``work(item)`` for every item, at most `workers` at a time, beginning in the order of the items.

    Raises:
        Exception: The first failure of any `work`, after the others were cancelled; not wrapped in a group, so that
            callers catch it by its class.
    """
    left = iter(items)  # shared: tasks of one event loop take turns only at awaits

    async def worker() -> None:
        for item in left:
            await work(item)

    try:
        async with anyio.create_task_group() as group:
            for _ in range(workers):
                group.start_soon(worker)
    except BaseExceptionGroup as failures:
        raise _first(failures) from None


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first: BaseException = failures
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first
