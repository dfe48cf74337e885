"""Checking and repairing a store of any kind while it is in use, by the calls of `coregw.store.Store`.

It is the check of `coregw.upkeep.file_check`, on rows that a store lists instead of the files of a database: the
database's own tools check these. Nothing is locked, and rows that come or go meanwhile are no damage: what is missing
is asked for again, and belongs to a root that is still held.

A repair removes what does not match its name, so that it can be stored again, and notes what is lost for `coregw heal`.
It derives all guides (`coregw.store.protocol`) from the pages again, also those that were never there, and the logs of
published names from their revisions.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from itertools import islice
from typing import Any, Final, TypeVar

from coregw._core import Cid, page_guides, page_links
from coregw.concurrency import in_thread
from coregw.engine.pages import INCOMPLETE
from coregw.errors import PayloadNotFound, StoreDamaged, Unavailable
from coregw.messages.management import Progress, ProgressCallback
from coregw.store import CHUNK_BYTES, MAX_PAYLOADS_BYTES, Stored, Table
from coregw.store.collection import CollectableStore, Item, collect_in_turn
from coregw.store.protocol import Guide, GuidedStore
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.salvage import RawRow
from coregw.store.rocksdb.wal import Damage, RowVersion
from coregw.upkeep.file_check import CHECKPOINTS, LOG, NEWEST, REVISIONS, Known, Published, StoreCheck, lost_key
from coregw.upkeep.findings import CheckResult, DamagedObject, RepairResult, page_cid, payload_cid
from coregw.upkeep.page_check import Harm, StoredPage
from coregw.upkeep.payload_check import hasher_of

__all__ = ["OnlineCheck", "StoreRows", "check_online", "repair_online"]

T = TypeVar("T")
OnRead = Callable[[int], None]

_TABLES: Final = {Family.PAGES: Table.PAGES, Family.RECORDS: Table.RECORDS, Family.ROOTS: Table.ROOTS}
_LISTED_AT_ONCE: Final = 256
_GUIDES_AT_ONCE: Final = 64
_ATTEMPTS: Final = 10
_ITEMS_AT_ONCE: Final = 10_000
_CHECK_WAITS_SECONDS: Final = 600.0
_REPAIR_WAITS_SECONDS: Final = 10.0


class StoreRows:
    """The rows of a store, for a check in a thread beside the event loop of the store.

    Args:
        store: The store.
        on_read: Called with the number of bytes of each read, after it; may wait, to limit the rate.
        loop: The event loop of the store; the running one by default.
    """

    def __init__(
        self,
        store: CollectableStore,
        on_read: OnRead = lambda size: None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.store = store
        self.bytes = 0
        """The size of what was read."""
        self._on_read = on_read
        self._loop = loop or asyncio.get_running_loop()
        self._ended = threading.Event()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run work that calls this, in a thread; cancelling this ends it at its next call."""
        return await in_thread(work, stop=self._ended.set)

    def call(self, call: Coroutine[Any, Any, T], size: Callable[[T], int] = lambda _: 0) -> T:
        """Return the result of a call of the store; `size` tells its bytes."""
        if self._ended.is_set():
            call.close()
            raise CancelledError
        result = asyncio.run_coroutine_threadsafe(call, self._loop).result()
        self.bytes += size(result)
        self._on_read(size(result))
        return result

    def rows(self, family: Family, first: bytes = b"", end: bytes | None = None) -> Iterator[RawRow]:
        """Iterate over the rows of a table in key order; of `first` and `end`, the first bytes count."""
        table = _TABLES.get(family)
        if table is None:  # payloads are listed otherwise, and the rest is this store's own
            return
        for byte in range(first[0] if first else 0, 256 if end is None else end[0]):
            yield from self.below(bytes([byte]), table)

    def below(self, prefix: bytes, table: Table = Table.RECORDS) -> Iterator[RawRow]:
        """Iterate over the rows of a table whose keys begin with a prefix, in key order."""
        after: bytes | None = None
        while rows := self.call(
            self.store.list_rows(table, prefix, after, _LISTED_AT_ONCE),
            lambda rows: sum(len(key) + len(value) for key, value in rows),
        ):
            after = rows[-1][0]
            yield from (RawRow(key, [RowVersion(key, 0, value, is_intact=True)]) for key, value in rows)

    def payloads(self) -> Iterator[list[Item]]:
        """Iterate over the payloads. Waits while garbage is collected."""
        after: bytes | None = None
        while items := self.call(self._list_payloads(after)):
            after = items[-1].key
            yield items

    async def _list_payloads(self, after: bytes | None) -> list[Item]:
        async with collect_in_turn(self.store, 0.0, _CHECK_WAITS_SECONDS) as listing:
            return await listing.list_items(Stored.PAYLOADS, after, _ITEMS_AT_ONCE)

    def guides(self) -> Iterator[list[Guide]]:
        """Iterate over the guides, if the store keeps some."""
        after: bytes | None = None
        while isinstance(self.store, GuidedStore) and (
            guides := self.call(
                self.store.list_guides(after, _GUIDES_AT_ONCE), lambda guides: sum(guide.size for guide in guides)
            )
        ):
            after = guides[-1].page
            yield guides

    def damages(self) -> list[Damage]:
        """Damaged files: the database's own tools find them."""
        return []


class OnlineCheck(StoreCheck):
    """A check of the rows of a store, and of its guides."""

    def __init__(self, rows: StoreRows, report: ProgressCallback) -> None:
        super().__init__(rows, report)
        self._rows = rows
        self._held: list[bytes] = []
        self.misguiding: list[bytes] = []
        """Pages whose guides are wrong."""
        self._unguided: dict[bytes, bytes] = {}
        """Pages of which no guide was found so far: digest -> the root CID of a tree it belongs to."""

    def _lost_state(self, damages: list[Damage]) -> list[str]:
        return []  # a shared store keeps it in its database

    def _check_payloads(self) -> None:
        self._begin("checking payloads", "payloads")
        for items in self._rows.payloads():
            self._held += [item.key for item in items]
            batch: list[Item] = []
            size = 0
            for item in items:
                if item.size > CHUNK_BYTES:
                    self._check_batch([item])
                    continue
                if size + item.size > MAX_PAYLOADS_BYTES:
                    self._check_batch(batch)
                    batch, size = [], 0
                batch.append(item)
                size += item.size
            self._check_batch(batch)

    def _check_batch(self, items: Sequence[Item]) -> None:
        """Check payloads that are read in one batch, or one that is longer than a chunk."""
        store = self._rows.store
        if len(items) > 1:
            try:
                found = self._rows.call(
                    store.get_payloads([item.key for item in items]),
                    lambda found: sum(len(data) for data in found if data is not None),
                )
            except StoreDamaged:
                for item in items:
                    self._check_batch([item])
                return
            for item, data in zip(items, found, strict=True):
                self._note(item.key, None if data is None else [data])
            return
        for item in items:
            try:
                self._note(item.key, self._pieces(item.key))
            except StoreDamaged as error:
                self._note_damage(item.key, error.message)
            except PayloadNotFound:
                self._note(item.key, None)

    def _pieces(self, multihash: bytes) -> Iterator[bytes]:
        pieces = self._rows.store.read_payload(multihash)
        while (piece := self._rows.call(_next(pieces), len)) != b"":
            yield piece

    def _note(self, multihash: bytes, pieces: Sequence[bytes] | Iterator[bytes] | None) -> None:
        """Compare a payload with its multihash; None was removed meanwhile."""
        self._advance()
        hasher = hasher_of(multihash)
        if pieces is None:
            return
        if hasher is None:
            self._note_damage(multihash, "the row has no valid multihash")
            return
        for piece in pieces:
            hasher.update(piece)
        if hasher.matches():
            self._payload_count += 1
        else:
            self._note_damage(multihash, "its bytes do not match the multihash")

    def _note_damage(self, multihash: bytes, what: str) -> None:
        self.payload_harms[multihash] = Harm.LOST_CONTENT
        self._payloads.append(DamagedObject(cid=payload_cid(multihash), what=what))

    def _confirm_missing(self) -> None:
        missing = list(self.pages.missing)
        for start in range(0, len(missing), _LISTED_AT_ONCE):
            asked = missing[start : start + _LISTED_AT_ONCE]
            stored = self._rows.call(self._rows.store.get(Table.PAGES, asked))
            found = [(digest, page) for digest, page in zip(asked, stored, strict=True) if page is not None]
            for (digest, _), links in zip(found, page_links(found), strict=True):
                if links is not None:  # it was stored after its place in the order was read
                    del self.pages.missing[digest], self.pages.harms[digest]

    def _note_page(self, digest: bytes, page: StoredPage) -> None:
        value = page.entry.value
        if not page.links.pages or value is None or not isinstance(self._rows.store, GuidedStore):
            return
        if page_guides([(digest, value)]):  # few pages are above inner pages
            self._unguided[digest] = page.links.root

    def _damaged_guides(self) -> list[DamagedObject]:
        self._begin("checking guides", "guides")
        found: list[DamagedObject] = []
        for guides in self._rows.guides():
            stored = self._rows.call(self._rows.store.get(Table.PAGES, [guide.page for guide in guides]))
            pages = [(guide.page, page or b"") for guide, page in zip(guides, stored, strict=True)]
            derived = {guide[0]: Guide(*guide) for guide in page_guides(pages)}
            for guide, links in zip(guides, page_links(pages), strict=True):
                self._advance()
                self._unguided.pop(guide.page, None)
                if links is not None and derived.get(guide.page) != guide:  # a damaged page is named already
                    self.misguiding.append(guide.page)
                    what = "its guide leads to others than its inner pages"
                    found.append(_damaged_guide(links.root, guide.page, what))
        return found + self._missing_guides()

    def _missing_guides(self) -> list[DamagedObject]:
        """Pages above inner pages that have no guide, unless they were removed meanwhile."""
        asked = list(self._unguided.items())
        found: list[DamagedObject] = []
        for start in range(0, len(asked), _LISTED_AT_ONCE):
            some = asked[start : start + _LISTED_AT_ONCE]
            stored = self._rows.call(self._rows.store.get(Table.PAGES, [digest for digest, _ in some]))
            found += [
                _damaged_guide(root, digest, "it has no guide to its inner pages")
                for (digest, root), page in zip(some, stored, strict=True)
                if page is not None
            ]
        return found

    def names(self) -> Iterator[Published]:
        """See `StoreCheck.names`: one that seems damaged is read again, since its rows are not read at one moment."""
        for each in super().names():
            yield each if each.what is None else self._again(each)

    def _again(self, name: Published) -> Published:
        """Read the rows of a name that change together: until nothing was published meanwhile."""
        newest = NEWEST + name.key
        for _ in range(_ATTEMPTS):
            before = self._rows.call(self._rows.store.get(Table.RECORDS, [newest]))
            rows = {kind: list(self._rows.below(kind + name.key)) for kind in (CHECKPOINTS, NEWEST, REVISIONS, LOG)}
            if before == self._rows.call(self._rows.store.get(Table.RECORDS, [newest])):
                return Published(name.key, rows)
        raise Unavailable(f"{name.scope}/{name.name} is published too often to be checked; try again")

    def held_payloads(self) -> Known:
        """See `StoreCheck.held_payloads`."""
        if not self._held:
            self._held = [item.key for items in self._rows.payloads() for item in items]
        return Known(self._held)

    def roots(self) -> Iterator[tuple[bytes, bytes]]:
        """See `StoreCheck.roots`."""
        for row in self._rows.rows(Family.ROOTS):
            if row.newest is not None and row.newest.value is not None:
                yield row.key, bytes(row.newest.value)

    def unreadable_roots(self) -> Iterator[bytes]:
        """None: the database reads a row or fails."""
        return iter(())


def _damaged_guide(tree: bytes, digest: bytes, what: str) -> DamagedObject:
    return DamagedObject(cid=page_cid(tree, digest), what=what, is_recoverable=True)


async def check_online(
    store: CollectableStore, report: ProgressCallback, on_read: OnRead = lambda size: None
) -> CheckResult:
    """Check every page, payload, root and record of a store that may be in use.

    Reads pages twice and payloads once; if something is damaged, pages once more for each level of pages. O(bytes)
    hashing, in a thread. Memory: 8 bytes for each page, 40 for each payload, and what is damaged.

    Args:
        store: The store.
        report: Called often, in the thread, with how far the check is.
        on_read: Called in the thread with the number of bytes of each read; may wait, to limit the rate.

    Raises:
        Unavailable: The store does not answer.
        StoreDamaged: The store cannot read its own files.
    """
    rows = StoreRows(store, on_read)
    return await rows.in_thread(lambda: OnlineCheck(rows, report).run())


async def repair_online(store: CollectableStore, report: ProgressCallback) -> RepairResult:
    """Remove pages and payloads that do not match their names, and note what is lost, so that it can be healed.

    Roots that lack pages are marked as incomplete; storing them again makes them whole. What is stored again meanwhile
    is kept. Raises as `check_online`.
    """
    rows = StoreRows(store)
    check = OnlineCheck(rows, report)
    found = await rows.in_thread(check.run)
    lost, pages = list(check.payload_harms), [*check.pages.damaged, *check.pages.missing]
    report(Progress(step="removing what is damaged", done=0, total=len(lost) + len(pages)))
    async with collect_in_turn(store, 0.0, _REPAIR_WAITS_SECONDS) as collection:
        removed = await collection.remove(Stored.PAYLOADS, lost) if lost else []
        if pages:
            await collection.remove(Stored.PAGES, pages)
    notes = [(lost_key(name), b"") for name, is_removed in zip(lost, removed, strict=True) if is_removed]
    if notes:
        await store.put({Table.RECORDS: notes})
    incomplete = [Cid(each.root) for each in found.affected_roots if not each.is_complete]
    for root in map(bytes, incomplete):
        (value,) = await store.get(Table.ROOTS, [root])
        if value is not None:
            await store.compare_and_set(Table.ROOTS, root, value, INCOMPLETE)
    if isinstance(store, GuidedStore):
        await rows.in_thread(lambda: _guide_again(rows, check))
    await rows.in_thread(lambda: _log_again(rows, check))
    repaired = await check_online(store, report)
    return RepairResult(found=found, repaired=repaired, kept="", recovered_payloads=[], recovered_roots=[])


def _guide_again(rows: StoreRows, check: OnlineCheck) -> None:
    """Set the guides of all pages. O(bytes)."""
    assert isinstance(rows.store, GuidedStore)  # noqa: S101 - its caller has looked
    if check.misguiding:
        rows.call(rows.store.set_guides(check.misguiding, []))
    pages = check.pages.pages()
    while batch := list(islice(pages, _LISTED_AT_ONCE)):
        if guides := [Guide(*guide) for guide in page_guides(batch)]:
            rows.call(rows.store.set_guides([guide.page for guide in guides], guides))


def _log_again(rows: StoreRows, check: OnlineCheck) -> None:
    """Set the rows of logs that do not follow from the revisions of their names. O(revisions)."""
    for name in check.names():
        if name.what is not None:
            log = iter(name.log.items())
            while batch := list(islice(log, _LISTED_AT_ONCE)):
                rows.call(rows.store.put({Table.RECORDS: batch}))


async def _next(pieces: Any) -> bytes:  # noqa: ANN401 - an asynchronous iterator
    """The next piece of a payload; empty at its end, as no piece is."""
    return await anext(pieces, b"")
