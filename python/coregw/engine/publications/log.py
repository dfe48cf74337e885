"""The tree of a name's log, as rows of `Table.RECORDS` that are written with the publications.

```
t scope 00 name 00 level (1 byte) index (8 bytes)   -> the hash of a complete subtree
c scope 00 name 00                                  -> the newest signed checkpoint, a note
```

A name's revisions alone determine its tree (`rows_of_history`). Rows are computed from them when revisions are restored
and when a store is repaired, never by a reader: what is missing is damage. An empty row counts as missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from coregw.engine.publications.records import Record, decode_record, revision_key
from coregw.errors import InvalidInput, StoreDamaged
from coregw.store import Store, Table
from coregw.tlog.checkpoint import Checkpoint
from coregw.tlog.entry import freeze_entry, publication_entry
from coregw.tlog.note import Note
from coregw.tlog.tree import Node, consistency_path, cover, inclusion_path, leaf_hash, node_hash, root_of

__all__ = ["NameLog", "checkpoint_key", "node_key", "root_of_rows", "rows_of_history", "signed_checkpoint"]

_REVISIONS_AT_ONCE: Final = 1000


def checkpoint_key(scope: str, name: str) -> bytes:
    """The key of a name's newest signed checkpoint."""
    return b"c" + scope.encode() + b"\0" + name.encode() + b"\0"


def signed_checkpoint(scope: str, name: str, row: bytes) -> Checkpoint:
    """Return the checkpoint in a row; `StoreDamaged` if it is malformed. No signature is verified."""
    try:
        return Checkpoint.parse(Note.parse(row.decode()).text)
    except (InvalidInput, UnicodeDecodeError) as error:
        raise StoreDamaged(f"the signed checkpoint of {scope}/{name} is malformed: {error}") from None


def node_key(scope: str, name: str, node: Node) -> bytes:
    """The key of a complete subtree of a name's log."""
    return b"t" + scope.encode() + b"\0" + name.encode() + b"\0" + bytes([node.level]) + node.number.to_bytes(8, "big")


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
