"""Fixtures: every store that the contract suite runs for, and small builders of keys."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path

import pytest

from coregw.store import Store
from coregw.store.memory import MemoryStore
from coregw.store.rocksdb import RocksStore, open_store
from store.remote_support import remote

Put = Callable[[Store, bytes], Coroutine[None, None, bytes]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=["memory", "rocksdb", "remote"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Each store in turn; the remote one is RocksDB behind a socket, with its table files read directly."""
    if request.param == "memory":
        made: Store = MemoryStore()
        yield made
        await made.close()
        return
    async with await open_store(tmp_path / "store") as rocks:
        if request.param == "rocksdb":
            yield rocks
        else:
            async with remote(rocks) as made:
                yield made


@pytest.fixture(params=["memory", "rocksdb", "remote"])
async def full_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """Each store in turn, without room for anything."""
    if request.param == "memory":
        yield MemoryStore(max_bytes=0)
        return
    async with await open_store(tmp_path / "store", reserve_bytes=1 << 62) as rocks:
        if request.param == "rocksdb":
            yield rocks
        else:
            async with remote(rocks) as made:
                yield made


@pytest.fixture
async def rocks(tmp_path: Path) -> AsyncIterator[RocksStore]:
    """A RocksDB store."""
    async with await open_store(tmp_path / "store") as made:
        yield made


@pytest.fixture
def multihash() -> Callable[[bytes], bytes]:
    """The sha2-256 multihash of some bytes."""
    return lambda data: b"\x12\x20" + hashlib.sha256(data).digest()


@pytest.fixture
def put(multihash: Callable[[bytes], bytes]) -> Put:
    """Stores a payload in one piece; gives its multihash."""

    async def put(store: Store, data: bytes) -> bytes:
        name = multihash(data)
        async with store.begin_payload() as writer:
            await writer.write(data)
            await writer.commit(name)
        return name

    return put
