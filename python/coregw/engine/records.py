"""Published records as rows: revisions, freezing, and the log of a name.

`coregw.engine.publications` applies these functions to a store.

```
n scope 00 name 00                      -> the newest revision of a name
r scope 00 name 00 revision (8 bytes)   -> each revision of it
```

Scopes and names contain no byte 00, so it ends them, and keys are in the byte order of scope, name and revision. A
signed name has a log besides:

```
t scope 00 name 00 level (1 byte) index (8 bytes)   -> the hash of a complete subtree
c scope 00 name 00                                  -> the newest signed checkpoint, a note
```

A name's revisions alone determine its tree (`rows_of_history`). Rows are computed from them when revisions are restored
and when a store is repaired, never by a reader: what is missing is damage. An empty row counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

import msgspec

from coregw.errors import Conflict, InvalidInput, RecordNotFound, StoreDamaged
from coregw.messages.common import check_names
from coregw.store import Store, Table
from coregw.tlog.checkpoint import Checkpoint, freeze_entry, publication_entry
from coregw.tlog.note import Note
from coregw.tlog.tree import Node, consistency_path, cover, inclusion_path, leaf_hash, node_hash, root_of
from coregw.undecodable import UNDECODABLE

__all__ = [
    "CHECKPOINTS",
    "LOG",
    "NEWEST",
    "REVISIONS",
    "NameLog",
    "Record",
    "RecordTable",
    "check_expected",
    "checkpoint_key",
    "decode_record",
    "encode_record",
    "existing",
    "frozen_record",
    "next_record",
    "node_key",
    "record_key",
    "require_unfrozen",
    "restored_record",
    "revision_key",
    "root_of_rows",
    "rows_of_history",
    "scope_prefix",
    "signed_checkpoint",
    "utc",
    "without_freeze",
]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One revision of a published record (protocol section 5, *published record*).

    Attributes:
        scope: The scope, ``[A-Za-z0-9._-]{1,128}`` but not ``.`` or ``..``.
        name: The name in that scope, of the same form.
        root: The binary root CID that is published.
        revision: Counts the publications of this name from 1, also when the same root is published again.
        previous_root: The binary root CID of the previous revision, or None for revision 1.
        published_at: When this revision was published, not before the previous one; aware, in UTC.
        frozen: Whether the name was frozen while this revision was its newest.
        frozen_at: When it was frozen, or None.
    """

    scope: str
    name: str
    root: bytes
    revision: int
    previous_root: bytes | None
    published_at: datetime
    frozen: bool = False
    frozen_at: datetime | None = None


# --- layout -----------------------------------------------------------------------------------------------------------

NEWEST: Final = b"n"
"""The first byte of the keys of newest revisions."""

REVISIONS: Final = b"r"
"""The first byte of the keys of revisions."""

CHECKPOINTS: Final = b"c"
"""The first byte of the keys of signed checkpoints."""

LOG: Final = b"t"
"""The first byte of the keys of logs."""

_DECODER: Final = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """Encode the value of a row."""
    return msgspec.msgpack.encode(record)


def decode_record(value: bytes) -> Record:
    """Decode the value of a row; `StoreDamaged` if it is malformed."""
    try:
        return _DECODER.decode(value)
    except UNDECODABLE as error:
        raise StoreDamaged(f"the row of a published record is malformed: {error}") from error


def scope_prefix(scope: str) -> bytes:
    """The prefix of `record_key` for all names of a scope."""
    return NEWEST + scope.encode() + b"\0"


def record_key(scope: str, name: str) -> bytes:
    """The key of a name's newest revision. Within a scope, keys are in the byte order of names."""
    return scope_prefix(scope) + name.encode() + b"\0"


def revision_key(scope: str, name: str, revision: int) -> bytes:
    """The key of one revision."""
    return REVISIONS + scope.encode() + b"\0" + name.encode() + b"\0" + revision.to_bytes(8, "big")


# --- checks -----------------------------------------------------------------------------------------------------------


def check_expected(expected_revision: int | None) -> None:
    """Raise `InvalidInput` if no record can have the expected revision."""
    if expected_revision is not None and expected_revision < 0:
        raise InvalidInput(f"expected_revision {expected_revision}: must not be negative")


def utc(now: datetime) -> datetime:
    """Convert a time to UTC; `InvalidInput` if it is naive."""
    if now.tzinfo is None:
        raise InvalidInput(f"the time {now.isoformat()} has no time zone")
    return now.astimezone(UTC)


# --- rules ------------------------------------------------------------------------------------------------------------


def next_record(
    current: Record | None, scope: str, name: str, root: bytes, expected_revision: int | None, now: datetime
) -> Record:
    """The revision that publishing `root` adds to `current`.

    Raises:
        Conflict: `current` is frozen (code ``record_frozen``), else its revision is not the expected one (code
            ``revision_mismatch``). ``details`` is JSON ``{"revision": <the newest>}``.
    """
    revision = current.revision if current is not None else 0
    details = msgspec.json.encode({"revision": revision})
    if current is not None and current.frozen:
        raise Conflict(
            f"{scope}/{name} is frozen at revision {revision}; nothing was published",
            code="record_frozen",
            details=details,
        )
    if expected_revision is not None and expected_revision != revision:
        raise Conflict(
            f"{scope}/{name} is at revision {revision}, not {expected_revision}; nothing was published",
            code="revision_mismatch",
            details=details,
        )
    return Record(
        scope=scope,
        name=name,
        root=root,
        revision=revision + 1,
        previous_root=current.root if current is not None else None,
        published_at=now if current is None else max(now, current.published_at),
    )


def frozen_record(current: Record, now: datetime) -> Record:
    """`current` frozen at `now`, but not before it was published; `current` itself if it is frozen already."""
    if current.frozen:
        return current
    return msgspec.structs.replace(current, frozen=True, frozen_at=max(now, current.published_at))


def without_freeze(record: Record) -> Record:
    """`record` as it was before it was frozen."""
    return msgspec.structs.replace(record, frozen=False, frozen_at=None)


def require_unfrozen(current: Record | None, newest: Record) -> None:
    """Raise `Conflict` (code ``record_frozen``) if a name was frozen before the revision `newest`."""
    if current is not None and current.frozen and newest.revision > current.revision:
        raise Conflict(
            f"{current.scope}/{current.name} is frozen at revision {current.revision}; nothing was restored",
            code="record_frozen",
            details=msgspec.json.encode({"revision": current.revision}),
        )


def restored_record(held: Record | None, given: Record) -> Record | None:
    """Return what a revision becomes when it is restored; None if it stays as it is.

    Raises:
        Conflict: They are different publications (code ``revision_mismatch``).
    """
    if held is None:
        return given
    if (held.root, held.published_at) != (given.root, given.published_at):
        raise Conflict(
            f"{held.scope}/{held.name}: another revision {held.revision} was published here; nothing was restored",
            code="revision_mismatch",
            details=msgspec.json.encode({"revision": held.revision}),
        )
    return given if given.frozen and not held.frozen else None


def existing(current: Record | None, scope: str, name: str) -> Record:
    """`current`; raises `RecordNotFound` if it is None."""
    if current is None:
        raise RecordNotFound(f"no record {scope}/{name} is published")
    return current


_REVISIONS_AT_ONCE: Final = 1000


def checkpoint_key(scope: str, name: str) -> bytes:
    """The key of a name's newest signed checkpoint."""
    return CHECKPOINTS + scope.encode() + b"\0" + name.encode() + b"\0"


def signed_checkpoint(scope: str, name: str, row: bytes) -> Checkpoint:
    """Return the checkpoint in a row; `StoreDamaged` if it is malformed. No signature is verified."""
    try:
        return Checkpoint.parse(Note.parse(row.decode()).text)
    except (InvalidInput, UnicodeDecodeError) as error:
        raise StoreDamaged(f"the signed checkpoint of {scope}/{name} is malformed: {error}") from None


def node_key(scope: str, name: str, node: Node) -> bytes:
    """The key of a complete subtree of a name's log."""
    return LOG + scope.encode() + b"\0" + name.encode() + b"\0" + bytes([node.level]) + node.number.to_bytes(8, "big")


def rows_of_history(scope: str, name: str, revisions: Iterable[Record]) -> Iterator[tuple[bytes, bytes]]:
    """Yield all rows of a name's tree. O(n) hashes, O(log n) memory.

    Args:
        scope: The scope.
        name: The name.
        revisions: All revisions from 1; if the last one is frozen, its freeze is a leaf, too.

    Raises:
        StoreDamaged: A revision is missing, another one follows a frozen one, or the time of the freeze is missing.
    """
    peaks: list[tuple[int, bytes]] = []  # levels and hashes, left to right
    last: Record | None = None
    for number, record in enumerate(revisions, 1):
        if record.revision != number:
            raise StoreDamaged(f"revision {number} of {scope}/{name} is missing")
        if last is not None and last.frozen:
            raise StoreDamaged(f"revision {last.revision} of {scope}/{name} is frozen, but another one follows")
        last = record
        yield from _appended(scope, name, peaks, number - 1, leaf_hash(_entry_of(record)))
    if last is not None and last.frozen:
        yield from _appended(scope, name, peaks, last.revision, leaf_hash(_freeze_of(last)))


def root_of_rows(scope: str, name: str, rows: Mapping[bytes, bytes], size: int) -> bytes | None:
    """Return the root hash of the tree of the first `size` leaves from rows of a log; None if one is missing."""
    nodes = [rows.get(node_key(scope, name, node)) for node in cover(0, size)]
    return root_of([node for node in nodes if node]) if all(nodes) else None


def _appended(
    scope: str, name: str, peaks: list[tuple[int, bytes]], index: int, leaf: bytes
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the rows that a leaf adds to a tree, whose peaks are changed."""
    level, node = 0, leaf
    yield node_key(scope, name, Node(0, index)), node
    while peaks and peaks[-1][0] == level:
        node = node_hash(peaks.pop()[1], node)
        level += 1
        yield node_key(scope, name, Node(level, index >> level)), node
    peaks.append((level, node))


class NameLog:
    """The tree of one name.

    Args:
        store: The store.
        scope: The scope, which is well-formed.
        name: The name, which is well-formed.
    """

    def __init__(self, store: Store, scope: str, name: str) -> None:
        self._store = store
        self._scope = scope
        self._name = name

    async def rows_of(self, record: Record) -> list[tuple[bytes, bytes]]:
        """Return the rows that a new revision, or the freeze of the newest one, adds to the tree. O(log n).

        If older revisions are lost, the inner nodes above the new leaf are unknown until these are restored.
        """
        index = record.revision if record.frozen else record.revision - 1
        level, rows = 0, []
        node = leaf_hash(_freeze_of(record) if record.frozen else _entry_of(record))
        rows.append((self._key(Node(0, index)), node))
        wanted = [Node(level, (index >> level) - 1) for level in range(_trailing_ones(index))]
        try:
            siblings = await self._hashes(wanted, index)
        except StoreDamaged:
            return rows + [(self._key(Node(each.level + 1, index >> (each.level + 1))), b"") for each in wanted]
        for level, left in enumerate(siblings, 1):
            node = node_hash(left, node)
            rows.append((self._key(Node(level, index >> level)), node))
        return rows

    async def root(self, size: int) -> bytes:
        """Return the root hash of the tree of the first `size` leaves. Raises `StoreDamaged`, as all methods do."""
        return root_of(await self._hashes(cover(0, size), size))

    async def inclusion(self, index: int, size: int) -> list[bytes]:
        """Return the inclusion proof of a leaf."""
        return await self._subtrees([(each.start, each.end) for each in inclusion_path(index, size)], size)

    async def consistency(self, old: int, size: int) -> list[bytes]:
        """Return the consistency proof of two sizes; empty for an `old` of 0, or above `size`."""
        if not 0 < old <= size:
            return []
        seed, siblings = consistency_path(old, size)
        ranges = [(each.start, each.end) for each in siblings]
        return await self._subtrees([seed, *ranges] if seed is not None else ranges, size)

    async def _subtrees(self, ranges: Sequence[tuple[int, int]], size: int) -> list[bytes]:
        """Return the hashes of subtrees, which take O(log n) rows in all."""
        covers = [cover(*each) for each in ranges]
        hashes = iter(await self._hashes([node for each in covers for node in each], size))
        return [root_of([next(hashes) for _ in each]) for each in covers]

    async def _hashes(self, nodes: Sequence[Node], size: int) -> list[bytes]:
        """Return the hashes of complete subtrees among the first `size` leaves."""
        found = await self._store.get(Table.RECORDS, [self._key(node) for node in nodes])
        if not all(found):
            raise StoreDamaged(
                f"the log of {self._scope}/{self._name} has lost hashes of its {size} leaves; "
                "`coregw fsck --repair` computes them"
            )
        return [each for each in found if each]

    async def complete(self, revisions: int) -> None:
        """Compute the rows that are missing from all revisions, durably. O(n).

        Args:
            revisions: The number of the newest revision.

        Raises:
            StoreDamaged: A revision is missing, or a row has another hash than follows from the revisions.
        """
        records: list[Record] = []
        for first in range(1, revisions + 1, _REVISIONS_AT_ONCE):
            numbers = range(first, min(first + _REVISIONS_AT_ONCE, revisions + 1))
            keys = [revision_key(self._scope, self._name, number) for number in numbers]
            records += [decode_record(row) for row in await self._store.get(Table.RECORDS, keys) if row is not None]
        rows = list(rows_of_history(self._scope, self._name, records))
        for at in range(0, len(rows), _REVISIONS_AT_ONCE):
            some = rows[at : at + _REVISIONS_AT_ONCE]
            held = await self._store.get(Table.RECORDS, [key for key, _ in some])
            if any(there and there != row[1] for row, there in zip(some, held, strict=True)):
                raise StoreDamaged(f"the log of {self._scope}/{self._name} is not that of its revisions")
            if missing := [row for row, there in zip(some, held, strict=True) if not there]:
                await self._store.put({Table.RECORDS: missing})

    def _key(self, node: Node) -> bytes:
        return node_key(self._scope, self._name, node)


def _entry_of(record: Record) -> bytes:
    return publication_entry(
        record.scope, record.name, record.revision, record.root, record.previous_root, record.published_at
    )


def _freeze_of(record: Record) -> bytes:
    if record.frozen_at is None:
        raise StoreDamaged(f"{record.scope}/{record.name} is frozen, but not since when")
    return freeze_entry(record.scope, record.name, record.revision, record.frozen_at)


def _trailing_ones(number: int) -> int:
    return (number ^ (number + 1)).bit_length() - 1


class RecordTable:
    """Published records in a store's `Table.RECORDS`, with binary CIDs."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def get(self, scope: str, name: str) -> Record | None:
        """Return the newest revision of a record, or None if the name was never published.

        Raises:
            InvalidInput: `scope` or `name` is not of the form of protocol section 5; so do all methods here.
        """
        check_names(scope, name)
        value = await self._newest(scope, name)
        return None if value is None else decode_record(value)

    async def publish(
        self,
        scope: str,
        name: str,
        root: bytes,
        expected_revision: int | None,
        now: datetime,
        requires: Sequence[bytes] = (),
    ) -> Record:
        """Publish a root as the next revision of a name, durably.

        Args:
            scope: The scope.
            name: The name in it.
            root: The binary root CID.
            expected_revision: The required newest revision, 0 if the name must be new; None accepts any.
            now: The time to record; aware.
            requires: Roots that must be held when the record is written.

        Returns:
            The new revision. Concurrent publications get different ones.

        Raises:
            Conflict: As `coregw.engine.records.next_record`.
            RootNotFound: A required root is not held.
            InvalidInput: Also if `now` is naive or `expected_revision` is negative.
        """
        check_expected(expected_revision)
        now = utc(now)
        return await self._change(
            scope, name, lambda current: next_record(current, scope, name, root, expected_revision, now), requires
        )

    async def freeze(self, scope: str, name: str, now: datetime) -> Record:
        """Freeze a record permanently and durably: nothing is published under its name any more. Idempotent.

        Returns:
            The frozen record; if it was frozen before, unchanged.

        Raises:
            RecordNotFound: The name was never published.
            InvalidInput: Also if `now` is naive.
        """
        now = utc(now)
        return await self._change(scope, name, lambda current: frozen_record(existing(current, scope, name), now))

    async def restore(self, revisions: Sequence[Record]) -> bool:
        """Add the revisions of one name that are missing, as they were published elsewhere; durable on return.

        The newest of them becomes the newest of the name if it is newer. What is there is never replaced, except that
        a revision is frozen if the given one is.

        Args:
            revisions: All of one name, of which there is at least one.

        Returns:
            Whether anything was missing.

        Raises:
            Conflict: Another revision of the same number is there (code ``revision_mismatch``), or the name was frozen
                at an older one (``record_frozen``); nothing was changed.
            RootNotFound: The newest root is not held; nothing was changed.
            InvalidInput: A malformed scope or name.
        """
        newest = max(revisions, key=lambda record: record.revision)
        scope, name = newest.scope, newest.name
        check_names(scope, name)
        while True:
            value = await self._newest(scope, name)
            current = None if value is None else decode_record(value)
            require_unfrozen(current, newest)
            keys = [revision_key(scope, name, each.revision) for each in revisions]
            held = await self._store.get(Table.RECORDS, keys)
            rows = [
                (key, encode_record(merged))
                for key, found, each in zip(keys, held, revisions, strict=True)
                if (merged := restored_record(None if found is None else decode_record(found), each)) is not None
            ]
            if not rows and current is not None and current.revision >= newest.revision:
                await self._complete_log(current)
                return False
            top = newest if current is None or current.revision < newest.revision else current
            if top.revision == newest.revision:
                top = restored_record(current if top is current else None, newest) or top
            if await self._store.compare_and_set(
                Table.RECORDS, record_key(scope, name), value, encode_record(top), rows, [top.root]
            ):
                await self._complete_log(top)
                return True

    async def _complete_log(self, newest: Record) -> None:
        """Compute the rows of a log that are missing, unless revisions are still missing, too."""
        with suppress(StoreDamaged):
            await NameLog(self._store, newest.scope, newest.name).complete(newest.revision)

    async def in_scope(self, scope: str, after: str | None, limit: int) -> list[Record]:
        """List the newest revisions of at most `limit` names of a scope, in byte order of the names.

        Args:
            scope: The scope; an unknown one is empty.
            after: Only names greater than this one, which need not exist; None starts at the first.
            limit: At least 1.
        """
        check_names(scope, *(() if after is None else (after,)))
        start = None if after is None else record_key(scope, after)
        rows = await self._store.list_rows(Table.RECORDS, scope_prefix(scope), start, limit)
        return [decode_record(value) for _, value in rows]

    async def history(self, scope: str, name: str, after: int, limit: int) -> list[Record]:
        """List at most `limit` revisions of a record that are greater than `after`, oldest first.

        Raises:
            RecordNotFound: The name was never published.
            InvalidInput: Also if `limit` is less than 1.
            StoreDamaged: A revision is missing.
        """
        if limit < 1:
            raise InvalidInput(f"the limit of a listing is at least 1, not {limit}")
        newest = existing(await self.get(scope, name), scope, name)
        first = max(after, 0) + 1
        revisions = range(first, min(first + limit, newest.revision + 1))
        keys = [revision_key(scope, name, revision) for revision in revisions]
        values = await self._store.get(Table.RECORDS, keys)
        records = [decode_record(value) for value in values if value is not None]
        if len(records) != len(keys):
            raise StoreDamaged(f"{len(keys) - len(records)} revisions of {scope}/{name} are missing")
        return records

    async def _newest(self, scope: str, name: str) -> bytes | None:
        (value,) = await self._store.get(Table.RECORDS, [record_key(scope, name)])
        return value

    async def _change(
        self, scope: str, name: str, change: Callable[[Record | None], Record], requires: Sequence[bytes] = ()
    ) -> Record:
        """Replace the newest revision by what `change` makes of it; repeated as long as others change it meanwhile."""
        check_names(scope, name)
        key = record_key(scope, name)
        while True:
            value, signed = await self._store.get(Table.RECORDS, [key, checkpoint_key(scope, name)])
            current = None if value is None else decode_record(value)
            record = change(current)
            if record is current:
                return record
            _require_whole(scope, name, current, signed)
            new = encode_record(record)
            further = [(revision_key(scope, name, record.revision), new)]
            further += await NameLog(self._store, scope, name).rows_of(record)
            if await self._store.compare_and_set(Table.RECORDS, key, value, new, further, requires):
                return record


def _require_whole(scope: str, name: str, current: Record | None, signed: bytes | None) -> None:
    """Raise `StoreDamaged` if a signed checkpoint has leaves that a history lacks: the next one would fork the log."""
    size = 0 if current is None else current.revision + current.frozen
    if signed is not None and (expected := signed_checkpoint(scope, name, signed).size) > size:
        raise StoreDamaged(
            f"{scope}/{name} has {size} leaves, but its signed checkpoint {expected}: restore the lost revisions by "
            "`coregw heal`; nothing was published"
        )
