"""What a serving process asks of the C library's allocator. Leaves out what is allocated."""

from __future__ import annotations

import ctypes
import sys
from typing import Final

__all__ = ["limit_arenas"]

_M_ARENA_MAX: Final = -8  # glibc's malloc.h
_ARENAS: Final = 2


def limit_arenas() -> None:
    """Has glibc serve all threads from two arenas; elsewhere does nothing. For the start of a process.

    Each arena keeps what its threads freed, for itself. Payload chunks, request bodies and pages pass from thread to
    thread, so that each of up to eight arenas a core comes to hold the most that any thread ever had
    (``docs/decisions/0100-payloads-cold-reads-and-memory.md``).
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, _ARENAS)
