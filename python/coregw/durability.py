"""Small files replaced in one step that survives a crash, syncs of directories, and errors that name the file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeGuard

__all__ = ["is_unnamed", "replace_durably", "reported_as", "sync_path"]


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


def sync_path(path: Path) -> None:
    """Make the names in a directory durable, or the bytes of a file. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, content: bytes) -> None:
    """Write a small file atomically: a power cut leaves it as it was, or with all of the content. Raises `OSError`."""
    unfinished = path.with_name(path.name + ".new")
    with reported_as(path):
        unfinished.unlink(missing_ok=True)
        with _created(unfinished) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
        sync_path(path.parent)


def _created(path: Path) -> BinaryIO:
    """Create a file for its owner alone."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")
