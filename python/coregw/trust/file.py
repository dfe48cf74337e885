"""A small file that is changed under a lock, and replaced in one step that survives a crash."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from coregw.errors import InvalidInput, Unavailable
from coregw.extras import missing_extra
from coregw.syncing import sync_path

__all__ = ["LOCK_SECONDS", "MAX_FILE_BYTES", "LockedFile"]

MAX_FILE_BYTES: Final = 16 << 20
"""The largest file that is read or written."""

LOCK_SECONDS: Final = 30.0
"""How long a change waits for those of other processes."""


class LockedFile:
    """A file of at most `MAX_FILE_BYTES`, with a lock beside it (``.lock``).

    Readers take no lock: they see the file before or after a change, never a part of it. A replacement is durable when
    it returns: the new bytes are synced, renamed over the old ones, and the directory is synced.

    Args:
        path: The file. A symbolic link is followed, so that the file may be kept elsewhere.
    """

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()

    def read(self) -> bytes:
        """Return the bytes, none if there is no file.

        Raises:
            InvalidInput: The file is too large.
            OSError: It cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return b""
        if len(data) > MAX_FILE_BYTES:
            raise InvalidInput(f"{self.path}: larger than {MAX_FILE_BYTES:,} bytes")
        return data

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes and threads from changing the file. Not reentrant across instances.

        Raises:
            Unavailable: Others have held the lock for `LOCK_SECONDS`.
            OSError: The directory cannot be created or written.
        """
        try:
            from filelock import FileLock, Timeout  # noqa: PLC0415 - readers start faster without
        except ModuleNotFoundError as error:
            raise missing_extra(error, "changing a trust store", "client") from error
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(f"{self.path}.lock", timeout=LOCK_SECONDS, mode=0o600)
        try:
            lock.acquire()
        except Timeout:
            raise Unavailable(f"{self.path}: another process has kept it locked for {LOCK_SECONDS:g} s") from None
        try:
            yield
        finally:
            lock.release()

    def replace(self, data: bytes) -> None:
        """Replace the bytes, durably; call it within `locked`. After a crash the file has the old or the new bytes.

        Raises:
            InvalidInput: There are too many bytes; nothing was changed.
            OSError: They cannot be written; nothing was changed.
        """
        if len(data) > MAX_FILE_BYTES:
            raise InvalidInput(f"{self.path}: it would be larger than {MAX_FILE_BYTES:,} bytes; nothing was changed")
        descriptor, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=self.path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        if os.name == "posix":  # elsewhere directories cannot be opened
            sync_path(self.path.parent)
