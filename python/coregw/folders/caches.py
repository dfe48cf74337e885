"""Location of the caches of folders, and the clock resolution that their entries allow for."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Final

__all__ = ["RACY_NANOSECONDS", "cache_file", "cache_folder"]

RACY_NANOSECONDS: Final = 2_000_000_000
"""The coarsest timestamps of common file systems (FAT)."""


def cache_folder() -> Path:
    """The folder of coregw's caches: in ``$XDG_CACHE_HOME``, else in ``~/.cache``."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    above = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return above / "coregw"


def cache_file(folder: Path, options: str) -> Path:
    """The file of the cache of a folder.

    Args:
        folder: Its absolute path.
        options: What tells this cache from others of the same folder.
    """
    name = hashlib.sha256(b"\0".join([os.fsencode(folder), options.encode()])).hexdigest()
    return cache_folder() / "stat" / name
