"""Rules for the names of files: nothing outside a folder is named."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from coregw.errors import InvalidInput
from coregw.text import printable

__all__ = [
    "INSIDE",
    "check_new_path",
    "check_segments",
    "is_git",
    "refused_git",
]

INSIDE: Final = ".coregw.partial"
"""The name of the folder for incomplete files in a destination that exists. No tree may have it."""

_NO_NAMES = frozenset({"", ".", ".."})
_MARKS = frozenset("\0/\\:" if os.name == "nt" else "\0/")
"""Separators of names, and what follows a drive or names a stream of a file."""


def can_be_name(segment: str) -> bool:
    """Return whether a segment names a file or folder in the folder above it, on this system."""
    return segment not in _NO_NAMES and _MARKS.isdisjoint(segment)


def check_segments(path: Sequence[str]) -> None:
    """Check that each segment of a path can be a file name. Raises `InvalidInput` (code ``invalid_path``)."""
    for segment in path:
        if not can_be_name(segment):
            raise refused(path, f"{segment!r} can't be a file name")


def check_new_path(path: Sequence[str]) -> None:
    """Check that a path can be that of a file, before something is bound to it. A map may have any names.

    Raises:
        InvalidInput: A segment is ``.`` or ``..``, or contains a NUL or a path separator (code ``invalid_path``).
    """
    for index, segment in enumerate(path):
        if not can_be_name(segment):
            raise refused(path, f"segments[{index}]: {segment!r} can't be a file name")


def refused(path: Sequence[str], why: str) -> InvalidInput:
    """Return the exception for a path that is not restored."""
    return InvalidInput(f"{printable('/'.join(path), 1000)}: {why}", code="invalid_path")


def is_git(name: str) -> bool:
    """Whether a folder or file of this name is a repository of git, also where cases do not count."""
    return name.casefold() == ".git"


def refused_git(path: Sequence[str], step: str = "") -> InvalidInput:
    """Return the exception for a path at or below a ``.git`` that was there. `step` is what would allow it."""
    return refused(path, f"is part of a .git that was there, and git runs programs that it names{step}")
