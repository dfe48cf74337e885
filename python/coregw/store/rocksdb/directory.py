"""The store's directory and its marker file, checked before RocksDB touches anything in it.

``DIR/coregw-store.json`` marks the directory as coregw's, names the format of the layout, and says which store it is;
``DIR/rocksdb`` is the database:

```
{"store":"coregw","format":1,"state":"ready","id":"5f0c…","incarnation":"91d2…"}
```

The state is ``creating`` until the database was created and synced once, which distinguishes a directory that lost its
database from one that never had one. ``id`` and ``incarnation`` are UUIDs (`coregw.store.collection.Identity`); a store
of an earlier version, whose marker lacks them, gets them when it is opened for writing.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from uuid import UUID, uuid4

import msgspec

from coregw.durability import make_directory, replace_durably
from coregw.errors import InvalidInput, StorageFull, StoreDamaged, Unavailable
from coregw.store.collection import Identity
from coregw.store.rocksdb.layout import FORMAT_VERSION
from coregw.store.rocksdb.mark import require_durable
from coregw.store.rocksdb.options import in_use, translated
from coregw.undecodable import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "CHECKPOINT",
    "DATABASE",
    "LOCK",
    "MARKER",
    "SPARE_BYTES",
    "State",
    "checkpoint_directory",
    "copy_file",
    "lock_database",
    "lock_directory",
    "mark_ready",
    "prepare",
    "read_identity",
    "remove_checkpoint",
    "require_working_disk",
    "write_identity",
]

MARKER: Final = "coregw-store.json"
DATABASE: Final = "rocksdb"
LOCK: Final = "LOCK"
"""The file in the database's directory that RocksDB locks."""

CHECKPOINT: Final = "checkpoint"
"""A directory in the store's, with the same layout: a copy of the database that a backup reads."""

SPARE_BYTES: Final = 16 << 20
"""The free space that opening a database needs, besides the size of the logs that it writes to SSTs."""

_SPARE_FILES: Final = 32
_PROBE: Final = "coregw-probe"
_OWN: Final = "coregw-"
"""How the names of files begin that coregw writes, such as a gateway's on a store elsewhere."""

_FORMATS: Final = range(1, FORMAT_VERSION + 1)

_ADVICE: Final = f"if it has format {FORMAT_VERSION}, `coregw fsck --repair` writes {MARKER} again"

_NAMED: Final = re.compile(rb'"(id|incarnation)":"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"')

State = Literal["creating", "ready"]


class _Marker(msgspec.Struct, frozen=True, omit_defaults=True):
    store: Literal["coregw"]
    format: int
    state: State
    id: UUID | None = None
    incarnation: UUID | None = None

    @property
    def identity(self) -> Identity | None:
        """Which store it is, if the marker says so."""
        return None if self.id is None or self.incarnation is None else Identity(self.id, self.incarnation)


class _WithoutFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A marker that has no other fault, so that it is not a damaged one."""

    store: Literal["coregw"] = "coregw"
    state: State = "ready"
    id: UUID | None = None
    incarnation: UUID | None = None


def lock_directory(path: Path) -> Callable[[], None]:
    """Create the directory of a store, for its owner alone, if it is missing, and lock it against other openings.

    RocksDB's lock comes too late: files that another process changes meanwhile would look damaged, and be repaired.
    Where a directory cannot be locked, or may not be listed, that one must do.

    Returns:
        A function that ends the lock.

    Raises:
        InvalidInput: The path is not a directory.
        Unavailable: The store is open already, or the directory cannot be used or created.
    """
    with _translated(path):
        if path.exists() and not path.is_dir():
            raise InvalidInput(f"{path} is not a directory")
        make_directory(path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except PermissionError:
            return lambda: None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise in_use(path) from None
        except OSError:  # its file system has no such locks
            pass
        return partial(_unlock, descriptor, os.getpid())


def _unlock(descriptor: int, owner: int) -> None:
    if os.getpid() == owner:  # a process that was forked from it shares the lock, and ends it only for itself
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def lock_database(path: Path) -> int:
    """Take the lock that RocksDB takes when it opens the database of a store for writing, but not for reading.

    The process must not have the database open: closing any descriptor of the file ends the lock.

    Returns:
        The descriptor whose end is that of the lock.

    Raises:
        Unavailable: If another process has the database open, or the lock cannot be used.
    """
    file = path / DATABASE / LOCK
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(f"the store in {path} cannot be locked: {file}: {error.strerror}") from error
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise in_use(path) from error
    return descriptor


def prepare(path: Path, *, salvage: bool) -> State:
    """Return the state of the database in a directory, which is locked; in an empty one, begin to create a store.

    With `salvage`, a missing log is accepted, and the high-water mark is ignored.

    Raises:
        InvalidInput: The directory holds something other than a store.
        StoreDamaged: The marker is malformed, the database or its log is missing, or less of its files is left than
            the high-water mark records.
        Unavailable: A newer coregw wrote the store, its marker names no known format, or the directory cannot be read.
    """
    with _translated(path):
        marker = path / MARKER
        if not marker.exists():
            _refuse_foreign(path)
            _write(path, "creating", Identity.new())
            return "creating"
        state = _read(marker).state
        if state == "ready":
            _require_database(path, salvage=salvage)
            if not salvage:
                require_durable(path / DATABASE)
        return state


def has_current_format(path: Path) -> bool:
    """Whether the marker says that the store has the format `FORMAT_VERSION`. Raises as `prepare`."""
    with _translated(path):
        return _read(path / MARKER).format == FORMAT_VERSION


def mark_ready(path: Path) -> None:
    """Record that the database was created and synced. A damaged marker is replaced, with what it says of the store."""
    with _translated(path):
        _write(path, "ready", _legible(path / MARKER))


def read_identity(path: Path) -> Identity | None:
    """Return which store is in a directory; None if its marker is missing or does not say so. Raises as `prepare`."""
    with _translated(path):
        try:
            return _read(path / MARKER).identity
        except FileNotFoundError:
            return None


def write_identity(path: Path, identity: Identity) -> None:
    """Say, durably, which store is in a directory that has a marker. Raises as `prepare`."""
    with _translated(path):
        _write(path, _read(path / MARKER).state, identity)


def copy_file(file: Path, copy: Path) -> None:
    """Copy a file of a store. Raises `OSError` if that is not possible, or its name is that of a symbolic link.

    A link is not followed, since root may read what the owner of the store may not.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as source, copy.open("wb") as target:
        shutil.copyfileobj(source, target)


@contextmanager
def checkpoint_directory(path: Path) -> Iterator[Path]:
    """Make a directory for a checkpoint of the store, with the marker, and remove it at the end.

    Raises:
        Unavailable: There is one already, or the directory cannot be created; `StorageFull` if there is no space.
    """
    target = path / CHECKPOINT
    with _translated(path):
        try:
            target.mkdir(mode=0o700)
        except FileExistsError:
            raise Unavailable(f"the store in {path} has a checkpoint already") from None
    try:
        with _translated(path):
            copy_file(path / MARKER, target / MARKER)
        yield target
    finally:
        remove_checkpoint(path)


def remove_checkpoint(path: Path) -> None:
    """Remove the checkpoint in a store's directory, if there is one. Best effort."""
    with suppress(OSError):
        shutil.rmtree(path / CHECKPOINT)


def require_working_disk(path: Path) -> None:
    """Check that a file can be written and synced, and that there are room and descriptors to reopen the database.

    Closing it without them would end the reads, too.

    Raises:
        StorageFull, Unavailable: The disk is full, or fails.
    """
    database = path / DATABASE
    with translated(path), ExitStack() as stack:
        free, needed = shutil.disk_usage(path).free, SPARE_BYTES
        for log in database.glob("*.log"):
            with suppress(FileNotFoundError):  # RocksDB flushes and deletes logs also after a failed write
                needed += log.stat().st_size
        if free < needed:
            raise StorageFull(f"the disk of {path} has {free:,} bytes free; reopening the store needs {needed:,}")
        stack.callback((database / _PROBE).unlink, missing_ok=True)
        files = [stack.enter_context((database / _PROBE).open("wb")) for _ in range(_SPARE_FILES)]
        files[0].write(bytes(1 << 20))
        files[0].flush()
        os.fsync(files[0].fileno())


def _refuse_foreign(path: Path) -> None:
    entries = sorted(entry.name for entry in path.iterdir())
    entries = [name for name in entries if not name.startswith(_OWN) and name != "lost+found"]
    if entries:
        raise InvalidInput(f"{path} is not a coregw store: it holds {entries[0]!r}, but no {MARKER}")


def _read(marker: Path) -> _Marker:
    """Read the marker: damage to it leaves a store to read, but not a format that this version does not know."""
    text = marker.read_bytes()
    try:
        found = msgspec.json.decode(text, type=_Marker)
    except UNDECODABLE as error:
        with suppress(*UNDECODABLE):
            msgspec.json.decode(text, type=_WithoutFormat)
            raise Unavailable(f"{marker} does not say which format the store has; {_ADVICE}") from error
        raise StoreDamaged(f"{marker} is malformed: {error}") from error
    if found.format > FORMAT_VERSION:
        raise Unavailable(
            f"the store in {marker.parent} has format {found.format}, written by a newer coregw; "
            f"this version reads format {FORMAT_VERSION}"
        )
    if found.format not in _FORMATS:
        what = f"has format {found.format}, which was never written"
        raise Unavailable(f"the store in {marker.parent} {what}; {_ADVICE}")
    return found


def _legible(marker: Path) -> Identity:
    """Return the identity that a marker names, which may be damaged elsewhere; a new one if none is legible."""
    found = {}
    with suppress(FileNotFoundError):
        found = {name.decode(): UUID(value.decode()) for name, value in _NAMED.findall(marker.read_bytes())}
    return Identity(found.get("id") or uuid4(), found.get("incarnation") or uuid4())


def _require_database(path: Path, *, salvage: bool) -> None:
    database = path / DATABASE
    if not (database / "CURRENT").is_file():
        raise StoreDamaged(f"the store in {path} has lost its database ({database})")
    # RocksDB treats a missing log as an empty one, in every recovery mode. It always leaves one on disk, so if there is
    # none, the newest writes are lost.
    if not salvage and not any(database.glob("*.log")):
        raise StoreDamaged(f"the store in {path} has lost the log of its newest writes ({database}/*.log)")


def _write(path: Path, state: State, identity: Identity) -> None:
    text = msgspec.json.encode(_Marker("coregw", FORMAT_VERSION, state, *identity)) + b"\n"
    replace_durably(path / MARKER, text, 0o666)


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Raise the operating system's errors as classes of `coregw.errors` that name the file, or else the directory."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"no room to create a store in {path}") from error
        what = "" if error.filename in (None, str(path)) else f"{error.filename}: "
        raise Unavailable(f"the store's directory {path} cannot be used: {what}{error.strerror}") from error
