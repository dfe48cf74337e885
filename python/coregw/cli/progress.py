"""Progress and results of commands: bars, lines, JSON, columns."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from rich.progress import DownloadColumn, ProgressColumn, Task
from rich.text import Text

from coregw.cli.framework import click, is_quiet, print_json
from coregw.text import byte_size, duration, printable

__all__ = ["AmountColumn", "PaceColumn", "print_result", "shown_progress"]

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


_LINE_SECONDS: Final = 5.0

_MAX_CHARACTERS: Final = 1 << 16

_KNOWN: Final = {"step", "done", "total", "unit"}


@contextmanager
def shown_progress(label: str, *, as_json: bool = False) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Show progress on stderr: a bar on a terminal, otherwise a line for each step and every few seconds.

    Args:
        label: What is done, such as ``gc``.
        as_json: Whether a program reads the result, so nothing is shown.

    Yields:
        A function that shows a progress (`coregw.messages.management.Progress` as a dict).
    """
    from rich.console import Console

    console = Console(stderr=True)
    if as_json or is_quiet():
        yield lambda _: None
    elif not console.is_terminal:
        yield _Lines(label).show
    else:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(label, total=None)

            def show(progress: dict[str, Any]) -> None:
                total, done = progress.get("total"), progress.get("done", 0)
                bar.update(task, description=f"{label}: {_text(progress)}", total=total, completed=done)

            yield show


def print_result(result: dict[str, Any], *, as_json: bool) -> None:
    """Print a result on stdout: its members one a line, or as one line of JSON."""
    if as_json:
        print_json(result)
        return
    width = max((len(name) for name in result), default=0)
    for name, value in result.items():
        click.echo(f"{name.replace('_', ' '):{width}}  {_shown(value)}")


class _Lines:
    """Progress as lines, few enough for a log."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._step: object = None
        self._last_line = 0.0

    def show(self, progress: dict[str, Any]) -> None:
        now = time.monotonic()
        if progress and (progress.get("step") != self._step or now - self._last_line >= _LINE_SECONDS):
            self._step, self._last_line = progress.get("step"), now
            sys.stderr.write(f"coregw {self._label}: {_text(progress)}\n")
            sys.stderr.flush()


def _text(progress: dict[str, Any]) -> str:
    """Return a progress as one line."""
    done, total, unit = progress.get("done", 0), progress.get("total"), progress.get("unit", "")
    parts = [str(progress.get("step", ""))]
    if done or total is not None:
        amounts = [_amount(each, unit) for each in (done, total) if each is not None]
        noun = unit.removesuffix("s") if (done if total is None else total) == 1 else unit
        parts.append(" of ".join(amounts) + (f" {noun}" if unit and unit != "bytes" else ""))
    parts += [f"{name.replace('_', ' ')} {_shown(value)}" for name, value in progress.items() if name not in _KNOWN]
    return ", ".join(part for part in parts if part)


def _amount(count: float, unit: str) -> str:
    """Return a number for a person; bytes with binary prefixes."""
    return byte_size(count) if unit == "bytes" else f"{count:,}"


def _shown(value: object) -> str:
    """Return a member of a result for a person."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return ", ".join(_shown(each) for each in value) or "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    return "none" if value is None else printable(str(value), _MAX_CHARACTERS)
