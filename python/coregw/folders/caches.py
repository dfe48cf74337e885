"""The caches of folders: where they are, and what they keep.

Like git's index: a file whose inode, size, and times of modification and change are those of the cache is not read
again. A cache is an optimisation only: if it is missing, damaged, or of another folder, all files are read.

`RestoreCache` is of a folder that roots were restored to, `UploadCache` of one that is added. A changed folder is sent
as changes of its maps. Targets of bytes do not depend on what is recorded of files or left out, so one cache serves all
such choices; changes are against the maps that were sent last, whatever the choice was then. `FolderUpload` reads and
writes the file as a stream, and never holds it in memory.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final, Self

from coregw._core import FolderUpload
from coregw.durability import NewFile
from coregw.extras import missing_extra
from coregw.folders.tree import Recorded, Survey
from coregw.undecodable import UNDECODABLE

try:
    import msgspec
except ModuleNotFoundError as error:
    raise missing_extra(error, "coregw.folders.caches", "client") from error

__all__ = [
    "RACY_NANOSECONDS",
    "Entry",
    "RestoreCache",
    "State",
    "UploadCache",
    "cache_file",
    "cache_folder",
    "decode_entries",
    "encode_entries",
    "state_of",
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


_MAGIC: Final = b"coregw restore 2\n"

_DIGEST_BYTES: Final = 32


State = tuple[int, int, int, int]
"""Inode, size in bytes, and times of modification and change in nanoseconds since 1970."""


def state_of(status: os.stat_result) -> State:
    """Return what tells whether a file has changed."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _has_own_time(state: State, before: int) -> bool:
    """Whether changes after the time `before` have other times than this state.

    Times without fractions of a second are exact to two seconds (FAT), also on a file system that is mounted in a
    folder whose own times are finer.
    """
    _, _, modified, changed = state
    return modified < before and changed < before - (0 if changed % 1_000_000_000 else RACY_NANOSECONDS)


Entry = tuple[str, State, str]
"""The path of a file, its state, and its target."""


def encode_entries(entries: Iterable[Entry]) -> bytes:
    """Return files as `RestoreCache.add` takes them."""
    return b"".join(map(msgspec.msgpack.encode, entries))


def decode_entries(entries: bytes, count: int) -> list[Entry]:
    """Return the files of what `encode_entries` has returned."""
    return msgspec.msgpack.decode(_array(count) + entries, type=list[Entry])


def _array(count: int) -> bytes:
    return b"\xdd" + count.to_bytes(4, "big")


class _Content(msgspec.Struct, array_like=True, frozen=True):
    folder: bytes
    before: int
    entries: list[Entry]


class RestoreCache:
    """The cache of one folder.

    Args:
        file: Where it is kept; None keeps nothing, and knows nothing.
        folder: The absolute path of the folder.
    """

    def __init__(self, file: Path | None, folder: Path) -> None:
        self._file = file
        self._folder = os.fsencode(folder)
        self._new: _NewCache | None = None
        content = self._read()
        # A file that changed just before it was noted may have changed again just after, with the same times.
        self._known = {
            path: (state, target)
            for path, state, target in (content.entries if content is not None else ())
            if content is not None and _has_own_time(state, content.before)
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

    def add(self, entries: bytes, count: int) -> None:
        """Add files to what `save` writes. A failure is ignored, and then nothing is saved.

        Args:
            entries: For each file its path, a state in which it had the bytes of its target, and the target, as
                MessagePack: ``[path, [inode, size, mtime_ns, ctime_ns], target]``, one after the other.
            count: Their number.
        """
        if self._file is None or not count:
            return
        with suppress(OSError):
            if self._new is None:
                self._new = _NewCache(self._file, self._folder)
            self._new.add(entries, count)

    def save(self, before: int) -> None:
        """Replace the cache by the files that were added, atomically. A failure is ignored.

        Args:
            before: The file system's time, in nanoseconds since 1970: no later change has an earlier time.
        """
        with suppress(OSError):
            if self._file is not None and self._new is None:
                self._new = _NewCache(self._file, self._folder)
            if self._new is not None:
                self._new.save(before)
        self.discard()

    def discard(self) -> None:
        """Forget the files that were added. Idempotent."""
        if self._new is not None:
            self._new.close()
            self._new = None

    def _read(self) -> _Content | None:
        if self._file is None:
            return None
        try:
            data = self._file.read_bytes()
        except OSError:
            return None
        start = len(_MAGIC) + _DIGEST_BYTES
        body = memoryview(data)[start:]
        head = len(_head(self._folder, 0, 0))
        digest = hashlib.sha256(body[head:])
        digest.update(body[:head])
        if data[:start] != _MAGIC + digest.digest():
            return None
        try:
            content = msgspec.msgpack.decode(body, type=_Content)
        except UNDECODABLE:
            return None
        return content if content.folder == self._folder else None


class _NewCache:
    """A cache that is being written, so that its files take no memory: the head is written last."""

    def __init__(self, place: Path, folder: bytes) -> None:
        self._folder = folder
        self._count = 0
        self._digest = hashlib.sha256()
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._opened = ExitStack()
        self._new = self._opened.enter_context(NewFile(place, replaces=True))
        self._file = self._new.file
        self._file.seek(len(_MAGIC) + _DIGEST_BYTES + len(_head(folder, 0, 0)))

    def add(self, entries: bytes, count: int) -> None:
        self._file.write(entries)
        self._digest.update(entries)
        self._count += count

    def save(self, before: int) -> None:
        head = _head(self._folder, before, self._count)
        self._digest.update(head)
        self._file.seek(0)
        self._file.write(_MAGIC + self._digest.digest() + head)
        self._new.commit()

    def close(self) -> None:
        with suppress(OSError):
            self._opened.close()


def _head(folder: bytes, before: int, count: int) -> bytes:
    """Return the beginning of a `_Content` as MessagePack; its length depends on `folder` alone."""
    time = b"\xd3" + before.to_bytes(8, "big", signed=True)
    return b"\x93" + msgspec.msgpack.encode(folder) + time + _array(count)


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
            with NewFile(self._file, replaces=True) as new:
                upload.save(new.partial, roots, recorded.attributes, recorded.owner)
                new.commit()
