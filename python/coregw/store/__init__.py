"""What the gateway asks of a store: the `Store` protocol and its value types.

A store keeps five things: pages of trees, payloads, root records, published records, the plants of the plant store, and
nothing else. Pages, payloads and root records are immutable and content-addressed; a plant is kept once, under its id;
only published records change, by compare-and-set. A store never computes or checks a digest: pages are checked by the
core when they are loaded, payloads by the client.

This module leaves out every implementation: `coregw.store.memory` (for tests and short-lived gateways),
`coregw.store.rocksdb` (the default), and `coregw.store.remote` (one that another process has open). One contract suite,
``tests/store``, holds them to what is written here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, Protocol, Self

import msgspec

__all__ = ["CHUNK_BYTES", "PayloadWriter", "Record", "Store"]

CHUNK_BYTES: Final = 1 << 20
"""The most bytes of a payload that `Store.read_payload` yields at once, and the size in which stores keep them."""


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A published root (protocol section 5, *published record*), as one revision of it was.

    Attributes:
        scope: The scope, ``[A-Za-z0-9._-]{1,128}``.
        name: The name in that scope, of the same form.
        root: The binary root CID that is published.
        revision: Counts the publications of this name from 1, also when the same root is published again.
        previous_root: The binary root CID of the revision before, or None for revision 1.
        published_at: When this revision was published; aware, in UTC.
        frozen: Whether the name was frozen while this revision was its newest.
        frozen_at: When that was, or None.
    """

    scope: str
    name: str
    root: bytes
    revision: int
    previous_root: bytes | None
    published_at: datetime
    frozen: bool = False
    frozen_at: datetime | None = None


class PayloadWriter(Protocol):
    """One upload: ``async with store.begin_payload() as writer``.

    Leaving the block without a `commit` that was asked for aborts the upload: what was written of it is deleted, at the
    latest when the store is opened next. A writer is for one task at a time.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def write(self, chunk: bytes) -> None:
        """Appends bytes, in pieces of any size. Holds back at most 2 `CHUNK_BYTES` (and `chunk` itself) in memory.

        Raises:
            StorageFull: There is no room; nothing of the payload will be stored.
            Unavailable: The store cannot write now, or is closed.
        """

    async def commit(self, multihash: bytes) -> bool:
        """Makes what was written the payload of `multihash`, durably, and ends the upload.

        Many commits under way at once share one sync.

        Args:
            multihash: The binary multihash of the bytes written. The store believes it.

        Returns:
            True if the payload is newly stored, False if it was already there (then this copy is dropped). Of several
            uploads of the same bytes at once, exactly one gets True. Either way the payload is durable on return.

        Raises:
            StorageFull: There is no room; nothing of the payload is stored.
            Unavailable: The store cannot write now, or is closed.
        """


class Store(Protocol):
    """Where a gateway keeps its data. Every method may be called from any number of tasks at once.

    A row is visible to others no earlier than it is durable: what `has_roots`, `has_payloads`, `stat_payload`,
    `read_payload`, the record and the plant methods tell survives a power cut. Only `get_pages` may show what is not
    durable yet.

    Any method raises `Unavailable` when the store is closed or does not answer, `StorageFull` (a kind of it) when it
    has no room for what is to be written, and `StoreDamaged` when stored bytes are corrupt or missing.
    """

    async def get_pages(self, digests: Sequence[bytes]) -> list[bytes | None]:
        """Reads pages in one batch, O(n) look-ups.

        Args:
            digests: The digest (32 bytes) of the top node of each page.

        Returns:
            The pages in the same order, None for one that is not there. A page may be readable before the root record
            that makes it part of a root is written.
        """

    async def put_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> None:
        """Writes (digest, page) pairs; not durable before the next `put_roots` returns. Safe to repeat.

        Args:
            pages: At most 1 MiB in all.
        """

    async def has_roots(self, roots: Sequence[bytes]) -> list[bool]:
        """Whether the store has a record of each root: whether it is *held* (protocol section 5, *resolve*).

        Args:
            roots: Binary root CIDs.
        """

    async def put_roots(self, roots: Sequence[bytes], pages: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Writes root records. On return they, `pages` and every page put before are durable. Safe to repeat.

        A crash or power cut never leaves a root record without the pages that were put before it, nor with a part of
        `roots` and `pages`. With all its pages in `pages` a new root costs one sync; pages put before cost one more.

        Args:
            roots: Binary root CIDs.
            pages: The last (digest, page) pairs of these roots, at most 1 MiB in all; as `put_pages` takes them.
        """

    def begin_payload(self) -> PayloadWriter:
        """Starts an upload; nothing is stored before its first `PayloadWriter.write`."""

    async def put_payload(self, multihash: bytes, data: bytes) -> bool:
        """Stores a payload that is at hand, at less expense than `begin_payload`, one write and a commit.

        Args:
            multihash: The binary multihash of `data`. The store believes it.
            data: The payload, at most `CHUNK_BYTES`.

        Returns:
            As `PayloadWriter.commit`.

        Raises:
            InvalidInput: `data` is longer.
            StorageFull, Unavailable: As `PayloadWriter.commit`.
        """

    async def stat_payload(self, multihash: bytes) -> int | None:
        """The size in bytes of the payload with this binary multihash, or None if it is not there."""

    async def has_payloads(self, multihashes: Sequence[bytes]) -> list[bool]:
        """Whether the payload of each binary multihash is there, in the same order; one batched read."""

    def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes `start` to `end` (exclusive) of a payload, in non-empty chunks of at most `CHUNK_BYTES`.

        Reads what is consumed and no more. A `start` or `end` past the end of the payload is cut to it; no `end` means
        the payload's end. The errors come with the first chunk asked for, not with the call.

        Raises:
            PayloadNotFound: No payload has this multihash.
            InvalidInput: `start` is negative or `end` is before it.
            StoreDamaged: A part of the payload is missing or has the wrong size.
        """

    async def get_record(self, scope: str, name: str) -> Record | None:
        """The newest revision of a published record, or None if the name was never published.

        Raises:
            InvalidInput: `scope` or `name` is not of the form that protocol section 5 allows (all record methods).
        """

    async def publish(self, scope: str, name: str, root: bytes, expected_revision: int | None, now: datetime) -> Record:
        """Publishes a root under a name as the next revision, durably; compare-and-set.

        Args:
            scope: The scope.
            name: The name in it.
            root: The binary root CID. The store does not ask whether it holds that root.
            expected_revision: What the newest revision must be for this to happen: 0 if the name must be new, None if
                any will do.
            now: The time to record; aware.

        Returns:
            The new record. Of several publications at once each gets a revision of its own.

        Raises:
            Conflict: The record is frozen (code ``record_frozen``), else its revision is another (code
                ``revision_mismatch``). ``details`` is JSON ``{"revision": <the newest>}``.
            InvalidInput: `now` is naive, or `expected_revision` is negative.
        """

    async def freeze(self, scope: str, name: str, now: datetime) -> Record:
        """Freezes a record for good, durably: nothing is published under its name any more. Idempotent.

        Returns:
            The frozen record; when it was frozen before, as it was then.

        Raises:
            RecordNotFound: The name was never published.
            InvalidInput: `now` is naive.
        """

    async def list_records(self, scope: str, after: str | None, limit: int) -> list[Record]:
        """The newest revisions of a scope's records whose names come after `after`, in the byte order of names.

        Args:
            scope: The scope; an unknown one is empty.
            after: Start behind this name, which need not exist; None starts at the first.
            limit: The most records to return, at least 1. To learn whether more follow, ask for one more.
        """

    async def history(self, scope: str, name: str, after: int, limit: int) -> list[Record]:
        """The revisions of one record that are greater than `after`, oldest first.

        Args:
            scope: The scope.
            name: The name in it.
            after: Start behind this revision; 0 starts at the first.
            limit: The most records to return, at least 1.

        Raises:
            RecordNotFound: The name was never published.
        """

    async def put_plant(self, plant_id: int, plant: bytes) -> bool:
        """Keeps a plant under its id, durably, unless the id is taken; O(size).

        Args:
            plant_id: An int64, negative ones included.
            plant: What to keep, of a few KiB; the store does not look into it.

        Returns:
            True if this plant is kept, False if the id was taken: then nothing changed, and the plant that has it is
            durable. Of several plants with one id at once, exactly one gets True.

        Raises:
            InvalidInput: `plant_id` is no int64 (both plant methods).
        """

    async def get_plant(self, plant_id: int) -> bytes | None:
        """The plant with this id as it was put, or None if there is none."""

    async def healthy(self) -> bool:
        """Whether the store can read, and has not lost the ability to write other than by lack of room. Cheap."""

    async def close(self) -> None:
        """Ends the store: waits for what is under way, syncs, lets go of files and locks. Idempotent."""
