"""A store in the memory of the process, for tests, examples and short-lived gateways.

It keeps the contract of `coregw.store.Store`, except that "durable" means until the process ends or the store is
closed. It has no threads and never waits: its methods run on the event loop that calls them.
"""

# ruff: noqa: D102 - the protocol documents the methods
from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Self

from coregw.errors import InvalidInput, PayloadNotFound, StorageFull, Unavailable
from coregw.store.ages import SLICE_SECONDS, Ages, Clock
from coregw.store.collection import Identity, Item, Usage
from coregw.store.protocol import (
    CHUNK_BYTES,
    Stored,
    Table,
    check_listing,
    check_payload_sizes,
    check_range,
    check_renewal,
    check_whole_payload,
)

__all__ = ["MemoryCollection", "MemoryPayloadWriter", "MemoryStore"]


class _Contents:
    """State shared by a store, its uploads and collections: its rows, payloads, their dates and sizes."""

    def __init__(self, max_bytes: int | None, clock: Clock, slice_seconds: float) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.is_closed = False
        self.tables: dict[Table, dict[bytes, bytes]] = {table: {} for table in Table}
        self.payloads: dict[bytes, bytes] = {}
        self.dates: dict[Stored, dict[bytes, int]] = {Stored.ROOTS: {}, Stored.PAYLOADS: {}}
        self.ages = Ages(clock, undated=0, expired_before=0, slice_seconds=slice_seconds)

    def require_open(self) -> None:
        if self.is_closed:
            raise Unavailable("the store is closed")

    def require_room(self, size: int) -> None:
        if self.max_bytes is not None and self.used_bytes + size > self.max_bytes:
            raise StorageFull(f"the store holds at most {self.max_bytes:,} bytes; {size:,} more do not fit")

    def reserve(self, size: int) -> None:
        self.require_room(size)
        self.used_bytes += size

    def release(self, size: int) -> None:
        self.used_bytes -= size

    def is_shown(self, table: Table, key: bytes) -> bool:
        """Whether the row exists, and is not that of an expired root."""
        return key in self.tables[table] and (
            table is not Table.ROOTS or self.ages.is_held(self.dates[Stored.ROOTS][key])
        )

    def require(self, roots: Sequence[bytes]) -> None:
        dates = self.dates[Stored.ROOTS]
        self.ages.require((root, dates.get(root)) for root in roots)

    def delete(self, table: Table, key: bytes) -> bool:
        value = self.tables[table].pop(key, None)
        if table is Table.ROOTS:
            self.dates[Stored.ROOTS].pop(key, None)
        if value is not None:
            self.release(len(key) + len(value))
        return value is not None

    def put_payload(self, multihash: bytes, data: bytes) -> bool:
        """Date a payload, and store it if it is new. Its size is reserved by the caller."""
        self.dates[Stored.PAYLOADS][multihash] = self.ages.clock.now()
        is_new = multihash not in self.payloads
        if is_new:
            self.payloads[multihash] = data
        return is_new


class MemoryStore:
    """A `coregw.store.collection.CollectableStore` of dictionaries.

    Args:
        max_bytes: The maximum size of all rows and payloads, unfinished uploads included; more raises `StorageFull`.
            None sets no limit.
        clock: The clock that dates roots and payloads.
        slice_seconds: How exactly it is remembered when pages were put (`coregw.store.ages`).
    """

    def __init__(
        self, max_bytes: int | None = None, *, clock: Clock | None = None, slice_seconds: float = SLICE_SECONDS
    ) -> None:
        self._contents = _Contents(max_bytes, clock or Clock(), slice_seconds)
        self._tables = self._contents.tables
        self._ages = self._contents.ages
        self._identity = Identity.new()

    @property
    def identity(self) -> Identity:
        return self._identity

    async def identify(self, identity: Identity) -> None:
        self._identity = identity

    @property
    def expiries(self) -> int:
        return self._ages.expiries.count

    def watch_expiries(self, on_expiry: Callable[[], None]) -> None:
        self._ages.expiries.watch(on_expiry)

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        self._contents.require_open()
        rows = self._tables[table]
        return [rows[key] if self._contents.is_shown(table, key) else None for key in keys]

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        self._contents.require_open()
        if roots := rows.get(Table.ROOTS):
            self._ages.admit([root for root, _ in roots], since)
        self._contents.require(requires)
        self._write({table: dict(pairs) for table, pairs in rows.items()})
        return self._ages.clock.now()

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
        requires: Sequence[bytes] = (),
    ) -> bool:
        self._contents.require_open()
        (found,) = await self.get(table, [key])
        if found != expected:
            return False
        self._contents.require(requires)
        self._write({table: {key: value, **dict(further)}})
        return True

    async def list_rows(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        check_listing(limit)
        self._contents.require_open()
        rows = self._tables[table]
        shown = (key for key in rows if self._contents.is_shown(table, key))
        keys = sorted(key for key in shown if key.startswith(prefix) and (after is None or key > after))
        return [(key, rows[key]) for key in keys[:limit]]

    async def delete(self, table: Table, keys: Sequence[bytes]) -> None:
        self._contents.require_open()
        for key in keys:
            self._contents.delete(table, key)

    async def renew(self, kind: Stored, keys: Sequence[bytes], below_held: bool = False) -> list[int | None]:
        check_renewal(kind)
        self._contents.require_open()
        if kind is Stored.PAYLOADS:
            return [self._renew_payload(key) for key in keys]
        return [self._renew_root(key) for key in keys]

    def _renew_payload(self, multihash: bytes) -> int | None:
        payload = self._contents.payloads.get(multihash)
        if payload is None:
            return None
        self._contents.dates[Stored.PAYLOADS][multihash] = self._ages.clock.now()
        return len(payload)

    def _renew_root(self, root: bytes) -> int | None:
        if not self._contents.is_shown(Table.ROOTS, root):
            return None
        dates = self._contents.dates[Stored.ROOTS]
        self._ages.note(root, dates[root])
        dates[root] = self._ages.clock.now()
        return 0

    def begin_payload(self) -> MemoryPayloadWriter:
        self._contents.require_open()
        return MemoryPayloadWriter(self._contents)

    async def put_payloads(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        check_payload_sizes(payloads)
        self._contents.require_open()
        new = {multihash: data for multihash, data in payloads if multihash not in self._contents.payloads}
        self._contents.reserve(sum(map(len, new.values())))
        return [self._contents.put_payload(multihash, data) for multihash, data in payloads]

    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]:
        self._contents.require_open()
        found = [self._contents.payloads.get(multihash) for multihash in multihashes]
        return [None if payload is None else len(payload) for payload in found]

    async def get_payloads(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        self._contents.require_open()
        found = [self._contents.payloads.get(multihash) for multihash in multihashes]
        for multihash, payload in zip(multihashes, found, strict=True):
            check_whole_payload(multihash, 0 if payload is None else len(payload))
        return found

    async def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        check_range(start, end)
        self._contents.require_open()
        payload = self._contents.payloads.get(multihash)
        if payload is None:
            raise PayloadNotFound(f"no payload has the multihash {multihash.hex()}")
        stop = len(payload) if end is None else min(end, len(payload))
        for offset in range(start, stop, CHUNK_BYTES):
            self._contents.require_open()
            yield payload[offset : min(offset + CHUNK_BYTES, stop)]

    def collect(self, grace_seconds: float) -> MemoryCollection:
        return MemoryCollection(self._contents, grace_seconds)

    async def usage(self) -> Usage:
        self._contents.require_open()
        return Usage(0, self._contents.used_bytes)

    async def healthy(self) -> bool:
        return not self._contents.is_closed

    async def obstacles(self) -> list[str]:
        try:
            self._contents.require_open()
            self._contents.require_room(1)
        except Unavailable as error:
            return [error.message]
        return []

    async def close(self) -> None:
        self._contents.is_closed = True

    def _write(self, rows: Mapping[Table, Mapping[bytes, bytes]]) -> None:
        size = 0
        for table, pairs in rows.items():
            present = self._tables[table]
            size += sum(
                len(value) - len(present[key]) if key in present else len(key) + len(value)
                for key, value in pairs.items()
            )
        self._contents.reserve(size)
        now = self._ages.clock.now()
        for table, pairs in rows.items():
            self._tables[table].update(pairs)
            if table is Table.PAGES:
                self._ages.recent.add(list(pairs), now)
            elif table is Table.ROOTS:
                self._contents.dates[Stored.ROOTS].update(dict.fromkeys(pairs, now))


class MemoryPayloadWriter:
    """One upload into a `MemoryStore`; see `coregw.store.PayloadWriter`."""

    def __init__(self, contents: _Contents) -> None:
        self._contents = contents
        self._buffer = bytearray()
        self._has_ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._has_ended = True
        self._contents.release(len(self._buffer))
        self._buffer = bytearray()

    async def write(self, chunk: bytes) -> None:
        self._require_open()
        self._contents.reserve(len(chunk))
        self._buffer += chunk

    async def commit(self, multihash: bytes) -> bool:
        self._require_open()
        self._has_ended = True
        is_new = self._contents.put_payload(multihash, bytes(self._buffer))
        if is_new:
            self._buffer = bytearray()  # counted as the payload's from here on
        return is_new

    def _require_open(self) -> None:
        self._contents.require_open()
        if self._has_ended:
            raise InvalidInput("the upload has ended: it takes no more bytes and no other commit")


class MemoryCollection:
    """One collection in a `MemoryStore`; see `coregw.store.collection.Collection`."""

    def __init__(self, contents: _Contents, grace_seconds: float) -> None:
        self._contents = contents
        self._grace_seconds = grace_seconds
        self.began = 0
        self.before = 0

    async def __aenter__(self) -> Self:
        self._contents.require_open()
        self.began = self._contents.ages.clock.now()
        self.before = self._contents.ages.begin(self, self._grace_seconds)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._contents.ages.end(self)

    async def list_items(self, kind: Stored, after: bytes | None, limit: int) -> list[Item]:
        self._contents.require_open()
        rows = self._contents.payloads if kind is Stored.PAYLOADS else self._contents.tables[Table(kind)]
        dates = self._contents.dates.get(kind, {})
        keys = sorted(key for key in rows if after is None or key > after)
        return [Item(key, len(rows[key]), dates.get(key, 0)) for key in keys[:limit]]

    async def records(self) -> AsyncGenerator[list[tuple[bytes, bytes]]]:
        self._contents.require_open()
        yield sorted(self._contents.tables[Table.RECORDS].items())

    async def keep(self, roots: Sequence[bytes]) -> list[bool]:
        self._contents.require_open()
        held = [self._contents.is_shown(Table.ROOTS, root) for root in roots]
        now = self._contents.ages.clock.now()
        self._contents.dates[Stored.ROOTS].update(
            {root: now for root, is_held in zip(roots, held, strict=True) if is_held}
        )
        return held

    async def expire(self) -> list[bytes]:
        self._contents.require_open()
        late = self._contents.ages.take_late()
        if not late:
            self._contents.ages.expire(self.before)
        return late

    async def remove(self, kind: Stored, keys: Sequence[bytes]) -> list[bool]:
        self._contents.require_open()
        return [self._is_garbage(kind, key) and self._remove(kind, key) for key in keys]

    async def compact(self, kinds: Sequence[Stored], progress: Callable[[float], None]) -> None:
        progress(1.0)

    def _is_garbage(self, kind: Stored, key: bytes) -> bool:
        ages = self._contents.ages
        if kind is Stored.PAGES:
            return not ages.recent.may_hold(key, self.before)
        dated = self._contents.dates[kind].get(key)
        return dated is not None and dated < (ages.expired_before if kind is Stored.ROOTS else self.before)

    def _remove(self, kind: Stored, key: bytes) -> bool:
        if kind is not Stored.PAYLOADS:
            return self._contents.delete(Table(kind), key)
        del self._contents.dates[kind][key]
        self._contents.release(len(self._contents.payloads.pop(key)))
        return True
