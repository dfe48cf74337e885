"""Reading a RocksDB store that another process has open: its table files, and nothing of its log.

A replica (RocksDB calls it a secondary instance) shows what had reached table files when it last looked, which is
durable and never changes but for published records and plants, so that those are not read here. What it does not show
may be there all the same: the newest writes, some 46 MiB at most, are only in the memory and the log of the process
that made them. Ask that one (`coregw.store.remote`). Reasons: ``docs/decisions/0090-workers.md``.
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

from coregw.store._rocks_directory import DATABASE
from coregw.store._rocks_layout import Family, database_options, family_options
from coregw.store._rocks_reader import in_shares

_log = logging.getLogger(__name__)

_FOLDER: Final = "workers"
_PAUSE_SECONDS: Final = 1.0
_PAUSE_FACTOR: Final = 100
"""Looking for new table files holds the interpreter: at most a hundredth of the time goes to it."""


class Replica:
    """The table files of a store, a bounded number of them open at once.

    Args:
        path: The store's directory.
        name: What no other replica of this store is called; its folder, of a log of its own, is ``workers/<name>``.
        cache_bytes: Memory for its cache of blocks.
        threads: The most reads at once.
    """

    def __init__(self, path: Path, name: str, *, cache_bytes: int, threads: int) -> None:
        self._database = path / DATABASE
        self._folder = path / _FOLDER / name
        self._cache_bytes = cache_bytes
        self._root: Rdict | None = None
        self._families: dict[Family, Rdict] = {}
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="coregw-replica")

    async def get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys` in one batched read; None where there is none here. Never fails: then there is none."""
        if not keys or not self._families:
            return [None] * len(keys)
        return await in_shares(partial(self._get, family), keys, self._pool, self._threads)

    async def follow(self) -> None:
        """Shows what reaches table files a second or so later, and lets go of files of no use; until cancelled."""
        while True:
            took = await asyncio.get_running_loop().run_in_executor(self._pool, self.refresh)
            await asyncio.sleep(max(_PAUSE_SECONDS, _PAUSE_FACTOR * took))

    def refresh(self) -> float:
        """Opens the table files, or looks for new ones; the seconds that it took. Blocks, and never fails."""
        began = time.monotonic()
        try:
            if self._root is None:
                self._open()
            else:
                self._root.try_catch_up_with_primary()
        except Exception as error:  # noqa: BLE001 - the binding has no classes of its own; a later try may go well
            _log.warning(
                "the table files in %s cannot be read now, so reads take the long way: %s", self._database, error
            )
        return time.monotonic() - began

    def close(self) -> None:
        """Waits for the reads under way and lets go of the files. Blocks. Idempotent."""
        self._pool.shutdown()
        self._families.clear()
        root, self._root = self._root, None
        if root is not None:
            root.close()

    def _get(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        try:
            return cast("list[bytes | None]", self._families[family].get(list(keys)))
        except Exception as error:  # noqa: BLE001 - whoever owns the store reads it again, and says what is wrong
            _log.debug("a read of table files failed, perhaps of one that its owner has deleted: %s", error)
            return [None] * len(keys)

    def _open(self) -> None:
        no_log = self._folder / "no-log"
        no_log.mkdir(parents=True, exist_ok=True)
        options = database_options(create=False, salvage=False)
        options.set_wal_dir(str(no_log))  # an empty one: the newest writes are not durable yet, and costly to repeat
        mode = AccessType.secondary(str(self._folder))
        root = Rdict(str(self._database), options, family_options(Cache(self._cache_bytes)), access_type=mode)
        try:
            self._families = {family: root.get_column_family(family) for family in Family}
        except BaseException:
            root.close()
            raise
        self._root = root
