"""Figures about a RocksDB store, for metrics."""

from __future__ import annotations

from typing import NamedTuple

from coregw.counters import Histogram

__all__ = ["CommitFigures", "FamilyFigures", "StoreFigures"]


class CommitFigures:
    """What the committer counts.

    Attributes:
        sync_nanoseconds: Times of syncs.
        group_requests: Requests that shared a commit.
        failures: Commits that failed, other than by lack of room.
    """

    __slots__ = ("failures", "group_requests", "sync_nanoseconds")

    def __init__(self) -> None:
        self.sync_nanoseconds = Histogram()
        self.group_requests = Histogram()
        self.failures = 0


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


class StoreFigures(NamedTuple):
    """A store.

    Attributes:
        families: By name of the column family.
        background_errors: RocksDB's failed flushes and compactions.
        free_bytes: Free space on its disk.
        reserve_bytes: Free space below which nothing is stored.
        queued: Writes that wait for the committer.
        commits: What the committer has counted.
    """

    families: dict[str, FamilyFigures]
    background_errors: int
    free_bytes: int
    reserve_bytes: int
    queued: int
    commits: CommitFigures
