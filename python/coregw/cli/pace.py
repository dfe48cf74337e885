"""Columns of progress bars of bytes: how much is done, and how fast it goes or for how long nothing has been moved."""

from __future__ import annotations

import time
from typing import Final

from rich.progress import DownloadColumn, ProgressColumn, Task
from rich.text import Text

from coregw.text import byte_size, duration

__all__ = ["AmountColumn", "PaceColumn"]

_SILENT_SECONDS: Final = 3.0
"""Pauses that are shorter are not worth a word."""


class AmountColumn(DownloadColumn):
    """The bytes that are done, and of how many, if that is known."""

    def __init__(self) -> None:
        super().__init__(binary_units=True)

    def render(self, task: Task) -> Text:
        """Return what the column shows of a task."""
        if task.total is None:
            return Text(byte_size(task.completed), style="progress.download")
        return super().render(task)


class PaceColumn(ProgressColumn):
    """The rate and the time left of a task that counts bytes.

    During a pause a rate would be that of the past, so the column says how long the pause has been.
    """

    def __init__(self) -> None:
        super().__init__()
        self._completed = 0.0
        self._changed = time.monotonic()

    def render(self, task: Task) -> Text:
        """Return what the column shows of a task."""
        now = time.monotonic()
        if task.completed != self._completed:
            self._completed, self._changed = task.completed, now
        pause = now - self._changed
        if pause >= _SILENT_SECONDS:
            return Text(f"waiting for {pause:.0f} s", style="progress.remaining")
        if task.speed is None:
            return Text("")
        left = "" if task.time_remaining is None else f", {duration(task.time_remaining)} left"
        return Text(f"{byte_size(task.speed)}/s{left}", style="progress.data.speed")
