"""Backups of stores that are not made of files: complete, incremental, and consistent while the store is written to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from backup_support import largest, restored, silent, verified
from coregw import payload_cid
from coregw._core import Cid
from coregw.engine import Engine
from coregw.engine.pages import INCOMPLETE
from coregw.errors import InvalidInput, StoreDamaged, Unavailable
from coregw.store import Stored, Table
from coregw.store.collection import CollectableStore
from coregw.store.memory import MemoryCollection, MemoryStore
from coregw.store.rocksdb import open_store, read_identity
from coregw.upkeep.backup import BackedUp, Repository, back_up
from coregw.upkeep.copy import copy_store
from coregw.upkeep.gc import collect_garbage
from coregw.upkeep.restore import RestoredStore, refill
from postgres_support import new_bucket, opened
from rocksdb_support import flip_bit
from servers import Bucket, Postgres
from store_payloads import multihash_of, random_bytes, upload
from upkeep.test_copy import Failing, assert_same, fill, items

pytestmark = pytest.mark.anyio

GRACE_SECONDS = 2.0
"""Longer than a busy machine takes from storing a payload to publishing its root."""


@pytest.fixture(params=["memory", "postgres", "postgres+s3"])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[CollectableStore]:
    """A store without files: in memory, or in PostgreSQL with or without a bucket."""
    if request.param == "memory":
        yield MemoryStore(slice_seconds=0.0)
        return
    server: Postgres = request.getfixturevalue("primary")
    bucket: Bucket | None = request.getfixturevalue("s3") if request.param.endswith("s3") else None
    async with opened(server, **({"bucket": new_bucket(bucket)} if bucket is not None else {})) as store:
        yield store


async def backed_up(store: CollectableStore, destination: Path, keep: int = 7) -> BackedUp:
    return await back_up(store, destination, keep, silent)


async def refilled(source: Path, store: CollectableStore, *, quick: bool = False) -> RestoredStore:
    return await refill(source, store, None, silent, quick=quick)


async def collected(store: CollectableStore, revisions: int = 0, grace: float = 0) -> int:
    result = await collect_garbage(
        store, grace_seconds=grace, revisions=revisions, dry_run=False, report=lambda _: None
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
    newest = Repository.open(destination).newest()
    assert (newest.store, newest.incarnation) == shared.identity
    await restored(destination, tmp_path / "identity")
    named = read_identity(tmp_path / "identity")
    assert named is not None
    assert shared.identity is not None
    assert named.store == shared.identity.store
    assert named != shared.identity
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


# --- while the store is in use ----------------------------------------------------------------------------------------


async def publish_forever(engine: Engine, root: str, named: list[str]) -> None:
    """Publish changed maps, each with a new payload, and note what was acknowledged."""
    for number in range(1_000_000):
        data = b"payload %d" % number
        await engine.store.put_payloads([(multihash_of(data), data)])
        root = await changed(engine, root, f"new/{number}")
        await engine.publications.publish("scope", f"name{number % 3}", root, None)
        named.append(root)
        await asyncio.sleep(0.01)


async def collect_forever(store: CollectableStore, removed: list[int]) -> None:
    while True:
        with suppress(Unavailable):  # a backup holds it off
            removed.append(await collected(store, revisions=1, grace=GRACE_SECONDS))
        await asyncio.sleep(0.1)


@pytest.mark.slow
async def test_a_backup_during_writes_and_collections_is_sound_and_has_what_was_acknowledged_before(
    shared: CollectableStore, destination: Path, tmp_path: Path
) -> None:
    engine = Engine(shared)
    root = json.loads(await engine.create_root(json.dumps({"arcs": {"a": payload_cid(b"a")}}).encode()))["root"]
    await engine.publications.publish("scope", "name0", root, None)
    named: list[str] = []
    removed: list[int] = []
    tasks = [
        asyncio.create_task(publish_forever(engine, root, named)),
        asyncio.create_task(collect_forever(shared, removed)),
    ]
    try:
        acknowledged = ""
        for _ in range(3):
            while len(named) < 10 or sum(removed) == 0:
                await asyncio.sleep(0.01)
                for task in tasks:
                    assert not task.done(), task.result()
            acknowledged = named[-1]
            await backed_up(shared, destination)
            assert (await verified(destination)).generations >= 1
            removed.clear()
            named.clear()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    await restored(destination, tmp_path / "copy")
    async with await open_store(tmp_path / "copy") as copy:
        published = set()
        for number in range(3):
            records, _ = await Engine(copy).publications.history("scope", f"name{number}", 0, 10_000)
            assert [record.revision for record in records] == list(range(1, len(records) + 1))
            head = await Engine(copy).publications.get("scope", f"name{number}")
            assert head.revision == len(records)
            assert await copy.get(Table.ROOTS, [bytes(Cid(head.root))]) != [None]
            published |= {record.root for record in records}
        assert acknowledged in published


# --- interruptions and damage -----------------------------------------------------------------------------------------


class Interrupted(Exception):
    """Raised by a report, wherever it is called."""


@pytest.mark.slow
async def test_an_interrupted_backup_is_continued_wherever_it_stopped(destination: Path, tmp_path: Path) -> None:
    source = MemoryStore(slice_seconds=0.0)
    root = (await fill(source))[1]
    engine = Engine(source)
    interruptions = 0
    for round_ in range(2):
        generations = len(list((destination / "generations").glob("*"))) if destination.exists() else 0
        for calls in [*range(1, 40, 3), None]:
            left = calls

            def report(_: object) -> None:
                nonlocal left
                if left is not None:
                    left -= 1
                    if left < 0:
                        raise Interrupted

            try:
                await back_up(source, destination, 7, report)
            except Interrupted:
                interruptions += 1
                assert len(list((destination / "generations").glob("*"))) == generations
            else:
                break
        await verified(destination)
        root = await changed(engine, root, f"round-{round_}")
        await engine.publications.publish("scope", "name", root, None)
        await asyncio.sleep(0.01)
        await collected(source, revisions=1)
    assert interruptions > 10
    await backed_up(source, destination)
    await verified(destination)
    await restored(destination, tmp_path / "copy")
    async with await open_store(tmp_path / "copy") as copy:
        for kind in Stored:
            assert await items(copy, kind) == await items(source, kind)


class Counted(MemoryStore):
    """A store that counts the pages that are read, and fails after a number of them."""

    read = 0
    limit = 1 << 60

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        if table is Table.PAGES:
            if self.read > self.limit:
                raise Unavailable("the network is down")
            self.read += len(keys)
        return await super().get(table, keys)


async def test_what_an_interrupted_backup_has_copied_is_not_read_again(destination: Path) -> None:
    source = Counted()
    await fill(source)
    pages = len(await items(source, Stored.PAGES))
    source.read, source.limit = 0, pages // 2
    with pytest.raises(Unavailable):
        await backed_up(source, destination)
    assert pages // 2 < source.read < pages
    source.limit = 1 << 60
    await backed_up(source, destination)
    assert source.read == pages
    assert (await verified(destination)).pages == pages


async def test_what_is_damaged_is_named_and_an_earlier_backup_keeps_it(destination: Path) -> None:
    source = MemoryStore()
    roots = [bytes(Cid(root)) for root in await fill(source)]
    await backed_up(source, destination)
    pages = source._contents.tables[Table.PAGES]
    sound = pages[roots[0][-32:]]
    pages[roots[0][-32:]] = b"damaged"
    second = await backed_up(source, destination)
    assert second.damaged_count == 0  # it has the page from the first
    assert (await verified(destination)).roots == 2
    payload = multihash_of(random_bytes(70_000))
    source._contents.payloads[payload] = b"damaged"
    fresh = destination / "fresh"
    third = await backed_up(source, fresh)
    assert third.damaged_count == 2
    assert any(roots[0][-32:].hex() in what for what in third.damaged)
    assert any(payload.hex() in what for what in third.damaged)
    checked = await verified(fresh)
    assert checked.roots == 1
    pages[roots[0][-32:]] = sound
    fourth = await backed_up(source, fresh)
    assert fourth.damaged_count == 1
    assert (await verified(fresh)).roots == 2


async def test_a_root_that_lost_pages_is_no_obstacle(destination: Path, tmp_path: Path) -> None:
    async with await open_store(tmp_path / "data") as files:
        roots = await fill(files)
        await files.put({Table.ROOTS: [(bytes(Cid(roots[0])), INCOMPLETE)]})
        await files.delete(Table.PAGES, [bytes(Cid(roots[0]))[-32:]])
        await backed_up(files, destination)
        source = MemoryStore()
        assert files.identity is not None
        await source.identify(files.identity)
    await fill(source)
    await source.put({Table.ROOTS: [(bytes(Cid(roots[0])), INCOMPLETE)]})
    second = await backed_up(source, destination)
    assert second.damaged_count == 1
    assert (await verified(destination)).roots == 1


@pytest.mark.parametrize("how", ["damaged", "deleted"])
async def test_a_damaged_file_of_the_repository_is_found_and_replaced(destination: Path, how: str) -> None:
    source = MemoryStore()
    await fill(source)
    await backed_up(source, destination)
    file = largest(destination)
    if how == "damaged":
        flip_bit(file, file.stat().st_size // 2)
        with pytest.raises(StoreDamaged, match=file.name):
            await verified(destination)
        with pytest.raises(StoreDamaged, match=file.name):
            await refilled(destination, MemoryStore())
    file.unlink()
    with pytest.raises(StoreDamaged, match="is missing"):
        await verified(destination)
    await backed_up(source, destination, keep=1)
    await verified(destination)
    empty = MemoryStore()
    await refilled(destination, empty)
    await assert_same(source, empty)


async def test_a_store_that_moves_to_another_kind_goes_on_with_its_repository(
    destination: Path, tmp_path: Path
) -> None:
    async with await open_store(tmp_path / "data") as files:
        await fill(files)
        await files.put({Table.PAGES: [(bytes(32), b"of an upload that was not finished")]})
        await backed_up(files, destination)
        source = MemoryStore()
        await copy_store(files, source, report=silent)
        with pytest.raises(InvalidInput, match="another incarnation"):
            await backed_up(source, destination)
        second = await back_up(source, destination, 7, silent, adopt=True)
        assert second.copied_bytes < second.size_bytes / 5
        await verified(destination)
        await restored(destination, tmp_path / "copy")
        async with await open_store(tmp_path / "copy") as copy:
            await assert_same(source, copy)
        (destination / "working" / "000002").mkdir(parents=True)  # as an interrupted backup leaves it
        third = await back_up(files, destination, 7, silent, adopt=True)
        assert third.kept_generations == 3
        assert not (destination / "working").exists()


async def test_a_store_without_consistent_listings_is_refused(
    destination: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(MemoryCollection, "records")
    with pytest.raises(Unavailable, match="cannot be backed up"):
        await backed_up(MemoryStore(), destination)


# --- restoring --------------------------------------------------------------------------------------------------------


async def test_a_backup_of_files_is_restored_to_any_store(
    shared: CollectableStore, destination: Path, tmp_path: Path
) -> None:
    async with await open_store(tmp_path / "data") as files:
        await fill(files)
        await backed_up(files, destination)
        done = await refilled(destination, shared)
        assert (done.roots, done.generation) == (2, 1)
        await assert_same(files, shared)
        again = await refilled(destination, shared)  # as after an interruption at the end
        assert (again.roots, again.pages) == (2, 0)
        await assert_same(files, shared)


@pytest.mark.parametrize("held", ["payload", "root", "record", "other record"])
async def test_a_store_with_anything_else_in_it_is_refused_and_unchanged(destination: Path, held: str) -> None:
    source, taken = MemoryStore(), MemoryStore()
    roots = await fill(source)
    await backed_up(source, destination)
    if held == "payload":
        await upload(taken, b"else")
    elif held == "root":
        await Engine(taken).create_root(json.dumps({"arcs": {"else": payload_cid(b"else")}}).encode())
    else:
        row = (await source.list_rows(Table.RECORDS, b"n", None, 1))[0]
        key = row[0] if held == "other record" else b"nothing like it"
        await taken.put({Table.RECORDS: [(key, b"else")]})
    before = {kind: await items(taken, kind) for kind in Stored}
    with pytest.raises(InvalidInput, match="the destination is not empty"):
        await refilled(destination, taken)
    assert {kind: await items(taken, kind) for kind in Stored} == before
    assert roots


async def test_an_interrupted_restore_is_continued(destination: Path) -> None:
    source, target = MemoryStore(), Failing()
    await fill(source)
    await backed_up(source, destination)
    for writes in (0, 1, 3, 5, 6):
        target.writes = writes
        with pytest.raises(Unavailable):
            await refilled(destination, target)
        assert await target.list_rows(Table.RECORDS, b"n", None, 1) == []
    target.writes = 1 << 60
    await refilled(destination, target)
    await assert_same(source, target)


async def test_a_damaged_store_is_restored_as_far_as_it_is_sound_if_asked(destination: Path, tmp_path: Path) -> None:
    async with await open_store(tmp_path / "data") as files:
        roots = [bytes(Cid(root)) for root in await fill(files)]
        await files.put({Table.PAGES: [(roots[0][-32:], b"damaged")]})
        await backed_up(files, destination)
    target = MemoryStore()
    with pytest.raises(StoreDamaged, match="the store in this backup is damaged"):
        await refilled(destination, target)
    assert await items(target, Stored.PAYLOADS) == []
    with pytest.raises(StoreDamaged, match="1 objects of generation 1 are damaged and were not restored"):
        await refilled(destination, target, quick=True)
    assert await items(target, Stored.ROOTS) == [roots[1]]
