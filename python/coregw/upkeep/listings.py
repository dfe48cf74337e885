"""Iterators over everything that a store holds."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from coregw.store import Store, Stored, Table
from coregw.store.collection import Collection, Item

__all__ = ["all_items", "all_records"]

_AT_ONCE: Final = 500


async def all_items(collection: Collection, kind: Stored) -> AsyncIterator[list[Item]]:
    """Iterate over all items of a kind in the order of their keys, at most 500 at a time."""
    after: bytes | None = None
    while items := await collection.list_items(kind, after, _AT_ONCE):
        yield items
        after = items[-1].key


async def all_records(store: Store) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """Iterate over all rows of `Table.RECORDS` in the order of their keys, at most 500 at a time."""
    for first in range(256):
        after: bytes | None = None
        while rows := await store.list_rows(Table.RECORDS, bytes([first]), after, _AT_ONCE):
            yield rows
            after = rows[-1][0]
