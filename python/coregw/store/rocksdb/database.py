"""The RocksDB database: opening and reopening, batched reads, writes that never block inside RocksDB, syncs, closing.

Every call blocks, so call it in worker threads. Errors are classes of `coregw.errors`. `coregw.store.rocksdb.layout`
describes the rows; `coregw.store.rocksdb.committer` is the only writer.
"""

from __future__ import annotations

import errno
import logging
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from rocksdict import (
    BottommostLevelCompaction,
    Cache,
    Checkpoint,
    ColumnFamily,
    CompactOptions,
    Rdict,
    RdictIter,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable
from coregw.store.clock import Clock
from coregw.store.rocksdb.directory import (
    DATABASE,
    SPARE_BYTES,
    mark_ready,
    prepare,
    remove_checkpoint,
    require_working_disk,
)
from coregw.store.rocksdb.figures import FamilyFigures
from coregw.store.rocksdb.gate import Gate
from coregw.store.rocksdb.layout import (
    EPOCH_KEY,
    EXPIRED_KEY,
    UNDATED_KEY,
    Family,
    PayloadRow,
    Undated,
    chunk_range,
    decode_date,
    upload_of_chunk,
)
from coregw.store.rocksdb.mark import HighWaterMark, drop_torn_ends
from coregw.store.rocksdb.options import database_options, family_options
from coregw.store.rocksdb.readonly import ReadOnly, open_read_only
from coregw.store.rocksdb.statuses import WriteStalled, translated

__all__ = ["STALL_SECONDS", "Database", "Write"]

_log = logging.getLogger(__name__)

Write = tuple[Family, bytes, bytes | None]
"""A row to put, or to delete if the value is None."""

STALL_SECONDS: Final = 60.0
"""The longest time that a write waits for RocksDB to flush or compact."""

_STALL_PAUSE_SECONDS: Final = 0.002
_FAULT_STALL_SECONDS: Final = 2.0
"""A write that waits this long after a failed flush or compaction succeeds only after the database is reopened."""

_ADVICE: Final = (
    "repair it with `coregw fsck --repair`, restore a backup, or open what is left with COREGW_SALVAGE=true"
)
_BLOCK_BYTES: Final = 512
_SIZES: Final = ("rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")


class Database:
    """An open database. Reads may come from any number of threads; writes and syncs from one at a time.

    A read must hold no snapshot and no iterator of RocksDB outside of the calls here: `reopen` waits for these calls,
    and RocksDB stays locked as long as one of its objects lives.

    Args:
        path: The store's directory; created if it is missing.
        cache_bytes: Memory for the block cache.
        salvage: Open a database whose log is damaged or lost, with what can still be read.
        clock: The clock that dates roots and payloads; None is the system's.
        read_only_if_damaged: Open a damaged database for reading.

    Raises:
        InvalidInput, StoreDamaged, Unavailable: As `coregw.store.rocksdb.directory.prepare`. Also `Unavailable` if the
            store is open already, and `StoreDamaged` if RocksDB finds its files corrupt.
    """

    def __init__(
        self,
        path: Path,
        cache_bytes: int,
        *,
        salvage: bool = False,
        read_only_if_damaged: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.path = path
        self.read_only: ReadOnly | None = None
        """Why nothing can be written, if the database is damaged."""
        self._read_only_if_damaged = read_only_if_damaged
        self.epoch = 0
        """The number of times that the store was opened, this one included."""
        self._cache_bytes = cache_bytes
        self._gate = Gate()
        self._root: Rdict | None = None
        self.clock = clock or Clock()
        self.expired_before = 0
        """Roots dated before this time, in milliseconds, have expired."""
        self.undated = self.clock.now()
        """When rows without a date count as dated."""
        self._families: dict[Family, Rdict] = {}
        self._handles: dict[Family, ColumnFamily] = {}
        self._mark: HighWaterMark | None = None
        self._is_sound = True
        self._compacts = True
        self._write_options = WriteOptions()
        # rocksdict holds the GIL during a write. A write that RocksDB would delay fails at once instead, so the wait
        # happens in `write`, where other threads can run.
        self._write_options.no_slowdown = True
        self._open(salvage=salvage)
        remove_checkpoint(path)

    def get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of `keys` in one batch, None for an absent one. The GIL is released."""
        if not keys:
            return []
        with self._gate, translated(self.path):
            values = cast("list[bytes | None]", self._family(family).get(list(keys)))
        if self.read_only is not None:
            self.read_only.check(family, values)
        return values

    def scan(self, family: Family, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """Read the first `limit` rows from `start` to `end` (exclusive), in key order. The GIL is held."""
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        found: list[tuple[bytes, bytes]] = []
        with self._gate, translated(self.path):
            rows = self._family(family).iter(options)
            try:
                rows.seek(start)
                while len(found) < limit and _is_valid(rows):
                    found.append((rows.key(), rows.value()))
                    rows.next()
            finally:
                del rows  # before the gate, and not with the traceback of an error
        if self.read_only is not None:
            self.read_only.check(family, [None])
        return found

    def keys(self, family: Family) -> Iterator[bytes]:
        """Iterate over all keys of a family. The GIL is held, and `reopen` waits."""
        with self._gate, translated(self.path):
            rows = self._family(family).iter()
            try:
                rows.seek_to_first()
                while _is_valid(rows):
                    yield rows.key()
                    rows.next()
            finally:
                del rows

    def write(self, rows: Sequence[Write], ranges: Sequence[tuple[Family, bytes, bytes]] = ()) -> None:
        """Delete key ranges, then write rows, atomically; durable after the next `sync`.

        Raises:
            WriteStalled: Nothing was written: RocksDB stalled writes for `STALL_SECONDS`.
            StorageFull, Unavailable: Whether the rows are written is not known, so `reopen` has to follow.
        """
        with translated(self.path, self._note_fault):
            self._write_when_possible(rows, ranges)
            if self._mark is not None:
                self._mark.note_write()

    def sync(self) -> None:
        """Make everything written so far durable. The GIL is released.

        Raises:
            StorageFull, Unavailable: Which writes since the last sync are durable is not known, and a repeated sync may
                succeed without them: the operating system reports the loss of a page once. So `reopen` has to follow.
        """
        with translated(self.path, self._note_fault):
            if self._mark is not None:
                self._mark.before_sync()
            self._require_root().flush_wal(True)
            if self._mark is not None:
                self._mark.note_sync()

    def refresh_mark(self) -> None:
        """Bring the high-water mark up to date with RocksDB's work in the background, durably.

        Raises:
            StorageFull, Unavailable: As `sync`.
        """
        if self._mark is None or not self._is_sound or self.read_only is not None or self.background_errors():
            return
        with translated(self.path, self._note_fault):
            try:
                self._mark.refresh()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):  # nothing was synced: the next call may succeed
                    raise

    def flush(self) -> None:
        """Flush the memtables to SSTs. The GIL is released; nearly free if they are empty."""
        if self.read_only is not None:
            raise Unavailable(self.read_only.reason)
        with self._gate, translated(self.path):
            for database in self._families.values():
                database.flush()

    def figures(self) -> dict[str, FamilyFigures]:
        """Return the sizes of the column families, by name."""
        with self._gate, translated(self.path):
            return {str(family): _figures(each) for family, each in self._families.items()}

    def background_errors(self) -> int:
        """The number of RocksDB's failed flushes and compactions since the database was opened."""
        with self._gate, translated(self.path):
            return self._require_root().property_int_value("rocksdb.background-errors") or 0

    def checkpoint(self, target: Path) -> None:
        """Make a directory with the database of this moment, which RocksDB can open: hard links where it is possible.

        It has everything that was written before. The GIL is held, so call `flush` first, to leave little to do.
        """
        with self._gate, translated(self.path):
            checkpoint = Checkpoint(self._require_root())
            try:
                checkpoint.create_checkpoint(str(target))
            finally:
                del checkpoint  # it keeps RocksDB locked

    def compact(self, family: Family, start: bytes | None, end: bytes | None) -> None:
        """Compact the SSTs of a range of keys, so that deleted rows take no space. The GIL is released. Slow."""
        options = CompactOptions()
        options.set_bottommost_level_compaction(BottommostLevelCompaction.force_optimized())
        options.set_exclusive_manual_compaction(False)
        with self._gate, translated(self.path):
            self._family(family).compact_range(start, end, options)

    def data_bytes(self) -> int:
        """The size of all SSTs and memtables. Takes some microseconds."""
        with self._gate, translated(self.path):
            return sum(family.property_int_value(name) or 0 for family in self._families.values() for name in _SIZES)

    def file_bytes(self) -> int:
        """The space on the disk that the files of the database take."""
        total = 0
        with translated(self.path):
            for file in (self.path / DATABASE).iterdir():
                with suppress(FileNotFoundError):  # deleted meanwhile
                    total += file.stat().st_blocks * _BLOCK_BYTES
        return total

    def free_bytes(self) -> int:
        """The free space on the disk that this user may use."""
        return shutil.disk_usage(self.path).free

    def reopen(self) -> None:
        """Close the database after a failed write or sync, and open it again with what the disk holds.

        Everything that was synced is there. What was written and not synced may be there or not; if it is, it is
        durable, since opening writes the content of the logs to SSTs. Unfinished uploads are deleted, and the epoch is
        incremented. Reads wait meanwhile.

        Raises:
            StorageFull, Unavailable: The disk still fails, or a read does not end: nothing was done. Otherwise the
                database stays closed, and reads raise `Unavailable` until a repeated call succeeds.
            StoreDamaged: Less is left than was synced.
        """
        require_working_disk(self.path)
        with self._gate.closed():
            self._release()
            self._open(salvage=False)

    def close(self) -> None:
        """Flush the memtables, so that the next open replays no log, and release the lock.

        No read or write may be in progress. Best effort: acknowledged writes are synced already, and a full or failing
        disk must not keep the lock.
        """
        if self._mark is not None and self._is_sound:
            with suppress(CoregwError):
                self.flush()
                with translated(self.path):
                    self._mark.note_write()  # the flush began another log
                self.sync()
                self.refresh_mark()
        self._release()

    def become_read_only(self, damage: StoreDamaged) -> None:
        """Write nothing any more, since a write met damage. Reads go on with what RocksDB has open."""
        if self.read_only is None:
            self.read_only = ReadOnly(self.path, _advised(damage), is_lossy=False)

    def _open(self, *, salvage: bool) -> None:
        """Open RocksDB; after a power cut without the torn end of a log, and after damage without compactions.

        A compaction that reads a damaged SST stops writes, even the first.
        """
        compacted = self._compacts
        try:
            try:
                self._open_rocksdb(salvage=salvage)
            except StoreDamaged:
                if self._compacts == compacted and (salvage or not self._drop_torn_ends()):
                    raise
                self._open_rocksdb(salvage=salvage)
        except StoreDamaged as error:
            if salvage:
                raise
            if not self._read_only_if_damaged:
                raise _advised(error) from error
            self._open_read_only(_advised(error))

    def _open_read_only(self, damage: StoreDamaged) -> None:
        self._root, self.read_only = open_read_only(self.path, self._cache_bytes, damage)
        try:
            with translated(self.path):
                for family in Family:
                    self._families[family] = self._root.get_column_family(family)
            with suppress(StoreDamaged):  # then roots that have expired may be shown
                self._read_dates()
                (undated,) = self.get(Family.META, [UNDATED_KEY])
                self.undated = self.undated if undated is None else Undated.decode(undated).date
        except BaseException:
            self._release()
            raise

    def _drop_torn_ends(self) -> bool:
        try:
            return drop_torn_ends(self.path / DATABASE)
        except OSError:  # a file is missing, which is the damage
            return False

    def _open_rocksdb(self, *, salvage: bool) -> None:
        is_first = prepare(self.path, salvage=salvage) == "creating"
        try:
            with translated(self.path):
                self._root = Rdict(
                    str(self.path / DATABASE),
                    database_options(create=is_first, salvage=salvage, compacts=self._compacts),
                    family_options(Cache(self._cache_bytes), compacts=self._compacts),
                )
                for family in Family:
                    self._families[family] = self._root.get_column_family(family)
                    self._handles[family] = self._root.get_column_family_handle(family)
            if salvage:
                self._drop_incomplete_payloads()
            self.epoch = self._begin_epoch(is_first=is_first)
            with translated(self.path):
                self._mark = HighWaterMark(self.path / DATABASE)
            self._is_sound = True
            if is_first:
                mark_ready(self.path)
        except BaseException:
            self._release()
            raise

    def _release(self) -> None:
        """Close RocksDB, which flushes the memtables if it can, and release its lock. Idempotent."""
        if self.read_only is not None:
            self.read_only.release()
        mark, self._mark = self._mark, None
        if mark is not None:
            mark.close()
        self._handles.clear()  # the lock lives as long as any handle does
        for database in self._families.values():
            with suppress(Exception):
                database.close()  # flushes the family
        self._families.clear()
        root, self._root = self._root, None
        if root is not None:
            with suppress(Exception):
                root.close()

    def _family(self, family: Family) -> Rdict:
        try:
            return self._families[family]
        except KeyError:
            raise Unavailable(f"the store in {self.path} is closed") from None

    def _require_root(self) -> Rdict:
        if self._root is None:
            raise Unavailable(f"the store in {self.path} is closed")
        return self._root

    def _note_fault(self, error: BaseException) -> None:
        """Note that nothing may be recorded as durable after an error before `reopen`."""
        if isinstance(error, WriteStalled):
            return
        self._is_sound = False
        if isinstance(error, StoreDamaged) and self._compacts:
            self._compacts = False
            _log.error("compactions are disabled until the next start: %s; %s", error, _ADVICE)

    def _write_when_possible(self, rows: Sequence[Write], ranges: Sequence[tuple[Family, bytes, bytes]]) -> None:
        began = time.monotonic()
        while not self._try_write(rows, ranges):
            waited = time.monotonic() - began
            if waited > _FAULT_STALL_SECONDS and self.background_errors():
                if self.free_bytes() < SPARE_BYTES:
                    raise StorageFull(f"the disk of the store in {self.path} is full")
                raise Unavailable(f"the store in {self.path} cannot write SSTs")
            if waited > STALL_SECONDS:
                raise WriteStalled(f"the disk of {self.path} does not keep up: a write waited {STALL_SECONDS:.0f} s")
            time.sleep(_STALL_PAUSE_SECONDS)

    def _begin_epoch(self, *, is_first: bool) -> int:
        """Increment the epoch, and delete what unfinished uploads left."""
        (found,) = self.get(Family.META, [EPOCH_KEY])
        if found is None and not is_first:
            raise StoreDamaged(f"the store in {self.path} has lost its epoch, the count of its openings")
        epoch = int.from_bytes(found or b"", "big") + 1
        unfinished = list(self.keys(Family.UPLOADS))  # no process can continue them: this one holds the lock
        self._read_dates()
        self.undated = self._undated_since(epoch)
        self.write(
            [
                (Family.META, EPOCH_KEY, epoch.to_bytes(4, "big")),
                (Family.META, UNDATED_KEY, Undated(epoch, self.undated).encode()),
                *((Family.UPLOADS, upload, None) for upload in unfinished),
            ],
            [(Family.CHUNKS, *chunk_range(upload)) for upload in unfinished],
        )
        self.sync()
        # An SST is out of reach of damage to the log: an epoch used twice would mix up payloads.
        with translated(self.path, self._note_fault):
            self._family(Family.META).flush()
        return epoch

    def _read_dates(self) -> None:
        """Read before when roots have expired."""
        (expired,) = self.get(Family.META, [EXPIRED_KEY])
        self.expired_before = 0 if expired is None else decode_date(expired)
        self.clock.advance_to(self.expired_before)  # or new roots would count as expired

    def _undated_since(self, epoch: int) -> int:
        """When rows without a date count as dated: now, unless that was decided before and is still right."""
        (found,) = self.get(Family.META, [UNDATED_KEY])
        if found is not None:
            undated = Undated.decode(found)
            if undated.epoch == epoch - 1:
                return undated.date
        return self.clock.now()

    def _drop_incomplete_payloads(self) -> None:
        """Delete the rows of payloads that lost chunks with a damaged log, so that they can be stored again. Slow."""
        chunks = Counter(upload_of_chunk(key) for key in self.keys(Family.CHUNKS))
        for multihash, value in self.scan(Family.PAYLOADS, b"", None, limit=sys.maxsize):
            row = PayloadRow.decode(multihash, value)
            if chunks[row.upload_id] != row.chunks:
                self.write([(Family.PAYLOADS, multihash, None)])

    def _try_write(self, rows: Iterable[Write], ranges: Iterable[tuple[Family, bytes, bytes]]) -> bool:
        """Whether RocksDB accepted the rows; False if it would have delayed the caller."""
        self._require_root()
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
                self._require_root().write(batch, self._write_options)
        except WriteStalled:
            return False
        return True


def _figures(family: Rdict) -> FamilyFigures:
    names = ("total-sst-files-size", "estimate-live-data-size", "cur-size-all-mem-tables", "estimate-num-keys")
    return FamilyFigures(*(family.property_int_value(f"rocksdb.{name}") or 0 for name in names))


def _advised(damage: StoreDamaged) -> StoreDamaged:
    """The same error, with what an operator can do."""
    return StoreDamaged(damage.message if _ADVICE in damage.message else f"{damage.message}; {_ADVICE}")


def _is_valid(rows: RdictIter) -> bool:
    """Whether the iterator is at a row. A damaged block also ends an iteration, so the status is checked then."""
    if rows.valid():
        return True
    rows.status()
    return False
