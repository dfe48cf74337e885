"""Checks of a database before it is used: what may lose acknowledged data is refused, unless it is allowed by name."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from coregw.errors import InvalidInput, Unavailable
from coregw.store.postgres.connections.database import Database

__all__ = ["UNSAFE", "check_server", "parse_unsafe"]

logger = logging.getLogger("coregw.store")

MIN_VERSION: Final = 140_000

UNSAFE: Final = {
    "fsync": "fsync is off: a power cut may lose or destroy the whole database",
    "full_page_writes": "full_page_writes is off: a power cut may leave torn pages, which destroy rows of any age",
    "synchronous_commit": "synchronous_commit is weaker than 'on': a crash may lose acknowledged writes, and even keep "
    "roots whose pages it has lost",
    "standbys": "standbys follow, but synchronous_standby_names is empty: promoting one may lose acknowledged writes",
}
"""What a database may do only if it is allowed, and what can be lost then."""

_QUERY: Final = """
SELECT current_setting('server_version_num')::int AS version, pg_is_in_recovery() AS is_standby,
  current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
  current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('synchronous_standby_names') AS standby_names,
  (SELECT count(*) FROM pg_stat_replication) AS standbys,
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS connections,
  (SELECT sum(numbackends)::int FROM pg_stat_database) AS used
"""


class _Server(NamedTuple):
    version: int
    is_standby: bool
    fsync: str
    full_page_writes: str
    synchronous_commit: str
    standby_names: str
    standbys: int
    connections: int
    used: int


def parse_unsafe(text: str) -> frozenset[str]:
    """Parse a list of names of `UNSAFE`, separated by commas, or ``none``.

    Raises:
        InvalidInput: A name is not known.
    """
    names = frozenset(filter(None, (name.strip() for name in text.split(",")))) - {"none"}
    if unknown := sorted(names - UNSAFE.keys()):
        raise InvalidInput(f"{unknown[0]!r} is not one of {', '.join(UNSAFE)} or none")
    return names


async def check_server(database: Database, allowed: Collection[str], connections: int) -> None:
    """Check the settings of the server.

    Args:
        database: The connections to it.
        allowed: The names of `UNSAFE` that are allowed.
        connections: How many connections this gateway will open with all of its processes, besides those it has.

    Raises:
        Unavailable: The server is a standby, too old, has too few connections, or may lose acknowledged data.
    """
    (row,) = await database.read(_QUERY)
    server = _Server(*row)
    if server.version < MIN_VERSION:
        version, least = server.version // 10_000, MIN_VERSION // 10_000
        raise Unavailable(f"the database is PostgreSQL {version}; coregw needs at least {least}")
    if server.is_standby:
        raise Unavailable("the database is a standby, which accepts no writes; name the primary in the address")
    if server.used + connections > server.connections:
        raise Unavailable(
            f"this gateway opens {connections} more connections (store_connections for each of its workers), "
            f"{server.used} are in use, and the database allows {server.connections}: raise its max_connections, or "
            "lower store_connections or workers"
        )
    if 2 * (server.used + connections) > server.connections:
        logger.warning(
            "%d of %d connections of the database are in use with this gateway; another one may find none",
            server.used + connections,
            server.connections,
        )
    for name in _unsafe(server):
        if name not in allowed:
            raise Unavailable(f"{UNSAFE[name]}. Change the database, or allow it with COREGW_STORE_UNSAFE={name}")
        logger.warning("allowed by COREGW_STORE_UNSAFE: %s", UNSAFE[name])


def _unsafe(server: _Server) -> Iterator[str]:
    """The names of `UNSAFE` that are true of a server."""
    if server.fsync != "on":
        yield "fsync"
    if server.full_page_writes != "on":
        yield "full_page_writes"
    if server.synchronous_commit not in ("on", "remote_apply"):
        yield "synchronous_commit"
    if server.standbys and not server.standby_names:
        yield "standbys"
