"""The repository of backups: generations, manifests, and the pool of files.

```
DEST/coregw-backup.json         marks the directory, and names the store: {"backup":"coregw","format":1,"store":"5f0c…",
                                "incarnation":"91d2…"}
DEST/lock                       locked by whoever adds or removes (exclusively), or restores and verifies (shared)
DEST/files/<sha256>             every file once, whatever number of generations contain it; never changed
DEST/generations/000012.json    a manifest (below), written last
DEST/working                    the next generation, while rows are copied (`coregw.upkeep.working_store`)
```

A file gets its name in the pool when it is complete and synced, and a manifest when all of its files have theirs. So a
process that is killed, or a full disk, leaves the earlier generations as they were, and at worst files in the pool that
no manifest names; `Repository.sweep` removes these.

A repository is of one store, that of its first backup, and of one incarnation of it at a time (`Repository.claim`).

```
000012.json: | JSON of a `Generation` on one line | newline | SHA-256 of that line in hex | newline |
```
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Annotated, BinaryIO, Final, Literal, Self, TypeVar
from uuid import UUID

import msgspec

from coregw.concurrency import in_thread
from coregw.durability import create_file, make_directory, open_at_once, replace_durably, sync_path
from coregw.errors import InvalidInput, NotFound, StorageFull, StoreDamaged, Unavailable
from coregw.messages.management import Progress, ProgressCallback
from coregw.store.collection import Identity
from coregw.store.rocksdb import DATABASE, open_store
from coregw.undecodable import UNDECODABLE
from coregw.upkeep.file_check import check_database
from coregw.upkeep.findings import CheckResult

__all__ = [
    "FORMAT_VERSION",
    "MARKER",
    "Advance",
    "Generation",
    "Repository",
    "StoredFile",
    "Track",
    "check_store",
    "copy",
    "decode_manifest",
    "digest",
    "encode_manifest",
    "hash_durably",
    "in_tracked_thread",
    "is_within",
    "open_and_close",
    "read_whole",
    "using",
]

FORMAT_VERSION: Final = 1
"""The version of the repository's layout and of the manifests."""

_PATH: Final = re.compile(r"([A-Za-z0-9_][A-Za-z0-9._-]*/)?[A-Za-z0-9_][A-Za-z0-9._-]*", re.ASCII)


class StoredFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file of a generation.

    Attributes:
        path: Where it belongs in the data directory, such as ``rocksdb/000012.sst``.
        size: Its size in bytes.
        sha256: Its SHA-256 in hex, which also names it in the repository.
        modified_ns: The modification time of the source. With the path and the size it tells that a file of RocksDB,
            which never changes a complete table file, is the same as in an earlier generation.
    """

    path: str
    size: Annotated[int, msgspec.Meta(ge=0)]
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]
    modified_ns: int


class Generation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One backup.

    Attributes:
        format: `FORMAT_VERSION`.
        number: Its number in the repository; the newest has the greatest.
        created: When it began, in UTC: it contains everything that was acknowledged before.
        version: The version of coregw that made it.
        store: Which store it is of (`coregw.store.collection.Identity`); None if an earlier version made it.
        incarnation: Which incarnation of it.
        files: Its files, by path.
    """

    format: int
    number: Annotated[int, msgspec.Meta(ge=1)]
    created: datetime
    version: str
    files: tuple[StoredFile, ...]
    store: UUID | None = None
    incarnation: UUID | None = None

    @property
    def size(self) -> int:
        """The size of its files in bytes."""
        return sum(file.size for file in self.files)


class _Format(msgspec.Struct):
    format: int


def encode_manifest(generation: Generation) -> bytes:
    """Return the content of a manifest."""
    line = msgspec.json.encode(generation)
    return line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n"


def decode_manifest(name: str, content: bytes) -> Generation:
    """Read a manifest.

    Args:
        name: The manifest's, for error messages.
        content: What `encode_manifest` returned.

    Raises:
        StoreDamaged: It is damaged.
        Unavailable: A newer coregw made it.
    """
    line, _, digest = content.partition(b"\n")
    if digest != hashlib.sha256(line).hexdigest().encode() + b"\n":
        raise StoreDamaged(f"{name} is damaged: it does not match its checksum")
    try:
        version = msgspec.json.decode(line, type=_Format).format
        if version != FORMAT_VERSION:
            raise Unavailable(f"{name} has format {version}; this version reads format {FORMAT_VERSION}")
        generation = msgspec.json.decode(line, type=Generation)
    except UNDECODABLE as error:
        raise StoreDamaged(f"{name} is malformed: {error}") from error
    for file in generation.files:
        if _PATH.fullmatch(file.path) is None:
            raise StoreDamaged(f"{name} names a file {file.path!r}, which no store has")
    return generation


Advance = Callable[[int], None]
"""Called with the number of bytes done. May raise, to cancel what is being done."""

_CHUNK_BYTES: Final = 1 << 20

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


@contextmanager
def using(place: Path, consequence: str = "") -> Iterator[None]:
    """Raise the operating system's errors as classes of `coregw.errors`.

    Args:
        place: The directory that is used, for the message.
        consequence: What a lack of space means, for the message.

    Raises:
        StorageFull: There is no space left.
        Unavailable: Any other error.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(f"no space left in {place}{consequence and f'; {consequence}'}") from error
        what = error.filename if error.filename is not None else place
        raise Unavailable(f"{os.fspath(what)} cannot be used: {error.strerror or error}") from error


def read_whole(path: Path, limit: int) -> bytes:
    """Read a small file of a repository.

    Raises:
        StoreDamaged: It is longer than `limit` bytes, or not a file.
        OSError: It cannot be read.
    """
    with _opened(path) as reading:
        if os.fstat(reading.fileno()).st_size > limit:
            raise StoreDamaged(f"{path} has more than {limit:,} bytes")
        return reading.read()


def copy(source: Path, target: Path, advance: Advance) -> tuple[int, str]:
    """Copy a file to a new one, and sync it. Returns its size and SHA-256 in hex.

    Raises:
        StoreDamaged: The source is not a file.
        OSError: It cannot be read, or the other not be written.
    """
    hashed, size = hashlib.sha256(), 0
    with _opened(source) as reading, create_file(target, 0o600) as writing:
        while chunk := _read(reading, source):
            hashed.update(chunk)
            writing.write(chunk)
            size += len(chunk)
            advance(len(chunk))
        writing.flush()
        os.fsync(writing.fileno())
    return size, hashed.hexdigest()


def hash_durably(path: Path, advance: Advance) -> tuple[int, str]:
    """Sync a file, and return its size and SHA-256 in hex. Raises `OSError`."""
    hashed, size = hashlib.sha256(), 0
    with path.open("rb") as reading:
        os.fsync(reading.fileno())
        while chunk := _read(reading, path):
            hashed.update(chunk)
            size += len(chunk)
            advance(len(chunk))
    return size, hashed.hexdigest()


def digest(path: Path, expected_size: int, advance: Advance) -> str:
    """Return the SHA-256 of a file in hex.

    Raises:
        StoreDamaged: The file is missing or has another size.
        OSError: It cannot be read.
    """
    try:
        reading = _opened(path)
    except FileNotFoundError:
        raise StoreDamaged(f"{path} is missing") from None
    hashed = hashlib.sha256()
    with reading:
        size = os.fstat(reading.fileno()).st_size
        if size != expected_size:
            raise StoreDamaged(f"{path} has {size:,} bytes, not {expected_size:,}")
        while chunk := _read(reading, path):
            hashed.update(chunk)
            advance(len(chunk))
    return hashed.hexdigest()


def is_within(path: Path, directory: Path) -> bool:
    """Whether a path is that of a directory, or of something in it, by way of links too. A loop of links is a name."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _opened(path: Path) -> FileIO:
    """Open a regular file. A pipe would keep its reader waiting, and a device may have no end."""
    file = open_at_once(path)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise StoreDamaged(f"{path} is not a regular file")
    return file


def _read(file: BinaryIO, path: Path) -> bytes:
    """Read the next chunk. An error names the file, which a read's own does not."""
    try:
        return file.read(_CHUNK_BYTES)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


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


_T = TypeVar("_T")


class Track:
    """Counts the bytes of a step, and reports them.

    Args:
        report: Called with each progress.
    """

    def __init__(self, report: ProgressCallback) -> None:
        self._report = report
        self._stopping = threading.Event()
        self._step, self._total, self._done = "", 0, 0

    def begin(self, step: str, total: int) -> None:
        """Begin a step of `total` bytes."""
        self._step, self._total, self._done = step, total, 0
        self.advance(0)

    def advance(self, size: int) -> None:
        """Count bytes as done. Raises as `report`."""
        self._done += size
        self.report(Progress(step=self._step, done=self._done, total=self._total, unit="bytes"))

    def report(self, progress: Progress) -> None:
        """Report a progress of another kind. Raises `asyncio.CancelledError` after `stop`."""
        if self._stopping.is_set():
            raise asyncio.CancelledError
        self._report(progress)

    def stop(self) -> None:
        """Cancel: the next `advance` raises. Called from any thread."""
        self._stopping.set()


async def in_tracked_thread(call: Callable[[Track], _T], report: ProgressCallback) -> _T:
    """Run a call in a worker thread. If this task is cancelled, the call is, and it has ended when this raises."""
    track = Track(report)
    return await in_thread(call, track, stop=track.stop)


def open_and_close(data: Path) -> None:
    """Open the store in a data directory, which replays its log, and close it.

    Raises:
        StoreDamaged: It does not open.
        StorageFull, Unavailable: It cannot be opened at the moment.
    """

    async def run() -> None:
        await (await open_store(data, reserve_bytes=0)).close()

    asyncio.run(run())


def check_store(data: Path, track: Track) -> CheckResult:
    """Open the store in a data directory, close it, and check everything in it. O(bytes).

    Raises:
        StoreDamaged: It does not open, or something in it is damaged or missing.
        StorageFull, Unavailable: It cannot be opened at the moment.
    """
    open_and_close(data)
    result = check_database(data / DATABASE, track.report)
    if not result.is_sound:
        found = list(result.lines())
        raise StoreDamaged(f"the store in this backup is damaged ({len(found):,} findings): {found[0]}")
    return result
