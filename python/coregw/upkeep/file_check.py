"""Check of a RocksDB store by reading its files: that of every store, and what files have beside readable rows.

Damaged files are named. Rows of which the checksums do not hold count if their content proves them: pages by their
digests, payloads by their multihashes, also if their own rows are lost. Only a repair can read these.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterator
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from coregw._core import Cid, PayloadHasher, apply_difference
from coregw.errors import InvalidInput, StoreDamaged
from coregw.messages.management import ProgressCallback
from coregw.store import Table
from coregw.store.protocol import Guide
from coregw.store.rocksdb.layout import (
    Family,
    PayloadRow,
    RootRow,
    base_of,
    chunk_range,
    is_kept_base,
    page_of_base,
    payload_date,
    upload_of_chunk,
)
from coregw.store.rocksdb.salvage import RawDatabase, StoreState
from coregw.store.rocksdb.wal import Damage, RowVersion
from coregw.upkeep.check import Harm, StoreCheck
from coregw.upkeep.findings import CheckResult, DamagedFile, DamagedObject, payload_cid
from coregw.upkeep.inventory import CheckedPayload, StoredPage, check_of
from coregw.upkeep.published import CheckedRow

__all__ = ["PAYLOADS_AT_ONCE", "FileCheck", "FileInventory", "Orphan", "check_database"]

PAYLOADS_AT_ONCE: Final = 200_000
"""Payloads whose rows are in memory at once, about 250 bytes each. More take more passes over the payloads' rows."""

_FAMILIES: Final = {Table.PAGES: Family.PAGES, Table.RECORDS: Family.RECORDS, Table.ROOTS: Family.ROOTS}

_HASHES: Final = ("sha2-256", "blake3", "sha2-512", "sha3-256", "blake2b-256")
"""The hash functions that may have named a payload whose row is lost."""

_NAMES: Final = 2
"""Hash functions with which the gateway names uploads: a payload that no tree names gets both names."""

_BASES: Final = 2048
"""Pages that are kept in memory since others are stored as differences to them: at most 32 MiB."""

_NAMING: Final = frozenset({None, Family.ROOTS, Family.PAYLOADS, Family.RECORDS})
"""Families whose lost rows nothing else names; None is any."""


def check_database(
    path: Path, report: ProgressCallback, on_read: Callable[[int], None] = lambda size: None
) -> CheckResult:
    """Check the database in a directory to which nothing writes, or a snapshot of one, as `StoreCheck` does.

    Memory: `PAYLOADS_AT_ONCE` says what payloads take.

    Args:
        path: The directory of the database.
        report: Called often, with how far the check is.
        on_read: Called with the number of bytes of each read, before it; may wait, to limit the rate.

    Raises:
        OSError: If a file cannot be opened.
    """
    with RawDatabase(path, on_read) as database:
        return FileCheck(database, report).run()


class FoundPayload(NamedTuple):
    """The row of a payload, and whether the database can read it."""

    upload: bytes
    multihash: bytes
    row: PayloadRow
    is_intact: bool


class FileInventory:
    """`coregw.upkeep.inventory.Inventory` of the files of a database to which nothing writes.

    Attributes:
        database: The files.
        state: The rows that the store keeps about itself.
    """

    def __init__(self, database: RawDatabase) -> None:
        self.database = database
        self.state = StoreState.read(database)
        self.size_bytes = database.bytes
        self.is_live = False
        self.is_guided = False
        self._base = lru_cache(_BASES)(self._find_base)

    def rows(self, table: Table, prefix: bytes = b"") -> Iterator[CheckedRow]:
        """See `coregw.upkeep.inventory.Inventory.rows`."""
        end = prefix[:-1] + bytes([prefix[-1] + 1]) if prefix else None
        for row in self.database.rows(_FAMILIES[table], prefix, end):
            value = bytes(row.value or b"") if row.is_intact else None
            if table is Table.ROOTS and value is not None:
                stored = RootRow.decode(value)
                if not self.state.is_held(stored.date):
                    continue
                value = stored.value
            yield row.key, value

    def pages(self) -> Iterator[StoredPage]:
        """See `coregw.upkeep.inventory.Inventory.pages`."""
        whole = ((row, None) for row in self.database.rows(Family.PAGES))
        differences = ((row, row) for row in self.database.rows(Family.DIFFERENCES))
        merged = heapq.merge(whole, differences, key=lambda found: found[0].key)
        for digest, group in groupby(merged, key=lambda found: found[0].key):
            row, difference = next(group)
            if difference is None:  # what is stored as a whole comes first
                yield StoredPage(digest, bytes(row.value or b""), row.is_intact)
            else:
                value = bytes(difference.value or b"")
                # A base may be kept alone. Garbage without its base is what an interrupted collection leaves.
                if not is_kept_base(digest, value) and (base := self._base(base_of(value))) is not None:
                    page = apply_difference(value, base.page) or b""
                    yield StoredPage(digest, page, difference.is_intact and base.is_intact, value)

    def _find_base(self, digest: bytes) -> StoredPage | None:
        """Read a page that is stored as a whole."""
        if (row := self.database.find(Family.PAGES, digest)) is not None:
            return StoredPage(digest, bytes(row.value or b""), row.is_intact)
        kept = self.database.find(Family.DIFFERENCES, digest)
        if kept is None or not is_kept_base(digest, value := bytes(kept.value or b"")):
            return None
        return StoredPage(digest, page_of_base(value), kept.is_intact)

    def kept_bases(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the readable rows of bases that are kept alone."""
        for row in self.database.rows(Family.DIFFERENCES):
            if row.is_intact and is_kept_base(row.key, value := bytes(row.value or b"")):
                yield row.key, value

    def get_pages(self, digests: object) -> list[bytes | None]:
        """Return none: what is asked for again are pages that may be stored meanwhile."""
        return []

    def guides(self) -> Iterator[list[Guide]]:
        """Return none: no files have guides."""
        return iter(())

    def payload_names(self) -> Iterator[bytes]:
        """See `coregw.upkeep.inventory.Inventory.payload_names`."""
        return (found.multihash for found in self.payload_rows())

    def payload_rows(self) -> Iterator[FoundPayload]:
        """Iterate over the readable rows of payloads, by multihash."""
        for row in self.database.rows(Family.PAYLOADS):
            try:
                stored = PayloadRow.decode(row.key, bytes(row.value or b""))
            except StoreDamaged:
                continue
            yield FoundPayload(stored.upload_id, row.key, stored, row.is_intact)

    def payloads(self) -> Iterator[CheckedPayload]:
        """See `coregw.upkeep.inventory.Inventory.payloads`."""
        return (checked for _, checked in self.payloads_by_upload())

    def payloads_by_upload(
        self, keep: Callable[[bytes, bytes], None] = lambda key, chunk: None
    ) -> Iterator[tuple[PayloadRow, CheckedPayload]]:
        """Check every payload against its multihash, in the order of their chunks. O(bytes) hashing.

        Memory is bounded by `PAYLOADS_AT_ONCE` rows.

        Args:
            keep: Called with the key and the bytes of each chunk that is read.
        """
        after = b""
        while expected := heapq.nsmallest(
            PAYLOADS_AT_ONCE, (found for found in self.payload_rows() if found.upload > after)
        ):
            yield from self._checked(expected, keep)
            after = expected[-1].upload

    def _checked(
        self, expected: list[FoundPayload], keep: Callable[[bytes, bytes], None]
    ) -> Iterator[tuple[PayloadRow, CheckedPayload]]:
        """Check payloads that are sorted by upload, along the chunks between the first and the last."""
        _, end = chunk_range(expected[-1].upload)
        rows = self.database.rows(Family.CHUNKS, expected[0].upload, end)
        chunks = groupby(rows, key=lambda row: upload_of_chunk(row.key))
        upload, group = next(chunks, (None, iter(())))
        for upload_id, named in groupby(expected, key=lambda each: each.upload):
            while upload is not None and upload < upload_id:
                upload, group = next(chunks, (None, iter(())))
            found = group if upload == upload_id else iter(())
            for number, each in enumerate(named):
                # No two payloads share an upload, so a second row of it is damaged.
                checked = (
                    _compared(each, found, keep)
                    if number == 0
                    else CheckedPayload(each.multihash, "its upload has another row", each.is_intact)
                )
                yield each.row, checked

    def orphans(self, known: Container[bytes]) -> Iterator[Orphan]:
        """Iterate over complete uploads of which no row of a payload is known. O(bytes) hashing.

        Args:
            known: The upload ids of payloads, and of uploads that were not finished.
        """
        for upload, group in groupby(self.database.rows(Family.CHUNKS), key=lambda row: upload_of_chunk(row.key)):
            if upload not in known:
                hashers = [PayloadHasher("raw", name) for name in _HASHES]
                size = number = 0
                for row in group:
                    if int.from_bytes(row.key[-4:], "big") != number:
                        break
                    chunk = bytes(row.value or b"")
                    for hasher in hashers:
                        hasher.update(chunk)
                    number, size = number + 1, size + len(chunk)
                else:
                    yield Orphan(upload, size, [Cid(hasher.cid()).multihash for hasher in hashers])


class Orphan(NamedTuple):
    """A complete upload of which no row of a payload is known.

    Attributes:
        upload: Its id.
        size: Its size in bytes.
        names: The multihashes that its bytes have, in the order of `_HASHES`.
    """

    upload: bytes
    size: int
    names: list[bytes]


def _compared(
    expected: FoundPayload, chunks: Iterator[RowVersion], keep: Callable[[bytes, bytes], None]
) -> CheckedPayload:
    _, multihash, row, is_intact = expected
    try:
        check = check_of(multihash)
    except InvalidInput:
        return CheckedPayload(multihash, "the row has no valid multihash", is_intact)
    number = 0
    for each in chunks:
        at = int.from_bytes(each.key[-4:], "big")
        if at != number or number >= row.chunks or len(each.key) != len(row.upload_id) + 4:
            continue
        chunk = bytes(each.value or b"")
        if len(chunk) != row.chunk_size(number):
            break
        check.update(chunk)
        keep(each.key, chunk)
        is_intact = is_intact and each.is_intact
        number += 1
    if number < row.chunks:
        return CheckedPayload(multihash, f"chunk {number} of {row.chunks} is missing", is_intact)
    what = None if check.matches() else "its bytes do not match the multihash"
    return CheckedPayload(multihash, what, is_intact)


class FileCheck(StoreCheck):
    """One check of the files of one database.

    Attributes:
        inventory: What the files have.
        damages: What is damaged in the files, when the check has run.
        orphans: Payloads whose rows were lost, by upload id, with the names that a repair gives them.
    """

    def __init__(self, database: RawDatabase, report: ProgressCallback) -> None:
        self.inventory = FileInventory(database)
        super().__init__(self.inventory, report)
        self.damages: list[Damage] = []
        self.orphans: dict[bytes, Orphan] = {}

    def run(self) -> CheckResult:
        """See `StoreCheck.run`."""
        found = super().run()
        is_damaged = any(each.has_rows and each.family == Family.META for each in self.damages)
        return msgspec.structs.replace(
            found,
            damaged_files=[
                DamagedFile(file=each.file, start=each.start, end=each.end, family=each.family, what=each.what)
                for each in self.damages
            ],
            lost_state=self.inventory.state.lost(is_damaged=is_damaged),
            unnamed=[_unnamed(each) for each in self.damages if each.has_rows and each.family in _NAMING],
        ).judged()

    def _find_lost_payloads(self) -> list[DamagedObject]:
        """Find payloads whose rows were lost by their chunks, and note the names that a repair gives them."""
        for family in (Family.META, Family.UPLOADS, Family.CHUNKS):  # the check has read the others
            for _ in self.inventory.database.rows(family):
                self._advance()
        self.damages = self.inventory.database.damages()
        if not any(damage.has_rows and damage.family in (None, Family.PAYLOADS) for damage in self.damages):
            return []
        self._begin("looking for payloads without rows", "payloads")
        known = {row.key for row in self.inventory.database.rows(Family.UPLOADS) if row.is_intact}
        known |= {found.upload for found in self.inventory.payload_rows()}
        candidates: dict[bytes, Orphan] = {}
        for orphan in self.inventory.orphans(known):
            self._advance()
            self.orphans[orphan.upload] = orphan._replace(names=orphan.names[:_NAMES])
            candidates |= dict.fromkeys(orphan.names, orphan)
        dated = self._dated_payloads()
        named = (multihash for _, links in self.pages.links() for multihash in links.payloads) if candidates else ()
        for multihash in (*dated, *named):
            if (found := candidates.get(multihash)) is not None:
                self.orphans[found.upload] = found._replace(names=[multihash])
        names = [name for orphan in self.orphans.values() for name in orphan.names]
        self.payload_harms |= dict.fromkeys(names, Harm.UNREADABLE)
        lost = [name for name in dated if name not in candidates]
        self.payload_harms |= dict.fromkeys(lost, Harm.LOST_CONTENT)
        what = "its row is lost; a repair finds it by its bytes"
        recoverable = [DamagedObject(cid=payload_cid(name), what=what, is_recoverable=True) for name in names]
        return recoverable + [
            DamagedObject(cid=payload_cid(name), what="its row and its bytes are lost") for name in lost
        ]

    def _dated_payloads(self) -> list[bytes]:
        """The multihashes of payloads without a row of which the date is known."""
        prefix = payload_date(b"")
        rows = self.inventory.database.rows(Family.META, prefix, bytes((prefix[0] + 1,)))
        held = self.held_payloads()
        dated = (row.key[len(prefix) :] for row in rows if row.is_intact)
        return [multihash for multihash in dated if _is_name(multihash) and multihash not in held]


def _is_name(multihash: bytes) -> bool:
    try:
        check_of(multihash)
    except InvalidInput:
        return False
    return True


def _unnamed(damage: Damage) -> str:
    kind = f"{damage.family} rows" if damage.family is not None else "rows"
    kind += " (published names, pins)" if damage.family == Family.RECORDS else ""
    return f"{damage.file}, bytes {damage.start:,} to {damage.end:,}: {damage.what}; {kind} may be lost"
