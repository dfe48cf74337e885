"""Display of a path by `ls`, `tree` and `stat`: its kind, size, mode and time, as text and as JSON."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from coregw.cli.common import printable

if TYPE_CHECKING:
    from coregw.client import Client
    from coregw.folders.attributes import FolderEntry

__all__ = [
    "FolderPlace",
    "file_mode",
    "link_target",
    "listed",
    "located",
    "members",
    "modified",
    "modified_exactly",
    "place_of",
    "size_of",
    "tree_of",
]

_TYPES = {"file": stat.S_IFREG, "link": stat.S_IFLNK, "folder": stat.S_IFDIR, "map": stat.S_IFDIR}


def located(opened: Client, root: str, segments: list[str]) -> tuple[str, list[str]]:
    """Locate a path that has no target of its own, as `Client.locate` does.

    Raises:
        InvalidInput: A symbolic link or an empty folder is there, which only has attributes.
        PathNotFound: Nothing is at the path, which is proven.
    """
    from coregw._core import Cid
    from coregw.client.folders.levels import folder_record
    from coregw.errors import InvalidInput, PathNotFound

    try:
        return opened.locate(root, segments)
    except PathNotFound:
        known = folder_record(opened, root, segments) if segments and Cid(root).kind == "map" else None
        if known is None or known.kind == "file":
            raise
    if known.link is None:
        what = "an empty folder"
    else:
        what = f"a symbolic link to {link_target(known.link)}, which is not followed"
    raise InvalidInput(f"{printable('/'.join(segments))} is {what}")


class FolderPlace(NamedTuple):
    """A folder: the paths of a map that begin with a prefix."""

    root: str
    prefix: list[str]


def place_of(opened: Client, root: str, segments: list[str]) -> FolderPlace | FolderEntry:
    """Return what is at a path, through nested maps: a folder, or the file or link, named by the last segment.

    Raises:
        PathNotFound: Nothing is at the path, which is proven.
    """
    from coregw._core import Cid
    from coregw.client.folders.levels import folder_record
    from coregw.errors import PathNotFound
    from coregw.folders.attributes import FolderEntry

    known = folder_record(opened, root, segments) if segments and Cid(root).kind == "map" else None
    try:
        target, prefix = opened.locate(root, segments)
    except PathNotFound:
        if known is None or known.kind == "file":
            raise
        target, prefix = root, segments
    is_link = known is not None and known.kind == "link"
    if Cid(target).kind == "map" and not is_link:
        return FolderPlace(target, prefix)
    name = segments[-1] if segments else target
    return FolderEntry((name,), "link" if is_link else "file", None if is_link else target, known)


def listed(opened: Client, place: FolderPlace | FolderEntry, recursive: bool) -> Iterator[tuple[str, FolderEntry]]:
    """Yield what is listed of a place, with the names that are shown."""
    from coregw.client.folders.levels import folder_level

    if not isinstance(place, FolderPlace):
        yield place.segments[-1], place
    elif recursive:
        for found, entry in tree_of(opened, place.root, tuple(place.prefix)):
            yield "/".join(found[len(place.prefix) :]) or found[-1], entry
    else:
        for entry in folder_level(opened, place.root, place.prefix):
            yield entry.segments[-1], entry


def tree_of(
    opened: Client, root: str, prefix: tuple[str, ...], above: tuple[str, ...] = (), depth: int = 0
) -> Iterator[tuple[tuple[str, ...], FolderEntry]]:
    """Yield everything below a folder, nested maps included, with paths from the top.

    Raises:
        InvalidInput: Maps nest deeper than ``ClientSettings.max_nesting``.
    """
    from coregw.client.folders.levels import folder_tree
    from coregw.errors import InvalidInput

    if depth > opened.settings.max_nesting:
        raise InvalidInput(f"{'/'.join(above)!r}: maps nest deeper than {opened.settings.max_nesting}")
    for entry in folder_tree(opened, root, prefix):
        if entry.kind == "map" and entry.target is not None:
            yield from tree_of(opened, entry.target, (), above + entry.segments, depth + 1)
        elif entry.segments != prefix or entry.kind != "folder":
            yield above + entry.segments, entry


def members(opened: Client, entry: FolderEntry) -> dict[str, object]:
    """Return what is known of an entry, for JSON; what is unknown is left out."""
    known = entry.attributes
    shown: dict[str, object] = {
        "kind": entry.kind,
        "target": entry.target,
        "size": size_of(opened, entry),
        "mode": None if known is None or known.mode is None else f"{known.mode:04o}",
        "mtime_ns": None if known is None else known.mtime_ns,
        "link": None if known is None or known.link is None else link_target(known.link),
        "owner": None if known is None else known.owner,
        "xattrs": {name: value.hex() for name, value in known.xattrs.items()} if known and known.xattrs else None,
    }
    return {name: value for name, value in shown.items() if value is not None}


def file_mode(entry: FolderEntry) -> str:
    """Return type and mode as in ``ls -l``, with question marks for a mode that is not recorded."""
    mode = entry.attributes.mode if entry.attributes is not None else None
    if entry.kind == "link":
        return "lrwxrwxrwx"
    text = stat.filemode(_TYPES[entry.kind] | (mode or 0))
    return text if mode is not None else text[0] + "?????????"


def size_of(opened: Client, entry: FolderEntry) -> int | None:
    """Return the size in bytes: as recorded, or the proven length of a list of chunks; None if neither is known."""
    from coregw._core import Cid

    if entry.attributes is not None and entry.attributes.size is not None:
        return entry.attributes.size
    if entry.target is not None and Cid(entry.target).kind == "list":
        return opened.list_size(entry.target)
    return None


def modified(mtime_ns: int) -> str:
    """Return a time in UTC, to the second."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=mtime_ns // 1000)
    return moment.strftime("%Y-%m-%d %H:%M:%S")


def modified_exactly(mtime_ns: int) -> str:
    """Return a time in UTC, to the nanosecond."""
    return f"{modified(mtime_ns)}.{mtime_ns % 1_000_000_000:09}"


def link_target(link: bytes) -> str:
    """Return the target of a symbolic link as text that can be shown; bytes that are not text are escapes."""
    return printable(os.fsdecode(link).encode("utf-8", "backslashreplace").decode())
