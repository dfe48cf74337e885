"""Check of a RocksDB store by reading its files.

A repair notes what it could not copy in the store, so that `coregw heal` knows what to fetch: a payload as a row
``l multihash`` of `Table.RECORDS`. A root whose tree is not complete keeps its row in `Table.ROOTS`, with
`coregw.engine.pages.INCOMPLETE` as its value.

After damage nothing tells the two apart. Another gateway may: what it holds can be fetched.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from array import array
from asyncio.subprocess import DEVNULL, PIPE
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec

from coregw._core import Cid
from coregw.engine.pages import INCOMPLETE
from coregw.engine.records import (
    Record,
    decode_record,
    record_key,
    revision_key,
    root_of_rows,
    rows_of_history,
    signed_checkpoint,
)
from coregw.errors import StoreDamaged, Unavailable
from coregw.messages.management import Progress, ProgressCallback
from coregw.store.rocksdb.layout import Family, RootRow, payload_date
from coregw.store.rocksdb.salvage import RawDatabase, RawRow, RowSource, StoreState
from coregw.store.rocksdb.wal import Damage
from coregw.upkeep.findings import (
    AffectedRecord,
    AffectedRoot,
    CheckResult,
    DamagedFile,
    DamagedObject,
    page_cid,
    payload_cid,
)
from coregw.upkeep.page_check import Harm, PageCheck, StoredPage, is_root
from coregw.upkeep.payload_check import Orphan, hasher_of, orphans, payload_of, payloads_by_upload
from coregw.upkeep.pins import LOST_PINS, PINS, pin_name, pinned_root

__all__ = [
    "CHECKPOINTS",
    "LOG",
    "LOST",
    "NEWEST",
    "REVISIONS",
    "Known",
    "Published",
    "RateLimiter",
    "StoreCheck",
    "absent_rows",
    "absent_targets",
    "check_database",
    "check_in_process",
    "lost_key",
    "published",
    "unreadable_rows",
]

LOST: Final = b"l"
"""The first byte of the keys that note lost payloads."""

NEWEST: Final = b"n"

REVISIONS: Final = b"r"

CHECKPOINTS: Final = b"c"

LOG: Final = b"t"

_REST_BYTES: Final = {NEWEST: 0, CHECKPOINTS: 0, REVISIONS: 8, LOG: 9}
"""The kinds of rows of a name, and what follows it in their keys: a revision; a level and an index."""


def lost_key(multihash: bytes) -> bytes:
    """Return the key that notes a lost payload, by its binary multihash."""
    return LOST + multihash


class Published:
    """What the files say of one published name.

    Args:
        key: Its scope and name, each ended by a byte 00.
        rows: Its rows by kind; at least one of `NEWEST` or `REVISIONS`.

    Attributes:
        scope: The scope.
        name: The name.
        newest: Its newest revision, None if no revision is readable.
        what: What is wrong; None if nothing is.
        revisions: The readable revisions by number.
        log: The rows of the log: those that follow from the revisions if these are a whole history, else what there is.
    """

    def __init__(self, key: bytes, rows: Mapping[bytes, Sequence[RawRow]]) -> None:
        scope, name = (part.decode("utf-8", "replace") for part in key.split(b"\0", 2)[:2])
        self.scope, self.name = scope, name
        self.key = key
        decoded = (self._decoded(row) for row in rows.get(REVISIONS, ()))
        self.revisions = {each.revision: each for each in decoded if each is not None}
        last = next((self._decoded(row) for row in rows.get(NEWEST, ())), None)
        highest = max(self.revisions, default=0)
        self.newest = last
        self.what: str | None = None
        log = (row for row in rows.get(LOG, ()) if row.newest is not None and row.newest.value)
        self.log = {row.key: bytes(row.newest.value or b"") for row in log if row.newest is not None}
        if last is None or highest > last.revision:
            self.newest = self.revisions.get(highest)
            self.what = "its newest revision may be lost"
        elif last.revision not in self.revisions:
            self.revisions[last.revision] = last
            self.what = f"revision {last.revision} is missing from its history"
        elif last != self.revisions[last.revision]:
            self.what = f"its newest revision is not revision {last.revision} of its history"
        missing = (
            []
            if self.newest is None
            else [number for number in range(1, self.newest.revision + 1) if number not in self.revisions]
        )
        if missing:
            self.what = f"{len(missing)} revisions are lost, the first is {missing[0]}"
        else:
            self.what = self.what or self._broken() or self._misrecorded()
        self.what = self.what or self._missigned(rows.get(CHECKPOINTS, ()))

    def _broken(self) -> str | None:
        """What is wrong with the chain of all revisions."""
        before: Record | None = None
        for _, each in sorted(self.revisions.items()):
            if each.previous_root != (None if before is None else before.root):
                return f"revision {each.revision} does not follow the one before: it names another previous root"
            if before is not None and before.frozen:
                return f"revision {before.revision} is frozen, but another one follows"
            if each.frozen != (each.frozen_at is not None):
                return f"whether revision {each.revision} is frozen is contradictory"
            before = each
        return None

    def _misrecorded(self) -> str | None:
        """Compute the log of a whole history. Returns what is wrong with its rows."""
        held, history = self.log, (each for _, each in sorted(self.revisions.items()))
        self.log = dict(rows_of_history(self.scope, self.name, history))
        if wrong := sum(self.log.get(key) != value for key, value in held.items()):
            return f"{wrong} hashes of its log do not follow from its revisions"
        if lost := len(self.log) - len(held):
            return f"{lost} hashes of its log are lost"
        return None

    def _missigned(self, rows: Sequence[RawRow]) -> str | None:
        """What is wrong with the signed checkpoint, if there is one."""
        entry = next((row.newest for row in rows), None)
        if entry is None or entry.value is None:
            return None
        try:
            head = signed_checkpoint(self.scope, self.name, bytes(entry.value))
        except StoreDamaged:
            return "its signed checkpoint is malformed"
        leaves = 0 if self.newest is None else self.newest.revision + self.newest.frozen
        if head.size > leaves:
            return f"its signed checkpoint has {head.size} leaves, and its history {leaves}: it was rolled back"
        if root_of_rows(self.scope, self.name, self.log, head.size) not in (None, head.root):
            return f"its signed checkpoint of {head.size} leaves is of another history"
        return None

    def _decoded(self, row: RawRow) -> Record | None:
        """Return the record of a row; None if it is not readable, or that of another key."""
        entry = row.newest
        if entry is None or entry.value is None:
            return None
        try:
            record = decode_record(bytes(entry.value))
        except StoreDamaged:
            return None
        expected = (
            record_key(record.scope, record.name)
            if row.key[:1] == NEWEST
            else revision_key(record.scope, record.name, record.revision)
        )
        return record if row.key == expected else None

    def finding(self, is_affected: Callable[[bytes], bool]) -> AffectedRecord | None:
        """What there is to report; `is_affected` says it of a root (binary CID)."""
        root = None if self.newest is None else self.newest.root
        what = self.what
        if what is None and root is not None and is_affected(root):
            what = "its root is damaged or missing"
        if what is None:
            return None
        return AffectedRecord(
            scope=self.scope, name=self.name, root=None if root is None else Cid(root).text, what=what
        )


def published(database: RowSource) -> Iterator[Published]:
    """Iterate over the published names, in the order of their keys. Memory: the revisions and the log of one name."""
    named = [_by_name(database, kind) for kind in _REST_BYTES]
    for key, group in groupby(merge(*named, key=itemgetter(0)), key=itemgetter(0)):
        rows = {kind: each for _, kind, each in group}
        if rows.get(NEWEST) or any(row.newest is not None for row in rows.get(REVISIONS, ())):
            yield Published(key, rows)


def unreadable_rows(database: RowSource) -> Iterator[bytes]:
    """Iterate over the keys of rows of other services whose values cannot be trusted."""
    for row in database.rows(Family.RECORDS):
        if row.newest is None and not row.is_deleted and row.key[:1] not in (NEWEST, REVISIONS):
            yield row.key


def _by_name(database: RowSource, kind: bytes) -> Iterator[tuple[bytes, bytes, list[RawRow]]]:
    """Iterate over (scope 00 name 00, kind, rows)."""
    end = bytes((kind[0] + 1,))
    rows = (row for row in database.rows(Family.RECORDS, kind, end) if not row.is_deleted and _name_of(row.key))
    for key, group in groupby(rows, key=lambda row: _name_of(row.key)):
        yield key, kind, list(group)


def _name_of(key: bytes) -> bytes:
    """The part of a key that names scope and name; empty if it does not."""
    scope, _, rest = key[1:].partition(b"\0")
    name, zero, rest = rest.partition(b"\0")
    return scope + b"\0" + name + b"\0" if scope and name and zero and len(rest) == _REST_BYTES[key[:1]] else b""


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
    O(bytes) hashing. `coregw.upkeep.page_check` and `coregw.upkeep.payload_check` say what bounds the memory.

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

    def __init__(self, database: RowSource, report: ProgressCallback) -> None:
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


_Name = tuple[bool, bytes]
"""Whether it is a root, and its binary CID, or its multihash."""

_IDENTITY: Final = 0

_REMEMBERED: Final = 1 << 20
"""CIDs of which is remembered that they were returned; more than that may come twice."""


def absent_targets(path: Path, named: Iterable[str], report: ProgressCallback) -> Iterator[str]:
    """Iterate over the CIDs of payloads and roots that a database does not hold, though something names them.

    These are the leaves of its trees, the revisions of published records, its pins, and `named`. Reads all pages, and
    the rows of payloads, roots and records. Memory: 8 bytes for each payload and root that is held, and 1 Mi CIDs.

    Args:
        path: The directory of a database to which nothing writes, or a snapshot of one.
        named: Further CIDs that may be absent.
        report: Called often, with how far it is.

    Raises:
        InvalidInput: `named` has something that is not a CID.
        OSError: A file cannot be opened.
    """
    with RawDatabase(path) as database:
        yield from absent_rows(database, StoreCheck(database, report), named)


def absent_rows(database: RowSource, check: StoreCheck, named: Iterable[str]) -> Iterator[str]:
    """Do what `absent_targets` does, for rows and a check of them."""
    payloads, roots = check.held_payloads(), Known(key for key, _ in check.roots())
    returned: set[bytes] = set()
    for of_root, key in chain(_given(named), _recorded(database), _linked(check)):
        if key in returned or key in (roots if of_root else payloads):
            continue
        if len(returned) >= _REMEMBERED:
            returned.clear()
        returned.add(key)
        yield Cid(key).text if of_root else payload_cid(key)


def _given(named: Iterable[str]) -> Iterator[_Name]:
    for cid in map(Cid, named):
        if cid.kind != "cas":
            yield True, bytes(cid)
        elif cid.hash_code != _IDENTITY:
            yield False, cid.multihash


def _recorded(database: RowSource) -> Iterator[_Name]:
    """The roots of all revisions of published records, and of pins."""
    for name in published(database):
        for record in name.revisions.values():
            yield True, record.root
    for row in database.rows(Family.RECORDS, PINS, bytes((PINS[0] + 1,))):
        if row.newest is not None and row.newest.value is not None:
            yield True, pinned_root(bytes(row.newest.value))


def _linked(check: StoreCheck) -> Iterator[_Name]:
    """What the leaves of all trees name."""
    for _, links in check.pages.links():
        for root in links.roots:
            yield True, root
        for multihash in links.payloads:
            yield False, multihash


_LINE_BYTES: Final = 1 << 30

_END_SECONDS: Final = 10.0


class _Line(msgspec.Struct, frozen=True):
    progress: Progress | None = None
    result: CheckResult | None = None


async def check_in_process(
    data: Path, rate: int | None, report: Callable[[Progress], None], variables: Mapping[str, str] | None = None
) -> CheckResult:
    """Run ``coregw fsck`` on a store, which may be in use; cancelling it ends the process.

    Args:
        data: The data directory.
        rate: The maximum number of bytes to read per second; None for no limit.
        report: Called with the progress.
        variables: Environment variables beside those of this process, which name a store that is shared.

    Raises:
        Unavailable: The store cannot be checked, or the process has ended otherwise.
    """
    command = [sys.executable, "-P", "-m", "coregw", "fsck", "--lines", "--data", str(data)]
    if rate is not None:
        command += ["--rate", str(rate)]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        limit=_LINE_BYTES,
        start_new_session=True,
        env=os.environ | dict(variables or {}),
    )
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    try:
        async for line in process.stdout:
            message = msgspec.json.decode(line, type=_Line)
            if message.result is not None:
                return message.result
            if message.progress is not None:
                report(message.progress)
        reason = (await process.stderr.read()).decode("utf-8", "replace").strip()
        raise Unavailable(f"the store cannot be checked: {reason or f'exit code {await process.wait()}'}")
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process that may still run, and let it remove its snapshot."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        async with asyncio.timeout(_END_SECONDS):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


class RateLimiter:
    """Called with the bytes of each read, waits so that no more than a number of bytes is read per second.

    Args:
        bytes_per_second: The bound, at least 1. A single larger read takes as long as its bytes do.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    def __call__(self, size: int) -> None:
        """Wait until `size` more bytes may be read. Blocks."""
        now = time.monotonic()
        if self._free_at > now:
            time.sleep(self._free_at - now)
        self._free_at = max(now, self._free_at) + size / self._rate
