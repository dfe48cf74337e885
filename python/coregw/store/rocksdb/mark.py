"""The file of the high-water mark: two slots, of which one is always intact, whatever ends the process or the power.

A commit overwrites the live slot, which survives the end of the process. About once a second the file is synced, and
the other slot becomes the live one. So a power cut can only spoil a slot that is newer than the other.

```
slot, 4,096 bytes: | "cgw1" | sequence | MANIFEST: number, size | count | logs: number, size ... | CRC-32 |
                   | session, 16 bytes | CRC-32 |
```

Earlier versions wrote no session, and do not read it.

The mark never claims more than is durable: a size is recorded after a sync that began when the file already had it.

The mark may be a second old after a power cut. Damage to what was acknowledged in that second looks like a torn end,
unless a later batch is intact: its claim covers the damage. A claim is a row of `Family.META`:

```
`CLAIM_KEY` -> | session, 16 bytes | log: number, 8 bytes | size, 8 bytes |
```

The session is a secret of one opening, which the mark has as well. So no payload, parts of which are found when records
are searched for after damage, can be mistaken for a claim.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Self

from coregw.durability import sync_path
from coregw.errors import StoreDamaged
from coregw.store.rocksdb.layout import CLAIM_KEY
from coregw.store.rocksdb.wal import Damage, complete_end, intact_end, read_batch, read_log

__all__ = [
    "MARK",
    "SESSION_BYTES",
    "Durable",
    "Extent",
    "HighWaterMark",
    "HighWaterMarkFile",
    "claims",
    "current_manifest",
    "drop_torn_ends",
    "encode_claim",
    "log_name",
    "log_numbers",
    "manifest_name",
    "read_mark",
    "require_durable",
]

MARK: Final = "coregw-mark"
"""The file's name in RocksDB's directory; RocksDB ignores it."""

SESSION_BYTES: Final = 16

_UNFINISHED: Final = MARK + ".new"

_SLOT_BYTES: Final = 4096

_MAGIC: Final = b"cgw1"

_HEAD: Final = struct.Struct(">4sQQQH")

_EXTENT: Final = struct.Struct(">QQ")

_CRC: Final = struct.Struct(">I")

_MAX_LOGS: Final = (_SLOT_BYTES - _HEAD.size - 2 * _CRC.size - SESSION_BYTES) // _EXTENT.size


class Extent(NamedTuple):
    """A file of RocksDB, by its number, and how many of its bytes are meant."""

    number: int
    size: int


class Durable(NamedTuple):
    """What is durable of a database's MANIFEST and of its logs, in ascending order.

    Attributes:
        manifest: The MANIFEST in use.
        logs: The logs.
        session: The secret of the claims in the newest logs (`coregw.store.rocksdb.mark`); empty if they have
            none.
    """

    manifest: Extent
    logs: tuple[Extent, ...]
    session: bytes = b""

    @property
    def newest(self) -> Extent:
        """The newest log; one before all others if earlier versions recorded none."""
        return self.logs[-1] if self.logs else Extent(0, 0)


class HighWaterMarkFile:
    """The open file. Every method raises OSError."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._sequence = 0
        self._live = 0

    @classmethod
    def create(cls, database: Path, durable: Durable) -> Self:
        """Replace the file of a database, durably."""
        unfinished = database / _UNFINISHED
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(descriptor, 2 * _SLOT_BYTES)
            file = cls(descriptor)
            for _ in range(2):  # allocates both slots now, not when the disk is full
                file.write(durable)
                file.sync()
            unfinished.replace(database / MARK)
            sync_path(database)
        except BaseException:
            os.close(descriptor)
            raise
        return file

    def write(self, durable: Durable) -> None:
        """Overwrite the live slot. It survives the end of the process at once, and a power cut after `sync`."""
        self._sequence += 1
        os.pwrite(self._descriptor, _encode(self._sequence, durable), self._live * _SLOT_BYTES)

    def sync(self) -> None:
        """Sync what was written; the other slot becomes the live one."""
        os.fsync(self._descriptor)
        self._live = 1 - self._live

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read_mark(database: Path) -> Durable | None:
    """Read the mark of a database; None if it has none, as those of earlier versions.

    Raises:
        StoreDamaged: Neither slot is intact.
        OSError: The file cannot be read.
    """
    try:
        data = (database / MARK).read_bytes()
    except FileNotFoundError:
        return None
    slots = (_decode(data[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES))
    intact = [slot for slot in slots if slot is not None]
    if not intact:
        raise StoreDamaged(f"{database / MARK} is damaged, so it cannot be checked whether anything is lost")
    return max(intact)[1]


def _encode(sequence: int, durable: Durable) -> bytes:
    logs = durable.logs[-_MAX_LOGS:]
    numbers = [number for log in logs for number in log]
    body = struct.pack(f"{_HEAD.format}{len(numbers)}Q", _MAGIC, sequence, *durable.manifest, len(logs), *numbers)
    return body + _CRC.pack(zlib.crc32(body)) + durable.session + _CRC.pack(zlib.crc32(durable.session))


def _decode(slot: bytes) -> tuple[int, Durable] | None:
    """Return a slot's sequence number and content, None if it is not intact."""
    if len(slot) < _SLOT_BYTES:
        return None
    magic, sequence, number, size, count = _HEAD.unpack_from(slot)
    if magic != _MAGIC or count > _MAX_LOGS:
        return None
    end = _HEAD.size + count * _EXTENT.size
    if _CRC.unpack_from(slot, end) != (zlib.crc32(slot[:end]),):
        return None
    logs = tuple(Extent(*_EXTENT.unpack_from(slot, _HEAD.size + i * _EXTENT.size)) for i in range(count))
    return sequence, Durable(Extent(number, size), logs, _decode_session(slot, end + _CRC.size))


def _decode_session(slot: bytes, start: int) -> bytes:
    session = slot[start : start + SESSION_BYTES]
    (checksum,) = _CRC.unpack_from(slot, start + SESSION_BYTES)
    return session if any(session) and zlib.crc32(session) == checksum else b""


_CLAIM: Final = struct.Struct(">16sQQ")

_META: Final = 0
"""The number of the family that every database has."""


def encode_claim(session: bytes, log: Extent) -> bytes:
    """Return the value of the row."""
    return _CLAIM.pack(session, *log)


def claims(data: bytes | mmap.mmap, start: int, session: bytes) -> Iterator[Extent]:
    """Iterate over the claims of a session in a log, in its intact batches, also in those after damage. O(bytes).

    Args:
        data: The log.
        start: Where an entry begins; what is before it is not read.
        session: The session.
    """
    damages: list[Damage] = []
    with memoryview(data) as view:
        for record in read_log(view, "", damages, start=start):
            if not record.is_intact:
                continue
            first = next(read_batch(record.data, {_META}, is_intact=True), None)
            if first is None or first.entry.key != CLAIM_KEY or first.entry.value is None:
                continue
            value = bytes(first.entry.value)
            if len(value) == _CLAIM.size and value.startswith(session):
                _, number, size = _CLAIM.unpack(value)
                yield Extent(number, size)


_LOG: Final = ".log"

_MANIFEST: Final = "MANIFEST-"


def log_name(number: int) -> str:
    """The name of a write-ahead log."""
    return f"{number:06}{_LOG}"


def manifest_name(number: int) -> str:
    """The name of a MANIFEST."""
    return f"{_MANIFEST}{number:06}"


def log_numbers(database: Path) -> list[int]:
    """The numbers of the logs in a database's directory, ascending. RocksDB writes to the last one."""
    names = (file.name.removesuffix(_LOG) for file in database.iterdir() if file.suffix == _LOG)
    return sorted(int(name) for name in names if name.isdecimal())


def current_manifest(database: Path) -> int | None:
    """The number of the MANIFEST in use; None if CURRENT, which names it, is malformed. Raises OSError."""
    name = (database / "CURRENT").read_bytes().decode("ascii", "replace").strip()
    number = name.removeprefix(_MANIFEST)
    return int(number) if name.startswith(_MANIFEST) and number.isdecimal() else None


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
            self._file = HighWaterMarkFile.create(database, self._persisted)
        except BaseException:
            os.close(self._descriptor)
            raise

    def note_write(self) -> None:
        """Find out to which log RocksDB has appended a batch. Call it after each write, before the next one."""
        size = os.lseek(self._descriptor, 0, os.SEEK_END)
        if size == self._log.size:  # RocksDB has begun another log
            *ended, newest = self._open_newest()
            self._ended += [number for number in ended if number >= self._log.number]
            self._log = Extent(newest, os.fstat(self._descriptor).st_size)
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

    def _open_newest(self) -> list[int]:
        """Open the log that RocksDB writes to, instead of the one before. Returns the numbers of the logs, ascending.

        A flush in another thread, as that of a backup, may end and delete a log after it was listed. Its rows are in
        SSTs then, and RocksDB has begun another one.
        """
        before: list[int] | None = None
        while True:
            numbers = log_numbers(self._database)
            try:
                descriptor = self._open_log(max(numbers, default=self._log.number))
            except FileNotFoundError:
                if numbers == before:  # nothing flushes
                    raise
                before = numbers
            else:
                os.close(self._descriptor)
                self._descriptor = descriptor
                return numbers

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


_log = logging.getLogger(__name__)


def require_durable(database: Path) -> None:
    """Refuse a database in which less is left than its mark records, or than the claims in its logs.

    O(records in the logs and the MANIFEST), and O(bytes) of what was written to logs after the mark.

    Older logs that are missing are not refused here: they may be obsolete. RocksDB records in its MANIFEST which are
    not, and refuses to open without these.

    Raises:
        StoreDamaged: Durable bytes are missing or overwritten, or the mark itself is damaged.
        OSError: A file cannot be read.
    """
    durable = read_mark(database)
    if durable is None:
        return
    manifest = current_manifest(database)
    if manifest is not None:  # otherwise RocksDB refuses it
        if manifest < durable.manifest.number:
            name = manifest_name(durable.manifest.number)
            raise StoreDamaged(f"{database / 'CURRENT'} names {manifest_name(manifest)}, but {name} was in use")
        if manifest == durable.manifest.number:
            _require_extent(database / manifest_name(manifest), durable.manifest)
    found = set(log_numbers(database))
    for log in durable.logs:
        if log.number in found:
            _require_extent(database / log_name(log.number), log)
    newest = durable.newest.number
    if max(found, default=0) < newest:
        raise StoreDamaged(f"{database / log_name(newest)}, the log of the newest writes, is missing")
    if durable.session:
        _require_claimed(database, durable)


def _require_claimed(database: Path, durable: Durable) -> None:
    """Refuse logs in which something is damaged that a later batch claims to be durable: the mark may be older."""
    newest = durable.newest
    written = {number: newest.size * (number == newest.number) for number in log_numbers(database)}
    written = {number: size for number, size in written.items() if number >= newest.number}
    claimed = dict.fromkeys(written, 0)
    for number, start in written.items():
        with _mapped(database / log_name(number), start) as data:
            for log in claims(data, start, durable.session):
                if log.number in claimed:
                    claimed[log.number] = max(claimed[log.number], log.size)
    for number, size in claimed.items():
        file, start = database / log_name(number), written[number]
        with _mapped(file, start) as data:
            end = intact_end(data, start, min(size, len(data))) if size > start else size
        if end < size:
            what = f"{file} is damaged at byte {end:,}, but a later write says that {size:,} bytes were durable"
            raise StoreDamaged(what)


@contextmanager
def _mapped(file: Path, start: int) -> Iterator[bytes | mmap.mmap]:
    """Map a file into memory; the value is empty if there is nothing from `start` on."""
    with file.open("rb") as opened:
        if os.fstat(opened.fileno()).st_size <= start:
            yield b""
            return
        with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield data


def _require_extent(file: Path, extent: Extent) -> None:
    """Refuse a file that is shorter than its durable part, or in which that part is not a sequence of whole records."""
    try:
        size = file.stat().st_size
    except FileNotFoundError:
        raise StoreDamaged(f"{file} is missing") from None
    if size < extent.size:
        raise StoreDamaged(f"{file} has {size:,} bytes, but {extent.size:,} were durable")
    if extent.size == 0:
        return
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
        end = complete_end(data, 0, extent.size)
    if end != extent.size:
        raise StoreDamaged(f"{file} has no valid record at byte {end:,}, but {extent.size:,} bytes were durable")


def drop_torn_ends(database: Path) -> bool:
    """Cut off what a power cut has torn at the end of the newest logs, behind the durable part. O(bytes in the logs).

    A power cut may leave any part of unsynced writes, such as a record whose middle is zero, which RocksDB refuses as
    damage. Everything behind the first torn record is unsynced as well, so nothing acknowledged is in it.

    The caller holds the locks of the store.

    Returns:
        Whether anything was cut off.

    Raises:
        StoreDamaged: As `require_durable`.
        OSError: A file cannot be read or written.
    """
    durable = read_mark(database)
    if durable is None:
        return False
    require_durable(database)
    newest = durable.newest
    cut = [
        _drop_torn_end(database / log_name(number), newest.size if number == newest.number else 0)
        for number in log_numbers(database)
        if number >= newest.number
    ]
    return any(cut)


def _drop_torn_end(log: Path, durable: int) -> bool:
    with log.open("r+b") as file:
        size = os.fstat(file.fileno()).st_size
        if size == durable:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            end = intact_end(data, durable, size)
        if end == size:
            return False
        _log.warning("%s: cut off %d bytes of unfinished writes at its end", log, size - end)
        file.truncate(end)
        os.fsync(file.fileno())
    return True
