"""Cold lookups in a map larger than the cache, compared with bare rocksdict reads of the same pages.

Each round starts cold: a new page cache, a newly opened database, and SST files evicted from the operating system's
page cache. Consecutive batches of 1,000 random lookups then fill the cache. The bare side reads the pages that the
batches requested from the store, with one batched read per request, and checks nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rocksdict import Cache, Rdict

import report
from big_map import BigMap, big_map, key
from coregw.engine import Engine, EngineLimits
from coregw.store import Table
from coregw.store.rocksdb import RocksStore, open_store
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.options import database_options, family_options

BATCH = 1000


class RecordingStore:
    """A store that records which pages are read."""

    def __init__(self, store: RocksStore) -> None:
        self.store = store
        self.reads: list[list[bytes]] = []

    def __getattr__(self, name: str) -> object:
        return getattr(self.store, name)

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        if table is Table.PAGES:
            self.reads.append(list(keys))
        return await self.store.get(table, keys)


class Stopwatch:
    """Wall-clock seconds, and CPU seconds of all threads, since its creation."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def stop(self) -> tuple[float, float]:
        return time.perf_counter() - self.wall, time.process_time() - self.cpu


def evict(path: Path) -> None:
    """Evict the SST files from the operating system's page cache."""
    for file in (path / "rocksdb").glob("*.sst"):
        with suppress(FileNotFoundError):  # compaction of other families deletes files meanwhile
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


async def resolves(
    where: BigMap, bodies: list[bytes], caches: tuple[int, int], prepare: Callable[[Path], None]
) -> tuple[list[tuple[float, float]], list[list[list[bytes]]]]:
    """Return the wall and CPU time of each batch through the engine, and the pages that each read."""
    recording = RecordingStore(await open_store(where.path, cache_bytes=caches[1]))
    engine = Engine(recording, EngineLimits(cache_bytes=caches[0]))  # type: ignore[arg-type]  # it delegates to a store
    times, reads = [], []
    prepare(where.path)
    for body in bodies:
        recording.reads = []
        stopwatch = Stopwatch()
        answer = await engine.resolve_batch(body)
        times.append(stopwatch.stop())
        reads.append(recording.reads)
        assert answer.count(b'{"result":') == BATCH
    await engine.close()
    return times, reads


def bare(
    where: BigMap, reads: list[list[list[bytes]]], cache_bytes: int, prepare: Callable[[Path], None]
) -> list[tuple[float, float]]:
    """Return the times of the same reads, one batched read per level, on a database of their own."""
    options = family_options(Cache(cache_bytes))
    database = Rdict(str(where.path / "rocksdb"), database_options(create=False, salvage=False), options)
    pages = database.get_column_family(Family.PAGES)
    times = []
    prepare(where.path)
    for levels in reads:
        stopwatch = Stopwatch()
        for digests in levels:
            found = pages.get(digests)
            assert all(found)
        times.append(stopwatch.stop())
    pages.close()
    database.close()
    return times


async def one_by_one(where: BigMap, keys: list[str], caches: tuple[int, int]) -> tuple[float, float]:
    """Return lookups per second, and pages read per lookup, of single lookups that start cold."""
    recording = RecordingStore(await open_store(where.path, cache_bytes=caches[1]))
    engine = Engine(recording, EngineLimits(cache_bytes=caches[0]))  # type: ignore[arg-type]  # it delegates to a store
    evict(where.path)
    stopwatch = Stopwatch()
    for text in keys:
        await engine.resolve(
            json.dumps({"profile": "core.resolve/v0alpha1", "root": where.root, "segments": [text]}).encode()
        )
    wall, _ = stopwatch.stop()
    await engine.close()
    return len(keys) / wall, sum(map(len, recording.reads)) / len(keys)


def main() -> None:
    args = report.arguments(__doc__)
    where = big_map(10**6 if args.quick else 10**7)
    caches = (4 << 20, 1 << 20) if args.quick else (256 << 20, 32 << 20)
    batches, rounds = (5, 3) if args.quick else (10, 5)
    figures = report.Report(
        "cold",
        "Cold lookups in a map larger than the cache",
        args,
        (
            f"{where.arcs:,} arcs in {where.pages:,} pages, {where.page_bytes / 1e6:,.0f} MB.",
            f"A page cache of {caches[0] >> 20} MiB.",
            f"{batches} batches of {BATCH:,} random lookups; medians of {rounds} rounds.",
            "Both sides read the same pages. coregw also checks every page, and writes the proofs and the JSON.",
        ),
    )
    rng = random.Random(3)
    cases: dict[str, Callable[[Path], None]] = {"files not in page cache": evict, "files in page cache": lambda _: None}
    for case, prepare in cases.items():
        ratios: dict[str, list[float]] = {"time": [], "CPU time": []}
        rates, read = [], []
        for _ in range(rounds):
            texts = [[key(rng.randrange(where.arcs)) for _ in range(BATCH)] for _ in range(batches)]
            bodies = [json.dumps({"root": where.root, "paths": [[k] for k in batch]}).encode() for batch in texts]
            ours, reads = asyncio.run(resolves(where, bodies, caches, prepare))
            theirs = bare(where, reads, caches[1], prepare)
            for i, what in enumerate(ratios):
                ratios[what].append(sum(times[i] for times in ours) / sum(times[i] for times in theirs))
            rates.append(batches * BATCH / sum(times[0] for times in ours))
            read.append(sum(len(level) for levels in reads for level in levels) / (batches * BATCH))
        is_cold = prepare is evict
        for what, values in ratios.items():
            bar = 2.5 if is_cold and what == "time" else None
            median = statistics.median(values)
            figures.add(
                f"{what} / bare reads", median, series=case, better="lower", bar=bar, guarded=what == "CPU time"
            )
        figures.add(
            "page reads per lookup", statistics.median(read), "pages", series=case, better="lower", recorded=is_cold
        )
        figures.add("lookups", statistics.median(rates), "1/s", series=case, recorded=False)
    keys = [key(rng.randrange(where.arcs)) for _ in range(500)]
    rate, pages = asyncio.run(one_by_one(where, keys, caches))
    figures.add(
        "page reads per lookup",
        pages,
        "pages",
        series="single lookups, files not in page cache",
        better="lower",
        bar=5,
    )
    figures.add("lookups", rate, "1/s", series="single lookups, files not in page cache", recorded=False)
    figures.finish()


if __name__ == "__main__":
    main()
