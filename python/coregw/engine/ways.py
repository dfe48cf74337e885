"""Pages that are read before an operation asks for them, on its way to a key, and what stores need to know for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coregw._core import page_guides
from coregw.engine.pages import PageReads
from coregw.errors import CoregwError
from coregw.store import Store, Table
from coregw.store.guides import Guide, GuidedStore

__all__ = ["Ways"]


class Ways:
    """The ways to keys in one store. Takes the store, and the reads of its pages."""

    def __init__(self, store: Store, page_reads: PageReads) -> None:
        self._store = store
        self._guided = store if isinstance(store, GuidedStore) else None
        self._page_reads = page_reads

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool,
        requires: Sequence[bytes],
        since: int | None,
    ) -> int:
        """Put rows as `coregw.store.Store.put`, with guides of the pages if the store keeps them."""
        if self._guided is None or not (guides := page_guides(rows.get(Table.PAGES, ()))):
            return await self._store.put(rows, durable, requires, since)
        return await self._guided.put(rows, durable, requires, since, [Guide(*guide) for guide in guides])

    async def read_early(self, digests: Sequence[bytes], key: bytes | None) -> dict[bytes, bytes]:
        """Read pages that may not be needed, and in one round those on the way to a key, if the store can tell.

        A failure counts only when they are needed, so it is not raised.

        Args:
            digests: The digests of top pages.
            key: What is looked for below the only one of them, or None.

        Returns:
            What was found, by digest.
        """
        try:
            if self._guided is not None and key is not None:
                way = await self._guided.get_way(digests[0], key)
                self._page_reads.pages_read += len(way)
                return way
            pages = await self._page_reads.get(digests)
        except CoregwError:
            return {}
        return {digest: page for digest, page in zip(digests, pages, strict=True) if page is not None}
