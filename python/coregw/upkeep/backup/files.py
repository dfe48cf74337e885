"""Files and directories that are durable before anything refers to them, and errors that name them."""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from coregw.errors import StorageFull, StoreDamaged, Unavailable
from coregw.syncing import sync_path

__all__ = ["Advance", "copy", "digest", "hash_durably", "make_directory", "replace_durably", "using"]

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


def copy(source: Path, target: Path, advance: Advance) -> tuple[int, str]:
    """Copy a file to a new one, and sync it. Returns its size and SHA-256 in hex. Raises `OSError`."""
    hashed, size = hashlib.sha256(), 0
    with source.open("rb") as reading, _created(target) as writing:
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
        size = path.stat().st_size
    except FileNotFoundError:
        raise StoreDamaged(f"{path} is missing") from None
    if size != expected_size:
        raise StoreDamaged(f"{path} has {size:,} bytes, not {expected_size:,}")
    hashed = hashlib.sha256()
    with path.open("rb") as reading:
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


def _read(file: BinaryIO, path: Path) -> bytes:
    """Read the next chunk. An error names the file, which a read's own does not."""
    try:
        return file.read(_CHUNK_BYTES)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


def _created(path: Path) -> BinaryIO:
    """Create a file for its owner alone."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
