"""Report of a benchmark: rates with percentiles, as a table, as JSON, and as a picture."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from time import perf_counter, perf_counter_ns
from typing import Final

import msgspec

from coregw import __version__

__all__ = ["PERCENTILES", "Figure", "Report", "Scale", "measured", "percentiles", "timed", "usable_cores"]

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)

_ROUND: Final = 256
"""Calls between two looks at the clock, while a rate is measured."""


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How often something is done in a second.

    Attributes:
        name: What is done.
        group: The part of the benchmark: ``core``, ``http``.
        rate: How many are done in a second.
        unit: What is counted, such as ``proofs``.
        latency_us: Microseconds of one call by percentile, such as ``{"50": 1.2}``; empty if calls are not timed.
        proof_bytes: The size of a proof, or its share of one that many keys have together; None without a proof.
    """

    name: str
    group: str
    rate: float
    unit: str
    latency_us: dict[str, float] = {}
    proof_bytes: float | None = None


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """The rate of several processes together."""

    processes: int
    rate: float


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A whole run, as its JSON has it.

    Attributes:
        coregw: The version.
        date: When the run began, in UTC.
        machine: Processor, cores and versions.
        root: The root CID of the map.
        keys: How many keys the map has.
        seconds: For how long each figure was measured.
        figures: The rates.
        scaling: Proofs verified in a second, by the number of processes.
        notes: What was left out, and why.
    """

    coregw: str
    date: str
    machine: dict[str, str | int]
    root: str
    keys: int
    seconds: float
    figures: list[Figure]
    scaling: list[Scale]
    notes: list[str]

    @classmethod
    def of(
        cls,
        root: str,
        keys: int,
        seconds: float,
        figures: Sequence[Figure],
        scaling: Sequence[Scale],
        notes: Sequence[str],
    ) -> Report:
        """Return the report of a run on this machine that has just ended."""
        return cls(
            coregw=__version__,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            machine={
                "system": platform.system(),
                "processor": _processor(),
                "cores": usable_cores(),
                "python": f"{platform.python_implementation()} {platform.python_version()}",
            },
            root=root,
            keys=keys,
            seconds=seconds,
            figures=[*figures],
            scaling=[*scaling],
            notes=[*notes],
        )


def usable_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def measured(work: Callable[[int], object], seconds: float) -> float:
    """Return how often in a second ``work(i)`` is done, for i = 0, 1, ..., in about `seconds` of wall time."""
    start = perf_counter()
    done = 0
    while (elapsed := perf_counter() - start) < seconds or not done:
        for i in range(done, done + _ROUND):
            work(i)
        done += _ROUND
    return done / elapsed if elapsed > 0 else float(done)


def timed(work: Callable[[int], object], seconds: float, most: int = 1_000_000) -> list[int]:
    """Return the nanoseconds of each call of ``work(i)``, in about `seconds`; at most `most` calls."""

    def calls() -> Iterator[int]:
        end = perf_counter() + seconds
        i = 0
        while not i or perf_counter() < end:
            start = perf_counter_ns()
            work(i)
            yield perf_counter_ns() - start
            i += 1

    return [*islice(calls(), most)]


def percentiles(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Return microseconds by percentile (nearest rank), for those that this many calls support."""
    ordered = sorted(nanoseconds)
    supported = [each for each in PERCENTILES if (100 - each) * len(ordered) >= 100 or each == PERCENTILES[0]]
    return {f"{each:g}": ordered[min(len(ordered) - 1, int(len(ordered) * each / 100))] / 1000 for each in supported}


def _processor() -> str:
    """The name of the processor, if the system tells."""
    if sys.platform == "linux":
        try:
            with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - a file of the kernel
                names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
        except OSError:
            names = []
        if names:
            return names[0]
    return platform.processor() or platform.machine()
