"""What is known of a folder since it was added or restored last: the states of its files, their targets, and both maps.

Like git's index: a file whose inode, size, and times of modification and change are those of the cache is not read
again, and a changed folder is sent as changes of its maps. Targets of bytes do not depend on what is recorded of files
or left out, so one cache serves all such choices; changes are against the maps that were sent last, whatever the choice
was then. A cache is an optimisation only. If it is missing, damaged, or of another folder, all files are read.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

import msgspec

__all__ = ["RACY_NANOSECONDS", "RESTORED", "StatCache", "State", "cache_folder", "state_of"]

_MAGIC: Final = b"coregw stat 3\n"
_DIGEST_BYTES: Final = 32
RESTORED: Final = "restored"
"""The option of caches of restored folders, beside those of folders that were added."""

RACY_NANOSECONDS: Final = 2_000_000_000
"""The coarsest timestamps of common file systems (FAT)."""


State = tuple[int, int, int, int]
"""Inode, size in bytes, and times of modification and change in nanoseconds since 1970."""


def state_of(status: os.stat_result) -> State:
    """Return what tells whether a file has changed."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class _Entry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    path: str
    inode: int
    size: int
    mtime: int
    ctime: int
    target: str


class _Content(msgspec.Struct, array_like=True, frozen=True):
    folder: bytes
    options: str
    before: int
    root: str
    attributes: str | None
    records: dict[str, str]
    entries: list[_Entry]


class StatCache:
    """The cache of one folder.

    Args:
        file: Where it is kept; None keeps nothing, and knows nothing.
        folder: The absolute path of the folder.
        options: Whatever else the targets depend on.

    Attributes:
        root: The root of the folder when it was added last; None if that is not known.
        targets: The target of each file's path below that root.
        attributes: The root of its map of attributes; None if it has none.
        records: The target of each path in that map.
    """

    def __init__(self, file: Path | None, folder: Path, options: str) -> None:
        self._file = file
        self._folder = os.fsencode(folder)
        self._options = options
        self._began = time.time_ns()
        self._new: list[_Entry] = []
        content = self._read()
        self.root = content.root if content is not None else None
        self.targets = {entry.path: entry.target for entry in content.entries} if content is not None else {}
        self.attributes = content.attributes if content is not None else None
        self.records = content.records if content is not None else {}
        # A file that changed just before it was read may have changed again just after, with the same times.
        before = content.before if content is not None else 0
        self._known = {
            entry.path: (entry.inode, entry.size, entry.mtime, entry.ctime)
            for entry in (content.entries if content is not None else ())
            if entry.mtime < before and entry.ctime < before
        }

    @classmethod
    def of(cls, folder: Path, options: str) -> Self:
        """Open the cache of a folder in the user's folder for caches. Never fails: it may know nothing."""
        absolute = Path(os.path.abspath(folder))  # noqa: PTH100 - does not resolve links
        name = hashlib.sha256(b"\0".join([os.fsencode(absolute), options.encode()])).hexdigest()
        return cls(cache_folder() / "stat" / name, absolute, options)

    @classmethod
    def none(cls) -> Self:
        """Return a cache that knows nothing and keeps nothing."""
        return cls(None, Path(), "")

    @property
    def is_kept(self) -> bool:
        """Whether `save` writes anything."""
        return self._file is not None

    def find(self, path: str, status: os.stat_result) -> str | None:
        """Return the target of a file that has not changed since it was read; None if it has to be read."""
        return self.targets[path] if self._known.get(path) == state_of(status) else None

    def note(self, path: str, status: os.stat_result, target: str) -> None:
        """Note the target of a file, and its state before it was read, for `save`."""
        self.note_state(path, state_of(status), target)

    def note_state(self, path: str, state: State, target: str) -> None:
        """Note the target of a file, and a state in which it had these bytes, for `save`."""
        self._new.append(_Entry(path, *state, target))

    def save(
        self,
        root: str,
        arcs: Mapping[str, str],
        attributes: str | None,
        records: Mapping[str, str],
        *,
        before: int | None = None,
    ) -> None:
        """Replace the cache, atomically. A failure is ignored.

        Args:
            root: The root of the folder.
            arcs: The target of each file's path. Those that were not noted have to be read the next time.
            attributes: The root of its map of attributes, if it has one.
            records: The target of each path in that map.
            before: Files with earlier times, in nanoseconds since 1970, had no change that their times do not show.
                None is two seconds before this cache was opened.
        """
        if self._file is None:
            return
        if before is None:
            before = self._began - RACY_NANOSECONDS
        noted = {entry.path: entry for entry in self._new if arcs.get(entry.path) == entry.target}
        entries = [noted.get(path) or _Entry(path, 0, 0, 0, 0, target) for path, target in arcs.items()]
        content = _Content(self._folder, self._options, before, root, attributes, dict(records), entries)
        body = msgspec.msgpack.encode(content)
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
        return content if (content.folder, content.options) == (self._folder, self._options) else None


def cache_folder() -> Path:
    """The folder of coregw's caches: in ``$XDG_CACHE_HOME``, else in ``~/.cache``."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    above = Path(given) if given.startswith("/") else Path.home() / ".cache"
    return above / "coregw"
