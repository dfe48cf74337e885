"""The RocksDB database: opening, batched reads, writes that never block inside RocksDB, syncs, closing.

Every call blocks, so call it in worker threads. Errors are classes of `coregw.errors`. `coregw.store.rocksdb.layout`
describes the rows; `coregw.store.rocksdb.committer` is the only writer.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from rocksdict import Cache, Checkpoint, ColumnFamily, Rdict, RdictIter, ReadOptions, WriteBatch, WriteOptions

from coregw.errors import StoreDamaged, Unavailable
from coregw.store.rocksdb.directory import DATABASE, mark_ready, prepare, remove_checkpoint
from coregw.store.rocksdb.figures import FamilyFigures
from coregw.store.rocksdb.layout import EPOCH_KEY, Family, PayloadRow, chunk_range, upload_of_chunk
from coregw.store.rocksdb.options import database_options, family_options
from coregw.store.rocksdb.statuses import WriteStalled, translated

__all__ = ["STALL_SECONDS", "Database", "Write"]

Write = tuple[Family, bytes, bytes | None]
"""A row to put, or to delete if the value is None."""

STALL_SECONDS: Final = 60.0
"""The longest time that a write waits for RocksDB to flush or compact."""

_STALL_PAUSE_SECONDS: Final = 0.002


class Database:
    """An open database. Reads may come from any number of threads; writes and syncs from one at a time.

    Args:
        path: The store's directory; created if it is missing.
        cache_bytes: Memory for the block cache.
        salvage: Open a database whose log is damaged or lost, with what can still be read.

    Raises:
        InvalidInput, StoreDamaged, Unavailable: As `coregw.store.rocksdb.directory.prepare`. Also `Unavailable` if the
            store is open already, and `StoreDamaged` if RocksDB finds its files corrupt.
    """

    def __init__(self, path: Path, cache_bytes: int, *, salvage: bool) -> None:
        self.path = path
        create = prepare(path, salvage=salvage) == "creating"
        self._families: dict[Family, Rdict] = {}
        self._handles: dict[Family, ColumnFamily] = {}
        self._write_options = WriteOptions()
        # rocksdict holds the GIL during a write. A write that RocksDB would delay fails at once instead, so the wait
        # happens in `write`, where other threads can run.
        self._write_options.no_slowdown = True
        with translated(path):
            self._root = Rdict(
                str(path / DATABASE),
                database_options(create=create, salvage=salvage),
                family_options(Cache(cache_bytes)),
            )
        try:
            with translated(path):
                for family in Family:
                    self._families[family] = self._root.get_column_family(family)
                    self._handles[family] = self._root.get_column_family_handle(family)
            if salvage:
                self._drop_incomplete_payloads()
            self.epoch = self._begin_epoch(is_first=create)
            remove_checkpoint(path)
            if create:
                mark_ready(path)
        except BaseException:
            self.close()
            raise

    def get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of `keys` in one batch, None for an absent one. The GIL is released."""
        if not keys:
            return []
        with translated(self.path):
            return cast("list[bytes | None]", self._families[family].get(list(keys)))

    def scan(self, family: Family, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """Read the first `limit` rows from `start` to `end` (exclusive), in key order. The GIL is held."""
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        found: list[tuple[bytes, bytes]] = []
        with translated(self.path):
            rows = self._families[family].iter(options)
            rows.seek(start)
            while len(found) < limit and _is_valid(rows):
                found.append((rows.key(), rows.value()))
                rows.next()
        return found

    def keys(self, family: Family) -> Iterator[bytes]:
        """Iterate over all keys of a family. The GIL is held."""
        with translated(self.path):
            rows = self._families[family].iter()
            rows.seek_to_first()
            while _is_valid(rows):
                yield rows.key()
                rows.next()

    def write(self, rows: Sequence[Write], ranges: Sequence[tuple[Family, bytes, bytes]] = ()) -> None:
        """Delete key ranges, then write rows, atomically; durable after the next `sync`.

        Raises:
            StorageFull, Unavailable: Nothing was written. Also if RocksDB stalls writes for `STALL_SECONDS`.
        """
        deadline = time.monotonic() + STALL_SECONDS
        while not self._try_write(rows, ranges):
            if time.monotonic() > deadline:
                raise Unavailable(f"the disk of {self.path} does not keep up: a write waited {STALL_SECONDS:.0f} s")
            time.sleep(_STALL_PAUSE_SECONDS)

    def sync(self) -> None:
        """Make everything written so far durable. The GIL is released."""
        with translated(self.path):
            self._root.flush_wal(True)

    def flush(self) -> None:
        """Flush the memtables to SSTs. The GIL is released; nearly free if they are empty."""
        with translated(self.path):
            for database in self._families.values():
                database.flush()

    def figures(self) -> dict[str, FamilyFigures]:
        """Return the sizes of the column families, by name."""
        with translated(self.path):
            return {str(family): _figures(each) for family, each in self._families.items()}

    def background_errors(self) -> int:
        """The number of RocksDB's failed flushes and compactions."""
        with translated(self.path):
            return self._root.property_int_value("rocksdb.background-errors") or 0

    def checkpoint(self, target: Path) -> None:
        """Make a directory with the database of this moment, which RocksDB can open: hard links where it is possible.

        It has everything that was written before. The GIL is held, so call `flush` first, to leave little to do.
        """
        with translated(self.path):
            checkpoint = Checkpoint(self._root)
            checkpoint.create_checkpoint(str(target))

    def free_bytes(self) -> int:
        """The free space on the disk that this user may use."""
        return shutil.disk_usage(self.path).free

    def close(self) -> None:
        """Flush the memtables, so that the next open replays no log, and release the lock.

        No read or write may be in progress. Best effort: acknowledged writes are synced already, and a full or failing
        disk must not keep the lock.
        """
        self._handles.clear()  # the lock lives as long as any handle does
        for database in self._families.values():
            with suppress(Exception):
                database.close()  # flushes the family
        self._families.clear()
        with suppress(Exception):
            self._root.close()

    def _begin_epoch(self, *, is_first: bool) -> int:
        """Increment the epoch, and delete what unfinished uploads left."""
        (found,) = self.get(Family.META, [EPOCH_KEY])
        if found is None and not is_first:
            raise StoreDamaged(f"the store in {self.path} has lost its epoch, the count of its openings")
        epoch = int.from_bytes(found or b"", "big") + 1
        unfinished = list(self.keys(Family.UPLOADS))  # no process can continue them: this one holds the lock
        self.write(
            [
                (Family.META, EPOCH_KEY, epoch.to_bytes(4, "big")),
                *((Family.UPLOADS, upload, None) for upload in unfinished),
            ],
            [(Family.CHUNKS, *chunk_range(upload)) for upload in unfinished],
        )
        self.sync()
        # An SST is out of reach of damage to the log: an epoch used twice would mix up payloads.
        with translated(self.path):
            self._families[Family.META].flush()
        return epoch

    def _drop_incomplete_payloads(self) -> None:
        """Delete the rows of payloads that lost chunks with a damaged log, so that they can be stored again. Slow."""
        chunks = Counter(upload_of_chunk(key) for key in self.keys(Family.CHUNKS))
        for multihash, value in self.scan(Family.PAYLOADS, b"", None, limit=sys.maxsize):
            row = PayloadRow.decode(multihash, value)
            if chunks[row.upload_id] != row.chunks:
                self.write([(Family.PAYLOADS, multihash, None)])

    def _try_write(self, rows: Iterable[Write], ranges: Iterable[tuple[Family, bytes, bytes]]) -> bool:
        """Whether RocksDB accepted the rows; False if it would have delayed the caller."""
        batch = WriteBatch(raw_mode=True)  # consumed by a write, even one that fails
        for family, start, end in ranges:
            batch.delete_range(start, end, self._handles[family])
        for family, key, value in rows:
            if value is None:
                batch.delete(key, self._handles[family])
            else:
                batch.put(key, value, self._handles[family])
        try:
            with translated(self.path):
                self._root.write(batch, self._write_options)
        except WriteStalled:
            return False
        return True


def _figures(family: Rdict) -> FamilyFigures:
    names = ("total-sst-files-size", "estimate-live-data-size", "cur-size-all-mem-tables", "estimate-num-keys")
    return FamilyFigures(*(family.property_int_value(f"rocksdb.{name}") or 0 for name in names))


def _is_valid(rows: RdictIter) -> bool:
    """Whether the iterator is at a row. A damaged block also ends an iteration, so the status is checked then."""
    if rows.valid():
        return True
    rows.status()
    return False
