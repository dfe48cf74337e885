"""Checks of a database before it is used: what may lose acknowledged data is refused, unless it is allowed by name.

A bucket is refused if it is not the database's own. A database that was restored has all rows of the one that it was
made from, and would remove that one's chunks. Two things tell them apart:

```
state.place         system identifier, OIDs of database and schema    another one: dumped, copied; a new incarnation
state.claim         the object coregw-store.json of the bucket        another one: the other database goes on with it
state.next_claim    the one that is about to replace it
```

The claim is ``{"store":"coregw","id":…,"incarnation":…,"turn":…}``, in which the turn is random. It is replaced at each
start, and before each sweep and collection. So a database that was restored physically, which has the place of the
other one, is refused unless it has all of that one's turns.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import unquote_plus
from uuid import UUID, uuid4

import msgspec

from coregw.errors import InvalidInput, Unavailable
from coregw.store.collection import Identity
from coregw.store.postgres.connections import ConnectionPool, Row
from coregw.undecodable import UNDECODABLE

if TYPE_CHECKING:
    from coregw.store.buckets import BucketChunks

__all__ = ["UNSAFE", "check_server", "identify", "split_unsafe"]

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

_PARAMETER: Final = "unsafe"

_QUERY: Final = """
SELECT current_setting('server_version_num')::int AS version, pg_is_in_recovery() AS is_standby,
  current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes,
  current_setting('synchronous_commit') AS synchronous_commit,
  current_setting('synchronous_standby_names') AS standby_names,
  (SELECT count(*) FROM pg_stat_replication) AS standbys,
  current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int AS connections,
  (SELECT sum(numbackends)::int FROM pg_stat_database) AS used
"""


_LOCK: Final = "SELECT pg_advisory_lock(hashtext('coregw identity'), hashtext(current_schema()))"
"""Held to the end of the session."""

_IDENTITY: Final = """
SELECT store, incarnation, place, claim, next_claim, (
  SELECT concat_ws(' ', (SELECT system_identifier FROM pg_control_system()), d.oid, n.oid)
  FROM pg_database d, pg_namespace n WHERE d.datname = current_database() AND n.nspname = current_schema()) AS here
FROM state
"""


class _Claim(msgspec.Struct, frozen=True):
    store: Literal["coregw"]
    id: UUID
    incarnation: UUID
    turn: UUID


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


def split_unsafe(url: str) -> tuple[str, frozenset[str]]:
    """Return the address of a database as asyncpg takes it, and the names of `UNSAFE` that its ``unsafe`` lists.

    Raises:
        InvalidInput: A name is not known.
    """
    location, question, query = url.partition("?")
    options = [option.partition("=") for option in query.split("&")]
    lists = [unquote_plus(value) for name, _, value in options if name == _PARAMETER]
    if not lists:
        return url, frozenset()
    names = frozenset(name.strip() for each in lists for name in each.split(","))
    if unknown := sorted(names - UNSAFE.keys()):
        raise InvalidInput(f"the address of the store has unsafe={unknown[0]}, expected names of {', '.join(UNSAFE)}")
    others = "&".join("".join(option) for option in options if option[0] != _PARAMETER)
    return f"{location}{question if others else ''}{others}", names


async def check_server(database: ConnectionPool, allowed: Collection[str], connections: int) -> None:
    """Check the settings of the server.

    Args:
        database: The connections to it.
        allowed: The names of `UNSAFE` that are allowed.
        connections: How many connections this gateway will open, besides those it has.

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
            f"this gateway opens {connections} more connections, {server.used} are in use, and the database allows "
            f"{server.connections}: raise its max_connections"
        )
    if 2 * (server.used + connections) > server.connections:
        logger.warning(
            "%d of %d connections of the database are in use with this gateway; another one may find none",
            server.used + connections,
            server.connections,
        )
    for name in _unsafe(server):
        if name not in allowed:
            raise Unavailable(f"{UNSAFE[name]}. Change the database, or allow it with unsafe={name} in its address")
        logger.warning("allowed by unsafe in the address of the store: %s", UNSAFE[name])


async def identify(
    database: ConnectionPool, bucket: BucketChunks | None, *, adopt: bool = False, given: Identity | None = None
) -> Identity:
    """Return which store is in a database, and claim the bucket for it.

    Args:
        database: The connections to it, whose tables are migrated.
        bucket: The bucket for chunks, if it has one.
        adopt: Whether the database takes the place of another incarnation that has claimed the bucket.
        given: Another identity for it.

    Raises:
        InvalidInput: The bucket is that of another store, or without `adopt` of another incarnation of this one.
        Unavailable: The database or the bucket does not answer.
    """
    async with database.session() as connection:
        await connection.execute(_LOCK)
        row = await connection.fetchrow(_IDENTITY)
        found = Identity(row["store"], row["incarnation"])
        if row["place"] not in (None, row["here"]):
            logger.warning("the database was copied or restored: the store in it is another incarnation from now on")
            found = Identity.new(found.store)
        claim = None
        if bucket is not None:
            claim = await bucket.claim()
            _require_own(bucket.place, claim, row, found, adopt=adopt)
        found = given or found
        new = msgspec.json.encode(_Claim("coregw", *found, uuid4())).decode()
        await connection.execute(
            "UPDATE state SET store = $1, incarnation = $2, place = $3, claim = $4, next_claim = $5",
            *found,
            row["here"],
            *((row["claim"], row["next_claim"]) if bucket is None else (claim, new)),
        )
        if bucket is not None:
            await bucket.set_claim(new)
            await connection.execute("UPDATE state SET claim = $1", new)
    return found


def _require_own(place: str, claim: str | None, row: Row, found: Identity, *, adopt: bool) -> None:
    """Raise `InvalidInput` unless a claim to a bucket is that of a database."""
    if adopt and claim is None:
        return
    if claim in (row["claim"], row["next_claim"]) and row["incarnation"] == found.incarnation:
        return
    if claim is None:
        if row["claim"] is None:
            return
        raise InvalidInput(
            f"the bucket {place} is not that of this store ({found.store}), which has used another one. If its chunks "
            "were moved there, `coregw serve --adopt` claims it"
        )
    try:
        other = msgspec.json.decode(claim, type=_Claim)
    except UNDECODABLE as error:
        raise InvalidInput(f"the bucket {place} has a malformed coregw-store.json: {error}") from error
    if other.id != found.store:
        raise InvalidInput(f"the bucket {place} is that of another store ({other.id}, not {found.store})")
    if not adopt:
        raise InvalidInput(
            f"the bucket {place} is that of another incarnation of this store ({other.incarnation}, this is "
            f"{found.incarnation}), or this database is older than its last use: it was restored or copied. Use "
            "another bucket; or if no gateway uses the other database any more, `coregw serve --adopt` takes its place"
        )


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
