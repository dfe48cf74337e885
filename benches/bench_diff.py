"""Diffs of large maps: what they cost follows the number of differences, not the size of the maps.

Prints a table: maps of more and more arcs, with more and more of them changed; the time of one page from stored pages,
all of them cold; the pages read; the bytes of the answer; and the time a client needs to verify it.
Run it on an idle machine: ``python benches/bench_diff.py``.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

from rich.console import Console
from rich.table import Table

from coregw import payload_cid
from coregw._core import Build, Mutation, Operation, PageCache, verify_diff

ROUNDS = 5
ARCS = (1_000, 10_000, 100_000, 1_000_000)
CHANGES = (0, 1, 10, 100, 1_000)
OLD, NEW = payload_cid(b"old"), payload_cid(b"new")

T = TypeVar("T")


class Pages:
    """Pages by digest in memory, and how many were read."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}
        self.reads = 0

    def keep(self, next_pages: Callable[[int], list[tuple[bytes, bytes]]]) -> None:
        while batch := next_pages(1 << 20):
            self.held.update(batch)

    def drive(self, work: Operation | Mutation) -> bytes:
        while (need := work.run(1 << 20)) is not None:
            if need.roots is not None:
                work.supply_roots([True] * len(need.roots))
            elif need.pages is not None:
                self.reads += len(need.pages)
                work.supply_pages([self.held[digest] for digest in need.pages])
        return work.result()


def path(number: int) -> str:
    return f"{number % 1000:03}/{number % 97:02}/{number}"


def changed(pages: Pages, base: str, arcs: int, count: int) -> str:
    """The root with `count` arcs changed, taken at random."""
    if count == 0:
        return base
    places = random.Random(7).sample(range(arcs), count)
    changes = [{"path": path(i), "before": {"target": OLD}, "after": {"target": NEW}} for i in places]
    body = json.dumps({"deltas": [{"kind": "map", "changes": changes}]}).encode()
    mutation = Mutation(PageCache(1 << 28), base, body)
    receipt = json.loads(pages.drive(mutation))
    pages.keep(mutation.next_pages)
    return str(receipt["new_root"])


def milliseconds(function: Callable[[], T]) -> tuple[float, T]:
    """The median time of `ROUNDS` calls, and what they give."""
    value = function()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times), value


def row(pages: Pages, a: str, b: str, arcs: int, count: int) -> tuple[str, ...]:
    """One row of the table. Each answer has a new cache, so that every page is read and parsed."""
    pages.reads = 0
    asking, answer = milliseconds(lambda: pages.drive(Operation.diff(PageCache(1 << 28), a, b)))
    reads = pages.reads // (ROUNDS + 1)
    verifying, found = milliseconds(lambda: verify_diff(a, b, answer))
    if len(found.entries) != count:
        raise SystemExit(f"{len(found.entries)} differences of {count}")
    return f"{arcs:,}", f"{count:,}", f"{reads:,}", f"{asking:.2f}", f"{len(answer):,}", f"{verifying:.2f}"


def main() -> None:
    """Measures and prints."""
    titles = ("arcs", "differences", "pages read", "answer ms (cold)", "answer bytes", "verify ms")
    table = Table(*titles, title=f"medians of {ROUNDS}")
    for arcs in ARCS:
        pages = Pages()
        build = Build.arcs(json.dumps({"arcs": {path(number): OLD for number in range(arcs)}}).encode())
        pages.keep(build.next_pages)
        for count in CHANGES:
            table.add_row(*row(pages, build.root, changed(pages, build.root, arcs, count), arcs, count))
    Console().print(table)


if __name__ == "__main__":
    main()
