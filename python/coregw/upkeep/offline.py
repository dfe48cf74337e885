"""Work on the store in a directory, without a gateway."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec

from coregw._core import ArcSorter
from coregw.engine import Engine
from coregw.messages import RootCreated
from coregw.store.rocksdb import open_store

__all__ = ["store_map"]


def store_map(sorter: ArcSorter, data: str | os.PathLike[str], suite: str) -> str:
    """Store the map of sorted arcs durably, and return its root. Raises as `Builds.store_map` and `open_store`."""

    async def store() -> bytes:
        engine = Engine(await open_store(Path(data), reserve_bytes=0))
        try:
            return await engine.builds.store_map(sorter, suite)
        finally:
            await engine.close()

    return msgspec.json.decode(asyncio.run(store()), type=RootCreated).root
