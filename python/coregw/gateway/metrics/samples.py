"""Samples of metrics, their sums over processes, and their exposition in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from coregw.counters import Histogram
from coregw.gateway.metrics.families import FAMILIES, Kind, MetricFamily

__all__ = ["Sample", "Source", "Sums", "expose", "number", "spread"]

_Value = float | list[int]


class Sample(msgspec.Struct, array_like=True, frozen=True):
    """The value of one metric with its labels, as it is sent between processes.

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
        """Add samples; those of unknown names are ignored, since a worker may be of another version."""
        for each in samples:
            key = each.name, each.labels
            before = self._values.get(key)
            if isinstance(each.value, list) and isinstance(before, list):
                self._values[key] = [one + other for one, other in zip(before, each.value, strict=True)]
            elif not isinstance(each.value, list) and not isinstance(before, list):
                self._values[key] = (before or 0) + each.value
            else:
                self._values[key] = each.value

    def samples(self, *, growing_only: bool = False) -> Iterator[Sample]:
        """Yield the sums; only of counters and histograms on request."""
        for (name, labels), value in self._values.items():
            family = FAMILIES.get(name)
            if family is not None and not (growing_only and family.kind is Kind.GAUGE):
                yield Sample(name, labels, value)


def expose(sums: Sums) -> bytes:
    """Return metrics in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collected(sums))
    return generate_latest(registry)


class _Collected(Collector):
    """Sums as prometheus_client's metrics."""

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
