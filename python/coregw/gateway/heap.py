"""How a serving process keeps its memory: the C library's arenas, and Python's cyclic collector.

Both are the process's, so only what runs a whole process may set them (`server.run`). Leaves out what is allocated.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Final

__all__ = ["limit_arenas", "limit_collector"]

_M_ARENA_MAX: Final = -8  # glibc's malloc.h
_ARENAS: Final = 2

_YOUNG: Final = 10_000
"""How many objects more than were freed are made before the collector looks at them. Python's own 700 are what some
twenty requests hold that wait for the disk; so it looked at them over and over, and never found a cycle."""


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


def limit_collector() -> None:
    """Keeps Python's cyclic collector off what is there, and from looking often. For when a process begins to serve.

    What it was started with stays to the end, and no request makes cycles
    (``docs/decisions/0101-the-collector-and-short-uploads.md``).
    """
    gc.collect()  # freed now or never
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
