"""Shorthands for backups."""

from __future__ import annotations

import asyncio
from pathlib import Path

from coregw.messages.management import Progress
from coregw.store.rocksdb import RocksStore
from coregw.upkeep.backup import BackedUp, Track, Verified, back_up, verify
from coregw.upkeep.restore import RestoredStore, restore


def silent(_: Progress) -> None:
    pass


async def backed_up(store: RocksStore, destination: Path, keep: int = 7) -> BackedUp:
    return await back_up(store, destination, keep, silent)


async def restored(source: Path, data: Path, number: int | None = None) -> RestoredStore:
    return await asyncio.to_thread(restore, source, data, number, Track(silent))


async def verified(source: Path) -> Verified:
    return await asyncio.to_thread(verify, source, Track(silent))


def pool(destination: Path) -> dict[str, tuple[int, int]]:
    """The inode and modification time of each file in the pool."""
    return {file.name: (file.stat().st_ino, file.stat().st_mtime_ns) for file in (destination / "files").iterdir()}


def largest(destination: Path) -> Path:
    return max((destination / "files").iterdir(), key=lambda file: file.stat().st_size)
