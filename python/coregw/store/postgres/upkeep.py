"""Background work of a store.

It lets the store's clock advance, notices what other gateways did, and sweeps what was left behind.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from coregw.errors import CoregwError
from coregw.failures import RepeatedFailure
from coregw.store.postgres.chunks import drop_upload
from coregw.store.postgres.payloads import Payloads
from coregw.store.postgres.ticks import NOW, TICK, TICK_SECONDS

__all__ = ["Upkeep"]

logger = logging.getLogger("coregw.store")

_REFRESH_SECONDS: Final = 2.0
_HEARTBEAT_SECONDS: Final = 60.0
_SWEEP_SECONDS: Final = 600.0
_ABANDONED_MS: Final = 3_600_000
"""An upload without a heartbeat for this long is dropped: its gateway has died."""
_ATTEMPTS_MS: Final = 86_400_000
"""How long an attempt is remembered: no call is repeated for this long."""
_DROPPED_AT_ONCE: Final = 100
_FOLDED_FROM: Final = 1000


class Upkeep:
    """The background task of one store.

    Args:
        payloads: The payloads of the store.
        refresh: Reads the state of the store.
        claim: Checks that the bucket is still that of this store.
    """

    def __init__(
        self, payloads: Payloads, refresh: Callable[[], Awaitable[None]], claim: Callable[[], Awaitable[object]]
    ) -> None:
        self._claim = claim
        self._payloads = payloads
        self._database = payloads.database
        self._refresh = refresh
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End the task. Idempotent."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        beats, sweeps = loop.time() + _HEARTBEAT_SECONDS, loop.time() + _SWEEP_SECONDS
        ticks = loop.time()
        waits = RepeatedFailure(logger, "the upkeep of the store waits", "the upkeep of the store continues")
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            try:
                await self._refresh()
                if loop.time() >= ticks:
                    ticks = loop.time() + TICK_SECONDS
                    await self._database.write(TICK)
                if loop.time() >= beats:
                    beats = loop.time() + _HEARTBEAT_SECONDS
                    await self._beat()
                if loop.time() >= sweeps:
                    sweeps = loop.time() + _SWEEP_SECONDS
                    await self.sweep()
                waits.ends()
            except CoregwError as error:
                waits.occurs(error)
            except Exception:
                logger.exception("the upkeep of the store failed")

    async def _beat(self) -> None:
        """Say that the uploads in progress live."""
        if self._payloads.uploads:
            await self._database.write(
                f"UPDATE uploads SET seen = {NOW} WHERE upload IN ("  # noqa: S608 - a constant
                "SELECT upload FROM uploads WHERE upload = ANY ($1) ORDER BY upload FOR UPDATE)",
                list(self._payloads.uploads),
            )

    async def sweep(self, abandoned_ms: int = _ABANDONED_MS) -> int:
        """Drop abandoned uploads and forget old attempts; return how many uploads were dropped.

        Any number of gateways may do this at once. A commit that comes after all finds its upload dropped.

        Raises:
            InvalidInput: The bucket is that of another database now; no chunk was removed.
            Unavailable: The database or the bucket does not answer.
        """
        await self._database.write(
            f"UPDATE uploads SET is_dropped = true WHERE upload IN (SELECT upload FROM uploads "  # noqa: S608
            f"WHERE NOT is_dropped AND seen < {NOW} - $1::bigint FOR UPDATE SKIP LOCKED)",
            abandoned_ms,
        )
        await self._database.write(
            f"DELETE FROM attempts WHERE attempt IN (SELECT attempt FROM attempts "  # noqa: S608
            f"WHERE dated < {NOW} - $1::bigint FOR UPDATE SKIP LOCKED)",
            _ATTEMPTS_MS,
        )
        await self._fold_sizes()
        await self._claim()
        dropped = 0
        while True:
            rows = await self._database.read("SELECT upload FROM uploads WHERE is_dropped LIMIT $1", _DROPPED_AT_ONCE)
            for row in rows:
                await drop_upload(self._database, self._payloads.chunks, row[0])
            dropped += len(rows)
            if len(rows) < _DROPPED_AT_ONCE:
                return dropped

    async def _fold_sizes(self) -> None:
        """Sum the changes of sizes up to one row."""
        (row,) = await self._database.read("SELECT count(*) FROM sizes")
        if row[0] >= _FOLDED_FROM:
            await self._database.write(
                "WITH taken AS (DELETE FROM sizes WHERE ctid IN (SELECT ctid FROM sizes FOR UPDATE SKIP LOCKED) "
                "RETURNING change) INSERT INTO sizes SELECT sum(change) FROM taken HAVING count(*) > 0"
            )
