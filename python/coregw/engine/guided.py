"""Pages that are read before an operation asks for them, and the guides that stores keep for that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from coregw._core import Cid, Operation, page_guides
from coregw.engine.pages import PageReads
from coregw.errors import CoregwError
from coregw.store import Store, Table
from coregw.store.guides import Guide, GuidedStore

__all__ = ["GuidedPages"]


class GuidedPages:
    """The pages of a store that may keep guides: put with their guides, and read on the paths to keys.

    Args:
        store: The store.
        page_reads: The reads of its pages.
    """

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
