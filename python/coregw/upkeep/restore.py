"""Restoring a generation of a backup: to a data directory, or row by row to a store that is not made of files.

The files are copied to ``DATA/restoring``, compared with their digests, and opened as a store there. Then they move to
their places, and last the marker file without which `coregw.store.rocksdb` refuses a directory. The result is another
incarnation of the store. What a killed restore leaves is removed by the next one. To a store that is not
made of files, rows are copied: the names come last, so what a killed restore leaves are roots with all of their pages,
and payloads. The next one goes on: a destination that holds nothing but a part of the generation is taken for such a
remainder.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from coregw._core import Cid
from coregw.durability import make_directory, sync_path
from coregw.errors import InvalidInput, StoreDamaged
from coregw.messages.management import ProgressCallback
from coregw.store import Store, Stored, Table
from coregw.store.collection import CollectableStore, Identity, collect_in_turn
from coregw.store.rocksdb import DATABASE, MARKER, RocksStore, open_store, read_identity, write_identity
from coregw.store.rocksdb.directory import lock_directory
from coregw.upkeep.backup import compare, linked
from coregw.upkeep.copy import copy_store
from coregw.upkeep.findings import payload_cid
from coregw.upkeep.marks import all_items, all_records
from coregw.upkeep.repair import give_to_owner
from coregw.upkeep.repository import (
    Generation,
    Repository,
    Track,
    check_store,
    copy,
    in_tracked_thread,
    is_within,
    open_and_close,
    using,
)

__all__ = ["RestoredStore", "refill", "restore"]

_RESTORING: Final = "restoring"

_FOREIGN: Final = frozenset({"lost+found"})


class RestoredStore(msgspec.Struct, frozen=True, kw_only=True):
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


def restore(source: Path, data: Path, number: int | None, track: Track, *, quick: bool = False) -> RestoredStore:
    """Restore a generation to a data directory.

    Args:
        source: The directory of the repository, which is only read.
        data: The data directory; created if it is missing, refused if it is not empty or in the repository.
        number: The generation; None means the newest.
        track: Counts the progress.
        quick: Only open the result, without reading its pages and payloads; also for a damaged store, to repair it.

    Raises:
        InvalidInput: The source is not a repository, or the data directory is in it or not empty.
        NotFound: The repository has no such generation.
        StoreDamaged: The generation, or the store in it, is damaged.
        StorageFull: There is no space.
        Unavailable: A directory cannot be used, or another process uses it.

    After an error, as after Ctrl-C, the data directory is as it was: empty or missing.
    """
    began = time.monotonic()
    repository = Repository.open(source)
    if is_within(data, source):
        raise InvalidInput(f"{data} is in the backup {source}: restore to another directory")
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
    return RestoredStore(
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
    with ExitStack() as stack:
        with using(data):
            if data.exists() and not data.is_dir():
                raise InvalidInput(f"{data} is not a directory")
            for made in make_directory(data):
                stack.callback(_remove_empty, made)  # or a gateway would start on it
                give_to_owner(made, made.parent)
        stack.callback(lock_directory(data))
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
                if not (data / MARKER).exists():  # it was moved half-way
                    shutil.rmtree(data / DATABASE)


def _remove_empty(directory: Path) -> None:
    with suppress(OSError):
        directory.rmdir()


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


_WAIT_SECONDS: Final = 600.0


async def refill(
    source: Path, destination: CollectableStore, number: int | None, report: ProgressCallback, *, quick: bool = False
) -> RestoredStore:
    """Restore a generation to an empty store, such as one in PostgreSQL. May be interrupted and run again.

    Needs space in the temporary directory for the log of the generation, at most some 64 MiB, and 40 bytes a page.

    Args:
        source: The directory of the repository, which is only read.
        destination: The store. No gateway should use it before this has returned.
        number: The generation; None means the newest.
        report: Called with the progress, from any thread.
        quick: Do not check the generation before; also for one of a damaged store, of which what is sound is restored.

    Raises:
        InvalidInput: The source is not a repository, or the destination holds something that is not in the generation.
        NotFound: The repository has no such generation.
        StoreDamaged: The generation, or the store in it, is damaged. Without `quick`, nothing was restored.
        StorageFull, Unavailable: The destination has no room or does not answer, or a directory cannot be used.
    """
    began = time.monotonic()
    repository = Repository.open(source)
    with repository.locked(shared=True):
        generation = repository.newest() if number is None else repository.generation(number)
        await in_tracked_thread(partial(compare, repository, generation.files), report)
        async with _opened(repository, generation, report, quick=quick) as held:
            await _require_part(destination, held, generation)
            copied = await copy_store(held, destination, report=report)
    if copied.damaged_count:
        raise StoreDamaged(
            f"{copied.damaged_count:,} objects of generation {generation.number} are damaged and were not restored, "
            f"all others were: {copied.damaged[0]}"
        )
    return RestoredStore(
        generation=generation.number,
        created=generation.created,
        files=len(generation.files),
        size_bytes=generation.size,
        roots=copied.roots,
        pages=copied.pages_copied,
        payloads=copied.payloads,
        seconds=round(time.monotonic() - began, 3),
    )


@asynccontextmanager
async def _opened(
    repository: Repository, generation: Generation, report: ProgressCallback, *, quick: bool
) -> AsyncIterator[RocksStore]:
    """Open a generation where it is: table files are linked, and RocksDB never changes them."""
    with tempfile.TemporaryDirectory(prefix="coregw-restore-") as scratch:

        def prepare(track: Track) -> Path:
            with using(Path(scratch)):
                data = linked(repository, generation, Path(scratch))
            if not quick:
                check_store(data, track)
            return data

        data = await in_tracked_thread(prepare, report)
        async with await open_store(data, reserve_bytes=0) as store:
            yield store


async def _require_part(destination: CollectableStore, held: Store, generation: Generation) -> None:
    """Require that a store holds nothing but a part of a generation. Raises `InvalidInput`."""

    def refuse(what: str) -> InvalidInput:
        return InvalidInput(
            f"the destination is not empty: it holds {what}, which is not in generation {generation.number}"
        )

    async for rows in all_records(destination):
        found = await held.get(Table.RECORDS, [key for key, _ in rows])
        for (key, value), other in zip(rows, found, strict=True):
            if value != other:
                raise refuse(f"a record under the key {key!r}")
    async with collect_in_turn(destination, 0.0, _WAIT_SECONDS) as listing:
        async for items in all_items(listing, Stored.ROOTS):
            keys = [item.key for item in items]
            for key, row in zip(keys, await held.get(Table.ROOTS, keys), strict=True):
                if row is None:
                    raise refuse(f"the root {Cid(key).text}")
        async for items in all_items(listing, Stored.PAYLOADS):
            keys = [item.key for item in items]
            for key, size in zip(keys, await held.stat_payloads(keys), strict=True):
                if size is None:
                    raise refuse(f"the payload {payload_cid(key)}")
