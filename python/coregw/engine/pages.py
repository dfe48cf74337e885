"""Reads of pages, merged: many small reads of concurrent operations become few larger ones, each page read once.

A visit of the store costs more than a page in it. So at most `MAX_IN_FLIGHT` small reads are in flight, and what is
requested meanwhile is gathered for the next one.

```
request a   ├── read ────────────┤
request b     ├── read ────────────┤
request c        ┐
request d          ├ gathered    ├── read of c, d and e ──┤
request e        ┘
```
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from coregw.store import Store, Table

__all__ = ["MAX_IN_FLIGHT", "MAX_MERGED_PAGES", "PageReads"]

MAX_IN_FLIGHT: Final = 2
"""The maximum number of merged reads in flight. With one the store idles between two, with more they are smaller."""

MAX_MERGED_PAGES: Final = 64
"""A request for more pages than these is a read of its own, and delays no other."""

_MAX_BATCH_PAGES: Final = 512


class _Batch:
    """The pages of one read."""

    __slots__ = ("found", "has_begun", "has_failed", "is_ended", "pages", "waiters")

    def __init__(self) -> None:
        self.pages: list[bytes] = []
        self.found: dict[bytes, bytes | None] = {}
        self.has_begun = self.is_ended = False
        self.has_failed = True
        """Until the read has succeeded."""
        self.waiters: list[asyncio.Future[None]] = []


class PageReads:
    """The reads of pages of one engine, on one event loop.

    Args:
        store: The store.

    Attributes:
        pages_read: How many pages were read from the store.
        reads: How many reads that took.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._batches: dict[bytes, _Batch] = {}
        """By the digests of their pages, until they end."""
        self._gathered: deque[_Batch] = deque()
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.pages_read = 0
        self.reads = 0

    async def get(self, digests: Sequence[bytes]) -> list[bytes | None]:
        """Return pages by digest; None for one that the store did not have when it was requested.

        Raises what the store raises for these pages.
        """
        if len(digests) > MAX_MERGED_PAGES:
            return await self._read(digests)
        batches = [self._batches.get(digest) for digest in digests]
        # A read in flight may have looked for a page before it was stored. If so, it is read again.
        is_early = [batch is not None and batch.has_begun for batch in batches]
        if new := [digest for digest, batch in zip(digests, batches, strict=True) if batch is None]:
            if self._running < MAX_IN_FLIGHT:
                batch = _Batch()
                self._add(batch, new)
                await self._run(batch)
            else:
                batch = self._gather(new)
            batches = [each or batch for each in batches]
        pages: list[bytes | None] = []
        again: list[int] = []
        for number, (digest, each) in enumerate(zip(digests, batches, strict=True)):
            assert each is not None  # noqa: S101 - every page has a batch now
            if not each.is_ended:
                await _end_of(each)
            page = each.found.get(digest)
            pages.append(page)
            if each.has_failed or (page is None and is_early[number]):
                again.append(number)
        if again:  # a read may have failed for a page of another request, so errors are not shared
            for number, page in zip(again, await self._read([digests[number] for number in again]), strict=True):
                pages[number] = page
        return pages

    async def close(self) -> None:
        """Wait for gathered reads, whose requests may have been cancelled."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _add(self, batch: _Batch, digests: Sequence[bytes]) -> None:
        batch.pages += digests
        for digest in digests:
            self._batches[digest] = batch

    def _gather(self, digests: Sequence[bytes]) -> _Batch:
        if not self._gathered or len(self._gathered[-1].pages) >= _MAX_BATCH_PAGES:
            self._gathered.append(_Batch())
        batch = self._gathered[-1]
        self._add(batch, digests)
        return batch

    async def _run(self, batch: _Batch) -> None:
        """Read a batch; however that ends, wake the requests that share it, and begin the next one."""
        self._running += 1
        batch.has_begun = True
        try:
            pages = await self._read(batch.pages)
            batch.found = dict(zip(batch.pages, pages, strict=True))
            batch.has_failed = False
        finally:
            self._running -= 1
            batch.is_ended = True
            for digest in batch.pages:
                self._batches.pop(digest, None)
            for waiter in batch.waiters:
                if not waiter.done():
                    waiter.set_result(None)
            if self._gathered:
                task = asyncio.get_running_loop().create_task(self._run_gathered(self._gathered.popleft()))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run_gathered(self, batch: _Batch) -> None:
        with suppress(Exception):  # each request repeats its part, and gets the error that concerns it
            await self._run(batch)

    async def _read(self, digests: Sequence[bytes]) -> list[bytes | None]:
        self.reads += 1
        self.pages_read += len(digests)
        return await self._store.get(Table.PAGES, digests)


async def _end_of(batch: _Batch) -> None:
    """Wait for the end of a batch. Cancelling one request does not cancel it for others."""
    waiter = asyncio.get_running_loop().create_future()
    batch.waiters.append(waiter)
    await waiter
