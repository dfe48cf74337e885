"""A primary is killed under load and its standby promoted: what was acknowledged is there, and gateways go on."""

from __future__ import annotations

import asyncio
import itertools
import signal
from contextlib import suppress

import pytest

from coregw.errors import Unavailable
from coregw.store import Table
from coregw.store.postgres import PostgresStore, open_store
from servers import Postgres, postgres, standby
from store_payloads import random_bytes

pytestmark = pytest.mark.anyio

PAGES, RECORDS = Table.PAGES, Table.RECORDS


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Ledger:
    """What was acknowledged."""

    def __init__(self) -> None:
        self.pages: list[bytes] = []
        self.revisions: dict[bytes, int] = {}
        self.is_stopped = False

    async def write(self, store: PostgresStore, writer: int) -> None:
        """Store pages, and count revisions up by compare-and-set, as a publication does."""
        name, revision = b"name %d" % writer, 0
        for number in itertools.count():
            if self.is_stopped:
                return
            await asyncio.sleep(0)  # a closed store refuses at once
            key = random_bytes(32, 1_000_000 * writer + number)
            with suppress(Unavailable):
                await store.put({PAGES: [(key, key * 20)]})
                self.pages.append(key)
                expected = b"%d" % revision if revision else None
                row = (b"%s/%d" % (name, revision + 1), b"")
                assert await store.compare_and_set(RECORDS, name, expected, b"%d" % (revision + 1), [row])
                revision += 1
                self.revisions[name] = revision

    async def grow(self, count: int) -> None:
        """Wait until so many more revisions are acknowledged."""
        target = sum(self.revisions.values()) + count
        async with asyncio.timeout(60):
            while sum(self.revisions.values()) < target:
                await asyncio.sleep(0.01)

    async def check(self, store: PostgresStore) -> None:
        """Everything acknowledged is there, and revisions have no gaps."""
        for start in range(0, len(self.pages), 1000):
            keys = self.pages[start : start + 1000]
            assert await store.get(PAGES, keys) == [key * 20 for key in keys]
        for name, revision in self.revisions.items():
            assert await store.get(RECORDS, [name]) == [b"%d" % revision]
            rows = await store.list_rows(RECORDS, name + b"/", None, 100_000)
            assert {key for key, _ in rows} == {b"%s/%d" % (name, i) for i in range(1, revision + 1)}


async def test_a_standby_takes_over_and_nothing_acknowledged_is_lost() -> None:
    with postgres() as primary, standby(primary) as follower:
        await asyncio.to_thread(in_sync, primary)
        url = f"postgresql://coregw@127.0.0.1:{primary.port},127.0.0.1:{follower.port}/postgres?sslmode=disable"
        ledger = Ledger()
        async with await open_store(url) as one, await open_store(url) as two:
            writers = [asyncio.create_task(ledger.write(store, i)) for i, store in enumerate([one, two, one, two])]
            await ledger.grow(100)
            async with asyncio.timeout(60):
                while not (await one.figures()).replica_hits:  # pages are read from the standby
                    await one.get(PAGES, ledger.pages[:10])
                    await asyncio.sleep(0.01)
            newest = ledger.pages[-5:]  # what the standby lacks is asked of the primary
            assert await one.get(PAGES, newest) == [key * 20 for key in newest]
            await asyncio.to_thread(primary.stop, signal.SIGKILL)
            await asyncio.to_thread(follower.execute, "SELECT pg_promote()")
            await ledger.grow(100)
            ledger.is_stopped = True
            await asyncio.gather(*writers)
            await ledger.check(two)
            assert await one.obstacles() == []


def in_sync(primary: Postgres) -> None:
    """Wait until the standby confirms commits."""
    query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'quorum'"
    while primary.execute(query) != [(1,)]:
        pass
