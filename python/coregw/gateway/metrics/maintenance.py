"""Samples of the long operations of maintenance."""

from __future__ import annotations

from collections.abc import Iterator

from coregw.gateway.maintenance.operations import EndedOperations, Operations
from coregw.gateway.metrics.samples import Sample, number
from coregw.messages.maintenance import GarbageCollected
from coregw.upkeep.integrity.findings import CheckResult

__all__ = ["operation_samples"]


def operation_samples(operations: Operations) -> Iterator[Sample]:
    """Yield the samples of the operations in progress, and of those that have ended."""
    for running in operations.running():
        yield number("coregw_operations", 1, running.kind)
        progress = running.progress
        if progress is not None and progress.total:
            yield number("coregw_operation_progress_ratio", progress.done / progress.total, running.kind)
    for kind, ended in operations.ended.items():
        for outcome, count in ended.counts.items():
            yield number("coregw_operations_ended_total", count, kind, outcome)
        for outcome, seconds in ended.times.items():
            yield number("coregw_operation_end_timestamp_seconds", seconds, kind, outcome)
        yield from _garbage_samples(ended)
        yield from _check_samples(ended)


def _garbage_samples(ended: EndedOperations) -> Iterator[Sample]:
    """Yield what the last garbage collection, or dry run, has left and removed."""
    found = ended.result
    if isinstance(found, GarbageCollected):
        for table, size in (("pages", found.page_bytes_removed), ("payloads", found.payload_bytes_removed)):
            yield number("coregw_garbage_bytes", size if found.dry_run else 0, table)
            yield number("coregw_garbage_removed_bytes", 0 if found.dry_run else size, table)


def _check_samples(ended: EndedOperations) -> Iterator[Sample]:
    """Yield what the last check of the store found."""
    found = ended.result
    if isinstance(found, CheckResult):
        for name, count in found.counts().items():
            yield number("coregw_fsck_findings", count, name)
        yield number("coregw_fsck_bytes", found.bytes)
