"""Claims: the first row of each batch says how much of the log was durable when the batch was written.

The mark may be a second old after a power cut. Damage to what was acknowledged in that second looks like a torn end,
unless a later batch is intact: its claim covers the damage. A claim is a row of `Family.META`:

```
`CLAIM_KEY` -> | session, 16 bytes | log: number, 8 bytes | size, 8 bytes |
```

The session is a secret of one opening, which the mark has as well. So no payload, parts of which are found when records
are searched for after damage, can be mistaken for a claim.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import Final

from coregw.store.rocksdb.layout import CLAIM_KEY
from coregw.store.rocksdb.mark.file import Extent
from coregw.store.rocksdb.raw.batches import read_batch
from coregw.store.rocksdb.raw.coding import Damage
from coregw.store.rocksdb.raw.logs import read_log

__all__ = ["claims", "encode_claim"]

_CLAIM: Final = struct.Struct(">16sQQ")
_META: Final = 0
"""The number of the family that every database has."""


def encode_claim(session: bytes, log: Extent) -> bytes:
    """Return the value of the row."""
    return _CLAIM.pack(session, *log)


def claims(data: bytes | mmap.mmap, start: int, session: bytes) -> Iterator[Extent]:
    """Iterate over the claims of a session in a log, in its intact batches, also in those after damage. O(bytes).

    Args:
        data: The log.
        start: Where an entry begins; what is before it is not read.
        session: The session.
    """
    damages: list[Damage] = []
    with memoryview(data) as view:
        for record in read_log(view, "", damages, start=start, corrects=False):
            if not record.is_intact:
                continue
            first = next(read_batch(record.data, {_META}, is_intact=True), None)
            if first is None or first.entry.key != CLAIM_KEY or first.entry.value is None:
                continue
            value = bytes(first.entry.value)
            if len(value) == _CLAIM.size and value.startswith(session):
                _, number, size = _CLAIM.unpack(value)
                yield Extent(number, size)
