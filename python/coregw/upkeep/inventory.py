"""What a store of any kind holds, as a check reads it in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from coregw._core import PayloadCheck
from coregw.concurrency import in_thread
from coregw.errors import InvalidInput, PayloadNotFound, StoreDamaged
from coregw.store import CHUNK_BYTES, MAX_PAYLOADS_BYTES, Stored, Table
from coregw.store.collection import CollectableStore, Item, collect_in_turn
from coregw.store.protocol import Guide, GuidedStore, raw_cid
from coregw.upkeep.published import CheckedRow

__all__ = ["CheckedPayload", "Inventory", "RateLimiter", "StoreInventory", "StoredPage", "check_of"]

T = TypeVar("T")

_LISTED_AT_ONCE: Final = 256
_GUIDES_AT_ONCE: Final = 64
_ITEMS_AT_ONCE: Final = 10_000
_WAIT_SECONDS: Final = 600.0


def check_of(multihash: bytes) -> PayloadCheck:
    """Return the check of a payload that comes in chunks, by the multihash that names it in a store.

    Raises:
        InvalidInput: It is not a multihash of protocol section 1, or contains the payload itself.
    """
    cid = raw_cid(multihash)
    if cid.hash_name == "identity":
        raise InvalidInput(f"{cid.text} contains its payload")
    return PayloadCheck(cid)


class StoredPage(NamedTuple):
    """A page as it is stored.

    Attributes:
        digest: What names it.
        page: Its bytes, which may not match the digest.
        is_intact: Whether the store can read it. If not, only a repair can, and the digest may be wrong as well.
        difference: What the page was made of, if it is stored as a difference to another one.
    """

    digest: bytes
    page: bytes
    is_intact: bool = True
    difference: bytes | None = None


class CheckedPayload(NamedTuple):
    """A payload that was checked.

    Attributes:
        multihash: The binary multihash.
        what: What is wrong with its bytes; None if they match the multihash.
        is_intact: Whether the store can read it. If not, only a repair can.
    """

    multihash: bytes
    what: str | None
    is_intact: bool = True


class Inventory(Protocol):
    """What a store holds, as a check in a thread reads it."""

    size_bytes: int
    """The size of what was read, or of what is read in all."""
    is_live: bool
    """Whether rows may come and go meanwhile, so that what seems wrong is read again."""
    is_guided: bool
    """Whether the store keeps guides (`coregw.store.protocol`)."""

    def rows(self, table: Table, prefix: bytes = b"") -> Iterator[CheckedRow]:
        """Iterate over the rows of a table whose keys begin with a prefix, in key order; of roots, those held."""

    def pages(self) -> Iterator[StoredPage]:
        """Iterate over the pages, in the order of their digests (of damaged parts, nearly in order)."""

    def payload_names(self) -> Iterator[bytes]:
        """Iterate over the multihashes of all payloads."""

    def payloads(self) -> Iterator[CheckedPayload]:
        """Iterate over all payloads, each compared with its multihash. O(bytes) hashing."""

    def get_pages(self, digests: Sequence[bytes]) -> list[bytes | None]:
        """Read pages; None for an absent one."""

    def guides(self) -> Iterator[list[Guide]]:
        """Iterate over the guides."""


class StoreInventory:
    """`Inventory` by the calls of a store, for a check in a thread beside the event loop of the store.

    Args:
        store: The store.
        on_read: Called with the number of bytes of each read, after it; may wait, to limit the rate.
        loop: The event loop of the store; the running one by default.
    """

    def __init__(
        self,
        store: CollectableStore,
        on_read: Callable[[int], None] = lambda size: None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.store = store
        self.size_bytes = 0
        self.is_live = True
        self.is_guided = isinstance(store, GuidedStore)
        self._names: list[bytes] = []
        self._on_read = on_read
        self._loop = loop or asyncio.get_running_loop()
        self._ended = threading.Event()

    async def in_thread(self, work: Callable[[], T]) -> T:
        """Run work that calls this, in a thread; cancelling this ends it at its next call."""
        return await in_thread(work, stop=self._ended.set)

    def call(self, call: Coroutine[Any, Any, T], size: Callable[[T], int] = lambda _: 0) -> T:
        """Return the result of a call of the store; `size` tells its bytes."""
        if self._ended.is_set():
            call.close()
            raise CancelledError
        result = asyncio.run_coroutine_threadsafe(call, self._loop).result()
        self.size_bytes += size(result)
        self._on_read(size(result))
        return result

    def rows(self, table: Table, prefix: bytes = b"") -> Iterator[CheckedRow]:
        """See `Inventory.rows`."""
        return self._listed(table, prefix)

    def pages(self) -> Iterator[StoredPage]:
        """See `Inventory.pages`."""
        return (StoredPage(digest, page) for digest, page in self._listed(Table.PAGES, b""))

    def get_pages(self, digests: Sequence[bytes]) -> list[bytes | None]:
        """See `Inventory.get_pages`."""
        found: list[bytes | None] = []
        for start in range(0, len(digests), _LISTED_AT_ONCE):
            found += self.call(self.store.get(Table.PAGES, digests[start : start + _LISTED_AT_ONCE]))
        return found

    def _listed(self, table: Table, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        after: bytes | None = None
        while rows := self.call(
            self.store.list_rows(table, prefix, after, _LISTED_AT_ONCE),
            lambda rows: sum(len(key) + len(value) for key, value in rows),
        ):
            after = rows[-1][0]
            yield from rows

    def payload_names(self) -> Iterator[bytes]:
        """See `Inventory.payload_names`; those of one moment, however often this is called."""
        if not self._names:
            self._names = [item.key for items in self._payload_items() for item in items]
        return iter(self._names)

    def payloads(self) -> Iterator[CheckedPayload]:
        """See `Inventory.payloads`."""
        self._names = []
        for items in self._payload_items():
            self._names += [item.key for item in items]
            batch: list[Item] = []
            size = 0
            for item in items:
                if item.size > CHUNK_BYTES:
                    yield from self._checked([item])
                    continue
                if size + item.size > MAX_PAYLOADS_BYTES:
                    yield from self._checked(batch)
                    batch, size = [], 0
                batch.append(item)
                size += item.size
            yield from self._checked(batch)

    def _payload_items(self) -> Iterator[list[Item]]:
        """Iterate over the payloads. Waits while garbage is collected."""
        after: bytes | None = None
        while items := self.call(self._list_payloads(after)):
            after = items[-1].key
            yield items

    async def _list_payloads(self, after: bytes | None) -> list[Item]:
        async with collect_in_turn(self.store, 0.0, _WAIT_SECONDS) as listing:
            return await listing.list_items(Stored.PAYLOADS, after, _ITEMS_AT_ONCE)

    def _checked(self, items: Sequence[Item]) -> Iterator[CheckedPayload]:
        """Check payloads that are read in one batch, or one that is longer than a chunk; without those removed."""
        if len(items) > 1:
            try:
                found = self.call(
                    self.store.get_payloads([item.key for item in items]),
                    lambda found: sum(len(data) for data in found if data is not None),
                )
            except StoreDamaged:
                for item in items:
                    yield from self._checked([item])
                return
            for item, data in zip(items, found, strict=True):
                if data is not None:
                    yield _compared(item.key, [data])
            return
        for item in items:
            try:
                yield _compared(item.key, self._pieces(item.key))
            except StoreDamaged as error:
                yield CheckedPayload(item.key, error.message)
            except PayloadNotFound:  # removed meanwhile
                continue

    def _pieces(self, multihash: bytes) -> Iterator[bytes]:
        pieces = self.store.read_payload(multihash)
        while (piece := self.call(_next(pieces), len)) != b"":
            yield piece

    def guides(self) -> Iterator[list[Guide]]:
        """See `Inventory.guides`."""
        after: bytes | None = None
        while isinstance(self.store, GuidedStore) and (
            guides := self.call(
                self.store.list_guides(after, _GUIDES_AT_ONCE), lambda guides: sum(guide.size for guide in guides)
            )
        ):
            after = guides[-1].page
            yield guides


async def _next(pieces: Any) -> bytes:  # noqa: ANN401 - an asynchronous iterator
    """The next piece of a payload; empty at its end, as no piece is."""
    return await anext(pieces, b"")


def _compared(multihash: bytes, pieces: Iterable[bytes]) -> CheckedPayload:
    try:
        check = check_of(multihash)
    except InvalidInput:
        return CheckedPayload(multihash, "the row has no valid multihash")
    for piece in pieces:
        check.update(piece)
    return CheckedPayload(multihash, None if check.matches() else "its bytes do not match the multihash")


class RateLimiter:
    """Called with the bytes of each read, waits so that no more than a number of bytes is read per second.

    Args:
        bytes_per_second: The bound, at least 1. A single larger read takes as long as its bytes do.
    """

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at = 0.0

    def __call__(self, size: int) -> None:
        """Wait until `size` more bytes may be read. Blocks."""
        now = time.monotonic()
        if self._free_at > now:
            time.sleep(self._free_at - now)
        self._free_at = max(now, self._free_at) + size / self._rate
