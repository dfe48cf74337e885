"""Reads of pages from standbys, if the address names several servers. A miss is asked of the primary."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from coregw.errors import CoregwError
from coregw.failures import RepeatedFailure
from coregw.store.postgres.connections.database import Database, Query, Row

__all__ = ["Replicas"]

logger = logging.getLogger("coregw.store")

_CONNECTIONS: Final = 2
_RETRY_SECONDS: Final = 30.0
_READ_SECONDS: Final = 1.0


class Replicas:
    """Connections to one of the standbys, opened when they are needed. For tasks of one event loop.

    Args:
        url: The address of the store.
        queries: Queries that are prepared on its connections, with arguments.
    """

    def __init__(self, url: str, queries: Sequence[Query]) -> None:
        self._url = url
        self._queries = queries
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host", "")
        self.is_used: Final = "," in hosts
        self._database: Database | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._next_attempt = 0.0
        self._away = RepeatedFailure(logger, "reads go to the primary", "reads go to a standby again")
        self.hits = 0
        """How many rows a standby returned."""

    async def read(self, query: str, *arguments: object) -> list[Row]:
        """Return what a standby has; nothing if none answers soon."""
        if not self.is_used:
            return []
        if self._database is None:
            if self._connecting is None and time.monotonic() >= self._next_attempt:
                self._connecting = asyncio.get_running_loop().create_task(self._connect())
            return []
        try:
            rows = await self._database.read(query, *arguments, seconds=_READ_SECONDS)
        except CoregwError as error:
            self._away.occurs(f"the standby failed: {error}")
            self._next_attempt = time.monotonic() + _RETRY_SECONDS
            lost, self._database = self._database, None
            if lost is not None:
                await lost.close()
            return []
        self.hits += len(rows)
        return rows

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        if self._database is not None:
            await self._database.close()

    async def _connect(self) -> None:
        try:
            database = await Database.connect(self._url, _CONNECTIONS, attributes="standby")
            try:
                await database.warm(*self._queries)
            except BaseException:
                await database.close()
                raise
            self._database = database
            self._away.ends()
        except CoregwError as error:
            self._away.occurs(f"no standby answers: {error}")
            self._next_attempt = time.monotonic() + _RETRY_SECONDS
        finally:
            self._connecting = None
