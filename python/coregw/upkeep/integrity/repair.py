"""Repairing a store: everything readable is copied into a new database, which takes the place of the damaged one.

Salvaging one is less: RocksDB opens it in place with what it can read, which needs no room for another copy.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

from coregw._core import Cid
from coregw.engine.completeness import forget_whole
from coregw.errors import StoreDamaged
from coregw.messages.progress import Progress, ProgressCallback
from coregw.store.rocksdb import open_store
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.directory import DATABASE
from coregw.store.rocksdb.raw.database import RawDatabase
from coregw.upkeep.integrity.check import StoreCheck, check_database
from coregw.upkeep.integrity.copy import StoreCopy
from coregw.upkeep.integrity.files import exclusive, fresh_directory, keep_linked, put_in_place, require_store
from coregw.upkeep.integrity.findings import CheckResult, RepairResult, payload_cid

__all__ = ["repair_store", "salvage_store"]

_CACHE_BYTES: Final = 8 << 20


def repair_store(data: Path, report: ProgressCallback) -> RepairResult:
    """Copy everything readable of a store into a new database, check that, and put it in the place of the damaged one.

    The damaged database is kept, in a directory beside it. Until both are exchanged, nothing is changed. Needs room for
    another copy of the store. O(bytes).

    Args:
        data: The data directory, which no process has open.
        report: Called often, with how far the repair is; may raise, which ends it.

    Raises:
        InvalidInput: If there is no database.
        Unavailable: If another process has the store open (`StorageFull`: there is no room).
        StoreDamaged: If the copy is damaged as well.
        OSError: If a file cannot be read or written.
    """
    database = require_store(data)
    with exclusive(data):
        new = fresh_directory(data)
        try:
            found, copy = _copied(database, new, report)
            repaired = check_database(new / DATABASE, report)
            _require_sound(new, repaired)
            kept = put_in_place(data, new)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
    return RepairResult(
        found=found,
        repaired=repaired,
        kept=str(kept),
        recovered_payloads=[payload_cid(multihash) for multihash in copy.recovered_payloads],
        recovered_roots=[Cid(root).text for root in copy.recovered_roots],
    )


def salvage_store(data: Path, report: ProgressCallback) -> RepairResult:
    """Let RocksDB open a damaged store with what it can read of its log, once, so that it opens for writing again.

    The rest of the log is lost, and with it acknowledged writes that a repair might have copied; payloads that lost
    chunks are removed, and no root counts as complete until it is checked again. Damaged table files stay as they are.
    The damaged database is kept as hard links, on which `repair_store` works still. Needs no room for a copy of the
    store. O(bytes), for the checks before and after.

    Args:
        data: The data directory, which no process has open.
        report: Called often, with how far the checks are; may raise, which ends them.

    Raises:
        InvalidInput: If there is no database.
        Unavailable: If another process has the store open (`StorageFull`: there is no room).
        StoreDamaged: If RocksDB cannot open it either; a repair can read what is kept.
        OSError: If a file cannot be read or linked.
    """
    database = require_store(data)
    with exclusive(data):
        found = check_database(database, report)
        kept = keep_linked(data)
    try:
        asyncio.run(_open_once(data, report))
    except StoreDamaged as error:
        left = f"repair it with `coregw fsck --repair`; the database as it was is in {kept}"
        raise StoreDamaged(f"RocksDB cannot open the store: {error.message}; {left}") from error
    with exclusive(data):
        repaired = check_database(database, report)
    return RepairResult(
        found=found, repaired=repaired, kept=str(kept), recovered_payloads=[], recovered_roots=[], is_salvaged=True
    )


async def _open_once(data: Path, report: ProgressCallback) -> None:
    report(Progress(step="salvaging"))
    async with await open_store(data, cache_bytes=_CACHE_BYTES, reserve_bytes=0, salvage=True) as store:
        await forget_whole(store)


def _copied(database: Path, new: Path, report: ProgressCallback) -> tuple[CheckResult, StoreCopy]:
    """Check a damaged database, and copy what is readable into a new store."""
    with RawDatabase(database) as source:
        check = StoreCheck(source, report)
        found = check.run()
        report(Progress(step="copying"))
        target = Database(new, _CACHE_BYTES, salvage=False)
        try:
            copy = StoreCopy(source, check, target, source.damages())
            copy.run()
        finally:
            target.close()
    return found, copy


def _require_sound(new: Path, repaired: CheckResult) -> None:
    """Raise `StoreDamaged` if the copy has other damage than rows that could not be copied."""
    if repaired.damaged_files or repaired.damaged_pages or repaired.damaged_payloads:
        raise StoreDamaged(f"the copy in {new} is damaged as well, so the disk or the memory of this machine is faulty")
