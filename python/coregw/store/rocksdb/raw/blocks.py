"""Blocks of SST files: entries that share prefixes with the ones before them, and restart points where they do not.

```
entry | entry | ... | restart points (4 each) | [hash index] | number of restart points (4)
entry: shared bytes of the key | other bytes of the key | bytes of the value | key | value
```
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from coregw.store.rocksdb.raw.coding import Malformed, varint

__all__ = ["block_end", "lz4_end", "read_block"]

_HASH_INDEX: Final = 1 << 31
_RESTART_INTERVAL: Final = 16
_MAX_BUCKETS: Final = 4096


def read_block(block: memoryview, *, is_intact: bool = True) -> Iterator[tuple[bytes, memoryview]]:
    """Iterate over the (key, value) pairs of a block. O(bytes).

    Args:
        block: The block, decompressed.
        is_intact: Whether its checksum holds. Otherwise, what does not parse is skipped up to the next restart point.

    Raises:
        Malformed: An intact block does not parse.
    """
    end, restarts = _entries_end(block, is_intact=is_intact)
    at, key = 0, b""
    while at < end:
        try:
            shared, at_other = varint(block, at, end)
            other, at_value = varint(block, at_other, end)
            size, start = varint(block, at_value, end)
            if shared > len(key) or other + size > end - start:
                raise Malformed(f"byte {at} of a block: lengths {shared}, {other}, {size}")
        except Malformed:
            if is_intact:
                raise
            following = [restart for restart in restarts if restart > at]
            if not following:
                return
            at, key = min(following), b""
            continue
        key = key[:shared] + bytes(block[start : start + other])
        at = start + other + size
        yield key, block[start + other : at]


def read_index(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Iterate over the (key, handle) pairs of an index block, whose entries have no length of the value."""
    end, _ = _entries_end(block, is_intact=True)
    at, key = 0, b""
    while at < end:
        shared, at_other = varint(block, at, end)
        other, start = varint(block, at_other, end)
        if shared > len(key) or other > end - start:
            raise Malformed(f"byte {at} of an index: lengths {shared}, {other}")
        key = key[:shared] + bytes(block[start : start + other])
        value = start + other
        _, middle = varint(block, value, end)
        _, at = varint(block, middle, end)
        yield key, block[value:at]


def _entries_end(block: memoryview, *, is_intact: bool) -> tuple[int, list[int]]:
    """Where the entries end, and the restart points."""
    packed = int.from_bytes(block[-4:], "little")
    end = len(block) - 4
    if packed & _HASH_INDEX and end >= 2:
        end -= 2 + int.from_bytes(block[end - 2 : end], "little")
    count = packed & ~_HASH_INDEX
    first = end - 4 * count
    if first < 0 or end < 0 or count > len(block) // 4:
        if is_intact:
            raise Malformed(f"a block of {len(block)} bytes with {count} restart points")
        return len(block), []
    points = [int.from_bytes(block[at : at + 4], "little") for at in range(first, end, 4)]
    return first, points


def block_end(data: memoryview, start: int, end: int) -> Iterator[int]:
    """Iterate over the offsets where an uncompressed data block that starts at `start` may end, by its structure.

    For files without an index. An entry without a key marks the first restart point, which is always 0.
    """
    at, count = start, 0
    while True:
        try:
            shared, at_other = varint(data, at, end)
            other, at_value = varint(data, at_other, end)
            size, first = varint(data, at_value, end)
        except Malformed:
            return
        if shared == other == 0:
            break
        if other + size > end - first or (count == 0 and shared):
            return
        at, count = first + other + size, count + 1
    if not count:
        return
    for restarts in {-(-count // _RESTART_INTERVAL), 1, count}:  # blocks of rows, of properties, and of names of blocks
        yield from _ends_after(data, at + 4 * restarts, end, restarts)


def _ends_after(data: memoryview, at: int, end: int, restarts: int) -> Iterator[int]:
    """The offsets after the number of restart points, which follows them directly or after a hash index."""
    if data[at : at + 4] == restarts.to_bytes(4, "little"):
        yield at + 4
    footer = (restarts | _HASH_INDEX).to_bytes(4, "little")
    window = bytes(data[at : min(end, at + _MAX_BUCKETS + 6)])
    found = window.find(footer, 3)
    while found >= 0:
        if int.from_bytes(window[found - 2 : found], "little") == found - 2:
            yield at + found + 4
        found = window.find(footer, found + 1)


def lz4_end(data: memoryview, start: int, end: int) -> int:
    """Where an LZ4 block ends that begins with the size of its content. Raises `Malformed`. O(bytes)."""
    size, at = varint(data, start, end)
    written = 0
    while at < end:
        token, at = data[at], at + 1
        literals, at = _lz4_length(data, at, end, token >> 4)
        at, written = at + literals, written + literals
        if written >= size:
            break
        at += 2  # the offset of the match
        match, at = _lz4_length(data, at, end, token & 15)
        written += match + 4
    if written != size or at > end:
        raise Malformed(f"byte {start}: no LZ4 block of {size} bytes")
    return at


def _lz4_length(data: memoryview, at: int, end: int, first: int) -> tuple[int, int]:
    length = first
    if first == 15:
        while at < end:
            byte, at = data[at], at + 1
            length += byte
            if byte != 255:
                break
    return length, at
