"""A bound on the rate at which files are read."""

from __future__ import annotations

import time

__all__ = ["Pace"]


class Pace:
    """Called with the bytes of each read, waits so that no more than a number of bytes is read per second.

    Args:
        bytes_per_second: The bound, at least 1. A single larger read takes as long as its bytes do.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    def __call__(self, size: int) -> None:
        """Wait until `size` more bytes may be read. Blocks."""
        now = time.monotonic()
        if self._free_at > now:
            time.sleep(self._free_at - now)
        self._free_at = max(now, self._free_at) + size / self._rate
