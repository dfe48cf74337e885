"""The tree of a name's log, as rows of `Table.RECORDS` that are written with the publications.

```
t scope 00 name 00 level (1 byte) index (8 bytes)   -> the hash of a complete subtree
c scope 00 name 00                                  -> the newest signed checkpoint, a note
```

A name's revisions alone determine its tree. So rows that are missing, such as those of stores from before there were
logs, are computed from the revisions when they are needed. An empty row counts as missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coregw.engine.publications.records import Record, decode_record, revision_key
from coregw.errors import StoreDamaged
from coregw.store import Store, Table
from coregw.tlog.entry import freeze_entry, publication_entry
from coregw.tlog.tree import Node, consistency_path, cover, inclusion_path, leaf_hash, node_hash, root_of

__all__ = ["NameLog", "checkpoint_key"]

_REVISIONS_AT_ONCE: Final = 1000


def checkpoint_key(scope: str, name: str) -> bytes:
    """The key of a name's newest signed checkpoint."""
    return b"c" + scope.encode() + b"\0" + name.encode() + b"\0"


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
            await self._rebuild(size)
            found = await self._store.get(Table.RECORDS, [self._key(node) for node in nodes])
        if not all(found):
            raise StoreDamaged(f"the log of {self._scope}/{self._name} has no hashes for {size} leaves")
        return [each for each in found if each]

    async def _rebuild(self, size: int) -> None:
        """Compute all nodes from the revisions. O(n), once for a name whose nodes are missing."""
        peaks: list[tuple[int, bytes]] = []  # levels and hashes, left to right
        for first in range(0, size, _REVISIONS_AT_ONCE):
            rows: list[tuple[bytes, bytes]] = []
            for index, leaf in enumerate(await self._leaves(first, min(first + _REVISIONS_AT_ONCE, size)), first):
                level, node = 0, leaf
                rows.append((self._key(Node(0, index)), node))
                while peaks and peaks[-1][0] == level:
                    node = node_hash(peaks.pop()[1], node)
                    level += 1
                    rows.append((self._key(Node(level, index >> level)), node))
                peaks.append((level, node))
            await self._store.put({Table.RECORDS: rows})

    async def _leaves(self, start: int, end: int) -> list[bytes]:
        """Return the hashes of leaves: of revisions from `start` + 1, and at the end perhaps of the freeze."""
        keys = [revision_key(self._scope, self._name, revision) for revision in range(max(start, 1), end + 1)]
        values = await self._store.get(Table.RECORDS, keys)
        records = {
            record.revision: record for record in (decode_record(value) for value in values if value is not None)
        }
        leaves = []
        for index in range(start, end):
            record = records.get(index + 1)
            last = records.get(index)
            if record is not None:
                leaves.append(leaf_hash(_entry_of(record)))
            elif last is not None and last.frozen and index == end - 1:
                leaves.append(leaf_hash(_freeze_of(last)))
            else:
                raise StoreDamaged(f"revision {index + 1} of {self._scope}/{self._name} is missing")
        return leaves

    def _key(self, node: Node) -> bytes:
        name = self._scope.encode() + b"\0" + self._name.encode() + b"\0"
        return b"t" + name + bytes([node.level]) + node.number.to_bytes(8, "big")


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
