"""Progress and cancellation of work in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from coregw.messages.progress import Progress, ProgressCallback
from coregw.waiting import to_end

__all__ = ["Track", "in_thread"]

_T = TypeVar("_T")


class Track:
    """Counts the bytes of a step, and reports them.

    Args:
        report: Called with each progress.
    """

    def __init__(self, report: ProgressCallback) -> None:
        self._report = report
        self._stopping = threading.Event()
        self._step, self._total, self._done = "", 0, 0

    def begin(self, step: str, total: int) -> None:
        """Begin a step of `total` bytes."""
        self._step, self._total, self._done = step, total, 0
        self.advance(0)

    def advance(self, size: int) -> None:
        """Count bytes as done. Raises as `report`."""
        self._done += size
        self.report(Progress(step=self._step, done=self._done, total=self._total, unit="bytes"))

    def report(self, progress: Progress) -> None:
        """Report a progress of another kind. Raises `asyncio.CancelledError` after `stop`."""
        if self._stopping.is_set():
            raise asyncio.CancelledError
        self._report(progress)

    def stop(self) -> None:
        """Cancel: the next `advance` raises. Called from any thread."""
        self._stopping.set()


async def in_thread(call: Callable[[Track], _T], report: ProgressCallback) -> _T:
    """Run a call in a worker thread. If this task is cancelled, the call is, and it has ended when this raises."""
    track = Track(report)
    return await to_end(asyncio.ensure_future(asyncio.to_thread(call, track)), track.stop)
