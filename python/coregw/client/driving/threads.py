"""Calls in worker threads by asyncio alone: loading anyio takes a tenth of the time in which ``coregw get`` starts."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar, TypeVarTuple

from coregw.waiting import result_of

__all__ = ["Check", "in_thread", "to_end"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

Check = Callable[[int], object]
"""Called again and again by long work, with what it has done since the last call; ends it by an exception."""


async def to_end(work: Callable[[*Ts], T], *args: *Ts, stop: Callable[[], None] = lambda: None) -> T:
    """Return ``work(*args)`` from a thread. If this is cancelled, it waits for the call to return first.

    Args:
        work: What to call.
        args: Its arguments.
        stop: Called after a cancellation: makes the call return early.
    """
    call = asyncio.get_running_loop().run_in_executor(None, partial(work, *args))
    try:
        return await result_of(call)
    except asyncio.CancelledError:
        stop()
        while not call.done():
            with suppress(asyncio.CancelledError):  # once more; it is raised in the end
                await asyncio.wait([call])
        raise


async def in_thread(work: Callable[[*Ts, Check], T], *args: *Ts) -> T:
    """Return ``work(*args, check)`` from a thread. If this is cancelled, `check` raises, and this waits for the end."""
    is_stopped = threading.Event()

    def check(_: int) -> None:
        if is_stopped.is_set():
            raise InterruptedError

    return await to_end(work, *args, check, stop=is_stopped.set)
