"""Opening a database for reading that is damaged or whose disk is full, and what may be concluded from absent rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from rocksdict import AccessType, Cache, DBRecoveryMode, Options, Rdict

from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable
from coregw.store.rocksdb.directory import DATABASE, lock_database, prepare
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.options import database_options, family_options, translated
from coregw.store.rocksdb.wal import Damage, FileBytes, read_log

__all__ = ["Cause", "ReadOnly", "open_read_only", "require_skippable"]

Cause = StoreDamaged | StorageFull
"""Why a database cannot be opened for writing."""

_FOLDER: Final = "read-only"
_KIND_OFFSET: Final = 6
_LAST_KIND: Final = 4
"""The greatest kind of a record in a log that is not recycled."""


class ReadOnly:
    """Why a database is read-only, and the lock that keeps others from writing to it.

    Args:
        path: The store's directory.
        cause: What is damaged, or that the disk is full.
        is_lossy: Whether rows may be missing that were acknowledged, or be older than that.

    Attributes:
        has_differences: Whether there is `Family.DIFFERENCES`; a store of format 1 has none.
    """

    def __init__(self, path: Path, cause: Cause, *, is_lossy: bool) -> None:
        self._path = path
        self._cause = cause
        self._is_lossy = is_lossy
        self._lock = -1
        self.has_differences = True

    @property
    def is_temporary(self) -> bool:
        """Whether it ends when the disk has room again."""
        return isinstance(self._cause, StorageFull)

    @property
    def reason(self) -> str:
        """Why nothing can be written, for people."""
        since = "until its disk has room" if self.is_temporary else "since it is damaged"
        return f"the store is read-only, {since}: {' '.join(self._cause.message.split())}"

    def error(self) -> CoregwError:
        """The error of a write."""
        return StorageFull(self.reason) if self.is_temporary else Unavailable(self.reason)

    def lock(self) -> None:
        """Take the lock of the database, which RocksDB does not take for reading. Raises `Unavailable`."""
        self._lock = lock_database(self._path)

    def release(self) -> None:
        """Release the lock. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def note_loss(self) -> None:
        """Note that rows may be missing that were acknowledged."""
        self._is_lossy = True

    def check(self, family: Family, values: Iterable[bytes | None]) -> None:
        """Raise `Unavailable` if a read concludes too much: that a row does not exist, or is the newest of its key."""
        if not self._is_lossy or family in (Family.META, Family.PAGES, Family.DIFFERENCES, Family.CHUNKS):
            return  # whoever misses a page or a chunk knows that it was stored
        if family is Family.RECORDS or any(value is None for value in values):
            raise Unavailable(f"the newest writes may be lost, so this cannot be answered: {self.reason}")


def open_read_only(path: Path, cache_bytes: int, cause: Cause) -> tuple[Rdict, ReadOnly]:
    """Open a database that cannot be opened for writing, since it is damaged or its disk is full.

    Damaged or missing SSTs do not prevent that: what needs them fails when it is read. If logs are damaged, rows may be
    missing. On a full disk nothing is written, and the rows of the logs stay in memory.

    Raises:
        StoreDamaged, StorageFull: `cause`, if it cannot be opened for reading either.
        Unavailable: If another process has the store open.
    """
    damages = _damages_of_logs(path)
    is_endless = _endless(path, damages) is not None
    for mode, options, is_lossy in _modes(path, is_lossy=bool(damages) or _has_lost(path), is_endless=is_endless):
        state = ReadOnly(path, cause, is_lossy=is_lossy)
        state.lock()
        try:
            with translated(path):
                families = family_options(Cache(cache_bytes))
                state.has_differences = Family.DIFFERENCES in Rdict.list_cf(str(path / DATABASE))
                if not state.has_differences:
                    del families[Family.DIFFERENCES]
                root = Rdict(str(path / DATABASE), options, families, access_type=mode)
        except CoregwError:
            state.release()
        else:
            return root, state
        if state.is_temporary:
            break  # the other modes create files
    raise cause


def require_skippable(path: Path) -> None:
    """Raise `StoreDamaged` if a log has damage that RocksDB cannot skip: it would read it forever."""
    damage = _endless(path, _damages_of_logs(path))
    if damage is not None:
        raise StoreDamaged(f"{path / DATABASE / damage.file} has a record of an unknown kind at byte {damage.start:,}")


def _modes(path: Path, *, is_lossy: bool, is_endless: bool) -> Iterator[tuple[AccessType, Options, bool]]:
    """Iterate over ways to open a database for reading, each of which leaves out more than the one before it.

    Args:
        path: The store's directory.
        is_lossy: Whether rows may be missing.
        is_endless: Whether RocksDB must not read the logs.
    """
    options = database_options(create=False, salvage=False)
    options.set_wal_recovery_mode(DBRecoveryMode.skip_any_corrupted_record())
    options.set_paranoid_checks(False)
    if not is_endless:
        yield AccessType.read_only(False), options, is_lossy
    # A secondary instance does without logs that the MANIFEST names, and with an empty directory for logs without any.
    folder = path / _FOLDER
    no_logs = folder / "no-log"
    no_logs.mkdir(parents=True, exist_ok=True)
    for is_logged in (False,) if is_endless else (True, False):
        options = database_options(create=False, salvage=True)
        options.set_paranoid_checks(False)
        if not is_logged:
            options.set_wal_dir(str(no_logs))
        yield AccessType.secondary(str(folder)), options, True


def _has_lost(path: Path) -> bool:
    """Whether acknowledged writes are missing: less is there than was durable."""
    try:
        return prepare(path, salvage=False) != "ready"
    except StoreDamaged:
        return True


def _damages_of_logs(path: Path) -> list[Damage]:
    damages: list[Damage] = []
    for log in sorted((path / DATABASE).glob("*.log")):
        with FileBytes(log) as file:
            for _ in read_log(file.read(0, file.size), file.name, damages):
                pass
    return damages


def _endless(path: Path, damages: list[Damage]) -> Damage | None:
    """Return damage that RocksDB takes for a record of a recycled log, and would read again and again to skip it."""
    for damage in damages:
        with (path / DATABASE / damage.file).open("rb") as file:
            file.seek(damage.start + _KIND_OFFSET)
            kind = file.read(1)
        if kind and kind[0] > _LAST_KIND:
            return damage
    return None
