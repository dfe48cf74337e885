"""Pages that a RocksDB store keeps as differences to others: what is written, read, collected and repaired."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rocksdict import Cache, Rdict

import coregw
from backup_support import restored, silent
from coregw._core import Cid, apply_difference
from coregw.engine import Engine
from coregw.engine.pages import COMPLETE, INCOMPLETE, WHOLE
from coregw.errors import StoreDamaged
from coregw.store import Stored, Table
from coregw.store.memory import MemoryStore
from coregw.store.protocol import ListedPage, Put
from coregw.store.rocksdb import RocksStore, open_store
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.options import database_options, family_options
from coregw.store.rocksdb.salvage import RawDatabase
from coregw.upkeep.backup import back_up
from coregw.upkeep.check import StoreCheck, absent_targets
from coregw.upkeep.copy import copy_store
from coregw.upkeep.file_check import check_database
from coregw.upkeep.gc import collect_garbage
from coregw.upkeep.inventory import StoreInventory
from coregw.upkeep.repair import repair_online, repair_store
from rocksdb_support import flip_bit, log_file, run_until_dead
from upkeep_site import Site, Time, site_on

pytestmark = pytest.mark.anyio

TARGETS = [coregw.payload_cid(bytes([number])) for number in range(8)]
PAGE, BASE, OTHER = (bytes([number]) * 32 for number in (1, 2, 3))
BYTES = bytes(range(200)) * 5
CHANGED = b"new" + BYTES
TO_BASE = BASE + bytes([0, 0, 3]) + b"new"


def many(count: int) -> dict[str, str]:
    return {f"folder/{number:05}": TARGETS[0] for number in range(count)}


async def listed(site: Site) -> dict[bytes, ListedPage]:
    assert isinstance(site.store, RocksStore)
    return {page.digest: page for page in await site.store.list_pages(None, 100_000)}


async def change(site: Site, root: str, arcs: dict[str, str], path: str, target: str) -> str:
    """Change an arc of a map, and of the model of the map; the new root."""
    before, arcs[path] = arcs[path], target
    return await site.change(root, path, target, before)


async def exported(site: Site, root: str) -> bytes:
    return b"".join([part async for part in await site.engine.cars.export_car(root, payloads=False)])


async def expect(site: Site, kept: Mapping[str, Mapping[str, str]]) -> None:
    """Check that the store has everything of roots, as a map in memory has it."""
    for root, arcs in kept.items():
        tree = coregw.Map(arcs)
        assert tree.root == root
        for path in [*arcs][:: max(1, len(arcs) // 20)]:
            assert await site.resolve(root, *path.split("/")) == arcs[path]
        assert await exported(site, root)


# --- what is written --------------------------------------------------------------------------------------------------


async def test_a_change_takes_few_bytes_and_is_read_from_the_disk(tmp_path: Path) -> None:
    arcs, time = many(5000), Time()
    async with site_on(tmp_path, time) as site:
        root = await site.create(arcs)
        before = await listed(site)
        for number in range(60):
            path = f"folder/{number * 7:05}"
            root = await change(site, root, arcs, path, TARGETS[1])
        new = [page for digest, page in (await listed(site)).items() if digest not in before]
        differences = [page for page in new if page.base is not None]
        assert len(differences) > 0.8 * len(new)
        assert sum(page.size for page in new) < 0.2 * sum(len(page.page) for page in new)
        whole = {digest for digest, page in (await listed(site)).items() if page.base is None}
        assert {page.base for page in differences} <= whole
    async with site_on(tmp_path, time) as site:
        await expect(site, {root: arcs})
    assert check_database(tmp_path / "rocksdb", lambda _: None).is_sound


async def test_a_page_that_is_made_again_is_no_difference_to_itself(site: Site) -> None:
    root = await site.create(many(2000))
    before = await listed(site)
    changed = await site.change(root, "folder/00007", TARGETS[1], TARGETS[0])
    changed = await site.change(changed, "folder/01999", TARGETS[1], TARGETS[0])
    await site.change(changed, "folder/00007", TARGETS[0], TARGETS[1])  # one of its pages is that of `before`
    after = await listed(site)
    assert {digest: after[digest] for digest in before} == before


async def test_a_page_without_its_base_is_absent(site: Site) -> None:
    store = site.store
    assert isinstance(store, RocksStore)
    await store.put({Table.PAGES: [(BASE, BYTES)]})
    await store.put({Table.PAGES: [(PAGE, CHANGED)]}, differences=[(PAGE, TO_BASE)])
    assert await store.get(Table.PAGES, [PAGE, OTHER, BASE]) == [CHANGED, None, BYTES]
    assert await store.list_rows(Table.PAGES, b"", None, 1) == [(PAGE, CHANGED)]
    await store.delete(Table.PAGES, [BASE])
    assert await store.get(Table.PAGES, [PAGE, BASE]) == [None, None]
    assert await store.list_rows(Table.PAGES, b"", None, 1) == []
    assert await store.list_pages(None, 9) == [ListedPage(PAGE, b"", 32 + len(TO_BASE), BASE)]
    await store.put({Table.PAGES: [(OTHER, BYTES)]})
    assert await store.list_rows(Table.PAGES, b"", None, 1) == [(OTHER, BYTES)]


@pytest.mark.parametrize("state", ["absent", "a difference", "deleted"])
async def test_a_base_that_is_not_stored_as_a_whole_is_none(tmp_path: Path, state: str) -> None:
    async with await open_store(tmp_path) as store:
        await store.put({Table.PAGES: [(OTHER, BYTES)]})
        if state == "a difference":
            await store.put({Table.PAGES: [(BASE, CHANGED)]}, differences=[(BASE, OTHER + bytes([0, 0, 3]) + b"new")])
        if state == "deleted":
            await store.put({Table.PAGES: [(BASE, BYTES)]})
            await store.put({Table.PAGES: [(PAGE, CHANGED)]}, differences=[(PAGE, TO_BASE)])
            await store.delete(Table.PAGES, [BASE, PAGE])
        await store.put({Table.PAGES: [(PAGE, CHANGED)]}, differences=[(PAGE, TO_BASE)])
        [page] = [page for page in await store.list_pages(None, 9) if page.digest == PAGE]
        assert page.base == (OTHER if state == "a difference" else None)
        await store.delete(Table.PAGES, [BASE])
        assert await store.get(Table.PAGES, [PAGE]) == [
            apply_difference(OTHER + bytes([0, 0, 6]) + b"newnew", BYTES) if page.base else CHANGED
        ]


async def test_a_base_that_the_same_batch_removes_is_none(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        await store.put({Table.PAGES: [(BASE, BYTES)]})
        await store.put({Table.PAGES: [(OTHER, CHANGED)]}, differences=[(OTHER, TO_BASE)])
        with store._committer._writing:
            removal = asyncio.create_task(store.delete(Table.PAGES, [BASE]))
            put = asyncio.create_task(store.put({Table.PAGES: [(PAGE, CHANGED)]}, True, differences=[(PAGE, TO_BASE)]))
            while store._committer.queued < 2:
                await asyncio.sleep(0.001)
        await asyncio.gather(removal, put)
        await store.put({Table.PAGES: [(OTHER, CHANGED)]}, True, differences=[(OTHER, TO_BASE)])
        assert await store.get(Table.PAGES, [PAGE, BASE, OTHER]) == [CHANGED, None, CHANGED]


async def test_a_base_that_the_same_batch_keeps_alone_is_not_replaced(tmp_path: Path) -> None:
    to_other = (BASE, OTHER + bytes([0, 3, 0]))
    async with await open_store(tmp_path) as store:
        await store.put({Table.PAGES: [(BASE, BYTES), (OTHER, CHANGED)]})
        await store.put({Table.PAGES: [(PAGE, CHANGED)]}, differences=[(PAGE, TO_BASE)])
        with store._committer._writing:
            keeping = asyncio.create_task(store.keep_as_bases([BASE], None))
            put = asyncio.create_task(store.put({Table.PAGES: [(BASE, BYTES)]}, differences=[to_other]))
            while store._committer.queued < 2:
                await asyncio.sleep(0.001)
        await asyncio.gather(keeping, put)
        assert await store.get(Table.PAGES, [PAGE, BASE]) == [CHANGED, BYTES]


async def test_pages_of_a_root_that_has_lost_some_are_stored_as_a_whole(tmp_path: Path) -> None:
    root = b"\1" * 38
    rows = {Table.PAGES: [(PAGE, CHANGED)], Table.ROOTS: [(root, COMPLETE)]}
    async with await open_store(tmp_path) as store:
        for heal in (
            lambda: store.put(rows, differences=[(PAGE, TO_BASE)]),
            lambda: asyncio.to_thread(
                store.thread_calls().write, [], [Put(rows, (), None, INCOMPLETE, (), [(PAGE, TO_BASE)])], []
            ),
        ):
            await store.put({Table.PAGES: [(BASE, BYTES), (PAGE, b"damaged")], Table.ROOTS: [(root, INCOMPLETE)]})
            await heal()
            assert await store.get(Table.PAGES, [PAGE]) == [CHANGED]


async def test_a_base_that_is_kept_alone_is_no_page_until_it_is_stored_again(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        await store.put({Table.PAGES: [(BASE, BYTES), (OTHER, CHANGED)]})
        await store.put({Table.PAGES: [(PAGE, CHANGED)]}, differences=[(PAGE, TO_BASE)])
        await store.keep_as_bases([BASE, PAGE, bytes(32)], None)
        assert await store.get(Table.PAGES, [BASE, PAGE]) == [None, CHANGED]
        assert await store.list_rows(Table.PAGES, b"", None, 9) == [(PAGE, CHANGED), (OTHER, CHANGED)]
        further = PAGE[:-1] + b"f"
        await store.put({Table.PAGES: [(further, CHANGED)]}, differences=[(further, TO_BASE)])
        to_other = (BASE, OTHER + bytes([0, 3, 0]))
        await store.put({Table.PAGES: [(BASE, BYTES)]}, differences=[to_other])
        assert await store.get(Table.PAGES, [BASE, PAGE, further]) == [BYTES, CHANGED, CHANGED]
        await store.keep_as_bases([BASE], None)
        assert await store.get(Table.PAGES, [BASE, PAGE, further]) == [None, CHANGED, CHANGED]


async def test_a_store_that_has_lost_its_differences_is_damaged(tmp_path: Path) -> None:
    await (await open_store(tmp_path)).close()
    options = database_options(create=False, salvage=False)
    database = Rdict(str(tmp_path / "rocksdb"), options, family_options(Cache(1 << 20)))
    database.drop_column_family("differences")
    database.close()
    with pytest.raises(StoreDamaged):
        await open_store(tmp_path)


async def test_an_absent_page_is_an_answer_of_a_store_whose_log_is_damaged(tmp_path: Path) -> None:
    run_until_dead(
        tmp_path,
        """
        from coregw.store import Table
        store = await open_store(path)
        await store.put({Table.PAGES: [(b"p" * 32, b"page")]})
        await store.flush()
        await store.put({Table.RECORDS: [(b"nscope\\0name\\0", b"record")]})
        die()
        """,
    )
    flip_bit(log := log_file(tmp_path), log.stat().st_size // 3)
    async with await open_store(tmp_path, read_only_if_needed=True) as store:
        assert store.read_only is not None
        assert await store.get(Table.PAGES, [b"p" * 32, b"x" * 32]) == [b"page", None]
        assert await store.list_rows(Table.PAGES, b"", None, 9) == [(b"p" * 32, b"page")]


# --- collections ------------------------------------------------------------------------------------------------------


async def test_a_base_stays_as_long_as_a_kept_page_is_a_difference_to_it(site: Site) -> None:
    arcs = many(2000)
    old = await site.create(arcs)
    kept = await site.change(old, "folder/00007", TARGETS[1], TARGETS[0])
    await site.publish(kept)
    bases = {page.base for page in (await listed(site)).values()} - {None}
    site.time.seconds += 100
    result = await site.collect()
    assert (result.roots_removed, result.pages_removed) == (1, 0)
    assert bases <= (await listed(site)).keys()
    await expect(site, {kept: arcs | {"folder/00007": TARGETS[1]}})
    last = await site.create({"a": TARGETS[0]})
    await site.engine.publications.publish("docs", "main", last, 1)
    site.time.seconds += 100
    result = await site.collect(revisions=1)
    assert (result.roots_removed, len(await listed(site))) == (1, 1)


async def test_what_a_collection_takes_for_garbage_stays_if_it_becomes_a_base(site: Site) -> None:
    store = site.store
    assert isinstance(store, RocksStore)
    await store.put({Table.PAGES: [(BASE, BYTES)]})
    site.time.seconds += 100
    async with store.collect(60) as collection:
        await collection.expire()
        await store.put({Table.PAGES: [(PAGE, CHANGED)]}, differences=[(PAGE, TO_BASE)])
        assert await collection.remove(Stored.PAGES, [BASE, PAGE]) == [False, False]
    assert await store.get(Table.PAGES, [PAGE]) == [CHANGED]


@given(seed=st.integers(0, 2**32), size=st.sampled_from([3, 300, 1500]))
@settings(max_examples=12, deadline=None)
def test_kept_roots_survive_any_history(tmp_path_factory: pytest.TempPathFactory, seed: int, size: int) -> None:
    """Changes, undone changes, collections and restarts in any order: what is published stays whole."""
    asyncio.run(_history(tmp_path_factory.mktemp("store"), random.Random(seed), size))


async def _history(folder: Path, choice: random.Random, size: int) -> None:
    time, held, kept = Time(), {}, {}
    for _ in range(3):
        async with site_on(folder, time) as site:
            if not held:
                arcs = many(size)
                held[await site.create(arcs)] = arcs
            for _ in range(choice.randrange(5, 40)):
                time.seconds += 1
                root = choice.choice([*held])
                arcs = dict(held[root])
                match choice.randrange(8):
                    case 0:
                        await site.publish(root, f"name{len(kept)}")
                        kept[root] = arcs
                    case 1:
                        time.seconds += choice.choice([0, 100])
                        before = dict(held)
                        await site.collect(grace=60)
                        rows = await site.store.get(Table.ROOTS, [bytes(Cid(root)) for root in before])
                        held = {each: before[each] for each, row in zip(before, rows, strict=True) if row is not None}
                        assert kept.keys() <= held.keys()
                        if not held:
                            held[await site.create(arcs)] = arcs
                    case _:
                        path = f"folder/{choice.randrange(min(size, 12)):05}"
                        target = choice.choice([each for each in TARGETS[:3] if each != arcs[path]])
                        held[await change(site, root, arcs, path, target)] = arcs
        async with site_on(folder, time) as site:
            await expect(site, held)
        assert check_database(folder / "rocksdb", lambda _: None).is_sound


async def test_a_base_that_is_kept_alone_is_not_looked_into(site: Site) -> None:
    arcs = many(2000)
    for number in range(2):
        await site.put(bytes([number]))
    only = await site.put(b"of the old root alone")
    kept = await site.change(await site.create(arcs | {"folder/00007": only}), "folder/00007", TARGETS[1], only)
    await site.publish(kept)
    site.time.seconds += 100
    assert (await site.collect()).payloads_removed == 1
    inventory = StoreInventory(site.store)
    passes, pages = [], inventory.pages
    inventory.pages = lambda: passes.append(0) or pages()  # type: ignore[method-assign, func-returns-value]
    check = StoreCheck(inventory, lambda _: None)
    assert (await inventory.in_thread(check.run)).is_sound
    assert (len(passes), check.pages.missing, check.pages.harms) == (3, {}, {})
    assert await inventory.in_thread(lambda: list(absent_targets(check, []))) == []
    await site.store.put({Table.ROOTS: [(bytes(Cid(kept)), WHOLE)]})
    assert (await repair_online(site.store, lambda _: None)).repaired.is_sound
    assert await site.store.get(Table.ROOTS, [bytes(Cid(kept))]) == [WHOLE]


async def test_a_backup_that_began_with_differences_goes_on_from_a_store_without_any(tmp_path: Path) -> None:
    repository, time = tmp_path / "backups", Time()
    memory = MemoryStore(slice_seconds=0.0)
    async with site_on(tmp_path / "store", time) as site:
        old = await site.create(many(2000))
        changes = [
            {"path": f"folder/{number:05}", "before": {"target": TARGETS[0]}, "after": {"target": TARGETS[1]}}
            for number in range(40)
        ]
        request = {"deltas": [{"kind": "map", "changes": changes}]}
        await site.publish(json.loads(await site.engine.mutate(old, json.dumps(request).encode()))["new_root"])
        await back_up(site.store, repository, 7, silent)
        await copy_store(site.store, memory, report=silent)
    await asyncio.sleep(0.01)
    await collect_garbage(memory, grace_seconds=0, revisions=0, dry_run=False, report=silent)
    await back_up(memory, repository, 7, silent, adopt=True)
    engine = Engine(memory)
    assert json.loads(await engine.create_root(json.dumps({"arcs": many(2000)}).encode()))["root"] == old
    await back_up(memory, repository, 7, silent)
    await restored(repository, tmp_path / "restored")
    async with site_on(tmp_path / "restored", time) as site:
        await expect(site, {old: many(2000)})


# --- repair -----------------------------------------------------------------------------------------------------------


async def test_a_repaired_store_has_the_same_differences(tmp_path: Path) -> None:
    arcs, time = many(3000), Time()
    async with site_on(tmp_path, time) as site:
        root = await site.create(arcs)
        for number in range(20):
            root = await change(site, root, arcs, f"folder/{number:05}", TARGETS[1])
        before = await listed(site)
    repair_store(tmp_path, lambda _: None)
    async with site_on(tmp_path, time) as site:
        assert await listed(site) == before
        await expect(site, {root: arcs})


async def test_a_repair_keeps_a_page_whose_base_is_damaged_where_they_differ(tmp_path: Path) -> None:
    arcs, time = many(2000), Time()
    async with site_on(tmp_path, time) as site:
        root = await change(site, await site.create(arcs), arcs, "folder/00007", TARGETS[1])
        await site.publish(root)
        found = await listed(site)
        page = next(page for page in found.values() if page.base is not None and page.digest != Cid(root).digest)
        assert isinstance(site.store, RocksStore)
        assert page.base is not None
        [difference] = site.store._database.get_rows(Family.DIFFERENCES, [page.digest])
        assert difference is not None
        base = found[page.base].page
        others = (base[:at] + bytes([base[at] ^ 1]) + base[at + 1 :] for at in range(len(base)))
        damaged = next(other for other in others if apply_difference(difference, other) == page.page)
        site.store._database.write([(Family.PAGES, page.base, damaged)])
        site.store._database.sync()
    repair_store(tmp_path, lambda _: None)
    async with site_on(tmp_path, time) as site:
        await expect(site, {root: arcs})


async def test_a_damaged_base_loses_what_is_a_difference_to_it_until_that_is_stored_again(tmp_path: Path) -> None:
    arcs, time = many(3000), Time()
    async with site_on(tmp_path, time) as site:
        root = await site.create(arcs)
        changed = await change(site, root, arcs, "folder/00007", TARGETS[1])
        await site.publish(changed)
        assert isinstance(site.store, RocksStore)
        base = next(page.base for page in (await listed(site)).values() if page.base is not None)
        site.store._database.write([(Family.PAGES, base, b"damaged")])
        site.store._database.sync()
    found = check_database(tmp_path / "rocksdb", lambda _: None)
    assert len(found.missing_pages) == 2
    repair_store(tmp_path, lambda _: None)
    async with site_on(tmp_path, time) as site:
        assert [await site.create(each) for each in (arcs, many(3000))] == [changed, root]
        await expect(site, {changed: arcs, root: many(3000)})
    assert not check_database(tmp_path / "rocksdb", lambda _: None).missing_pages


# --- files ------------------------------------------------------------------------------------------------------------


async def test_rows_are_found_in_files_as_they_are_read_in_order(tmp_path: Path) -> None:
    choice = random.Random(3)
    async with await open_store(tmp_path) as store:
        for part in range(6):
            rows = [(choice.randbytes(1) * 32, choice.randbytes(choice.randrange(1, 6000))) for _ in range(90)]
            await store.put({Table.PAGES: list(dict(rows).items())})
            await store.delete(Table.PAGES, [choice.randbytes(1) * 32 for _ in range(9)])
            if part % 2:
                await store.flush()
        shutil.copytree(tmp_path / "rocksdb", tmp_path / "copy", ignore=shutil.ignore_patterns("LOCK"))
    for folder in (tmp_path / "rocksdb", tmp_path / "copy"):  # the copy has rows in its log
        with RawDatabase(folder) as database:
            expected = {row.key: row for row in database.rows(Family.PAGES)}
            assert len(expected) > 150
            for key in (bytes([number]) * 32 for number in range(256)):
                assert database.find(Family.PAGES, key) == expected.get(key)
