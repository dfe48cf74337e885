"""The RocksDB database: opening, batched reads, writes that never sleep inside RocksDB, syncs, closing.

Every call here blocks and is for worker threads. Errors leave as classes of `coregw.errors`, never as rocksdict's.
What rows mean is `coregw.store._rocks_layout`'s, and who may write when is `coregw.store._rocks_committer`'s.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, cast

from rocksdict import Cache, ColumnFamily, DbClosedError, Rdict, RdictIter, ReadOptions, WriteBatch, WriteOptions

from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable
from coregw.store import _rocks_directory as directory
from coregw.store._rocks_layout import (
    EPOCH_KEY,
    Family,
    PayloadRow,
    chunk_range,
    database_options,
    family_options,
    upload_of_chunk,
)

Write = tuple[Family, bytes, bytes | None]
"""A row to put, or to delete where the value is None."""

_STALL_PAUSE: Final = 0.002
_STALL_LIMIT: Final = 60.0
_LOCKED: Final = ("lock hold by current process", "While lock file")
_FULL: Final = ("No space left on device", "Disk quota exceeded", "File too large")
_DAMAGED: Final = ("Corruption", "No such file or directory", "Column famil")


class Database:
    """An open database. Reads may come from any number of threads; writes and syncs from one at a time.

    Args:
        path: The store's directory; made if it is missing.
        cache_bytes: How much memory the cache of blocks may take.
        salvage: Open a database whose log is damaged or lost, with what can still be read.

    Raises:
        InvalidInput, StoreDamaged, Unavailable: As `coregw.store._rocks_directory.prepare`; also `Unavailable` where
            the store is open already, and `StoreDamaged` where RocksDB finds its files corrupt.
    """

    def __init__(self, path: Path, cache_bytes: int, *, salvage: bool) -> None:
        self.path = path
        create = directory.prepare(path, salvage=salvage) == "creating"
        self._families: dict[Family, Rdict] = {}
        self._handles: dict[Family, ColumnFamily] = {}
        self._write_options = WriteOptions()
        # The binding holds the interpreter while it writes. A write that RocksDB would delay fails at once instead,
        # so that the wait happens here, where other threads can run.
        self._write_options.no_slowdown = True
        with _translated(path):
            self._root = Rdict(
                str(path / directory.DATABASE),
                database_options(create=create, salvage=salvage),
                family_options(Cache(cache_bytes)),
            )
        try:
            with _translated(path):
                for family in Family:
                    self._families[family] = self._root.get_column_family(family)
                    self._handles[family] = self._root.get_column_family_handle(family)
            if salvage:
                self._drop_incomplete_payloads()
            self.epoch = self._begin_epoch(first=create)
            if create:
                directory.mark_ready(path)
        except BaseException:
            self.close()
            raise

    def get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys`, None where there is none; one batched read that lets the interpreter go."""
        if not keys:
            return []
        with _translated(self.path):
            return cast("list[bytes | None]", self._families[family].get(list(keys)))

    def scan(self, family: Family, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """The first `limit` rows from `start` to `end` (exclusive), by key. Holds the interpreter: for short spans."""
        options = ReadOptions()
        options.set_iterate_upper_bound(end)
        found: list[tuple[bytes, bytes]] = []
        with _translated(self.path):
            rows = self._families[family].iter(options)
            rows.seek(start)
            while len(found) < limit and _valid(rows):
                found.append((rows.key(), rows.value()))
                rows.next()
        return found

    def write(self, rows: Sequence[Write], ranges: Sequence[tuple[Family, bytes, bytes]] = ()) -> None:
        """Deletes key ranges, then writes rows, all or nothing; durable after the next `sync`.

        Raises:
            StorageFull, Unavailable: Nothing was written. Also where RocksDB keeps writers waiting for a minute.
        """
        deadline = time.monotonic() + _STALL_LIMIT
        while not self._try_write(rows, ranges):
            if time.monotonic() > deadline:
                raise Unavailable(f"the disk of {self.path} does not keep up: a write waited {_STALL_LIMIT:.0f} s")
            time.sleep(_STALL_PAUSE)

    def sync(self) -> None:
        """Makes everything written so far durable. Lets the interpreter go."""
        with _translated(self.path):
            self._root.flush_wal(True)

    def flush(self) -> None:
        """Writes the buffers out to table files. Lets the interpreter go; next to nothing where they are empty."""
        with _translated(self.path):
            for database in self._families.values():
                database.flush()

    def free_bytes(self) -> int:
        """The room left on the disk, as far as this user may take it."""
        return shutil.disk_usage(self.path).free

    def close(self) -> None:
        """Writes the buffers out, so that the next open has no log to replay, and lets go of the lock.

        Nothing may be reading or writing. Best effort: what was acknowledged is synced already, and a full or failing
        disk must not keep the lock.
        """
        self._handles.clear()  # the lock lives as long as any handle does
        for database in self._families.values():
            with suppress(Exception):
                database.close()  # which flushes the family
        self._families.clear()
        with suppress(Exception):
            self._root.close()

    def _begin_epoch(self, *, first: bool) -> int:
        """Counts this opening, and deletes what broken-off uploads left."""
        (found,) = self.get(Family.META, [EPOCH_KEY])
        if found is None and not first:
            raise StoreDamaged(f"the store in {self.path} has lost the count of its openings")
        epoch = int.from_bytes(found or b"", "big") + 1
        broken_off = list(self._keys(Family.UPLOADS))  # by whatever process: this one has the lock
        self.write(
            [
                (Family.META, EPOCH_KEY, epoch.to_bytes(4, "big")),
                *((Family.UPLOADS, upload, None) for upload in broken_off),
            ],
            [(Family.CHUNKS, *chunk_range(upload)) for upload in broken_off],
        )
        self.sync()
        # Into a table file, out of reach of what may befall the log: an epoch used twice would mix payloads up.
        with _translated(self.path):
            self._families[Family.META].flush()
        return epoch

    def _drop_incomplete_payloads(self) -> None:
        """Forgets payloads whose chunks went with a damaged log, so that they can be stored again. Reads every key."""
        chunks = Counter(upload_of_chunk(key) for key in self._keys(Family.CHUNKS))
        for multihash, value in self.scan(Family.PAYLOADS, b"", b"\xff" * 16, limit=sys.maxsize):
            row = PayloadRow.decode(multihash, value)
            if chunks[row.upload_id] != row.chunks:
                self.write([(Family.PAYLOADS, multihash, None)])

    def _keys(self, family: Family) -> Iterator[bytes]:
        with _translated(self.path):
            rows = self._families[family].iter()
            rows.seek_to_first()
            while _valid(rows):
                yield rows.key()
                rows.next()

    def _try_write(self, rows: Iterable[Write], ranges: Iterable[tuple[Family, bytes, bytes]]) -> bool:
        """Whether RocksDB took the rows; False where it would have kept the caller waiting."""
        batch = WriteBatch(raw_mode=True)  # a write uses its batch up, so each try needs its own
        for family, start, end in ranges:
            batch.delete_range(start, end, self._handles[family])
        for family, key, value in rows:
            if value is None:
                batch.delete(key, self._handles[family])
            else:
                batch.put(key, value, self._handles[family])
        try:
            with _translated(self.path):
                self._root.write(batch, self._write_options)
        except _Stalled:
            return False
        return True


class _Stalled(Unavailable):
    """RocksDB asks writers to wait until it has flushed or compacted."""


def _valid(rows: RdictIter) -> bool:
    """Whether the iterator is at a row. A damaged block ends an iteration as the last row does, so that is asked."""
    if rows.valid():
        return True
    rows.status()
    return False


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """Turns RocksDB's statuses, which the binding gives as text in plain exceptions, into coregw's errors."""
    try:
        yield
    except CoregwError:
        raise
    except Exception as error:
        if type(error) is not Exception and not isinstance(error, DbClosedError):
            raise  # not the binding's: a mistake in this program
        raise _meaning(error, path) from error


def _meaning(error: Exception, path: Path) -> CoregwError:
    text = str(error)
    if isinstance(error, DbClosedError):
        return Unavailable("the store is closed")
    if "Write stall" in text:
        return _Stalled(f"the store in {path} is busy writing")
    if any(sign in text for sign in _LOCKED):
        return Unavailable(f"the store in {path} is in use by another process, or opened twice by this one")
    if any(sign in text for sign in _FULL):
        return StorageFull(f"the disk of the store in {path} is full")
    if any(sign in text for sign in _DAMAGED):
        return StoreDamaged(f"the store in {path} is damaged: {text}")
    return Unavailable(f"the store in {path} failed: {text}")
