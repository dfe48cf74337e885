"""Checking that a restored store is sound."""

from __future__ import annotations

import asyncio
from pathlib import Path

from coregw.errors import StoreDamaged
from coregw.store.rocksdb import DATABASE, open_store
from coregw.upkeep.backup.track import Track
from coregw.upkeep.integrity.check import check_database
from coregw.upkeep.integrity.findings import CheckResult

__all__ = ["check_store", "open_and_close"]


def open_and_close(data: Path) -> None:
    """Open the store in a data directory, which replays its log, and close it.

    Raises:
        StoreDamaged: It does not open.
        StorageFull, Unavailable: It cannot be opened at the moment.
    """

    async def run() -> None:
        await (await open_store(data, reserve_bytes=0)).close()

    asyncio.run(run())


def check_store(data: Path, track: Track) -> CheckResult:
    """Open the store in a data directory, close it, and check everything in it. O(bytes).

    Raises:
        StoreDamaged: It does not open, or something in it is damaged or missing.
        StorageFull, Unavailable: It cannot be opened at the moment.
    """
    open_and_close(data)
    result = check_database(data / DATABASE, track.report)
    if not result.is_sound:
        found = list(result.lines())
        raise StoreDamaged(f"the store in this backup is damaged ({len(found):,} findings): {found[0]}")
    return result
