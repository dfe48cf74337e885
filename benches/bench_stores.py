"""A store in PostgreSQL, compared with one in RocksDB: lookups, batches, and storing a map.

Both hold the same map, and both write to the same disk with syncs. PostgreSQL is one server on loopback. Each round
makes a new engine for each store, reads the inner pages of the map, and then asks for keys in leaf pages that no
earlier key was in; rounds of the stores alternate. The CPU time is that of the gateway's process, without the database.

The last part runs two gateways at the same time, each a process of its own: on one database, and each on a database of
its own, which has the same map. Where they and the databases do not have a core each, their rates say nothing, so it
compares the CPU time that a lookup takes. One gateway on an otherwise idle machine is no measure for that: two
processes that share nothing but the machine's caches and clock rate also take longer than one.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

import report
from coregw import payload_cid
from coregw.engine import Engine
from coregw.store import Store
from coregw.store.postgres import open_store as open_database
from coregw.store.rocksdb import open_store

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "helpers"))

from servers import Postgres, postgres

AT_ONCE = 64
_WARM_STEP = 2000
"""There are some 9,000 keys below an inner page, and some 70 in a leaf page."""
ROCKSDB, POSTGRES = "RocksDB", "PostgreSQL"
TICKS = os.sysconf("SC_CLK_TCK")


class Places(NamedTuple):
    """Where the stores are."""

    rocksdb: str
    postgres: str

    @asynccontextmanager
    async def opened(self, kind: str) -> AsyncIterator[Store]:
        if kind == ROCKSDB:
            async with await open_store(Path(self.rocksdb)) as embedded:
                yield embedded
        else:
            async with await open_database(self.postgres) as shared:
                yield shared


class Sizes(NamedTuple):
    """How much is measured."""

    arcs: int
    step: int
    """Every so manieth key is looked up: adjacent keys share a leaf page, which has fewer keys than these."""
    rounds: int
    batches: int


FULL, QUICK = Sizes(1_000_000, 101, 3, 4), Sizes(100_000, 67, 2, 3)


@dataclass
class Times:
    """Seconds of each round."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def add(self, wall: float, cpu: float) -> None:
        self.wall.append(wall)
        self.cpu.append(cpu)


class Stopwatch:
    """Wall-clock seconds, and CPU seconds of all threads of this process, since its creation."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def stop(self) -> tuple[float, float]:
        return time.perf_counter() - self.wall, time.process_time() - self.cpu


def key(number: int) -> str:
    """Keys in byte order, so that leaf pages hold adjacent ones."""
    return f"users/{number:08}/profile"


def arcs_of(sizes: Sizes) -> dict[str, str]:
    """The map."""
    return {key(i): payload_cid(i.to_bytes(8, "big")) for i in range(sizes.arcs)}


def lookups(root: str, numbers: list[int]) -> list[bytes]:
    request = {"profile": "core.resolve/v0alpha1", "root": root}
    return [json.dumps(request | {"segments": key(number).split("/")}).encode() for number in numbers]


def batch(root: str, numbers: list[int]) -> bytes:
    return json.dumps({"root": root, "paths": [key(number).split("/") for number in numbers]}).encode()


async def warm(engine: Engine, root: str, sizes: Sizes) -> None:
    """Read the inner pages: some 110 for a million arcs."""
    await engine.resolve_batch(batch(root, list(range(0, sizes.arcs, _WARM_STEP))))


async def look_up(engine: Engine, requests: list[bytes]) -> None:
    """Ask for everything, `AT_ONCE` at once."""
    waiting = iter(requests)

    async def client() -> None:
        for request in waiting:
            await engine.resolve(request)

    await asyncio.gather(*(client() for _ in range(AT_ONCE)))


async def measure_lookups(places: Places, kind: str, root: str, sizes: Sizes, offset: int) -> tuple[float, float, int]:
    """Return wall and CPU seconds of lookups in leaf pages that are not cached, and how many they were."""
    async with places.opened(kind) as store:
        engine = Engine(store)
        await warm(engine, root, sizes)
        requests = lookups(root, list(range(sizes.step // 2 + offset % 7, sizes.arcs, sizes.step)))
        stopwatch = Stopwatch()
        await look_up(engine, requests)
        wall, cpu = stopwatch.stop()
        await engine.close()
    return wall, cpu, len(requests)


async def measure_batches(places: Places, kind: str, root: str, sizes: Sizes, number: int) -> list[tuple[float, float]]:
    """Return wall and CPU seconds of batches of 1,000 random keys, the first of which finds nothing cached."""
    found = []
    async with places.opened(kind) as store:
        engine = Engine(store)
        for each in range(sizes.batches):
            numbers = [hash((number, each, i)) % sizes.arcs for i in range(1000)]
            stopwatch = Stopwatch()
            answer = await engine.resolve_batch(batch(root, numbers))
            found.append(stopwatch.stop())
            assert answer.count(b'{"result":') == 1000
        await engine.close()
    return found


async def measure_storing(places: Places, kind: str, body: bytes) -> tuple[str, tuple[float, float]]:
    """Store a map; return its root, and wall and CPU seconds."""
    async with places.opened(kind) as store:
        engine = Engine(store)
        stopwatch = Stopwatch()
        root = json.loads(await engine.create_root(body))["root"]
        times = stopwatch.stop()
        await engine.close()
    return root, times


# --- several gateways -------------------------------------------------------------------------------------------------


def gateway(places: Places, root: str, sizes: Sizes, barrier: Any, results: Any) -> None:  # noqa: ANN401
    """Look keys up in a process of its own, at the same time as others."""

    async def run() -> None:
        async with places.opened(POSTGRES) as store:
            engine = Engine(store)
            await warm(engine, root, sizes)
            requests = lookups(root, list(range(sizes.step // 2, sizes.arcs, sizes.step)))
            await asyncio.to_thread(barrier.wait)
            stopwatch = Stopwatch()
            await look_up(engine, requests)
            results.put((*stopwatch.stop(), len(requests)))
            await asyncio.to_thread(barrier.wait)  # so that all of them are busy to the end
            await engine.close()

    uvloop.run(run())


def database_seconds(server: Postgres) -> float:
    """CPU seconds of all processes of a server, those that have ended included."""
    assert server.process is not None
    total = 0.0
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
    for number in [str(server.process.pid), *children]:
        try:
            words = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        except FileNotFoundError:
            continue
        total += sum(map(int, words[11:15] if number == str(server.process.pid) else words[11:13])) / TICKS
    return total


class Load(NamedTuple):
    """CPU seconds of a lookup: in the gateways, and in their databases."""

    gateway: float
    database: float


def measure_gateways(servers: list[Postgres], places: list[Places], root: str, sizes: Sizes) -> Load:
    """Run a gateway at each of these places, all at the same time; the servers are those of the places, each once."""
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(len(places) + 1), context.Queue()
    processes = [context.Process(target=gateway, args=(each, root, sizes, barrier, results)) for each in places]
    for process in processes:
        process.start()
    barrier.wait()
    before = sum(map(database_seconds, servers))
    found = [results.get() for _ in processes]
    in_databases = sum(map(database_seconds, servers)) - before
    barrier.wait()
    for process in processes:
        process.join()
    asked = sum(each[2] for each in found)
    return Load(sum(each[1] for each in found) / asked, in_databases / asked)


@dataclass
class Gateways:
    """What was measured of gateways on databases, in alternating rounds."""

    one: list[Load] = field(default_factory=list)
    """One gateway, with the machine for itself."""
    apart: list[Load] = field(default_factory=list)
    """Two gateways, each with a database of its own."""
    together: list[Load] = field(default_factory=list)
    """Two gateways on one database."""


def compare_gateways(server: Postgres, other: Postgres, places: Places, root: str, sizes: Sizes) -> Gateways:
    """Measure gateways on databases that hold the same map."""
    beside = places._replace(postgres=other.url)
    measured = Gateways()
    for number in range(sizes.rounds + 1):
        into = measured if number else Gateways()  # the first round is warm-up
        into.one.append(measure_gateways([server], [places], root, sizes))
        into.apart.append(measure_gateways([server, other], [places, beside], root, sizes))
        into.together.append(measure_gateways([server], [places, places], root, sizes))
    return measured


# --- all of it --------------------------------------------------------------------------------------------------------


@dataclass
class Measured:
    """What was measured of one store."""

    lookups: Times = field(default_factory=Times)
    first: Times = field(default_factory=Times)
    later: Times = field(default_factory=Times)
    storing: Times = field(default_factory=Times)
    again: Times = field(default_factory=Times)
    asked: int = 1


async def measure(places: Places, sizes: Sizes) -> tuple[str, dict[str, Measured]]:
    """Measure both stores in alternating rounds; return the root of the map, and what was measured."""
    body = json.dumps({"arcs": arcs_of(sizes)}).encode()
    measured = {ROCKSDB: Measured(), POSTGRES: Measured()}
    root = ""
    for kind, each in measured.items():
        root, times = await measure_storing(places, kind, body)
        each.storing.add(*times)
    for number in range(max(1, sizes.rounds // 2)):  # other maps of the same size
        other = body.replace(b'"users/', b'"users%d/' % number)
        for kind, each in measured.items():
            each.storing.add(*(await measure_storing(places, kind, other))[1])
    for kind, each in measured.items():
        each.again.add(*(await measure_storing(places, kind, body))[1])
    for number in range(sizes.rounds + 1):
        for kind, each in measured.items():
            wall, cpu, each.asked = await measure_lookups(places, kind, root, sizes, number)
            first, *later = await measure_batches(places, kind, root, sizes, number)
            if number:  # the first round is warm-up
                each.lookups.add(wall, cpu)
                each.first.add(*first)
                for times in later:
                    each.later.add(*times)
    return root, measured


def main() -> None:
    args = report.arguments(__doc__)
    sizes = QUICK if args.quick else FULL
    os.environ["COREGW_TEST_SERVERS"] = "required"
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        os.environ["COREGW_TEST_FOLDER"] = name  # on the disk
        options = {"shared_buffers": "256MB", "max_wal_size": "1GB"}
        with postgres(**options) as server:
            places = Places(f"{name}/rocksdb", server.url)
            root, measured = uvloop.run(measure(places, sizes))
            with postgres(**options) as other:
                body = json.dumps({"arcs": arcs_of(sizes)}).encode()
                stored = uvloop.run(measure_storing(places._replace(postgres=other.url), POSTGRES, body))
                assert stored[0] == root
                gateways = compare_gateways(server, other, places, root, sizes)
    publish(args, sizes, measured, gateways)


def publish(
    args: Any,  # noqa: ANN401
    sizes: Sizes,
    measured: dict[str, Measured],
    gateways: Gateways,
) -> None:
    notes = (
        f"A map of {sizes.arcs:,} arcs; medians of {sizes.rounds} alternating rounds.",
        "One PostgreSQL server on loopback, with syncs, on the same disk and cores.",
        "Lookups: 64 at once, inner pages cached, each in another leaf page, by an engine without HTTP.",
    )
    figures = report.Report("stores", "A store in PostgreSQL, compared with RocksDB", args, notes)
    rocksdb, database = measured[ROCKSDB], measured[POSTGRES]

    def ratio(name: str, part: str, **options: Any) -> None:  # noqa: ANN401
        mine, other = getattr(database, name), getattr(rocksdb, name)
        figures.add(
            options.pop("title"),
            statistics.median(getattr(mine, part)) / statistics.median(getattr(other, part)),
            **options,
        )

    rate = statistics.median(rocksdb.lookups.wall) / statistics.median(database.lookups.wall)
    figures.add("rate", rate, series="64 lookups at once", better="higher", bar=0.8)
    ratio("lookups", "cpu", title="CPU time of the gateway", series="64 lookups at once", better="lower", bar=1.2)
    ratio("first", "wall", title="nothing cached", series="a batch of 1,000", better="lower", bar=1.5)
    ratio("later", "wall", title="later ones", series="a batch of 1,000", better="lower", bar=1.5)
    ratio("storing", "wall", title="new", series="storing the map", better="lower", bar=2.2)
    ratio("again", "wall", title="again", series="storing the map", better="lower")
    one, apart, together = (
        statistics.median(each.gateway for each in loads) for loads in (gateways.one, gateways.apart, gateways.together)
    )
    figures.add(
        "lookups for the CPU time of one each", 2 * apart / together, series="two gateways", better="higher", bar=1.8
    )
    in_database = statistics.median(each.database for each in gateways.together)
    figures.add(
        "CPU time of the database for one of a gateway", in_database / together, series="two gateways", better="lower"
    )
    figures.add(
        "the same, with a database each, compared with one gateway",
        2 * one / apart,
        series="two gateways",
        recorded=False,
    )
    for kind, each in measured.items():
        wall = statistics.median(each.lookups.wall)
        figures.add("lookups/s", each.asked / wall, "1/s", series=kind, recorded=False)
        figures.add(
            "CPU time of a lookup",
            statistics.median(each.lookups.cpu) / each.asked * 1e6,
            "µs",
            series=kind,
            recorded=False,
        )
        figures.add("a batch, later", statistics.median(each.later.wall) * 1e3, "ms", series=kind, recorded=False)
        figures.add("storing the map", statistics.median(each.storing.wall), "s", series=kind, recorded=False)
    figures.finish()


if __name__ == "__main__":
    main()
