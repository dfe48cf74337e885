"""Rows of a RocksDB database: reads, writes and syncs, behind a gate that closes.

Every call blocks, so call it in worker threads. Errors are classes of `coregw.errors`. `coregw.store.rocksdb.layout`
describes the rows; `coregw.store.rocksdb.committer` is the only writer.
"""

from __future__ import annotations

import errno
import logging
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

from rocksdict import ColumnFamily, Rdict, RdictIter, ReadOptions, WriteBatch, WriteOptions

from coregw._core import apply_difference
from coregw.errors import StorageFull, StoreDamaged, Unavailable
from coregw.store.rocksdb.directory import SPARE_BYTES
from coregw.store.rocksdb.layout import CLAIM_KEY, Family, base_of, is_kept_base, page_of_base
from coregw.store.rocksdb.mark import HighWaterMark
from coregw.store.rocksdb.options import WriteStalled, translated
from coregw.store.rocksdb.readonly import ReadOnly

__all__ = ["ADVICE", "DRAIN_SECONDS", "STALL_SECONDS", "Gate", "Rows", "Write", "advised"]

DRAIN_SECONDS: Final = 5.0
"""The longest time that closing the gate waits for the calls inside."""

_CLOSED_SECONDS: Final = 20.0
"""The longest time that a call waits at a closed gate."""


class Gate:
    """Shared access for calls (``with gate``), and exclusive access for what must not overlap with any (`closed`)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # taken directly where nobody waits: a condition's methods are Python functions
        self._changed = threading.Condition(self._lock)
        self._inside = 0
        self._is_closed = False
        self._closer = 0

    def __enter__(self) -> None:
        with self._lock:
            if (
                self._is_closed
                and self._closer != threading.get_ident()
                and not self._changed.wait_for(lambda: not self._is_closed, _CLOSED_SECONDS)
            ):
                raise Unavailable("the store is being reopened")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._is_closed:
                self._changed.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Let no call of another thread in, wait for those inside, and open again at the end.

        Raises:
            Unavailable: Calls were inside for `DRAIN_SECONDS`.
        """
        with self._changed:
            self._is_closed = True
            self._closer = threading.get_ident()
        try:
            self._drain()
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()

    def _drain(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: not self._inside, DRAIN_SECONDS):
                raise Unavailable(f"{self._inside} reads of the store did not end in {DRAIN_SECONDS:.0f} s")


_log = logging.getLogger(__name__)

Write = tuple[Family, bytes, bytes | None]
"""A row to put, or to delete if the value is None."""

STALL_SECONDS: Final = 60.0
"""The longest time that a write waits for RocksDB to flush or compact."""

_STALL_PAUSE_SECONDS: Final = 0.002

_FAULT_STALL_SECONDS: Final = 2.0
"""A write that waits this long after a failed flush or compaction succeeds only after the database is reopened."""

ADVICE: Final = (
    "repair it with `coregw fsck --repair`, restore a backup, or keep what RocksDB can read with "
    "`coregw fsck --repair --salvage`"
)

_SCANNED: Final = 256
"""So many pages are scanned at least: some may be absent."""

_SIZES: Final = ("rocksdb.total-sst-files-size", "rocksdb.cur-size-all-mem-tables")


class Rows:
    """Reads, writes and syncs of a database. Reads may come from any number of threads; the rest from one at a time.

    A read must hold no snapshot and no iterator of RocksDB outside of the calls here: reopening waits for these calls,
    and RocksDB stays locked as long as one of its objects lives.

    Args:
        path: The store's directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read_only: ReadOnly | None = None
        """Why nothing can be written, if so."""
        self._gate = Gate()
        self._root: Rdict | None = None
        self._families: dict[Family, Rdict] = {}
        self._handles: dict[Family, ColumnFamily] = {}
        self._mark: HighWaterMark | None = None
        self._is_sound = True
        self._compacts = True
        self._has_differences = True
        """Whether there is `Family.DIFFERENCES`: not if a store of format 1 is open for reading."""
        self._write_options = WriteOptions()
        # rocksdict holds the GIL during a write. A write that RocksDB would delay fails at once instead, so the wait
        # happens in `write`, where other threads can run.
        self._write_options.no_slowdown = True

    def get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of `keys` in one batch, None for an absent one. The GIL is released.

        Pages of which differences are stored are made of these, in two batches more; one without its base is absent.
        """
        values = self.get_rows(family, keys)
        if family is Family.PAGES and None in values and self._has_differences:
            missing = [key for key, value in zip(keys, values, strict=True) if value is None]
            differences = self.get_rows(Family.DIFFERENCES, missing)
            if any(differences):
                differences = self._make(missing, differences)
                if None in differences:  # a page that was stored as a whole meanwhile may have lost its base
                    again = self.get_rows(Family.PAGES, missing)
                    differences = [each or page for each, page in zip(differences, again, strict=True)]
            made = iter(differences)
            return [next(made) if value is None else value for value in values]
        return values

    def get_rows(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of `keys` as they are stored, in one batch, None for an absent one. The GIL is released."""
        if not keys:
            return []
        with self._gate, translated(self.path):
            values = cast("list[bytes | None]", self._family(family).get(list(keys)))
        if self.read_only is not None:
            self.read_only.check(family, values)
        return values

    def _make(self, digests: Sequence[bytes], differences: Sequence[bytes | None]) -> list[bytes | None]:
        """Make pages of differences; None where there is none, or no base, and for a base that is kept alone."""
        names = [
            None if each is None or is_kept_base(digest, each) else base_of(each)
            for digest, each in zip(digests, differences, strict=True)
        ]
        wanted = list({name for name in names if name is not None})
        bases = dict(zip(wanted, self.get_bases(wanted), strict=True))
        return [
            None if each is None or name is None or (base := bases[name]) is None else apply_difference(each, base)
            for name, each in zip(names, differences, strict=True)
        ]

    def get_bases(self, digests: Sequence[bytes]) -> list[bytes | None]:
        """Read pages that are stored as a whole, also those that are kept as bases alone, in at most two batches."""
        pages = self.get_rows(Family.PAGES, digests)
        if None not in pages or not self._has_differences:
            return pages
        missing = [digest for digest, page in zip(digests, pages, strict=True) if page is None]
        kept = zip(missing, self.get_rows(Family.DIFFERENCES, missing), strict=True)
        found = iter([page_of_base(each) if each and is_kept_base(digest, each) else None for digest, each in kept])
        return [next(found) if page is None else page for page in pages]

    def scan(self, family: Family, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """Read the first `limit` rows from `start` to `end` (exclusive), in key order. The GIL is held."""
        if family is Family.PAGES:
            return self._scan_made(start, end, limit)
        return self._scan_rows(family, start, end, limit)

    def _scan_made(self, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """As `scan`, of pages, without those whose base is absent."""
        found: list[tuple[bytes, bytes]] = []
        while len(found) < limit:
            wanted = max(limit - len(found), _SCANNED)
            pages = self.scan_pages(start, end, wanted)
            found += [(digest, page) for digest, page, _ in pages if page]
            if len(pages) < wanted:
                break
            start = pages[-1][0] + b"\0"
        return found[:limit]

    def scan_pages(self, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes, bytes | None]]:
        """Read the first `limit` pages from `start` to `end` (exclusive), in order. The GIL is held.

        Returns:
            Their digests; the pages, empty for one without its base, and for a base that is kept alone; and what
            `Family.DIFFERENCES` has of each, or None.
        """
        whole = self._scan_rows(Family.PAGES, start, end, limit)
        differences = self._scan_rows(Family.DIFFERENCES, start, end, limit) if self._has_differences else []
        if not differences:
            return [(digest, page, None) for digest, page in whole]
        pages: dict[bytes, bytes | None] = {digest: None for digest, _ in differences}
        pages |= whole
        digests = sorted(pages)[:limit]
        stored = dict(differences)
        missing = [digest for digest in digests if pages[digest] is None]
        made = iter(self._make(missing, [stored[digest] for digest in missing]))
        return [
            (digest, (next(made) or b"") if (page := pages[digest]) is None else page, stored.get(digest))
            for digest in digests
        ]

    def _scan_rows(self, family: Family, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """As `scan`, of the rows as they are stored."""
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

    def last_key(self, family: Family) -> bytes | None:
        """Return the last key of a family; None if it has no rows. The GIL is held."""
        with self._gate, translated(self.path):
            rows = self._family(family).iter()
            try:
                rows.seek_to_last()
                return rows.key() if _is_valid(rows) else None
            finally:
                del rows

    def write(self, rows: Sequence[Write], ranges: Sequence[tuple[Family, bytes, bytes]] = ()) -> None:
        """Delete key ranges, then write rows, atomically; durable after the next `sync`.

        Raises:
            WriteStalled: Nothing was written: RocksDB stalled writes for `STALL_SECONDS`.
            StorageFull, Unavailable: Whether the rows are written is not known, so `reopen` has to follow.
        """
        with translated(self.path, self.note_fault):
            self._write_when_possible(rows, ranges)
            if self._mark is not None:
                self._mark.note_write()

    def sync(self) -> None:
        """Make everything written so far durable. The GIL is released.

        Raises:
            StorageFull, Unavailable: Which writes since the last sync are durable is not known, and a repeated sync may
                succeed without them: the operating system reports the loss of a page once. So `reopen` has to follow.
        """
        with translated(self.path, self.note_fault):
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
        with translated(self.path, self.note_fault):
            try:
                self._mark.refresh()
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE):  # nothing was synced: the next call may succeed
                    raise

    def flush(self, *families: Family) -> None:
        """Flush the memtables of families, by default of all, to SSTs. The GIL is released; nearly free if empty."""
        if self.read_only is not None:
            raise self.read_only.error()
        with self._gate, translated(self.path):
            for family in families or tuple(self._families):
                self._family(family).flush()

    def background_errors(self) -> int:
        """The number of RocksDB's failed flushes and compactions since the database was opened."""
        with self._gate, translated(self.path):
            return self._require_root().property_int_value("rocksdb.background-errors") or 0

    def data_bytes(self) -> int:
        """The size of all SSTs and memtables. Takes some microseconds."""
        with self._gate, translated(self.path):
            return sum(family.property_int_value(name) or 0 for family in self._families.values() for name in _SIZES)

    def free_bytes(self) -> int:
        """The free space on the disk that this user may use."""
        return shutil.disk_usage(self.path).free

    def _family(self, family: Family) -> Rdict:
        try:
            return self._families[family]
        except KeyError:
            raise Unavailable(f"the store in {self.path} is closed") from None

    def _require_root(self) -> Rdict:
        if self._root is None:
            raise Unavailable(f"the store in {self.path} is closed")
        return self._root

    def note_fault(self, error: BaseException) -> None:
        """Note that nothing may be recorded as durable after an error before `reopen`."""
        if isinstance(error, WriteStalled):
            return
        self._is_sound = False
        if isinstance(error, StoreDamaged) and self._compacts:
            self._compacts = False
            _log.error("compactions are disabled until the next start: %s; %s", error, ADVICE)

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

    def _try_write(self, rows: Iterable[Write], ranges: Iterable[tuple[Family, bytes, bytes]]) -> bool:
        """Whether RocksDB accepted the rows; False if it would have delayed the caller."""
        self._require_root()
        batch = WriteBatch(raw_mode=True)  # consumed by a write, even one that fails
        if self._mark is not None:
            batch.put(CLAIM_KEY, self._mark.claim, self._handles[Family.META])
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


def advised(damage: StoreDamaged) -> StoreDamaged:
    """The same error, with what an operator can do."""
    return StoreDamaged(damage.message if ADVICE in damage.message else f"{damage.message}; {ADVICE}")


def _is_valid(rows: RdictIter) -> bool:
    """Whether the iterator is at a row. A damaged block also ends an iteration, so the status is checked then."""
    if rows.valid():
        return True
    rows.status()
    return False
