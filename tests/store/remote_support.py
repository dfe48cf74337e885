"""A store of this process as another process would use it: over a socket, and by its table files."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coregw.store._rocks_replica import Replica
from coregw.store.remote import RemoteStore
from coregw.store.rocksdb import RocksStore
from coregw.store.sharing import share


@asynccontextmanager
async def remote(rocks: RocksStore, *, replica: bool = True) -> AsyncIterator[RemoteStore]:
    """The store as a worker sees it; without `replica`, by asking alone."""
    here, there = socket.socketpair()
    shared = await share(rocks, there)
    files = Replica(rocks.path, "1", cache_bytes=1 << 20, threads=2) if replica else None
    async with await RemoteStore.connect(here, files) as made:
        yield made
    await shared.ended()
