"""Memory of a process: the heaps of its allocators, and Python's cyclic garbage collector.

Both belong to the whole process, so only code that runs a whole process may set them: the command, and a gateway.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from typing import Final

__all__ = ["limit_collector", "limit_heap"]

_M_TRIM_THRESHOLD: Final = -1  # glibc's malloc.h
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
_MAX_ARENAS: Final = 2
_MMAP_VARIABLE: Final = "MALLOC_MMAP_THRESHOLD_"

_MAPPED_BYTES: Final = 4 << 20
"""Longer blocks are mapped, and return to the system when they are freed. Left alone, glibc raises the threshold up to
32 MiB whenever it frees a longer one, and keeps those that follow. Chunks of payloads are shorter: to map each of them
would take much time."""

_PR_SET_THP_DISABLE: Final = 41  # Linux's linux/prctl.h

_YOUNG_THRESHOLD: Final = 10_000
"""Net allocations that start a collection of the young generation. Python's default of 700 is what some twenty requests
that wait for the disk hold, so the collector ran constantly and never found a cycle."""


def limit_heap() -> None:
    """Limit what allocators take beyond what is in use; call it when a process starts. Does nothing but on Linux.

    mimalloc, the extension's allocator, asks the system for huge pages. Each thread has 64 KiB for each size of blocks
    and touches little of it, but a huge page is in memory as a whole: ten times what is in use after the start of a
    gateway.

    Each arena of glibc keeps what its threads free. Payload chunks, request bodies and pages move between threads, so
    each of up to eight arenas per core would grow to the maximum that any thread ever needed. Long responses are
    mapped, so that they are freed at once.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.prctl(_PR_SET_THP_DISABLE, *map(ctypes.c_ulong, (1, 0, 0, 0)))
        mallopt = getattr(library, "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_ARENA_MAX, _MAX_ARENAS)
            if _MMAP_VARIABLE not in os.environ:  # whoever sets it has chosen
                mallopt(_M_MMAP_THRESHOLD, _MAPPED_BYTES)
                mallopt(_M_TRIM_THRESHOLD, 2 * _MAPPED_BYTES)


def limit_collector() -> None:
    """Exempt existing objects from garbage collection and collect less often; call it when a process begins to serve.

    What was allocated until then stays to the end, and requests create no cycles: collecting
    after every 700 objects took a tenth of the event loop's time and never found one.
    """
    gc.collect()  # what is garbage now would be kept forever
    gc.freeze()
    gc.enable()  # `coregw serve` loads without it
    gc.set_threshold(_YOUNG_THRESHOLD, *gc.get_threshold()[1:])
