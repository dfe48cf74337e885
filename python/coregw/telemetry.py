"""What a process counts and logs about itself.

Counters take no lock: each is changed by one thread, and a reader may see a value that is some nanoseconds old.
"""

from __future__ import annotations

import logging
import time
from typing import Final

__all__ = ["Histogram", "RepeatedFailure"]

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


_QUIET_SECONDS: Final = 60.0


class RepeatedFailure:
    """A failure that is logged when it begins and when it is over; what repeats in between, at level DEBUG.

    One that comes and goes begins once a minute at most. For one thread at a time.

    Args:
        logger: Where to.
        what: What fails.
        over: What is the case when it has ended.
        level: The severity of its beginning; its end is a warning.
    """

    def __init__(self, logger: logging.Logger, what: str, over: str, level: int = logging.WARNING) -> None:
        self._logger = logger
        self._what = what
        self._over = over
        self._level = level
        self._is_logged = False
        self._since = 0.0
        self._quiet_until = 0.0

    def occurs(self, reason: object) -> None:
        """Note that it has occurred, and why."""
        now = time.monotonic()
        begins = not self._is_logged and now >= self._quiet_until
        if begins:
            self._is_logged, self._since, self._quiet_until = True, now, now + _QUIET_SECONDS
        self._logger.log(self._level if begins else logging.DEBUG, "%s: %s", self._what, reason)

    def ends(self) -> None:
        """Note that an attempt has succeeded. O(1)."""
        if self._is_logged:
            self._is_logged = False
            self._logger.warning("%s after %.1f s", self._over, time.monotonic() - self._since)
