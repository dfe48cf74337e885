"""Copies of payloads and trees from one store to another, each checked against its digests before it is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Final

from coregw._core import Cid, page_links
from coregw.engine.guided import GuidedPages
from coregw.engine.pages import PageReads
from coregw.engine.roots import COMPLETE
from coregw.errors import PayloadNotFound, StoreDamaged
from coregw.messages.progress import Progress, ProgressCallback
from coregw.store import CHUNK_BYTES, MAX_PAYLOADS_BYTES, MAX_PUT_BYTES, Store, Table
from coregw.store.collection import Item
from coregw.upkeep.integrity.payloads import hasher_of
from coregw.upkeep.marking import Marks

__all__ = ["Held", "Transfer"]

_PAGES_AT_ONCE: Final = 64
_MAX_NAMED: Final = 100


class Held(Enum):
    """What a page that the destination holds already saves."""

    NOTHING = "nothing"
    """It is copied again: asking a destination that is far away costs as much."""
    PAGES = "pages"
    """It is not copied, but what is below it is visited."""
    TREES = "trees"
    """Whatever is below it is held, too."""


class Transfer:
    """Copies payloads and trees. What is damaged at the source is noted and left out.

    Args:
        source: Where from. No garbage of it is collected meanwhile.
        destination: Where to.
        marks: The digests of the pages that were visited.
        report: Called often, with how far it is.
        held: What pages save that the destination holds.
    """

    def __init__(
        self, source: Store, destination: Store, marks: Marks, report: ProgressCallback, held: Held = Held.NOTHING
    ) -> None:
        self._source = source
        self._destination = destination
        self._guided = GuidedPages(destination, PageReads(destination))
        self._marks = marks
        self._report = report
        self.held = held
        self._since: int | None = None
        """When the first page was put: the destination refuses roots if it has collected garbage since then."""
        self._seen: set[bytes] | None = None
        """The pages of the current root, once a tree was damaged: then some that are marked were not copied."""
        self.pages = self.payloads = self.payload_bytes = 0
        self.damaged: list[str] = []
        """The first 100 of what is damaged."""
        self.damaged_count = 0

    def note_damage(self, what: str) -> None:
        """Note what is damaged at the source."""
        self.damaged_count += 1
        if len(self.damaged) < _MAX_NAMED:
            self.damaged.append(what)

    def tell(self, step: str, done: int, unit: str) -> None:
        """Report how far a step is."""
        self._report(Progress(step=step, done=done, unit=unit))

    # --- payloads -----------------------------------------------------------------------------------------------------

    async def copy_payloads(self, items: Sequence[Item]) -> None:
        """Copy payloads that the destination does not hold."""
        batch: list[Item] = []
        size = 0
        for item in items:
            if item.size > CHUNK_BYTES:
                await self._copy_long(item)
                continue
            if batch and size + item.size > MAX_PAYLOADS_BYTES:
                await self._copy_short(batch)
                batch, size = [], 0
            batch.append(item)
            size += item.size
        if batch:
            await self._copy_short(batch)

    async def _copy_short(self, items: Sequence[Item]) -> None:
        """Copy payloads of at most a chunk each, in one step."""
        try:
            found = await self._source.get_payloads([item.key for item in items])
        except StoreDamaged:  # one by one, to copy those that are not damaged
            for item in items:
                await self._copy_long(item)
            return
        pairs = [(item.key, data) for item, data in zip(items, found, strict=True) if data is not None]
        sound = await asyncio.to_thread(lambda: [pair for pair in pairs if _matches(*pair)])
        names = {key for key, _ in sound}
        for key, _ in pairs:
            if key not in names:
                self.note_damage(f"payload {key.hex()} does not match its multihash")
        await self._destination.put_payloads(sound)
        self._count_payloads(sum(len(data) for _, data in sound), len(sound))

    async def _copy_long(self, item: Item) -> None:
        """Copy a payload by an upload; it is committed only if it matches its multihash."""
        hasher = hasher_of(item.key)
        try:
            async with self._destination.begin_payload() as writer:
                async for chunk in self._source.read_payload(item.key):
                    if hasher is not None:
                        await asyncio.to_thread(hasher.update, chunk)
                    await writer.write(chunk)
                if hasher is None or not hasher.matches():
                    self.note_damage(f"payload {item.key.hex()} does not match its multihash")
                    return
                await writer.commit(item.key)
        except (StoreDamaged, PayloadNotFound) as error:
            self.note_damage(error.message)
        else:
            self._count_payloads(item.size, 1)

    def _count_payloads(self, size: int, count: int) -> None:
        self.payloads += count
        self.payload_bytes += size

    # --- trees --------------------------------------------------------------------------------------------------------

    async def put_root(self, root: bytes) -> None:
        """Record a root of which all pages were copied."""
        await self._destination.put({Table.ROOTS: [(root, COMPLETE)]}, True, (), self._since)

    async def copy_tree(self, root: bytes) -> bool:
        """Copy the pages of a root that were not copied yet; whether all are sound."""
        if self._seen is not None:
            self._seen = set()
        pages = await self._unvisited([Cid(root).digest])
        while pages:
            batch = pages[-_PAGES_AT_ONCE:]
            del pages[-_PAGES_AT_ONCE:]
            known = await self._known(batch)
            if self.held is Held.TREES:
                batch = [digest for digest in batch if digest not in known]
                known = {}
            asked = [digest for digest in batch if digest not in known]
            stored = await self._source.get(Table.PAGES, asked) if asked else []
            found = {digest: page for digest, page in zip(asked, stored, strict=True) if page is not None}
            pairs = [*known.items(), *found.items()]
            links = await asyncio.to_thread(page_links, pairs)
            if len(pairs) < len(batch) or None in links:
                bad = set(batch) - {pair[0] for pair, link in zip(pairs, links, strict=True) if link is not None}
                for digest in sorted(bad):
                    self.note_damage(f"page {digest.hex()} of the root {Cid(root).text} is missing or damaged")
                self._seen = set()
                if self.held is Held.TREES:  # what was copied of this tree is not all of it
                    self.held = Held.PAGES
                return False
            await self._put_pages(list(found.items()))
            pages += await self._unvisited([page for link in links if link is not None for page in link.pages])
        return True

    async def _known(self, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        """The pages that the destination holds, if they save anything."""
        if self.held is Held.NOTHING or not digests:
            return {}
        stored = await self._destination.get(Table.PAGES, digests)
        return {digest: page for digest, page in zip(digests, stored, strict=True) if page is not None}

    async def _put_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> None:
        batch: list[tuple[bytes, bytes]] = []
        for number, page in enumerate(pages, 1):
            batch.append(page)
            if number == len(pages) or sum(len(each) for _, each in batch) >= MAX_PUT_BYTES // 2:
                now = await self._guided.put({Table.PAGES: batch}, False, (), self._since)
                self._since = self._since or now
                batch = []
        self.pages += len(pages)
        self.tell("copying pages", self.pages, "pages")

    async def _unvisited(self, digests: Sequence[bytes]) -> list[bytes]:
        if self._seen is not None:
            new = [digest for digest in dict.fromkeys(digests) if digest not in self._seen]
            self._seen.update(new)
            return new
        return await asyncio.to_thread(self._marks.add, digests)


def _matches(multihash: bytes, data: bytes) -> bool:
    hasher = hasher_of(multihash)
    if hasher is None:
        return False
    hasher.update(data)
    return hasher.matches()
