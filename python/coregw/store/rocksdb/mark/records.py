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

import struct
from mmap import mmap
from typing import Final

__all__ = ["complete_end"]

_BLOCK_BYTES: Final = 32 << 10
_HEADER_BYTES: Final = 7
_LENGTH_AND_KIND: Final = struct.Struct("<HB")
_CHECKSUM_BYTES: Final = 4

_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


def complete_end(data: bytes | mmap, start: int, end: int) -> int:
    """Return where the last complete entry of a log file ends, before anything malformed. O(records).

    Args:
        data: The file.
        start: Where an entry ends; 0 is the file's beginning.
        end: The bytes from here on are not considered.
    """
    position = complete = start
    is_inside = False
    while True:
        left = _BLOCK_BYTES - position % _BLOCK_BYTES
        if left < _HEADER_BYTES:
            position += left
            continue
        if position + _HEADER_BYTES > end:
            return complete
        length, kind = _LENGTH_AND_KIND.unpack_from(data, position + _CHECKSUM_BYTES)
        size = _HEADER_BYTES + length
        may_follow = kind in (_MIDDLE, _LAST) if is_inside else kind in (_FULL, _FIRST)
        if not may_follow or size > left or position + size > end:
            return complete
        position += size
        is_inside = kind in (_FIRST, _MIDDLE)
        if not is_inside:
            complete = position
