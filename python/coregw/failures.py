"""Failures that may repeat at every attempt, logged as changes of state."""

from __future__ import annotations

import logging
import time
from typing import Final

__all__ = ["RepeatedFailure"]

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
