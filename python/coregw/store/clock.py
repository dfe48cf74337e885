"""The clock by which a store dates what it holds.

It counts the time in which a process had the store open, and continues where the last opening recorded it. The system's
time only begins it, in a new store: nothing is old because a machine's clock was wrong, or was put right.
``docs/decisions/0378`` gives the reasons.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

__all__ = ["Clock"]

_MS: Final = 1000


class Clock:
    """Milliseconds of a store's time, which never decrease while it is open.

    Args:
        monotonic: Seconds of a clock that never goes back, nor forward while the machine is suspended.
        wall: Seconds since 1970, read once.

    Attributes:
        system_ms: The system's time at the beginning, in milliseconds since 1970. It may be wrong.
    """

    def __init__(
        self,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._monotonic = monotonic
        self._began = monotonic()
        self.system_ms: Final = int(wall() * _MS)
        self._base = self.system_ms
        self._is_resumed = False

    def now(self) -> int:
        """The time in milliseconds."""
        return self._base + int((self._monotonic() - self._began) * _MS)

    def resume(self, time_ms: int) -> None:
        """Continue from a recorded time, instead of from the system's. A further call only advances."""
        if self._is_resumed:
            self.advance_to(time_ms)
        else:
            self._is_resumed = True
            self._base += time_ms - self.now()

    def advance_to(self, time_ms: int) -> None:
        """Advance to a time in milliseconds, unless it is past."""
        self._base += max(0, time_ms - self.now())
