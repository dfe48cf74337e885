"""Read-only view of a RocksDB store that another process has open: its SSTs, without its write-ahead log.

A replica (RocksDB's term: secondary instance) shows what had reached SSTs when it last caught up. That is durable, and
pages and payloads never change, so they may be read here; `Table.RECORDS` and `Table.ROOTS`, whose rows expire, may
not. What a replica does not show may still exist: the newest writes, some 34 MiB at most, are only in the memory and
the log of the owner process, which has to be asked (`coregw.store.workers`). ``docs/decisions/0090`` gives the reasons.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, cast

from rocksdict import AccessType, Cache, Rdict

from coregw.store.rocksdb.directory import DATABASE
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.options import database_options, family_options
from coregw.store.rocksdb.reader import in_shares
from coregw.telemetry import RepeatedFailure

__all__ = ["Replica"]

_log = logging.getLogger(__name__)

_FOLDER: Final = "workers"
_PAUSE_SECONDS: Final = 1.0
_PAUSE_FACTOR: Final = 100
"""rocksdict holds the GIL while it catches up, so at most one hundredth of the time is spent on it."""


class Replica:
    """The SSTs of a store, a bounded number of them open at once.

    Args:
        path: The store's directory.
        name: A name that no other replica of the store has; its folder is ``workers/<name>``.
        cache_bytes: Memory for its block cache.
        threads: The maximum number of concurrent reads.
    """

    def __init__(self, path: Path, name: str, *, cache_bytes: int, threads: int) -> None:
        self._database = path / DATABASE
        self._folder = path / _FOLDER / name
        ssts = f"the SSTs in {self._database}"
        self._unreadable = RepeatedFailure(
            _log, f"{ssts} cannot be read, so all reads go to the owner process", f"{ssts} can be read again"
        )
        self._cache_bytes = cache_bytes
        self._root: Rdict | None = None
        self._families: dict[Family, Rdict] = {}
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="coregw-replica")

    async def get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of `keys` in one batch; None for one that is not shown. A failed read shows nothing."""
        if not keys or not self._families:
            return [None] * len(keys)
        return await in_shares(partial(self._get, family), keys, self._pool, self._threads)

    async def catch_up(self) -> float:
        """Catch up with the owner's SSTs, release obsolete files, and return the seconds until the next call."""
        took = await asyncio.get_running_loop().run_in_executor(self._pool, self.refresh)
        return max(_PAUSE_SECONDS, _PAUSE_FACTOR * took)

    def refresh(self) -> float:
        """Open the SSTs, or catch up with new ones, and return the seconds it took. Blocks. Failures are logged."""
        began = time.monotonic()
        try:
            if self._root is None:
                self._open()
            else:
                self._root.try_catch_up_with_primary()
        except Exception as error:  # noqa: BLE001 - rocksdict has no classes of its own; the next attempt may succeed
            self._unreadable.occurs(error)
        else:
            self._unreadable.ends()
        return time.monotonic() - began

    def close(self) -> None:
        """Wait for the reads in progress and release the files. Blocks. Idempotent."""
        self._pool.shutdown()
        self._families.clear()
        root, self._root = self._root, None
        if root is not None:
            root.close()

    def _get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            return cast("list[bytes | None]", self._families[family].get(list(keys)))
        except Exception as error:  # noqa: BLE001 - the owner process repeats the read and reports what is wrong
            _log.debug("a read of SSTs failed, perhaps of one that the owner has deleted: %s", error)
            return [None] * len(keys)

    def _open(self) -> None:
        no_log = self._folder / "no-log"
        no_log.mkdir(parents=True, exist_ok=True)
        options = database_options(create=False, salvage=False)
        options.set_wal_dir(str(no_log))  # an empty one: the newest writes are not durable yet, and replaying is slow
        mode = AccessType.secondary(str(self._folder))
        root = Rdict(str(self._database), options, family_options(Cache(self._cache_bytes)), access_type=mode)
        try:
            self._families = {family: root.get_column_family(family) for family in Family}
        except BaseException:
            root.close()
            raise
        self._root = root
