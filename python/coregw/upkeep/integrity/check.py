"""Checking a whole store: files, pages, payloads, roots and records, from its files as they are on the disk."""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from coregw._core import Cid
from coregw.engine.roots import INCOMPLETE
from coregw.messages.progress import Progress, ProgressCallback
from coregw.store.rocksdb.layout import Family, RootRow, payload_date
from coregw.store.rocksdb.raw.coding import Damage
from coregw.store.rocksdb.raw.database import RawDatabase, Rows
from coregw.store.rocksdb.raw.state import StoreState
from coregw.upkeep.integrity.findings import (
    AffectedRoot,
    CheckResult,
    DamagedFile,
    DamagedObject,
    page_cid,
    payload_cid,
)
from coregw.upkeep.integrity.pages import Harm, PageCheck, StoredPage, is_root
from coregw.upkeep.integrity.payloads import Orphan, hasher_of, orphans, payload_of, payloads_by_upload
from coregw.upkeep.integrity.records import LOST, Published, published, unreadable_rows
from coregw.upkeep.pins import LOST_PINS, pin_name

__all__ = ["Known", "StoreCheck", "check_database"]

_REPORT_SECONDS: Final = 0.1
_NAMES: Final = 2
"""Hash functions with which the gateway names uploads: a payload that no tree names gets both names."""
_NAMING: Final = frozenset({None, Family.ROOTS, Family.PAYLOADS, Family.RECORDS})
"""Families whose lost rows nothing else names; None is any."""


def check_database(
    path: Path, report: ProgressCallback, on_read: Callable[[int], None] = lambda size: None
) -> CheckResult:
    """Check the database in a directory to which nothing writes, or a snapshot of one.

    Reads pages twice and everything else once; if something is damaged, pages once more for each level of pages.
    O(bytes) hashing. `coregw.upkeep.integrity.pages` and `coregw.upkeep.integrity.payloads` say what bounds the memory.

    Args:
        path: The directory of the database.
        report: Called often, with how far the check is.
        on_read: Called with the number of bytes of each read, before it; may wait, to limit the rate.

    Raises:
        OSError: If a file cannot be opened.
    """
    with RawDatabase(path, on_read) as database:
        return StoreCheck(database, report).run()


class Known:
    """A set of keys, as 8 bytes of each: digests do not agree in them by chance."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._known = array("Q", sorted(_tail(key) for key in keys))

    def __contains__(self, key: object) -> bool:
        tail = _tail(key) if isinstance(key, bytes) else 0
        at = bisect_left(self._known, tail)
        return at < len(self._known) and self._known[at] == tail


def _tail(key: bytes) -> int:
    return int.from_bytes(key[-8:], "big")


class StoreCheck:
    """One check of one database.

    Attributes:
        state: The rows that the store keeps about itself.
        pages: The check of its pages.
        payload_harms: What is wrong with payloads, by multihash.
        orphans: Payloads whose rows were lost, by upload id, with the names that a repair gives them.
    """

    def __init__(self, database: Rows, report: ProgressCallback) -> None:
        self._database = database
        self._report = report
        self._progress = Progress(step="reading pages", unit="pages")
        self._reported = 0.0
        self.state = StoreState.read(database)
        self.pages = PageCheck(database, self._advance)
        self._payload_count = 0
        self.payload_harms: dict[bytes, Harm] = {}
        self.orphans: dict[bytes, Orphan] = {}
        self._candidates: dict[bytes, Orphan] = {}
        self._payloads: list[DamagedObject] = []

    def run(self) -> CheckResult:
        """Check everything."""
        self._check_payloads()
        self._begin("checking pages", "pages")
        self.pages.check_digests(self._note_page)
        self._begin("looking for missing pages", "pages")
        self.pages.find_missing(lambda: (key for key, _ in self.roots()))
        self._confirm_missing()
        self._begin("checking records", "records")
        records = sum(1 for row in self._database.rows(Family.RECORDS) if row.newest is not None)
        for family in (Family.META, Family.UPLOADS, Family.CHUNKS):
            for _ in self._database.rows(family):
                self._advance()
        damages = self._database.damages()
        held = Known(key for key, _ in self.roots())
        lost = self._find_orphans(damages)
        if self.pages.harms or self.payload_harms:
            self._begin("looking for what is affected", "pages")
            self.pages.spread(self.payload_harms, held.__contains__)
        affected = {each.root: each for each in self._affected_roots()}
        damaged_pages, missing_pages = self._damaged_pages(), self._missing_pages()
        names = (each.finding(lambda root: root not in held or Cid(root).text in affected) for each in self.names())
        result = CheckResult(
            is_sound=False,
            bytes=self._database.bytes,
            roots=sum(1 for _ in self.roots()),
            pages=self.pages.count,
            payloads=self._payload_count,
            records=records,
            damaged_files=[DamagedFile.of(damage) for damage in damages],
            damaged_pages=damaged_pages,
            missing_pages=missing_pages,
            damaged_payloads=self._payloads,
            lost_payloads=lost,
            lost_records=[_shown(key) for key in unreadable_rows(self._database) if pin_name(key) is None],
            lost_pins=list(self._lost_pins()),
            lost_state=self._lost_state(damages),
            affected_roots=list(affected.values()),
            affected_records=[name for name in names if name is not None],
            unnamed=[_unnamed(damage) for damage in damages if damage.has_rows and damage.family in _NAMING],
            incomplete_roots=[Cid(key).text for key, value in self.roots() if value == INCOMPLETE],
            lost=list(self._noted_as_lost()),
            damaged_guides=self._damaged_guides(),
        )
        found = (damages, damaged_pages, missing_pages, self._payloads, lost, result.affected_roots, result.lost)
        further = (result.affected_records, result.lost_records, result.lost_pins, result.lost_state)
        is_sound = not any((*found, *further, result.damaged_guides))
        return msgspec.structs.replace(result, is_sound=is_sound)

    # --- payloads -----------------------------------------------------------------------------------------------------

    def _check_payloads(self) -> None:
        self._begin("checking payloads", "payloads")
        for payload in payloads_by_upload(self._database):
            self._advance()
            what = payload.what
            if what is None:
                self._payload_count += 1
            if what is None and payload.is_intact:
                continue
            self.payload_harms[payload.multihash] = Harm.UNREADABLE if what is None else Harm.LOST_CONTENT
            finding = DamagedObject(
                cid=payload_cid(payload.multihash),
                what=what or "it can only be read by a repair",
                is_recoverable=what is None,
            )
            self._payloads.append(finding)

    def _find_orphans(self, damages: list[Damage]) -> list[DamagedObject]:
        """Find payloads whose rows were lost by their chunks, and note the names that a repair gives them."""
        if not any(damage.has_rows and damage.family in (None, Family.PAYLOADS) for damage in damages):
            return []
        self._begin("looking for payloads without rows", "payloads")
        known = {row.key for row in self._database.rows(Family.UPLOADS) if row.newest is not None}
        for row in self._database.rows(Family.PAYLOADS):
            found = payload_of(row)
            if found is not None:
                known.add(found[0].upload_id)
        for orphan in orphans(self._database, known):
            self._advance()
            self.orphans[orphan.upload] = orphan._replace(names=orphan.names[:_NAMES])
            self._candidates |= dict.fromkeys(orphan.names, orphan)
        dated = self._dated_payloads()
        for multihash in dated:
            if (named := self._candidates.get(multihash)) is not None:
                self.orphans[named.upload] = named._replace(names=[multihash])
        if self.orphans:
            for _, links in self.pages.links():
                for multihash in links.payloads:
                    if (named := self._candidates.get(multihash)) is not None:
                        self.orphans[named.upload] = named._replace(names=[multihash])
        names = [name for orphan in self.orphans.values() for name in orphan.names]
        self.payload_harms |= dict.fromkeys(names, Harm.UNREADABLE)
        lost = [name for name in dated if name not in self._candidates]
        self.payload_harms |= dict.fromkeys(lost, Harm.LOST_CONTENT)
        what = "its row is lost; a repair finds it by its bytes"
        recoverable = [DamagedObject(cid=payload_cid(name), what=what, is_recoverable=True) for name in names]
        return recoverable + [
            DamagedObject(cid=payload_cid(name), what="its row and its bytes are lost") for name in lost
        ]

    def _dated_payloads(self) -> list[bytes]:
        """The multihashes of payloads without a row of which the date is known."""
        prefix = payload_date(b"").key
        rows = self._database.rows(Family.META, prefix, bytes((prefix[0] + 1,)))
        held = self.held_payloads()
        dated = (row.key[len(prefix) :] for row in rows if row.newest is not None)
        return [multihash for multihash in dated if hasher_of(multihash) is not None and multihash not in held]

    def held_payloads(self) -> Known:
        """The multihashes of payloads that have a row. 8 bytes of memory for each."""
        rows = self._database.rows(Family.PAYLOADS)
        return Known(row.key for row in rows if payload_of(row) is not None)

    def _noted_as_lost(self) -> Iterator[str]:
        """Payloads that a repair could not copy, and which are not stored since."""
        rows = self._database.rows(Family.RECORDS, LOST, bytes((LOST[0] + 1,)))
        noted = [row.key[1:] for row in rows if row.newest is not None]
        if noted:
            held = self.held_payloads()
            yield from (payload_cid(key) for key in noted if key not in held)

    def _lost_pins(self) -> Iterator[str]:
        """Pins of which only the name is readable, and those that a repair has noted."""
        names = (pin_name(key) for key in unreadable_rows(self._database))
        yield from (name for name in names if name is not None)
        for row in self._database.rows(Family.RECORDS, LOST_PINS, bytes((LOST_PINS[0] + 1,))):
            if row.newest is not None:
                yield pin_name(row.key) or row.key.hex()

    def _note_page(self, digest: bytes, page: StoredPage) -> None:
        """Note a page that matches its digest."""

    def _confirm_missing(self) -> None:
        """Forget missing pages that are there: none, unless the store changes while it is checked."""

    # --- pages and roots ----------------------------------------------------------------------------------------------

    def roots(self) -> Iterator[tuple[bytes, bytes]]:
        """Iterate over the held roots (binary CIDs) and the values of their rows, without those that have expired."""
        for row in self._database.rows(Family.ROOTS):
            if row.newest is not None and row.newest.value is not None:
                stored = RootRow.decode(bytes(row.newest.value))
                if self.state.is_held(stored.date):
                    yield row.key, stored.value

    def unreadable_roots(self) -> Iterator[bytes]:
        """Iterate over the roots whose rows only a repair can read, as far as these may be right."""
        for row in self._database.rows(Family.ROOTS):
            if row.newest is None and not row.is_deleted and is_root(row.key):
                yield row.key

    def _affected_roots(self) -> Iterator[AffectedRoot]:
        for key, _ in self.roots():
            if harm := self.pages.harms.get(key[-32:]):
                is_complete, is_recoverable = not harm & Harm.LOST_PAGE, harm == Harm.UNREADABLE
                yield AffectedRoot(root=Cid(key).text, is_complete=is_complete, is_recoverable=is_recoverable)
        for key in self.unreadable_roots():
            yield AffectedRoot(root=Cid(key).text, is_complete=True, is_recoverable=True)

    def _damaged_pages(self) -> list[DamagedObject]:
        harms = self.pages.harms
        trees = {key[-32:]: key for key, _ in self.roots() if key[-32:] in self.pages.damaged}
        if self.pages.damaged:
            for above, links in self.pages.links():
                if above in harms:
                    trees |= {digest: links.root for digest in links.pages if digest in self.pages.damaged}
        return [
            DamagedObject(
                cid=page_cid(trees[digest], digest) if digest in trees else digest.hex(),
                what=what,
                is_recoverable=harms.get(digest) == Harm.UNREADABLE,
            )
            for digest, what in self.pages.damaged.items()
        ]

    def _lost_state(self, damages: list[Damage]) -> list[str]:
        return self.state.lost(is_damaged=any(each.has_rows and each.family == Family.META for each in damages))

    def _damaged_guides(self) -> list[DamagedObject]:
        return []  # a database of files has none

    def _missing_pages(self) -> list[DamagedObject]:
        """The missing pages that a held root needs: an upload that was not finished may lack others."""
        if not self.pages.missing:
            return []
        harms = self.pages.harms
        reached = {key[-32:] for key, _ in self.roots() if key[-32:] in harms}
        size = -1
        while len(reached) != size:
            size = len(reached)
            for digest, links in self.pages.links():
                if digest in reached:
                    reached.update(below for below in links.pages if below in harms)
        missing = self.pages.missing.items()
        return [
            DamagedObject(cid=page_cid(tree, digest), what="it is missing")
            for digest, tree in missing
            if digest in reached
        ]

    # --- names --------------------------------------------------------------------------------------------------------

    def names(self) -> Iterator[Published]:
        """Iterate over the published names."""
        return published(self._database)

    # --- progress -----------------------------------------------------------------------------------------------------

    def _begin(self, step: str, unit: str) -> None:
        self._progress = Progress(step=step, unit=unit)
        self._report(self._progress)

    def _advance(self) -> None:
        progress = self._progress
        self._progress = Progress(step=progress.step, done=progress.done + 1, unit=progress.unit)
        now = time.monotonic()
        if now - self._reported >= _REPORT_SECONDS:
            self._reported = now
            self._report(self._progress)


def _unnamed(damage: Damage) -> str:
    kind = f"{damage.family} rows" if damage.family is not None else "rows"
    kind += " (published names, pins)" if damage.family is Family.RECORDS else ""
    return f"{damage.file}, bytes {damage.start:,} to {damage.end:,}: {damage.what}; {kind} may be lost"


def _shown(key: bytes) -> str:
    """A key of `Table.RECORDS` for a person: its owner and the rest as hex."""
    return f"{key[:1].decode('latin-1')} {key[1:].hex()}"
