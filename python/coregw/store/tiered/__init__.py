"""A store in front of another: a bounded cache that reads through, checks what it reads, and keeps it.

```
            local store (RocksDB), at most max_bytes             origin store
read ──► has it? ──► yes                                         (gateway, static tree)
             └─────► no ──► one request, whoever asks ──────────────► checked ──► kept ──► answer
```

What it promises, of the contract of `coregw.store.Store`:

- **Immutable objects are always right**: pages, and payloads by multihash, are compared with their digests before they
  are kept. A root that was held once is held as long as it is kept here.
- **Nothing is linearizable or dated.** A root or payload that the upstream does not have now may be there a moment
  later, and the reverse; `renew` looks payloads up, and dates nothing. What was stored at the upstream before is read
  here as `Store.read_payload` says.
- **It accepts no writes** (code ``read_only``), and has no rows of `Table.RECORDS` but its own. What begins with `NAME`
  may be put, and is not counted.
- **While the upstream is away** it answers with what it has; the rest is `Unavailable`.
- **What was used least recently is removed** when it holds more than `max_bytes`, a tenth at a time. The order of use
  is written to a file now and then, and read at the start: what was used after that counts as used last.
"""

from coregw.store.tiered.kept import NAME, TierFigures
from coregw.store.tiered.store import TieredStore, open_tiered

__all__ = ["NAME", "TierFigures", "TieredStore", "open_tiered"]
