"""Owners and extended attributes, which are restored on request only: they rarely mean the same on another machine."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from coregw.client.driving.threads import Check
from coregw.client.folders.destination import Rights, TreeCursor, reported_as_path
from coregw.client.folders.listing import PlannedFile
from coregw.client.folders.names import Paths
from coregw.folders.attributes import Attributes, FolderEntry
from coregw.folders.survey import Skipped

__all__ = ["Extras", "set_extras"]

_OPEN = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW | os.O_CLOEXEC
"""Without permission to read a file, where the system can do so."""

_RIGHTS = stat.S_IRUSR | stat.S_IWUSR
"""What the owner of a file needs to change its extended attributes."""


class Extras(NamedTuple):
    """What is restored besides content, permissions, times and links.

    Attributes:
        owners: The owning user and group, and with them the set-uid and set-gid bits.
        xattrs: Extended attributes of files and folders. To root, those of users only (``user.``): others may give
            programs rights, as ``security.capability`` does. Those of users that the tree does not have are removed.
        xattr_names: Extended attributes that are restored in any case.
    """

    owners: bool = False
    xattrs: bool = False
    xattr_names: tuple[str, ...] = ()

    @property
    def has_xattrs(self) -> bool:
        """Whether any extended attributes are restored."""
        return self.xattrs or bool(self.xattr_names)

    def restored(self, xattrs: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return those of a file's extended attributes that are restored."""
        has_all = self.xattrs and not _is_root()
        return {
            name: value
            for name, value in xattrs.items()
            if has_all or name in self.xattr_names or (self.xattrs and name.startswith("user."))
        }


def _is_root() -> bool:
    return os.geteuid() == 0


def set_extras(
    top: Path,
    paths: Paths,
    entries: Iterable[tuple[int, FolderEntry | PlannedFile]],
    inodes: Mapping[int, int],
    extras: Extras,
    check: Check = lambda count: None,
) -> list[Skipped]:
    """Set the owners and extended attributes of what was written below `top`, by the numbers of its paths. O(entries).

    Args:
        top: The folder.
        paths: The tree.
        entries: What is set.
        inodes: The inodes of the files. Nothing is changed of another file, which somebody may have put in the place of
            one of these.
        extras: What is restored.
        check: Called for each entry.

    Returns:
        The first path for each recorded extended attribute that is not restored, and how many others there are.

    Raises:
        OSError: The system refuses one, or something else has its name (``ESTALE``); the error names the file.
    """
    left_out: dict[str, list[int]] = {}
    with Rights(top, paths) as rights, TreeCursor.at(top) as cursor:
        for number, entry in entries:
            check(1)
            kind = paths.kinds[number]
            known = entry.attributes or _UNKNOWN
            if not ((extras.owners and known.owner) or (extras.has_xattrs and kind != "link")):
                continue
            with reported_as_path(top, paths, number):
                rights.enter(cursor, paths.above[number])
                _set(cursor.folder, paths.names[number], (kind, inodes.get(number)), known, extras)
            if extras.xattrs and kind != "link":
                for name in known.xattrs.keys() - extras.restored(known.xattrs).keys():
                    left_out.setdefault(name, []).append(number)
    return [Skipped(top.joinpath(*paths.path(found[0])), _why(name, len(found))) for name, found in left_out.items()]


_UNKNOWN = Attributes("file", None, None, None, None, None, {})
_IS_KIND = {"file": stat.S_ISREG, "link": stat.S_ISLNK, "folder": stat.S_ISDIR}


def _why(name: str, count: int) -> str:
    others = f", and those of {count - 1:,} more," if count > 1 else ""
    return f"its extended attribute {name}{others} is restored to root only by name, with --xattr"


def _set(folder: int, name: str, expected: tuple[str, int | None], known: Attributes, extras: Extras) -> None:
    kind, inode = expected
    if kind == "link" and not hasattr(os, "O_PATH"):  # there is no descriptor of a link
        os.chown(name, *(known.owner or (-1, -1)), dir_fd=folder, follow_symlinks=False)
        return
    descriptor = os.open(name, _OPEN, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not _IS_KIND[kind](status.st_mode) or (kind == "file" and inode != status.st_ino):
            raise OSError(errno.ESTALE, "was replaced by something else meanwhile")
        file = f"/proc/self/fd/{descriptor}" if hasattr(os, "O_PATH") else descriptor
        if extras.owners and known.owner is not None:
            os.chown(file, *known.owner)
        if kind == "link":
            return  # has neither a mode nor extended attributes of users
        if extras.owners and known.owner is not None and known.mode is not None:
            os.chmod(file, known.mode)  # noqa: PTH101 - after the owner, since a change of owner clears the special bits
        stale = _stale(file, known) if extras.xattrs else []
        values = extras.restored(known.xattrs)
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        is_locked = bool(stale or values) and status.st_uid == os.geteuid() and mode & _RIGHTS != _RIGHTS
        if is_locked:
            os.chmod(file, mode | _RIGHTS)  # noqa: PTH101 - a path or a descriptor
        try:
            for attribute in stale:
                os.removexattr(file, attribute)
            for attribute, value in values.items():
                os.setxattr(file, attribute, value)
        finally:
            if is_locked:
                os.chmod(file, mode)  # noqa: PTH101 - a path or a descriptor
    finally:
        os.close(descriptor)


def _stale(file: str | int, known: Attributes) -> list[str]:
    """Return the extended attributes of users that a file or folder has, and the tree does not have."""
    try:
        found = os.listxattr(file)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return []
        raise
    return [attribute for attribute in found if attribute.startswith("user.") and attribute not in known.xattrs]
