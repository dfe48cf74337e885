"""Samples of a RocksDB store."""

from __future__ import annotations

from collections.abc import Iterator

from coregw.gateway.metrics.samples import Sample, number, spread
from coregw.store.rocksdb.figures import StoreFigures

__all__ = ["store_samples"]


def store_samples(figures: StoreFigures) -> Iterator[Sample]:
    """Yield the samples of a store."""
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
