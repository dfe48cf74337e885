"""The memory that the settings allow, compared with the memory that there is, and defaults that fit into it."""

from __future__ import annotations

import logging
import os
import resource
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath
from typing import Final, TypeVar

from coregw.gateway.settings import MIB, Settings

__all__ = [
    "ANSWER_COPIES",
    "LONGEST_ANSWER_BYTES",
    "allowed_bytes",
    "available_bytes",
    "check_memory",
    "fit_defaults",
    "lowered_defaults",
]

S = TypeVar("S", bound=Settings)

_log = logging.getLogger("coregw.gateway")

LONGEST_ANSWER_BYTES: Final = 25 * MIB
"""A page of a listing with the longest paths, each of whose bytes takes six in JSON."""

ANSWER_COPIES: Final = 3
"""What a long query takes at most, in lengths of its answer: what the answer is made of, its text, and the response."""

_UNREAD_ANSWERS: Final = 2
_FREED_BYTES: Final = 80 * MIB
"""Freed memory that the extension keeps for a second, and what it cannot return, measured under long listings."""

_PROCESS_BYTES: Final = 70 * MIB
_SPARE_BYTES: Final = 2 * MIB
"""Buffers of the extension that each thread keeps for its next answers (`rust/core/src/spare.rs`)."""

_WRITE_BUFFER_BYTES: Final = 50 * MIB
"""RocksDB's memtables and readers of SSTs."""

_LEAST: Final = {
    "cache_bytes": 8 * MIB,
    "store_cache_bytes": 4 * MIB,
    "change_bytes": 16 * MIB,
    "buffered_bytes": 8 * MIB,
    "unsent_bytes": 32 * MIB,
    "long_queries": 1,
}
"""The budgets whose defaults are lowered if there is less memory, with what a process needs at least."""

_BODIES: Final = (
    "roots_body_bytes",
    "mutation_body_bytes",
    "verify_body_bytes",
    "resolve_batch_body_bytes",
    "json_body_bytes",
)
"""The bodies that are held in memory. One that is longer than a process's memory for bodies could never arrive."""

_UNCOUNTED_SHARE: Final = 8
"""One part in this many of the memory is for what no budget counts: sockets, and gaps between what is allocated."""

_UNUSED_ADDRESSES: Final = 256 * MIB
"""Addresses of a process that are never memory: stacks of threads, and files that are mapped."""

_STEPS: Final = 1024

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUPS: Final = Path("/proc/self/cgroup")
_UNIFIED: Final = ""


def allowed_bytes(settings: Settings) -> int:
    """Return the most memory that the settings let all processes of a gateway use together.

    A change may take twice its budget while it is stored, and unread responses half more than theirs, or in each
    process two of the longest answers.
    """
    answer = max(LONGEST_ANSWER_BYTES, settings.batch_answer_bytes)
    workers = settings.workers
    processes = 1 if workers == 1 else workers + 1  # with the owner of the store
    return (
        processes * _PROCESS_BYTES
        + workers * (settings.worker_threads + 1) * _SPARE_BYTES  # the event loop answers, too
        + _FREED_BYTES
        + settings.cache_bytes
        + settings.payload_cache_bytes
        + settings.store_cache_bytes
        + _WRITE_BUFFER_BYTES
        + settings.buffered_bytes
        + workers * replace(settings, buffered_bytes=settings.buffered_bytes // workers).hot_buffered_bytes
        + 2 * settings.change_bytes
        + max(settings.unsent_bytes * 3 // 2, workers * _UNREAD_ANSWERS * answer)
        + -(-settings.long_queries // workers) * workers * ANSWER_COPIES * answer
    )


def available_bytes(
    own: Path = _OWN_CGROUPS, top: Path = _CGROUPS, *, addresses: int | None = None, workers: int = 1
) -> int:
    """Return the memory that a gateway may use: that of the machine, or the least limit of the system on it.

    Args:
        own: The file that names the control groups of this process.
        top: The folder of all control groups.
        addresses: The limit on the addresses of a process (``ulimit -v``); that of this process if None.
        workers: How many processes share the budgets, each with that limit.
    """
    if addresses is None:
        addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    in_processes = [] if addresses == resource.RLIM_INFINITY else [max(0, addresses - _UNUSED_ADDRESSES) * workers]
    return min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *in_processes, *_limits(own, top))


def fit_defaults(settings: S, given: Collection[str], available: int | None = None) -> S:
    """Return settings that allow no more memory than there is, or as little more as possible.

    All budgets that nobody has set are lowered in the same proportion, each at most to what a process needs, and the
    largest bodies to what fits into the budget for them.

    Args:
        settings: The settings, with defaults for machines with enough memory.
        given: The names of those that are not left at their defaults, which stay as they are.
        available: The memory that there is; `available_bytes` if None.
    """
    if available is None:
        available = available_bytes(workers=settings.workers)
    usable = _usable(available)
    least = {name: size * settings.workers for name, size in _LEAST.items()}
    set_bodies = [getattr(settings, name) * settings.workers for name in _BODIES if name in given]
    least["buffered_bytes"] = max([least["buffered_bytes"], *set_bodies])

    def lowered(step: int) -> S:
        changed = {}
        for name, floor in least.items():
            default = getattr(settings, name)
            if name not in given:
                unit = MIB if name.endswith("_bytes") else 1
                changed[name] = min(default, max(floor, default * step // _STEPS // unit * unit))
        if "buffered_bytes" in changed and changed["buffered_bytes"] < settings.buffered_bytes:
            share = changed["buffered_bytes"] // settings.workers // MIB * MIB
            changed |= {name: min(getattr(settings, name), share) for name in _BODIES if name not in given}
        return replace(settings, **changed)

    if allowed_bytes(settings) <= usable:
        return settings
    return lowered(max(0, bisect_right(range(_STEPS), usable, key=lambda step: allowed_bytes(lowered(step))) - 1))


def lowered_defaults(settings: Settings, fitted: Settings) -> list[str]:
    """Return the names of the settings that `fit_defaults` has lowered."""
    return [each.name for each in fields(settings) if getattr(fitted, each.name) != getattr(settings, each.name)]


def check_memory(settings: Settings) -> None:
    """Log a warning if the settings allow more memory than there is: the system may then end the process."""
    allowed, available = allowed_bytes(settings), available_bytes(workers=settings.workers)
    if allowed > _usable(available):
        _log.warning(
            "the settings allow %d MiB of memory, and the process has %d MiB, of which an eighth is for what they "
            "do not limit: lower COREGW_CHANGE_BYTES (%d MiB count twice), COREGW_BUFFERED_BYTES (%d MiB) or "
            "COREGW_CACHE_BYTES (%d MiB), or give it more memory",
            *(each // MIB for each in (allowed, available)),
            *(each // MIB for each in (settings.change_bytes, settings.buffered_bytes, settings.cache_bytes)),
        )


def _usable(available: int) -> int:
    return available - available // _UNCOUNTED_SHARE


def _limits(own: Path, top: Path) -> Iterator[int]:
    """Iterate over the limits of the control groups of this process, of both versions; the last is none."""
    with suppress(OSError, ValueError):
        for line in own.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == _UNIFIED:  # beyond "high" the kernel slows a group down
                folder, names = top, ["memory.max", "memory.high"]
            elif "memory" in controllers.split(","):
                folder, names = top / "memory", ["memory.limit_in_bytes"]
            else:
                continue
            for group in (PurePosixPath(path), *PurePosixPath(path).parents):
                for name in names:
                    with suppress(OSError, ValueError):  # not visible, or "max"
                        yield int((folder / group.relative_to("/") / name).read_text())
    yield 1 << 63
