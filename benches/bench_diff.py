"""Diffs of large maps: the cost is proportional to the number of differences, not to the size of the maps.

For maps of increasing size with an increasing number of changed arcs: the stored pages read for the first page of a
diff, all cold; the size of the response; the time to produce it, and the time to verify it. The ratios compare the
largest map with the smallest, for the same number of differences.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import report
from coregw import payload_cid
from coregw._core import Need, Operation, PageCache, verify_diff

ROUNDS = 5
ARCS, QUICK_ARCS = (1_000, 10_000, 100_000, 1_000_000), (1_000, 100_000)
CHANGES = (0, 1, 10, 100, 1_000)
FEW = (1, 10)
"""Numbers of changes that affect only a small part even of the smallest map."""
TIMES = ("response", "verify")
OLD, NEW = payload_cid(b"old"), payload_cid(b"new")

T = TypeVar("T")


class Pages:
    """Pages in memory, by digest, and how many were read."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}
        self.reads = 0

    def drive(self, operation: Operation, *, holds_roots: bool = True) -> bytes:
        while isinstance(need := operation.poll(1 << 20), Need):
            if need.roots is not None:
                operation.supply_roots([holds_roots] * len(need.roots))
                holds_roots = False  # only the roots that an operation starts from are held
            elif need.pages is not None:
                self.reads += len(need.pages)
                operation.supply_pages([self.held[digest] for digest in need.pages])
            elif need.store is not None:
                self.held.update(need.store[0])
        return need


def path(number: int) -> str:
    return f"{number % 1000:03}/{number % 97:02}/{number}"


def changed(pages: Pages, base: str, arcs: int, count: int) -> str:
    """Change `count` random arcs and return the new root."""
    if count == 0:
        return base
    places = random.Random(7).sample(range(arcs), count)
    changes = [{"path": path(i), "before": {"target": OLD}, "after": {"target": NEW}} for i in places]
    body = json.dumps({"deltas": [{"kind": "map", "changes": changes}]}).encode()
    receipt = json.loads(pages.drive(Operation.mutate(PageCache(1 << 28), base, body)))
    return str(receipt["new_root"])


def milliseconds(function: Callable[[], T]) -> tuple[float, T]:
    """Return the median time of `ROUNDS` calls, and their value."""
    value = function()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times), value


def measure(pages: Pages, a: str, b: str, count: int) -> tuple[int, int, dict[str, float]]:
    """Return pages read, bytes of the response, and milliseconds. Every response starts with an empty cache."""
    pages.reads = 0
    producing, response = milliseconds(lambda: pages.drive(Operation.diff(PageCache(1 << 28), a, b)))
    reads = pages.reads // (ROUNDS + 1)
    verifying, found = milliseconds(lambda: verify_diff(a, b, response))
    if len(found.entries) != count:
        raise SystemExit(f"{len(found.entries)} differences of {count}")
    return reads, len(response), {"response": producing, "verify": verifying}


def measure_map(figures: report.Report, arcs: int) -> dict[tuple[str, int], float]:
    """Add the reads and sizes for a map of so many arcs. Return times by row and number of differences."""
    pages = Pages()
    body = json.dumps({"arcs": {path(number): OLD for number in range(arcs)}}).encode()
    created = pages.drive(Operation.create_root(PageCache(1 << 28), body), holds_roots=False)
    root = str(json.loads(created)["root"])
    times = {}
    for count in CHANGES:
        reads, size, spent = measure(pages, root, changed(pages, root, arcs, count), count)
        name = f"{count:,} differences in {arcs:,} arcs"
        figures.add(name, reads, "pages read", better="lower", guarded=True)
        figures.add(f"response for {name}", size, "bytes", better="lower", guarded=True)
        for what, milliseconds_spent in spent.items():
            figures.add(f"{what}: {name}", milliseconds_spent, "ms", recorded=False)
            times[what, count] = milliseconds_spent
    return times


def main() -> None:
    """Measure and report."""
    figures = report.Report("diff", "Diffs: cost in proportion to the differences", report.arguments(__doc__))
    sizes = QUICK_ARCS if figures.run == "quick" else ARCS
    times = {arcs: measure_map(figures, arcs) for arcs in sizes}
    for what in TIMES:
        title = f"{what}, all pages cold" if what == "response" else what
        figures.panel(title, "differences", "ms", logarithmic=True)
        for arcs, spent in times.items():
            counts = [count for count in CHANGES if count]
            figures.line(title, f"{arcs:,} arcs", [float(count) for count in counts], [spent[what, c] for c in counts])
        for count in FEW:
            ratio = times[sizes[-1]][what, count] / times[sizes[0]][what, count]
            name = f"{what}, {count:,} differences: {sizes[-1]:,} / {sizes[0]:,} arcs"
            figures.add(name, ratio, better="lower", guarded=True)
    figures.finish()


if __name__ == "__main__":
    main()
