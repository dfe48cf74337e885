"""What could lose data in a database that several gateways share: standbys, cancellation, lost answers, garbage."""

from __future__ import annotations

import asyncio
import random
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from coregw.errors import (
    CoregwError,
    InvalidInput,
    PayloadNotFound,
    RootNotFound,
    StorageFull,
    StoreDamaged,
    Unavailable,
)
from coregw.store import CHUNK_BYTES, Stored, Table
from coregw.store.addresses import BucketAddress, masked
from coregw.store.postgres import PostgresStore, open_store
from coregw.store.postgres.connections import translated
from coregw.store.protocol import Guide, Put, WriteOutcomes
from network import Proxy, proxy_of
from postgres_support import new_bucket, new_schema
from servers import Bucket, Postgres, postgres, unprivileged
from store_payloads import multihash_of, random_bytes, read, upload
from tables import rows

pytestmark = pytest.mark.anyio

A, B, C = (bytes([i]) * 32 for i in range(3))
PAGES, ROOTS, RECORDS = Table.PAGES, Table.ROOTS, Table.RECORDS
WAITING = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
BLOCKED = f"{WAITING} OR wait_event_type = 'Lock'"  # a put of the same row waits for the one that waits for a standby


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition; the suite's own patience ends it."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


@asynccontextmanager
async def gateways(primary: Postgres, count: int, **options: object) -> AsyncIterator[list[PostgresStore]]:
    """Stores of several gateways on one schema."""
    url = new_schema(primary)
    arguments = {"slice_seconds": 0.0} | options
    async with AsyncExitStack() as stack:
        opening = [await open_store(url, **arguments) for _ in range(count)]  # type: ignore[arg-type]
        yield [await stack.enter_async_context(store) for store in opening]


async def until_commits_wait(primary: Postgres) -> None:
    """Wait until a changed list of standbys is in force: until a commit waits, which is then given up."""

    async def commit() -> None:
        connection = await asyncpg.connect(primary.url)
        while True:
            await connection.execute("SELECT pg_logical_emit_message(true, '', '')")

    commits = asyncio.create_task(commit())
    await until(lambda: primary.execute(WAITING))
    primary.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    with suppress(asyncpg.PostgresError, OSError):
        await commits
    await until(lambda: not primary.execute(WAITING))


# --- standbys ---------------------------------------------------------------------------------------------------------


async def test_nothing_is_acknowledged_that_no_standby_has(primary: Postgres) -> None:
    async with gateways(primary, 2) as (one, two):
        with primary.configured(synchronous_standby_names="nobody"):
            await until_commits_wait(primary)
            first = asyncio.create_task(one.put({PAGES: [(A, b"page")]}))
            await until(lambda: len(primary.execute(WAITING)) == 1)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert len(primary.execute(WAITING)) == 1  # the write itself goes on
            assert await two.get(PAGES, [A]) == [None]
            again = asyncio.create_task(two.put({PAGES: [(A, b"page")]}))
            record = asyncio.create_task(two.compare_and_set(RECORDS, B, None, b"value"))
            await until(lambda: len(primary.execute(BLOCKED)) >= 3)
            for _ in range(3):  # an administrator cancels the waits: the rows become visible, but no call returns
                primary.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
                await until(lambda: len(primary.execute(BLOCKED)) >= 2)
            assert await one.get(PAGES, [A]) == [b"page"]
            assert not again.done()
            assert not record.done()
            third = asyncio.create_task(one.put({PAGES: [(A, b"page")]}))  # it is there, on this server alone
            await until(lambda: len(primary.execute(BLOCKED)) >= 4)
            assert not third.done()
        await asyncio.gather(again, third)
        assert await record
        assert await one.get(RECORDS, [B]) == [b"value"]


async def test_unsafe_servers_are_refused_unless_allowed_by_name() -> None:
    with postgres(fsync="off", full_page_writes="off") as server:
        for query, reason in [("", "fsync is off"), ("?unsafe=fsync", "full_page_writes is off")]:
            with pytest.raises(Unavailable, match=f"{reason}.*unsafe="):
                await open_store(f"{server.url}{query}")
        for query in ("?unsafe=fsync,full_page_writes", "?unsafe=fsync&sslmode=disable&unsafe=full%5Fpage_writes"):
            await (await open_store(f"{server.url}{query}")).close()
        with pytest.raises(Unavailable, match="synchronous_commit"):
            await open_store(f"{server.url}?synchronous_commit=off&unsafe=fsync,full_page_writes")
        with pytest.raises(InvalidInput, match="unsafe=speed, expected names of fsync, full_page_writes"):
            await open_store(f"{server.url}?unsafe=fsync,speed")


async def test_asynchronous_standbys_are_refused(primary: Postgres) -> None:
    prefix, _ = unprivileged()
    folder = primary.data.parent / "received"
    folder.mkdir()
    folder.chmod(0o777)
    command = [*prefix, str(primary.binaries / "pg_receivewal"), "-D", str(folder), "-h", "127.0.0.1"]
    receiver = subprocess.Popen([*command, "-p", str(primary.port), "-U", "coregw"], cwd="/")
    try:
        await until(lambda: primary.execute("SELECT 1 FROM pg_stat_replication"))
        with pytest.raises(Unavailable, match="synchronous_standby_names is empty"):
            await open_store(new_schema(primary))
        with primary.configured(synchronous_standby_names="ANY 1 (nobody, pg_receivewal)"):
            await until(lambda: primary.execute("SHOW synchronous_standby_names")[0][0])
            receiver.terminate()
            receiver.wait()
    finally:
        receiver.kill()
        receiver.wait()


async def test_too_few_connections_are_refused(primary: Postgres) -> None:
    with pytest.raises(Unavailable, match=r"opens 80 more connections.*allows 57"):
        await open_store(new_schema(primary), connections=79)


# --- lost connections -------------------------------------------------------------------------------------------------


async def lose(proxy: Proxy, after: bytes, call: Callable[[], Awaitable[object]]) -> object:
    """Call with the connection cut when the server answers a message with these bytes."""
    proxy.cut_before_answer_to = after
    before = proxy.cuts
    result = await call()
    assert proxy.cuts == before + 1
    return result


async def test_a_lost_answer_is_recognised(primary: Postgres) -> None:
    url = new_schema(primary)
    async with (
        proxy_of(primary.port) as proxy,
        await open_store(url.replace(str(primary.port), str(proxy.port))) as store,
    ):
        name, data = multihash_of(b"data"), random_bytes(CHUNK_BYTES + 1)
        assert await lose(proxy, b"new-record", lambda: store.compare_and_set(RECORDS, b"new-record", None, b"1"))
        assert await lose(proxy, b"new-record", lambda: store.compare_and_set(RECORDS, b"new-record", b"1", b"2"))
        assert not await store.compare_and_set(RECORDS, b"new-record", b"1", b"3")
        assert await store.get(RECORDS, [b"new-record"]) == [b"2"]
        assert await lose(proxy, name, lambda: store.put_payloads([(name, b"data")])) == [True]
        assert await store.put_payloads([(name, b"data")]) == [False]
        assert await lose(proxy, multihash_of(data), lambda: upload(store, data)) is True
        assert await upload(store, data) is False
        assert await read(store, multihash_of(data)) == data
        assert primary.execute(f"SELECT count(*) FROM {url.rpartition('=')[2]}.uploads") == [(0,)]  # noqa: S608


async def test_acknowledged_writes_survive_crashes_of_the_server() -> None:
    with postgres() as server:
        acknowledged: list[bytes] = []
        stopped = False
        async with gateways(server, 2) as stores:

            async def write(number: int, store: PostgresStore) -> None:
                for i in range(100_000):
                    key = b"%d %d" % (number, i)
                    with suppress(Unavailable):
                        assert await store.compare_and_set(RECORDS, key, None, key)
                        acknowledged.append(key)
                    if stopped:
                        return

            writers = [asyncio.create_task(write(number, store)) for number, store in enumerate(stores * 2)]
            for _ in range(2):
                target = len(acknowledged) + 50
                await until(lambda target=target: len(acknowledged) >= target)
                await asyncio.to_thread(server.stop, 3)  # SIGQUIT: no checkpoint, so the next start recovers
                await asyncio.to_thread(server.start)
            target = len(acknowledged) + 50
            await until(lambda: len(acknowledged) >= target)
            stopped = True
            await asyncio.gather(*writers)
            assert await stores[0].get(RECORDS, acknowledged) == acknowledged
            await until_healthy(stores)


async def until_healthy(stores: list[PostgresStore]) -> None:
    for store in stores:
        for _ in range(100):
            if await store.healthy():
                break
            await asyncio.sleep(0.05)
        assert await store.obstacles() == []


async def test_a_server_that_is_away_is_named_as_an_obstacle() -> None:
    with postgres() as server:
        async with gateways(server, 1) as (store,):
            await asyncio.to_thread(server.stop)
            assert not await store.healthy()
            (obstacle,) = await store.obstacles()
            assert "database" in obstacle
            with pytest.raises(Unavailable, match="database"):
                await store.get(PAGES, [A])
            await asyncio.to_thread(server.start)
            await until_healthy([store])


@rows(
    ("error", "expected"),
    [
        (asyncpg.DiskFullError("no room"), StorageFull),
        (asyncpg.DataCorruptedError("invalid page"), StoreDamaged),
        (asyncpg.AdminShutdownError("shutting down"), Unavailable),
        (asyncpg.UndefinedTableError("no table"), Unavailable),
        (ConnectionResetError("reset"), Unavailable),
    ],
)
def test_errors_of_the_database_are_translated(error: Exception, expected: type[Exception]) -> None:
    assert type(translated(error)) is expected


# --- batches ----------------------------------------------------------------------------------------------------------


def tree(
    root: bytes, *, requires: Sequence[bytes] = (), since: int | None = None, replaces: bytes | None = None
) -> Put:
    rows = {PAGES: [(multihash_of(root)[2:], b"page of " + root)], ROOTS: [(root, b"")]}
    return Put(rows, requires, since, replaces)


async def held(store: PostgresStore, *roots: bytes) -> list[tuple[bytes | None, bool]]:
    """The value of each root, and whether its page is there."""
    pages = await store.get(PAGES, [multihash_of(root)[2:] for root in roots])
    values = await store.get(ROOTS, roots)
    return [(value, page is not None) for value, page in zip(values, pages, strict=True)]


Call = Callable[[], Awaitable[list[Any]]]


class Calls:
    """Stands between a store and its database: `around` makes each call."""

    def __init__(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[Sequence[object]] = []
        self.around: Callable[[Call, Sequence[object]], Awaitable[list[Any]]] | None = None
        write = store._database.write

        async def counted(query: str, *arguments: object) -> list[Any]:
            self.made.append(arguments)
            call = lambda: write(query, *arguments)  # noqa: E731 - repeated by the tests
            return await (call() if self.around is None else self.around(call, arguments))

        monkeypatch.setattr(store._database, "write", counted)


async def test_each_write_of_a_batch_has_an_outcome_and_all_share_a_call(
    primary: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(primary, 1) as (store,):
        since = await store.put({PAGES: [(A, b"page")]}, durable=False)
        await store.put({ROOTS: [(b"expired", b"")]})
        await asyncio.sleep(0.01)
        async with store.collect(0) as collection:
            assert await collection.expire() == []
        await store.put({ROOTS: [(b"held", b""), (b"whole", b"whole"), (b"lost", b"incomplete")]})
        now = await store.put({RECORDS: [(b"record", b"before")]})
        payloads = [(multihash_of(data), data) for data in (b"one", b"", b"one")]
        await store.put_payloads([payloads[1]])
        record = Put({RECORDS: [(b"record", b"twice"), (b"record", b"once more")]}, [b"held"], None)
        guide = Guide(C, [b"first"], [B])
        puts = [
            tree(b"new", requires=[b"held"], since=now),
            tree(b"missing", requires=[b"held", b"absent", b"expired"]),
            tree(b"swept", since=since),
            tree(b"whole", requires=[b"absent"], replaces=b"incomplete"),
            tree(b"lost", replaces=b"incomplete"),
            record,
            Put({RECORDS: [(b"record", b"after")]}, [], None),
            Put(
                {RECORDS: [(b"record", b"never")], PAGES: [(A, b"page")]},
                [b"absent"],
                None,
                None,
                [Guide(A, [b""], [B])],
            ),
            Put({PAGES: [(C, b"guided"), (B, b"below")]}, [], since, None, [guide]),
            Put({PAGES: [(C, b"guided"), (B, b"below")]}, [], None, None, [guide]),
            Put({}, [], None),
        ]
        calls = Calls(store, monkeypatch)
        outcomes = await store.write(payloads, puts, [[b"held", b"absent", b"expired", b"lost", b"held"], []])
        assert len(calls.made) == 1
        assert outcomes.payloads == [None, None, None]
        kinds = [int, RootNotFound, Unavailable, int, int, int, int, RootNotFound, int, int, int]
        assert [type(each) for each in outcomes.puts] == kinds
        assert b"absent".hex() in str(outcomes.puts[1]) or b"expired".hex() in str(outcomes.puts[1])
        assert outcomes.renewals == [[0, None, None, 0, 0], []]
        assert await store.stat_payloads([name for name, _ in payloads]) == [3, 0, 3]
        assert await held(store, b"new", b"missing", b"swept") == [(b"", True), (None, False), (None, False)]
        assert await held(store, b"whole", b"lost") == [(b"whole", False), (b"", True)]
        assert await store.get(RECORDS, [b"record"]) == [b"after"]
        assert await store.list_guides(None, 9) == [guide]
        stored = [(root, b"") for root in (b"expired", b"held", b"lost", b"new")] + [(b"lost", b"incomplete")]
        sizes = sum(len(key) + len(value) for key, value in [*stored, (b"whole", b"whole"), (b"record", b"before")])
        pages = 32 + 4 + sum(32 + len(b"page of " + root) for root in (b"new", b"lost")) + 64 + len(b"guidedbelow")
        data = sum(len(name) + len(data) for name, data in payloads[:2])
        assert (await store.usage()).data == sizes - len(b"lost") + pages + data + guide.size
        assert await store.write([], [], []) == WriteOutcomes([], [], [])


async def test_a_batch_is_stored_as_far_as_there_is_room_in_calls_of_some_size(
    primary: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(primary, 1, quota_bytes=1 << 20) as (store,):
        await store.put({ROOTS: [(b"held", b"")]})
        payloads = [(multihash_of(data), data) for data in (random_bytes(400 << 10, 10 + i) for i in range(5))]
        calls = Calls(store, monkeypatch)
        outcomes = await store.write(payloads, [tree(b"small")], [[b"held"]])
        assert [type(each) for each in outcomes.payloads] == [type(None)] * 2 + [StorageFull] * 3
        assert (outcomes.renewals, type(outcomes.puts[0])) == ([[0]], int)
        assert len(calls.made) == 3
        assert await store.get_payloads([name for name, _ in payloads[:2]]) == [data for _, data in payloads[:2]]
        assert await store.get(ROOTS, [b"small"]) == [b""]
    async with gateways(primary, 1) as (store,):
        await store.put({ROOTS: [(b"held", b""), (b"lost", b"incomplete")]})
        store._room.quota_bytes = 0
        puts = [tree(root, replaces=b"incomplete") for root in (b"held", b"lost", b"absent")] + [tree(b"held")]
        outcomes = await store.write([], puts, [])
        assert [type(each) for each in outcomes.puts] == [int, StorageFull, StorageFull, StorageFull]
        assert await held(store, b"held", b"lost", b"absent") == [(b"", False), (b"incomplete", False), (None, False)]


async def test_a_row_that_cannot_be_read_fails_only_the_write_of_a_batch_that_needs_it(
    primary: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(primary, 1) as (store,):

        async def fail(call: Call, arguments: Sequence[object]) -> list[Any]:
            if any(isinstance(each, list) and b"damaged" in each for each in arguments):
                raise StoreDamaged("a block is damaged")
            return await call()

        await store.put({ROOTS: [(b"held", b"")]})
        Calls(store, monkeypatch).around = fail
        payload = (multihash_of(b"data"), b"data")
        outcomes = await store.write([payload], [tree(b"a", requires=[b"damaged"]), tree(b"b")], [[b"held"]])
        assert (outcomes.payloads, outcomes.renewals) == ([None], [[0]])
        assert [type(each) for each in outcomes.puts] == [StoreDamaged, int]
        with pytest.raises(StoreDamaged):
            await store.renew(Stored.ROOTS, [b"damaged"])


async def test_a_repeated_batch_writes_no_record_twice_and_what_was_refused_is_judged_again(
    primary: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(primary, 2) as (store, other):
        record = Put({RECORDS: [(b"record", b"first")], ROOTS: [(b"root", b"")]}, [], None)
        refused = Put({RECORDS: [(b"refused", b"later")]}, [b"absent"], None)
        puts = [record, refused, tree(b"tree")]

        async def repeat(call: Call, _: Sequence[object]) -> list[Any]:
            await call()  # its answer is lost
            assert await other.compare_and_set(RECORDS, b"record", b"first", b"second")
            await other.put({ROOTS: [(b"absent", b"")]})
            return await call()

        async def overlap(call: Call, _: Sequence[object]) -> list[Any]:
            return (await asyncio.gather(*(call() for _ in range(4))))[-1]

        calls = Calls(store, monkeypatch)
        calls.around = repeat
        payload = (multihash_of(b"data"), b"data")
        outcomes = await store.write([payload], puts, [[b"absent"]])
        assert (outcomes.payloads, outcomes.renewals) == ([None], [[0]])
        assert [type(each) for each in outcomes.puts] == [int, int, int]
        assert await store.get(RECORDS, [b"record", b"refused"]) == [b"second", b"later"]
        calls.around = overlap  # the lost connection has not ended its call yet
        outcomes = await store.write([payload], puts, [[b"absent"]])
        assert [type(each) for each in outcomes.puts] == [int, int, int]
        assert [(await each.figures()).retries for each in (store, other)] == [0, 0]
        attempts = f"SELECT count(*) FROM {store.address.rpartition('=')[2]}.attempts"  # noqa: S608
        assert primary.execute(attempts) == [(5,)]  # of two records in each batch, and the one that was set


@pytest.mark.parametrize(
    ("change", "expected", "retries"),
    [
        ("DELETE FROM roots", [None, b""], 1),
        ("UPDATE roots SET value = 'incomplete'", [b"incomplete", b""], 1),
        ("UPDATE roots SET value = 'whole'", [b"whole", b"whole"], 0),
    ],
)
async def test_what_happens_to_a_root_during_its_renewal_is_noticed(
    primary: Postgres, change: str, expected: list[bytes | None], retries: int
) -> None:
    async with gateways(primary, 1) as (store,):
        await store.put({ROOTS: [(b"root", b""), (b"tree", b"")]})
        connection = await asyncpg.connect(f"{primary.url}?search_path={store.address.rpartition('=')[2]}")
        async with connection.transaction():
            await connection.execute(change)
            writing = asyncio.create_task(store.write([], [tree(b"tree", replaces=b"incomplete")], [[b"root"]]))
            await until(lambda: primary.execute(BLOCKED))
        outcomes = await writing
        await connection.close()
        assert outcomes.renewals == [[None if expected[0] is None else 0]]
        assert type(outcomes.puts[0]) is int
        assert await store.get(ROOTS, [b"root", b"tree"]) == expected
        assert [row[1] for row in await held(store, b"tree")] == [expected[1] == b""]
        assert (await store.figures()).retries == retries


# --- several gateways -------------------------------------------------------------------------------------------------


async def test_concurrent_puts_of_the_same_pages_in_any_order_do_not_deadlock(primary: Postgres) -> None:
    async with gateways(primary, 2) as stores:
        pages = [(random_bytes(32, i), random_bytes(500, i)) for i in range(200)]
        before = primary.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")
        for _ in range(5):
            await asyncio.gather(
                *(store.put({PAGES: random.sample(pages, len(pages))}) for store in stores for _ in range(4)),
                *(store.renew(Stored.ROOTS, [key for key, _ in pages]) for store in stores),
            )
        assert [(await store.figures()).retries for store in stores] == [0, 0]
        assert primary.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'") == before


async def test_writes_that_rely_on_old_roots_do_not_deadlock(primary: Postgres) -> None:
    rounds = [[random_bytes(36, 100 * number + i) for i in range(40)] for number in range(20)]
    async with gateways(primary, 2) as (one, two):
        since = await one.put({PAGES: [(A, b"page")]})
        await one.put({ROOTS: [(root, b"") for roots in rounds for root in roots]})
        await asyncio.sleep(0.01)
        batches = [(one, 1), (two, -1), (one, -1), (two, 1)]
        before = primary.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")
        async with one.collect(0):
            for roots in rounds:
                rows, name = [(root, b"") for root in roots], roots[0]
                puts = [Put({PAGES: rows[i : i + 4], ROOTS: rows[i + 2 : i + 6]}, roots[:9], since) for i in range(30)]
                puts += [Put({ROOTS: rows[i::9], RECORDS: rows[i::7]}, [], None, b"incomplete") for i in range(9)]
                payloads = [(multihash_of(root), root) for root in roots]
                await asyncio.gather(
                    one.put({ROOTS: rows}, since=since),
                    two.renew(Stored.ROOTS, roots),
                    two.put({ROOTS: rows[:20]}, requires=roots[20:], since=since),
                    one.put({ROOTS: rows[20:]}, requires=roots[:20], since=since),
                    two.put({RECORDS: [(name, b"put")]}, requires=roots),
                    one.compare_and_set(RECORDS, name, None, b"set", requires=roots[::-1]),
                    *(each.write(payloads, puts[::step], [roots[::step], roots[20:]]) for each, step in batches),
                )
        assert [(await store.figures()).retries for store in (one, two)] == [0, 0]
        assert primary.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'") == before


async def test_garbage_is_collected_beside_the_writes_of_other_gateways(primary: Postgres) -> None:
    """Trees of random pages: whatever a collection removes, a held root keeps all of its pages."""
    rng = random.Random(7)
    pages = [(random_bytes(32, i), random_bytes(100, i)) for i in range(40)]
    trees: dict[bytes, list[bytes]] = {}
    counts = {"stored": 0, "refused": 0, "removed": 0}
    stopped = False
    async with gateways(primary, 3) as (one, two, collector):

        async def write(store: PostgresStore) -> None:
            while not stopped:
                root = rng.randbytes(36)
                chosen = rng.sample(pages, 5)
                trees[root] = [key for key, _ in chosen]
                base = rng.choice(list(trees))
                shared = trees[base] if base != root else []
                try:
                    since = await store.put({PAGES: chosen[:3]}, durable=False)
                    await asyncio.sleep(rng.choice([0, 0, 0.01]))
                    requires = [base] if shared and rng.random() < 0.5 else []
                    trees[root] += shared if requires else []
                    put = Put({PAGES: chosen[3:], ROOTS: [(root, b"")]}, requires, since, b"incomplete")
                    bases = rng.sample(list(trees), min(3, len(trees)))
                    again = Put({ROOTS: [(bases[0], b"")]}, [bases[0]], None, b"incomplete")
                    outcomes = await store.write([], [again, put], [bases])
                    if isinstance(outcomes.puts[1], CoregwError):
                        raise outcomes.puts[1]
                    counts["stored"] += 1
                except (RootNotFound, Unavailable):
                    counts["refused"] += 1

        async def collect() -> None:
            async with collector.collect(0) as collection:
                marked: set[bytes] = set()

                async def keep(roots: list[bytes]) -> None:
                    for root, is_held in zip(roots, await collection.keep(roots), strict=True):
                        marked.update(trees[root] if is_held else [])

                items = await collection.list_items(Stored.ROOTS, None, 10_000)
                await keep([item.key for item in items if item.dated >= collection.before or rng.random() < 0.3])
                while late := await collection.expire():
                    await keep(late)
                await collection.remove(Stored.ROOTS, [item.key for item in items])
                found = await collection.list_items(Stored.PAGES, None, 1000)
                garbage = [item.key for item in found if item.key not in marked]
                counts["removed"] += sum(await collection.remove(Stored.PAGES, garbage))

        writers = [asyncio.create_task(write(store)) for store in (one, two, one, two)]
        for _ in range(25):
            await collect()
        stopped = True
        await asyncio.gather(*writers)
        held = [root for root, row in zip(trees, await one.get(ROOTS, list(trees)), strict=True) if row is not None]
        for root in held:
            assert None not in await two.get(PAGES, trees[root])
        assert held
        assert min(counts.values()) > 0, counts
        assert one.expiries == two.expiries == collector.expiries


async def test_a_gateway_notices_in_one_round_that_another_has_expired_roots(
    primary: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(primary, 2) as (one, two):
        await one.put({PAGES: [(A, b"page")], ROOTS: [(B, b"")]})
        await asyncio.sleep(0.003)
        async with two.collect(0) as collection:
            assert await collection.expire() == []
            with pytest.raises(Unavailable, match="already"):
                async with one.collect(0):
                    pass
        read, rounds = one._database.read, 0

        async def counted(*arguments: Any, **options: Any) -> list[Any]:  # noqa: ANN401
            nonlocal rounds
            rounds += 1
            return await read(*arguments, **options)

        monkeypatch.setattr(one._database, "read", counted)
        assert await one.get(PAGES, [C]) == [None]  # a page is missing, and the answer says that roots have expired
        assert rounds == 1
        assert one.expiries == two.expiries == 1


async def test_an_abandoned_upload_is_swept_and_cannot_be_committed(primary: Postgres, s3: Bucket) -> None:
    async with gateways(primary, 2, bucket=new_bucket(s3)) as (one, two):
        data = random_bytes(2 * CHUNK_BYTES + 5)
        async with one.begin_payload() as writer:
            await writer.write(data)
            await asyncio.sleep(0.01)
            assert await two.sweep(0) == 1
            with pytest.raises(Unavailable, match="dropped"):
                await writer.commit(multihash_of(data))
        with pytest.raises(PayloadNotFound):
            await read(two, multihash_of(data))
        assert await upload(two, data)
        assert await read(one, multihash_of(data)) == data


async def test_a_missing_or_short_chunk_is_damage(primary: Postgres, s3: Bucket) -> None:
    async with gateways(primary, 1, bucket=new_bucket(s3)) as (store,):
        data = random_bytes(2 * CHUNK_BYTES)
        await upload(store, data)
        ((name,),) = await store._database.read("SELECT upload FROM payloads")
        await store._payloads.chunks.put(UUID(str(name)), 1, data[:100])
        with pytest.raises(StoreDamaged, match="chunk 1"):
            await read(store, multihash_of(data))
        await store._payloads.chunks.drop(UUID(str(name)))
        with pytest.raises(StoreDamaged, match="chunk 0"):
            await read(store, multihash_of(data))


# --- opening ----------------------------------------------------------------------------------------------------------


async def test_two_gateways_that_start_at_once_create_one_store(primary: Postgres) -> None:
    url = new_schema(primary)
    stores = await asyncio.gather(*(open_store(url) for _ in range(3)))
    await stores[0].put({RECORDS: [(A, b"record")]})
    assert await stores[2].get(RECORDS, [A]) == [b"record"]
    for store in stores:
        await store.close()


async def test_tables_of_a_newer_version_are_refused(primary: Postgres) -> None:
    url = new_schema(primary)
    await (await open_store(url)).close()
    primary.execute(f"UPDATE {url.rpartition('=')[2]}.coregw_schema SET version = 99")  # noqa: S608
    with pytest.raises(InvalidInput, match="schema version 99"):
        await open_store(url)


async def test_messages_show_no_password() -> None:
    url = "postgresql://gateway:pa@ss/w?rd@127.0.0.1:1/store?password=hidden&sslmode=disable"
    assert "pa@ss" not in masked(url)
    assert masked("postgresql://gw:secret@one,two/store?passfile=x&a=b") == (
        "postgresql://gw:***@one,two/store?passfile=***&a=b"
    )
    with pytest.raises(Unavailable) as caught:
        await open_store("postgresql://gateway:secret@127.0.0.1:1/store")
    assert "secret" not in str(caught.value)


@rows("url", ["http://bucket", "s3://", "s3://key:secret@bucket", "s3://bucket?secret_key=hidden"])
def test_addresses_that_are_not_of_a_bucket_are_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="bucket") as caught:
        BucketAddress.parse(url)
    assert "hidden" not in str(caught.value)
    assert ":secret" not in str(caught.value)
