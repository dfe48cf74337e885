"""Fixtures of the upkeep tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from upkeep.support import Site, Time, site_on


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    """An engine on an empty RocksDB store, at second 0."""
    async with site_on(tmp_path / "store", Time()) as made:
        yield made
