"""The RocksDB store compared with bare rocksdict in the same run: pages, large payloads, many small payloads.

The ratio is the store's time divided by the bare time for the same bytes (1.0: no overhead). Both sides use the same
column family options and make everything durable at the same points. ``--folder DIR`` selects the disk.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from rocksdict import Cache, Rdict, WriteBatch

import report
from coregw.store import CHUNK_BYTES, Table
from coregw.store.rocksdb import CACHE_BYTES, RocksStore, open_store
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.options import database_options, family_options

ROUNDS = 5
PAGES, QUICK_PAGES, BATCH = 20_000, 4_000, 128
LARGE = 64 * CHUNK_BYTES
SMALL, WRITERS = 4096, 64

bytes_of = random.Random(7).randbytes


class Bare:
    """rocksdict as a program would use it directly, from one thread."""

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
    """One row of the table: the same amount of work by the store and by bare rocksdict."""

    def __init__(
        self,
        name: str,
        amount: float,
        unit: str,
        store: Callable[[int], Awaitable[None]],
        bare: Callable[[int], None],
        *,
        guarded: bool = False,
    ) -> None:
        self.name, self.amount, self.unit, self.store, self.bare = name, amount, unit, store, bare
        self.guarded = guarded
        """False for rows that wait for syncs, whose times vary with the disk."""

    async def measure(self) -> tuple[float, float]:
        """Return the median seconds of the store and of bare rocksdict, in alternating rounds."""
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
            await store.put({Table.PAGES: pages[at : at + BATCH]}, durable=False)
        await store.put({Table.ROOTS: [(b"root %d" % i, b"")]})

    def bare_put(i: int) -> None:
        pages = rounds[i]
        for at in range(0, len(pages), BATCH):
            bare.write(Family.PAGES, pages[at : at + BATCH])
        bare.write(Family.ROOTS, [(b"root %d" % i, b"")])
        bare.db.flush_wal(True)

    name = f"put pages of 6,000 bytes, {BATCH} per batch, then a root"
    return [Case(name, len(rounds[0]), "pages/s", put, bare_put)]


def page_reads(store: RocksStore, bare: Bare, digests: list[bytes], count: int) -> list[Case]:
    looked_up = [random.Random(i).choices(digests, k=count) for i in range(ROUNDS)]

    async def get(i: int) -> None:
        for at in range(0, count, BATCH):
            await store.get(Table.PAGES, looked_up[i][at : at + BATCH])

    def bare_get(i: int) -> None:
        for at in range(0, count, BATCH):
            bare.get(Family.PAGES, looked_up[i][at : at + BATCH])

    async def get_one(i: int) -> None:
        for digest in looked_up[i][:2000]:
            await store.get(Table.PAGES, [digest])

    def bare_get_one(i: int) -> None:
        for digest in looked_up[i][:2000]:
            bare.get(Family.PAGES, [digest])

    return [
        Case(f"get pages, {BATCH} per batch", count, "pages/s", get, bare_get, guarded=True),
        Case("get pages, one by one", 2000, "pages/s", get_one, bare_get_one, guarded=True),
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
        Case("read a payload of 64 MiB", LARGE / 1e6, "MB/s", get, bare_get, guarded=True),
    ]


def small_cases(store: RocksStore, bare: Bare, each_uploads: int) -> list[Case]:
    data = bytes_of(SMALL)

    async def put(i: int) -> None:
        async def writes(writer: int) -> None:
            for k in range(each_uploads):
                async with store.begin_payload() as upload:
                    await upload.write(data)
                    await upload.commit(b"small %d %d %d" % (i, writer, k))

        await asyncio.gather(*map(writes, range(WRITERS)))

    def bare_put(i: int) -> None:
        # The best that one program could do that knew all writers: one batch and one sync for all of them.
        for k in range(each_uploads):
            keys = [b"small %d %d %d" % (i, writer, k) for writer in range(WRITERS)]
            bare.write(Family.CHUNKS, [(key, data) for key in keys])
            bare.write(Family.PAYLOADS, [(key, bytes(20)) for key in keys])
            bare.db.flush_wal(True)

    def bare_each(i: int) -> None:
        for k in range(5 * each_uploads):
            bare.write(Family.CHUNKS, [(b"each %d %d" % (i, k), data)])
            bare.db.flush_wal(True)

    async def put_each(i: int) -> None:
        for k in range(5 * each_uploads):
            async with store.begin_payload() as upload:
                await upload.write(data)
                await upload.commit(b"each %d %d" % (i, k))

    uploads = WRITERS * each_uploads
    return [
        Case(f"put payloads of 4 KiB, {WRITERS} concurrent writers", uploads, "payloads/s", put, bare_put),
        Case("put payloads of 4 KiB, one writer", 5 * each_uploads, "payloads/s", put_each, bare_each),
    ]


async def run(figures: report.Report, directory: Path) -> None:
    """Measure all cases."""
    count, uploads = (QUICK_PAGES, 20) if figures.run == "quick" else (PAGES, 100)
    bare = Bare(directory / "bare")
    async with await open_store(directory / "store") as store:
        rounds = [[(bytes_of(32), bytes_of(6000)) for _ in range(count // 4)] for _ in range(ROUNDS)]
        digests = [digest for pages in rounds for digest, _ in pages]
        pages = [*page_writes(store, bare, rounds), *page_reads(store, bare, digests, count)]
        for case in [*pages, *payload_cases(store, bare), *small_cases(store, bare, uploads)]:
            ours, theirs = await case.measure()
            note = f"{case.amount / ours:,.0f} / {case.amount / theirs:,.0f} {case.unit}"
            figures.add(case.name, ours / theirs, better="lower", guarded=case.guarded, note=note)


def main() -> None:
    """Measure and report."""
    parser = report.parser(__doc__)
    parser.add_argument("--folder", help="where to create the stores; by default the system's temporary folder")
    args = parser.parse_args()
    title = f"The RocksDB store's time / bare rocksdict's, medians of {ROUNDS} rounds"
    figures = report.Report("store", title, args)
    with tempfile.TemporaryDirectory(dir=args.folder) as directory:
        asyncio.run(run(figures, Path(directory)))
    figures.finish()


if __name__ == "__main__":
    main()
