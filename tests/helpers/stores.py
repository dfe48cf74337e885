"""Every kind of store, for tests of what is built on the `Store` protocol."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from coregw.store import Store
from coregw.store.memory import MemoryStore
from coregw.store.rocksdb import open_store

KINDS = ["memory", "rocksdb"]


@asynccontextmanager
async def opened(kind: str, folder: Path, *, is_full: bool = False) -> AsyncIterator[Store]:
    """An empty store; a full one has no room for anything."""
    if kind == "memory":
        store = MemoryStore(max_bytes=0 if is_full else None)
        yield store
        await store.close()
        return
    async with await open_store(folder, **({"reserve_bytes": 1 << 62} if is_full else {})) as rocks:
        yield rocks
