"""Checking that a restored store is whole: it opens, its pages match their digests, and every root has its page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from coregw._core import page_links
from coregw.errors import StoreDamaged
from coregw.store import Table
from coregw.store.rocksdb import RocksStore, open_store
from coregw.upkeep.backup.track import Track

__all__ = ["Checked", "check_store"]

_ROWS: Final = 256
_DIGEST_BYTES: Final = 32


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a store.

    Attributes:
        pages: How many pages match their digests.
        roots: How many roots are held, each with the page of its top node.
    """

    pages: int
    roots: int


def check_store(data: Path, track: Track) -> Checked:
    """Open the store in a data directory, and read all of its pages. O(bytes of pages).

    Raises:
        StoreDamaged: The store does not open, or a page is damaged or missing.
        StorageFull, Unavailable: The store cannot be opened at the moment.
    """
    return asyncio.run(_check(data, track))


async def _check(data: Path, track: Track) -> Checked:
    async with await open_store(data, reserve_bytes=0) as store:
        track.begin("checking pages", None)
        pages = 0
        async for rows in _batches(store, Table.PAGES):
            for (digest, stored), links in zip(rows, page_links(rows), strict=True):
                if links is None:
                    raise StoreDamaged(f"page {digest.hex()} of the store in {data} does not match its digest")
                track.advance(len(stored))
            pages += len(rows)
        roots = 0
        async for rows in _batches(store, Table.ROOTS):
            digests = [root[-_DIGEST_BYTES:] for root, _ in rows]
            for digest, page in zip(digests, await store.get(Table.PAGES, digests), strict=True):
                if page is None:
                    raise StoreDamaged(f"the store in {data} has a root whose page {digest.hex()} is missing")
            roots += len(rows)
        return Checked(pages=pages, roots=roots)


async def _batches(store: RocksStore, table: Table) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """Iterate over all rows of a table, some at a time."""
    for first in range(256):
        after: bytes | None = None
        while rows := await store.list_rows(table, bytes((first,)), after, _ROWS):
            yield rows
            after = rows[-1][0]
