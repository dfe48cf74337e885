"""Progress and results of maintenance: a bar on a terminal, plain lines elsewhere, JSON on request."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from coregw.cli.framework import click, is_quiet, print_json
from coregw.text import byte_size, printable

__all__ = ["print_result", "shown_progress"]

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
        A function that shows a progress (`coregw.messages.progress.Progress` as a dict).
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
