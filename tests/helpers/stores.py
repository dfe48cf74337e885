"""Every kind of store, for tests of what is built on the `Store` protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from coregw.store import Store
from coregw.store.memory import MemoryStore
from coregw.store.rocksdb import open_store
from worker_support import shared, worker_of

KINDS = ["memory", "rocksdb", "worker", "worker without SSTs"]


@asynccontextmanager
async def opened(kind: str, folder: Path, *, is_full: bool = False) -> AsyncIterator[Store]:
    """An empty store; a full one has no room for anything."""
    if kind == "memory":
        store = MemoryStore(max_bytes=0 if is_full else None)
        yield store
        await store.close()
        return
    async with await open_store(folder, **({"reserve_bytes": 1 << 62} if is_full else {})) as rocks:
        if kind == "rocksdb":
            yield rocks
        elif kind == "worker":
            async with worker_of(rocks) as worker:
                yield worker
        else:
            async with shared(rocks) as (worker, _):
                yield worker
