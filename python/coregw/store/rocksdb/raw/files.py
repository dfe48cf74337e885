"""Files that may be damaged: what the disk cannot read is zeros."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["FileBytes"]

_SECTOR: Final = 4096


class FileBytes:
    """A file open for reading. Reads at offsets, so that threads may share it. A context manager.

    Args:
        path: The file.
        on_read: Called with the number of bytes of each read, before it; may wait, to limit the rate.

    Raises:
        OSError: If the file cannot be opened.
    """

    def __init__(self, path: Path, on_read: Callable[[int], None] = lambda size: None) -> None:
        self.name = path.name
        self._on_read = on_read
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def read(self, start: int, end: int) -> memoryview:
        """Read the bytes from `start` to `end`, zeros where the disk fails, fewer where the file ends."""
        end = min(end, self.size)
        self._on_read(end - start)
        try:
            return memoryview(os.pread(self._descriptor, end - start, start))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        return memoryview(b"".join(self._sector(at, min(at + _SECTOR, end)) for at in range(start, end, _SECTOR)))

    def _sector(self, start: int, end: int) -> bytes:
        try:
            return os.pread(self._descriptor, end - start, start)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return bytes(end - start)
