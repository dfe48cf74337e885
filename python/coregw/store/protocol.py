"""The `Store` protocol, the checks of arguments that all stores share, and guides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import StrEnum
from itertools import chain
from types import TracebackType
from typing import Final, NamedTuple, Protocol, Self, runtime_checkable

from coregw._core import Cid, PayloadChunk
from coregw.errors import CoregwError, InvalidInput

__all__ = [
    "CHUNK_BYTES",
    "MAX_PAYLOADS_BYTES",
    "MAX_PUT_BYTES",
    "BatchStore",
    "DifferenceStore",
    "Guide",
    "GuidedStore",
    "ListedPage",
    "PayloadWriter",
    "Put",
    "Store",
    "Stored",
    "Table",
    "ThreadCalls",
    "ThreadStore",
    "WriteOutcomes",
    "check_listing",
    "check_payload_sizes",
    "check_range",
    "check_renewal",
    "check_whole_payload",
    "key_range",
    "raw_cid",
]

CHUNK_BYTES: Final = 1 << 20
"""The largest piece that `Store.read_payload` yields, and the size of the chunks in which stores keep payloads."""

MAX_PUT_BYTES: Final = 1 << 20
"""The largest total size of the rows of one `Store.put`, give or take one row."""

MAX_PAYLOADS_BYTES: Final = 4 << 20
"""The largest total size of the payloads of one `Store.put_payloads`, give or take one payload."""


def raw_cid(multihash: bytes) -> Cid:
    """Return the CID of a payload by its binary multihash, by which stores name it: that with the codec ``raw``.

    Raises:
        InvalidInput: The multihash is malformed (code ``invalid_cid``).
    """
    return Cid(b"\x01\x55" + multihash)


class Table(StrEnum):
    """A namespace of rows. A row is a key and a value, both bytes.

    The rows of `PAGES` are write-once: a key is only ever put with one value. So a copy of such a row is never stale,
    and caches and replicas may answer with it.
    """

    __hash__ = str.__hash__  # the enumeration's own is a Python function, and rows are looked up often

    PAGES = "pages"
    """Digest of a page's top node (32 bytes) -> page. The only rows that may be visible before they are durable."""
    ROOTS = "roots"
    """Binary root CID -> nothing. A root is held if its row exists. The store dates these rows: see `Store.renew`."""
    RECORDS = "records"
    """Everything that changes or is listed. The first byte of a key names the row's owner: ``n`` and ``r`` are
    `coregw.engine.records`, ``t`` and ``c`` its ``log``, others choose another."""

    @property
    def is_write_once(self) -> bool:
        """Whether a key of this table is only ever put with one value, and a copy of its row is valid forever."""
        return self is Table.PAGES


class Stored(StrEnum):
    """What garbage collection may remove (`coregw.store.collection`)."""

    PAGES = "pages"
    """Pages, by digest."""
    ROOTS = "roots"
    """Root records, by binary CID."""
    PAYLOADS = "payloads"
    """Payloads, by binary multihash."""


class PayloadWriter(Protocol):
    """One upload: ``async with store.begin_payload() as writer``.

    Leaving the block without a commit aborts the upload. Its chunks are deleted, at the latest when the store is opened
    next. Use a writer from one task at a time.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def write(self, chunk: bytes) -> None:
        """Append bytes, in pieces of any size. Buffers at most 2 `CHUNK_BYTES` in addition to `chunk`.

        Raises:
            StorageFull: There is no room; nothing of the payload will be stored.
            Unavailable: The store cannot write at the moment, or is closed.
            InvalidInput: The upload has ended.
        """

    async def commit(self, multihash: bytes) -> bool:
        """Make the written bytes the payload of `multihash`, durably, and end the upload.

        Concurrent commits share a sync.

        Args:
            multihash: The binary multihash of the bytes written. The store does not check it.

        Returns:
            True if the payload is newly stored, False if it was present (this copy is then dropped). Of concurrent
            uploads of the same bytes exactly one returns True. The payload is durable in either case.

        Raises:
            StorageFull: There is no room; nothing of the payload is stored.
            Unavailable: The store cannot write at the moment, or is closed.
            InvalidInput: The upload has ended.
        """


class Store(Protocol):
    """Rows and payloads. Every method may be called from any number of tasks of one event loop at once.

    **Linearizable and durable.** A row or payload is visible no earlier than it is durable, so whatever a method has
    returned survives a power cut. The exception is `Table.PAGES`, see `put`.

    **Dated.** The store remembers when each root and payload was last stored or renewed, and garbage collection
    (`coregw.store.collection`) spares what is young. So an answer that says "this is stored" must follow a `put`, an
    upload or a `renew`; what a read has found may be gone a moment later.

    Every method raises `Unavailable` if the store is closed or does not answer, `StorageFull` (a subclass) if it has no
    room for what is to be written, and `StoreDamaged` if stored bytes are corrupt or missing.
    """

    @property
    def expiries(self) -> int:
        """The number of times that roots have expired; a cache of held roots is stale when it changes.

        In a store that several gateways share, it may lag behind by some seconds.
        """

    def watch_expiries(self, on_expiry: Callable[[], None]) -> None:
        """Call a function whenever roots have expired, and after a collection has removed payloads.

        Args:
            on_expiry: Called in any thread, before what the expired roots needed is removed. It must not block.
        """

    # --- rows ---------------------------------------------------------------------------------------------------------

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read rows in one batch: the value of each key in the same order, None for an absent row. O(n) lookups."""

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        """Write (key, value) pairs, replacing existing values. Idempotent.

        A durable put is atomic: a crash or power cut leaves all of its rows or none, and never leaves them without the
        rows of a put that returned before this one began. So a row that refers to others is safe if the others are put
        before it or together with it.

        Args:
            rows: The pairs by table, at most about `MAX_PUT_BYTES` in total.
            durable: Whether to return only when these rows, and those of every earlier put, are durable. If false, they
                may be lost until the next durable put returns, and rows of `Table.PAGES` are visible before that.
            requires: Roots that must be held, since the new trees share pages with theirs. Checked in the same step.
            since: For roots whose pages were put by earlier calls: what the first of these returned.

        Returns:
            The store's time, for `since`.

        Raises:
            RootNotFound: A required root is not held; nothing was written.
            Unavailable: Also if pages put at `since` may have been removed as garbage; nothing was written. Put them
                again.
        """

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
        requires: Sequence[bytes] = (),
    ) -> bool:
        """Write a row if its value is the expected one, durably and atomically.

        Args:
            table: The table.
            key: The key.
            expected: The value that the row must have; None if it must be absent ("put if absent").
            value: The new value.
            further: (key, value) pairs of the same table to write in the same atomic step.
            requires: Roots that must be held, since the row names them. Checked in the same step.

        Returns:
            True if the rows were written. False if the row had another value: nothing was written, and the row that
            prevented it is durable. Of concurrent calls that expect the same value at most one returns True.

        Raises:
            RootNotFound: A required root is not held; nothing was written.
        """

    async def list_rows(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """List the (key, value) pairs whose keys start with a prefix, in byte order of the keys.

        Args:
            table: The table.
            prefix: The prefix; empty for all rows.
            after: Only keys greater than this one, which need not exist; None starts at the first.
            limit: The maximum number of rows, at least 1.

        Raises:
            InvalidInput: `limit` is less than 1.
        """

    async def delete(self, table: Table, keys: Sequence[bytes]) -> None:
        """Delete rows, durably and atomically. Absent rows are ignored. Succeeds on a full disk.

        A store with replicas may show a deleted row of a write-once table for some seconds more.
        """

    async def renew(self, kind: Stored, keys: Sequence[bytes], below_held: bool = False) -> list[int | None]:
        """Date roots or payloads as if they were stored now, durably: for an answer that says that they are stored.

        Args:
            kind: `Stored.ROOTS` or `Stored.PAYLOADS`.
            keys: Binary root CIDs or multihashes.
            below_held: Whether they are below a root that the caller has dated since it began, and dates again, if that
                is still held, before it relies on the result. A collection that begins meanwhile keeps what is below
                it, so the store need not date them unless one is in progress.

        Returns:
            The size of each in bytes (0 for a root), in the same order, None for one that is not held. A replica never
            answers this. O(n) lookups and, if any is held, one sync, which concurrent calls share.

        Raises:
            InvalidInput: `kind` is `Stored.PAGES`; pages have no dates.
        """

    # --- payloads -----------------------------------------------------------------------------------------------------

    def begin_payload(self) -> PayloadWriter:
        """Start an upload. Nothing is stored before its first `PayloadWriter.write`."""

    async def put_payloads(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """Store payloads of at most `CHUNK_BYTES` each in one atomic step; cheaper than uploads.

        Args:
            payloads: Pairs of a binary multihash and the payload, together at most about `MAX_PAYLOADS_BYTES`. The
                store does not check the multihashes.

        Returns:
            For each, in the same order, as `PayloadWriter.commit`; of equal payloads only the first can be new.

        Raises:
            InvalidInput: A payload is longer than `CHUNK_BYTES`; nothing is stored.
        """

    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]:
        """Look up payloads in one batch: the size of each in bytes, in the same order, None for an absent one."""

    async def get_payloads(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        """Read whole payloads of at most `CHUNK_BYTES` each in one batch: in the same order, None for an absent one.

        All of them are in memory at once, so the caller bounds their number. O(n) lookups.

        Raises:
            InvalidInput: One of them is longer than `CHUNK_BYTES`.
            StoreDamaged: A part of one of them is missing or has the wrong size.
        """

    def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """Read the bytes `start` to `end` (exclusive) of a payload, in non-empty chunks of at most `CHUNK_BYTES`.

        Reads only what is consumed. Offsets past the end of the payload are cut to it; without `end`, reads to the
        payload's end. Errors are raised by the first iteration, not by the call.

        Raises:
            PayloadNotFound: No payload has this multihash.
            InvalidInput: `start` is negative, or `end` is less than `start`.
            StoreDamaged: A part of the payload is missing or has the wrong size.
        """

    # --- the store as a whole -----------------------------------------------------------------------------------------

    async def healthy(self) -> bool:
        """Whether the store can read, and the last write did not fail other than by lack of room. Cheap."""

    async def obstacles(self) -> list[str]:
        """Return why the store accepts no writes at the moment, as sentences; none if it does. Cheap; never raises."""

    async def close(self) -> None:
        """Finish the calls in progress, sync, and release files and locks. Idempotent."""


class Guide(NamedTuple):
    """Which inner pages below a page lead to which keys.

    Attributes:
        page: The digest of the page.
        firsts: For each inner page, what none of its keys is less than, ascending.
        below: The digests of these inner pages.
    """

    page: bytes
    firsts: Sequence[bytes]
    below: Sequence[bytes]

    @property
    def size(self) -> int:
        """What it takes in a store, in bytes; part of what a quota limits."""
        return len(self.page) + sum(map(len, self.firsts)) + sum(map(len, self.below))


class Put(NamedTuple):
    """The arguments of a `Store.put`, which is durable unless all its rows are pages.

    Attributes:
        rows: Pairs of keys and values by table.
        requires: Roots that must be held.
        since: What the first of several calls returned.
        replaces: A value of `Table.ROOTS`. If there are roots, and each is held with another value, they are renewed as
            by `Store.renew`, and nothing is written. With None, all is written in any case.
        guides: Guides of the pages, for a `GuidedStore`.
        differences: Differences of some of the pages to others, by digest, for a `DifferenceStore`.
    """

    rows: Mapping[Table, Sequence[tuple[bytes, bytes]]]
    requires: Sequence[bytes]
    since: int | None
    replaces: bytes | None = None
    guides: Sequence[Guide] = ()
    differences: Sequence[tuple[bytes, bytes]] = ()

    @property
    def roots(self) -> list[bytes]:
        """The roots that it puts."""
        return [root for root, _ in self.rows.get(Table.ROOTS, ())]

    @property
    def reads_roots(self) -> bool:
        """Whether the states of its roots matter: see `replaces`. Roots that have lost pages take no differences."""
        return self.replaces is not None or bool(self.differences)

    def renews(self, states: Sequence[bytes | None]) -> bool:
        """Whether its roots are renewed, given the values of their rows, None for one that is not held."""
        if self.replaces is None or not states:
            return False
        return all(state is not None and state != self.replaces for state in states)

    @property
    def is_durable(self) -> bool:
        """Whether it has other rows than pages."""
        return any(table is not Table.PAGES for table in self.rows)

    @property
    def size(self) -> int:
        """The number of bytes of all rows and guides."""
        rows = chain.from_iterable(self.rows.values())
        return sum(map(len, chain.from_iterable(rows))) + sum([guide.size for guide in self.guides])


class WriteOutcomes(NamedTuple):
    """What became of writes that were made at once, each list in their order.

    Attributes:
        payloads: None for one that is stored, or why it is not.
        puts: What `Store.put` returns, or raises.
        renewals: What `Store.renew` returns, or raises.
        chunks: None for one that is written, or why it is not.
    """

    payloads: list[CoregwError | None]
    puts: list[int | CoregwError]
    renewals: list[list[int | None] | CoregwError]
    chunks: Sequence[CoregwError | None] = ()


class ThreadCalls(Protocol):
    """Calls of a store for threads without an event loop: what the hot routes of a gateway need. Raises as `Store`."""

    def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read rows as `Store.get`."""

    def find_payloads(self, multihashes: Sequence[bytes], most: int) -> list[tuple[int, bytes | None] | None]:
        """Look up payloads in one batch, and read the small ones.

        Args:
            multihashes: The binary multihashes.
            most: Payloads of more bytes are not read, at most `CHUNK_BYTES`.

        Returns:
            For each, in the same order, its size and its bytes or None; None for one that is not held.
        """

    def read_payload(self, multihash: bytes, start: int, end: int) -> bytes:
        """Read the bytes `start` to `end` (exclusive) of a payload, at most `CHUNK_BYTES`, as `Store.read_payload`."""

    def write(
        self,
        payloads: Sequence[tuple[bytes, bytes]],
        puts: Sequence[Put],
        renewals: Sequence[Sequence[bytes]],
        chunks: Sequence[PayloadChunk] = (),
        dropped: Sequence[int] = (),
    ) -> WriteOutcomes:
        """Write everything at once as `BatchStore.write`, with one sync; none for chunks of uploads that go on.

        Args:
            payloads: As of `Store.put_payloads`.
            puts: Rows, each atomically.
            renewals: Roots to renew.
            chunks: Chunks of payloads, never two of one upload. The last one of a payload stores it, durably.
            dropped: Uploads to end, after the chunks: what is written of them is deleted, unless their payload is
                stored. Others are ignored.

        Raises:
            StorageFull, Unavailable: Nothing is known to be written.
        """


class ListedPage(NamedTuple):
    """A page as `DifferenceStore.list_pages` returns it.

    Attributes:
        digest: What names it.
        page: Its bytes, empty for one whose base is missing, and for a base that is kept alone.
        size: The bytes that it takes.
        base: The digest of its base, if a difference is stored, perhaps beside a page. Of a base kept alone, its own.
    """

    digest: bytes
    page: bytes
    size: int
    base: bytes | None

    @classmethod
    def whole(cls, digest: bytes, page: bytes) -> Self:
        """A page that is stored as a whole alone."""
        return cls(digest, page, len(digest) + len(page), None)


@runtime_checkable
class DifferenceStore(Store, Protocol):
    """A store that keeps some pages as differences to others, their bases (`coregw._core.apply_difference`).

    A base is stored as a whole. It must not be removed as long as a page is kept that has a difference to it, whether
    something leads to the base or not.
    """

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
        differences: Sequence[tuple[bytes, bytes]] = (),
    ) -> int:
        """As `Store.put`. Pages that have differences, by digest, may be stored as these."""

    async def list_pages(self, after: bytes | None, limit: int) -> list[ListedPage]:
        """List pages as `list_rows`, with their bases, and with what is kept as a base alone."""

    async def keep_as_bases(self, digests: Sequence[bytes], before: int | None) -> None:
        """Keep pages as bases alone: they are not held any more. Durable with the next durable write.

        Args:
            digests: What names the pages.
            before: Skip pages that were put since this time of the store, as `Collection.remove` does; None skips none.
        """


@runtime_checkable
class BatchStore(Store, Protocol):
    """A store that makes many writes by one call."""

    async def write(
        self, payloads: Sequence[tuple[bytes, bytes]], puts: Sequence[Put], renewals: Sequence[Sequence[bytes]]
    ) -> WriteOutcomes:
        """Write everything at once, durably; what fails does not keep the rest from being written.

        Args:
            payloads: As of `Store.put_payloads`.
            puts: Rows, each atomically.
            renewals: Roots to renew.

        Raises:
            StorageFull, Unavailable: Nothing is known to be written.
        """


@runtime_checkable
class ThreadStore(Store, Protocol):
    """A store that threads can use without a visit of its event loop."""

    def thread_calls(self) -> ThreadCalls:
        """Return the calls for threads."""


def check_payload_sizes(payloads: Sequence[tuple[bytes, bytes]]) -> None:
    """Raise `InvalidInput` if a payload is longer than `Store.put_payloads` allows."""
    for _, data in payloads:
        if len(data) > CHUNK_BYTES:
            raise InvalidInput(f"put_payloads takes payloads of at most {CHUNK_BYTES:,} bytes, not {len(data):,}")


def check_whole_payload(multihash: bytes, size: int) -> None:
    """Raise `InvalidInput` if a payload is longer than `Store.get_payloads` reads."""
    if size > CHUNK_BYTES:
        limit = f"get_payloads reads at most {CHUNK_BYTES:,} bytes of each"
        raise InvalidInput(f"the payload {multihash.hex()} has {size:,} bytes; {limit}")


def check_range(start: int, end: int | None) -> None:
    """Raise `InvalidInput` if `Store.read_payload` does not allow a range."""
    if start < 0 or (end is not None and end < start):
        raise InvalidInput(f"invalid byte range: start {start}, end {end}")


def check_listing(limit: int) -> None:
    """Raise `InvalidInput` if `Store.list_rows` does not allow this limit."""
    if limit < 1:
        raise InvalidInput(f"the limit of a listing is at least 1, not {limit}")


def check_renewal(kind: Stored) -> None:
    """Raise `InvalidInput` if `Store.renew` does not allow this kind."""
    if kind is Stored.PAGES:
        raise InvalidInput("pages have no dates: only roots and payloads are renewed")


def key_range(prefix: bytes, after: bytes | None) -> tuple[bytes, bytes | None]:
    """The keys that start with `prefix` and are greater than `after`, as (first, end).

    The end is exclusive; None if the prefix has no byte but ``ff`` and so no end.
    """
    first = prefix if after is None else max(prefix, after + b"\0")
    stem = prefix.rstrip(b"\xff")
    return first, stem[:-1] + bytes([stem[-1] + 1]) if stem else None


@runtime_checkable
class GuidedStore(Store, Protocol):
    """A store that keeps guides."""

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
        guides: Sequence[Guide] = (),
    ) -> int:
        """As `Store.put`, with guides of pages that are put. A guide lasts as long as its page."""

    async def get_descents(self, keys: Mapping[bytes, Sequence[bytes]]) -> dict[bytes, bytes]:
        """Read pages, and the inner pages below each on the paths to keys, as far as guides lead, in one round trip.

        Args:
            keys: For the digest of each page at least one key, as bytes of a map's key (protocol section 2), or where a
                listing begins: with the empty key at the first one.

        Returns:
            The pages that the store has, by digest. O(pages) lookups.
        """

    async def list_guides(self, after: bytes | None, limit: int) -> list[Guide]:
        """Return guides in the order of their pages' digests, from the first one after `after` on. O(limit)."""

    async def set_guides(self, pages: Sequence[bytes], guides: Sequence[Guide]) -> None:
        """Replace the guides of pages by those that are given, durably, if it has the pages."""
