"""The folder that a restore writes incomplete files to, which a later one finds if the process is killed.

Its name follows from the destination, so nothing has to be searched. Whoever writes to it holds a lock on it (`flock`),
which ends with the process: a folder without a lock has no writer any more.

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
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from coregw.client.driving.threads import Check
from coregw.client.files import reported_as
from coregw.client.folders.destination import Cursor, remove_tree
from coregw.client.folders.names import INSIDE
from coregw.errors import InvalidInput

__all__ = ["Partial", "discard_abandoned", "partial_folder"]

_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LOCKS: Final = (errno.ENOTSUP, errno.EINVAL, errno.ENOLCK, errno.ENOSYS)
_ATTEMPTS: Final = 100


class Partial:
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
        _remove_tree(self.files)
        self.files.mkdir()

    def now(self) -> int:
        """Return the time that the file system gives to changes, in nanoseconds since 1970."""
        os.utime(self.folder)
        return self.folder.stat().st_ctime_ns


@contextmanager
def partial_folder(destination: Path, *, is_inside: bool) -> Iterator[Partial]:
    """Yield the folder for incomplete files of a destination; it is removed at the end, with all it has.

    Args:
        destination: The destination.
        is_inside: Whether the folder is in the destination, or beside it.

    Raises:
        InvalidInput: Another process writes to the destination (code ``invalid_path``).
    """
    with reported_as(destination):
        folder, lock = _make(_place(destination, is_inside=is_inside), destination)
    try:
        yield Partial(folder)
    finally:
        _remove_tree(folder)
        os.close(lock)


def discard_abandoned(destination: Path, check: Check) -> None:
    """Remove the folder beside a destination that a process has left that was killed, if there is one."""
    folder = _place(destination, is_inside=False)
    lock = _lock(folder, lambda: None)
    if lock is not None:
        try:
            _remove_tree(folder, check)
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


def _remove_tree(folder: Path, check: Check = lambda count: None) -> None:
    """Remove a folder, if it exists, as far as that is possible."""
    with suppress(OSError), Cursor.at(folder.parent) as above:
        remove_tree(above.folder, folder.name, check)
