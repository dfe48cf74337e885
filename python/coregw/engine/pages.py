"""Pages and root records, read by operations: merged, cached, and guided ahead.

A visit of the store costs more than a page in it. So what is requested in one pass of the event loop is gathered, and
at most `MAX_IN_FLIGHT` readers visit the store, each with what was gathered until its turn.

```
request a   |
request b   | gathered ├── read of a, b and c ──┤
request c   |
request d                    | gathered ├── read of d and e ──┤
request e                    |
request f                          | gathered   ├── read of f and g ──┤
request g                                     |
```

A root record is a row with a value. A repair keeps the row of a root of which it could not copy all pages, with another
value: what is there can be read and proven, the rest fails as damaged. Storing the root again, or `coregw heal`, makes
it complete.

A root whose payloads and nested roots were found to be held as well gets the value `WHOLE`. While its row exists,
garbage collection keeps all of them; whatever else may lose a payload resets the row to `COMPLETE`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from coregw._core import Cid, Operation, page_guides
from coregw.errors import CoregwError, Unavailable
from coregw.store import Store, Stored, Table
from coregw.store.protocol import DifferenceStore, Guide, GuidedStore, Put

__all__ = [
    "CHECKING",
    "COMPLETE",
    "INCOMPLETE",
    "MAX_IN_FLIGHT",
    "MAX_MERGED_PAGES",
    "WHOLE",
    "GuidedPages",
    "PageReads",
    "put_guided",
    "put_of_trees",
]

MAX_IN_FLIGHT: Final = 2
"""The maximum number of merged reads in flight. With one the store idles between two, with more they are smaller."""

MAX_MERGED_PAGES: Final = 64
"""A request for more pages than these is a read of its own, and delays no other."""

_PORTION_PAGES: Final = 16
"""Requests are gathered in portions of about this many pages, which are not divided further."""

_MAX_PORTIONS: Final = 32
"""The maximum number of portions of one read."""


class _Portion:
    """Pages that are read together."""

    __slots__ = ("found", "has_failed", "is_ended", "outage", "pages", "reader", "together", "waiters")

    def __init__(self) -> None:
        self.pages: list[bytes] = []
        self.found: dict[bytes, bytes | None] = {}
        self.is_ended = self.has_failed = False
        self.outage: str | None = None
        """Why the store did not answer, which concerns every request alike."""
        self.waiters: list[asyncio.Future[None]] = []
        self.reader: asyncio.Task[None] | None = None
        """The task that reads it now."""
        self.together: list[_Portion] = []
        """What it reads with this portion, itself included."""

    async def wait(self) -> None:
        """Wait for the end. Cancelling one request does not cancel it for others; the last one ends the read."""
        waiter = asyncio.get_running_loop().create_future()
        self.waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            self.waiters.remove(waiter)
            if self.reader is not None and not any(portion.waiters for portion in self.together):
                self.reader.cancel()
            raise

    def end(self, found: dict[bytes, bytes | None] | None, outage: str | None) -> None:
        """Note what a read has found, None if it has failed, and wake the requests that wait for it."""
        self.is_ended, self.has_failed, self.outage = True, found is None, outage
        self.reader, self.together = None, []
        self.found = found or {}
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_result(None)


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
        self._portions: dict[bytes, _Portion] = {}
        """By the digests of their pages, until they end."""
        self._gathered: deque[_Portion] = deque()
        self._readers: set[asyncio.Task[None]] = set()
        self._is_beginning = False
        """Whether one of the readers has not had its first turn."""
        self.pages_read = 0
        self.reads = 0

    async def get(self, digests: Sequence[bytes]) -> list[bytes | None]:
        """Return pages by digest; None for one that the store did not have when it was requested.

        Raises what the store raises for these pages, such as `Unavailable`.
        """
        if len(digests) > MAX_MERGED_PAGES:
            return await self._read(digests)
        portions = [self._portions.get(digest) for digest in digests]
        # A read in flight may have looked for a page before it was stored. If so, it is read again.
        is_early = [portion is not None and portion.reader is not None for portion in portions]
        if new := [digest for digest, portion in zip(digests, portions, strict=True) if portion is None]:
            portion = self._gather(new)
            portions = [each or portion for each in portions]
        pages: list[bytes | None] = []
        again: list[int] = []
        for number, (digest, each) in enumerate(zip(digests, portions, strict=True)):
            assert each is not None  # noqa: S101 - every page has a portion now
            if not each.is_ended:
                await each.wait()
            if each.outage is not None:
                raise Unavailable(each.outage)
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
        while self._readers:
            await asyncio.wait(self._readers)

    def _gather(self, digests: Sequence[bytes]) -> _Portion:
        if not self._gathered or len(self._gathered[-1].pages) >= _PORTION_PAGES:
            self._gathered.append(_Portion())
        portion = self._gathered[-1]
        portion.pages += digests
        for digest in digests:
            self._portions[digest] = portion
        self._begin_reader()
        return portion

    def _begin_reader(self) -> None:
        if not self._is_beginning and len(self._readers) < MAX_IN_FLIGHT:
            self._is_beginning = True
            reader = asyncio.get_running_loop().create_task(self._read_gathered())
            self._readers.add(reader)
            reader.add_done_callback(self._end_reader)

    def _end_reader(self, reader: asyncio.Task[None]) -> None:
        self._readers.discard(reader)
        if self._gathered:  # it was cancelled
            self._begin_reader()

    async def _read_gathered(self) -> None:
        """Read portions as long as there are some. What is requested before its first turn is among the first."""
        self._is_beginning = False
        while self._gathered:
            with suppress(Exception):  # each request repeats its part, and gets the error that concerns it
                await self._run(self._take())
            await asyncio.sleep(0)  # so that the requests that were woken can ask for their next pages

    def _take(self) -> list[_Portion]:
        """Take what is gathered, or half of it if the other reader is free: its read then overlaps with this one."""
        count = len(self._gathered)
        if len(self._readers) < MAX_IN_FLIGHT and count > 1:
            count = (count + 1) // 2
            self._begin_reader()
        return [self._gathered.popleft() for _ in range(min(count, _MAX_PORTIONS))]

    async def _run(self, portions: list[_Portion]) -> None:
        """Read portions; however that ends, wake the requests that share them."""
        for portion in portions:
            portion.reader, portion.together = asyncio.current_task(), portions
        digests = [digest for portion in portions for digest in portion.pages]
        found: dict[bytes, bytes | None] | None = None
        outage: str | None = None
        try:
            found = dict(zip(digests, await self._read(digests), strict=True))
        except Unavailable as error:
            outage = error.message
        finally:
            for digest in digests:
                self._portions.pop(digest, None)
            for portion in portions:
                portion.end(found, outage)

    async def _read(self, digests: Sequence[bytes]) -> list[bytes | None]:
        self.reads += 1
        self.pages_read += len(digests)
        return await self._store.get(Table.PAGES, digests)


class GuidedPages:
    """The pages of a store that may keep guides, read on the paths to keys.

    Args:
        store: The store.
        page_reads: The reads of its pages.
    """

    def __init__(self, store: Store, page_reads: PageReads) -> None:
        self._guided = store if isinstance(store, GuidedStore) else None
        self._page_reads = page_reads

    def lookahead(self, operation: Operation, roots: Sequence[bytes]) -> dict[bytes, list[bytes]]:
        """Return what an operation will look for in the trees of roots, if the store can find the pages on the paths.

        Args:
            operation: The operation.
            roots: Binary CIDs of some of the roots for which it waits.

        Returns:
            Keys, or none, by the digests of the top pages.
        """
        keys = dict(operation.lookahead) if self._guided is not None else {}
        return {Cid(root).digest: keys.get(root, []) for root in roots}

    async def read_early(self, lookahead: Mapping[bytes, Sequence[bytes]]) -> dict[bytes, bytes]:
        """Read top pages, and the inner pages on the paths to keys, in one round.

        They may not be needed, so a failure counts only when they are. It is not raised.

        Args:
            lookahead: What `lookahead` has returned.

        Returns:
            The pages found, by digest.
        """
        guided = {digest: keys for digest, keys in lookahead.items() if keys}
        found = await asyncio.gather(
            self._descend(guided), self._read([digest for digest in lookahead if digest not in guided])
        )
        return found[0] | found[1]

    async def _descend(self, keys: Mapping[bytes, Sequence[bytes]]) -> dict[bytes, bytes]:
        if self._guided is None or not keys:
            return {}
        try:
            pages = await self._guided.get_descents(keys)
        except CoregwError:
            return {}
        self._page_reads.pages_read += len(pages)
        return pages

    async def _read(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        try:
            pages = await self._page_reads.get(digests) if digests else []
        except CoregwError:
            return {}
        return {digest: page for digest, page in zip(digests, pages, strict=True) if page is not None}


def put_of_trees(
    pages: Sequence[tuple[bytes, bytes]],
    differences: Sequence[tuple[bytes, bytes]],
    roots: Sequence[bytes],
    requires: Sequence[bytes],
    since: int | None,
    replaces: bytes | None = None,
    *,
    guided: bool,
) -> Put:
    """Return a put of pages, with guides if a store keeps them, and of the records of roots that are complete then."""
    rows: dict[Table, Sequence[tuple[bytes, bytes]]] = {Table.PAGES: pages}
    if roots:
        rows[Table.ROOTS] = [(root, COMPLETE) for root in roots]
    guides = [Guide(*guide) for guide in page_guides(pages)] if guided else ()
    return Put(rows, requires, since, replaces, guides, differences)


async def put_guided(store: Store, put: Put, *, durable: bool) -> int:
    """Put rows as `coregw.store.Store.put`, with guides or differences of the pages if the store keeps them."""
    rows, requires, since, replaces, guides, differences = put
    if replaces is not None and (roots := put.roots):
        states = await store.get(Table.ROOTS, roots)
        if put.renews(states) and None not in await store.renew(Stored.ROOTS, roots):
            return 0  # nothing depends on its time, since nothing was written
    if guides and isinstance(store, GuidedStore):
        return await store.put(rows, durable, requires, since, guides)
    if differences and isinstance(store, DifferenceStore):
        return await store.put(rows, durable, requires, since, differences)
    return await store.put(rows, durable, requires, since)


COMPLETE: Final = b""
"""The value of the row of a root whose tree is stored completely."""

INCOMPLETE: Final = b"incomplete"
"""The value of the row of a root whose tree has lost pages."""

WHOLE: Final = b"whole"
"""The value of the row of a root of which everything is held: all pages, nested roots and theirs, and all payloads."""

CHECKING: Final = b"checking "
"""The start of the value of the row of a root while it is checked; a random number follows. Otherwise as `COMPLETE`."""
