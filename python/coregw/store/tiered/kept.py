"""Contents of a tiered store: sizes in the order of use, and the removal of what was used least recently."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple

from coregw.errors import Unavailable
from coregw.failures import RepeatedFailure
from coregw.store import Stored, Table
from coregw.store.collection import CollectableStore, Collection
from coregw.store.tiered.order import UseOrder

__all__ = ["NAME", "PAGE", "PAYLOAD", "ROOT", "ROOT_BYTES", "Kept", "TierFigures"]

_log = logging.getLogger("coregw.store.tiered")

ROOT: Final = b"e"
"""The first byte of the keys of `Table.RECORDS` that say that the upstream holds a root."""

NAME: Final = b"u"
"""The first byte of the keys of `Table.RECORDS` in which an edge keeps what its upstream has said of names."""

PAGE: Final = b"p"
PAYLOAD: Final = b"c"
ROOT_BYTES: Final = 64
"""What the row of a root counts."""

_KEPT_AFTER_EVICTION: Final = 0.9
_ITEMS_AT_ONCE: Final = 1000
_SAVE_SECONDS: Final = 600.0


class TierFigures(NamedTuple):
    """What a tiered store has counted.

    Attributes:
        hits: Pages, roots and payloads that were there.
        misses: Those that were requested of the upstream.
        evicted: Those that were removed for lack of room.
        bytes: What it holds now.
        max_bytes: What it may hold.
        requests: Requests to the upstream.
        received: Bytes of the bodies of its answers.
    """

    hits: int
    misses: int
    evicted: int
    bytes: int
    max_bytes: int
    requests: int
    received: int


class Kept:
    """The objects in a local store, by kind and key. For the tasks of one event loop.

    Args:
        local: The store; it must hold nothing else.
        max_bytes: The bytes of the objects that are kept.
        order: Where the order of use outlives the process, if it does.

    Attributes:
        misses: How many objects were requested of the upstream.
    """

    def __init__(self, local: CollectableStore, max_bytes: int, order: UseOrder | None) -> None:
        self.max_bytes: Final = max_bytes
        self.misses = 0
        self._local = local
        self._order = order
        self._sizes: OrderedDict[bytes, int] = OrderedDict()
        """Sizes by kind and key, the least recently used first."""
        self._total = self._hits = self._evicted = 0
        self._evicting: asyncio.Task[None] | None = None
        self._saving: asyncio.Task[None] | None = None
        self._unremoved = RepeatedFailure(
            _log, "what is not used any more cannot be removed", "what is not used any more is removed again"
        )

    async def load(self) -> None:
        """Take stock of what an earlier process has kept, in the order in which that has used it."""
        sizes: dict[bytes, int] = {}
        async with self._local.collect(0) as collection:
            for kind, stored in ((PAGE, Stored.PAGES), (PAYLOAD, Stored.PAYLOADS)):
                after = None
                while items := await collection.list_items(stored, after, _ITEMS_AT_ONCE):
                    after = items[-1].key
                    sizes |= {kind + item.key: item.size for item in items}
        row = None
        while rows := await self._local.list_rows(Table.RECORDS, ROOT, row, _ITEMS_AT_ONCE):
            row = rows[-1][0]
            sizes |= dict.fromkeys((key for key, _ in rows), ROOT_BYTES)
        names = list(sizes)
        if self._order is not None:
            names = await asyncio.to_thread(self._order.sorted, names)
            self._saving = asyncio.get_running_loop().create_task(self._save_now_and_then(self._order))
        for name in names:
            self.note(name, sizes[name])

    def figures(self, requests: int, received: int) -> TierFigures:
        """Return figures for metrics, given those of the upstream. O(1)."""
        return TierFigures(self._hits, self.misses, self._evicted, self._total, self.max_bytes, requests, received)

    def hit(self, name: bytes, size: int | None) -> None:
        """Note that an object was used, which has this size if it is known."""
        self._hits += 1
        if name in self._sizes:
            self._sizes.move_to_end(name)
        elif size is not None:
            self.note(name, size)

    def note(self, name: bytes, size: int) -> None:
        """Note that an object is kept, and begin to remove others if there are too many."""
        self._total += size - self._sizes.pop(name, 0)
        self._sizes[name] = size
        if self._total > self.max_bytes and (self._evicting is None or self._evicting.done()):
            self._evicting = asyncio.get_running_loop().create_task(self._evict())

    async def close(self) -> None:
        """Cancel what is in progress, and write the order of use. Idempotent."""
        tasks = [task for task in (self._evicting, self._saving) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        if self._saving is not None and self._order is not None:
            self._saving = None
            await asyncio.to_thread(self._order.save, list(self._sizes))

    async def _save_now_and_then(self, order: UseOrder) -> None:
        while True:
            await asyncio.sleep(_SAVE_SECONDS)
            await asyncio.to_thread(order.save, list(self._sizes))

    async def _evict(self) -> None:
        """Remove what was used least recently, until there is room again. What cannot be removed stays on the list."""
        oldest: dict[bytes, int] = {}
        try:
            async with self._local.collect(0) as collection:
                while self._total > self.max_bytes * _KEPT_AFTER_EVICTION and self._sizes:
                    oldest = {}
                    excess = self._total - self.max_bytes * _KEPT_AFTER_EVICTION
                    taken = 0
                    while self._sizes and len(oldest) < _ITEMS_AT_ONCE and taken < excess:
                        name, size = self._sizes.popitem(last=False)
                        self._total -= size
                        taken += size
                        oldest[name] = size
                    removed = await self._remove(collection, oldest)
                    oldest = {}
                    if not removed:
                        break
        except Unavailable as error:
            self._unremoved.occurs(error.message)
            for name, size in oldest.items():
                self.note(name, size)
        else:
            self._unremoved.ends()

    async def _remove(self, collection: Collection, oldest: Mapping[bytes, int]) -> int:
        """Remove objects by kind and key; return how many. Those that the local store does not remove stay."""
        removed = 0
        for kind, stored in ((PAGE, Stored.PAGES), (PAYLOAD, Stored.PAYLOADS)):
            names = [name for name in oldest if name.startswith(kind)]
            for name, is_gone in zip(names, await collection.remove(stored, [name[1:] for name in names]), strict=True):
                removed += is_gone
                if not is_gone:
                    self._sizes[name] = oldest[name]
                    self._total += oldest[name]
        roots = [name for name in oldest if name.startswith(ROOT)]
        await self._local.delete(Table.RECORDS, roots)
        self._evicted += removed + len(roots)
        return removed + len(roots)
