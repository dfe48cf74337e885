"""Marking what is reachable, in memory or in a file, and iterators over all that a store holds.

Marks are on disk, in a set and not in a filter: one false "visited before" would end a descent early, and everything
below would be taken for garbage. The pages to visit next take at most as much as the links
of `_PAGES_AT_ONCE` pages for each level of pages, which is a few MiB.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, Protocol, cast

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options, Rdict, WriteBatch, WriteOptions

from coregw._core import Cid, page_links
from coregw.errors import StoreDamaged
from coregw.store import Store, Stored, Table
from coregw.store.collection import Collection, Item
from coregw.store.rocksdb.options import translated

__all__ = [
    "MarkSet",
    "Marks",
    "MemoryMarks",
    "Tracer",
    "all_items",
    "all_records",
    "page_mark",
    "payload_mark",
    "root_mark",
]

_PAGES_AT_ONCE: Final = 64


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


class Tracer:
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
            batch = pages[-_PAGES_AT_ONCE:]
            del pages[-_PAGES_AT_ONCE:]
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


_CACHE_BYTES: Final = 8 << 20

_BUFFER_BYTES: Final = 8 << 20


class MarkSet:
    """A set of byte strings in a directory of its own, which is deleted before and after. Takes some 32 MiB of memory.

    Every call blocks. Nothing is synced, as nobody reads the set after a crash.

    Args:
        path: The directory.

    Raises:
        StorageFull, Unavailable: It cannot be created. So do the methods if they cannot write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        """A caller that was cancelled may still be using the set in a thread when it is closed."""
        shutil.rmtree(path, ignore_errors=True)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(_BUFFER_BYTES)
        options.set_max_write_buffer_number(2)
        options.set_compression_type(DBCompressionType.none())
        table = BlockBasedOptions()
        table.set_block_cache(Cache(_CACHE_BYTES))
        table.set_bloom_filter(10, block_based=False)
        table.set_cache_index_and_filter_blocks(True)
        options.set_block_based_table_factory(table)
        self._options = WriteOptions()
        self._options.disable_wal = True  # type: ignore[method-assign, assignment]
        with translated(path):
            path.mkdir(mode=0o700, parents=True)
            self._database = Rdict(str(path / "marks"), options)

    def close(self) -> None:
        """Delete the set."""
        with self._lock:
            self._database.close()
            shutil.rmtree(self._path, ignore_errors=True)

    def add(self, keys: Sequence[bytes]) -> list[bytes]:
        """Add keys, and return those that are new, each once, in their order."""
        distinct = list(dict.fromkeys(keys))
        with self._lock:
            new = [key for key, is_held in zip(distinct, self.holds(distinct), strict=True) if not is_held]
            if new:
                batch = WriteBatch(raw_mode=True)
                for key in new:
                    batch.put(key, b"")
                with translated(self._path):
                    self._database.write(batch, self._options)
        return new

    def holds(self, keys: Sequence[bytes]) -> list[bool]:
        """Return whether each key was added."""
        if not keys:
            return []
        with self._lock, translated(self._path):
            found = cast("list[bytes | None]", self._database.get(list(keys)))
        return [value is not None for value in found]


_ROWS_AT_ONCE: Final = 500


async def all_items(collection: Collection, kind: Stored) -> AsyncIterator[list[Item]]:
    """Iterate over all items of a kind in the order of their keys, at most 500 at a time."""
    after: bytes | None = None
    while items := await collection.list_items(kind, after, _ROWS_AT_ONCE):
        yield items
        after = items[-1].key


async def all_records(store: Store) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """Iterate over all rows of `Table.RECORDS` in the order of their keys, at most 500 at a time."""
    after: bytes | None = None
    while rows := await store.list_rows(Table.RECORDS, b"", after, _ROWS_AT_ONCE):
        yield rows
        after = rows[-1][0]
