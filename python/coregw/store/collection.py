"""Garbage collection in a store: which items are stored, which roots expire, and what is removed.

The caller decides what is reachable (``coregw.upkeep.gc``); the store guarantees that nothing is removed that a
concurrent write relies on:

```
begin      pages that are put from now on are remembered, and old roots on which a write relies are noted
keep       roots that are published, pinned or reachable: dated again
expire     in one step: all roots older than the collection's limit are held no longer; or, if there are noted roots,
           nothing happens, and the caller has to keep them and what is reachable from them first
remove     expired roots, then pages and payloads that are not reachable; the store skips what was put or renewed
```

A process may die between any two steps. The limit below which roots are expired is durable, so no root whose nested
roots or pages may be gone is ever held again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, runtime_checkable
from uuid import UUID, uuid4

from coregw.errors import Unavailable
from coregw.store.protocol import Store, Stored

__all__ = ["CollectableStore", "Collection", "Identity", "Item", "RecordedCollection", "Usage", "collect_in_turn"]

_BUSY_SECONDS: Final = 0.25


class Item(NamedTuple):
    """Something stored.

    Attributes:
        key: Digest, binary root CID or multihash.
        size: Bytes of its rows, or of a payload.
        dated: When it was last stored or renewed, in milliseconds of the store's clock; 0 for a page.
    """

    key: bytes
    size: int
    dated: int


class Identity(NamedTuple):
    """Which store it is. A restored or copied store has the same name, and another incarnation.

    Attributes:
        store: The name of the store, which it has for good.
        incarnation: The name of this history of it: each restore and each copy begins another one.
    """

    store: UUID
    incarnation: UUID

    @classmethod
    def new(cls, store: UUID | None = None) -> Self:
        """Return the identity of a new store, or of a new incarnation of one."""
        return cls(store or uuid4(), uuid4())


class Usage(NamedTuple):
    """The space that a store takes, in bytes.

    Attributes:
        files: Of its files on disk, the write-ahead log included; 0 if it has none.
        data: Of tables and memtables: what a quota limits.
    """

    files: int
    data: int


class Collection(Protocol):
    """One garbage collection: ``async with store.collect(grace_seconds) as collection``."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    @property
    def began(self) -> int:
        """When it began, in milliseconds of the store's clock."""

    @property
    def before(self) -> int:
        """The limit: what was dated earlier is old. Milliseconds of the store's clock."""

    async def list_items(self, kind: Stored, after: bytes | None, limit: int) -> list[Item]:
        """List what is stored in byte order of the keys: at most `limit` items with keys greater than `after`.

        Roots that are expired but not removed are included.
        """

    async def keep(self, roots: Sequence[bytes]) -> list[bool]:
        """Date those of `roots` that are held as if they were stored now, durably; whether each is held."""

    async def expire(self) -> list[bytes]:
        """Expire all old roots in one durable step, and return an empty list.

        Otherwise return old roots that a write relied on since this was called last; nothing has expired then. `keep`
        them and all held roots that are reachable from them, and call this again.
        """

    async def remove(self, kind: Stored, keys: Sequence[bytes]) -> list[bool]:
        """Remove items; whether each was removed.

        Skipped are roots that are not expired, pages that were put since the limit (and, by chance, some others), and
        payloads that are not old. Durable with the next durable write, or when the collection ends.
        """

    async def compact(self, kinds: Sequence[Stored], progress: Callable[[float], None]) -> None:
        """Return the space of removed items to the file system. `progress` is called with the fraction done."""


@runtime_checkable
class RecordedCollection(Collection, Protocol):
    """A collection in a store of which a consistent copy can be made while it is written to."""

    def records(self) -> AsyncGenerator[list[tuple[bytes, bytes]]]:
        """Iterate over all rows of `Table.RECORDS` as of one moment, in byte order of the keys, some at a time."""


@runtime_checkable
class CollectableStore(Store, Protocol):
    """A `Store` whose garbage can be collected, by the process that owns it."""

    @property
    def identity(self) -> Identity | None:
        """Which store it is; None for one of an earlier version that could not be written to since."""

    async def identify(self, identity: Identity) -> None:
        """Give the store another identity, durably. Raises `Unavailable` or `StorageFull` if it cannot."""

    def collect(self, grace_seconds: float) -> Collection:
        """Begin a collection when the result is entered, which spares what is younger than `grace_seconds`.

        Entering raises `Unavailable` if another collection is in progress.
        """

    async def usage(self) -> Usage:
        """Return the space that the store takes. Cheap."""


@asynccontextmanager
async def collect_in_turn(
    store: CollectableStore, grace_seconds: float, wait_seconds: float
) -> AsyncIterator[Collection]:
    """Begin a collection when no other one is in progress, such as the short ones in which a check lists payloads.

    Args:
        store: The store.
        grace_seconds: See `CollectableStore.collect`.
        wait_seconds: How long to wait.

    Raises:
        Unavailable: It could not begin for this long.
    """
    until = asyncio.get_running_loop().time() + wait_seconds
    async with AsyncExitStack() as stack:
        collection = None
        while collection is None:
            try:
                collection = await stack.enter_async_context(store.collect(grace_seconds))
            except Unavailable:
                if asyncio.get_running_loop().time() >= until:
                    raise
                await asyncio.sleep(_BUSY_SECONDS)
        yield collection
