"""File descriptors: as many as the system allows, and no more connections than these suffice for."""

from __future__ import annotations

import logging
import resource
from dataclasses import replace
from typing import Final

from coregw.errors import Unavailable
from coregw.gateway.limits.machine import Limits
from coregw.store.rocksdb import max_open_files

__all__ = ["MIN_DESCRIPTORS", "fit_descriptors", "max_spools"]

_log = logging.getLogger("coregw.gateway")

MIN_DESCRIPTORS: Final = 160
"""The smallest limit with which a gateway starts."""

_SPOOLED: Final = 4
"""One connection in this many may upload a CAR."""

_EACH: Final = 3
"""Descriptors of a connection whose request the application answers: its own, and both ends of another one."""

_SPARE: Final = 80
"""Descriptors for logs, the event loop, the management addresses, and whatever RocksDB opens besides SSTs."""


def fit_descriptors(limits: Limits) -> Limits:
    """Raise the limit on open files to its maximum, and return limits whose connections fit into it.

    The store needs descriptors to write: a connection is refused rather than a write.

    Raises:
        Unavailable: The limit is below `MIN_DESCRIPTORS`.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if limit == resource.RLIM_INFINITY:
        return limits
    if limit < MIN_DESCRIPTORS:
        raise Unavailable(f"the process may open {limit} files (ulimit -Hn), and needs at least {MIN_DESCRIPTORS}")
    available = limit - max_open_files() - _SPARE
    if _needed(limits.connections) + limits.backlog <= available:
        return limits
    # What waits in the backlog is accepted at once, before connections are closed to make room for it.
    backlog = min(limits.backlog, max(1, available // 4))
    connections = min(limits.connections, max(1, (available - backlog) * _SPOOLED // (_EACH * _SPOOLED + 1)))
    _log.warning(
        "the process may open %d files (ulimit -Hn), which suffice for %d connections and %d that wait, not for %d and "
        "%d: raise it, or lower COREGW_CONNECTIONS",
        limit,
        connections,
        backlog,
        limits.connections,
        limits.backlog,
    )
    return replace(limits, connections=connections, backlog=backlog)


def _needed(connections: int) -> int:
    """Return the descriptors that this many connections need, and the spools of their CAR uploads."""
    return _EACH * connections + max_spools(connections)


def max_spools(connections: int) -> int:
    """Return how many CAR uploads may be in progress at a time: each has a file."""
    return max(1, connections // _SPOOLED)
