"""Memory use of large payloads in the RocksDB store."""

from __future__ import annotations

import asyncio
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from coregw.store import CHUNK_BYTES
from coregw.store.rocksdb import RocksStore
from rocksdb_support import run_until_dead
from store_payloads import multihash_of, random_bytes, upload

pytestmark = pytest.mark.anyio

LARGE = 64 << 20  # the default limit of a gateway
PIECE = bytes(65_536)


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


async def upload_large(store: RocksStore, multihash: bytes) -> None:
    async with store.begin_payload() as writer:
        for _ in range(LARGE // len(PIECE)):
            await writer.write(PIECE)
        await writer.commit(multihash)


async def peak_of(work: asyncio.Future[None]) -> int:
    """The peak size of Python objects during some work, without those that existed before."""
    before, _ = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    await work
    _, peak = tracemalloc.get_traced_memory()
    return peak - before


@pytest.mark.usefixtures("traced")
async def test_a_large_upload_buffers_a_few_chunks(rocks: RocksStore) -> None:
    # Of its 64 chunks, five or six exist at once, and another one if the thread that wrote a chunk lets go of it late.
    assert await peak_of(asyncio.ensure_future(upload_large(rocks, b"\x12\x20" + bytes(32)))) < 10 * CHUNK_BYTES


@pytest.mark.usefixtures("traced")
async def test_a_large_read_buffers_a_few_chunks(rocks: RocksStore) -> None:
    multihash = b"\x12\x20" + bytes(32)
    await upload_large(rocks, multihash)

    async def read() -> None:
        async for chunk in rocks.read_payload(multihash):
            assert len(chunk) == CHUNK_BYTES

    assert await peak_of(asyncio.ensure_future(read())) < 6 * CHUNK_BYTES


async def test_a_read_keeps_nothing_that_it_has_yielded(rocks: RocksStore) -> None:
    data = random_bytes(3 * CHUNK_BYTES)
    await upload(rocks, data)
    await rocks.flush()
    own = object()  # to which only this function refers
    chunks = rocks.read_payload(multihash_of(data), 5)
    for _ in range(3):
        chunk = await anext(chunks)
        async with asyncio.timeout(30):  # until a thread that has read it has ended its task
            while sys.getrefcount(chunk) > sys.getrefcount(own):
                await asyncio.sleep(0.001)
        del chunk


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux's /proc")
def test_eight_concurrent_large_uploads_and_reads_take_a_few_chunks_each(tmp_path: Path) -> None:
    (growth,) = run_until_dead(
        tmp_path,
        """
        def peak():  # getrusage would include the memory of the parent at the fork
            with open("/proc/self/status") as status:
                return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))

        names = [multihash_of(b"%d" % i) for i in range(8)]
        pieces = [random.Random(i).randbytes(65_536) for i in range(8)]

        async def upload_large(i):
            async with store.begin_payload() as writer:
                for _ in range(512):
                    await writer.write(pieces[i])
                assert await writer.commit(names[i])

        async def read_large(i):
            async for chunk in store.read_payload(names[i]):
                assert chunk.startswith(pieces[i])

        store = await open_store(path)
        await upload(store, b"warm up")
        before = peak()
        await asyncio.gather(*map(upload_large, range(8)))
        await asyncio.gather(*map(read_large, range(8)))
        say(peak() - before)
        die()
        """,
    )
    # Memtables take 12 MiB in total, the rest is a few chunks each. The payloads have 256 MiB.
    assert int(growth) < 128 << 20
