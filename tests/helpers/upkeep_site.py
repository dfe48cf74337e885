"""Trees, payloads and collections for the tests of upkeep, on an engine over a real store."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from coregw import payload_cid
from coregw._core import Cid
from coregw.engine import Engine
from coregw.messages.management import GarbageCollected
from coregw.store.ages import Clock
from coregw.store.collection import CollectableStore
from coregw.store.rocksdb import open_store
from coregw.upkeep.gc import collect_garbage


class Time:
    """A clock that tests set.

    Attributes:
        seconds: The true time.
        error: How many seconds the system's clock is ahead of it.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.error = 0.0
        self._began = time.time()

    def clock(self) -> Clock:
        """A clock for one opening of a store. Its monotonic clock starts at 0, as after a restart of the machine."""
        opened = self.seconds
        return Clock(monotonic=lambda: self.seconds - opened, wall=lambda: self._began + opened + self.error)


class Site:
    """An engine, its store, and the store's time."""

    def __init__(self, engine: Engine, store: CollectableStore, clock: Time) -> None:
        self.engine = engine
        self.store = store
        self.time = clock

    async def create(self, arcs: Mapping[str, str]) -> str:
        """Create a map; its root."""
        answer = await self.engine.create_root(json.dumps({"arcs": arcs}).encode())
        return str(json.loads(answer)["root"])

    async def change(self, root: str, path: str, after: str, before: str | None = None) -> str:
        """Change one arc of a map; the new root."""
        change = {"path": path, "after": {"target": after}} | ({"before": {"target": before}} if before else {})
        request = json.dumps({"deltas": [{"kind": "map", "changes": [change]}]}).encode()
        return str(json.loads(await self.engine.mutate(root, request))["new_root"])

    async def put(self, data: bytes) -> str:
        """Store a payload; its CID."""
        cid = payload_cid(data)
        await self.store.put_payloads([(Cid(cid).multihash, data)])
        return cid

    async def has(self, cid: str) -> bool:
        """Ask whether a payload is held, as a client does that wants to skip its upload."""
        return await self.engine.payloads.held(bytes(Cid(cid))) == b"\1"

    async def is_stored(self, cid: str) -> bool:
        """Whether a payload is stored; does not renew it."""
        return (await self.store.stat_payloads([Cid(cid).multihash])) != [None]

    async def publish(self, root: str, name: str = "main") -> None:
        await self.engine.publications.publish("docs", name, root, None)

    async def resolve(self, root: str, *segments: str) -> str:
        """The target of a path; `RootNotFound` if the root is not held."""
        request = {"profile": "core.resolve/v0alpha1", "root": root, "segments": segments}
        return str(json.loads(await self.engine.resolve(json.dumps(request).encode()))["target"])

    async def export(self, root: str) -> int:
        """Read everything that is reachable from a root; the number of bytes. Raises if a page is missing."""
        return sum([len(part) async for part in await self.engine.cars.export_car(root, payloads=True)])

    async def collect(self, *, grace: float = 60.0, revisions: int = 0, dry_run: bool = False) -> GarbageCollected:
        return await collect_garbage(
            self.store, grace_seconds=grace, revisions=revisions, dry_run=dry_run, report=lambda _: None
        )


@asynccontextmanager
async def site_on(path: Path, clock: Time, slice_seconds: float = 1.0) -> AsyncIterator[Site]:
    """An engine on the RocksDB store in a directory."""
    store = await open_store(path, clock=clock.clock(), slice_seconds=slice_seconds)
    engine = Engine(store)
    try:
        yield Site(engine, store, clock)
    finally:
        await engine.close()
