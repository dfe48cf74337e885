"""What kept roots lead to, found by reading all pages in the order of a store, and iterators over all that it holds.

Pages are named by digests, so to follow a tree from page to page is to read a store in random order. Here each page is
read once, in the order of the digests; what it leads to goes into a small table, in which trees are followed:

```
pages of the store          table: digest -> links        marks
00 1a… ──► links ────────►  00 1a… : [9c…, e0…], []       e0… ◄── a kept root
04 77… ──► links ────────►  04 77… : [], [root]           9c…  …
```

Marks of roots and pages are an exact set and not a filter: one false "visited before" would end a descent early, and
everything below would be taken for garbage. Payloads lead to nothing, so a filter of those that are named is enough
(`coregw.upkeep.gc`). The pages to visit next take at most as much as the links of `_PAGES_AT_ONCE` pages for each
level of pages, which is a few MiB.
"""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import compress
from operator import and_
from pathlib import Path
from typing import Final, cast

import msgspec
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteOptions,
)

from coregw._core import Cid, page_links
from coregw.errors import StoreDamaged
from coregw.store import Store, Stored, Table
from coregw.store.collection import Collection, Item
from coregw.store.protocol import DifferenceStore, ListedPage, key_range
from coregw.store.rocksdb.options import translated

__all__ = ["TemporaryTable", "Tracer", "all_items", "all_records", "copied_mark"]

_PAGES_AT_ONCE: Final = 256
_ROWS_AT_ONCE: Final = 500

_PAGE: Final = b"g"
_ROOT: Final = b"r"
_LINKS: Final = b"l"
_BASE: Final = b"b"
_DIFFERENCE: Final = b"d"
_COPIED: Final = b"c"


def copied_mark(digest: bytes) -> bytes:
    """The mark of a page that was copied."""
    return _COPIED + digest


class _Links(msgspec.Struct, array_like=True, gc=False):
    """A row of the table: the size of a page, and the pages and roots that it leads to; None if it is damaged."""

    size: int
    pages: list[bytes] | None
    roots: list[bytes]


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(_Links).decode


class Tracer:
    """Marks roots and what is reachable from them.

    Args:
        store: The store.
        table: Where links and marks go; its methods are called in threads.
        keep: Keeps roots in the store; returns whether each is held.
        report: Called with a step and the number of pages that it has done.

    Attributes:
        page_bytes: The size of all pages that were read.
    """

    def __init__(
        self,
        store: Store,
        table: TemporaryTable,
        keep: Callable[[Sequence[bytes]], Awaitable[list[bool]]],
        report: Callable[[str, int], None],
    ) -> None:
        self._store = store
        self._table = table
        self._keep = keep
        self._report = report
        self._visited = 0
        self._has_differences = False
        self.page_bytes = 0

    async def read_links(self) -> None:
        """Read all pages in their order, so that `mark` reads only those that are stored later."""
        count = 0
        after: bytes | None = None
        while pages := await self._list_pages(after):
            after = pages[-1].digest
            await asyncio.to_thread(self._note, pages)
            count += len(pages)
            self._report("reading pages", count)

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
            self._visited += len(batch)
            self._report("following kept roots", self._visited)

    def are_marked(self, roots: Sequence[bytes]) -> list[bool]:
        """Return whether each root was marked. Blocks."""
        return self._table.holds([_ROOT + root for root in roots])

    async def pages(self) -> AsyncIterator[tuple[list[Item], list[bool]]]:
        """Iterate over the pages that were read, in the order of their digests; whether each was marked."""
        after: bytes | None = None
        while rows := await asyncio.to_thread(self._table.list_rows, _LINKS, after, _ROWS_AT_ONCE):
            after = rows[-1][0]
            items = [Item(key[1:], _decode(value).size, 0) for key, value in rows]
            yield items, await asyncio.to_thread(self._table.holds, [_PAGE + item.key for item in items])

    async def garbage(self, before: int | None, *, keep_bases: bool) -> AsyncIterator[tuple[list[Item], list[bool]]]:
        """Iterate over the pages as `pages`; whether each is garbage: not marked, and no base of one that was.

        Args:
            before: See `DifferenceStore.keep_as_bases`.
            keep_bases: Whether to keep pages that were not marked, but are bases, as these alone.
        """
        async for items, marked in self.pages():
            garbage = [not is_marked for is_marked in marked]
            if self._has_differences and isinstance(self._store, DifferenceStore):
                named = await asyncio.to_thread(self._table.holds, [_BASE + item.key for item in items])
                bases = [item.key for item in compress(items, map(and_, garbage, named))]
                if bases and keep_bases:
                    await self._store.keep_as_bases(bases, before)
                garbage = [is_garbage and not is_base for is_garbage, is_base in zip(garbage, named, strict=True)]
            yield items, garbage

    async def _list_pages(self, after: bytes | None) -> list[ListedPage]:
        if isinstance(self._store, DifferenceStore):
            return await self._store.list_pages(after, _PAGES_AT_ONCE)
        rows = await self._store.list_rows(Table.PAGES, b"", after, _PAGES_AT_ONCE)
        return [ListedPage.whole(*row) for row in rows]

    async def _begin(self, roots: Sequence[bytes]) -> list[bytes]:
        """Mark roots, and return the digests of the pages to visit."""
        new = await self._add(_ROOT, roots)
        if not new:
            return []
        held = [root for root, is_held in zip(new, await self._keep(new), strict=True) if is_held]
        return await self._add(_PAGE, [Cid(root).digest for root in held])

    async def _add(self, prefix: bytes, keys: Sequence[bytes]) -> list[bytes]:
        """Mark keys, and return those that are new."""
        if not keys:
            return []
        return [mark[1:] for mark in await asyncio.to_thread(self._table.add, [prefix + key for key in keys])]

    async def _visit(self, digests: Sequence[bytes]) -> list[bytes]:
        """Return the digests of the pages to visit next."""
        links = await asyncio.to_thread(self._known, digests)
        if late := [digest for digest in digests if digest not in links]:
            links |= await self._read(late)
        if self._has_differences:
            await asyncio.to_thread(self._mark_bases, digests)
        nested = await self._begin([root for each in links.values() for root in each.roots])
        return nested + await self._add(_PAGE, [page for each in links.values() for page in each.pages or ()])

    def _mark_bases(self, digests: Sequence[bytes]) -> None:
        """Mark the bases of pages. Those of pages that were stored since they were listed are young."""
        while digests:
            bases = [base for base in self._table.get([_DIFFERENCE + digest for digest in digests]) if base is not None]
            # One that is stored as a difference as well must not lose its own base.
            digests = [mark[1:] for mark in self._table.add([_BASE + base for base in bases])]

    def _known(self, digests: Sequence[bytes]) -> dict[bytes, _Links]:
        rows = zip(digests, self._table.get([_LINKS + digest for digest in digests]), strict=True)
        links = {digest: _decode(row) for digest, row in rows if row is not None}
        return {digest: each for digest, each in links.items() if each.pages is not None}

    async def _read(self, digests: Sequence[bytes]) -> dict[bytes, _Links]:
        """Read pages that were stored since `read_links` passed their place, or were damaged then."""
        stored = await self._store.get(Table.PAGES, digests)
        pages = [
            ListedPage.whole(digest, page) for digest, page in zip(digests, stored, strict=True) if page is not None
        ]
        if len(pages) < len(digests):
            missing = next(digest for digest, page in zip(digests, stored, strict=True) if page is None)
            raise StoreDamaged(f"page {missing.hex()} of a kept root is missing; no garbage was collected")
        links = await asyncio.to_thread(self._note, pages)
        for digest, each in links.items():
            if each.pages is None:
                raise StoreDamaged(f"page {digest.hex()} of a kept root is damaged; no garbage was collected")
        return links

    def _note(self, pages: Sequence[ListedPage]) -> dict[bytes, _Links]:
        """Note what pages lead to, and their bases."""
        noted: dict[bytes, _Links] = {}
        found = page_links([(each.digest, each.page) for each in pages], payloads=False)
        for (digest, _, size, _), links in zip(pages, found, strict=True):
            self.page_bytes += size
            noted[digest] = (
                _Links(size, None, []) if links is None else _Links(size, links.pages, list(dict.fromkeys(links.roots)))
            )
        bases = [(_DIFFERENCE + each.digest, each.base) for each in pages if each.base is not None]
        self._has_differences = self._has_differences or bool(bases)
        self._table.put([*((_LINKS + digest, _encode(links)) for digest, links in noted.items()), *bases])
        return noted


_CACHE_BYTES: Final = 8 << 20

_BUFFER_BYTES: Final = 8 << 20


class TemporaryTable:
    """Rows, or a set of keys, in a directory of its own, which is deleted before and after. Some 32 MiB of memory.

    Every call blocks. Nothing is synced, as nobody reads the table after a crash.

    Args:
        path: The directory.

    Raises:
        StorageFull, Unavailable: It cannot be created. So do the methods if they cannot write.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.RLock()
        """A caller that was cancelled may still be using the table in a thread when it is closed."""
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
        """Delete the table."""
        with self._lock:
            self._database.close()
            shutil.rmtree(self._path, ignore_errors=True)

    def add(self, keys: Sequence[bytes]) -> list[bytes]:
        """Put keys without a value, and return those that are new, each once, in their order."""
        distinct = list(dict.fromkeys(keys))
        with self._lock:
            new = [key for key, is_held in zip(distinct, self.holds(distinct), strict=True) if not is_held]
            if new:
                self.put([(key, b"") for key in new])
        return new

    def holds(self, keys: Sequence[bytes]) -> list[bool]:
        """Return whether each key was put."""
        return [value is not None for value in self.get(keys)]

    def put(self, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Put rows."""
        batch = WriteBatch(raw_mode=True)
        for key, value in rows:
            batch.put(key, value)
        with self._lock, translated(self._path):
            self._database.write(batch, self._options)

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None if it was not put."""
        if not keys:
            return []
        with self._lock, translated(self._path):
            return cast("list[bytes | None]", self._database.get(list(keys)))

    def list_rows(self, prefix: bytes, after: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
        """Return the first `limit` rows whose keys begin with a prefix and are greater than `after`, in their order."""
        start, end = key_range(prefix, after)
        options = ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        found: list[tuple[bytes, bytes]] = []
        with self._lock, translated(self._path):
            rows = self._database.iter(options)
            rows.seek(start)
            while len(found) < limit and rows.valid():
                found.append((rows.key(), rows.value()))
                rows.next()
            rows.status()
        return found


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
