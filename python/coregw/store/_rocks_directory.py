"""The store's directory: that it is coregw's, and in which format it is, before RocksDB touches anything in it.

``DIR/coregw-store.json`` says so (``{"store": "coregw", "format": 1, "state": "ready"}``), ``DIR/rocksdb`` is the
database. The state is ``creating`` until the database was made and synced once, so that a directory that lost its
database is told from one that never had one. This module leaves the database to `coregw.store._rocks_database`.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from coregw.errors import InvalidInput, StorageFull, StoreDamaged, Unavailable
from coregw.store._rocks_layout import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

MARKER: Final = "coregw-store.json"
DATABASE: Final = "rocksdb"
_UNFINISHED: Final = MARKER + ".new"

State = Literal["creating", "ready"]


class _Marker(msgspec.Struct, frozen=True):
    store: Literal["coregw"]
    format: int
    state: State


def prepare(path: Path, *, salvage: bool) -> State:
    """Makes the directory if it is missing or empty, and says what is to be expected of the database in it.

    With `salvage`, a lost log is no reason to refuse.

    Raises:
        InvalidInput: The path is not a directory, or one that holds something else.
        StoreDamaged: The marker cannot be read, or the database or its log is gone.
        Unavailable: A newer coregw wrote the store, or the directory cannot be read or made.
    """
    with _named(path):
        if path.exists() and not path.is_dir():
            raise InvalidInput(f"{path} is not a directory, so no store can be in it")
        path.mkdir(parents=True, exist_ok=True)
        marker = path / MARKER
        if not marker.exists():
            _refuse_foreign(path)
            _write(path, "creating")
            return "creating"
        state = _read(marker)
        if state == "ready":
            _require_database(path, salvage=salvage)
        return state


def mark_ready(path: Path) -> None:
    """Notes that the database was made and synced."""
    with _named(path):
        _write(path, "ready")


def _refuse_foreign(path: Path) -> None:
    entries = sorted(entry.name for entry in path.iterdir() if entry.name not in (_UNFINISHED, "lost+found"))
    if entries:
        raise InvalidInput(f"{path} is not empty and not a coregw store: it holds {entries[0]!r}, but no {MARKER}")


def _read(marker: Path) -> State:
    try:
        found = msgspec.json.decode(marker.read_bytes(), type=_Marker)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"{marker} does not say which store this is: {error}") from error
    if found.format > FORMAT_VERSION:
        raise Unavailable(
            f"the store in {marker.parent} has format {found.format}, from a newer coregw; "
            f"this one reads format {FORMAT_VERSION}"
        )
    if found.format != FORMAT_VERSION:
        raise StoreDamaged(f"{marker} names format {found.format}, which never was")
    return found.state


def _require_database(path: Path, *, salvage: bool) -> None:
    database = path / DATABASE
    if not (database / "CURRENT").is_file():
        raise StoreDamaged(f"the store in {path} has lost its database ({database})")
    # RocksDB takes a missing log for an empty one, in every recovery mode. It always leaves one, so none at all means
    # that the newest writes are gone.
    if not salvage and not any(database.glob("*.log")):
        raise StoreDamaged(f"the store in {path} has lost the log of its newest writes ({database}/*.log)")


def _write(path: Path, state: State) -> None:
    # A new file in the place of the old, each synced: after a power cut one of the two is there, whole.
    unfinished = path / _UNFINISHED
    text = msgspec.json.encode(_Marker("coregw", FORMAT_VERSION, state)) + b"\n"
    with unfinished.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path / MARKER)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns the operating system's refusals into errors that name the directory."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"no room to make a store in {path}") from error
        raise Unavailable(f"the store's directory {path} cannot be used: {error.strerror}") from error
