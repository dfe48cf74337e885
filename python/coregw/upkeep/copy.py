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
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from coregw._core import Cid
from coregw.engine.publications.log import signed_checkpoint
from coregw.engine.publications.records import decode_record, revision_key, without_freeze
from coregw.engine.roots import INCOMPLETE
from coregw.errors import Conflict, StoreDamaged
from coregw.messages import Message
from coregw.messages.progress import ProgressCallback
from coregw.store import Store, Stored, Table
from coregw.store.collection import CollectableStore, Collection, Identity, Item
from coregw.upkeep.integrity.records import CHECKPOINTS, LOG, NEWEST, REVISIONS
from coregw.upkeep.listings import all_items, all_records
from coregw.upkeep.marks import MarkFile
from coregw.upkeep.transfer import Transfer

__all__ = ["Copied", "copy_store"]

Row = tuple[bytes, bytes]

_SPARED_SECONDS: Final = 0.0
_ROOTS: Final = b"\1"
"""How all root CIDs begin."""


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
        marks = await asyncio.to_thread(MarkFile, Path(folder) / "marks")
        try:
            await _identify(source, destination)
            async with source.collect(_SPARED_SECONDS) as listing:
                transfer = Transfer(source, destination, marks, report)
                return await _Copy(source, destination, listing, transfer).run(replace_records)
        finally:
            await asyncio.to_thread(marks.close)


async def _identify(source: CollectableStore, destination: Store) -> None:
    """Make an empty destination another incarnation of the source."""
    held, theirs = source.identity, destination.identity if isinstance(destination, CollectableStore) else None
    if held is None or theirs is None or theirs.store == held.store:
        return
    if await destination.list_rows(Table.ROOTS, _ROOTS, None, 1):
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

    async def _to_write(self, rows: Sequence[Row], *, replace: bool) -> list[tuple[Row, bytes | None]]:
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


def _may_replace(row: Row, held: bytes) -> bool:
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
