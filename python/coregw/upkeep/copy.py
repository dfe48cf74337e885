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
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from coregw._core import Cid, page_links
from coregw.engine.pages import COMPLETE, INCOMPLETE, put_guided, put_of_trees
from coregw.engine.records import (
    CHECKPOINTS,
    LOG,
    NEWEST,
    REVISIONS,
    decode_record,
    revision_key,
    signed_checkpoint,
    without_freeze,
)
from coregw.errors import Conflict, InvalidInput, PayloadNotFound, StoreDamaged
from coregw.messages import Message
from coregw.messages.management import Progress, ProgressCallback
from coregw.store import CHUNK_BYTES, MAX_PAYLOADS_BYTES, MAX_PUT_BYTES, Store, Stored, Table
from coregw.store.collection import CollectableStore, Collection, Identity, Item
from coregw.store.protocol import GuidedStore
from coregw.upkeep.inventory import check_of
from coregw.upkeep.marks import TemporaryTable, all_items, all_records, copied_mark

__all__ = ["Copied", "Held", "Transfer", "copy_store"]

_PAGES_AT_ONCE: Final = 64

_MAX_NAMED: Final = 100


class Held(Enum):
    """What a page that the destination holds already saves."""

    NOTHING = "nothing"
    """It is copied again: asking a destination that is far away costs as much."""
    PAGES = "pages"
    """It is not copied, but what is below it is visited."""
    TREES = "trees"
    """Whatever is below it is held, too."""


class Transfer:
    """Copies payloads and trees. What is damaged at the source is noted and left out.

    Args:
        source: Where from. No garbage of it is collected meanwhile.
        destination: Where to.
        table: Marks the pages that were visited.
        report: Called often, with how far it is.
        held: What pages save that the destination holds.
    """

    def __init__(
        self,
        source: Store,
        destination: Store,
        table: TemporaryTable,
        report: ProgressCallback,
        held: Held = Held.NOTHING,
    ) -> None:
        self._source = source
        self._destination = destination
        self._table = table
        self._report = report
        self.held = held
        self._since: int | None = None
        """When the first page was put: the destination refuses roots if it has collected garbage since then."""
        self._seen: set[bytes] | None = None
        """The pages of the current root, once a tree was damaged: then some that are marked were not copied."""
        self.pages = self.payloads = self.payload_bytes = 0
        self.damaged: list[str] = []
        """The first 100 of what is damaged."""
        self.damaged_count = 0

    def note_damage(self, what: str) -> None:
        """Note what is damaged at the source."""
        self.damaged_count += 1
        if len(self.damaged) < _MAX_NAMED:
            self.damaged.append(what)

    def tell(self, step: str, done: int, unit: str) -> None:
        """Report how far a step is."""
        self._report(Progress(step=step, done=done, unit=unit))

    # --- payloads -----------------------------------------------------------------------------------------------------

    async def copy_payloads(self, items: Sequence[Item]) -> None:
        """Copy payloads that the destination does not hold."""
        batch: list[Item] = []
        size = 0
        for item in items:
            if item.size > CHUNK_BYTES:
                await self._copy_long(item)
                continue
            if batch and size + item.size > MAX_PAYLOADS_BYTES:
                await self._copy_short(batch)
                batch, size = [], 0
            batch.append(item)
            size += item.size
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
                self.note_damage(f"payload {key.hex()} does not match its multihash")
        await self._destination.put_payloads(sound)
        self._count_payloads(sum(len(data) for _, data in sound), len(sound))

    async def _copy_long(self, item: Item) -> None:
        """Copy a payload by an upload; it is committed only if it matches its multihash."""
        try:
            check = check_of(item.key)
        except InvalidInput as error:
            self.note_damage(error.message)
            return
        try:
            async with self._destination.begin_payload() as writer:
                async for chunk in self._source.read_payload(item.key):
                    await asyncio.to_thread(check.update, chunk)
                    await writer.write(chunk)
                if not check.matches():
                    self.note_damage(f"payload {item.key.hex()} does not match its multihash")
                    return
                await writer.commit(item.key)
        except (StoreDamaged, PayloadNotFound) as error:
            self.note_damage(error.message)
        else:
            self._count_payloads(item.size, 1)

    def _count_payloads(self, size: int, count: int) -> None:
        self.payloads += count
        self.payload_bytes += size

    # --- trees --------------------------------------------------------------------------------------------------------

    async def put_root(self, root: bytes) -> None:
        """Record a root of which all pages were copied."""
        await self._destination.put({Table.ROOTS: [(root, COMPLETE)]}, True, (), self._since)

    async def copy_tree(self, root: bytes) -> bool:
        """Copy the pages of a root that were not copied yet; whether all are sound."""
        if self._seen is not None:
            self._seen = set()
        pages = await self._unvisited([Cid(root).digest])
        while pages:
            batch = pages[-_PAGES_AT_ONCE:]
            del pages[-_PAGES_AT_ONCE:]
            known = await self._known(batch)
            if self.held is Held.TREES:
                batch = [digest for digest in batch if digest not in known]
                known = {}
            asked = [digest for digest in batch if digest not in known]
            stored = await self._source.get(Table.PAGES, asked) if asked else []
            found = {digest: page for digest, page in zip(asked, stored, strict=True) if page is not None}
            pairs = [*known.items(), *found.items()]
            links = await asyncio.to_thread(page_links, pairs)
            if len(pairs) < len(batch) or None in links:
                bad = set(batch) - {pair[0] for pair, link in zip(pairs, links, strict=True) if link is not None}
                for digest in sorted(bad):
                    self.note_damage(f"page {digest.hex()} of the root {Cid(root).text} is missing or damaged")
                self._seen = set()
                if self.held is Held.TREES:  # what was copied of this tree is not all of it
                    self.held = Held.PAGES
                return False
            await self._put_pages(list(found.items()))
            pages += await self._unvisited([page for link in links if link is not None for page in link.pages])
        return True

    async def _known(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """The pages that the destination holds, if they save anything."""
        if self.held is Held.NOTHING or not digests:
            return {}
        stored = await self._destination.get(Table.PAGES, digests)
        return {digest: page for digest, page in zip(digests, stored, strict=True) if page is not None}

    async def _put_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> None:
        batch: list[tuple[bytes, bytes]] = []
        for number, page in enumerate(pages, 1):
            batch.append(page)
            if number == len(pages) or sum(len(each) for _, each in batch) >= MAX_PUT_BYTES // 2:
                guided = isinstance(self._destination, GuidedStore)
                put = put_of_trees(batch, (), (), (), self._since, guided=guided)
                now = await put_guided(self._destination, put, durable=False)
                self._since = self._since or now
                batch = []
        self.pages += len(pages)
        self.tell("copying pages", self.pages, "pages")

    async def _unvisited(self, digests: Sequence[bytes]) -> list[bytes]:
        if self._seen is not None:
            new = [digest for digest in dict.fromkeys(digests) if digest not in self._seen]
            self._seen.update(new)
            return new
        marks = await asyncio.to_thread(self._table.add, [copied_mark(digest) for digest in digests])
        return [mark[1:] for mark in marks]


def _matches(multihash: bytes, data: bytes) -> bool:
    try:
        check = check_of(multihash)
    except InvalidInput:
        return False
    check.update(data)
    return check.matches()


RecordRow = tuple[bytes, bytes]

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
    source: CollectableStore, destination: Store, *, replace_records: bool = False, report: ProgressCallback
) -> Copied:
    """Copy all payloads, roots, their pages and all records. Takes some 50 MiB of memory, and 40 bytes of disk a page.

    A destination that holds no roots and no records becomes another incarnation of the source.

    Nothing should be published at the source meanwhile, and no garbage be collected at the destination. It may be
    interrupted at any time and run again: cost is then proportional to what is missing, and a listing of the rest.

    Args:
        source: What is copied. No garbage of it can be collected meanwhile.
        destination: Where to. What it holds besides is kept.
        replace_records: Whether records of the destination that differ are replaced. A published name is only
            continued: nothing is unfrozen, and no revision taken back or changed.
        report: Called often, with how far it is.

    Raises:
        Conflict: The destination has another record under a key of the source, or another history of a name; no record
            was copied.
        StoreDamaged: A record of a published name is malformed.
        Unavailable: A store does not answer, or garbage was collected at the destination; run it again.
        StorageFull: The destination has no room.
    """
    with TemporaryDirectory(prefix="coregw-copy-") as folder:
        table = await asyncio.to_thread(TemporaryTable, Path(folder) / "marks")
        try:
            await _identify(source, destination)
            async with source.collect(_SPARED_SECONDS) as listing:
                transfer = Transfer(source, destination, table, report)
                return await _Copy(source, destination, listing, transfer).run(replace_records)
        finally:
            await asyncio.to_thread(table.close)


async def _identify(source: CollectableStore, destination: Store) -> None:
    """Make an empty destination another incarnation of the source."""
    held, theirs = source.identity, destination.identity if isinstance(destination, CollectableStore) else None
    if held is None or theirs is None or theirs.store == held.store:
        return
    if await destination.list_rows(Table.ROOTS, b"", None, 1):
        return
    async for _ in all_records(destination):
        return
    assert isinstance(destination, CollectableStore)  # noqa: S101 - it has an identity
    await destination.identify(Identity.new(held.store))


class _Copy:
    """One copy."""

    def __init__(self, source: Store, destination: Store, listing: Collection, transfer: Transfer) -> None:
        self._source = source
        self._destination = destination
        self._listing = listing
        self._transfer = transfer
        self._roots = self._roots_copied = self._payloads_held = 0

    async def run(self, replace_records: bool) -> Copied:
        transfer = self._transfer
        async for items in all_items(self._listing, Stored.PAYLOADS):
            await self._copy_payloads(items)
            transfer.tell("copying payloads", self._payloads_held + transfer.payloads, "payloads")
        async for items in all_items(self._listing, Stored.ROOTS):
            await self._copy_roots([item.key for item in items])
        records = await self._copy_records(replace_records)
        return Copied(
            roots=self._roots,
            roots_copied=self._roots_copied,
            pages_copied=transfer.pages,
            payloads=self._payloads_held + transfer.payloads,
            payloads_copied=transfer.payloads,
            payload_bytes_copied=transfer.payload_bytes,
            records_copied=records,
            damaged=transfer.damaged,
            damaged_count=transfer.damaged_count,
        )

    async def _copy_payloads(self, items: Sequence[Item]) -> None:
        held = await self._destination.renew(Stored.PAYLOADS, [item.key for item in items])
        missing = [item for item, size in zip(items, held, strict=True) if size is None]
        self._payloads_held += len(items) - len(missing)
        await self._transfer.copy_payloads(missing)

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
                self._transfer.note_damage(f"the root {Cid(root).text} has lost pages")
            elif await self._transfer.copy_tree(root):
                await self._transfer.put_root(root)
                self._roots += 1
                self._roots_copied += 1

    async def _copy_records(self, replace: bool) -> int:
        async for rows in all_records(self._source):  # so that nothing is replaced if something may not be
            await self._to_write(rows, replace=replace)
        copied = 0
        async for rows in all_records(self._source):
            written = await self._to_write(rows, replace=replace)
            new = [row for row, held in written if held is None]
            if new:
                await self._destination.put({Table.RECORDS: new})
            for (key, value), held in written:
                if held is not None and not await self._destination.compare_and_set(Table.RECORDS, key, held, value):
                    raise Conflict(f"the record under the key {key!r} changed at the destination; copy again")
            copied += len(written)
            self._transfer.tell("copying records", copied, "records")
        return copied

    async def _to_write(self, rows: Sequence[RecordRow], *, replace: bool) -> list[tuple[RecordRow, bytes | None]]:
        """Return the rows of the source that the destination takes, each with what that holds under their keys.

        Raises:
            Conflict: It holds another record that may not be replaced.
        """
        present = await self._destination.get(Table.RECORDS, [key for key, _ in rows])
        found = [(row, held) for row, held in zip(rows, present, strict=True) if held != row[1]]
        if not replace:
            for (key, _), held in found:
                if held is not None:
                    raise Conflict(
                        f"the destination has another record under the key {key!r}; publish there no more, or replace "
                        "its records"
                    )
            return found
        written = [(row, held) for row, held in found if held is None or _may_replace(row, held)]
        newest = [decode_record(value) for (key, value), _ in found if key[:1] == NEWEST]
        follow = [revision_key(each.scope, each.name, each.revision + 1) for each in newest]
        further = await self._destination.get(Table.RECORDS, follow) if follow else []
        for key, value in zip(follow, further, strict=True):
            if value is not None:
                raise Conflict(f"the destination has a revision that the source lacks, under the key {key!r}")
        return written


def _may_replace(row: RecordRow, held: bytes) -> bool:
    """Whether a row of the source takes the place of another one; if not, that one stays.

    Published names only continue: nothing is unfrozen, no revision taken back or changed, and no signed checkpoint
    replaced by an older one.

    Raises:
        Conflict: The source has another history of a name.
    """
    key, value = row
    if key[:1] == LOG:
        if held and value and held != value:
            raise Conflict(f"the destination has the log of another history, under the key {key!r}")
        return not held
    if key[:1] == CHECKPOINTS:
        scope, name = (part.decode() for part in key[1:].split(b"\0", 2)[:2])
        try:
            signed = signed_checkpoint(scope, name, held).size
        except StoreDamaged:
            return True
        return signed_checkpoint(scope, name, value).size >= signed
    if key[:1] not in (NEWEST, REVISIONS):
        return True
    try:
        before = decode_record(held)
    except StoreDamaged:
        return True
    after = decode_record(value)
    what = f"{before.scope}/{before.name} of the destination"
    if before.revision > after.revision:
        raise Conflict(f"{what} has revision {before.revision}, the source {after.revision}; nothing is taken back")
    if before.frozen and before != after:
        raise Conflict(
            f"{what} is frozen at revision {before.revision}, and not so at the source", code="record_frozen"
        )
    if before.revision == after.revision and without_freeze(before) != without_freeze(after):
        raise Conflict(f"{what} has another revision {before.revision} than the source", code="revision_mismatch")
    return True
