"""Backing up: a checkpoint of the store, of which everything that the repository lacks is copied.

A store that is not made of files is copied row by row before, into the working store of the repository
(`coregw.upkeep.working_store`), which has all files of the newest generation; the checkpoint is that of this store.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from coregw._core import __version__
from coregw.errors import CoregwError, InvalidInput, NotFound, StoreDamaged, Unavailable
from coregw.messages.management import ProgressCallback
from coregw.store.collection import CollectableStore, Identity, RecordedCollection, collect_in_turn
from coregw.store.rocksdb import RocksStore, open_store
from coregw.upkeep.marks import TemporaryTable
from coregw.upkeep.repository import (
    FORMAT_VERSION,
    Generation,
    Repository,
    StoredFile,
    Track,
    check_store,
    digest,
    in_tracked_thread,
    is_within,
    using,
)
from coregw.upkeep.working_store import CopiedRows, WorkingStore, link_generation, update_working_store

__all__ = ["DEFAULT_KEEP", "BackedUp", "Verified", "back_up", "compare", "linked", "verify"]

DEFAULT_KEEP: Final = 7
"""The default number of generations that a repository keeps."""

_WAIT_SECONDS: Final = 600.0
"""How long a backup waits for a garbage collection to end."""


class BackedUp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
        damaged: What is damaged in a store that is not made of files, and not in the backup, the first 100.
        damaged_count: How many these are in all.
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
    damaged: list[str] = []
    damaged_count: int = 0


class _Content(NamedTuple):
    """What is backed up.

    Attributes:
        checkpoint: A directory of hard links, or copies.
        is_taken: Whether its files may be moved.
        copied: What was damaged, if it was copied row by row.
    """

    checkpoint: Path
    is_taken: bool
    copied: CopiedRows


async def back_up(
    store: CollectableStore,
    destination: Path,
    keep: int,
    report: ProgressCallback,
    *,
    adopt: bool = False,
    data: Path | None = None,
) -> BackedUp:
    """Add the current content of a store to a backup repository, while the store is in use.

    If the task is cancelled, the process killed or the destination full, the repository keeps what it had. What is
    copied is what the newest generation does not have, so the time is O(bytes written since) after the first, and O(1)
    for each record, root and payload of a store that is not made of files.

    Args:
        store: The store. RocksDB keeps its files of this moment until the end, so it may need more space meanwhile. In
            another one no garbage can be collected meanwhile.
        destination: The directory of the repository, which may be on another file system; created if it is missing.
        keep: How many generations to keep, the new one included, at least 1.
        report: Called with the progress, from any thread.
        adopt: Whether the store takes the place of another incarnation of it, whose backups the repository has.
        data: The data directory, if the store is a snapshot of that.

    Raises:
        InvalidInput: The repository is that of another store, or without `adopt` of another incarnation of this one. Or
            the destination holds something else, or is in the store's directory.
        StorageFull: There is no space, at the destination or for flushing the store's memtables.
        Unavailable: The destination is in use or fails, the store is closed or does not answer, or no consistent copy
            can be made of one of its kind.
        StoreDamaged: The repository's marker is malformed, or the newest generation damaged.
    """
    began = time.monotonic()
    if keep < 1:
        raise InvalidInput(f"a backup keeps {keep} generations, expected at least 1")
    if data is None and isinstance(store, RocksStore):
        data = store.path
    repository = await in_tracked_thread(lambda _: _repository(destination, data), report)
    identity = store.identity
    if identity is None:
        raise Unavailable("it is not known which store this is, since it could not be written to so far")
    with repository.locked():
        await in_tracked_thread(lambda _: repository.claim(identity, adopt=adopt), report)
        created = datetime.now(UTC)
        async with _content(store, repository, report) as content:
            written = await in_tracked_thread(partial(_write, repository, identity, content, created, keep), report)
    seconds = round(time.monotonic() - began, 3)
    return msgspec.structs.replace(written, seconds=seconds, **content.copied._asdict())


@asynccontextmanager
async def _content(
    store: CollectableStore, repository: Repository, report: ProgressCallback
) -> AsyncIterator[_Content]:
    """Hold a checkpoint of a store, or of a copy of it."""
    working = WorkingStore(repository)
    if isinstance(store, RocksStore):
        with suppress(OSError):  # what a backup of another store has left is of no use to the next generation
            await asyncio.to_thread(working.remove)
        async with store.checkpoint() as checkpoint:
            yield _Content(checkpoint, is_taken=False, copied=CopiedRows([], 0))
        return
    path = await in_tracked_thread(lambda _: working.prepare(), report)
    is_exact = await asyncio.to_thread(working.begin, path)
    async with await open_store(path, reserve_bytes=0) as target:
        if store.identity is not None:
            await target.identify(store.identity)
        copied = await _copied_rows(store, target, working.marks, report, is_exact=is_exact)
        await target.record_time()  # or what was stored now would be dated later than the clock of the next backup
        async with target.checkpoint() as checkpoint:
            with using(repository.path):
                working.end(checkpoint)
            yield _Content(checkpoint, is_taken=True, copied=copied)
    with suppress(OSError):  # space that the next backup frees
        await asyncio.to_thread(working.remove)


async def _copied_rows(
    store: CollectableStore, target: RocksStore, folder: Path, report: ProgressCallback, *, is_exact: bool
) -> CopiedRows:
    """Bring the working store to the content of a store."""
    async with AsyncExitStack() as stack:
        listing = await stack.enter_async_context(collect_in_turn(store, 0.0, _WAIT_SECONDS))
        if not isinstance(listing, RecordedCollection):
            raise Unavailable("this gateway's store cannot be backed up")
        removal = await stack.enter_async_context(target.collect(0.0))
        table = await asyncio.to_thread(TemporaryTable, folder)
        stack.push_async_callback(asyncio.to_thread, table.close)
        return await update_working_store(store, listing, target, removal, table, report, is_exact=is_exact)


def _repository(destination: Path, data: Path | None) -> Repository:
    if data is not None and is_within(destination, data):
        raise InvalidInput(f"{destination} is in the data directory {data}, which a backup must outlive")
    return Repository.create(destination)


def _write(
    repository: Repository, identity: Identity, content: _Content, created: datetime, keep: int, track: Track
) -> BackedUp:
    earlier = repository.numbers()
    number = earlier[-1] + 1 if earlier else 1
    known = _known(repository)
    freed = 0
    try:
        with using(repository.path, "the backups that it had are unchanged"):
            stored, copied = _store(repository, content, known, track)
            generation = Generation(
                format=FORMAT_VERSION,
                number=number,
                created=created,
                version=__version__,
                files=tuple(stored),
                store=identity.store,
                incarnation=identity.incarnation,
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
    repository: Repository, content: _Content, known: dict[tuple[str, int, int], str], track: Track
) -> tuple[list[StoredFile], list[StoredFile]]:
    """Bring all files of a checkpoint into the pool. Returns all of them, and those that were not in it."""
    source = content.checkpoint
    paths = sorted(path for path in source.rglob("*") if path.is_file())
    track.begin("copying files", sum(path.stat().st_size for path in paths))
    stored, copied = [], []
    for path in paths:
        status = path.stat()
        name = path.relative_to(source).as_posix()
        sha256 = known.get((name, status.st_size, status.st_mtime_ns))
        if content.is_taken and path.is_symlink():  # it leads to the pool
            sha256 = path.resolve().name
        if sha256 is not None and repository.holds(sha256, status.st_size):
            size, is_new = status.st_size, False
            track.advance(size)
        else:
            size, sha256, is_new = repository.add(path, track.advance, is_taken=content.is_taken)
        file = StoredFile(path=name, size=size, sha256=sha256, modified_ns=status.st_mtime_ns)
        stored.append(file)
        if is_new:
            copied.append(file)
    return stored, copied


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying.

    Attributes:
        generations: How many generations there are; all of their files were compared with their digests.
        files: How many files they consist of together.
        size_bytes: Their size.
        roots: How many roots the newest generation holds.
        pages: How many pages of it were compared with their digests.
        payloads: How many payloads of it were compared with their digests.
        seconds: How long it took.
    """

    generations: int
    files: int
    size_bytes: int
    roots: int
    pages: int
    payloads: int
    seconds: float


def verify(source: Path, track: Track) -> Verified:
    """Read all of a repository, and check that it can be restored. Changes nothing.

    Needs space in the temporary directory for the log of the newest generation, at most some 64 MiB.

    Raises:
        InvalidInput: The directory is not a repository.
        NotFound: It has no complete backup.
        StoreDamaged: A file is damaged or missing, or the newest generation is not a sound store.
        Unavailable: It cannot be read, or is being changed by another process.
    """
    began = time.monotonic()
    repository = Repository.open(source)
    with repository.locked(shared=True):
        newest = repository.newest()
        files = list(repository.stored())
        size = sum(file.size for file in files)
        compare(repository, files, track)
        with tempfile.TemporaryDirectory(prefix="coregw-verify-") as scratch, using(Path(scratch)):
            checked = check_store(linked(repository, newest, Path(scratch)), track)
        return Verified(
            generations=len(repository.numbers()),
            files=len(files),
            size_bytes=size,
            roots=checked.roots,
            pages=checked.pages,
            payloads=checked.payloads,
            seconds=round(time.monotonic() - began, 3),
        )


def compare(repository: Repository, files: Sequence[StoredFile], track: Track) -> None:
    """Compare files of a repository with their checksums.

    Raises:
        StoreDamaged: One is damaged or missing.
        Unavailable: It cannot be read.
    """
    track.begin("comparing files with their checksums", sum(file.size for file in files))
    for file in files:
        place = repository.file(file.sha256)
        with using(repository.path):
            if digest(place, file.size, track.advance) != file.sha256:
                raise StoreDamaged(_damaged(repository, place))


def linked(repository: Repository, generation: Generation, scratch: Path) -> Path:
    """Return a data directory of a generation that can be opened, in an empty directory. Raises `OSError`."""
    data = scratch / "data"
    data.mkdir(mode=0o700)
    link_generation(repository, generation, data)
    return data


def _damaged(repository: Repository, place: Path) -> str:
    affected = [
        str(number)
        for number in repository.numbers()
        if any(file.sha256 == place.name for file in repository.generation(number).files)
    ]
    return f"{place} is damaged (generations {', '.join(affected)}); delete it, and back up again"
