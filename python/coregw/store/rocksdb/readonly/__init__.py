"""A database that cannot be written to, opened for reading: what RocksDB can read of it, without work of its own."""

from coregw.store.rocksdb.readonly.opening import Cause, ReadOnly, open_read_only, require_skippable

__all__ = ["Cause", "ReadOnly", "open_read_only", "require_skippable"]
