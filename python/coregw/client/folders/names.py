"""Rules for the names and symbolic links of a tree: nothing outside the folder is named, and no name twice."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

from coregw.errors import InvalidInput
from coregw.folders.attributes import FolderEntry
from coregw.text import printable

__all__ = ["check_names", "check_new_path", "check_segments", "leads_outside", "refused", "restorable_links"]

_MAX_STEPS = 1_000
"""Names that the resolution of one link may take, links on the way included; the kernel follows 40 links."""

_NO_NAMES = frozenset({"", ".", ".."})
_MARKS = frozenset("\0/\\:" if os.name == "nt" else "\0/")
"""Separators of names, and what follows a drive or names a stream of a file."""

Path = tuple[str, ...]


def can_be_name(segment: str) -> bool:
    """Return whether a segment names a file or folder in the folder above it, on this system."""
    return segment not in _NO_NAMES and _MARKS.isdisjoint(segment)


def check_segments(path: Sequence[str]) -> None:
    """Check that each segment of a path can be a file name. Raises `InvalidInput` (code ``invalid_path``)."""
    for segment in path:
        if not can_be_name(segment):
            raise refused(path, f"{segment!r} can't be a file name")


def check_names(entries: Sequence[FolderEntry]) -> None:
    """Check that the entries can be a tree of files.

    Raises:
        InvalidInput: A segment is ``.`` or ``..``, or contains a NUL or a path separator; a path occurs twice; or a
            path is both a file and a folder (code ``invalid_path``). The message names the path.
    """
    files: set[Path] = set()
    folders: set[Path] = set()
    for path, kind, _, _ in entries:
        check_segments(path)
        if kind in ("file", "link"):
            if path in files:
                raise refused(path, "the tree has this path twice")
            files.add(path)
        else:
            folders.add(path)
        above = path[:-1]
        while above and above not in folders:
            folders.add(above)
            above = above[:-1]
    for path in sorted(files & folders):
        raise refused(path, "it is both a file and a folder")


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


def leads_outside(path: Path, links: Mapping[Path, bytes]) -> bool:
    """Return whether a symbolic link leads out of the tree, or through so many names that nobody can tell.

    Args:
        path: The path of the link.
        links: The targets of all links of the tree by path: a target may lead through other links.
    """
    at = list(path[:-1])
    todo = _names(links[path])
    for _ in range(_MAX_STEPS):
        if not todo:
            return False
        name = todo.pop()
        if name == "/":
            return True
        if name == "..":
            if not at:
                return True
            at.pop()
            continue
        at.append(name)
        if (target := links.get(tuple(at))) is not None:
            at.pop()
            todo += _names(target)
    return True


def _names(target: bytes) -> list[str]:
    """Return the names in a link's target, the last one first; an absolute one ends with ``/``."""
    text = os.fsdecode(target)
    names = [name for name in text.split("/") if name not in ("", ".")]
    return [*reversed(names), "/"] if text.startswith("/") else [*reversed(names)]


def restorable_links(entries: Iterable[FolderEntry]) -> tuple[list[FolderEntry], list[FolderEntry]]:
    """Return the symbolic links of a tree that stay inside it, and those that do not."""
    links = {
        entry.segments: (entry, entry.attributes.link)
        for entry in entries
        if entry.kind == "link" and entry.attributes is not None and entry.attributes.link is not None
    }
    targets = {path: target for path, (_, target) in links.items()}
    inside: list[FolderEntry] = []
    outside: list[FolderEntry] = []
    for path, (entry, _) in links.items():
        (outside if leads_outside(path, targets) else inside).append(entry)
    return inside, outside
