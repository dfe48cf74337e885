"""The clock of a store in PostgreSQL when the clock of the database's machine is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator

import asyncpg
import pytest

from coregw.store import Stored, Table
from coregw.store.postgres import PostgresStore, open_store
from coregw.store.postgres import schema as tables
from postgres_support import new_schema
from servers import Postgres
from store_payloads import multihash_of

pytestmark = pytest.mark.anyio

GRACE = 120.0
YEARS = 10 * 365 * 86_400.0
ROOTS = [bytes([i]) * 32 for i in range(4)]
PAYLOADS = [b"payload %d" % i for i in range(4)]


class Site:
    """A store, and the system's clock of its database.

    Attributes:
        error: How many seconds the system's clock is ahead.
    """

    def __init__(self, store: PostgresStore, connection: object) -> None:
        self.store = store
        self.error = 0.0
        self._seconds = 1_800_000_000.0
        self._connection = connection

    async def wait(self, seconds: float) -> None:
        """Let time pass, as the upkeep of a gateway notices."""
        while seconds > 0:
            self._seconds += min(seconds, 20.0)
            seconds -= 20.0
            await self.set_clock()
            await self._connection.execute("SELECT coregw_tick()")  # type: ignore[attr-defined]

    async def set_clock(self) -> None:
        now = int((self._seconds + self.error) * 1000)
        await self._connection.execute(  # type: ignore[attr-defined]
            f"CREATE OR REPLACE FUNCTION coregw_system_ms() RETURNS bigint LANGUAGE sql AS 'SELECT {now}'"
        )

    async def put(self, number: int) -> None:
        await self.store.put({Table.ROOTS: [(ROOTS[number], b"")]})
        await self.store.put_payloads([(multihash_of(PAYLOADS[number]), PAYLOADS[number])])

    async def collect(self) -> list[bool]:
        """Remove all old roots and payloads; which are left."""
        multihashes = [multihash_of(payload) for payload in PAYLOADS]
        async with self.store.collect(GRACE) as collection:
            assert await collection.expire() == []
            await collection.remove(Stored.ROOTS, ROOTS)
            await collection.remove(Stored.PAYLOADS, multihashes)
        roots = [row is not None for row in await self.store.get(Table.ROOTS, ROOTS)]
        assert roots == [size is not None for size in await self.store.stat_payloads(multihashes)]
        return roots


@pytest.fixture
async def site(primary: Postgres) -> AsyncIterator[Site]:
    url = new_schema(primary)
    async with await open_store(url, slice_seconds=0.0) as store:
        connection = await asyncpg.connect(url)
        site = Site(store, connection)
        await site.set_clock()
        await connection.execute("UPDATE state SET clock = 1800000000000, system_ms = 1800000000000")
        yield site
        await connection.close()
    primary.execute(f"DROP SCHEMA {url.rpartition('=')[2]} CASCADE")


@pytest.mark.parametrize("error", [YEARS, -YEARS])
async def test_a_wrong_clock_lets_nothing_be_removed_that_was_stored_just_now(site: Site, error: float) -> None:
    await site.put(0)
    for number, site.error in enumerate((error, 0.0, error), 1):
        await site.set_clock()
        assert (await site.collect())[:number] == [True] * number
        await site.put(number)
    assert await site.collect() == [True] * 4
    await site.wait(GRACE)
    await site.wait(1.0)
    assert await site.collect() == [False] * 4


async def test_time_in_which_no_gateway_runs_counts_as_one_step(site: Site) -> None:
    await site.put(0)
    site.error = YEARS
    await site.set_clock()
    await site.wait(GRACE - 61.0)
    assert (await site.collect())[0]
    await site.wait(62.0)
    assert not (await site.collect())[0]


async def test_uploads_and_attempts_survive_a_wrong_clock(site: Site) -> None:
    assert await site.store.compare_and_set(Table.RECORDS, b"key", None, b"value")
    connection = site._connection
    await connection.execute("INSERT INTO uploads VALUES (gen_random_uuid(), coregw_now())")  # type: ignore[attr-defined]
    site.error = YEARS
    await site.set_clock()
    assert await site.store.sweep(3_600_000) == 0
    assert await connection.fetchval("SELECT count(*) FROM attempts") == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["roots", "payloads"])
async def test_a_store_is_migrated_with_a_wrong_clock(primary: Postgres, kind: str) -> None:
    """What was stored last before the migration counts as stored at that time."""
    url = new_schema(primary)
    connection = await asyncpg.connect(url)
    for script in tables._MIGRATIONS[:3]:
        await connection.execute(script)
    await connection.execute("CREATE TABLE coregw_schema (version int); INSERT INTO coregw_schema VALUES (3)")
    if kind == "roots":
        await connection.execute("INSERT INTO roots VALUES ($1, '', 1700000000000)", ROOTS[0])
    await connection.execute(
        "INSERT INTO payloads VALUES ($1, 9, 1699999999000, gen_random_uuid(), NULL, $2)",
        multihash_of(PAYLOADS[0]),
        PAYLOADS[0],
    )
    async with await open_store(url, slice_seconds=0.0) as store:
        async with store.collect(GRACE) as collection:
            assert await collection.expire() == []
            assert await collection.remove(Stored.ROOTS, [ROOTS[0]]) == [False]
            assert await collection.remove(Stored.PAYLOADS, [multihash_of(PAYLOADS[0])]) == [False]
        assert await connection.fetchval("SELECT clock < 1700000100000 FROM state")
    await connection.close()
    primary.execute(f"DROP SCHEMA {url.rpartition('=')[2]} CASCADE")
