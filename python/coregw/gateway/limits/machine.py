"""Limits of a serving process, derived from the memory and the connections that a gateway may have.

What the machine, a control group or ``ulimit`` allows is the start; `Limits.of` divides it.
"""

from __future__ import annotations

import logging
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple, Self

from coregw.errors import InvalidInput, Unavailable
from coregw.gateway.settings import GIB, KIB, MIB, Settings, shown

__all__ = [
    "ANSWER_COPIES",
    "LONGEST_ANSWER_BYTES",
    "Limits",
    "available_bytes",
    "gc_filter_bytes",
    "least_bytes",
    "memory_of",
    "warn_of_memory",
]

_log = logging.getLogger("coregw.gateway")

LONGEST_ANSWER_BYTES: Final = 25 * MIB
"""A page of a listing with the longest paths, each of whose bytes takes six in JSON."""

ANSWER_COPIES: Final = 3
"""What a long query of the application takes, in lengths of its answer: what that is made of, its text, a response."""

_FRONT_ANSWER_COPIES: Final = 2
"""The same of the front, whose text is the response."""

_QUERY_BYTES: Final = (ANSWER_COPIES + _FRONT_ANSWER_COPIES) * LONGEST_ANSWER_BYTES

_WORKER_THREADS: Final = 4

_PROCESS_BYTES: Final = 70 * MIB
_SPARE_BYTES: Final = 2 * MIB
"""Buffers of the extension that each thread keeps for its next answers (`rust/core/src/spare.rs`)."""

_FREED_BYTES: Final = 80 * MIB
"""Freed memory that the extension keeps for a second, and what it cannot return, measured under long listings."""

_WRITE_BUFFER_BYTES: Final = 50 * MIB
"""RocksDB's memtables and readers of SSTs."""

MANAGEMENT_BYTES: Final = 8 * MIB
"""Memory for the bodies of requests to the management addresses, whose longest is one of `Limits.json_body_bytes`."""

_UNCOUNTED_SHARE: Final = 8
_CONNECTION_BYTES: Final = 16 * KIB
"""One part in this many of the memory, and at least this much for each connection, is for what no budget counts:
sockets and their buffers, and gaps between what is allocated."""

_GC_FILTER_SHARE: Final = 4 * _UNCOUNTED_SHARE
"""One part in this many of the memory is for the payloads that pages name, while garbage is collected."""

_UNUSED_ADDRESSES: Final = 256 * MIB
"""Addresses of a process that are never memory: stacks of threads, and files that are mapped."""

_MAX_LONG_QUERIES: Final = 16
"""More would only take the processors from each other."""

_LEAST_BACKLOG: Final = 64
_MOST_BACKLOG: Final = 4096
"""Linux's own limit, ``net.core.somaxconn``."""

_CGROUPS: Final = Path("/sys/fs/cgroup")
_OWN_CGROUPS: Final = Path("/proc/self/cgroup")
_UNIFIED: Final = ""


class _Budget(NamedTuple):
    """A part of the memory: what is needed at least, and its share of what is left when all have that.

    Attributes:
        least: The least budget, in bytes.
        sixteenths: The share of the rest; those of all budgets are 16 together.
        copies: The memory that one byte of the budget takes at most.
    """

    least: int
    sixteenths: int
    copies: Fraction = Fraction(1)


_BUDGETS: Final = {
    "cache_bytes": _Budget(8 * MIB, 4),
    "store_cache_bytes": _Budget(4 * MIB, 1),
    "payload_cache_bytes": _Budget(4 * MIB, 1),
    "change_bytes": _Budget(16 * MIB, 4, Fraction(2)),  # a change takes twice its budget while it is stored
    "buffered_bytes": _Budget(16 * MIB, 2),
    "hot_body_bytes": _Budget(8 * MIB, 2),
    "unsent_bytes": _Budget(34 * MIB, 1, Fraction(3, 2)),  # two of the longest answers fit into half more than this
    "long_queries": _Budget(_QUERY_BYTES, 1),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Every limit of one serving process. Sizes are in bytes, times in seconds.

    `of` derives them from the settings. What has a default does not depend on those.
    """

    cache_bytes: int
    """Parsed pages. Four sixteenths of the memory that is left when every budget has the least that it needs."""

    store_cache_bytes: int
    """RocksDB's block cache. A sixteenth of that memory."""

    payload_cache_bytes: int
    """Small payloads. A sixteenth of that memory."""

    change_bytes: int
    """Root creations, imports and mutations in progress. Two sixteenths, as each may take twice as much."""

    buffered_bytes: int
    """Request bodies that the application reads. Two sixteenths of that memory."""

    hot_body_bytes: int
    """Request bodies that the front reads, uploads among them. Two sixteenths of that memory."""

    unsent_bytes: int
    """Responses that clients have not read. Two thirds of a sixteenth: they may be half more for a moment."""

    long_queries: int
    """Queries of over a millisecond at once, in the front, and as many in the application. A sixteenth of that memory,
    by five times the longest answer; at most 16."""

    connections: int
    """Open connections. The setting, and no more than the process may open files for (`fit_descriptors`)."""

    backlog: int
    """Connections waiting to be accepted. As many as there may be, from 64 to the 4,096 that Linux allows."""

    roots_body_bytes: int
    """Largest JSON body of a new root. 256 MiB, and no more than all bodies."""

    mutation_body_bytes: int
    """Largest body of a mutation. 64 MiB, and no more than all bodies."""

    verify_body_bytes: int
    """Largest body of the verify routes. 24 MiB (16 MiB of proof), and no more than all bodies in the front."""

    heavy_requests: int = 2
    """Root creations, mutations and CARs in memory of over 1 MiB at once. A constant."""

    cars_at_once: int = 2
    """Spooled CARs that are checked and stored at once; more wait. A constant: the disk is the limit."""

    builds: int = 8
    """Bodies of lines of arcs in progress. A constant: each takes an eighth of the memory for bodies."""

    build_spool_bytes: int = 64 * GIB
    """Temporary files that sort lines of arcs. A constant."""

    car_exports: int = 16
    """CAR exports in progress. A constant: each reads ahead of its client."""

    payload_streams: int = 64
    """Answers of the application with many payloads or pages in progress; those of the front count as unsent. A
    constant: they read ahead less than exports."""

    held_roots: int = 65_536
    """Roots remembered as held. A constant: 100 bytes each."""

    node_budget: int = 2000
    """Tree nodes that a query visits before it moves to a thread. A constant: about a millisecond."""

    worker_threads: int = _WORKER_THREADS
    """Threads for long queries, root creations and mutations. A constant."""

    store_threads: int = 4
    """Concurrent reads of the store. A constant."""

    max_nodes: int = 1_000_000
    """Tree nodes that a query, or all of a batch, may visit; mutations 16 times. A constant: about half a second."""

    operation_seconds: float = 30.0
    """Time limit of a query or mutation. A constant."""

    store_seconds: float = 5.0
    """Time limit of the store for a health check. A constant."""

    json_body_bytes: int = MIB
    """Largest body of a request that has no other limit here. A constant."""

    resolve_batch_body_bytes: int = 8 * MIB
    """Largest body of a batch of resolves. A constant: 1,000 of the longest paths."""

    batch_answer_bytes: int = 16 * MIB
    """Largest response to a batch of resolves. A constant: less than the longest listing."""

    payload_bytes: int = 64 * MIB
    """Largest payload. A constant, so that what one gateway stores every other may have."""

    car_bytes: int = 4 * GIB
    """Largest CAR of an import, which is spooled. A constant."""

    car_blocks: int = 4_000_000
    """Blocks in a CAR. A constant: each takes 60 bytes, which count as a change."""

    build_body_bytes: int = 16 * GIB
    """Largest body of lines of arcs. A constant."""

    header_bytes: int = 32 * KIB
    """Largest request head (request line and headers), and trailers. A constant."""

    header_seconds: float = 10.0
    """Time for a request head to arrive. A constant."""

    min_rate_bytes: int = KIB
    """Bytes per second that a client has to send of a body, or read of a response. A constant."""

    rate_grace_seconds: float = 10.0
    """Time before the minimum rate applies. A constant."""

    body_idle_seconds: float = 20.0
    """Idle timeout of a body that was fast enough before. A constant."""

    body_seconds: float = 600.0
    """Time for a whole request body to arrive. A constant."""

    drain_seconds: float = 30.0
    """Time to discard the rest of a rejected body. A constant."""

    write_seconds: float = 60.0
    """Idle timeout of a client that read fast enough before. A constant."""

    keep_alive_seconds: int = 30
    """Idle timeout of a connection between requests. A constant."""

    @classmethod
    def of(cls, settings: Settings, available: int | None = None) -> Self:
        """Derive the limits of a gateway with these settings.

        Args:
            settings: The settings, of which ``memory`` and ``connections`` count.
            available: The memory that there is; `available_bytes` if None.

        Raises:
            InvalidInput: If ``memory`` is less than is needed (`least_bytes`); the message says how much that is.
            Unavailable: The same if ``memory`` is not set, and there is not as much.
        """
        memory = memory_of(settings, available)
        rest = _usable(memory, settings.connections) - _needed()

        def budget(name: str) -> int:
            least, sixteenths, copies = _BUDGETS[name]
            return int((least * copies + Fraction(rest * sixteenths, 16)) / copies) // MIB * MIB

        buffered, hot_bodies = budget("buffered_bytes"), budget("hot_body_bytes")
        return cls(
            cache_bytes=budget("cache_bytes"),
            store_cache_bytes=budget("store_cache_bytes"),
            payload_cache_bytes=budget("payload_cache_bytes"),
            change_bytes=budget("change_bytes"),
            buffered_bytes=buffered,
            hot_body_bytes=hot_bodies,
            unsent_bytes=budget("unsent_bytes"),
            long_queries=min(budget("long_queries") // _QUERY_BYTES, _MAX_LONG_QUERIES),
            connections=settings.connections,
            backlog=min(_MOST_BACKLOG, max(_LEAST_BACKLOG, settings.connections)),
            roots_body_bytes=min(256 * MIB, buffered),
            mutation_body_bytes=min(64 * MIB, buffered),
            verify_body_bytes=min(24 * MIB, hot_bodies),
        )

    @staticmethod
    def share_of_address(limit: int) -> int:
        """Return how much of a limit one address may use: half, and at least 1."""
        return max(1, limit // 2)

    @property
    def build_run_bytes(self) -> int:
        """Memory of one run of arcs that are sorted: a small part of the memory for bodies, and 4 MiB at most."""
        return min(4 * MIB, max(64 * KIB, self.buffered_bytes // 32))


def memory_of(settings: Settings, available: int | None = None) -> int:
    """Return the memory that a gateway may use: the setting, or a quarter of what there is.

    Where a quarter does not suffice, it is what is needed. The arguments and the errors are those of `Limits.of`.
    """
    least = least_bytes(settings)
    needs = f"{-(-least // MIB)}MiB for {settings.connections} connections"
    if settings.memory:
        if settings.memory < least:
            raise InvalidInput(f"setting memory is {shown('memory', settings.memory)}, expected at least {needs}")
        return settings.memory
    if available is None:
        available = available_bytes()
    if available < least:
        raise Unavailable(f"the process may use {available // MIB} MiB of memory; a gateway needs at least {needs}")
    return max(least, available // 4)


def gc_filter_bytes(settings: Settings) -> int:
    """Return the largest filter of payloads while garbage is collected: a quarter of what no budget counts."""
    return (settings.memory or available_bytes() // 4) // _GC_FILTER_SHARE


def least_bytes(settings: Settings) -> int:
    """Return the least memory with which a gateway starts, in bytes: it grows with its connections."""
    needed = _needed()
    return max(
        needed + settings.connections * _CONNECTION_BYTES,
        -(-needed * _UNCOUNTED_SHARE // (_UNCOUNTED_SHARE - 1)),
    )


def warn_of_memory(settings: Settings) -> None:
    """Log a warning if the setting is more than there is: the system may then end the process."""
    available = available_bytes()
    if settings.memory > available:
        _log.warning(
            "COREGW_MEMORY allows %d MiB, and the process has %d MiB: lower it, or give the process more",
            settings.memory // MIB,
            available // MIB,
        )


def available_bytes(own: Path = _OWN_CGROUPS, top: Path = _CGROUPS, *, addresses: int | None = None) -> int:
    """Return the memory that a gateway may use: that of the machine, or the least limit of the system on it.

    Args:
        own: The file that names the control groups of this process.
        top: The folder of all control groups.
        addresses: The limit on the addresses of a process (``ulimit -v``); that of this process if None.
    """
    if addresses is None:
        addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    in_process = [] if addresses == resource.RLIM_INFINITY else [max(0, addresses - _UNUSED_ADDRESSES)]
    return min(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *in_process, *_limits(own, top))


def _usable(memory: int, connections: int) -> int:
    """Return the memory without the part that no budget counts."""
    return memory - max(memory // _UNCOUNTED_SHARE, connections * _CONNECTION_BYTES)


def _needed() -> int:
    """Return the memory that the process takes, and the least of all budgets."""
    return (
        _PROCESS_BYTES
        + (_WORKER_THREADS + 1) * _SPARE_BYTES  # the event loop answers, too
        + _FREED_BYTES
        + _WRITE_BUFFER_BYTES
        + MANAGEMENT_BYTES
        + sum(int(each.least * each.copies) for each in _BUDGETS.values())
    )


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
