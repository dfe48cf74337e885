"""The RocksDB database as a whole: opening, reopening, sizes, checkpoints, compaction, closing."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from rocksdict import BottommostLevelCompaction, Cache, Checkpoint, CompactOptions, Rdict

from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable
from coregw.store.clock import Clock
from coregw.store.collection import Identity
from coregw.store.rocksdb.database.opening import (
    begin_opening,
    drop_incomplete_payloads,
    read_epoch,
    read_expired,
    read_undated,
)
from coregw.store.rocksdb.database.rows import Rows, advised
from coregw.store.rocksdb.directory import (
    DATABASE,
    mark_ready,
    prepare,
    read_identity,
    remove_checkpoint,
    require_working_disk,
    write_identity,
)
from coregw.store.rocksdb.figures import FamilyFigures
from coregw.store.rocksdb.layout import TIME_KEY, Confirmed, Family
from coregw.store.rocksdb.mark import HighWaterMark, drop_torn_ends
from coregw.store.rocksdb.options import database_options, family_options
from coregw.store.rocksdb.readonly import Cause, open_read_only, require_skippable
from coregw.store.rocksdb.statuses import translated

__all__ = ["Database"]

_BLOCK_BYTES: Final = 512

_TIME_STEP_MS: Final = 60_000
"""How often the clock's time is recorded: a process that is killed loses less of it."""


class Database(Rows):
    """An open database.

    Args:
        path: The store's directory; created if it is missing.
        cache_bytes: Memory for the block cache.
        salvage: Open a database whose log is damaged or lost, with what can still be read.
        clock: The clock that dates roots and payloads; None makes one.
        read_only_if_needed: Open a database for reading if it is damaged, or if its disk is full. In the latter case
            `reopen` opens it for writing when there is room.

    Raises:
        InvalidInput, StoreDamaged, Unavailable: As `coregw.store.rocksdb.directory.prepare`. Also `Unavailable` if the
            store is open already, and `StoreDamaged` if RocksDB finds its files corrupt.
        StorageFull: The disk is full.
    """

    def __init__(
        self,
        path: Path,
        cache_bytes: int,
        *,
        salvage: bool = False,
        read_only_if_needed: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(path)
        self._read_only_if_needed = read_only_if_needed
        self.epoch = 0
        """The number of this opening for writing, which no other one has; 0 if there was none here."""
        self.identity: Identity | None = None
        """Which store it is; None if that is not known."""
        self._cache_bytes = cache_bytes
        self.clock = clock or Clock()
        self.expired_before = 0
        """Roots dated before this time, in milliseconds, have expired."""
        self.undated = self.clock.now()
        """When rows without a date count as dated, and those with an earlier one."""
        self._recorded_ms = 0
        self._open(salvage=salvage)
        remove_checkpoint(path)

    def figures(self) -> dict[str, FamilyFigures]:
        """Return the sizes of the column families, by name."""
        with self._gate, translated(self.path):
            return {str(family): _figures(each) for family, each in self._families.items()}

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

    def file_bytes(self) -> int:
        """The space on the disk that the files of the database take."""
        total = 0
        with translated(self.path):
            for file in (self.path / DATABASE).iterdir():
                with suppress(FileNotFoundError):  # deleted meanwhile
                    total += file.stat().st_blocks * _BLOCK_BYTES
        return total

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

    def time_row(self) -> bytes:
        """The row `TIME_KEY` with the clock's time."""
        return Confirmed(self.epoch, self.clock.now()).encode()

    def record_time(self) -> bool:
        """Record the clock's time if the last record is a minute old. Returns whether a `sync` is due.

        Raises:
            StorageFull, Unavailable: As `write`.
        """
        if self.clock.now() - self._recorded_ms < _TIME_STEP_MS:
            return False
        self._record_time()
        return True

    def close(self) -> None:
        """Flush the memtables, so that the next open replays no log, and release the lock.

        No read or write may be in progress. Best effort: acknowledged writes are synced already, and a full or failing
        disk must not keep the lock.
        """
        if self._mark is not None and self._is_sound:
            with suppress(CoregwError):
                self._record_time()
                self.flush()
                with translated(self.path):
                    self._mark.note_write()  # the flush began another log
                self.sync()
                self.refresh_mark()
        self._release()

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
            if not self._read_only_if_needed:
                raise advised(error) from error
            self._open_read_only(advised(error))
        except StorageFull as error:
            if salvage or not self._read_only_if_needed or not (self.path / DATABASE / "CURRENT").is_file():
                raise
            self._open_read_only(error)

    def _open_read_only(self, cause: Cause) -> None:
        self._root, self.read_only = open_read_only(self.path, self._cache_bytes, cause)
        try:
            with translated(self.path):
                for family in Family:
                    self._families[family] = self._root.get_column_family(family)
            with suppress(CoregwError):
                self.identity = read_identity(self.path)
            with suppress(StoreDamaged):
                if read_epoch(self) == 0 and not self.read_only.is_temporary:
                    self.read_only.note_loss()  # each opening writes it, so other rows may be missing as well
            with suppress(StoreDamaged):  # then roots that have expired may be shown
                self.expired_before = read_expired(self)
            with suppress(StoreDamaged):
                undated = read_undated(self)
                self.undated = self.undated if undated is None else undated.time
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
        if salvage:
            require_skippable(self.path)
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
                drop_incomplete_payloads(self)
            self.epoch, self.expired_before, self.undated = begin_opening(
                self, self.clock, is_first=is_first, salvage=salvage
            )
            self._recorded_ms = self.clock.now()
            with translated(self.path):
                self._mark = HighWaterMark(self.path / DATABASE)
            self._is_sound = True
            if is_first:
                mark_ready(self.path)
            self.identity = self._identified()
        except BaseException:
            self._release()
            raise

    def _identified(self) -> Identity | None:
        """Return which store it is; one of an earlier version is told so here, unless its disk is full."""
        found = read_identity(self.path)
        if found is None:
            with suppress(StorageFull, Unavailable):
                write_identity(self.path, new := Identity.new())
                return new
        return found

    def _record_time(self) -> None:
        self.write([(Family.META, TIME_KEY, self.time_row())])
        self._recorded_ms = self.clock.now()

    def _release(self) -> None:
        """Close RocksDB, which flushes the memtables if it can, and release its lock. Idempotent."""
        if self.read_only is not None:
            self.read_only.release()
            self.read_only = None
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


def _figures(family: Rdict) -> FamilyFigures:
    names = ("total-sst-files-size", "estimate-live-data-size", "cur-size-all-mem-tables", "estimate-num-keys")
    return FamilyFigures(*(family.property_int_value(f"rocksdb.{name}") or 0 for name in names))
