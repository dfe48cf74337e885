"""What is known of a folder since it was restored last: the states of its files, and the targets of their bytes.

A file whose inode, size, and times of modification and change are those of the cache is not read again. A cache is an
optimisation only. If it is missing, damaged, or of another folder, all files are read. The cache of folders that are
added is `coregw.folders.upload_cache`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec

from coregw.folders.caches import cache_file

__all__ = ["RestoreCache", "State", "state_of"]

_MAGIC: Final = b"coregw restore 1\n"
_DIGEST_BYTES: Final = 32


State = tuple[int, int, int, int]
"""Inode, size in bytes, and times of modification and change in nanoseconds since 1970."""


def state_of(status: os.stat_result) -> State:
    """Return what tells whether a file has changed."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class _Content(msgspec.Struct, array_like=True, frozen=True):
    folder: bytes
    before: int
    entries: list[tuple[str, State, str]]


class RestoreCache:
    """The cache of one folder.

    Args:
        file: Where it is kept; None keeps nothing, and knows nothing.
        folder: The absolute path of the folder.
    """

    def __init__(self, file: Path | None, folder: Path) -> None:
        self._file = file
        self._folder = os.fsencode(folder)
        content = self._read()
        # A file that changed just before it was noted may have changed again just after, with the same times.
        self._known = {
            path: (state, target)
            for path, state, target in (content.entries if content is not None else ())
            if content is not None and max(state[2:]) < content.before
        }

    @classmethod
    def of(cls, folder: Path) -> Self:
        """Open the cache of a folder in the user's folder for caches. Never fails: it may know nothing."""
        absolute = Path(os.path.abspath(folder))  # noqa: PTH100 - does not resolve links
        return cls(cache_file(absolute, "restored"), absolute)

    @classmethod
    def none(cls) -> Self:
        """Return a cache that knows nothing and keeps nothing."""
        return cls(None, Path())

    @property
    def is_kept(self) -> bool:
        """Whether `save` writes anything."""
        return self._file is not None

    def find(self, path: str, status: os.stat_result) -> str | None:
        """Return the target of a file that has not changed since it was noted; None if it has to be read."""
        state, target = self._known.get(path, (None, None))
        return target if state == state_of(status) else None

    def save(self, entries: Iterable[tuple[str, State, str]], before: int) -> None:
        """Replace the cache, atomically. A failure is ignored.

        Args:
            entries: Paths of files, each with a state in which the file had the bytes of its target.
            before: Files with earlier times, in nanoseconds since 1970, had no change that their times do not show.
        """
        if self._file is None:
            return
        body = msgspec.msgpack.encode(_Content(self._folder, before, list(entries)))
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            partial = self._file.with_name(f"{self._file.name}.{secrets.token_hex(4)}")
            try:
                partial.write_bytes(_MAGIC + hashlib.sha256(body).digest() + body)
                partial.replace(self._file)
            finally:
                partial.unlink(missing_ok=True)

    def _read(self) -> _Content | None:
        if self._file is None:
            return None
        try:
            data = self._file.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST_BYTES
        body = memoryview(data)[start:]
        if data[:start] != _MAGIC + hashlib.sha256(body).digest():
            return None
        try:
            content = msgspec.msgpack.decode(body, type=_Content)
        except msgspec.MsgspecError:
            return None
        return content if content.folder == self._folder else None
