"""Published names as the rows of a store have them: whether revisions, log and signed checkpoint agree."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final

from coregw._core import Cid
from coregw.engine.records import (
    CHECKPOINTS,
    LOG,
    NEWEST,
    REVISIONS,
    Record,
    decode_record,
    record_key,
    revision_key,
    root_of_rows,
    rows_of_history,
    signed_checkpoint,
)
from coregw.errors import StoreDamaged
from coregw.upkeep.findings import AffectedRecord

__all__ = ["CheckedRow", "PublishedName", "published", "rows_of_name"]

_REST_BYTES: Final = {NEWEST: 0, CHECKPOINTS: 0, REVISIONS: 8, LOG: 9}
"""The kinds of rows of a name, and what follows it in their keys: a revision; a level and an index."""

CheckedRow = tuple[bytes, bytes | None]
"""The key and the value of a row; None if the value cannot be read, and then the key may be wrong as well."""


class PublishedName:
    """What the rows of a store say of one published name.

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

    def __init__(self, key: bytes, rows: Mapping[bytes, Sequence[CheckedRow]]) -> None:
        scope, name = (part.decode("utf-8", "replace") for part in key.split(b"\0", 2)[:2])
        self.scope, self.name = scope, name
        self.key = key
        decoded = (_decoded(row) for row in rows.get(REVISIONS, ()))
        self.revisions = {each.revision: each for each in decoded if each is not None}
        last = next((_decoded(row) for row in rows.get(NEWEST, ())), None)
        highest = max(self.revisions, default=0)
        self.newest = last
        self.what: str | None = None
        self.log = {row: value for row, value in rows.get(LOG, ()) if value}
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

    def _missigned(self, rows: Sequence[CheckedRow]) -> str | None:
        """What is wrong with the signed checkpoint, if there is one."""
        value = next((value for _, value in rows), None)
        if value is None:
            return None
        try:
            head = signed_checkpoint(self.scope, self.name, value)
        except StoreDamaged:
            return "its signed checkpoint is malformed"
        leaves = 0 if self.newest is None else self.newest.revision + self.newest.frozen
        if head.size > leaves:
            return f"its signed checkpoint has {head.size} leaves, and its history {leaves}: it was rolled back"
        if root_of_rows(self.scope, self.name, self.log, head.size) not in (None, head.root):
            return f"its signed checkpoint of {head.size} leaves is of another history"
        return None

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


def published(rows_of: Callable[[bytes], Iterable[CheckedRow]]) -> Iterator[PublishedName]:
    """Iterate over the published names, in the order of their keys. Memory: the revisions and the log of one name.

    Args:
        rows_of: Returns the rows of `Table.RECORDS` whose keys begin with a prefix, in key order.
    """
    named = [_by_name(kind, rows_of(kind)) for kind in _REST_BYTES]
    for key, group in groupby(merge(*named, key=itemgetter(0)), key=itemgetter(0)):
        rows = {kind: each for _, kind, each in group}
        if rows.get(NEWEST) or any(value is not None for _, value in rows.get(REVISIONS, ())):
            yield PublishedName(key, rows)


def rows_of_name(key: bytes, rows_of: Callable[[bytes], Iterable[CheckedRow]]) -> dict[bytes, list[CheckedRow]]:
    """Read the rows of one name by kind; `key` is that of `PublishedName`."""
    return {kind: list(rows_of(kind + key)) for kind in _REST_BYTES}


def _by_name(kind: bytes, rows: Iterable[CheckedRow]) -> Iterator[tuple[bytes, bytes, list[CheckedRow]]]:
    """Iterate over (scope 00 name 00, kind, rows)."""
    for key, group in groupby((row for row in rows if _name_of(row[0])), key=lambda row: _name_of(row[0])):
        yield key, kind, list(group)


def _name_of(key: bytes) -> bytes:
    """The part of a key that names scope and name; empty if it does not."""
    scope, _, rest = key[1:].partition(b"\0")
    name, zero, rest = rest.partition(b"\0")
    return scope + b"\0" + name + b"\0" if scope and name and zero and len(rest) == _REST_BYTES[key[:1]] else b""


def _decoded(row: CheckedRow) -> Record | None:
    """Return the record of a row; None if it is not readable, or that of another key."""
    key, value = row
    if value is None:
        return None
    try:
        record = decode_record(value)
    except StoreDamaged:
        return None
    expected = (
        record_key(record.scope, record.name)
        if key[:1] == NEWEST
        else revision_key(record.scope, record.name, record.revision)
    )
    return record if key == expected else None
