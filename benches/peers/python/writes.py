"""Driver for stores that Python writes, as benches/peers/rust/src/writes.rs: ``writes.py NAME FOLDER KEYS``.

``engine`` is coregw's engine over its RocksDB store, without HTTP: each writer makes a sequence of maps of its own from
the map of all keys. ``rocksdb`` is bare RocksDB with the options of coregw's store.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

import rocksdict

import coregw
from coregw.engine import Engine
from coregw.store.rocksdb import open_store
from coregw.store.rocksdb.options import database_options

Change = tuple[str, bytes]
"""A key with its new value of 32 bytes, which occurs once."""

seeds = itertools.count()


def change(key: str) -> Change:
    return key, hashlib.sha256(b"%d" % next(seeds)).digest()


class Requests:
    """What one writer asks for: changes of its keys, in turn."""

    def __init__(self, keys: list[str], changes: int, seconds: float) -> None:
        self._keys = itertools.cycle(keys)
        self._changes = changes
        self._seconds = seconds
        self.count = 0
        self.last: list[Change] = []

    def __iter__(self) -> Iterator[list[Change]]:
        end = time.perf_counter() + self._seconds
        while not self.count or time.perf_counter() < end:
            self.last = [change(key) for key in itertools.islice(self._keys, self._changes)]
            self.count += self._changes
            yield self.last


class Store(ABC):
    """A store with all keys. Each writer has keys of its own."""

    @abstractmethod
    async def prepare(self, writers: int) -> None:
        """Prepare a case, which is not measured."""

    @abstractmethod
    async def write(self, writers: list[Requests]) -> None:
        """Make all requests durable, those of the writers at the same time."""

    @abstractmethod
    async def close(self) -> None:
        """Close the store."""

    @abstractmethod
    async def check(self, writer: int, key: str, value: bytes) -> bool:
        """Return whether a change is proven. Raises `SystemExit` if it is not stored."""


class Maps(Store):
    """coregw's engine."""

    def __init__(self, engine: Engine, root: str, targets: dict[str, str]) -> None:
        self.engine, self.root, self.targets = engine, root, targets
        self.roots: list[str] = []

    @classmethod
    async def create(cls, folder: Path, first: list[Change]) -> Maps:
        engine = Engine(await open_store(folder / "engine"))
        targets = {key: coregw.payload_cid(value) for key, value in first}
        answer = json.loads(await engine.create_root(json.dumps({"arcs": targets}).encode()))
        return cls(engine, answer["root"], targets)

    async def close(self) -> None:
        await self.engine.close()

    async def prepare(self, writers: int) -> None:
        self.roots = [self.root] * writers

    async def write(self, writers: list[Requests]) -> None:
        await asyncio.gather(*itertools.starmap(self._write, enumerate(writers)))

    async def _write(self, writer: int, requests: Requests) -> None:
        changed: dict[str, str] = {}
        for request in requests:
            changes = []
            for key, value in request:
                before, after = changed.get(key) or self.targets[key], coregw.payload_cid(value)
                changes.append({"path": key, "before": {"target": before}, "after": {"target": after}})
                changed[key] = after
            body = json.dumps({"deltas": [{"kind": "map", "changes": changes}]}).encode()
            self.roots[writer] = json.loads(await self.engine.mutate(self.roots[writer], body))["new_root"]

    async def check(self, writer: int, key: str, value: bytes) -> bool:
        root = self.roots[writer]
        question = {"profile": "core.map-proof/v0alpha1", "root": root, "key": key.split("/")}
        proof = await self.engine.map_proof(json.dumps(question).encode(), bare=True)
        if coregw.verify_key(root, key, proof) != coregw.payload_cid(value):
            raise SystemExit("the change is not stored")
        return True


class Bare(Store):
    """Bare RocksDB, with a batch and a sync for one request of each writer: the best that a program could do."""

    def __init__(self, folder: Path, first: list[Change]) -> None:
        options = database_options(create=True, salvage=False)
        self.database = rocksdict.Rdict(str(folder / "rocksdb"), options)
        self.durable = rocksdict.WriteOptions()
        self.durable.sync = True
        self.put(first)

    def put(self, changes: list[Change]) -> None:
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key, value in changes:
            batch.put(key.encode(), value)
        self.database.write(batch, self.durable)

    async def close(self) -> None:
        self.database.close()

    async def prepare(self, writers: int) -> None:
        pass

    async def write(self, writers: list[Requests]) -> None:
        for requests in itertools.zip_longest(*writers, fillvalue=()):
            self.put([change for request in requests for change in request])

    async def check(self, writer: int, key: str, value: bytes) -> bool:
        if self.database[key.encode()] != value:
            raise SystemExit("the change is not stored")
        return False


async def main(name: str, folder: Path, keys: list[str]) -> None:
    """Create the store, and measure the cases that stdin asks for."""
    first = [change(key) for key in keys]
    store = await Maps.create(folder, first) if name == "engine" else Bare(folder, first)
    answer(process=os.getpid())
    for case in sys.stdin:
        count, changes, seconds = case.split()
        await store.prepare(int(count))
        writers = [Requests(keys[i :: int(count)], int(changes), float(seconds)) for i in range(int(count))]
        answer()
        sys.stdin.readline()
        start = time.perf_counter()
        await store.write(writers)
        elapsed = time.perf_counter() - start
        answer(changes=sum(writer.count for writer in writers), seconds=elapsed)
        sys.stdin.readline()
        answer(proof=all([await store.check(i, *writer.last[-1]) for i, writer in enumerate(writers)]))
    await store.close()


def answer(**values: float) -> None:
    print(json.dumps(values), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]).read_text().split()))
