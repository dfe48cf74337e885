"""Looking at a RocksDB store from below, and processes that die in the middle of using one."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from coregw.store._rocks_database import Database
from coregw.store._rocks_layout import Family

PRELUDE = """
import asyncio, hashlib, os, random, signal, sys
from datetime import UTC, datetime
from coregw.store import CHUNK_BYTES
from coregw.store.rocksdb import open_store

def say(*words):
    print(*words, flush=True)

def multihash(data):
    return b"\\x12\\x20" + hashlib.sha256(data).digest()

async def put(store, data):
    async with store.begin_payload() as writer:
        await writer.write(data)
        await writer.commit(multihash(data))

def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""


def start(path: Path, main: str) -> subprocess.Popen[str]:
    """A process that runs ``async def main(path)`` of the given body, after `PRELUDE`."""
    body = textwrap.indent(textwrap.dedent(main).strip(), "    ")
    script = f"{PRELUDE}\nasync def main(path):\n{body}\n\nasyncio.run(main(sys.argv[1]))\n"
    return subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)


def run_until_dead(path: Path, main: str) -> list[str]:
    """What a process said that kills itself."""
    process = start(path, main)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == -9, f"ended with {process.returncode}"
    return said.splitlines()


def kill_after(path: Path, main: str, enough: Callable[[list[str]], bool]) -> list[str]:
    """What a process said, whole lines only, that is killed when it has said enough."""
    with start(path, main) as process:
        assert process.stdout is not None
        said: list[str] = []
        try:
            while not enough(said):
                line = process.stdout.readline()
                assert line, f"ended early, after {said[-5:]}"
                said.append(line)
        finally:
            process.kill()
        said += process.stdout.readlines()
    return [line.strip() for line in said if line.endswith("\n")]


def keys(database: Database, family: Family) -> list[bytes]:
    """All keys of a family."""
    return list(database._keys(family))


def log_file(path: Path) -> Path:
    """The log that holds the newest writes."""
    return max((path / "rocksdb").glob("*.log"))
