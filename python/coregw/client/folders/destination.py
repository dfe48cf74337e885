"""Where a restore writes: the destination, and the folder for what is incomplete.

What is incomplete is in a folder whose name follows from the destination, so nothing has to be searched. Whoever writes
to it holds a lock on it (`flock`), which ends with the process: a folder without a lock has no writer any more.

```text
parent/dest                            a new destination, while it is made:
parent/.coregw-1f0e…partial/tree       the content of dest, renamed when it is complete

parent/dest/                           a destination that exists:
parent/dest/.coregw.partial/files      files, each renamed to its path when it is complete
parent/dest/.coregw.partial/tree       or the content, if dest is empty
```
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

from coregw import _core
from coregw.client.folders.names import INSIDE
from coregw.concurrency import Check, in_thread
from coregw.durability import reported_as
from coregw.errors import InvalidInput
from coregw.extras import missing_extra

try:
    import fcntl
except ModuleNotFoundError as error:
    raise missing_extra(error, "writing a folder", "client") from None

__all__ = [
    "Extras",
    "PartialFolder",
    "check_destination",
    "discard_abandoned",
    "free_bytes",
    "partial_folder",
    "publish",
]


def check_destination(destination: Path) -> bool:
    """Return whether a destination has content, other than the incomplete files of a process that was killed.

    Raises:
        InvalidInput: It is not a folder, or it does not exist and neither does the folder above it (code
            ``invalid_path``).
    """
    if not os.path.lexists(destination):
        if not destination.absolute().parent.is_dir():
            raise InvalidInput(f"{destination.parent}: no such folder", code="invalid_path")
        return False
    if not destination.is_dir():
        raise InvalidInput(f"{destination}: exists and is not a folder", code="invalid_path")
    with os.scandir(destination) as listing:
        return any(entry.name != INSIDE for entry in listing)


def publish(tree: Path, destination: Path, *, existed: bool) -> None:
    """Give a complete folder the name of a destination, which is new, or an empty folder if it `existed`.

    Raises:
        InvalidInput: Something was created in the destination meanwhile (code ``invalid_path``); nothing is moved then.
    """
    if not existed:
        tree.rename(destination)
        return
    # The folder must stay the same inode, as it may be a working directory: so its new content is moved up.
    moves = [(child, destination / child.name) for child in sorted(tree.iterdir())]
    for _, place in moves:
        if os.path.lexists(place):
            raise InvalidInput(f"{place}: was created by somebody else meanwhile", code="invalid_path")
    with ExitStack() as undo:
        for child, place in moves:
            child.rename(place)
            undo.callback(place.rename, child)
        undo.pop_all()


def free_bytes(destination: Path) -> int | None:
    """Return how many bytes this user may write to the disk of a destination; None if the file system does not say."""
    found = os.statvfs(destination if destination.is_dir() else destination.absolute().parent)
    return found.f_bavail * found.f_frsize if found.f_blocks else None


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


_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_NO_LOCKS: Final = (errno.ENOTSUP, errno.EINVAL, errno.ENOLCK, errno.ENOSYS)

_ATTEMPTS: Final = 100


class PartialFolder:
    """A folder for incomplete files, with a lock.

    Attributes:
        tree: Where the content of the destination is made; it does not exist, unless `is_left` is true.
        files: An empty folder for single files.
        is_left: Whether `tree` is what a process has left that was killed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.files = folder / "files"
        self.is_left = self.tree.is_dir()
        _core.remove_tree(self.files)
        self.files.mkdir()


@asynccontextmanager
async def partial_folder(destination: Path, *, is_inside: bool) -> AsyncIterator[PartialFolder]:
    """Yield the folder for incomplete files of a destination; it is removed at the end, with all it has, in a thread.

    Args:
        destination: The destination.
        is_inside: Whether the folder is in the destination, or beside it.

    Raises:
        InvalidInput: Another process writes to the destination (code ``invalid_path``).
    """
    with reported_as(destination):
        folder, lock = _make(_place(destination, is_inside=is_inside), destination)
    try:
        yield await in_thread(PartialFolder, folder)
    finally:
        try:
            await in_thread(_core.remove_tree, folder)
        finally:
            os.close(lock)


def discard_abandoned(destination: Path, check: Check) -> None:
    """Remove the folder beside a destination that a process has left that was killed, if there is one."""
    folder = _place(destination, is_inside=False)
    lock = _lock(folder, lambda: None)
    if lock is not None:
        try:
            _core.remove_tree(folder, check)
        finally:
            os.close(lock)


def _place(destination: Path, *, is_inside: bool) -> Path:
    if is_inside:
        return destination / INSIDE
    absolute = destination.absolute()
    derived = hashlib.sha256(os.fsencode(absolute.name)).hexdigest()[:16]
    return absolute.with_name(f".coregw-{derived}.partial")


def _make(folder: Path, destination: Path) -> tuple[Path, int]:
    """Make a folder and lock it, or take one that was left. If something else has the name, choose another one."""

    def refuse() -> None:
        raise InvalidInput(f"{destination}: another process is restoring it", code="invalid_path")

    for _ in range(_ATTEMPTS):
        is_new = False
        try:
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                is_new = True
            lock = _lock(folder, refuse, is_new=is_new)
        except InvalidInput:  # the folder is another process's now
            raise
        except BaseException:  # an interrupt, too: the caller does not know of the folder yet
            if is_new:
                with suppress(OSError):
                    folder.rmdir()
            raise
        if lock is not None:
            return folder, lock
        if os.path.lexists(folder):
            folder = folder.with_name(f".coregw-{os.urandom(8).hex()}.partial")
    raise InvalidInput(f"{folder}: is repeatedly created and removed", code="invalid_path")


def _lock(folder: Path, on_writer: Callable[[], None], *, is_new: bool = False) -> int | None:
    """Lock a folder for incomplete files and return its descriptor; None if it is absent or not this user's.

    Args:
        folder: The folder.
        on_writer: Called if another process holds the lock.
        is_new: Whether this process has just made it, so it needs no lock where the file system has none.
    """
    try:
        descriptor = os.open(folder, _OPEN_FOLDER)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        on_writer()
        return None
    except OSError as error:
        if is_new and error.errno in _NO_LOCKS:
            return descriptor
        os.close(descriptor)
        return None
    if _is_own(folder, descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _is_own(folder: Path, descriptor: int) -> bool:
    """Whether a locked folder still has its name, belongs to this user alone, and has nothing that it must not have."""
    status = os.fstat(descriptor)
    with suppress(OSError):
        found = folder.lstat()
        is_same = (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino)
        is_private = status.st_uid == os.geteuid() and not status.st_mode & 0o077
        return is_same and is_private and {*os.listdir(descriptor)} <= {"tree", "files"}
    return False
