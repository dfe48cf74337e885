"""The memory that the settings allow, compared with the memory that there is."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from coregw.gateway.settings import MIB, Settings

__all__ = ["ANSWER_COPIES", "LONGEST_ANSWER_BYTES", "allowed_bytes", "available_bytes", "check_memory"]

_log = logging.getLogger("coregw.gateway")

LONGEST_ANSWER_BYTES: Final = 25 * MIB
"""A page of a listing with the longest paths, each of whose bytes takes six in JSON."""

ANSWER_COPIES: Final = 3
"""What a long query takes at most, in lengths of its answer: what the answer is made of, its text, and the response."""

_PROCESS_BYTES: Final = 70 * MIB
_WRITE_BUFFER_BYTES: Final = 50 * MIB
"""RocksDB's memtables and readers of SSTs."""

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUPS: Final = Path("/proc/self/cgroup")
_UNIFIED: Final = ""


def allowed_bytes(settings: Settings) -> int:
    """Return the most memory that the settings let all processes of a gateway use together.

    A change may take twice its budget while it is stored, and unread responses half more than theirs.
    """
    answer = max(LONGEST_ANSWER_BYTES, settings.batch_answer_bytes)
    return (
        settings.workers * _PROCESS_BYTES
        + settings.cache_bytes
        + settings.store_cache_bytes
        + _WRITE_BUFFER_BYTES
        + settings.buffered_bytes
        + 2 * settings.change_bytes
        + settings.unsent_bytes * 3 // 2
        + settings.long_queries * ANSWER_COPIES * answer
    )


def available_bytes(own: Path = _OWN_CGROUPS, top: Path = _CGROUPS) -> int:
    """Return the memory that this process may use: that of the machine, or the limit of its control groups."""
    return min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_limits(own, top))


def check_memory(settings: Settings) -> None:
    """Log a warning if the settings allow more memory than there is: the system may then end the process."""
    allowed, available = allowed_bytes(settings), available_bytes()
    if allowed > available:
        _log.warning(
            "the settings allow %d MiB of memory, of which the process has %d MiB: lower COREGW_CHANGE_BYTES (%d MiB "
            "count twice), COREGW_BUFFERED_BYTES (%d MiB) or COREGW_CACHE_BYTES (%d MiB)",
            *(each // MIB for each in (allowed, available)),
            *(each // MIB for each in (settings.change_bytes, settings.buffered_bytes, settings.cache_bytes)),
        )


def _limits(own: Path, top: Path) -> Iterator[int]:
    """Iterate over the limits of the control groups of this process, of both versions; the last is none."""
    with suppress(OSError, ValueError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == _UNIFIED:
                folder, name = top, "memory.max"
            elif "memory" in controllers.split(","):
                folder, name = top / "memory", "memory.limit_in_bytes"
            else:
                continue
            for group in (PurePosixPath(path), *PurePosixPath(path).parents):
                with suppress(OSError, ValueError):  # not visible, or "max"
                    yield int((folder / group.relative_to("/") / name).read_text())
    yield 1 << 63
