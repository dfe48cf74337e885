"""Fixtures of the store tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coregw.store.rocksdb import RocksStore, open_store
from rocksdb_support import RESERVE, ControlledDatabase


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def rocks(tmp_path: Path) -> AsyncIterator[RocksStore]:
    """A RocksDB store."""
    async with await open_store(tmp_path / "store") as made:
        yield made


@pytest.fixture
def database(tmp_path: Path) -> ControlledDatabase:
    return ControlledDatabase(tmp_path / "store")


@pytest.fixture
async def store(database: ControlledDatabase) -> AsyncIterator[RocksStore]:
    async with RocksStore(database, reserve_bytes=RESERVE, read_threads=2) as made:
        yield made
