"""A store in the memory of the process, for tests, examples and short-lived gateways.

It keeps the contract of `coregw.store.Store`, except that "durable" means until the process ends or the store is
closed. It has no threads and never waits: its methods run on the event loop that calls them.
"""

# ruff: noqa: D102 - the protocol documents the methods
from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Self

from coregw.errors import InvalidInput, PayloadNotFound, StorageFull, Unavailable
from coregw.store import CHUNK_BYTES, Table
from coregw.store.arguments import check_listing, check_payload_size, check_range

__all__ = ["MemoryPayloadWriter", "MemoryStore"]


class _Contents:
    """State shared by a store and its uploads: whether the store is open, its size, and the payloads."""

    def __init__(self, max_bytes: int | None) -> None:
        self.max_bytes = max_bytes
        self.used_bytes = 0
        self.is_closed = False
        self.payloads: dict[bytes, bytes] = {}

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


class MemoryStore:
    """A `coregw.store.Store` of dictionaries.

    Args:
        max_bytes: The maximum size of all rows and payloads, unfinished uploads included; more raises `StorageFull`.
            None sets no limit.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._contents = _Contents(max_bytes)
        self._tables: dict[Table, dict[bytes, bytes]] = {table: {} for table in Table}

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        self._contents.require_open()
        rows = self._tables[table]
        return [rows.get(key) for key in keys]

    async def put(self, rows: Mapping[Table, Sequence[tuple[bytes, bytes]]], durable: bool = True) -> None:
        self._contents.require_open()
        self._write({table: dict(pairs) for table, pairs in rows.items()})

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
    ) -> bool:
        self._contents.require_open()
        if self._tables[table].get(key) != expected:
            return False
        self._write({table: {key: value, **dict(further)}})
        return True

    async def list_rows(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        check_listing(prefix, limit)
        self._contents.require_open()
        rows = self._tables[table]
        keys = sorted(key for key in rows if key.startswith(prefix) and (after is None or key > after))
        return [(key, rows[key]) for key in keys[:limit]]

    async def delete(self, table: Table, keys: Sequence[bytes]) -> None:
        self._contents.require_open()
        for key in keys:
            value = self._tables[table].pop(key, None)
            if value is not None:
                self._contents.release(len(key) + len(value))

    def begin_payload(self) -> MemoryPayloadWriter:
        self._contents.require_open()
        return MemoryPayloadWriter(self._contents)

    async def put_payload(self, multihash: bytes, data: bytes) -> bool:
        check_payload_size(data)
        self._contents.require_open()
        if multihash in self._contents.payloads:
            return False
        self._contents.reserve(len(data))
        self._contents.payloads[multihash] = data
        return True

    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]:
        self._contents.require_open()
        found = [self._contents.payloads.get(multihash) for multihash in multihashes]
        return [None if payload is None else len(payload) for payload in found]

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
        for table, pairs in rows.items():
            self._tables[table].update(pairs)


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
        if multihash in self._contents.payloads:
            return False
        self._contents.payloads[multihash] = bytes(self._buffer)
        self._buffer = bytearray()  # counted as the payload's from here on
        return True

    def _require_open(self) -> None:
        self._contents.require_open()
        if self._has_ended:
            raise InvalidInput("the upload has ended: it takes no more bytes and no other commit")
