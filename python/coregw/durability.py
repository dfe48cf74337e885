"""Small files replaced in one step that survives a crash, and syncs of directories."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

__all__ = ["replace_durably", "sync_path"]


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
