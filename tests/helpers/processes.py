"""Looking at processes from outside, by what Linux tells of them and of their files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

_SECONDS = 60


def open_files(pid: int) -> set[str]:
    """What a process has open, as Linux names it."""
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(entry.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
    return found


def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition, which must come true."""
    deadline = time.monotonic() + _SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
