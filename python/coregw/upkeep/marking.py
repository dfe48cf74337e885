"""Marking: the trees of kept roots are walked page by page, and all pages, payloads and nested roots noted.

Memory: the marks are on disk (`coregw.upkeep.marks`). The pages to visit next take at most as much as the links
of `_AT_ONCE` pages for each level of pages, which is a few MiB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from coregw._core import Cid, page_links
from coregw.errors import StoreDamaged
from coregw.store import Store, Table

__all__ = ["Marker", "Marks", "MemoryMarks", "page_mark", "payload_mark", "root_mark"]

_AT_ONCE: Final = 64


class Marks(Protocol):
    """A set of keys. Its methods may block."""

    def add(self, keys: Sequence[bytes]) -> list[bytes]:
        """Add keys, and return those that are new, each once, in their order."""

    def holds(self, keys: Sequence[bytes]) -> list[bool]:
        """Return whether each key was added."""


class MemoryMarks:
    """`Marks` in memory, for stores that are small."""

    def __init__(self) -> None:
        self._keys: set[bytes] = set()

    def add(self, keys: Sequence[bytes]) -> list[bytes]:
        """See `Marks.add`."""
        new = [key for key in dict.fromkeys(keys) if key not in self._keys]
        self._keys.update(new)
        return new

    def holds(self, keys: Sequence[bytes]) -> list[bool]:
        """See `Marks.holds`."""
        return [key in self._keys for key in keys]


def page_mark(digest: bytes) -> bytes:
    """The mark of a page."""
    return b"g" + digest


def root_mark(root: bytes) -> bytes:
    """The mark of a root."""
    return b"r" + root


def payload_mark(multihash: bytes) -> bytes:
    """The mark of a payload."""
    return b"p" + multihash


class Marker:
    """Marks roots and what is reachable from them.

    Args:
        store: The store.
        marks: Where the marks go.
        keep: Keeps roots in the store; returns whether each is held.
        on_pages: Called with the number of pages visited so far.
    """

    def __init__(
        self,
        store: Store,
        marks: Marks,
        keep: Callable[[Sequence[bytes]], Awaitable[list[bool]]],
        on_pages: Callable[[int], None],
    ) -> None:
        self._store = store
        self._marks = marks
        self._keep = keep
        self._on_pages = on_pages
        self._visited = 0

    async def mark(self, roots: Sequence[bytes]) -> None:
        """Keep those of `roots` that are held, and mark their trees with everything that these name.

        O(pages not marked before).

        Raises:
            StoreDamaged: A page is missing or damaged, so what is below it is unknown.
        """
        pages = await self._begin(roots)
        while pages:
            batch = pages[-_AT_ONCE:]
            del pages[-_AT_ONCE:]
            pages += await self._visit(batch)

    async def _begin(self, roots: Sequence[bytes]) -> list[bytes]:
        """Mark roots, and return the digests of the pages to visit."""
        marks = await asyncio.to_thread(self._marks.add, [root_mark(root) for root in roots])
        new = [mark[1:] for mark in marks]
        if not new:
            return []
        held = [root for root, is_held in zip(new, await self._keep(new), strict=True) if is_held]
        return await self._unvisited([Cid(root).digest for root in held])

    async def _unvisited(self, digests: Sequence[bytes]) -> list[bytes]:
        marks = await asyncio.to_thread(self._marks.add, [page_mark(digest) for digest in digests])
        return [mark[1:] for mark in marks]

    async def _visit(self, digests: Sequence[bytes]) -> list[bytes]:
        """Mark what pages name, and return the digests of the pages to visit next."""
        stored = await self._store.get(Table.PAGES, digests)
        pages = [(digest, page) for digest, page in zip(digests, stored, strict=True) if page is not None]
        if len(pages) < len(digests):
            missing = next(digest for digest, page in zip(digests, stored, strict=True) if page is None)
            raise StoreDamaged(f"page {missing.hex()} of a kept root is missing; no garbage was collected")
        found = await asyncio.to_thread(page_links, pages)
        links = [each for each in found if each is not None]
        if len(links) < len(pages):
            damaged = digests[found.index(None)].hex()
            raise StoreDamaged(f"page {damaged} of a kept root is damaged; no garbage was collected")
        self._visited += len(pages)
        self._on_pages(self._visited)
        payloads = [payload_mark(payload) for each in links for payload in each.payloads]
        await asyncio.to_thread(self._marks.add, payloads)
        nested = await self._begin([root for each in links for root in each.roots])
        return nested + await self._unvisited([page for each in links for page in each.pages])
