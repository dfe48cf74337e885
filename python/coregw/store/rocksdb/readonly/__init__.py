"""A damaged database, opened for reading only: with what RocksDB can read of it, and without any work of its own."""

from coregw.store.rocksdb.readonly.opening import ReadOnly, open_read_only

__all__ = ["ReadOnly", "open_read_only"]
