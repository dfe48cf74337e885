"""Fixtures of the store tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("coregw.store.testing")

from coregw.store.rocksdb import RocksStore, open_store  # noqa: E402 - after the registration


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def rocks(tmp_path: Path) -> AsyncIterator[RocksStore]:
    """A RocksDB store."""
    async with await open_store(tmp_path / "store") as made:
        yield made
