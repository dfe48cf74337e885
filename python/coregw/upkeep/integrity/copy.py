"""Copying everything readable of a damaged database into a new store.

Only rows whose content matches their name are copied. What is lost is noted (`coregw.upkeep.integrity.records`): a
payload by its multihash, and a root whose tree has lost pages as incomplete.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from coregw.engine.publications.records import encode_record, record_key, revision_key
from coregw.engine.roots import COMPLETE, INCOMPLETE
from coregw.store.rocksdb.database import Database, Write
from coregw.store.rocksdb.layout import (
    EPOCH_KEY,
    Family,
    PayloadRow,
    RootRow,
    chunk_range,
    encode_epoch,
    epoch_of_upload,
    upload_id,
)
from coregw.store.rocksdb.raw.coding import Damage
from coregw.store.rocksdb.raw.database import RawDatabase
from coregw.upkeep.integrity.check import StoreCheck
from coregw.upkeep.integrity.pages import Harm
from coregw.upkeep.integrity.payloads import Orphan, payloads_by_upload
from coregw.upkeep.integrity.records import LOG, NEWEST, REVISIONS, lost_key, published, unreadable_rows
from coregw.upkeep.pins import LOST_PINS, pin_name

__all__ = ["StoreCopy"]

_BATCH_BYTES: Final = 1 << 20
_COPIES_EPOCH: Final = 0
"""The epoch of new uploads: no opening has it, as epochs count from 1."""


class StoreCopy:
    """Copies a checked database into an empty one.

    Args:
        source: The damaged database.
        check: Its check, which was run.
        target: The new database, which is empty.
        damages: What is damaged in the files of `source`.

    Attributes:
        recovered_payloads: Payloads whose rows were lost, found by their chunks.
        recovered_roots: Roots whose rows were lost, found by their pages.
    """

    def __init__(self, source: RawDatabase, check: StoreCheck, target: Database, damages: list[Damage]) -> None:
        self._source = source
        self._check = check
        self._target = target
        self._batch: list[Write] = []
        self._batch_bytes = 0
        self._epoch = 0
        self._copies = 0
        self._lost = {each.family for each in damages if each.has_rows}
        self.recovered_payloads: list[bytes] = []
        self.recovered_roots: list[bytes] = []

    def run(self) -> None:
        """Copy everything; durable on return."""
        self._copy_payloads()
        self._copy_pages()
        self._copy_roots()
        self._copy_records()
        self._epoch = max(self._epoch, self._check.state.epoch)
        self._put(Family.META, EPOCH_KEY, encode_epoch(self._epoch))
        self._write()
        self._target.sync()
        self._target.flush()

    # --- payloads -----------------------------------------------------------------------------------------------------

    def _copy_payloads(self) -> None:
        for payload in payloads_by_upload(self._source, lambda key, chunk: self._put(Family.CHUNKS, key, chunk)):
            if payload.what is None:
                self._note_epoch(payload.row.upload_id)
                self._put(Family.PAYLOADS, payload.multihash, payload.row.encode())
            else:
                self._write()
                self._target.write([], [(Family.CHUNKS, *chunk_range(payload.row.upload_id))])
        for orphan in self._check.orphans.values():
            for number, multihash in enumerate(orphan.names):
                self._recover(orphan, number, multihash)
        for multihash, harm in self._check.payload_harms.items():
            if harm & Harm.LOST_CONTENT:
                self._put(Family.RECORDS, lost_key(multihash), b"")

    def _recover(self, orphan: Orphan, number: int, multihash: bytes) -> None:
        """Make an upload a payload; for its further names, a copy of it."""
        upload = orphan.upload
        if number:
            self._copies += 1
            upload = upload_id(_COPIES_EPOCH, self._copies)
        for row in self._source.rows(Family.CHUNKS, *chunk_range(orphan.upload)):
            entry = next((entry for entry in row.versions if entry.value is not None), None)
            if entry is not None:
                self._put(Family.CHUNKS, upload + row.key[len(upload) :], bytes(entry.value or b""))
        self._note_epoch(upload)
        self._put(Family.PAYLOADS, multihash, PayloadRow(upload, orphan.size).encode())
        self.recovered_payloads.append(multihash)

    # --- pages and roots ----------------------------------------------------------------------------------------------

    def _copy_pages(self) -> None:
        for digest, page in self._check.pages.pages():
            self._put(Family.PAGES, digest, page)

    def _copy_roots(self) -> None:
        held: set[bytes] = set()
        for root, _ in self._check.roots():
            if self._is_lost(Family.ROOTS):
                held.add(root)
            self._put_root(root)
        for root in self._check.unreadable_roots():
            if self._target.get(Family.PAGES, [root[-32:]])[0]:  # otherwise the key may be damaged as well
                held.add(root)
                self._put_root(root)
        if self._is_lost(Family.ROOTS):
            self._write()
            for root in self._roots_without_rows():
                if root not in held and not self._harm(root) & Harm.LOST_PAGE:
                    self._put_root(root)
                    self.recovered_roots.append(root)

    def _put_root(self, root: bytes) -> None:
        value = INCOMPLETE if self._harm(root) & Harm.LOST_PAGE else COMPLETE
        self._put(Family.ROOTS, root, RootRow(self._target.clock.now(), value).encode())

    def _harm(self, root: bytes) -> Harm:
        return self._check.pages.harms.get(root[-32:], Harm(0))

    def _roots_without_rows(self) -> Iterator[bytes]:
        """Iterate over what may be a root whose row is lost: pages that no page leads to, and what leaves name."""
        pages = array("Q", (_prefix(digest) for digest, _ in self._check.pages.links()))
        has_parent = bytearray(len(pages))
        for _, links in self._check.pages.links():
            for at in (_index(pages, _prefix(digest)) for digest in links.pages):
                if at is not None:
                    has_parent[at] = 1
        for digest, links in self._check.pages.links():
            at = _index(pages, _prefix(digest))
            if at is not None and not has_parent[at]:
                yield links.root
            for root in links.roots:
                if _index(pages, _prefix(root[-32:])) is not None:
                    yield root
        for record in published(self._source):
            if record.newest is not None and _index(pages, _prefix(record.newest.root[-32:])) is not None:
                yield record.newest.root

    # --- records ------------------------------------------------------------------------------------------------------

    def _copy_records(self) -> None:
        for row in self._source.rows(Family.RECORDS):
            if row.newest is not None and row.key[:1] not in (NEWEST, REVISIONS, LOG):
                self._put(Family.RECORDS, row.key, bytes(row.newest.value or b""))
        for key in unreadable_rows(self._source):
            if pin_name(key) is not None:
                self._put(Family.RECORDS, LOST_PINS + key[1:], b"")
        for name in published(self._source):
            for number, record in name.revisions.items():
                self._put(Family.RECORDS, revision_key(name.scope, name.name, number), encode_record(record))
            for key, node in name.log.items():
                self._put(Family.RECORDS, key, node)
            if name.newest is not None:
                self._put(Family.RECORDS, record_key(name.scope, name.name), encode_record(name.newest))

    # --- writing ------------------------------------------------------------------------------------------------------

    def _put(self, family: Family, key: bytes, value: bytes) -> None:
        self._batch.append((family, key, value))
        self._batch_bytes += len(key) + len(value)
        if self._batch_bytes >= _BATCH_BYTES:
            self._write()

    def _write(self) -> None:
        if self._batch:
            self._target.write(self._batch)
        self._batch, self._batch_bytes = [], 0

    def _is_lost(self, family: Family) -> bool:
        """Whether rows of a family may be lost."""
        return None in self._lost or family in self._lost

    def _note_epoch(self, upload: bytes) -> None:
        """Keep the epoch of the new store above that of every upload, so that no upload id is used twice."""
        self._epoch = max(self._epoch, epoch_of_upload(upload))


def _prefix(digest: bytes) -> int:
    return int.from_bytes(digest[:8], "big")


def _index(sorted_prefixes: array[int], prefix: int) -> int | None:
    at = bisect_left(sorted_prefixes, prefix)
    return at if at < len(sorted_prefixes) and sorted_prefixes[at] == prefix else None
