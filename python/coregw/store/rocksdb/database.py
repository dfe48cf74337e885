"""The open RocksDB database: opening, sizes, checkpoints, compaction, closing, figures.

The four rows read when it is opened are the store's state. One that is damaged is replaced by a value that keeps more,
or for longer, since nothing can be written without them.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from rocksdict import BottommostLevelCompaction, Cache, Checkpoint, CompactOptions, Rdict

from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable
from coregw.store.ages import Clock
from coregw.store.collection import Identity
from coregw.store.rocksdb.directory import (
    DATABASE,
    has_current_format,
    lock_database,
    lock_directory,
    mark_ready,
    prepare,
    read_identity,
    remove_checkpoint,
    require_working_disk,
    write_identity,
)
from coregw.store.rocksdb.layout import (
    EPOCH_KEY,
    EXPIRED_KEY,
    TIME_KEY,
    UNDATED_KEY,
    Confirmed,
    Family,
    PayloadRow,
    chunk_range,
    decode_date,
    decode_epoch,
    encode_date,
    encode_epoch,
    epoch_of_upload,
    upload_of_chunk,
)
from coregw.store.rocksdb.mark import HighWaterMark, drop_torn_ends
from coregw.store.rocksdb.options import database_options, family_options, translated
from coregw.store.rocksdb.readonly import Cause, open_read_only, require_skippable
from coregw.store.rocksdb.rows import ADVICE, Rows, Write, advised
from coregw.text import require_utf_8

__all__ = [
    "Database",
    "FamilyFigures",
    "Opening",
    "begin_opening",
    "drop_incomplete_payloads",
    "read_epoch",
    "read_expired",
    "read_undated",
]

_T = TypeVar("_T")

_LAST_GUESS: Final = 0xFFFF_0000
"""A clock that is wrong by decades must leave some of the epochs, which have 4 bytes."""

_log = logging.getLogger(__name__)


class Opening(NamedTuple):
    """The state of a store that was opened for writing.

    Attributes:
        epoch: The number of this opening; a greater one if the number of those before was lost.
        expired_before: Roots dated before this time, in milliseconds, have expired.
        undated: When rows without a date count as dated, and those with an earlier one: at the opening, unless that
            was decided before and is still right.
    """

    epoch: int
    expired_before: int
    undated: int


def begin_opening(database: Rows, clock: Clock, *, is_first: bool, salvage: bool) -> Opening:
    """Increment the epoch, renew rows of the state that are damaged, and delete what unfinished uploads left.

    Args:
        database: The database.
        clock: The store's clock, which continues from the recorded time, after that before which roots have expired.
        is_first: Whether the database was just created.
        salvage: Whether rows may be lost; then the epoch may be missing.

    Raises:
        StoreDamaged: The epoch is missing, and with it perhaps other rows.
    """
    expired = _readable(database, EXPIRED_KEY, read_expired)
    # Without a limit, roots that have expired are held until the next collection: their pages and payloads are still
    # there, since these are removed after the rows of all roots that have expired.
    expired_before = expired or 0
    before = _readable(database, EPOCH_KEY, read_epoch)
    if before is None:
        before = _unused_epoch(database, clock)
    elif before == 0 and not is_first:
        if not salvage:
            raise StoreDamaged(f"the store in {database.path} has lost its epoch, the count of its openings")
        before = _unused_epoch(database, clock)
    epoch = before + 1
    undated = _readable(database, UNDATED_KEY, read_undated)
    time = _readable(database, TIME_KEY, _read_time)
    if undated is None or time is None or not undated.epoch == time.epoch == before:
        undated = time = None
    # Without a recorded time, the system's may be wrong: what is stored counts as stored now.
    clock.resume(clock.now() if time is None else time.time)
    clock.advance_to(expired_before)  # or new roots would count as expired
    now = clock.now()
    date = now if undated is None else undated.time
    unfinished = list(database.keys(Family.UPLOADS))  # no process can continue them: this one holds the lock
    rows: list[Write] = [
        (Family.META, EPOCH_KEY, encode_epoch(epoch)),
        (Family.META, UNDATED_KEY, Confirmed(epoch, date).encode()),
        (Family.META, TIME_KEY, Confirmed(epoch, now).encode()),
        *((Family.UPLOADS, upload, None) for upload in unfinished),
    ]
    if expired is None:
        rows.append((Family.META, EXPIRED_KEY, encode_date(expired_before)))
    database.write(rows, [(Family.CHUNKS, *chunk_range(upload)) for upload in unfinished])
    database.sync()
    # An SST is out of reach of damage to the log: an epoch used twice would mix up payloads.
    try:
        database.flush(Family.META)
    except StoreDamaged as error:
        database.note_fault(error)
        raise
    return Opening(epoch, expired_before, date)


def read_epoch(database: Rows) -> int:
    """Return the number of openings before this one; 0 if the row is missing."""
    (epoch,) = database.get(Family.META, [EPOCH_KEY])
    return 0 if epoch is None else decode_epoch(epoch)


def read_expired(database: Rows) -> int:
    """Return before when roots have expired."""
    (expired,) = database.get(Family.META, [EXPIRED_KEY])
    return 0 if expired is None else decode_date(expired)


def read_undated(database: Rows) -> Confirmed | None:
    """Return when rows without a date count as dated; None if no version decided that."""
    return _confirmed(database, UNDATED_KEY)


def _read_time(database: Rows) -> Confirmed | None:
    return _confirmed(database, TIME_KEY)


def _confirmed(database: Rows, key: bytes) -> Confirmed | None:
    (found,) = database.get(Family.META, [key])
    return None if found is None else Confirmed.decode(found)


def _readable(database: Rows, key: bytes, read: Callable[[Rows], _T]) -> _T | None:
    """Read a row of the state; None if it is damaged, which the log says."""
    try:
        return read(database)
    except StoreDamaged as error:
        what = "the store in %s: its row %r is not readable, and is renewed: %s; %s"
        _log.warning(what, database.path, key.decode(), error, ADVICE)
        return None


def _unused_epoch(database: Rows, clock: Clock) -> int:
    """Return an epoch from which on none was used: no store is opened once a second, so none counts that far.

    That of the newest chunk is compared as well, in case the clock was set back after an epoch was lost before.
    """
    now = max(clock.system_ms, clock.now())
    newest = None
    with suppress(StoreDamaged):
        newest = database.last_key(Family.CHUNKS)
    return max(min(now // 1000, _LAST_GUESS), 0 if newest is None else epoch_of_upload(upload_of_chunk(newest)))


def drop_incomplete_payloads(database: Rows) -> None:
    """Delete the rows of payloads that lost chunks with a damaged log, so that they can be stored again. Slow."""
    chunks = Counter(upload_of_chunk(key) for key in database.keys(Family.CHUNKS))
    for multihash, value in database.scan(Family.PAYLOADS, b"", None, limit=sys.maxsize):
        row = PayloadRow.decode(multihash, value)
        if chunks[row.upload_id] != row.chunks:
            database.write([(Family.PAYLOADS, multihash, None)])


class FamilyFigures(NamedTuple):
    """A column family. Rows and live bytes are RocksDB's estimates; overwritten and deleted rows are not live.

    Attributes:
        sst_bytes: Size of its SST files.
        live_bytes: Size of the live data in them.
        memtable_bytes: Memory of its memtables.
        keys: Number of rows.
    """

    sst_bytes: int
    live_bytes: int
    memtable_bytes: int
    keys: int


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
        self._lock: weakref.finalize[..., Database] | None = None
        """Ends the lock of the directory, which is held as long as its files are used, also while it is reopened."""
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
        self._unlock()

    def _open(self, *, salvage: bool) -> None:
        """Open RocksDB; after a power cut without the torn end of a log, and after damage without compactions.

        A compaction that reads a damaged SST stops writes, even the first.
        """
        if self._lock is None:
            require_utf_8(self.path, " for a store")  # RocksDB's binding takes no other
            self._lock = weakref.finalize(self, lock_directory(self.path))
        try:
            self._open_locked(salvage=salvage)
        except BaseException:
            self._unlock()
            raise

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock()

    def _open_locked(self, *, salvage: bool) -> None:
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
                self._has_differences = self.read_only.has_differences
                for family in Family:
                    if family is not Family.DIFFERENCES or self._has_differences:
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
        if not (self.path / DATABASE).is_dir():
            return False
        lock = lock_database(self.path)  # who could not lock the directory, or did not know that lock, has this one
        try:
            return drop_torn_ends(self.path / DATABASE)
        except OSError:  # a file is missing, which is the damage
            return False
        finally:
            os.close(lock)

    def _open_rocksdb(self, *, salvage: bool) -> None:
        is_first = prepare(self.path, salvage=salvage) == "creating"
        is_current = has_current_format(self.path)
        if salvage:
            require_skippable(self.path)
        try:
            with translated(self.path):
                options = database_options(create=is_first, salvage=salvage, compacts=self._compacts)
                if not is_current:
                    found = set(Rdict.list_cf(str(self.path / DATABASE)))
                    options.create_missing_column_families(found == set(Family) - {Family.DIFFERENCES})
                self._has_differences = True
                self._root = Rdict(
                    str(self.path / DATABASE),
                    options,
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
            if is_first or not is_current:
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
