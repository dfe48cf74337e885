"""A store that no gateway has open, for commands that work on it directly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from coregw.errors import InvalidInput

if TYPE_CHECKING:
    from coregw.store.rocksdb import RocksStore

__all__ = ["opened_store"]


@asynccontextmanager
async def opened_store(data: Path) -> AsyncIterator[RocksStore]:
    """Open the store in a directory, which must be one.

    Raises:
        InvalidInput: The directory is no store; opening it would make one of it.
    """
    from coregw.store.rocksdb import MARKER, open_store

    if not (data / MARKER).is_file():
        raise InvalidInput(f"{data} is not a coregw store: it has no {MARKER}")
    async with await open_store(data, reserve_bytes=0) as store:
        yield store
