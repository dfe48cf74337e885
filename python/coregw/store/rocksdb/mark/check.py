"""The check of a database against its high-water mark, and the claims in its logs, before RocksDB opens it."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from coregw.errors import StoreDamaged
from coregw.store.rocksdb.mark.claims import claims
from coregw.store.rocksdb.mark.file import Durable, Extent, locked_mark, read_mark
from coregw.store.rocksdb.mark.names import current_manifest, log_name, log_numbers, manifest_name
from coregw.store.rocksdb.mark.records import complete_end, intact_end

__all__ = ["drop_torn_ends", "require_durable"]

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

    Returns:
        Whether anything was cut off. Nothing is if a process has the database open.

    Raises:
        StoreDamaged: As `require_durable`.
        OSError: A file cannot be read or written.
    """
    durable = read_mark(database)
    if durable is None:
        return False
    require_durable(database)
    newest = durable.newest
    with locked_mark(database) as is_locked:
        cut = [
            _drop_torn_end(database / log_name(number), newest.size if number == newest.number else 0)
            for number in log_numbers(database)
            if is_locked and number >= newest.number
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
