"""Plain counters for hot paths, which are read when somebody asks for metrics.

They take no lock: each is changed by one thread, and a reader may see a value that is some nanoseconds old.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Histogram"]

_BUCKETS: Final = 65


class Histogram:
    """Non-negative integers below 2^64, counted by their number of bits.

    Attributes:
        counts: ``counts[k]`` is how many values have `k` bits, so are less than 2^k and not less than 2^(k - 1).
        total: The sum of all values.
    """

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * _BUCKETS
        self.total = 0

    def add(self, value: int) -> None:
        """Count a value. O(1)."""
        self.counts[value.bit_length()] += 1
        self.total += value
