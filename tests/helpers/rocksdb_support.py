"""Shorthands for rows and payloads, a view of the files below a store, and processes that die while they use one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from coregw.store import CHUNK_BYTES, Store, Table
from coregw.store.rocksdb import CACHE_BYTES, RocksStore
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.mark import MARK
from store_payloads import multihash_of, read

PRELUDE = """
import asyncio, os, random, signal, sys
from datetime import UTC, datetime
from coregw.engine.publications import RecordTable
from coregw.store import CHUNK_BYTES, Table
from coregw.store.rocksdb import open_store
from store_payloads import multihash_of, upload
from rocksdb_support import put_pages, put_roots

def say(*words):
    print(*words, flush=True)

def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""

_HELPERS = Path(__file__).parent


def start(path: Path, main: str) -> subprocess.Popen[str]:
    """Start a process that runs ``async def main(path)`` with the given body, after `PRELUDE`."""
    body = textwrap.indent(textwrap.dedent(main).strip(), "    ")
    script = f"{PRELUDE}\nasync def main(path):\n{body}\n\nasyncio.run(main(sys.argv[1]))\n"
    return subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True, cwd=_HELPERS)


def run_until_dead(path: Path, main: str) -> list[str]:
    """Run a process that kills itself; the lines it printed."""
    process = start(path, main)
    printed, _ = process.communicate(timeout=60)
    assert process.returncode == -9, f"ended with {process.returncode}"
    return printed.splitlines()


def killed_with_several_logs(path: Path) -> list[str]:
    """Make a store that needs several logs, and kill its process; the names of the logs."""
    run_until_dead(
        path,
        """
        store = await open_store(path)
        await store.put({Table.RECORDS: [(b"key", b"value")]})  # stays in the first log
        for i in range(30):
            await upload(store, random.Random(i).randbytes(CHUNK_BYTES))
        die()
        """,
    )
    logs = [log.name for log in (path / "rocksdb").glob("*.log")]
    assert len(logs) > 1
    return logs


def kill_after(path: Path, main: str, is_enough: Callable[[list[str]], bool]) -> list[str]:
    """Run a process and kill it when it has printed enough; the complete lines it printed."""
    with start(path, main) as process:
        assert process.stdout is not None
        printed: list[str] = []
        try:
            while not is_enough(printed):
                line = process.stdout.readline()
                assert line, f"ended early, after {printed[-5:]}"
                printed.append(line)
        finally:
            process.kill()
        printed += process.stdout.readlines()
    return [line.strip() for line in printed if line.endswith("\n")]


async def put_pages(store: Store, pages: Sequence[tuple[bytes, bytes]]) -> None:
    """Put pages; not durable yet."""
    await store.put({Table.PAGES: pages}, durable=False)


async def put_roots(store: Store, roots: Sequence[bytes], pages: Sequence[tuple[bytes, bytes]] = ()) -> None:
    """Put root records, together with pages."""
    await store.put({Table.PAGES: pages, Table.ROOTS: [(root, b"") for root in roots]})


async def are_held(store: Store, roots: Sequence[bytes]) -> list[bool]:
    """Whether the store has a record of each root."""
    return [value is not None for value in await store.get(Table.ROOTS, roots)]


async def get_pages(store: Store, digests: Sequence[bytes]) -> list[bytes | None]:
    """Read pages."""
    return await store.get(Table.PAGES, digests)


async def writes_resumed(store: RocksStore) -> None:
    """Return when an outage of writes is over."""
    async with asyncio.timeout(30):
        while not await store.healthy():
            await asyncio.sleep(0.02)


def keys(store: RocksStore, family: Family) -> list[bytes]:
    """All keys of a column family."""
    return list(store._database.keys(family))


async def assert_payloads_are_whole(store: RocksStore) -> int:
    """Check every payload against its multihash, and that there are no chunks of anything else; their number."""
    payloads = keys(store, Family.PAYLOADS)
    chunks = 0
    for payload in payloads:
        data = await read(store, payload)
        assert multihash_of(data) == payload
        chunks += -(-len(data) // CHUNK_BYTES)
    assert keys(store, Family.UPLOADS) == []
    assert len(keys(store, Family.CHUNKS)) == chunks
    return len(payloads)


def log_file(path: Path) -> Path:
    """The write-ahead log with the newest writes."""
    return max((path / "rocksdb").glob("*.log"))


def forget_mark(path: Path) -> None:
    """Delete the high-water mark of a store that is not open."""
    (path / "rocksdb" / MARK).unlink()


def flip_bit(path: Path, position: int) -> None:
    """Flip a bit in a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def flip_bit_in_ssts(path: Path, pattern: bytes) -> int:
    """Flip a bit in each occurrence of a pattern in the SSTs of a store; the number of files changed."""
    changed = 0
    for table in (path / "rocksdb").glob("*.sst"):
        position = table.read_bytes().find(pattern)
        if position >= 0:
            flip_bit(table, position)
            changed += 1
    return changed


ROOM, NO_ROOM = 1 << 40, 0
RESERVE = 1 << 20


class ControlledDatabase(Database):
    """A database whose syncs are counted and can be held up or fail, and whose disk can be full."""

    def __init__(self, path: Path) -> None:
        self.syncs = 0
        self.free = ROOM
        self.error: Exception | None = None
        self.is_waiting = threading.Event()
        self.may_sync = threading.Event()
        self.may_sync.set()
        super().__init__(path, CACHE_BYTES, salvage=False)
        self.syncs = 0

    def sync(self) -> None:
        self.syncs += 1
        self.is_waiting.set()
        assert self.may_sync.wait(30)
        if self.error is not None:
            raise self.error
        super().sync()

    def free_bytes(self) -> int:
        return self.free

    async def hold(self, work: Coroutine[Any, Any, object]) -> asyncio.Task[object]:
        """Start `work`, and return when it waits for its sync, which waits for `release`."""
        self.may_sync.clear()
        self.is_waiting.clear()
        task = asyncio.create_task(work)
        assert await asyncio.to_thread(self.is_waiting.wait, 30)
        return task

    def release(self) -> None:
        self.may_sync.set()
