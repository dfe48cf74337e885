"""A backup repository: generations of manifests, and a pool of the files that they name.

```
DEST/coregw-backup.json         marks the directory, and names the store: {"backup":"coregw","format":1,"store":"5f0c…",
                                "incarnation":"91d2…"}
DEST/lock                       locked by whoever adds or removes (exclusively), or restores and verifies (shared)
DEST/files/<sha256>             every file once, whatever number of generations contain it; never changed
DEST/generations/000012.json    a manifest (`coregw.upkeep.backup.manifest`), written last
DEST/working                    the next generation, while rows are copied (`coregw.upkeep.backup.working`)
```

A file gets its name in the pool when it is complete and synced, and a manifest when all of its files have theirs. So a
process that is killed, or a full disk, leaves the earlier generations as they were, and at worst files in the pool that
no manifest names; `Repository.sweep` removes these.

A repository is of one store, that of its first backup, and of one incarnation of it at a time (`Repository.claim`).
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, Self
from uuid import UUID

import msgspec

from coregw.errors import InvalidInput, NotFound, StoreDamaged, Unavailable
from coregw.store.collection import Identity
from coregw.syncing import sync_path
from coregw.undecodable import UNDECODABLE
from coregw.upkeep.backup.files import Advance, copy, hash_durably, make_directory, read_whole, replace_durably, using
from coregw.upkeep.backup.manifest import FORMAT_VERSION, Generation, StoredFile, decode_manifest, encode_manifest

__all__ = ["MARKER", "Repository"]

MARKER: Final = "coregw-backup.json"

_LOCK: Final = "lock"
_FILES: Final = "files"
_GENERATIONS: Final = "generations"
_UNFINISHED: Final = ".new"
_SUFFIX: Final = ".json"
_MAX_MARKER_BYTES: Final = 4096
_MAX_MANIFEST_BYTES: Final = 256 << 20
"""More than the manifest of a store of 50 TiB has."""

_FOREIGN: Final = frozenset({"lost+found"})


class _Marker(msgspec.Struct, frozen=True, omit_defaults=True):
    backup: Literal["coregw"]
    format: int
    store: UUID | None = None
    incarnation: UUID | None = None

    @property
    def identity(self) -> Identity | None:
        """Which store is backed up here; None before the first backup, and in repositories of earlier versions."""
        return None if self.store is None or self.incarnation is None else Identity(self.store, self.incarnation)


class Repository:
    """A backup repository in a directory. Use `create` or `open`, and `locked` around everything but `numbers`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = path / _FILES
        self._generations = path / _GENERATIONS

    @classmethod
    def create(cls, path: Path) -> Self:
        """Open the repository in a directory, which becomes one if it is missing or empty.

        Raises:
            InvalidInput: The directory holds something else.
            Unavailable, StoreDamaged: As `open`. `StorageFull` if there is no space.
        """
        repository = cls(path)
        with using(path):
            if path.exists() and not path.is_dir():
                raise InvalidInput(f"{path} is not a directory")
            if not (path / MARKER).exists():
                repository._begin()
        return cls.open(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the repository in a directory.

        Raises:
            InvalidInput: The directory is no backup repository.
            Unavailable: A newer coregw wrote it, or it cannot be read.
            StoreDamaged: Its marker is malformed.
        """
        repository = cls(path)
        repository._read_marker()
        return repository

    def claim(self, identity: Identity, *, adopt: bool) -> None:
        """Check that the repository is that of a store, or make it so if it is nobody's yet. Its lock is held.

        Args:
            identity: Which store is backed up.
            adopt: Whether it takes the place of another incarnation, which can then back up here no more.

        Raises:
            InvalidInput: The repository is that of another store, or of another incarnation of it.
        """
        held = self._read_marker().identity
        if held == identity:
            return
        if held is not None and held.store != identity.store:
            raise InvalidInput(
                f"{self.path} has the backups of another store ({held.store}, not {identity.store}); back up to "
                "another directory"
            )
        if held is not None and not adopt:
            raise InvalidInput(
                f"{self.path} has the backups of another incarnation of this store ({held.incarnation}, not "
                f"{identity.incarnation}): one of the two was restored or copied. If this one takes its place, give "
                "--adopt; otherwise back up to another directory"
            )
        with using(self.path):
            self._write_marker(_Marker("coregw", FORMAT_VERSION, *identity))

    @contextmanager
    def locked(self, *, shared: bool = False) -> Iterator[None]:
        """Hold the lock of the repository.

        Args:
            shared: Whether only to read, together with others; works on a read-only file system.

        Raises:
            Unavailable: Another process holds it.
        """
        with using(self.path):
            flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
            descriptor = os.open(self.path / _LOCK, flags | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Unavailable(f"the backup in {self.path} is in use by another process") from None
            yield
        finally:
            os.close(descriptor)

    def numbers(self) -> list[int]:
        """Return the numbers of the generations, ascending."""
        with using(self.path):
            names = [entry.name for entry in self._generations.iterdir() if entry.suffix == _SUFFIX]
        return sorted(int(name.removesuffix(_SUFFIX)) for name in names if name.removesuffix(_SUFFIX).isdecimal())

    def generation(self, number: int) -> Generation:
        """Read a generation.

        Raises:
            NotFound: There is none with this number.
            StoreDamaged: Its manifest is damaged.
            Unavailable: Its manifest cannot be read, or a newer coregw wrote it.
        """
        path = self._manifest(number)
        with using(self.path):
            try:
                content = read_whole(path, _MAX_MANIFEST_BYTES)
            except FileNotFoundError:
                raise NotFound(f"{self.path} has no generation {number}; it has {self._described()}") from None
        generation = decode_manifest(str(path), content)
        if generation.number != number:
            raise StoreDamaged(f"{path} is the manifest of generation {generation.number}")
        return generation

    def newest(self) -> Generation:
        """Read the newest generation. Raises `NotFound` if there is none, and as `generation`."""
        numbers = self.numbers()
        if not numbers:
            raise NotFound(f"{self.path} has no complete backup")
        return self.generation(numbers[-1])

    def file(self, sha256: str) -> Path:
        """The place of a file in the pool."""
        return self._files / sha256

    def holds(self, sha256: str, size: int) -> bool:
        """Whether the pool has a file with this name and size. Raises `OSError`."""
        with suppress(FileNotFoundError):
            status = self.file(sha256).stat()
            return status.st_size == size and stat.S_ISREG(status.st_mode)
        return False

    def add(self, source: Path, advance: Advance, *, is_taken: bool = False) -> tuple[int, str, bool]:
        """Copy or move a file into the pool, unless it is there. Durable after `write`. Raises `OSError`.

        Args:
            source: The file.
            advance: Called with the number of bytes done.
            is_taken: Whether the file, which is on the same file system, may be moved.

        Returns:
            Its size, its SHA-256 in hex, and whether it is new.
        """
        unfinished = self._files / f"copy{_UNFINISHED}"
        unfinished.unlink(missing_ok=True)
        if is_taken:
            size, sha256 = hash_durably(source, advance)
            unfinished = source
        else:
            size, sha256 = copy(source, unfinished, advance)
        is_new = not self.holds(sha256, size)
        if is_new:  # or damaged: then the complete file replaces it
            unfinished.replace(self.file(sha256))
        else:
            unfinished.unlink()
        return size, sha256, is_new

    def write(self, generation: Generation) -> None:
        """Make a generation, whose files the pool has, part of the repository. Durable and atomic. Raises `OSError`."""
        sync_path(self._files)
        replace_durably(self._manifest(generation.number), encode_manifest(generation))

    def forget(self, number: int) -> None:
        """Remove a generation; `sweep` then removes its files. Raises `OSError`."""
        self._manifest(number).unlink()
        sync_path(self._generations)

    def sweep(self) -> int:
        """Remove what no generation names, if all manifests can be read. Returns the bytes freed. Raises `OSError`."""
        try:
            named = {file.sha256 for number in self.numbers() for file in self.generation(number).files}
        except StoreDamaged:  # what the damaged one names may be wanted
            return 0
        freed = 0
        for entry in self._files.iterdir():
            if entry.name not in named:
                freed += entry.stat().st_size
                entry.unlink()
        return freed

    def stored(self) -> Iterator[StoredFile]:
        """Iterate over the files of all generations, each once."""
        seen: set[str] = set()
        for number in self.numbers():
            for file in self.generation(number).files:
                if file.sha256 not in seen:
                    seen.add(file.sha256)
                    yield file

    def _read_marker(self) -> _Marker:
        """Read the marker. Raises as `open`."""
        marker = self.path / MARKER
        with using(self.path):
            if not marker.is_file():
                raise InvalidInput(f"{self.path} is not a backup of coregw: it has no {MARKER}")
            content = read_whole(marker, _MAX_MARKER_BYTES)
        try:
            found = msgspec.json.decode(content, type=_Marker)
        except UNDECODABLE as error:
            raise StoreDamaged(f"{marker} is malformed: {error}") from error
        if found.format != FORMAT_VERSION:
            raise Unavailable(f"{self.path} has format {found.format}; this version reads format {FORMAT_VERSION}")
        return found

    def _write_marker(self, marker: _Marker) -> None:
        replace_durably(self.path / MARKER, msgspec.json.encode(marker) + b"\n")

    def _begin(self) -> None:
        """Make the directory a repository."""
        make_directory(self.path)
        ours = {_FILES, _GENERATIONS, _LOCK, MARKER + _UNFINISHED}  # what a killed process may have left
        entries = sorted(entry.name for entry in self.path.iterdir() if entry.name not in _FOREIGN | ours)
        if entries:
            raise InvalidInput(f"{self.path} is not a backup of coregw: it holds {entries[0]!r}, but no {MARKER}")
        make_directory(self._files)
        make_directory(self._generations)
        (self.path / _LOCK).touch(mode=0o600)
        self._write_marker(_Marker("coregw", FORMAT_VERSION))

    def _manifest(self, number: int) -> Path:
        return self._generations / f"{number:06}{_SUFFIX}"

    def _described(self) -> str:
        numbers = self.numbers()
        return ", ".join(str(number) for number in numbers[-10:]) if numbers else "none"
