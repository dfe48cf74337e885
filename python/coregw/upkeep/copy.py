"""Copying a whole store into another one, of any kind: verified by digests, and resumable by running it again.

```
payloads   what the destination holds is renewed, the rest copied and hashed
trees      for each root that the destination does not hold: its pages, checked, then the root
records    last, since they name roots
```

A root is recorded after all of its pages, so an interrupted copy leaves no root without them; the next run skips roots
and payloads that are held.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from coregw._core import Cid, page_links
from coregw.engine.pages import PageReads
from coregw.engine.roots import COMPLETE, INCOMPLETE
from coregw.engine.ways import Ways
from coregw.errors import Conflict, PayloadNotFound, StoreDamaged
from coregw.messages import Message
from coregw.messages.progress import Progress
from coregw.store import CHUNK_BYTES, MAX_PAYLOADS_BYTES, MAX_PUT_BYTES, Store, Stored, Table
from coregw.store.collection import CollectableStore, Collection, Item
from coregw.upkeep.integrity.payloads import hasher_of
from coregw.upkeep.marks import MarkFile

__all__ = ["Copied", "copy_store"]

Report = Callable[[Progress], None]

_LISTED_AT_ONCE: Final = 500
_PAGES_AT_ONCE: Final = 64
_MAX_NAMED: Final = 100
_SPARED_SECONDS: Final = 0.0


class Copied(Message, frozen=True, kw_only=True):
    """The result of a copy.

    Attributes:
        roots: Roots of the source that the destination holds now, with all of their pages.
        roots_copied: Of these, those that it did not hold before.
        pages_copied: Pages that were copied and checked.
        payloads: Payloads of the source that the destination holds now.
        payloads_copied: Of these, those that it did not hold before.
        payload_bytes_copied: Their bytes, all of which were hashed.
        records_copied: Records that the destination lacked or that were replaced.
        damaged: What could not be copied since it is damaged in the source, the first 100.
        damaged_count: How many these are in all.
    """

    roots: int
    roots_copied: int
    pages_copied: int
    payloads: int
    payloads_copied: int
    payload_bytes_copied: int
    records_copied: int
    damaged: list[str]
    damaged_count: int


async def copy_store(
    source: CollectableStore, destination: Store, *, replace_records: bool = False, report: Report
) -> Copied:
    """Copy all payloads, roots, their pages and all records. Takes some 50 MiB of memory, and 40 bytes of disk a page.

    Nothing should be published at the source meanwhile, and no garbage be collected at the destination. It may be
    interrupted at any time and run again: cost is then proportional to what is missing, and a listing of the rest.

    Args:
        source: What is copied. No garbage of it can be collected meanwhile.
        destination: Where to. What it holds besides is kept.
        replace_records: Whether records of the destination that differ are replaced.
        report: Called often, with how far it is.

    Raises:
        Conflict: The destination has another record under a key of the source.
        Unavailable: A store does not answer, or garbage was collected at the destination; run it again.
        StorageFull: The destination has no room.
    """
    with TemporaryDirectory(prefix="coregw-copy-") as folder:
        marks = await asyncio.to_thread(MarkFile, Path(folder) / "marks")
        try:
            async with source.collect(_SPARED_SECONDS) as listing:
                return await _Copy(source, destination, listing, marks, report).run(replace_records)
        finally:
            await asyncio.to_thread(marks.close)


class _Copy:
    """One copy."""

    def __init__(self, source: Store, destination: Store, listing: Collection, marks: MarkFile, report: Report) -> None:
        self._source = source
        self._destination = destination
        self._ways = Ways(destination, PageReads(destination))
        self._listing = listing
        self._marks = marks
        self._report = report
        self._since: int | None = None
        """When the first page was put: the destination refuses roots if it has collected garbage since then."""
        self._roots = self._roots_copied = self._pages = 0
        self._payloads = self._payloads_copied = self._payload_bytes = 0
        self._seen: set[bytes] | None = None
        """The pages of the current root, once a tree was damaged: then some that are marked were not copied."""
        self._damaged: list[str] = []
        self._damaged_count = 0

    async def run(self, replace_records: bool) -> Copied:
        async for items in self._items(Stored.PAYLOADS):
            await self._copy_payloads(items)
            self._tell("copying payloads", self._payloads, "payloads")
        async for items in self._items(Stored.ROOTS):
            await self._copy_roots([item.key for item in items])
        records = await self._copy_records(replace_records)
        return Copied(
            roots=self._roots,
            roots_copied=self._roots_copied,
            pages_copied=self._pages,
            payloads=self._payloads,
            payloads_copied=self._payloads_copied,
            payload_bytes_copied=self._payload_bytes,
            records_copied=records,
            damaged=self._damaged,
            damaged_count=self._damaged_count,
        )

    # --- payloads -----------------------------------------------------------------------------------------------------

    async def _copy_payloads(self, items: Sequence[Item]) -> None:
        held = await self._destination.renew(Stored.PAYLOADS, [item.key for item in items])
        missing = [item for item, size in zip(items, held, strict=True) if size is None]
        self._payloads += len(items) - len(missing)
        batch: list[Item] = []
        for item in missing:
            if item.size > CHUNK_BYTES:
                await self._copy_long(item)
                continue
            if batch and sum(each.size for each in batch) + item.size > MAX_PAYLOADS_BYTES:
                await self._copy_short(batch)
                batch = []
            batch.append(item)
        if batch:
            await self._copy_short(batch)

    async def _copy_short(self, items: Sequence[Item]) -> None:
        """Copy payloads of at most a chunk each, in one step."""
        try:
            found = await self._source.get_payloads([item.key for item in items])
        except StoreDamaged:  # one by one, to copy those that are not damaged
            for item in items:
                await self._copy_long(item)
            return
        pairs = [(item.key, data) for item, data in zip(items, found, strict=True) if data is not None]
        sound = await asyncio.to_thread(lambda: [pair for pair in pairs if _matches(*pair)])
        names = {key for key, _ in sound}
        for key, _ in pairs:
            if key not in names:
                self._note_damage(f"payload {key.hex()} does not match its multihash")
        await self._destination.put_payloads(sound)
        self._count_payloads(sum(len(data) for _, data in sound), len(sound))

    async def _copy_long(self, item: Item) -> None:
        """Copy a payload by an upload; it is committed only if it matches its multihash."""
        hasher = hasher_of(item.key)
        try:
            async with self._destination.begin_payload() as writer:
                async for chunk in self._source.read_payload(item.key):
                    if hasher is not None:
                        await asyncio.to_thread(hasher.update, chunk)
                    await writer.write(chunk)
                if hasher is None or not hasher.matches():
                    self._note_damage(f"payload {item.key.hex()} does not match its multihash")
                    return
                await writer.commit(item.key)
        except (StoreDamaged, PayloadNotFound) as error:
            self._note_damage(error.message)
        else:
            self._count_payloads(item.size, 1)

    def _count_payloads(self, size: int, count: int) -> None:
        self._payloads += count
        self._payloads_copied += count
        self._payload_bytes += size

    # --- trees --------------------------------------------------------------------------------------------------------

    async def _copy_roots(self, roots: Sequence[bytes]) -> None:
        rows = await self._destination.get(Table.ROOTS, roots)
        known = [root for root, row in zip(roots, rows, strict=True) if row not in (None, INCOMPLETE)]
        sizes = await self._destination.renew(Stored.ROOTS, known)
        held = {root for root, size in zip(known, sizes, strict=True) if size is not None}
        self._roots += len(held)
        for root, row in zip(roots, await self._source.get(Table.ROOTS, roots), strict=True):
            if root in held or row is None:
                continue
            if row == INCOMPLETE:
                self._note_damage(f"the root {Cid(root).text} has lost pages")
            elif await self._copy_tree(root):
                await self._destination.put({Table.ROOTS: [(root, COMPLETE)]}, True, (), self._since)
                self._roots += 1
                self._roots_copied += 1

    async def _copy_tree(self, root: bytes) -> bool:
        """Copy the pages of a root that were not copied yet; whether all are sound."""
        if self._seen is not None:
            self._seen = set()
        pages = await self._unvisited([Cid(root).digest])
        while pages:
            batch = pages[-_PAGES_AT_ONCE:]
            del pages[-_PAGES_AT_ONCE:]
            stored = await self._source.get(Table.PAGES, batch)
            found = [(digest, page) for digest, page in zip(batch, stored, strict=True) if page is not None]
            links = await asyncio.to_thread(page_links, found)
            if len(found) < len(batch) or None in links:
                bad = set(batch) - {pair[0] for pair, link in zip(found, links, strict=True) if link is not None}
                for digest in sorted(bad):
                    self._note_damage(f"page {digest.hex()} of the root {Cid(root).text} is missing or damaged")
                self._seen = set()
                return False
            await self._put_pages(found)
            pages += await self._unvisited([page for link in links if link is not None for page in link.pages])
        return True

    async def _put_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> None:
        batch: list[tuple[bytes, bytes]] = []
        for number, page in enumerate(pages, 1):
            batch.append(page)
            if number == len(pages) or sum(len(each) for _, each in batch) >= MAX_PUT_BYTES // 2:
                now = await self._ways.put({Table.PAGES: batch}, False, (), self._since)
                self._since = self._since or now
                batch = []
        self._pages += len(pages)
        self._tell("copying pages", self._pages, "pages")

    async def _unvisited(self, digests: Sequence[bytes]) -> list[bytes]:
        if self._seen is not None:
            new = [digest for digest in dict.fromkeys(digests) if digest not in self._seen]
            self._seen.update(new)
            return new
        return await asyncio.to_thread(self._marks.add, digests)

    # --- records ------------------------------------------------------------------------------------------------------

    async def _copy_records(self, replace: bool) -> int:
        copied = 0
        for first in range(256):
            after: bytes | None = None
            while rows := await self._source.list_rows(Table.RECORDS, bytes([first]), after, _LISTED_AT_ONCE):
                after = rows[-1][0]
                present = await self._destination.get(Table.RECORDS, [key for key, _ in rows])
                pairs = zip(rows, present, strict=True)
                if not replace:
                    different = [row[0] for row, held in pairs if held is not None and held != row[1]]
                    if different:
                        raise Conflict(
                            f"the destination has another record under the key {different[0]!r}; publish there no "
                            "more, or replace its records"
                        )
                    pairs = zip(rows, present, strict=True)
                if missing := [row for row, held in pairs if held != row[1]]:
                    await self._destination.put({Table.RECORDS: missing})
                    copied += len(missing)
                self._tell("copying records", copied, "records")
        return copied

    # --- all of them --------------------------------------------------------------------------------------------------

    async def _items(self, kind: Stored) -> AsyncIterator[list[Item]]:
        after: bytes | None = None
        while items := await self._listing.list_items(kind, after, _LISTED_AT_ONCE):
            yield items
            after = items[-1].key

    def _note_damage(self, what: str) -> None:
        self._damaged_count += 1
        if len(self._damaged) < _MAX_NAMED:
            self._damaged.append(what)

    def _tell(self, step: str, done: int, unit: str) -> None:
        self._report(Progress(step=step, done=done, unit=unit))


def _matches(multihash: bytes, data: bytes) -> bool:
    hasher = hasher_of(multihash)
    if hasher is None:
        return False
    hasher.update(data)
    return hasher.matches()
