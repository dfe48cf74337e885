"""Files that appear or are replaced in one step, and directories, which survive a crash; errors that name the file."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self, TypeGuard

from coregw.errors import InvalidInput

__all__ = [
    "PARTIAL_NAME",
    "NewFile",
    "create_file",
    "is_unnamed",
    "make_directory",
    "open_at_once",
    "replace_durably",
    "reported_as",
    "sync_path",
]

PARTIAL_NAME: Final = re.compile(r"\.coregw-[0-9a-f]{16}\.partial")
"""What the names of unfinished files match by default."""

# Where the platform has the flags: do not follow a symbolic link.
_CREATE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


@contextmanager
def reported_as(path: Path | str) -> Iterator[None]:
    """Make an `OSError` name `path`, the file that the caller knows, in place of a temporary one or of none."""
    try:
        yield
    except OSError as error:
        what = error.strerror or str(error)  # some, as of shutil.rmtree, have a text alone
        raise type(error)(error.errno, what, os.fspath(path)) from None


def is_unnamed(error: BaseException | None) -> TypeGuard[OSError]:
    """Whether the system refused something with an open file: a full disk, a quota. Such errors name no file."""
    return isinstance(error, OSError) and error.errno is not None and error.filename is None


_READ_FLAGS: Final = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


def open_at_once(path: os.PathLike[str]) -> FileIO:
    """Open a file for reading. Never waits, as an open of a named pipe that nobody writes to would.

    Raises:
        OSError: It can't be opened, or is a directory. Names the file.
    """
    return FileIO(os.fspath(path), opener=lambda name, _: os.open(name, _READ_FLAGS))


def sync_path(path: Path) -> None:
    """Make the names in a directory durable, or the bytes of a file. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path) -> list[Path]:
    """Create a directory, for its owner alone, if it is missing, and its missing parents.

    A power cut afterwards takes none of them away with what it holds.

    Returns:
        Those that were missing, the outermost first.

    Raises:
        OSError: One cannot be created, and none is left.
    """
    missing = [each for each in (*reversed(path.parents), path) if not each.exists()]
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        for each in reversed(missing):
            with suppress(OSError):
                each.rmdir()
        raise
    for each in missing:
        sync_path(each.parent)
    return missing


class NewFile:
    """A file that appears when it is complete: written under a temporary name beside it, renamed by `commit`.

    As a context manager it yields itself, with `file` open; without `commit` it leaves nothing behind. Errors of the
    system name `path`.

    Args:
        path: Its name.
        replaces: Whether `commit` replaces a file that has the name.
        mode: Its permissions, less those of the umask.
        partial: Its name until then, for a single writer: a file that a crash has left there is removed first. By
            default a random name that matches `PARTIAL_NAME`, so that any number of processes may write the file.

    Raises:
        InvalidInput: `path` exists already, and is not to be replaced (code ``invalid_path``).
    """

    def __init__(self, path: Path, *, replaces: bool = False, mode: int = 0o666, partial: Path | None = None) -> None:
        self._path = path
        self._replaces = replaces
        self._mode = mode
        self._removes = partial is not None
        self.partial: Final = partial or path.with_name(f".coregw-{os.urandom(8).hex()}.partial")
        if not replaces and os.path.lexists(path):
            raise _exists(path)

    def __enter__(self) -> Self:
        with reported_as(self._path):
            if self._removes:
                self.partial.unlink(missing_ok=True)
            self.file: BinaryIO = create_file(self.partial, self._mode)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            with reported_as(self._path):
                self.file.close()
                if is_unnamed(error):
                    raise error
        finally:
            self.partial.unlink(missing_ok=True)

    def commit(self, *, durably: bool = False) -> None:
        """Close the file, and give it its name in one step.

        Args:
            durably: Whether a power cut afterwards cannot undo it, and one before leaves what was there.

        Raises:
            InvalidInput: `path` was created by somebody else meanwhile (code ``invalid_path``).
            OSError: As from the system.
        """
        with reported_as(self._path):
            self.file.flush()
            if durably:
                os.fsync(self.file.fileno())
            self.file.close()
            if self._replaces:
                self.partial.replace(self._path)
            else:
                self._link()
            if durably and os.name == "posix":  # elsewhere directories cannot be opened
                sync_path(self._path.parent)

    def _link(self) -> None:
        try:
            os.link(self.partial, self._path, follow_symlinks=False)
        except FileExistsError:
            raise _exists(self._path) from None
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                raise
            # Without hard links, this file system offers no atomic check and rename.
            if os.path.lexists(self._path):
                raise _exists(self._path) from None
            self.partial.rename(self._path)


def _exists(path: Path) -> InvalidInput:
    return InvalidInput(f"{path}: exists already", code="invalid_path")


def replace_durably(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write a small file atomically: a power cut leaves it as it was, or with all of the content.

    For one writer at a time. Until it is complete, the file has the name ``path + ".new"``.

    Args:
        path: The file.
        content: Its bytes.
        mode: Its permissions, less those of the umask; by default it is for its owner alone.

    Raises:
        OSError: It cannot be written; nothing was changed.
    """
    with NewFile(path, replaces=True, mode=mode, partial=path.with_name(path.name + ".new")) as new:
        new.file.write(content)
        new.commit(durably=True)


def create_file(path: Path, mode: int) -> BinaryIO:
    """Create a file, open for writing. Never touches what exists, not even a symbolic link. Raises `OSError`."""
    return os.fdopen(os.open(path, _CREATE_FLAGS, mode), "wb")
