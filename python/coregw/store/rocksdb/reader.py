"""Reads in worker threads: batches of rows off the event loop, none of them shown before it is durable.

The thread pool is the store's own, so reads neither wait for other work of the process nor delay it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

from coregw.errors import Unavailable
from coregw.store.rocksdb.committer import Committer
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import Family, RowKey

__all__ = ["Reader"]

_T = TypeVar("_T")

_MIN_SHARE: Final = 32
"""Fewer keys are not worth a thread of their own."""


class Reader:
    """Reads of one database.

    Args:
        database: The database.
        committer: Its writer, which knows which rows are not durable yet.
        threads: The maximum number of concurrent reads.
    """

    def __init__(self, database: Database, committer: Committer, threads: int) -> None:
        self._database = database
        self._committer = committer
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="coregw-read")
        self.bulk: Final = asyncio.Semaphore(max(1, threads // 2))
        """Held for each read of up to a chunk of payloads: some threads stay free for reads of a few small rows, which
        would otherwise wait behind all downloads."""
        self._is_closed = False

    async def run(self, call: Callable[[Database], _T]) -> _T:
        """Call a function with the database in a worker thread. Raises `Unavailable` if the store is closed."""
        self.require_open()
        return await asyncio.get_running_loop().run_in_executor(self._pool, call, self._database)

    async def get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of `keys`, durable or not; None for an absent one.

        Many keys are divided over several threads, as a batched read loads block by block.
        """
        self.require_open()
        run, read = asyncio.get_running_loop().run_in_executor, partial(self._database.get, family)
        if len(keys) < 2 * _MIN_SHARE:
            return await run(self._pool, read, keys)
        share = max(_MIN_SHARE, -(-len(keys) // self._threads))
        shares = [keys[start : start + share] for start in range(0, len(keys), share)]
        found = await asyncio.gather(*(run(self._pool, read, each) for each in shares))
        return [value for values in found for value in values]

    async def get_durable(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of `keys`; returns when those found are durable."""
        epoch = self.epoch
        values = await self.get(family, keys)
        found = [key for key, value in zip(keys, values, strict=True) if value is not None]
        await self.wait_durable(family, found, epoch)
        return values

    async def wait_durable(self, family: Family, keys: Sequence[bytes], epoch: int) -> None:
        """Wait until the rows of these keys, which were found in a read that began in `epoch`, are durable.

        Raises:
            Unavailable: As `Committer.wait_durable`.
        """
        await self._committer.wait_durable((RowKey(family, key) for key in keys), epoch)

    @property
    def epoch(self) -> int:
        """The database's epoch, to pass to `wait_durable`."""
        return self._committer.epoch

    def require_open(self) -> None:
        """Raise `Unavailable` if the store is closed."""
        if self._is_closed:
            raise Unavailable("the store is closed")

    def close(self) -> None:
        """Wait for the reads in progress. Blocks."""
        self._is_closed = True
        self._pool.shutdown()
