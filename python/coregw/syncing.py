"""Syncs of names: a file that was created, renamed or removed is so after a power cut if its directory was synced."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["sync_path"]


def sync_path(path: Path) -> None:
    """Make the names in a directory durable, or the bytes of a file. Raises `OSError`."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
