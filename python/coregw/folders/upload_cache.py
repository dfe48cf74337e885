"""Cache of a folder as it was added last: the state of its files, the target of their bytes, and both maps.

Like git's index: a file whose inode, size, and times of modification and change are those of the cache is not read
again, and a changed folder is sent as changes of its maps. Targets of bytes do not depend on what is recorded of files
or left out, so one cache serves all such choices; changes are against the maps that were sent last, whatever the choice
was then. A cache is an optimisation only. If it is missing, damaged, or of another folder, all files are read.

`FolderUpload` reads and writes the file as a stream, and never holds it in memory.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Self

from coregw._core import FolderUpload
from coregw.folders.caches import RACY_NANOSECONDS, cache_file
from coregw.folders.survey import Survey
from coregw.folders.tree import Recorded

__all__ = ["UploadCache"]


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

    def save(self, upload: FolderUpload, roots: tuple[str, str | None], recorded: Recorded) -> None:
        """Replace the cache, atomically. A failure is ignored.

        Args:
            upload: The folder as it was added.
            roots: Its root, and that of its map of attributes if it has one.
            recorded: Which attributes are part of the root.
        """
        if self._file is None:
            return
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = self._file.with_name(f"{self._file.name}.{secrets.token_hex(4)}")
            try:
                upload.save(partial, roots, recorded.attributes, recorded.owner)
                partial.replace(self._file)
            finally:
                partial.unlink(missing_ok=True)
