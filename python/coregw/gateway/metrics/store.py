"""Samples of a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from coregw.gateway.metrics.samples import Sample, number, spread
from coregw.store.rocksdb.figures import StoreFigures

if TYPE_CHECKING:
    from coregw.store.postgres.space import PostgresFigures

__all__ = ["database_samples", "store_samples"]


def store_samples(figures: StoreFigures) -> Iterator[Sample]:
    """Yield the samples of a RocksDB store."""
    commits = figures.commits
    yield spread("coregw_store_sync_seconds", commits.sync_nanoseconds)
    yield spread("coregw_store_group_requests", commits.group_requests)
    yield number("coregw_store_write_failures_total", commits.failures)
    yield number("coregw_store_queue", figures.queued)
    yield number("coregw_store_background_errors", figures.background_errors)
    yield number("coregw_disk_free_bytes", figures.free_bytes)
    yield number("coregw_disk_reserve_bytes", figures.reserve_bytes)
    for name, family in figures.families.items():
        yield number("coregw_store_sst_bytes", family.sst_bytes, name)
        yield number("coregw_store_live_bytes", family.live_bytes, name)
        yield number("coregw_store_memtable_bytes", family.memtable_bytes, name)
        yield number("coregw_store_keys", family.keys, name)


def database_samples(figures: PostgresFigures) -> Iterator[Sample]:
    """Yield the samples of a store in PostgreSQL."""
    yield number("coregw_database_data_bytes", figures.data_bytes)
    for table, size, rows in (
        ("pages", figures.page_bytes, figures.pages),
        ("payloads", figures.payload_bytes, figures.payloads),
    ):
        yield number("coregw_database_bytes", size, table)
        yield number("coregw_database_rows", rows, table)
    yield number("coregw_database_uploads", figures.uploads)
    yield number("coregw_database_standbys", figures.standbys)
    yield number("coregw_database_connections", figures.connections_in_use, "in use")
    yield number("coregw_database_connections", figures.connections - figures.connections_in_use, "idle")
    yield number("coregw_database_retries_total", figures.retries)
    yield number("coregw_database_oldest_write_seconds", figures.oldest_write_seconds)
    yield number("coregw_database_replica_pages_total", figures.replica_hits)
