"""A store of this process as a worker process would see it: over a socket, and by its SSTs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coregw.store import Store
from coregw.store.memory import MemoryPayloadWriter, MemoryStore
from coregw.store.rocksdb import RocksStore
from coregw.store.rocksdb.replica import Replica
from coregw.store.workers import RemoteStore, SharedStore, share_store


def replica_of(rocks: RocksStore, name: str = "test") -> Replica:
    """A replica of a store, not yet opened."""
    return Replica(rocks.path, name, cache_bytes=1 << 20, threads=2)


@asynccontextmanager
async def shared(store: Store, replica: Replica | None = None) -> AsyncIterator[tuple[RemoteStore, SharedStore]]:
    """A worker's store, and the owner's end of its connection."""
    here, there = socket.socketpair()
    owner = await share_store(store, there)
    async with await RemoteStore.connect(here, replica) as remote:
        yield remote, owner
    await owner.ended()


@asynccontextmanager
async def worker_of(rocks: RocksStore, name: str = "test") -> AsyncIterator[RemoteStore]:
    """A worker's store, with a replica."""
    async with shared(rocks, replica_of(rocks, name)) as (remote, _):
        yield remote


class SlowStore(MemoryStore):
    """A store whose uploads and downloads wait for `may_go`."""

    def __init__(self) -> None:
        super().__init__()
        self.may_go = asyncio.Event()
        self.begun = 0
        """How many parts of uploads and downloads have begun."""

    def begin_payload(self) -> MemoryPayloadWriter:
        writer = super().begin_payload()
        write = writer.write

        async def write_later(chunk: bytes) -> None:
            self.begun += 1
            await self.may_go.wait()
            await write(chunk)

        writer.write = write_later  # type: ignore[method-assign]
        return writer

    async def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        self.begun += 1
        await self.may_go.wait()
        async for piece in super().read_payload(multihash, start, end):
            yield piece


@asynccontextmanager
async def shared_slow() -> AsyncIterator[tuple[SlowStore, RemoteStore, SharedStore]]:
    """A slow store, a worker's store, and the owner's end of its connection; lets all go at the end."""
    slow = SlowStore()
    async with shared(slow) as (worker, owner):
        try:
            yield slow, worker, owner
        finally:
            slow.may_go.set()
