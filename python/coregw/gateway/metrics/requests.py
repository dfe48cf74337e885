"""Counts of this process's requests: by route template, status and error code.

They belong to the process, as its memory does, so they are module variables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from coregw.counters import Histogram
from coregw.gateway.metrics.samples import Sample, number, spread

__all__ = ["BODIES", "REFUSALS", "RouteCounts", "counts_of", "request_samples"]

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
"""Refused requests by reason: a key of `coregw.errors.ERROR_CODES`, or a word of `coregw.gateway.http.connection`."""

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
