"""The clock by which a store dates what it holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["Clock"]

_MS: Final = 1000


class Clock:
    """Milliseconds since 1970 that never decrease while a store is open, whatever happens to the system's clock.

    Args:
        monotonic: Seconds of a clock that never goes back.
        wall: Seconds since 1970, read once.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        self._base = int(wall() * _MS)

    def now(self) -> int:
        """The time in milliseconds."""
        return self._base + int((self._monotonic() - self._began) * _MS)

    def advance_to(self, time_ms: int) -> None:
        """Advance to a time in milliseconds, unless it is past."""
        self._base += max(0, time_ms - self.now())
