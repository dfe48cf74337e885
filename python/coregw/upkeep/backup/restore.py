"""Restoring a generation to a data directory: all of it, checked, or nothing that starts as a store.

The files are copied to ``DATA/restoring``, compared with their digests, and opened as a store there. Then they move to
their places, and last the marker file without which `coregw.store.rocksdb` refuses a directory. The result is another
incarnation of the store. What a killed restore leaves is removed by the next one. `coregw.upkeep.backup.refill`
restores to a store that is not made of files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from coregw.errors import InvalidInput, StoreDamaged, Unavailable
from coregw.store.collection import Identity
from coregw.store.rocksdb import DATABASE, MARKER, read_identity, write_identity
from coregw.syncing import sync_path
from coregw.upkeep.backup.check import check_store, open_and_close
from coregw.upkeep.backup.files import copy, make_directory, using
from coregw.upkeep.backup.manifest import Generation
from coregw.upkeep.backup.repository import Repository
from coregw.upkeep.backup.track import Track
from coregw.upkeep.integrity.files import give_to_owner

__all__ = ["Restored", "restore"]

_RESTORING: Final = "restoring"
_FOREIGN: Final = frozenset({"lost+found"})


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """The result of restoring.

    Attributes:
        generation: The number of the generation.
        created: When its backup began, in UTC: what was acknowledged later is not in it.
        files: How many files were copied and compared with their digests.
        size_bytes: Their size.
        roots: How many roots it holds; None without a check, as the next two.
        pages: How many pages were compared with their digests.
        payloads: How many payloads were compared with their digests.
        seconds: How long it took.
    """

    generation: int
    created: datetime
    files: int
    size_bytes: int
    roots: int | None
    pages: int | None
    payloads: int | None
    seconds: float


def restore(source: Path, data: Path, number: int | None, track: Track, *, quick: bool = False) -> Restored:
    """Restore a generation to a data directory.

    Args:
        source: The directory of the repository, which is only read.
        data: The data directory; created if it is missing, refused if it is not empty.
        number: The generation; None means the newest.
        track: Counts the progress.
        quick: Only open the result, without reading its pages and payloads; also for a damaged store, to repair it.

    Raises:
        InvalidInput: The source is not a repository, or the data directory is not empty.
        NotFound: The repository has no such generation.
        StoreDamaged: The generation, or the store in it, is damaged. The data directory is left empty.
        StorageFull: There is no space. The data directory is left empty.
        Unavailable: A directory cannot be used, or another process uses it.
    """
    began = time.monotonic()
    repository = Repository.open(source)
    with repository.locked(shared=True):
        generation = repository.newest() if number is None else repository.generation(number)
        with _prepared(data) as restoring:
            with using(data, "nothing was restored"):
                _copy(repository, generation, restoring, track)
            checked = None if quick else check_store(restoring, track)
            if quick:
                open_and_close(restoring)
            with using(data, "nothing was restored"):
                if (held := read_identity(restoring)) is not None:
                    write_identity(restoring, Identity.new(held.store))
                give_to_owner(restoring, data)
                _move(restoring, data)
    return Restored(
        generation=generation.number,
        created=generation.created,
        files=len(generation.files),
        size_bytes=generation.size,
        roots=None if checked is None else checked.roots,
        pages=None if checked is None else checked.pages,
        payloads=None if checked is None else checked.payloads,
        seconds=round(time.monotonic() - began, 3),
    )


@contextmanager
def _prepared(data: Path) -> Iterator[Path]:
    """Create the data directory and an empty one in it to restore to, and hold a lock on it."""
    with using(data):
        if data.exists() and not data.is_dir():
            raise InvalidInput(f"{data} is not a directory")
        missing = [each for each in (data, *data.parents) if not each.exists()]
        make_directory(data)
        for each in reversed(missing):
            give_to_owner(each, each.parent)
        descriptor = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"{data} is being restored to by another process") from None
        with using(data):
            entries = {entry.name for entry in data.iterdir()} - _FOREIGN
            if _RESTORING in entries and MARKER not in entries:  # left by a restore that was killed
                for name in (DATABASE, _RESTORING):
                    if name in entries:
                        shutil.rmtree(data / name)
                entries -= {DATABASE, _RESTORING}
            if entries:
                raise InvalidInput(f"{data} is not empty (it holds {min(entries)!r}): restore to another directory")
            (data / _RESTORING).mkdir(mode=0o700)
        try:
            yield data / _RESTORING
        finally:
            with suppress(OSError):
                shutil.rmtree(data / _RESTORING)
    finally:
        os.close(descriptor)


def _copy(repository: Repository, generation: Generation, restoring: Path, track: Track) -> None:
    """Copy all files, and compare them with the manifest."""
    track.begin("copying files", generation.size)
    folders = {restoring}
    for file in generation.files:
        target = restoring / file.path
        if target.parent not in folders:
            target.parent.mkdir(mode=0o700)
            folders.add(target.parent)
        place = repository.file(file.sha256)
        try:
            is_whole = place.stat().st_size == file.size  # copying a longer one would fill the disk
            found = copy(place, target, track.advance) if is_whole else None
        except FileNotFoundError:
            raise StoreDamaged(f"{place}, {file.path} of generation {generation.number}, is missing") from None
        if found != (file.size, file.sha256):
            raise StoreDamaged(f"{place}, {file.path} of generation {generation.number}, is damaged")
    for folder in folders:
        sync_path(folder)


def _move(restoring: Path, data: Path) -> None:
    """Move a complete store to its place, the marker last."""
    (restoring / DATABASE).rename(data / DATABASE)
    sync_path(data)
    (restoring / MARKER).rename(data / MARKER)
    sync_path(data)
