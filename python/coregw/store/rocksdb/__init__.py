"""The embedded store on RocksDB, the gateway's default. One process opens it.

Disk reads run in a thread pool, and all writes in one committer thread that shares syncs between the tasks that wait.
Decisions: ``docs/decisions/0010`` and ``0011``.
"""

from coregw.extras import missing_extra

try:
    from coregw.store.rocksdb.directory import DATABASE, MARKER, read_identity, write_identity
    from coregw.store.rocksdb.options import max_open_files
    from coregw.store.rocksdb.store import CACHE_BYTES, READ_THREADS, RESERVE_BYTES, RocksStore, open_store
except ModuleNotFoundError as error:
    raise missing_extra(error, "coregw.store.rocksdb", "server") from error

__all__ = [
    "CACHE_BYTES",
    "DATABASE",
    "MARKER",
    "READ_THREADS",
    "RESERVE_BYTES",
    "RocksStore",
    "max_open_files",
    "open_store",
    "read_identity",
    "write_identity",
]
