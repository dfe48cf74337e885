"""Files and directories that are durable before anything refers to them, and errors that name them."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from coregw.errors import StorageFull, StoreDamaged, Unavailable
from coregw.syncing import sync_path

__all__ = ["Advance", "copy", "digest", "hash_durably", "make_directory", "read_whole"]
__all__ += ["replace_durably", "using"]

Advance = Callable[[int], None]
"""Called with the number of bytes done. May raise, to cancel what is being done."""

_CHUNK_BYTES: Final = 1 << 20
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def using(place: Path, consequence: str = "") -> Iterator[None]:
    """Raise the operating system's errors as classes of `coregw.errors`.

    Args:
        place: The directory that is used, for the message.
        consequence: What a lack of space means, for the message.

    Raises:
        StorageFull: There is no space left.
        Unavailable: Any other error.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(f"no space left in {place}{consequence and f'; {consequence}'}") from error
        what = error.filename if error.filename is not None else place
        raise Unavailable(f"{os.fspath(what)} cannot be used: {error.strerror or error}") from error


def read_whole(path: Path, limit: int) -> bytes:
    """Read a small file of a repository.

    Raises:
        StoreDamaged: It is longer than `limit` bytes, or not a file.
        OSError: It cannot be read.
    """
    with _opened(path) as reading:
        if os.fstat(reading.fileno()).st_size > limit:
            raise StoreDamaged(f"{path} has more than {limit:,} bytes")
        return reading.read()


def copy(source: Path, target: Path, advance: Advance) -> tuple[int, str]:
    """Copy a file to a new one, and sync it. Returns its size and SHA-256 in hex.

    Raises:
        StoreDamaged: The source is not a file.
        OSError: It cannot be read, or the other not be written.
    """
    hashed, size = hashlib.sha256(), 0
    with _opened(source) as reading, _created(target) as writing:
        while chunk := _read(reading, source):
            hashed.update(chunk)
            writing.write(chunk)
            size += len(chunk)
            advance(len(chunk))
        writing.flush()
        os.fsync(writing.fileno())
    return size, hashed.hexdigest()


def hash_durably(path: Path, advance: Advance) -> tuple[int, str]:
    """Sync a file, and return its size and SHA-256 in hex. Raises `OSError`."""
    hashed, size = hashlib.sha256(), 0
    with path.open("rb") as reading:
        os.fsync(reading.fileno())
        while chunk := _read(reading, path):
            hashed.update(chunk)
            size += len(chunk)
            advance(len(chunk))
    return size, hashed.hexdigest()


def digest(path: Path, expected_size: int, advance: Advance) -> str:
    """Return the SHA-256 of a file in hex.

    Raises:
        StoreDamaged: The file is missing or has another size.
        OSError: It cannot be read.
    """
    try:
        reading = _opened(path)
    except FileNotFoundError:
        raise StoreDamaged(f"{path} is missing") from None
    hashed = hashlib.sha256()
    with reading:
        size = os.fstat(reading.fileno()).st_size
        if size != expected_size:
            raise StoreDamaged(f"{path} has {size:,} bytes, not {expected_size:,}")
        while chunk := _read(reading, path):
            hashed.update(chunk)
            advance(len(chunk))
    return hashed.hexdigest()


def replace_durably(path: Path, content: bytes) -> None:
    """Write a small file atomically: a power cut leaves it as it was, or with all of the content. Raises `OSError`."""
    unfinished = path.with_name(path.name + ".new")
    unfinished.unlink(missing_ok=True)
    with _created(unfinished) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    sync_path(path.parent)


def make_directory(path: Path) -> None:
    """Create a directory with its parents durably, for its owner alone, if it is missing. Raises `OSError`."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in reversed(missing):
        sync_path(each.parent)


def _opened(path: Path) -> BinaryIO:
    """Open a regular file. A pipe would keep its reader waiting, and a device may have no end."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise StoreDamaged(f"{path} is not a regular file")
    return file


def _read(file: BinaryIO, path: Path) -> bytes:
    """Read the next chunk. An error names the file, which a read's own does not."""
    try:
        return file.read(_CHUNK_BYTES)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _created(path: Path) -> BinaryIO:
    """Create a file for its owner alone."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
