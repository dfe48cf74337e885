"""Maps of any size, from arcs that arrive as a stream of lines in any order.

The arcs are sorted while they arrive, in runs of bounded memory that are spooled to a temporary file. When all have
come, the runs are merged, and the map is built and stored page by page; its root is recorded last, durably. A build
that fails, or whose process dies, leaves a part of the pages, which no root needs: garbage.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Callable
from typing import Final, ParamSpec

from coregw._core import ArcSorter, Operation, PageCache
from coregw.engine.driver import Driver
from coregw.engine.scheduling import EngineLimits
from coregw.errors import StorageFull, Unavailable
from coregw.store import Store

__all__ = ["Builds"]

P = ParamSpec("P")

_FEED_BYTES: Final = 1 << 20
"""Bytes of lines that are read in one visit of a worker thread."""

_ATTEMPTS: Final = 3
"""How often a map is built whose first pages were collected as garbage before its last ones were stored."""


class Builds:
    """The builds of one store, ``engine.builds``."""

    def __init__(self, store: Store, driver: Driver, cache: PageCache, limits: EngineLimits) -> None:
        """Called by `Engine`."""
        self._store = store
        self._driver = driver
        self._cache = cache
        self._limits = limits
        self._slots = asyncio.Semaphore(limits.heavy_requests)
        self._spooled: dict[ArcSorter, int] = {}

    async def build_root(self, chunks: AsyncIterator[bytes], suite: str, form: str = "ndjson") -> bytes:
        """Make the map of arcs (protocol section 5, *roots*), and return ``{"root": ...}``; durable on return.

        O(n log n), in memory for a few runs and pages, whatever the number of arcs.

        Args:
            chunks: The lines, cut anywhere. An exception of the iterator passes through, and nothing is stored.
            suite: The suite of the map.
            form: ``ndjson`` or ``tsv``.

        Raises:
            InvalidInput: If a line is malformed (the message names its number), a path occurs twice (the message names
                it), or the suite is unknown.
            TooLarge: If too many paths of thousands of bytes continue each other, or it needs too much memory.
            StorageFull: If the store or the temporary files would exceed their limits.
            Unavailable: If the store cannot write, garbage collections removed pages of the map again and again, or
                all changes need too much memory.
        """
        sorter = ArcSorter(self._limits.spool, form, self._limits.build_run_bytes)
        self._spooled[sorter] = 0
        try:
            await self._receive(sorter, chunks)
            async with self._slots:
                return await self.store_map(sorter, suite)
        finally:
            del self._spooled[sorter]

    async def _receive(self, sorter: ArcSorter, chunks: AsyncIterator[bytes]) -> None:
        """Sort the arcs of the chunks; while some are read, the next ones arrive."""
        reading: asyncio.Future[None] | None = None
        received: list[bytes] = []
        size = 0
        try:
            async for chunk in chunks:
                received.append(chunk)
                size += len(chunk)
                if size >= _FEED_BYTES:
                    if reading is not None:
                        await reading
                    reading = self._start_feeding(sorter, b"".join(received))
                    received, size = [], 0
            if reading is not None:
                await reading
        finally:
            if reading is not None and not reading.done():
                await asyncio.wait([reading])
            reading = None  # its exception refers to this frame: as a cycle, they would keep the sorter and its file
        await self._start_feeding(sorter, b"".join(received))
        await self._driver.in_worker_to_end(_named, sorter.end)

    def _start_feeding(self, sorter: ArcSorter, data: bytes) -> asyncio.Future[None]:
        self._check_space(sorter, len(data))
        return asyncio.ensure_future(self._driver.in_worker_to_end(_named, sorter.feed, data))

    def _check_space(self, sorter: ArcSorter, size: int) -> None:
        limits = self._limits
        self._spooled[sorter] = sorter.spooled_bytes
        if sum(self._spooled.values()) + limits.build_run_bytes + size > limits.build_spool_bytes:
            raise StorageFull(
                f"the temporary files of all builds would take more than {limits.build_spool_bytes} bytes"
            )
        if limits.spool is not None:
            disk = os.statvfs(limits.spool)
            if disk.f_bavail * disk.f_frsize < limits.reserve_bytes + limits.build_run_bytes + size:
                raise _full()

    async def store_map(self, sorter: ArcSorter, suite: str) -> bytes:
        """Build and store the map of sorted arcs; again if pages of it were removed before its root was recorded.

        A collection spares pages that were put lately, but not for as long as the largest maps may take. Raises and
        returns as `build_root`.
        """
        for _ in range(_ATTEMPTS - 1):
            expiries = self._store.expiries
            try:
                return await self._driver.drive_to_end(Operation.build_root(self._cache, sorter, suite))
            except StorageFull:
                raise
            except Unavailable:
                if self._store.expiries == expiries:
                    raise
        return await self._driver.drive_to_end(Operation.build_root(self._cache, sorter, suite))


def _named(work: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Call a method of a sorter; what the operating system refuses raises `Unavailable`."""
    try:
        work(*args, **kwargs)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise _full() from error
        raise Unavailable(f"the arcs cannot be spooled: {error}") from error


def _full() -> StorageFull:
    return StorageFull("there is not enough disk space to sort the arcs")
