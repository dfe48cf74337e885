"""Backups of stores that are not made of files: complete, incremental, and consistent while the store is written to."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path

import pytest

from coregw import payload_cid
from coregw._core import Cid
from coregw.engine import Engine
from coregw.engine.roots import INCOMPLETE
from coregw.errors import CoregwError, InvalidInput, StoreDamaged, Unavailable
from coregw.store import Stored, Table
from coregw.store.collection import CollectableStore
from coregw.store.memory import MemoryCollection, MemoryStore
from coregw.store.rocksdb import open_store
from coregw.store.testing.support import multihash_of, random_bytes, upload
from coregw.upkeep.backup import BackedUp, Restored, back_up, refill
from coregw.upkeep.gc import collect_garbage
from servers import Bucket, Postgres
from store.postgres_support import opened
from upkeep.backup_support import largest, restored, silent, verified
from upkeep.test_copy import assert_same, fill, items

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["memory", "postgres", "postgres+s3"])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[CollectableStore]:
    """A store without files: in memory, or in PostgreSQL with or without a bucket."""
    if request.param == "memory":
        yield MemoryStore(slice_seconds=0.0)
        return
    server: Postgres = request.getfixturevalue("primary")
    bucket: Bucket | None = request.getfixturevalue("s3") if request.param.endswith("s3") else None
    async with opened(server, **({"bucket": bucket.url} if bucket is not None else {})) as store:
        yield store


async def backed_up(store: CollectableStore, destination: Path, keep: int = 7) -> BackedUp:
    return await back_up(store, destination, keep, silent)


async def refilled(source: Path, store: CollectableStore, *, quick: bool = False) -> Restored:
    return await refill(source, store, None, silent, quick=quick)


async def collected(store: CollectableStore) -> int:
    result = await collect_garbage(
        store, grace_seconds=0, revisions=0, dry_run=False, report=lambda _: None
    )
    return result.roots_removed + result.pages_removed + result.payloads_removed


async def changed(engine: Engine, root: str, path: str) -> str:
    change = {"path": path, "after": {"target": payload_cid(path.encode())}}
    request = json.dumps({"deltas": [{"kind": "map", "changes": [change]}]}).encode()
    return str(json.loads(await engine.mutate(root, request))["new_root"])


async def test_a_backup_is_complete_and_the_next_one_adds_what_is_new(
    shared: CollectableStore, destination: Path, tmp_path: Path
) -> None:
    roots = await fill(shared)
    first = await backed_up(shared, destination)
    assert (first.damaged, first.damaged_count, first.kept_generations) == ([], 0, 1)
    assert (await verified(destination)).roots == 2
    engine = Engine(shared)
    await engine.publications.publish("scope", "name", await changed(engine, roots[1], "three"), 2)
    await upload(shared, random_bytes(1234))
    second = await backed_up(shared, destination)
    assert second.copied_bytes < first.size_bytes / 10
    assert (await verified(destination)).roots == 3
    assert not (destination / "working").exists()
    await restored(destination, tmp_path / "copy")
    async with await open_store(tmp_path / "copy") as copy:
        await assert_same(shared, copy)
    empty = MemoryStore()
    assert (await refilled(destination, empty)).roots == 3
    await assert_same(shared, empty)
    await restored(destination, tmp_path / "first", 1)
    async with await open_store(tmp_path / "first") as copy:
        assert len(await items(copy, Stored.ROOTS)) == 2


async def test_a_backup_has_nothing_that_was_removed_before_it(
    shared: CollectableStore, destination: Path, tmp_path: Path
) -> None:
    roots = await fill(shared)
    engine = Engine(shared)
    dropped = await changed(engine, roots[0], "dropped")
    before = await backed_up(shared, destination)
    held = set(await items(shared, Stored.PAGES))
    await asyncio.sleep(0.01)
    assert await collected(shared) > 0
    await engine.publications.publish("scope", "other", roots[1], 0)
    removed = held - set(await items(shared, Stored.PAGES))
    assert removed
    await backed_up(shared, destination)
    await restored(destination, tmp_path / "copy")
    async with await open_store(tmp_path / "copy") as copy:
        for kind in Stored:
            assert await items(copy, kind) == await items(shared, kind)
        assert await copy.get(Table.ROOTS, [bytes(Cid(dropped))]) == [None]
    assert (await verified(destination)).generations == 2
    assert before.generation == 1
