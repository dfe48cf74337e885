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
    cancelled = None
    while not call.done():
        try:
            await asyncio.wait([call])  # not shield: from Python 3.14 it logs what a call raises after a cancellation
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is None:
        return call.result()
    if not call.cancelled():
        call.exception()  # retrieved, or asyncio would log it
    raise cancelled
