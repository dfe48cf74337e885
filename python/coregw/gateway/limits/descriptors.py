"""File descriptors: as many as the system allows, and no more connections than these suffice for."""

from __future__ import annotations

import logging
import resource
from dataclasses import replace
from typing import Final

from coregw.errors import Unavailable
from coregw.gateway.settings import Settings
from coregw.store.rocksdb import max_open_files

__all__ = ["MIN_DESCRIPTORS", "fit_descriptors"]

_log = logging.getLogger("coregw.gateway")

MIN_DESCRIPTORS: Final = 160
"""The smallest limit with which a gateway starts."""

_SPARE: Final = 80
"""Descriptors for logs, the event loop, the management addresses, and whatever RocksDB opens besides SSTs."""


def fit_descriptors(settings: Settings) -> Settings:
    """Raise the limit on open files to its maximum, and return settings whose connections fit into it.

    The store needs descriptors to write: a connection is refused rather than a write.

    Raises:
        Unavailable: The limit is below `MIN_DESCRIPTORS`.
    """
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    if limit == resource.RLIM_INFINITY:
        return settings
    if limit < MIN_DESCRIPTORS:
        raise Unavailable(f"the process may open {limit} files (ulimit -Hn), and needs at least {MIN_DESCRIPTORS}")
    connections = limit - max_open_files() - settings.cars_at_once - settings.car_exports - _SPARE
    if settings.connections <= connections:
        return settings
    connections = max(1, connections)
    _log.warning(
        "the process may open %d files (ulimit -Hn), which suffice for %d connections, not for the %d of "
        "COREGW_CONNECTIONS",
        limit,
        connections,
        settings.connections,
    )
    return replace(settings, connections=connections)
