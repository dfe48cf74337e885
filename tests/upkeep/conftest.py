"""Fixtures of the upkeep tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from coregw.store.rocksdb import RocksStore, open_store
from upkeep_site import Site, Time, site_on


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """An engine on an empty RocksDB store, at second 0."""
    async with site_on(tmp_path / "store", Time()) as made:
        yield made


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RocksStore]:
    """A RocksDB store to back up."""
    async with await open_store(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    """Where to back it up."""
    return tmp_path / "backups" / "daily"
