"""The working store of a backup: a RocksDB store that is brought to the content of another while that is written to.

```
records    all of them as of one moment
payloads   what is held when it is listed, so that everything which the records name is among it
roots      the same
```

Nothing is removed from the source meanwhile: no garbage is collected. What it does not have is removed from the working
store, and the pages that no root of it needs any more.

```
DEST/working/000012/            the store, made of generation 12; 000000 in an empty repository
        rocksdb/000017.sst ->   table files, which RocksDB never changes, are links to the pool
        mirror.json             there while its pages are exactly those that its roots need
DEST/working/marks/             which pages were visited, and what they lead to
DEST/working/new/               a store that is being made
```

It is removed when its content has become a generation. What an interrupted backup leaves is used by the next one.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from itertools import compress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from coregw._core import Cid
from coregw.durability import make_directory, sync_path
from coregw.engine.pages import COMPLETE, INCOMPLETE
from coregw.errors import NotFound, StoreDamaged
from coregw.messages.management import ProgressCallback
from coregw.store import Store, Stored, Table
from coregw.store.collection import Collection, Item, RecordedCollection
from coregw.upkeep.copy import Held, Transfer
from coregw.upkeep.marks import TemporaryTable, Tracer, all_items, all_records
from coregw.upkeep.repository import Generation, Repository, using

__all__ = ["EXACT", "CopiedRows", "WorkingStore", "link_generation", "update_working_store"]

RecordRow = tuple[bytes, bytes]

T = TypeVar("T", Item, RecordRow)

_AT_ONCE: Final = 500

_COMPACTED_FROM: Final = 0.05
"""The share of the pages that must be removed for a compaction: it writes all that is left into new files."""


class CopiedRows(NamedTuple):
    """What was copied.

    Attributes:
        damaged: What is damaged at the source, and not in the working store either, the first 100.
        damaged_count: How many these are in all.
    """

    damaged: list[str]
    damaged_count: int


async def update_working_store(
    source: Store,
    listing: RecordedCollection,
    target: Store,
    removal: Collection,
    table: TemporaryTable,
    report: ProgressCallback,
    *,
    is_exact: bool,
) -> CopiedRows:
    """Bring a store to the content of another one.

    O(what is new), and listings of records, roots and payloads; if roots were removed, a pass over the pages of the
    working store.

    Args:
        source: What is copied.
        listing: A collection in it that spares nothing, which holds all others off.
        target: The working store.
        removal: A collection in the working store that spares nothing.
        table: An empty table.
        report: Called often, with how far it is.
        is_exact: Whether the working store's pages are exactly those that its roots need.

    Raises:
        Unavailable: A store does not answer.
        StorageFull: The working store has no room.
        StoreDamaged: A page of the working store is damaged.
    """
    held = Held.TREES if is_exact else Held.PAGES
    run = _Update(source, listing, target, removal, Transfer(source, target, table, report, held))
    await run.copy_records()
    await run.copy_payloads()
    await run.copy_roots()
    if run.has_removed_roots or run.transfer.held is not Held.TREES:
        await run.remove_pages(table)
    return CopiedRows(run.transfer.damaged, run.transfer.damaged_count)


class _Update:
    """One run of `update_working_store`."""

    def __init__(
        self, source: Store, listing: RecordedCollection, target: Store, removal: Collection, transfer: Transfer
    ) -> None:
        self._source = source
        self._listing = listing
        self._target = target
        self._removal = removal
        self.transfer = transfer
        self.has_removed_roots = False

    async def copy_records(self) -> None:
        """Make the records the same."""
        done = 0
        async with aclosing(self._listing.records()) as records:
            async for pairs in _batches(_joined(_each(records), _each(all_records(self._target)))):
                if extra := [ours[0] for theirs, ours in pairs if ours is not None and theirs is None]:
                    await self._target.delete(Table.RECORDS, extra)
                if missing := [theirs for theirs, ours in pairs if theirs is not None and theirs != ours]:
                    await self._target.put({Table.RECORDS: missing})
                done += len(pairs)
                self.transfer.tell("copying records", done, "records")

    async def copy_payloads(self) -> None:
        """Make the payloads the same, and date them no earlier."""
        done = 0
        async for pairs in self._items(Stored.PAYLOADS):
            if extra := [ours.key for theirs, ours in pairs if ours is not None and theirs is None]:
                await self._removal.remove(Stored.PAYLOADS, extra)
            if young := _renewed(pairs):
                await self._target.renew(Stored.PAYLOADS, young)
            await self.transfer.copy_payloads([theirs for theirs, ours in pairs if theirs is not None and ours is None])
            done += len(pairs)
            self.transfer.tell("copying payloads", done, "payloads")

    async def copy_roots(self) -> None:
        """Make the roots the same with their pages, and date them no earlier."""
        async for pairs in self._items(Stored.ROOTS):
            roots = [theirs.key for theirs, _ in pairs if theirs is not None]
            values = dict(zip(roots, await self._source.get(Table.ROOTS, roots), strict=True))
            extra = [ours.key for _, ours in pairs if ours is not None and values.get(ours.key) is None]
            if extra:
                self.has_removed_roots = True
                await self._target.delete(Table.ROOTS, extra)
            held = dict(zip(roots, await self._target.get(Table.ROOTS, roots), strict=True))
            for root in roots:
                if values[root] is not None and held[root] != COMPLETE:  # expired roots are listed, but not held
                    await self._copy_root(root, values[root] == INCOMPLETE, held[root])
            if young := [root for root in _renewed(pairs) if held.get(root) == COMPLETE]:
                await self._target.renew(Stored.ROOTS, young)

    async def _copy_root(self, root: bytes, is_incomplete: bool, held: bytes | None) -> None:
        if is_incomplete:
            self.transfer.note_damage(f"the root {Cid(root).text} has lost pages")
        # Another value than these says more than that all pages are here.
        elif held not in (None, INCOMPLETE) or await self.transfer.copy_tree(root):
            await self.transfer.put_root(root)
            return
        if held == INCOMPLETE:
            self.has_removed_roots = True
            await self._target.delete(Table.ROOTS, [root])

    async def remove_pages(self, table: TemporaryTable) -> None:
        """Remove the pages that no root needs."""

        async def are_held(roots: Sequence[bytes]) -> list[bool]:
            return [row is not None for row in await self._target.get(Table.ROOTS, roots)]

        tracer = Tracer(
            self._target, table, are_held, lambda step, pages: self.transfer.tell(f"{step} of the copy", pages, "pages")
        )
        await tracer.read_links()
        async for items in all_items(self._removal, Stored.ROOTS):
            await tracer.mark([item.key for item in items])
        removed = 0
        async for items, are_garbage in tracer.garbage(None, keep_bases=True):
            if garbage := list(compress(items, are_garbage)):
                await self._target.delete(Table.PAGES, [item.key for item in garbage])
                removed += sum(item.size for item in garbage)
            self.transfer.tell("removing pages", removed, "bytes")
        if removed > _COMPACTED_FROM * tracer.page_bytes:
            await self._removal.compact([Stored.PAGES, Stored.PAYLOADS, Stored.ROOTS], lambda share: None)

    def _items(self, kind: Stored) -> AsyncIterator[list[tuple[Item | None, Item | None]]]:
        return _batches(_joined(_each(all_items(self._listing, kind)), _each(all_items(self._removal, kind))))


def _renewed(pairs: Sequence[tuple[Item | None, Item | None]]) -> list[bytes]:
    """What the source has dated later than the working store."""
    both = [(theirs, ours) for theirs, ours in pairs if theirs is not None and ours is not None]
    return [ours.key for theirs, ours in both if theirs.dated > ours.dated]


async def _each(lists: AsyncIterator[list[T]]) -> AsyncIterator[T]:
    async for rows in lists:
        for row in rows:
            yield row


async def _joined(theirs: AsyncIterator[T], ours: AsyncIterator[T]) -> AsyncIterator[tuple[T | None, T | None]]:
    """Join two listings in the order of their keys."""
    one, two = await anext(theirs, None), await anext(ours, None)
    while one is not None or two is not None:
        has_one = one is not None and (two is None or one[0] <= two[0])
        has_two = two is not None and (one is None or two[0] <= one[0])
        yield (one if has_one else None), (two if has_two else None)
        one = await anext(theirs, None) if has_one else one
        two = await anext(ours, None) if has_two else two


async def _batches(pairs: AsyncIterator[tuple[T | None, T | None]]) -> AsyncIterator[list[tuple[T | None, T | None]]]:
    batch: list[tuple[T | None, T | None]] = []
    async for pair in pairs:
        batch.append(pair)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch


EXACT: Final = "mirror.json"
"""A file of a generation that was copied row by row: each page that it holds has all pages below it."""

_FOLDER: Final = "working"

_CONTENT: Final = b'{"mirror": "coregw", "format": 1}\n'

_TABLE_FILE: Final = ".sst"


class WorkingStore:
    """The folder of the working store of a repository, which is locked. Its methods block.

    Args:
        repository: The repository.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._folder = repository.path / _FOLDER

    @property
    def marks(self) -> Path:
        """Where the marks of a backup belong."""
        return self._folder / "marks"

    def prepare(self) -> Path:
        """Return the working store: what an earlier backup has left, or the newest generation, or an empty directory.

        Raises:
            StorageFull, Unavailable: It cannot be made.
        """
        newest = self._newest()
        store = self._folder / f"{newest.number if newest is not None else 0:06}"
        with using(self._repository.path, "the backups that it had are unchanged"):
            if store.is_dir() and _has_all_tables(store):
                return store
            self.remove()
            new = self._folder / "new"
            make_directory(new)
            if newest is not None:
                link_generation(self._repository, newest, new)
            new.rename(store)
            sync_path(self._folder)
        return store

    def _newest(self) -> Generation | None:
        """The newest generation, if it is there and has all of its files."""
        try:
            newest = self._repository.newest()
        except (NotFound, StoreDamaged):  # then everything is copied again
            return None
        return newest if all(self._repository.holds(file.sha256, file.size) for file in newest.files) else None

    def remove(self) -> None:
        """Remove the working store. Raises `OSError`."""
        if self._folder.exists():
            shutil.rmtree(self._folder)

    @staticmethod
    def begin(store: Path) -> bool:
        """Note that the store is about to be changed; return whether its pages were exactly those that it needs."""
        mark = store / EXACT
        is_exact = mark.is_file()
        with using(store):
            mark.unlink(missing_ok=True)
            sync_path(store)
        return is_exact or not any(store.iterdir())

    @staticmethod
    def end(checkpoint: Path) -> None:
        """Note in a checkpoint of the store that its pages are exactly those that it needs. Raises `OSError`."""
        (checkpoint / EXACT).write_bytes(_CONTENT)


def link_generation(repository: Repository, generation: Generation, data: Path) -> None:
    """Fill an empty data directory with a generation: table files as links, the rest copied. Raises `OSError`."""
    for file in generation.files:
        target, place = data / file.path, repository.file(file.sha256).resolve()
        target.parent.mkdir(mode=0o700, exist_ok=True)
        if target.suffix == _TABLE_FILE:
            target.symlink_to(place)
        else:
            shutil.copyfile(place, target)


def _has_all_tables(store: Path) -> bool:
    """Whether all links of a store that an earlier backup has left lead to files."""
    return all(path.exists() for path in store.rglob(f"*{_TABLE_FILE}"))
