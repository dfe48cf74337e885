"""The files of a store as a whole: its lock, snapshots of its database, and putting another database in its place."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from coregw.errors import InvalidInput, Unavailable
from coregw.store.rocksdb.directory import DATABASE, MARKER, mark_ready
from coregw.syncing import sync_path

__all__ = [
    "HEALING",
    "KEPT",
    "exclusive",
    "fresh_directory",
    "give_to_owner",
    "keep_linked",
    "put_in_place",
    "readable",
    "require_store",
    "snapshot",
]

KEPT: Final = "damaged-"
"""The start of the names of directories that keep databases which a repair has replaced."""

HEALING: Final = "healing-"
"""The start of the names of directories with what was fetched to be restored."""

_NEW: Final = "repairing-"
_SNAPSHOT: Final = "fsck-"
_LOCK: Final = "LOCK"
_AT_FDCWD: Final = -100
_EXCHANGE: Final = 2
_ATTEMPTS: Final = 10


def require_store(data: Path) -> Path:
    """Return the directory of the database in a data directory.

    Raises:
        InvalidInput: If there is no database, not even a damaged one.
    """
    database = data / DATABASE
    if not database.is_dir():
        left = sorted(path.name for path in data.glob(f"{_NEW}*")) if data.is_dir() else []
        hint = f"; a repair was interrupted, rename {data / left[0] / DATABASE} to {database}" if left else ""
        shared = "" if hint else "; a store in PostgreSQL is named by COREGW_STORE"
        raise InvalidInput(f"{data} has no database to check ({database}){hint or shared}")
    return database


@contextmanager
def exclusive(data: Path) -> Iterator[None]:
    """Hold the lock of a database, which RocksDB holds while it is open for writing.

    Raises:
        Unavailable: If another process has the store open, or the lock cannot be used.
    """
    path = data / DATABASE / _LOCK
    try:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # then it belongs to whom the others do
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _give(descriptor, path.parent)
    except OSError as error:
        raise Unavailable(f"the store in {data} cannot be locked: {path}: {error.strerror}") from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Unavailable(f"the store in {data} is in use by another process") from None
    finally:
        os.close(descriptor)


@contextmanager
def readable(data: Path) -> Iterator[Path]:
    """Return a directory with the database's files that nothing changes: its own, under its lock, or a snapshot.

    Raises:
        InvalidInput: If there is no database.
        Unavailable, OSError: As `snapshot`.
    """
    database = require_store(data)
    with ExitStack() as stack:
        try:
            stack.enter_context(exclusive(data))
        except Unavailable:
            if os.access(data, os.W_OK):
                database = stack.enter_context(snapshot(data))
        yield database


@contextmanager
def snapshot(data: Path) -> Iterator[Path]:
    """Make a directory with the files of a database that is in use, as hard links; removed at the end.

    Tables do not change. The newest log grows while it is read: what it has is a prefix of what was written.

    Raises:
        Unavailable: If the files change faster than they can be linked.
        OSError: If the file system has no hard links.
    """
    directory = fresh_directory(data, _SNAPSHOT)
    try:
        for _ in range(_ATTEMPTS):
            if _linked(data / DATABASE, directory):
                break
        else:
            raise Unavailable(f"the files of {data / DATABASE} change too fast to be checked; try again")
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def fresh_directory(data: Path, prefix: str = _NEW) -> Path:
    """Make a new directory for a database in a data directory, and remove those that ended processes have left."""
    for left in data.glob(f"{prefix}*"):
        if not _is_running(left.name.removeprefix(prefix)):
            shutil.rmtree(left, ignore_errors=True)
    path = data / f"{prefix}{os.getpid()}"
    path.mkdir(mode=0o700)
    _give(path, data)
    return path


def _give(made: Path | int, folder: Path) -> None:
    """Give what root has made in a folder to the user of that folder."""
    if os.geteuid() == 0:
        status = folder.stat()
        os.chown(made, status.st_uid, status.st_gid)


def give_to_owner(made: Path, folder: Path) -> None:
    """Give a directory that root has made in a folder to the user of that folder, with all that is in it."""
    if os.geteuid() != 0:
        return
    status = folder.stat()
    for _, folders, files, descriptor in os.fwalk(made):
        for name in (*folders, *files):
            os.chown(name, status.st_uid, status.st_gid, dir_fd=descriptor, follow_symlinks=False)
        os.fchown(descriptor, status.st_uid, status.st_gid)


def put_in_place(data: Path, new: Path) -> Path:
    """Exchange the database of a store for that in the directory `new`, atomically, and return where the old one is.

    Raises:
        OSError: If it cannot be renamed; the old database is in its place.
    """
    _sync_tree(new)
    kept = data / f"{KEPT}{_now()}"
    if _exchange(new / DATABASE, data / DATABASE):
        new.rename(kept)
    else:  # between the two renames there is no database; a start is refused then, and `require_store` says why
        kept.mkdir(mode=0o700)
        (data / DATABASE).rename(kept / DATABASE)
        (new / DATABASE).rename(data / DATABASE)
        shutil.rmtree(new, ignore_errors=True)
    marker = data / MARKER
    if marker.is_file():
        shutil.copy2(marker, kept / MARKER)
    mark_ready(data)
    sync_path(data)
    return kept


def keep_linked(data: Path) -> Path:
    """Keep the files of a database, to which nothing writes, as hard links beside it, and return the directory.

    Raises:
        OSError: If the file system has no hard links.
    """
    kept = data / f"{KEPT}{_now()}"
    kept.mkdir(mode=0o700)
    try:
        (kept / DATABASE).mkdir(mode=0o700)
        _linked(data / DATABASE, kept / DATABASE)
        _keep_marker(data, kept)
    except BaseException:
        shutil.rmtree(kept, ignore_errors=True)
        raise
    return kept


def _keep_marker(data: Path, kept: Path) -> None:
    """Copy the marker of a store beside its damaged database, and sync the names of both."""
    marker = data / MARKER
    if marker.is_file():
        shutil.copy2(marker, kept / MARKER)
    _sync_tree(kept)
    sync_path(data)


def _linked(database: Path, directory: Path) -> bool:
    """Link all files of a database; whether none appeared or disappeared meanwhile."""
    for old in directory.iterdir():
        old.unlink()
    before = _names(database)
    for name in before:
        try:
            os.link(database / name, directory / name)
        except FileNotFoundError:
            return False
    return _names(database) == before


def _names(database: Path) -> list[str]:
    kinds = (".sst", ".log", "CURRENT")
    return sorted(
        entry.name for entry in database.iterdir() if entry.name.endswith(kinds) or entry.name.startswith("MANIFEST-")
    )


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names atomically; False if the system cannot."""
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "renameat2"):
        return False
    if library.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), str(other))


def _sync_tree(path: Path) -> None:
    for folder, _, names in os.walk(path):
        for name in names:
            sync_path(Path(folder) / name)
        sync_path(Path(folder))


def _is_running(number: str) -> bool:
    """Whether there is a process of this number, other than this one."""
    if not number.isdecimal() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _now() -> str:
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%f")
