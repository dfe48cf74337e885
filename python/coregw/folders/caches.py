"""The caches of folders: where they are, and what they keep.

Like git's index: a file whose inode, size, and times of modification and change are those of the cache is not read
again. A cache is an optimisation only: if it is missing, damaged, or of another folder, all files are read.

`RestoreCache` is of a folder that roots were restored to, `UploadCache` of one that is added. A changed folder is sent
as changes of its maps. Targets of bytes do not depend on what is recorded of files or left out, so one cache serves all
such choices; changes are against the maps that were sent last, whatever the choice was then. Both are files of one
format, which `coregw._core` reads and writes.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from coregw._core import FolderUpload, FolderWriter
from coregw.durability import NewFile
from coregw.folders.tree import Recorded, Survey

__all__ = [
    "RACY_NANOSECONDS",
    "RestoreCache",
    "UploadCache",
    "cache_file",
    "cache_folder",
]

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


@dataclass(frozen=True, slots=True)
class RestoreCache:
    """The cache of one folder.

    Attributes:
        file: Where it is kept.
        folder: The absolute path of the folder.
    """

    file: Path
    folder: Path

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Return the cache of a folder in the user's folder for caches, which may know nothing."""
        absolute = Path(os.path.abspath(folder))  # noqa: PTH100 - does not resolve links
        return cls(cache_file(absolute, "restored"), absolute)

    def prepare(self) -> None:
        """Make the folder of the file. A failure is ignored."""
        with suppress(OSError):
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)

    def save(self, writer: FolderWriter, clock: Path) -> None:
        """Replace the cache, atomically. A failure is ignored.

        Args:
            writer: Has restored the folder.
            clock: A folder of this user on its file system.
        """
        with suppress(OSError), NewFile(self.file, replaces=True) as new:
            writer.save_cache(new.partial, clock, self.folder)
            new.commit()


class UploadCache:
    """The cache of one folder.

    Args:
        file: Where it is kept; None keeps nothing, and knows nothing.
        folder: The absolute path of the folder.
        options: Whatever else the targets depend on.
    """

    def __init__(self, file: Path | None, folder: Path, options: str) -> None:
        self._file = file
        self._folder = folder
        self._options = options

    @classmethod
    def of(cls, folder: Path, options: str) -> Self:
        """Return the cache of a folder in the user's folder for caches, which may know nothing."""
        absolute = Path(os.path.abspath(folder))  # noqa: PTH100 - does not resolve links
        return cls(cache_file(absolute, options), absolute, options)

    @classmethod
    def none(cls) -> Self:
        """Return a cache that knows nothing and keeps nothing."""
        return cls(None, Path(), "")

    def upload(self, found: Survey, suite: str, *, xattrs: bool = False) -> FolderUpload:
        """Return an upload of the folder that knows what the cache knows. O(entries). Never fails for the cache.

        Raises:
            InvalidInput: The suite is unknown.
        """
        known = None if self._file is None else (self._file, self._folder, self._options, RACY_NANOSECONDS)
        return FolderUpload(found, suite, xattrs, known)

    def probable_root(self) -> str | None:
        """Return the root of the last time, which may be wrong if the cache is damaged; None if there is none. O(1)."""
        return None if self._file is None else FolderUpload.probable_root(self._file, self._folder, self._options)

    def save(self, upload: FolderUpload, roots: tuple[str, str | None], recorded: Recorded) -> None:
        """Replace the cache, atomically, unless it says the same already. A failure is ignored.

        Args:
            upload: The folder as it was added.
            roots: Its root, and that of its map of attributes if it has one.
            recorded: Which attributes are part of the root.
        """
        if self._file is None:
            return
        if not upload.files_read and roots == (upload.cached_root, upload.cached_attributes):
            return  # each file has the state that is kept, which told that it has not changed
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with NewFile(self._file, replaces=True) as new:
                upload.save(new.partial, roots, recorded.attributes, recorded.owner)
                new.commit()
