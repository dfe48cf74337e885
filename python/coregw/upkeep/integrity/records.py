"""Checking records: the revisions of each published name, and the rows of other services.

A repair notes what it could not copy in the store, so that `coregw heal` knows what to fetch: a payload as a row
``l multihash`` of `Table.RECORDS`. A root whose tree is not complete keeps its row in `Table.ROOTS`, with
`coregw.engine.roots.INCOMPLETE` as its value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

from coregw._core import Cid
from coregw.engine.publications.records import Record, decode_record
from coregw.errors import StoreDamaged
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.raw.database import RawRow, Rows
from coregw.upkeep.integrity.findings import AffectedRecord

__all__ = ["LOST", "NEWEST", "REVISIONS", "Published", "lost_key", "published", "unreadable_rows"]

LOST: Final = b"l"
"""The first byte of the keys that note lost payloads."""

NEWEST: Final = b"n"
REVISIONS: Final = b"r"
_REVISION_BYTES: Final = 8


def lost_key(multihash: bytes) -> bytes:
    """Return the key that notes a lost payload, by its binary multihash."""
    return LOST + multihash


class Published:
    """What the files say of one published name.

    Attributes:
        scope: The scope.
        name: The name.
        newest: Its newest revision, None if no revision is readable.
        what: What is wrong; None if nothing is.
        revisions: The readable revisions by number.
    """

    def __init__(self, key: bytes, newest: RawRow | None, revisions: list[RawRow]) -> None:
        scope, name = (part.decode("utf-8", "replace") for part in key.split(b"\0", 2)[:2])
        self.scope, self.name = scope, name
        self.revisions = {each.revision: each for each in map(_decoded, revisions) if each is not None}
        last = None if newest is None else _decoded(newest)
        highest = max(self.revisions, default=0)
        self.newest = last
        self.what: str | None = None
        if last is None or highest > last.revision:
            self.newest = self.revisions.get(highest)
            self.what = "its newest revision may be lost"
        elif last.revision not in self.revisions:
            self.revisions[last.revision] = last
            self.what = f"revision {last.revision} is missing from its history"
        missing = (
            []
            if self.newest is None
            else [number for number in range(1, self.newest.revision + 1) if number not in self.revisions]
        )
        if missing:
            self.what = f"{len(missing)} revisions are lost, the first is {missing[0]}"

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


def published(database: Rows) -> Iterator[Published]:
    """Iterate over the published names, in the order of their keys. Memory: the revisions of one name."""
    newest = _by_name(database, NEWEST)
    revisions = _by_name(database, REVISIONS)
    one, other = next(newest, None), next(revisions, None)
    while one is not None or other is not None:
        key = min(each[0] for each in (one, other) if each is not None)
        first: RawRow | None = None
        rows: list[RawRow] = []
        if one is not None and one[0] == key:
            first, one = one[1][0], next(newest, None)
        if other is not None and other[0] == key:
            rows, other = other[1], next(revisions, None)
        if first is not None or any(row.newest is not None for row in rows):
            yield Published(key, first, rows)


def unreadable_rows(database: Rows) -> Iterator[bytes]:
    """Iterate over the keys of rows of other services whose values cannot be trusted."""
    for row in database.rows(Family.RECORDS):
        if row.newest is None and not row.is_deleted and row.key[:1] not in (NEWEST, REVISIONS):
            yield row.key


def _by_name(database: Rows, owner: bytes) -> Iterator[tuple[bytes, list[RawRow]]]:
    """Iterate over (scope 00 name 00, rows)."""
    end = bytes((owner[0] + 1,))
    rows = (row for row in database.rows(Family.RECORDS, owner, end) if not row.is_deleted and _name_of(row.key))
    for key, group in groupby(rows, key=lambda row: _name_of(row.key)):
        yield key, list(group)


def _name_of(key: bytes) -> bytes:
    """The part of a key that names scope and name; empty if it does not."""
    scope, _, rest = key[1:].partition(b"\0")
    name, zero, revision = rest.partition(b"\0")
    is_form = bool(scope and name and zero) and len(revision) == (_REVISION_BYTES if key[:1] == REVISIONS else 0)
    return scope + b"\0" + name + b"\0" if is_form else b""


def _decoded(row: RawRow) -> Record | None:
    entry = row.newest
    if entry is None or entry.value is None:
        return None
    try:
        return decode_record(bytes(entry.value))
    except StoreDamaged:
        return None
