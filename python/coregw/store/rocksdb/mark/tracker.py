"""Tracker of the high-water mark: keeps it current while RocksDB writes.

The mark never claims more than is durable: a size is recorded after a sync that began when the file already had it.
"""

from __future__ import annotations

import mmap
import os
import secrets
from contextlib import suppress
from pathlib import Path

from coregw.store.rocksdb.mark.claims import encode_claim
from coregw.store.rocksdb.mark.file import SESSION_BYTES, Durable, Extent, MarkFile
from coregw.store.rocksdb.mark.names import current_manifest, log_name, log_numbers, manifest_name
from coregw.store.rocksdb.mark.records import complete_end
from coregw.syncing import sync_path

__all__ = ["HighWaterMark"]


class HighWaterMark:
    """The mark of an open database, for its only writer. Every method raises OSError.

    A write costs one lseek, a sync one write of less than a page, and the first sync of a log one more sync.

    Args:
        database: RocksDB's directory. Nothing may be writing to its logs now.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._session = secrets.token_bytes(SESSION_BYTES)
        self._ended: list[int] = []
        self._manifest = Extent(0, 0)
        self._synced: dict[int, int] = {}
        for number in log_numbers(database):
            self._sync_ended(number)
        self._sync_manifest()
        newest = max(self._synced)
        self._descriptor = self._open_log(newest)
        self._log = Extent(newest, self._synced[newest])
        self.claim = encode_claim(self._session, self._log)
        """What the next batch says of the logs: the value of its row `CLAIM_KEY`."""
        self._persisted = self._durable()
        try:
            self._file = MarkFile.create(database, self._persisted)
        except BaseException:
            os.close(self._descriptor)
            raise

    def note_write(self) -> None:
        """Find out to which log RocksDB has appended a batch. Call it after each write, before the next one."""
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        if size == self._log.size:  # RocksDB has begun another log
            numbers = log_numbers(self._database)
            self._ended += [number for number in numbers if self._log.number <= number < numbers[-1]]
            descriptor = self._open_log(numbers[-1])
            os.close(self._descriptor)
            self._descriptor = descriptor
            size = os.fstat(descriptor).st_size
            self._log = Extent(numbers[-1], size)
        else:
            self._log = Extent(self._log.number, size)

    def before_sync(self) -> None:
        """Sync the logs that RocksDB has ended. Call it before RocksDB syncs, which skips those it has flushed."""
        for number in self._ended:
            self._sync_ended(number)
        self._ended.clear()

    def note_sync(self) -> None:
        """Record that everything written so far is durable. Call it after RocksDB has synced."""
        if self._synced.get(self._log.number) == self._log.size:
            return
        is_new = self._log.number not in self._synced
        self._synced[self._log.number] = self._log.size
        self.claim = encode_claim(self._session, self._log)
        self._file.write(self._durable())
        if is_new:  # nothing but the mark tells that this log was there, should it be missing
            self._file.sync()

    def refresh(self) -> None:
        """Record what RocksDB has added to its MANIFEST, forget deleted logs, and make the mark durable.

        Writes nothing if nothing has changed, so that an idle disk stays idle.
        """
        self._sync_manifest()
        if self._durable() == self._persisted:
            return
        # The newest log that was synced stays, even if it is deleted: another one must follow it.
        on_disk = {*log_numbers(self._database), self._log.number, max(self._synced)}
        self._synced = {number: size for number, size in self._synced.items() if number in on_disk}
        self._persisted = self._durable()
        self._file.write(self._persisted)
        self._file.sync()

    def close(self) -> None:
        """Release the files; the mark stays as it is."""
        os.close(self._descriptor)
        self._file.close()

    def _durable(self) -> Durable:
        return Durable(self._manifest, tuple(Extent(*item) for item in sorted(self._synced.items())), self._session)

    def _open_log(self, number: int) -> int:
        return os.open(self._database / log_name(number), os.O_RDONLY | os.O_CLOEXEC)

    def _sync_ended(self, number: int) -> None:
        """Sync a log to which nothing is appended any more."""
        with suppress(FileNotFoundError):  # flushed and deleted
            descriptor = self._open_log(number)
            try:
                os.fsync(descriptor)
                self._synced[number] = os.fstat(descriptor).st_size
            finally:
                os.close(descriptor)

    def _sync_manifest(self) -> None:
        """Sync the MANIFEST in use, if it has grown, and note the end of its last complete entry."""
        number = current_manifest(self._database)
        if number is None:
            return
        before = self._manifest if self._manifest.number == number else Extent(number, 0)
        with suppress(FileNotFoundError), (self._database / manifest_name(number)).open("rb") as file:  # else replaced
            size = os.fstat(file.fileno()).st_size
            if size == before.size:
                return
            os.fsync(file.fileno())
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                end = complete_end(data, before.size, size)
            if before.size == 0:
                sync_path(self._database)  # CURRENT was replaced
            self._manifest = Extent(number, end)
