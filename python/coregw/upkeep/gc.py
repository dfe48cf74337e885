"""Garbage collection: removes the roots that nothing keeps, and the pages and payloads that no root leads to.

What is kept: published roots with as much of their history as wanted, and that of the newest signed checkpoint, pinned
roots, those that the caller names, roots and payloads that were stored or confirmed during the grace period, and
everything that is reachable from a kept root. ``docs/decisions/0130`` gives
the reasons, `coregw.store.collection` the steps that make this safe beside writes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from itertools import compress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from coregw._core import Cid, KeyFilter
from coregw.concurrency import finish, in_thread
from coregw.engine.records import REVISIONS, checkpoint_key, decode_record, signed_checkpoint
from coregw.errors import StoreDamaged, Unavailable
from coregw.messages.management import GarbageCollected, GarbageRoot, Progress, ProgressCallback
from coregw.store import Stored, Table
from coregw.store.collection import CollectableStore, Collection, Item, collect_in_turn
from coregw.store.rocksdb import RocksStore
from coregw.upkeep.marks import TemporaryTable, Tracer, all_items
from coregw.upkeep.pins import Pins

__all__ = ["MARKS_FOLDER", "MAX_LISTED", "collect_garbage"]


MARKS_FOLDER: Final = "gc"
"""The folder in the store's directory where links and marks are while garbage is collected."""

MAX_LISTED: Final = 1000
"""How many roots a dry run lists."""

_WAIT_SECONDS: Final = 2.0
"""A check that runs at the same time lists payloads in collections of its own, each of which is short."""
_LISTED_AT_ONCE: Final = 500
_COMPACTED_FROM: Final = 0.05
"""The share of a kind's bytes that must be removed for a compaction: less is left to RocksDB's own."""
_MAX_ROUNDS: Final = 100
_MIN_FILTER_BYTES: Final = 64 << 10
_FILTER_BYTES: Final = 64 << 20
_PAGE_BYTES_PER_FILTER_BYTE: Final = 16
"""A page has at least 40 bytes for each payload that it names, mostly 70: so each has 20 to 35 bits."""


async def collect_garbage(
    store: CollectableStore,
    *,
    grace_seconds: float,
    revisions: int,
    dry_run: bool,
    report: ProgressCallback,
    folder: Path | None = None,
    keep: Sequence[bytes] = (),
    ask_seconds: float = 0.0,
    filter_bytes: int = _FILTER_BYTES,
) -> GarbageCollected:
    """Collect the garbage of a store while it is in use. It may be cancelled, or its process killed, at any time.

    Reads all pages once, those that are kept once more if there are payloads, and lists roots and payloads once. Takes
    some 40 MiB of memory and the filter of payloads, and about 150 bytes of disk space for each page.

    Args:
        store: The store, in the process that owns it.
        grace_seconds: What was stored or confirmed later than this many seconds ago is kept.
        revisions: How many revisions of each published name keep their roots; 0 keeps all.
        dry_run: Whether to count only, and list roots.
        report: Called often, with how far it is.
        folder: A directory for links and marks, if the store has none of its own; by default a temporary one.
        keep: Binary root CIDs that are kept as if they were pinned; they need not be held.
        ask_seconds: If roots would be removed that were stored or confirmed later than this many seconds ago, this is a
            dry run. 0 asks for none.
        filter_bytes: The largest size of the filter of payloads that kept pages name, which is otherwise a sixteenth of
            the bytes of pages. If it is much less, garbage stays: with 8 bits for each payload, one in 40.

    Raises:
        StoreDamaged: A page of a kept root is missing or damaged; nothing was removed.
        Unavailable: Another collection is in progress, or writes did not allow this one to begin; nothing was removed.
    """
    async with (
        collect_in_turn(store, grace_seconds, _WAIT_SECONDS) as collection,
        _table_of(store, folder) as table,
    ):
        run = _Run(store, collection, table, report, revisions=revisions, dry_run=dry_run, filter_bytes=filter_bytes)
        return await run.run(keep, ask_seconds)


@asynccontextmanager
async def _table_of(store: CollectableStore, folder: Path | None) -> AsyncIterator[TemporaryTable]:
    with ExitStack() as stack:
        if isinstance(store, RocksStore):
            folder = store.path
        elif folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="coregw-gc-")))
        # Cancelled or not, each call ends first, since the next collection needs the files.
        making = asyncio.ensure_future(asyncio.to_thread(TemporaryTable, folder / MARKS_FOLDER))
        try:
            table = await finish(making)
            yield table
        finally:
            await in_thread(making.result().close)


_Judged = tuple[Sequence[Item], Sequence[bool]]
"""Items, and whether each is garbage."""


class _Run:
    """One collection."""

    def __init__(
        self,
        store: CollectableStore,
        collection: Collection,
        table: TemporaryTable,
        report: ProgressCallback,
        *,
        revisions: int,
        dry_run: bool,
        filter_bytes: int,
    ) -> None:
        self._store = store
        self._collection = collection
        self._report = report
        self._revisions = revisions
        self._dry_run = dry_run
        self._filter_bytes = filter_bytes
        keep = self._are_held if dry_run else collection.keep
        self._tracer = Tracer(store, table, keep, lambda step, pages: self._tell(step, pages, "pages"))

    async def run(self, keep: Sequence[bytes], ask_seconds: float) -> GarbageCollected:
        began = time.monotonic()
        before = (await self._store.usage()).files
        await self._tracer.read_links()
        await self._mark_kept(keep)
        listed, young = await self._list_roots(ask_seconds) if self._dry_run or ask_seconds else ([], 0)
        self._dry_run = self._dry_run or young > 0
        if not self._dry_run:
            await self._expire()
        roots = await self._sweep(Stored.ROOTS, self._roots())
        pages = await self._sweep(Stored.PAGES, self._pages())
        payloads = await self._sweep(Stored.PAYLOADS, self._payloads())
        if not self._dry_run:
            await self._compact({Stored.PAGES: pages, Stored.PAYLOADS: payloads, Stored.ROOTS: roots})
        return GarbageCollected(
            dry_run=self._dry_run,
            listed_roots=listed if self._dry_run else [],
            young_roots=young,
            roots=roots.items,
            roots_removed=roots.removed,
            pages=pages.items,
            pages_removed=pages.removed,
            page_bytes=pages.bytes,
            page_bytes_removed=pages.removed_bytes,
            payloads=payloads.items,
            payloads_removed=payloads.removed,
            payload_bytes=payloads.bytes,
            payload_bytes_removed=payloads.removed_bytes,
            disk_bytes_before=before,
            disk_bytes=(await self._store.usage()).files,
            seconds=round(time.monotonic() - began, 3),
        )

    # --- marking ------------------------------------------------------------------------------------------------------

    async def _mark_kept(self, keep: Sequence[bytes]) -> None:
        """Mark what is published, pinned, named by the caller or young, and everything that is reachable from it."""
        await self._tracer.mark(keep)
        await self._tracer.mark(await Pins(self._store).roots(self._collection.began))
        async for roots in self._published():
            await self._tracer.mark(roots)
        async for items in all_items(self._collection, Stored.ROOTS):
            await self._tracer.mark([item.key for item in items if item.dated >= self._collection.before])

    async def _expire(self) -> None:
        """Let all other roots expire, as soon as no write has relied on one of them."""
        for _ in range(_MAX_ROUNDS):
            late = await self._collection.expire()
            if not late:
                return
            await self._tracer.mark(late)
        raise Unavailable("writes keep relying on old roots; no garbage was collected")

    async def _published(self) -> AsyncIterator[list[bytes]]:
        """The roots of all revisions that are kept, some at a time."""
        name: tuple[str, str] | None = None
        newest: deque[bytes] = deque(maxlen=self._revisions or None)
        signed = 0
        after: bytes | None = None
        while rows := await self._store.list_rows(Table.RECORDS, REVISIONS, after, _LISTED_AT_ONCE):
            after = rows[-1][0]
            for _, value in rows:
                record = decode_record(value)
                if (record.scope, record.name) != name:
                    yield list(newest)
                    newest.clear()
                    name = record.scope, record.name
                    signed = await self._signed_size(*name) if self._revisions else 0
                if record.revision == signed:
                    yield [record.root]
                newest.append(record.root)
            if not self._revisions:
                yield list(newest)
                newest.clear()
        yield list(newest)

    async def _signed_size(self, scope: str, name: str) -> int:
        """The leaves of the newest signed checkpoint: also the revision that clients verify, unless all are kept."""
        (row,) = await self._store.get(Table.RECORDS, [checkpoint_key(scope, name)])
        return 0 if row is None else signed_checkpoint(scope, name, row).size

    async def _list_roots(self, ask_seconds: float) -> tuple[list[GarbageRoot], int]:
        """Return the roots that would be removed, at most `MAX_LISTED`, and how many of them are younger than asked."""
        listed: list[GarbageRoot] = []
        young = 0
        now = self._collection.began
        async for items, chosen in self._roots():
            garbage = list(compress(items, chosen))
            young += sum(now - item.dated < ask_seconds * 1000 for item in garbage)
            listed += [
                GarbageRoot(root=Cid(item.key).text, age_seconds=(now - item.dated) // 1000)
                for item in garbage[: MAX_LISTED - len(listed)]
            ]
        return listed, young

    async def _are_held(self, roots: Sequence[bytes]) -> list[bool]:
        return [row is not None for row in await self._store.get(Table.ROOTS, roots)]

    # --- sweeping -----------------------------------------------------------------------------------------------------

    async def _sweep(self, kind: Stored, judged: AsyncIterator[_Judged]) -> _Swept:
        """Remove what is garbage; in a dry run, count it."""
        swept = _Swept()
        async for items, chosen in judged:
            garbage = list(compress(items, chosen))
            if garbage and not self._dry_run:
                removed = await self._collection.remove(kind, [item.key for item in garbage])
                garbage = list(compress(garbage, removed))
            swept.count(items, garbage)
            self._tell(f"{'checking' if self._dry_run else 'removing'} {kind}", swept.items, str(kind))
        return swept

    async def _roots(self) -> AsyncIterator[_Judged]:
        async for items in all_items(self._collection, Stored.ROOTS):
            # Roots that are kept have been dated again, except in a dry run.
            garbage = [item.dated < self._collection.before for item in items]
            if self._dry_run:
                marked = await asyncio.to_thread(self._tracer.are_marked, [item.key for item in items])
                garbage = [is_old and not is_marked for is_old, is_marked in zip(garbage, marked, strict=True)]
            yield items, garbage

    def _pages(self) -> AsyncIterator[_Judged]:
        # What was stored since the links were read is young.
        return self._tracer.garbage(self._collection.before, keep_bases=not self._dry_run)

    async def _payloads(self) -> AsyncIterator[_Judged]:
        named: KeyFilter | None = None
        async for items in all_items(self._collection, Stored.PAYLOADS):
            if named is None:
                named = await self._named_payloads()
            held = await asyncio.to_thread(named.may_hold, [item.key for item in items])
            before = self._collection.before
            yield items, [item.dated < before and not is_named for item, is_named in zip(items, held, strict=True)]

    async def _named_payloads(self) -> KeyFilter:
        """Read the pages that are kept once more, for the payloads that they name; by chance, the filter holds others.

        Raises:
            StoreDamaged: A page is missing or damaged now, so what it names is unknown.
        """
        size = min(self._filter_bytes, self._tracer.page_bytes // _PAGE_BYTES_PER_FILTER_BYTE)
        named = KeyFilter(max(size, _MIN_FILTER_BYTES))
        count = 0
        async for items, marked in self._tracer.pages():
            digests = [item.key for item in compress(items, marked)]
            pages = zip(digests, await self._store.get(Table.PAGES, digests), strict=True)
            found = [(digest, page or b"") for digest, page in pages]
            for digest, is_sound in zip(digests, await asyncio.to_thread(named.add_payloads_of, found), strict=True):
                if not is_sound:
                    raise StoreDamaged(
                        f"page {digest.hex()} of a kept root is missing or damaged; no payload was removed"
                    )
            count += len(digests)
            self._tell("reading names of payloads", count, "pages")
        return named

    async def _compact(self, swept: dict[Stored, _Swept]) -> None:
        kinds = [kind for kind, each in swept.items() if each.removed_bytes > _COMPACTED_FROM * each.bytes]
        if kinds:
            await self._collection.compact(
                kinds, lambda share: self._tell("compacting", round(100 * share), "percent", total=100)
            )

    def _tell(self, step: str, done: int, unit: str, total: int | None = None) -> None:
        self._report(Progress(step=step, done=done, total=total, unit=unit))


class _Swept:
    """How much of a kind was there, and how much was removed."""

    def __init__(self) -> None:
        self.items = 0
        self.bytes = 0
        self.removed = 0
        self.removed_bytes = 0

    def count(self, items: Sequence[Item], removed: Sequence[Item]) -> None:
        """Count some more."""
        self.items += len(items)
        self.bytes += sum(item.size for item in items)
        self.removed += len(removed)
        self.removed_bytes += sum(item.size for item in removed)
