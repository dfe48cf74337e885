"""A store in the process's memory: for tests, examples, and gateways that need not outlive it.

It behaves as `coregw.store.Store` says in all but one thing: durable here means until the process ends or the store is
closed. It has no threads and never waits; all of its methods run on the event loop that calls them.
"""

# ruff: noqa: D102 - what the methods do is said once, in the protocol
from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from types import TracebackType
from typing import Self

from coregw.errors import InvalidInput, PayloadNotFound, StorageFull, Unavailable
from coregw.store import CHUNK_BYTES, Record
from coregw.store._chunks import check_one_chunk
from coregw.store._records import (
    check_expected,
    check_limit,
    check_names,
    check_plant_id,
    existing,
    frozen_record,
    next_record,
    utc,
)

__all__ = ["MemoryPayloadWriter", "MemoryStore"]


class _Room:
    """What store and uploads share: whether the store is open, how much it holds, and the payloads."""

    def __init__(self, max_bytes: int | None) -> None:
        self.max_bytes = max_bytes
        self.used = 0
        self.closed = False
        self.payloads: dict[bytes, bytes] = {}

    def require_open(self) -> None:
        if self.closed:
            raise Unavailable("the store is closed")

    def take(self, size: int) -> None:
        if self.max_bytes is not None and self.used + size > self.max_bytes:
            raise StorageFull(f"the store keeps at most {self.max_bytes:,} bytes; {size:,} more do not fit")
        self.used += size

    def give_back(self, size: int) -> None:
        self.used -= size


class MemoryStore:
    """A `coregw.store.Store` of dictionaries.

    Args:
        max_bytes: The most bytes of pages, payloads and plants to keep, unfinished uploads included; more is
            `StorageFull`. None sets no limit.
    """

    def __init__(self, max_bytes: int | None = None) -> None:
        self._room = _Room(max_bytes)
        self._pages: dict[bytes, bytes] = {}
        self._roots: set[bytes] = set()
        self._records: dict[tuple[str, str], list[Record]] = {}
        self._plants: dict[int, bytes] = {}

    async def get_pages(self, digests: Sequence[bytes]) -> list[bytes | None]:
        self._room.require_open()
        return [self._pages.get(digest) for digest in digests]

    async def put_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> None:
        self._room.require_open()
        new = {digest: page for digest, page in pages if digest not in self._pages}
        self._room.take(sum(map(len, new.values())))
        self._pages.update(new)

    async def has_roots(self, roots: Sequence[bytes]) -> list[bool]:
        self._room.require_open()
        return [root in self._roots for root in roots]

    async def put_roots(self, roots: Sequence[bytes], pages: Sequence[tuple[bytes, bytes]] = ()) -> None:
        await self.put_pages(pages)
        self._roots.update(roots)

    def begin_payload(self) -> MemoryPayloadWriter:
        self._room.require_open()
        return MemoryPayloadWriter(self._room)

    async def put_payload(self, multihash: bytes, data: bytes) -> bool:
        check_one_chunk(data)
        self._room.require_open()
        if multihash in self._room.payloads:
            return False
        self._room.take(len(data))
        self._room.payloads[multihash] = data
        return True

    async def stat_payload(self, multihash: bytes) -> int | None:
        self._room.require_open()
        payload = self._room.payloads.get(multihash)
        return None if payload is None else len(payload)

    async def has_payloads(self, multihashes: Sequence[bytes]) -> list[bool]:
        self._room.require_open()
        return [multihash in self._room.payloads for multihash in multihashes]

    async def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        if start < 0 or (end is not None and end < start):
            raise InvalidInput(f"no bytes are from {start} to {end}")
        self._room.require_open()
        payload = self._room.payloads.get(multihash)
        if payload is None:
            raise PayloadNotFound(f"no payload has the multihash {multihash.hex()}")
        stop = len(payload) if end is None else min(end, len(payload))
        for offset in range(start, stop, CHUNK_BYTES):
            self._room.require_open()
            yield payload[offset : min(offset + CHUNK_BYTES, stop)]

    async def get_record(self, scope: str, name: str) -> Record | None:
        check_names(scope, name)
        self._room.require_open()
        revisions = self._records.get((scope, name))
        return revisions[-1] if revisions else None

    async def publish(self, scope: str, name: str, root: bytes, expected_revision: int | None, now: datetime) -> Record:
        check_expected(expected_revision)
        current = await self.get_record(scope, name)
        record = next_record(current, scope, name, root, expected_revision, utc(now))
        self._records.setdefault((scope, name), []).append(record)
        return record

    async def freeze(self, scope: str, name: str, now: datetime) -> Record:
        now = utc(now)
        record = frozen_record(existing(await self.get_record(scope, name), scope, name), now)
        self._records[scope, name][-1] = record
        return record

    async def list_records(self, scope: str, after: str | None, limit: int) -> list[Record]:
        check_names(scope, *(() if after is None else (after,)))
        check_limit(limit)
        self._room.require_open()
        names = sorted(name for of, name in self._records if of == scope and (after is None or name > after))
        return [self._records[scope, name][-1] for name in names[:limit]]

    async def history(self, scope: str, name: str, after: int, limit: int) -> list[Record]:
        check_limit(limit)
        existing(await self.get_record(scope, name), scope, name)
        return self._records[scope, name][max(after, 0) :][:limit]

    async def put_plant(self, plant_id: int, plant: bytes) -> bool:
        if await self.get_plant(plant_id) is not None:
            return False
        self._room.take(len(plant))
        self._plants[plant_id] = plant
        return True

    async def get_plant(self, plant_id: int) -> bytes | None:
        check_plant_id(plant_id)
        self._room.require_open()
        return self._plants.get(plant_id)

    async def healthy(self) -> bool:
        return not self._room.closed

    async def close(self) -> None:
        self._room.closed = True


class MemoryPayloadWriter:
    """One upload into a `MemoryStore`; see `coregw.store.PayloadWriter`."""

    def __init__(self, room: _Room) -> None:
        self._room = room
        self._buffer = bytearray()
        self._ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._room.give_back(len(self._buffer))
        self._buffer = bytearray()

    async def write(self, chunk: bytes) -> None:
        self._require_open()
        self._room.take(len(chunk))
        self._buffer += chunk

    async def commit(self, multihash: bytes) -> bool:
        self._require_open()
        self._ended = True
        if multihash in self._room.payloads:
            return False
        self._room.payloads[multihash] = bytes(self._buffer)
        self._buffer = bytearray()  # its bytes now count as the payload's
        return True

    def _require_open(self) -> None:
        self._room.require_open()
        if self._ended:
            raise InvalidInput("the upload has ended: nothing can be written to it or committed")
