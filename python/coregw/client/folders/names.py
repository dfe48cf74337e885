"""Rules for the names and symbolic links of a tree: nothing outside the folder is named, and no name twice."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

from coregw.errors import InvalidInput
from coregw.text import printable

__all__ = [
    "INSIDE",
    "TOP",
    "DestinationMaps",
    "FolderMaps",
    "Paths",
    "check_new_path",
    "check_segments",
    "is_git",
    "leads_outside",
    "refused",
    "refused_git",
]

TOP: Final = 0
"""The number of the top folder."""

INSIDE: Final = ".coregw.partial"
"""The name of the folder for incomplete files in a destination that exists. No tree may have it."""

_MAX_STEPS: Final = 1_000
"""Names that the resolution of one link may take, links on the way included; the kernel follows 40 links."""

_NO_NAMES = frozenset({"", ".", ".."})
_MARKS = frozenset("\0/\\:" if os.name == "nt" else "\0/")
"""Separators of names, and what follows a drive or names a stream of a file."""

Kind = Literal["file", "link", "folder"]


def can_be_name(segment: str) -> bool:
    """Return whether a segment names a file or folder in the folder above it, on this system."""
    return segment not in _NO_NAMES and _MARKS.isdisjoint(segment)


def check_segments(path: Sequence[str]) -> None:
    """Check that each segment of a path can be a file name. Raises `InvalidInput` (code ``invalid_path``)."""
    for segment in path:
        if not can_be_name(segment):
            raise refused(path, f"{segment!r} can't be a file name")


class Paths:
    """The paths of a tree, as numbers: each is that of a name in the folder of another number, `TOP` the top folder.

    So the memory that paths need does not depend on how deep they are. A folder has a lower number than what is in it.

    Attributes:
        above: The number of the folder that each is in; the top folder's own.
        names: The name of each; the top folder's is empty.
        kinds: What each is.
        depths: How many folders each is below.
    """

    def __init__(self) -> None:
        self.above = [TOP]
        self.names = [""]
        self.kinds: list[Kind] = ["folder"]
        self.depths = [0]
        self._numbers: dict[tuple[int, str], int] = {}

    def add(self, segments: Sequence[str], kind: Kind) -> int:
        """Add a path, and the folders that it is in, and return its number. O(depth).

        Raises:
            InvalidInput: A segment is ``.`` or ``..``, or contains a NUL or a path separator; a file or link occurs
                twice; or a path is both a file and a folder (code ``invalid_path``). The message names the path.
        """
        check_segments(segments)
        at = TOP
        for place, segment in enumerate(segments):
            wanted: Kind = kind if place + 1 == len(segments) else "folder"
            number = self._numbers.get((at, segment))
            if number is None:
                number = self._numbers[at, segment] = len(self.names)
                self.above.append(at)
                self.names.append(segment)
                self.kinds.append(wanted)
                self.depths.append(self.depths[at] + 1)
            elif "folder" not in (known := {self.kinds[number], wanted}) or len(known) > 1:
                is_both = "folder" in known
                why = "it is both a file and a folder" if is_both else "the tree has this path twice"
                raise refused(segments[: place + 1], why)
            at = number
        return at

    def find(self, folder: int, name: str) -> int | None:
        """Return the number of a name in a folder; None if the tree has no such path."""
        return self._numbers.get((folder, name))

    def path(self, number: int) -> tuple[str, ...]:
        """Return the segments of a path. O(depth)."""
        names: list[str] = []
        while number != TOP:
            names.append(self.names[number])
            number = self.above[number]
        return tuple(reversed(names))


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


FolderMaps = tuple[Callable[[int, str], "int | bytes | None"], Callable[[int], int]]
"""What is in the folder of a number by its name: the number of a folder, the target of a link, None for anything else;
and the number of the folder above one."""


def leads_outside(folder: int, target: bytes, maps: FolderMaps) -> bool:
    """Return whether a symbolic link leads out of the tree, or may do so one day, or takes too many names to tell.

    A link stays inside whatever other links become: it may go up from a folder only, never from what another link leads
    to, or from what is not there. So no later tree, each of whose links stays inside, makes it lead out.

    Args:
        folder: The number of the folder that the link is in.
        target: Its target.
        maps: What the folders have; a target may lead through other links.
    """
    find, above = maps
    at: int | None = folder
    todo = _names(target)
    for _ in range(_MAX_STEPS):
        if not todo:
            return False
        name = todo.pop()
        if name == "/":
            return True
        if name == "..":
            if at is None or at == TOP:
                return True
            at = above(at)
            continue
        if at is None:
            continue  # below what is not there
        found = find(at, name)
        if isinstance(found, bytes):
            if ".." in todo:
                return True
            todo += _names(found)
        else:
            at = found
    return True


def _names(target: bytes) -> list[str]:
    """Return the names in a link's target, the last one first; an absolute one ends with ``/``."""
    text = os.fsdecode(target)
    names = [name for name in text.split("/") if name not in ("", ".")]
    return [*reversed(names), "/"] if text.startswith("/") else [*reversed(names)]


class DestinationMaps:
    """What the folders of a destination have when a tree is restored: what the tree has, and beside it what is there.

    Folders that the tree lacks get numbers after those of the tree.

    Args:
        top: The destination.
        paths: The tree.
        targets: The targets of its links.
    """

    def __init__(self, top: Path, paths: Paths, targets: Mapping[int, bytes]) -> None:
        self.paths = paths
        self._top = top
        self._targets = targets
        self._others: list[tuple[int, str]] = []
        self._numbers: dict[tuple[int, str], int] = {}

    def find(self, folder: int, name: str) -> int | bytes | None:
        """Return what a name in a folder is, as `FolderMaps` has it."""
        number = self.paths.find(folder, name)
        if number is not None:
            return self._targets.get(number, number if self.paths.kinds[number] == "folder" else None)
        place = self._place(folder) / name
        with suppress(OSError, ValueError):  # not there, or no name
            mode = place.lstat().st_mode
            if stat.S_ISLNK(mode):
                return os.fsencode(place.readlink())
            if stat.S_ISDIR(mode):
                known = self._numbers.setdefault((folder, name), len(self.paths.names) + len(self._others))
                if known == len(self.paths.names) + len(self._others):
                    self._others.append((folder, name))
                return known
        return None

    def above(self, folder: int) -> int:
        """Return the number of the folder above one."""
        other = folder - len(self.paths.names)
        return self.paths.above[folder] if other < 0 else self._others[other][0]

    def _place(self, folder: int) -> Path:
        names: list[str] = []
        while (other := folder - len(self.paths.names)) >= 0:
            folder, name = self._others[other]
            names.append(name)
        return self._top.joinpath(*self.paths.path(folder), *reversed(names))
