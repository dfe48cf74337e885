"""What is counted, and how it is written for Prometheus.

Counts of requests belong to the process, as its memory does, so they are module variables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from coregw.telemetry import Histogram

if TYPE_CHECKING:
    from prometheus_client import Metric
    from prometheus_client.registry import Collector

__all__ = [
    "BODIES",
    "CONTENT_TYPE",
    "FAMILIES",
    "REFUSALS",
    "Kind",
    "MetricFamily",
    "RouteCounts",
    "Sample",
    "Source",
    "Sums",
    "counts_of",
    "expose",
    "number",
    "request_samples",
    "spread",
]


class Kind(StrEnum):
    """A type of metric. Counters and histograms only grow."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricFamily(NamedTuple):
    """The declaration of a metric.

    Attributes:
        kind: Its type. The names of counters end in ``_total``.
        about: One sentence for the exposition.
        labels: The names of its labels. Their values come from bounded sets: route templates, codes, tables.
        unit: What one of the integers that are counted is, in the unit of the name: 1e-9 for nanoseconds.
        bounds: For a histogram, the exponents of two of the first and the last bucket, and the step between buckets.
    """

    kind: Kind
    about: str
    labels: tuple[str, ...] = ()
    unit: float = 1.0
    bounds: tuple[int, int, int] = (0, 0, 1)


_TIME: Final = (14, 36, 1)  # 16 microseconds to 69 seconds

_SIZE: Final = (6, 32, 2)  # 64 bytes to 4 GiB

_COUNT: Final = (0, 12, 1)

_NANOSECOND: Final = 1e-9

_ROUTE: Final = ("method", "route")


def _counter(about: str, *labels: str, unit: float = 1.0) -> MetricFamily:
    return MetricFamily(Kind.COUNTER, about, labels, unit)


def _gauge(about: str, *labels: str) -> MetricFamily:
    return MetricFamily(Kind.GAUGE, about, labels)


def _times(about: str, *labels: str) -> MetricFamily:
    return MetricFamily(Kind.HISTOGRAM, about, labels, _NANOSECOND, _TIME)


def _sizes(about: str, *labels: str) -> MetricFamily:
    return MetricFamily(Kind.HISTOGRAM, about, labels, bounds=_SIZE)


FAMILIES: Final[Mapping[str, MetricFamily]] = MappingProxyType(
    {
        # --- HTTP -----------------------------------------------------------------------------------------------------
        "coregw_requests_total": _counter("Requests, by route template and status.", *_ROUTE, "status"),
        "coregw_request_seconds": _times("Time from a complete head to the head of the response.", *_ROUTE),
        "coregw_request_body_bytes": _sizes("Sizes of complete request bodies."),
        "coregw_response_body_bytes": _sizes("Sizes of response bodies.", *_ROUTE),
        "coregw_refusals_total": _counter("Requests refused with an error, by error code; malformed_http.", "reason"),
        "coregw_connections": _gauge("Open connections to the main address."),
        "coregw_requests_in_progress": _gauge("Requests on the main address that are not answered completely."),
        "coregw_buffered_bytes": _gauge("Memory that request bodies take."),
        "coregw_unsent_bytes": _gauge("Memory of responses that clients have not read."),
        "coregw_connections_closed_total": _counter("Connections closed to protect other clients.", "reason"),
        # --- the engine -----------------------------------------------------------------------------------------------
        "coregw_page_cache_hits_total": _counter("Pages found in the cache of parsed pages."),
        "coregw_page_cache_misses_total": _counter("Pages that were not in the cache of parsed pages."),
        "coregw_page_cache_bytes": _gauge("Memory that the cache of parsed pages takes."),
        "coregw_page_cache_max_bytes": _gauge("Limit on the memory of the cache of parsed pages."),
        "coregw_pages_read_total": _counter("Pages read from the store."),
        "coregw_engine_jobs": _gauge("Long work of the engine that is running in a thread or waiting for one."),
        # --- the store ------------------------------------------------------------------------------------------------
        "coregw_store_sync_seconds": _times("Times of syncs of the write-ahead log."),
        "coregw_store_group_requests": MetricFamily(Kind.HISTOGRAM, "Writes that shared a commit.", bounds=_COUNT),
        "coregw_store_queue": _gauge("Writes that wait for the committer."),
        "coregw_store_write_failures_total": _counter("Commits that failed, other than by lack of room."),
        "coregw_store_sst_bytes": _gauge("Size of the SST files, by column family.", "family"),
        "coregw_store_live_bytes": _gauge("Estimated size of the live data in the SST files.", "family"),
        "coregw_store_memtable_bytes": _gauge("Memory that memtables take.", "family"),
        "coregw_store_keys": _gauge("Estimated number of rows.", "family"),
        "coregw_store_background_errors": _gauge("RocksDB's failed flushes and compactions."),
        "coregw_disk_free_bytes": _gauge("Free space on the disk of the data directory."),
        "coregw_disk_reserve_bytes": _gauge("Free space below which nothing is stored."),
        "coregw_database_data_bytes": _gauge("Rows, guides and payloads in a shared store; what a quota limits."),
        "coregw_database_bytes": _gauge("Size of tables and indexes of a shared store.", "table"),
        "coregw_database_rows": _gauge("Rows of a shared store, as the database estimates it.", "table"),
        "coregw_database_uploads": _gauge("Uploads in progress or being dropped in a shared store."),
        "coregw_database_standbys": _gauge("Standbys that follow the database of a shared store."),
        "coregw_database_connections": _gauge("Connections to the database.", "state"),
        "coregw_database_retries_total": _counter("Calls of the database that were repeated."),
        "coregw_database_oldest_write_seconds": _gauge("Time that the oldest write in progress has taken."),
        "coregw_database_replica_pages_total": _counter("Pages that a standby returned."),
        # --- the gateway as a whole -----------------------------------------------------------------------------------
        "coregw_ready": _gauge("1 if /readyz is 200, otherwise 0."),
        "coregw_jobs": _gauge("Jobs in progress: what the gateway runs for its operator.", "kind"),
        "coregw_job_progress_ratio": _gauge("How far their current step is, from 0 to 1.", "kind"),
        "coregw_jobs_ended_total": _counter("Jobs that have ended.", "kind", "outcome"),
        "coregw_job_end_timestamp_seconds": _gauge("When the last one ended, since 1970.", "kind", "outcome"),
        "coregw_fsck_findings": _gauge("What the last check of the store found to be damaged.", "kind"),
        "coregw_fsck_bytes": _gauge("Bytes of files that the last check of the store read."),
        "coregw_garbage_bytes": _gauge("What a collection would free, as of the last one or dry run.", "table"),
        "coregw_garbage_removed_bytes": _gauge("What the last collection removed; 0 for a dry run.", "table"),
        "coregw_info": _gauge("Always 1.", "version"),
        "coregw_log_lines_dropped_total": _counter("Lines of the log that were dropped because stderr was not read."),
        "coregw_cpu_seconds_total": _counter("CPU time, user and system."),
        "coregw_resident_bytes": _gauge("Resident memory."),
        "coregw_open_files": _gauge("Open file descriptors."),
        "coregw_max_open_files": _gauge("Limit on the open file descriptors."),
    }
)
"""The metrics by name."""

_Value = float | list[int]


class Sample(NamedTuple):
    """The value of one metric with its labels.

    Attributes:
        name: A key of `FAMILIES`.
        labels: The values of its labels.
        value: A number; for a histogram, the sum of the values followed by their counts by number of bits.
    """

    name: str
    labels: tuple[str, ...]
    value: _Value


Source = Callable[[], Iterable[Sample]]
"""Returns the current samples of a part of the process. Must be quick, since it runs on the event loop."""


def number(name: str, value: float, *labels: str) -> Sample:
    """Return the sample of a counter or a gauge."""
    return Sample(name, labels, value)


def spread(name: str, histogram: Histogram, *labels: str) -> Sample:
    """Return the sample of a histogram."""
    return Sample(name, labels, [histogram.total, *histogram.counts])


class Sums:
    """Sums of samples with the same name and labels."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, tuple[str, ...]], _Value] = {}

    def add(self, samples: Iterable[Sample]) -> None:
        """Add samples."""
        for each in samples:
            key = each.name, each.labels
            before = self._values.get(key)
            if isinstance(each.value, list) and isinstance(before, list):
                self._values[key] = [one + other for one, other in zip(before, each.value, strict=True)]
            elif not isinstance(each.value, list) and not isinstance(before, list):
                self._values[key] = (before or 0) + each.value
            else:
                self._values[key] = each.value

    def samples(self) -> Iterator[Sample]:
        """Yield the sums."""
        for (name, labels), value in self._values.items():
            yield Sample(name, labels, value)


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""The media type of what `expose` returns."""


def expose(sums: Sums) -> bytes:
    """Return metrics in Prometheus' text format."""
    # Loaded by the first scrape: it takes 2 MiB and a twentieth of the start of a gateway that nobody may scrape.
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    registry.register(cast("Collector", _Collected(sums)))
    return generate_latest(registry)


class _Collected:
    """Sums as prometheus_client's metrics: a `prometheus_client.registry.Collector`."""

    def __init__(self, sums: Sums) -> None:
        self._sums = sums

    def collect(self) -> Iterator[Metric]:
        by_name: dict[str, list[Sample]] = {}
        for sample in self._sums.samples():
            by_name.setdefault(sample.name, []).append(sample)
        for name, family in FAMILIES.items():
            if name in by_name:
                yield _metric(name, family, by_name[name])


def _metric(name: str, family: MetricFamily, samples: Iterable[Sample]) -> Metric:
    from prometheus_client.core import (  # noqa: PLC0415 - as in `expose`
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )

    labels = list(family.labels)
    if family.kind is Kind.HISTOGRAM:
        histogram = HistogramMetricFamily(name, family.about, labels=labels)
        for each in samples:
            if isinstance(each.value, list):
                total, *counts = each.value
                histogram.add_metric(each.labels, _buckets(family, counts), sum_value=total * family.unit)
        return histogram
    plain = (CounterMetricFamily if family.kind is Kind.COUNTER else GaugeMetricFamily)(
        name, family.about, labels=labels
    )
    for each in samples:
        if not isinstance(each.value, list):
            plain.add_metric(each.labels, each.value * family.unit)
    return plain


def _buckets(family: MetricFamily, counts: list[int]) -> list[tuple[str, float]]:
    """Return cumulative buckets: a value of at most k bits is less than 2^k."""
    first, last, step = family.bounds
    up_to = list(accumulate(counts))
    buckets: list[tuple[str, float]] = [
        (repr(2**bits * family.unit), up_to[bits]) for bits in range(first, last + 1, step)
    ]
    return [*buckets, ("+Inf", up_to[-1])]


NO_ROUTE: Final = "none"

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"})


class RouteCounts:
    """What is counted of one method of one route template.

    Attributes:
        statuses: Number of responses by status.
        nanoseconds: Times from a request's head to its response's head.
        sizes: Sizes of the response bodies.
    """

    __slots__ = ("nanoseconds", "sizes", "statuses")

    def __init__(self) -> None:
        self.statuses: dict[int, int] = {}
        self.nanoseconds = Histogram()
        self.sizes = Histogram()

    def add(self, status: int, nanoseconds: int, size: int) -> None:
        """Count a response."""
        statuses = self.statuses
        statuses[status] = statuses.get(status, 0) + 1
        times = self.nanoseconds
        times.counts[nanoseconds.bit_length()] += 1  # `Histogram.add` twice, without its calls
        times.total += nanoseconds
        sizes = self.sizes
        sizes.counts[size.bit_length()] += 1
        sizes.total += size


_ROUTES: Final[dict[tuple[str, str], RouteCounts]] = {}

REFUSALS: Final[Counter[str]] = Counter()
"""Refused requests by reason: a key of `coregw.errors.ERROR_CODES`."""

BODIES: Final = Histogram()
"""Sizes of complete request bodies."""


def counts_of(method: str, route: str | None) -> RouteCounts:
    """Return the counts of a method of a route template; None is a path without a route."""
    key = method if method in _METHODS else "other", route or NO_ROUTE
    found = _ROUTES.get(key)
    if found is None:
        found = _ROUTES[key] = RouteCounts()
    return found


def request_samples() -> Iterator[Sample]:
    """Yield the samples of all requests of this process."""
    for (method, route), counts in _ROUTES.items():
        if counts.statuses:
            for status, count in counts.statuses.items():
                yield number("coregw_requests_total", count, method, route, str(status))
            yield spread("coregw_request_seconds", counts.nanoseconds, method, route)
            yield spread("coregw_response_body_bytes", counts.sizes, method, route)
    for reason, count in REFUSALS.items():
        yield number("coregw_refusals_total", count, reason)
    yield spread("coregw_request_body_bytes", BODIES)
