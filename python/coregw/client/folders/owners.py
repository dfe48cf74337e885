"""Owners and extended attributes, which are restored on request only: they rarely mean the same on another machine."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from coregw.client.folders.destination import open_below
from coregw.client.folders.listing import PlannedFile
from coregw.folders.attributes import Attributes, FolderEntry

__all__ = ["Extras", "set_extras"]

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Extras(NamedTuple):
    """What is restored besides content, permissions, times and links.

    Attributes:
        owners: The owning user and group, and with them the set-uid and set-gid bits.
        xattrs: Extended attributes of files and folders. Those of users that the tree does not have are removed.
    """

    owners: bool = False
    xattrs: bool = False


def set_extras(top: Path, entries: Iterable[FolderEntry | PlannedFile], extras: Extras) -> None:
    """Set the owners and extended attributes of what was written below `top`. O(entries).

    Raises:
        OSError: The system refuses one; the error names the file.
    """
    for entry in entries:
        known = entry.attributes or Attributes("file", None, None, None, None, None, {})
        if not ((extras.owners and known.owner) or (extras.xattrs and known.kind != "link")):
            continue
        path = top.joinpath(*entry.segments)
        try:
            with open_below(top, entry.segments[:-1]) as folder:
                _set(folder, entry.segments[-1], known, extras)
        except OSError as error:
            raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


def _set(folder: int, name: str, known: Attributes, extras: Extras) -> None:
    if extras.owners and known.owner is not None:
        os.chown(name, *known.owner, dir_fd=folder, follow_symlinks=False)
    if known.kind == "link":
        return  # has neither a mode nor extended attributes of users
    stale = _stale(folder, name, known) if extras.xattrs else []
    if not (extras.owners and known.owner) and not stale and not known.xattrs:
        return
    descriptor = os.open(name, _OPEN, dir_fd=folder)
    try:
        if extras.owners and known.owner is not None and known.mode is not None:
            os.fchmod(descriptor, known.mode)  # after the owner, since a change of owner clears the special bits
        for attribute in stale:
            os.removexattr(descriptor, attribute)
        if extras.xattrs:
            for attribute, value in known.xattrs.items():
                os.setxattr(descriptor, attribute, value)
    finally:
        os.close(descriptor)


def _stale(folder: int, name: str, known: Attributes) -> list[str]:
    """Return the extended attributes of users that a file or folder has, and the tree does not have."""
    try:
        found = os.listxattr(f"/proc/self/fd/{folder}/{name}", follow_symlinks=False)  # it may not be readable
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return []
        raise
    return [attribute for attribute in found if attribute.startswith("user.") and attribute not in known.xattrs]
