"""Verification in several processes at once: what more cores give."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TYPE_CHECKING

from coregw import verify_key
from coregw.bench.figures import Scale, measured, usable_cores
from coregw.bench.local import Sample

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

__all__ = ["process_counts", "scaling"]

_START_SECONDS = 60.0

_barrier: Barrier
"""Where the processes wait for each other; set in each of them."""


def process_counts() -> list[int]:
    """Return the numbers of processes of a curve: powers of two, and the number of cores."""
    cores = usable_cores()
    return sorted({cores, *(1 << i for i in range(cores.bit_length()) if 1 << i <= cores)})


def scaling(some: Sample, seconds: float, counts: list[int]) -> Iterator[Scale]:
    """Measure how many proofs of one key that many processes verify in a second, each its own."""
    context = multiprocessing.get_context("spawn")
    for count in counts:
        barrier = context.Barrier(count)
        with ProcessPoolExecutor(count, context, _set_barrier, (barrier,)) as pool:
            rates = [pool.submit(_verify, some.root, some.keys, some.proofs, seconds) for _ in range(count)]
            yield Scale(processes=count, rate=sum(each.result() for each in rates))


def _set_barrier(barrier: Barrier) -> None:
    global _barrier  # noqa: PLW0603 - a barrier can be given to a process only when it starts
    _barrier = barrier


def _verify(root: str, keys: list[str], proofs: list[bytes], seconds: float) -> float:
    """Verify for some time in this process; all start together."""
    count = len(keys)
    _barrier.wait(_START_SECONDS)
    return measured(lambda i: verify_key(root, keys[i % count], proofs[i % count]), seconds)
