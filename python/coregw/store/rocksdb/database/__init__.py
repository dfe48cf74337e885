"""The open RocksDB database: rows in batches, syncs, and what begins and ends its use."""

from coregw.store.rocksdb.database.database import Database
from coregw.store.rocksdb.database.rows import STALL_SECONDS, Rows, Write

__all__ = ["STALL_SECONDS", "Database", "Rows", "Write"]
