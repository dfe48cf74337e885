"""Reading a file of a survey in chunks, for sending it."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from coregw.client.files import FileState
from coregw.folders.survey import CHUNK_BYTES, Skipped, Source, why_unreadable

__all__ = ["ChunkReader", "SkipFile"]

_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class SkipFile(Exception):
    """Raised for a file that can't be added; it is reported, and the others are added."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(file, why)
        self.skipped = Skipped(file, why)


class ChunkReader:
    """Reads one file in chunks, and detects whether it changed meanwhile. Blocking; call `close` at the end."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._file: BinaryIO | None = None
        self._before: FileState | None = None

    def read(self) -> bytes:
        """Return the next chunk: `CHUNK_BYTES` bytes, fewer at the end. The first call opens the file.

        Raises:
            SkipFile: The file can't be opened or read, is gone, or is no longer a regular file.
        """
        try:
            if self._file is None:
                self._file = self._open()
            return self._file.read(CHUNK_BYTES)
        except OSError as error:
            raise SkipFile(self._source.file, why_unreadable(error)) from None

    def has_changed(self) -> bool:
        """Return whether the file changed since it was opened, so that the chunks may mix versions."""
        return self._file is not None and FileState(self._file.fileno()) != self._before

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> BinaryIO:
        descriptor = os.open(self._source.file, _OPEN_FLAGS)
        self._before = FileState(descriptor)
        if not stat.S_ISREG(self._before.mode):
            os.close(descriptor)
            raise SkipFile(self._source.file, "not a regular file")
        return os.fdopen(descriptor, "rb")
