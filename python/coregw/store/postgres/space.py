"""The space that a store takes: whether there is room for more, and figures for metrics."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final, NamedTuple, TypeVar

from coregw.errors import StorageFull

__all__ = ["FIGURES", "FILES", "PostgresFigures", "Room"]

T = TypeVar("T")

_TABLES: Final = ("pages", "roots", "records", "payloads", "chunks", "uploads", "attempts", "sizes", "guides")
FILES: Final = "SELECT ({})::bigint".format(" + ".join(f"pg_total_relation_size('{table}')" for table in _TABLES))
"""The query for the size of all tables and indexes."""

FIGURES: Final = """
SELECT (SELECT coalesce(sum(change), 0)::bigint FROM sizes),
  pg_total_relation_size('pages') + pg_total_relation_size('guides'),
  pg_total_relation_size('payloads') + pg_total_relation_size('chunks'),
  (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'pages'::regclass),
  (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'payloads'::regclass),
  (SELECT count(*) FROM uploads), (SELECT count(*) FROM pg_stat_replication)
"""
"""The query for the first columns of `PostgresFigures`."""


class PostgresFigures(NamedTuple):
    """What a store's database and this process's connections to it are doing.

    Attributes:
        data_bytes: Rows, guides and payloads; what a quota limits.
        page_bytes: Files of the tables of pages and guides, and of their indexes.
        payload_bytes: Files of payloads and chunks in the database.
        pages: The number of pages, as the database estimates it.
        payloads: The number of payloads, as the database estimates it.
        uploads: Uploads in progress, of all gateways, and those that are being dropped.
        standbys: Standbys that are connected to the primary.
        connections: Open connections of this process.
        connections_in_use: Of these, those that are in use.
        retries: Calls of this process that were repeated.
        oldest_write_seconds: How long the oldest write in progress of this process has been waiting.
        replica_hits: Pages of this process that a standby returned.
    """

    data_bytes: int
    page_bytes: int
    payload_bytes: int
    pages: int
    payloads: int
    uploads: int
    standbys: int
    connections: int
    connections_in_use: int
    retries: int
    oldest_write_seconds: float
    replica_hits: int


class Room:
    """The room in a store. For tasks of one event loop.

    Args:
        quota_bytes: What the rows and payloads of all gateways may take together; None for no limit.

    Attributes:
        used_bytes: What they took when that was counted last, and what this process has begun to write since then.
        is_disk_full: Whether the last write failed for lack of room on the disk of the database.
    """

    def __init__(self, quota_bytes: int | None) -> None:
        self.quota_bytes = quota_bytes
        self.used_bytes = 0
        self.is_disk_full = False

    def require(self, size: int) -> None:
        """Count this many bytes as used.

        Raises:
            StorageFull: They exceed the quota.
        """
        if self.quota_bytes is not None and self.used_bytes + size > self.quota_bytes:
            raise StorageFull(f"the store holds at most {self.quota_bytes:,} bytes; {size:,} more do not fit")
        self.used_bytes += size

    async def watch(self, write: Awaitable[T]) -> T:
        """Return the result of a write, and note whether it failed for lack of room."""
        try:
            result = await write
        except StorageFull:
            self.is_disk_full = True
            raise
        self.is_disk_full = False
        return result

    def obstacles(self) -> list[str]:
        """Return why there is no room, as sentences."""
        if self.quota_bytes is not None and self.used_bytes >= self.quota_bytes:
            return [f"the store holds at most {self.quota_bytes:,} bytes, and all of them are used"]
        return ["the disk of the database is full"] if self.is_disk_full else []
