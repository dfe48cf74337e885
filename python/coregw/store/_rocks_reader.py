"""Reads in worker threads: batches of rows off the event loop, and no answer from a row that could still be lost.

The pool is the store's own, so that reads neither wait for other work of the process nor hold it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from coregw.errors import Unavailable
from coregw.store._rocks_committer import Committer
from coregw.store._rocks_database import Database
from coregw.store._rocks_layout import Family, Row

_T = TypeVar("_T")

_SHARE: Final = 32
"""Fewer keys are not worth a thread of their own."""


class Reader:
    """Reads of one database.

    Args:
        database: What to read.
        committer: Who writes to it, and so knows which rows are not durable yet.
        threads: The most reads at once.
    """

    def __init__(self, database: Database, committer: Committer, threads: int) -> None:
        self._database = database
        self._committer = committer
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="coregw-read")
        self._closed = False

    async def run(self, call: Callable[[Database], _T]) -> _T:
        """The result of `call` on the database, in a worker thread. `Unavailable` once the store is closed."""
        self.require_open()
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, self._database)

    async def get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys`, durable or not; None where there is none.

        Many keys are read in several threads, since one batched read waits for the disk block by block.
        """
        self.require_open()
        return await in_shares(partial(self._database.get, family), keys, self._pool, self._threads)

    async def get_durable(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys`, returned when those found could not be lost any more."""
        values = await self.get(family, keys)
        await self.settle(family, [key for key, value in zip(keys, values, strict=True) if value is not None])
        return values

    async def settle(self, family: Family, keys: Sequence[bytes]) -> None:
        """Waits until the rows with these keys, which were found just now, could not be lost any more."""
        await self._committer.settle(Row(family, key) for key in keys)

    def require_open(self) -> None:
        """Raises `Unavailable` once the store is closed."""
        if self._closed:
            raise Unavailable("the store is closed")

    def close(self) -> None:
        """Waits for the reads under way. Blocks."""
        self._closed = True
        self._pool.shutdown()


async def in_shares(
    read: Callable[[Sequence[bytes]], list[_T]], keys: Sequence[bytes], pool: ThreadPoolExecutor, threads: int
) -> list[_T]:
    """What `read` gives for `keys`, in worker threads: in several, if the keys are many enough for it."""
    run = asyncio.get_running_loop().run_in_executor
    if len(keys) < 2 * _SHARE:
        return await run(pool, read, keys)
    share = max(_SHARE, -(-len(keys) // threads))
    shares = [keys[start : start + share] for start in range(0, len(keys), share)]
    found = await asyncio.gather(*(run(pool, read, each) for each in shares))
    return [value for values in found for value in values]
