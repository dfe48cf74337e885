"""Waiting for a call that several tasks may wait for, or that has to end even if nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVar

__all__ = ["result_of", "to_end"]

T = TypeVar("T")


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


async def to_end(call: asyncio.Future[T], stop: Callable[[], None] = lambda: None) -> T:
    """Return the result of a call. If this is cancelled, it stops the call, and raises when that has ended.

    Args:
        call: The call, which a cancellation does not reach.
        stop: Called after a cancellation: makes the call end early.
    """
    try:
        return await result_of(call)
    except asyncio.CancelledError:
        stop()
        await asyncio.wait([call])
        raise
    finally:
        del call  # as in `result_of`


def _retrieve(call: asyncio.Future[Any]) -> None:
    """Look at the exception of a call, which asyncio would log if nobody did."""
    if not call.cancelled():
        call.exception()
