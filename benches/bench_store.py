"""The RocksDB store against bare rocksdict in the same run: pages, big payloads, many small payloads.

Prints a table; the ratio is the store's time divided by the bare time for the same bytes (1.0 is free). Both sides use
the same column family options and both make everything durable at the same points. Run it on an idle machine, on the
disk that matters: ``python benches/bench_store.py [DIR]``.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rocksdict import Cache, Rdict, WriteBatch

from coregw.store import CHUNK_BYTES
from coregw.store._rocks_layout import Family, database_options, family_options
from coregw.store.rocksdb import CACHE_BYTES, RocksStore, open_store

ROUNDS = 5
PAGES, BATCH = 20_000, 128
LARGE = 64 * CHUNK_BYTES
SMALL, WRITERS, UPLOADS = 4096, 64, 100

bytes_of = random.Random(7).randbytes


class Bare:
    """rocksdict as a program without a store would use it, from one thread."""

    def __init__(self, path: Path) -> None:
        options = database_options(create=True, salvage=False)
        self.db = Rdict(str(path), options, family_options(Cache(CACHE_BYTES)))
        self.families = {family: self.db.get_column_family(family) for family in Family}
        self.handles = {family: self.db.get_column_family_handle(family) for family in Family}

    def write(self, family: Family, rows: list[tuple[bytes, bytes]]) -> None:
        batch = WriteBatch(raw_mode=True)
        for key, value in rows:
            batch.put(key, value, self.handles[family])
        self.db.write(batch)

    def get(self, family: Family, keys: list[bytes]) -> None:
        self.families[family].get(list(keys))


class Case:
    """One row of the table: what the store does, what bare rocksdict does, and how much that is."""

    def __init__(
        self,
        name: str,
        amount: float,
        unit: str,
        store: Callable[[int], Awaitable[None]],
        bare: Callable[[int], None],
    ) -> None:
        self.name, self.amount, self.unit, self.store, self.bare = name, amount, unit, store, bare

    async def measure(self) -> tuple[float, float]:
        """The median seconds of the store and of bare rocksdict, their rounds in turn."""
        times: tuple[list[float], list[float]] = ([], [])
        for i in range(ROUNDS):
            start = time.perf_counter()
            await self.store(i)
            between = time.perf_counter()
            await asyncio.to_thread(self.bare, i)
            times[0].append(between - start)
            times[1].append(time.perf_counter() - between)
        return statistics.median(times[0]), statistics.median(times[1])


def page_writes(store: RocksStore, bare: Bare, rounds: list[list[tuple[bytes, bytes]]]) -> list[Case]:
    async def put(i: int) -> None:
        pages = rounds[i]
        for at in range(0, len(pages), BATCH):
            await store.put_pages(pages[at : at + BATCH])
        await store.put_roots([b"root %d" % i])

    def bare_put(i: int) -> None:
        pages = rounds[i]
        for at in range(0, len(pages), BATCH):
            bare.write(Family.PAGES, pages[at : at + BATCH])
        bare.write(Family.ROOTS, [(b"root %d" % i, b"")])
        bare.db.flush_wal(True)

    name = f"put pages of 6,000 bytes, {BATCH} a batch, then a root"
    return [Case(name, len(rounds[0]), "pages/s", put, bare_put)]


def page_reads(store: RocksStore, bare: Bare, digests: list[bytes]) -> list[Case]:
    looked_up = [random.Random(i).choices(digests, k=PAGES) for i in range(ROUNDS)]

    async def get(i: int) -> None:
        for at in range(0, PAGES, BATCH):
            await store.get_pages(looked_up[i][at : at + BATCH])

    def bare_get(i: int) -> None:
        for at in range(0, PAGES, BATCH):
            bare.get(Family.PAGES, looked_up[i][at : at + BATCH])

    async def get_one(i: int) -> None:
        for digest in looked_up[i][:2000]:
            await store.get_pages([digest])

    def bare_get_one(i: int) -> None:
        for digest in looked_up[i][:2000]:
            bare.get(Family.PAGES, [digest])

    return [
        Case(f"get pages, {BATCH} a batch", PAGES, "pages/s", get, bare_get),
        Case("get pages, one by one", 2000, "pages/s", get_one, bare_get_one),
    ]


def payload_cases(store: RocksStore, bare: Bare) -> list[Case]:
    piece = bytes_of(65_536)
    chunk = piece * (CHUNK_BYTES // len(piece))
    numbers = range(LARGE // CHUNK_BYTES)

    async def put(i: int) -> None:
        async with store.begin_payload() as writer:
            for _ in range(LARGE // len(piece)):
                await writer.write(piece)
            await writer.commit(b"large %d" % i)

    def bare_put(i: int) -> None:
        for number in numbers:
            bare.write(Family.CHUNKS, [(b"large %d %3d" % (i, number), chunk)])
        bare.write(Family.PAYLOADS, [(b"large %d" % i, b"")])
        bare.db.flush_wal(True)

    async def get(i: int) -> None:
        async for _ in store.read_payload(b"large %d" % i):
            pass

    def bare_get(i: int) -> None:
        for number in numbers:
            bare.get(Family.CHUNKS, [b"large %d %3d" % (i, number)])

    return [
        Case("put a payload of 64 MiB", LARGE / 1e6, "MB/s", put, bare_put),
        Case("read a payload of 64 MiB", LARGE / 1e6, "MB/s", get, bare_get),
    ]


def small_cases(store: RocksStore, bare: Bare) -> list[Case]:
    data = bytes_of(SMALL)

    async def put(i: int) -> None:
        async def writes(writer: int) -> None:
            for k in range(UPLOADS):
                async with store.begin_payload() as upload:
                    await upload.write(data)
                    await upload.commit(b"small %d %d %d" % (i, writer, k))

        await asyncio.gather(*map(writes, range(WRITERS)))

    def bare_put(i: int) -> None:
        # As much as one program could do that knew of all writers: one batch and one sync for each round of them.
        for k in range(UPLOADS):
            keys = [b"small %d %d %d" % (i, writer, k) for writer in range(WRITERS)]
            bare.write(Family.CHUNKS, [(key, data) for key in keys])
            bare.write(Family.PAYLOADS, [(key, bytes(20)) for key in keys])
            bare.db.flush_wal(True)

    def bare_each(i: int) -> None:
        for k in range(500):
            bare.write(Family.CHUNKS, [(b"each %d %d" % (i, k), data)])
            bare.db.flush_wal(True)

    async def put_each(i: int) -> None:
        for k in range(500):
            async with store.begin_payload() as upload:
                await upload.write(data)
                await upload.commit(b"each %d %d" % (i, k))

    uploads = WRITERS * UPLOADS
    return [
        Case(f"put payloads of 4 KiB, {WRITERS} writers at once", uploads, "payloads/s", put, bare_put),
        Case("put payloads of 4 KiB, one writer", 500, "payloads/s", put_each, bare_each),
    ]


async def run(directory: Path) -> None:
    bare = Bare(directory / "bare")
    table = Table(title=f"The RocksDB store and bare rocksdict, medians of {ROUNDS} rounds")
    table.add_column("what")
    for column in ("store", "bare rocksdict", "unit", "ratio of times"):
        table.add_column(column, justify="right")
    async with await open_store(directory / "store") as store:
        rounds = [[(bytes_of(32), bytes_of(6000)) for _ in range(PAGES // 4)] for _ in range(ROUNDS)]
        digests = [digest for pages in rounds for digest, _ in pages]
        pages = [*page_writes(store, bare, rounds), *page_reads(store, bare, digests)]
        for case in [*pages, *payload_cases(store, bare), *small_cases(store, bare)]:
            ours, theirs = await case.measure()
            rates = (f"{case.amount / seconds:,.0f}" for seconds in (ours, theirs))
            table.add_row(case.name, *rates, case.unit, f"{ours / theirs:.2f}")
    Console(width=120).print(table)


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        asyncio.run(run(Path(directory)))


if __name__ == "__main__":
    main()
