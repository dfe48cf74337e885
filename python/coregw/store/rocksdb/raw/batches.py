"""Write batches: the records of a write-ahead log.

```
sequence (8) | count (4) | kind | family | key | value | kind | ...
```
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from coregw.store.rocksdb.raw.coding import Entry, Malformed, prefixed, varint

__all__ = ["BatchEntry", "read_batch"]

_HEADER: Final = 12
_DELETION, _VALUE, _LOG_DATA, _SINGLE_DELETION, _NOOP, _RANGE_DELETION = 0x0, 0x1, 0x3, 0x7, 0xD, 0xF
_WITH_FAMILY: Final = {0x4: _DELETION, 0x5: _VALUE, 0x8: _SINGLE_DELETION, 0xE: _RANGE_DELETION}
_MAX_KEY: Final = 1 << 16
"""No key of a store is longer; a greater length is damage."""


class BatchEntry(NamedTuple):
    """A row of a batch: the number of its column family, and the row. A range deletion has the range in `until`."""

    family: int
    entry: Entry
    until: bytes | None = None


def read_batch(data: bytes, families: Collection[int], *, is_intact: bool) -> Iterator[BatchEntry]:
    """Iterate over the rows of a batch. O(bytes).

    Args:
        data: The batch; of a damaged one, the part that is left.
        families: The numbers of the column families that exist.
        is_intact: Whether its checksums hold. Otherwise, what does not parse is skipped up to the next row.
    """
    if len(data) < _HEADER and is_intact:
        return
    sequence = int.from_bytes(data[:8], "little") if is_intact else 0
    at = _HEADER
    while at < len(data):
        try:
            found, after = _read(data, at, families, sequence, is_intact=is_intact)
        except Malformed:
            if is_intact:  # a kind of entry that coregw does not write
                return
            at += 1
            continue
        at = after
        if found is not None:
            yield found
            sequence += is_intact


def _read(
    data: bytes, at: int, families: Collection[int], sequence: int, *, is_intact: bool
) -> tuple[BatchEntry | None, int]:
    """The row at an offset (None for an entry without one), and the offset after it."""
    end = len(data)
    kind, at, family = data[at], at + 1, 0
    if kind in _WITH_FAMILY:
        kind = _WITH_FAMILY[kind]
        family, at = varint(data, at, end)
    if kind == _NOOP:
        return None, at
    if family not in families or kind not in (_DELETION, _VALUE, _LOG_DATA, _SINGLE_DELETION, _RANGE_DELETION):
        raise Malformed(f"byte {at}: kind {kind}, family {family}")
    key, at = prefixed(data, at, end)
    if kind == _LOG_DATA:
        return None, at
    if len(key) > _MAX_KEY or not key:
        raise Malformed(f"byte {at}: a key of {len(key)} bytes")
    if kind in (_DELETION, _SINGLE_DELETION):
        return BatchEntry(family, Entry(bytes(key), sequence, None, is_intact)), at
    value, at = prefixed(data, at, end)
    if kind == _RANGE_DELETION:
        return BatchEntry(family, Entry(bytes(key), sequence, None, is_intact), bytes(value)), at
    return BatchEntry(family, Entry(bytes(key), sequence, value, is_intact)), at
