"""Who is asked when somebody scrapes: the process, the front, the engine, the store, maintenance."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from coregw._core import Front, FrontCounts, StoreReads
from coregw.engine import Engine
from coregw.gateway.context import Gateway
from coregw.gateway.jobs import EndedJobs, Jobs
from coregw.gateway.logs import dropped_lines
from coregw.gateway.metrics import Sample, Source, number, spread
from coregw.messages.management import GarbageCollected
from coregw.store.rocksdb.store import StoreFigures
from coregw.upkeep.findings import CheckResult

if TYPE_CHECKING:
    from coregw.store.postgres.store import PostgresFigures

__all__ = [
    "database_samples",
    "engine_source",
    "front_source",
    "job_samples",
    "process_samples",
    "store_samples",
]

_PAGE_BYTES: Final = resource.getpagesize()


def engine_source(engine: Engine) -> Source:
    """Return the source of an engine's samples."""

    def samples() -> Iterator[Sample]:
        figures = engine.figures()
        yield number("coregw_page_cache_hits_total", figures.cache_hits)
        yield number("coregw_page_cache_misses_total", figures.cache_misses)
        yield number("coregw_page_cache_bytes", figures.cache_bytes)
        yield number("coregw_page_cache_max_bytes", figures.cache_max_bytes)
        yield number("coregw_pages_read_total", figures.pages_read)
        yield number("coregw_engine_jobs", figures.jobs)

    return samples


def front_source(front: Front, reads: StoreReads, gateway: Gateway) -> Source:
    """Return the source of the samples of the front on the main address, and of the gateway that it serves."""

    def samples() -> Iterator[Sample]:
        figures = front.figures()
        yield number("coregw_connections", figures.connections)
        yield number("coregw_connections_closed_total", figures.no_room, "no_room")
        yield number("coregw_connections_closed_total", figures.unread_responses, "unread_responses")
        yield number("coregw_connections_closed_total", figures.slow_reader, "slow_reader")
        yield number("coregw_connections_closed_total", figures.floods, "flood")
        yield number("coregw_unsent_bytes", figures.unsent_bytes)
        yield number("coregw_requests_in_progress", figures.requests)
        yield number("coregw_buffered_bytes", figures.buffered_bytes + gateway.bodies.held)
        yield number("coregw_engine_jobs", figures.jobs)
        yield number("coregw_log_lines_dropped_total", figures.dropped_lines)
        yield number("coregw_pages_read_total", reads.figures[1])
        yield from _hot_samples(front.counts())

    return samples


def _hot_samples(counts: FrontCounts) -> Iterator[Sample]:
    """Yield the samples of the requests that a front has answered itself."""
    for each in counts.routes:
        for status, count in each.statuses.items():
            yield number("coregw_requests_total", count, each.method, each.route, str(status))
        yield Sample("coregw_request_seconds", (each.method, each.route), each.nanoseconds)
        yield Sample("coregw_response_body_bytes", (each.method, each.route), each.sizes)
    yield Sample("coregw_request_body_bytes", (), counts.bodies)
    for reason, count in counts.refusals.items():
        yield number("coregw_refusals_total", count, reason)


def process_samples() -> Iterator[Sample]:
    """Yield the samples of this process as the operating system sees it."""
    yield number("coregw_cpu_seconds_total", time.process_time())
    yield number("coregw_log_lines_dropped_total", dropped_lines())
    yield number("coregw_max_open_files", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    with suppress(OSError):  # not on Linux
        yield number("coregw_open_files", len(os.listdir("/proc/self/fd")))  # noqa: PTH208 - names alone, as fast
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        yield number("coregw_resident_bytes", pages * _PAGE_BYTES)


def job_samples(jobs: Jobs) -> Iterator[Sample]:
    """Yield the samples of the jobs in progress, and of those that have ended."""
    for running in jobs.running():
        yield number("coregw_jobs", 1, running.kind)
        progress = running.progress
        if progress is not None and progress.total:
            yield number("coregw_job_progress_ratio", progress.done / progress.total, running.kind)
    for kind, ended in jobs.ended.items():
        for outcome, count in ended.counts.items():
            yield number("coregw_jobs_ended_total", count, kind, outcome)
        for outcome, seconds in ended.times.items():
            yield number("coregw_job_end_timestamp_seconds", seconds, kind, outcome)
        yield from _garbage_samples(ended)
        yield from _check_samples(ended)


def _garbage_samples(ended: EndedJobs) -> Iterator[Sample]:
    """Yield what the last garbage collection, or dry run, has left and removed."""
    found = ended.result
    if isinstance(found, GarbageCollected):
        for table, size in (("pages", found.page_bytes_removed), ("payloads", found.payload_bytes_removed)):
            yield number("coregw_garbage_bytes", size if found.dry_run else 0, table)
            yield number("coregw_garbage_removed_bytes", 0 if found.dry_run else size, table)


def _check_samples(ended: EndedJobs) -> Iterator[Sample]:
    """Yield what the last check of the store found."""
    found = ended.result
    if isinstance(found, CheckResult):
        for name, count in found.counts().items():
            yield number("coregw_fsck_findings", count, name)
        yield number("coregw_fsck_bytes", found.bytes)


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
