"""Backing up: a checkpoint of the store, of which everything that the repository lacks is copied."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from coregw._core import __version__
from coregw.errors import CoregwError, InvalidInput, NotFound, StoreDamaged
from coregw.store.rocksdb import RocksStore
from coregw.upkeep.backup.files import using
from coregw.upkeep.backup.manifest import FORMAT_VERSION, Generation, StoredFile
from coregw.upkeep.backup.repository import Repository
from coregw.upkeep.backup.track import Report, Track, in_thread

__all__ = ["DEFAULT_KEEP", "BackedUp", "back_up"]

DEFAULT_KEEP: Final = 7
"""The default number of generations that a repository keeps."""


class BackedUp(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a backup.

    Attributes:
        generation: The number of the new generation.
        created: When it began, in UTC: it contains everything that was acknowledged before.
        files: How many files it consists of.
        size_bytes: Their size.
        copied_files: How many of them were not in the repository yet.
        copied_bytes: Their size.
        kept_generations: How many generations the repository has now.
        freed_bytes: The size of the files of generations that were removed.
        seconds: How long it took.
    """

    generation: int
    created: datetime
    files: int
    size_bytes: int
    copied_files: int
    copied_bytes: int
    kept_generations: int
    freed_bytes: int
    seconds: float


async def back_up(store: RocksStore, destination: Path, keep: int, report: Report) -> BackedUp:
    """Add the current content of a store to a backup repository, while the store is in use.

    If the task is cancelled, the process killed or the destination full, the repository keeps what it had. What is
    copied is what the newest generation does not have, so the time is O(bytes written since) after the first.

    Args:
        store: The store. It keeps its files of this moment until the end, so it may need more space meanwhile.
        destination: The directory of the repository, which may be on another file system; created if it is missing.
        keep: How many generations to keep, the new one included, at least 1.
        report: Called with the progress, from any thread.

    Raises:
        InvalidInput: The destination holds something else, or is in the store's directory.
        StorageFull: There is no space, at the destination or for flushing the store's memtables.
        Unavailable: The destination is in use or fails, or the store is closed.
        StoreDamaged: The repository's marker is malformed.
    """
    began = time.monotonic()
    if keep < 1:
        raise InvalidInput(f"a backup keeps {keep} generations, expected at least 1")
    repository = await in_thread(lambda _: _repository(destination, store.path), report)
    with repository.locked():
        created = datetime.now(UTC)
        async with store.checkpoint() as source:
            written = await in_thread(partial(_write, repository, source, created, keep), report)
    return msgspec.structs.replace(written, seconds=round(time.monotonic() - began, 3))


def _repository(destination: Path, data: Path) -> Repository:
    where = destination.resolve()
    if data.resolve() in (where, *where.parents):
        raise InvalidInput(f"{destination} is in the data directory {data}, which a backup must outlive")
    return Repository.create(destination)


def _write(repository: Repository, source: Path, created: datetime, keep: int, track: Track) -> BackedUp:
    earlier = repository.numbers()
    number = earlier[-1] + 1 if earlier else 1
    known = _known(repository)
    freed = 0
    try:
        with using(repository.path, "the backups that it had are unchanged"):
            stored, copied = _store(repository, source, known, track)
            generation = Generation(
                format=FORMAT_VERSION, number=number, created=created, version=__version__, files=tuple(stored)
            )
            repository.write(generation)
            forgotten = [*earlier, number][:-keep]
            for each in forgotten:
                repository.forget(each)
    finally:
        with suppress(CoregwError, OSError):  # space that the next backup frees; nothing to fail for
            freed = repository.sweep()
    return BackedUp(
        generation=number,
        created=created,
        files=len(stored),
        size_bytes=generation.size,
        copied_files=len(copied),
        copied_bytes=sum(file.size for file in copied),
        kept_generations=len(earlier) + 1 - len(forgotten),
        freed_bytes=freed,
        seconds=0.0,
    )


def _known(repository: Repository) -> dict[tuple[str, int, int], str]:
    """The digest of each file of the newest generation, by path, size and modification time."""
    try:
        newest = repository.newest()
    except (NotFound, StoreDamaged):  # then everything is read again
        return {}
    return {(file.path, file.size, file.modified_ns): file.sha256 for file in newest.files}


def _store(
    repository: Repository, source: Path, known: dict[tuple[str, int, int], str], track: Track
) -> tuple[list[StoredFile], list[StoredFile]]:
    """Bring all files of a checkpoint into the pool. Returns all of them, and those that were not in it."""
    paths = sorted(path for path in source.rglob("*") if path.is_file())
    track.begin("copying files", sum(path.stat().st_size for path in paths))
    stored, copied = [], []
    for path in paths:
        status = path.stat()
        name = path.relative_to(source).as_posix()
        sha256 = known.get((name, status.st_size, status.st_mtime_ns))
        if sha256 is not None and repository.holds(sha256, status.st_size):
            size, is_new = status.st_size, False
            track.advance(size)
        else:
            size, sha256, is_new = repository.add(path, track.advance)
        file = StoredFile(path=name, size=size, sha256=sha256, modified_ns=status.st_mtime_ns)
        stored.append(file)
        if is_new:
            copied.append(file)
    return stored, copied
