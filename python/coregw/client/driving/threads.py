"""Calls in worker threads by asyncio alone: loading anyio takes a tenth of the time in which ``coregw get`` starts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

__all__ = ["to_end"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def to_end(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Return ``work(*args)`` from a thread. If this is cancelled, it waits for the call to return first."""
    call = asyncio.get_running_loop().run_in_executor(None, partial(work, *args))
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        while not call.done():
            try:
                await asyncio.wait([call])
            except asyncio.CancelledError:  # once more; it is raised in the end
                continue
        if not call.cancelled():
            call.exception()  # retrieved, or asyncio would log it
        raise
