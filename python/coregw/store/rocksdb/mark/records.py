"""Record structure of RocksDB's log files, which write-ahead logs and MANIFESTs share.

```
block of 32 KiB: | record | record | ... | fewer than 7 bytes of padding |
record:          | checksum, 4 bytes | length, 2 bytes | kind, 1 byte | data |
```

An entry is one record (`_FULL`), or a `_FIRST`, any number of `_MIDDLE` and a `_LAST` one. RocksDB compares the
checksums. A length that reaches past the end of the file, a kind that it knows from recycled logs, and a zeroed record
all look to it like the end of the log, so this module follows the structure.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import Final

from coregw.store.rocksdb.raw.coding import log_checksum

__all__ = ["complete_end", "intact_end"]

_BLOCK_BYTES: Final = 32 << 10
_HEADER_BYTES: Final = 7
_HEADER: Final = struct.Struct("<IHB")

_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def complete_end(data: bytes | mmap.mmap, start: int, end: int) -> int:
    """Return where the last complete entry of a log file ends, before anything malformed. O(records).

    Args:
        data: The file.
        start: Where an entry ends; 0 is the file's beginning.
        end: The bytes from here on are not considered.
    """
    complete = start
    for position, _, kind, size in _records(data, start, end):
        if kind in (_FULL, _LAST):
            complete = position + size
    return complete


def intact_end(data: bytes | mmap.mmap, start: int, end: int) -> int:
    """Return what `complete_end` does, but also before the first wrong checksum. O(bytes)."""
    intact = start
    for position, checksum, kind, size in _records(data, start, end):
        if log_checksum(kind, data[position + _HEADER_BYTES : position + size]) != checksum:
            break
        if kind in (_FULL, _LAST):
            intact = position + size
    return intact


def _records(data: bytes | mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Iterate over well-formed records: position, checksum, kind, and size with the header."""
    position = start
    is_inside = False
    while True:
        left = _BLOCK_BYTES - position % _BLOCK_BYTES
        if left < _HEADER_BYTES:
            position += left
            continue
        if position + _HEADER_BYTES > end:
            return
        checksum, length, kind = _HEADER.unpack_from(data, position)
        size = _HEADER_BYTES + length
        may_follow = kind in (_MIDDLE, _LAST) if is_inside else kind in (_FULL, _FIRST)
        if not may_follow or size > left or position + size > end:
            return
        yield position, checksum, kind, size
        position += size
        is_inside = kind in (_FIRST, _MIDDLE)
