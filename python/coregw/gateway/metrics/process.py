"""Samples of a process and of what runs in it: the engine, the server, the memory."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from coregw.engine import Engine
from coregw.gateway.context import Gateway
from coregw.gateway.http.server import HttpServer
from coregw.gateway.logs import dropped_lines
from coregw.gateway.metrics.samples import Sample, Source, number

__all__ = ["engine_source", "process_samples", "server_source"]

_PAGE_BYTES: Final = resource.getpagesize()


def engine_source(engine: Engine) -> Source:
    """Return the source of an engine's samples."""

    def samples() -> Iterator[Sample]:
        figures = engine.figures()
        yield number("coregw_page_cache_hits_total", figures.cache_hits)
        yield number("coregw_page_cache_misses_total", figures.cache_misses)
        yield number("coregw_page_cache_bytes", figures.cache_bytes)
        yield number("coregw_page_cache_max_bytes", figures.cache_max_bytes)
        yield number("coregw_pages_read_total", figures.pages_read)
        yield number("coregw_engine_jobs", figures.jobs)

    return samples


def server_source(server: HttpServer, gateway: Gateway) -> Source:
    """Return the source of the samples of the server on the main address, and of the gateway that it serves."""
    shared = server.shared

    def samples() -> Iterator[Sample]:
        yield number("coregw_connections", len(shared.crowd))
        yield number("coregw_connections_closed_total", shared.crowd.closed, "no_room")
        yield number("coregw_connections_closed_total", shared.unsent.reset, "unread_responses")
        yield number("coregw_connections_closed_total", shared.unsent.slow, "slow_reader")
        yield number("coregw_unsent_bytes", shared.unsent.total)
        yield number("coregw_requests_in_progress", len(server.server_state.tasks))
        yield number("coregw_buffered_bytes", gateway.bodies.held)

    return samples


def process_samples() -> Iterator[Sample]:
    """Yield the samples of this process as the operating system sees it."""
    yield number("coregw_processes", 1)
    yield number("coregw_cpu_seconds_total", time.process_time())
    yield number("coregw_log_lines_dropped_total", dropped_lines())
    yield number("coregw_max_open_files", resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    with suppress(OSError):  # not on Linux
        yield number("coregw_open_files", len(os.listdir("/proc/self/fd")))  # noqa: PTH208 - names alone, as fast
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        yield number("coregw_resident_bytes", pages * _PAGE_BYTES)
