"""The high-water mark: which bytes of RocksDB's MANIFEST and logs were durable when a write was last acknowledged.

RocksDB takes a log or a MANIFEST that ends early for one whose last record was being written when the process ended. It
cannot tell that from the loss of acknowledged records. ``DIR/rocksdb/coregw-mark`` can: it holds the numbers and sizes
of these files, and `require_durable` refuses a store in which there is less. ``docs/decisions/0128`` gives the reasons.
"""

from coregw.store.rocksdb.mark.check import drop_torn_ends, require_durable
from coregw.store.rocksdb.mark.tracker import HighWaterMark

__all__ = ["HighWaterMark", "drop_torn_ends", "require_durable"]
