"""The store in PostgreSQL follows keys through pages by guides, which last as long as the pages."""

from __future__ import annotations

import asyncio
import json
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

import asyncpg
import pytest

from coregw import payload_cid, verify_resolve
from coregw._core import Cid
from coregw.engine import Engine
from coregw.errors import StorageFull
from coregw.store import Stored, Table
from coregw.store.memory import MemoryStore
from coregw.store.postgres import open_store, schema
from coregw.store.protocol import Guide
from coregw.upkeep.check import check_online
from coregw.upkeep.copy import copy_store
from coregw.upkeep.repair import repair_online
from network import proxy_of
from postgres_support import new_schema, opened
from servers import Postgres

pytestmark = pytest.mark.anyio
PAGES = Table.PAGES

LEAF = payload_cid(b"leaf")
NAMES = [f"{i:04}" * 100 for i in range(3000)]
MAP = json.dumps({"arcs": dict.fromkeys(NAMES, LEAF)}).encode()
"""Three levels of pages."""


def lookup(root: str, name: str) -> bytes:
    return json.dumps({"profile": "core.resolve/v0alpha1", "root": root, "segments": [name]}).encode()


async def test_a_cold_look_up_in_a_map_of_three_levels_reads_pages_twice(primary: Postgres) -> None:
    async with opened(primary) as store:
        root = json.loads(await Engine(store).create_root(MAP))["root"]
        top = Cid(root).digest
        calls: Counter[str] = Counter()
        get, get_descents = store.get, store.get_descents

        async def counted_get(table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
            calls[table] += 1
            return await get(table, keys)

        async def counted_descents(keys: Mapping[bytes, Sequence[bytes]]) -> dict[bytes, bytes]:
            calls["descents"] += 1
            found = await get_descents(keys)
            assert top in found
            assert len(found) == 2
            return found

        store.get, store.get_descents = counted_get, counted_descents  # type: ignore[method-assign]
        for name in NAMES[::150]:
            calls.clear()
            request = lookup(root, name)
            assert verify_resolve(request, await Engine(store).resolve(request)) == LEAF
            assert calls == {"descents": 1, Table.ROOTS: 1, PAGES: 1}  # the first two at the same time
        store.get, store.get_descents = get, get_descents  # type: ignore[method-assign]
        keys = [b"", b"\0", b"\xff" * 9000, *(name.encode() for name in NAMES)]
        for key in keys[:4]:
            assert len(await store.get_descents({top: [key]})) == 2
        (guide,) = await store.list_guides(None, 10)
        assert (await store.get_descents({top: keys})).keys() == {top, *guide.below}
        assert await store.list_guides(top, 10) == []
        assert await store.get_descents({bytes(32): [b"key"], b"no digest": [b"key", b"key"]}) == {}


async def test_the_first_look_up_of_a_gateway_waits_for_no_connection_or_preparation(primary: Postgres) -> None:
    async with opened(primary) as maker, proxy_of(primary.port) as proxy:
        root = json.loads(await Engine(maker).create_root(MAP))["root"]
        schema_of = maker.address.rpartition("=")[2]
        url = f"postgresql://coregw@127.0.0.1:{proxy.port}/postgres?search_path={schema_of}"
        for name in NAMES[::700]:
            async with await open_store(url) as store:
                request, before = lookup(root, name), proxy.rounds
                assert verify_resolve(request, await Engine(store).resolve(request)) == LEAF
                if proxy.rounds - before == 3:  # the record; the inner pages; the leaf page
                    break
        else:
            raise AssertionError(proxy.rounds - before)  # more than what the store does from time to time


async def test_many_keys_lead_to_what_each_of_them_leads_to(primary: Postgres) -> None:
    rng = random.Random(5)
    pages = [bytes([number]) * 32 for number in range(60)]
    guides = []
    for number in range(20):
        firsts = sorted({rng.randbytes(rng.randint(0, 2)) for _ in range(rng.randint(1, 9))})
        guides.append(Guide(pages[number], firsts, rng.sample(pages[number + 1 :], len(firsts))))
    below = {guide.page: guide for guide in guides}

    def way(page: bytes, key: bytes) -> set[bytes]:
        guide = below.get(page)
        if guide is None:
            return {page}
        return {page} | way(guide.below[max(0, bisect_right(guide.firsts, key) - 1)], key)

    async with opened(primary) as store:
        await store.put({PAGES: [(page, page[:1]) for page in pages]}, guides=guides)
        for _ in range(50):
            wanted = {
                page: [rng.randbytes(rng.randint(0, 3)) for _ in range(rng.randint(1, 40))]
                for page in rng.sample(pages, 3)
            }
            expected = set().union(*(way(page, key) for page, keys in wanted.items() for key in keys))
            assert await store.get_descents(wanted) == {page: page[:1] for page in expected}


async def test_guides_count_as_stored_bytes_until_they_go_with_their_pages(primary: Postgres) -> None:
    a, b = bytes(32), b"b" * 32
    guides = [Guide(a, [b"first", b"second"], [b, b]), Guide(b, [b""], [a])]
    sizes = [guide.size for guide in guides]
    assert sizes == [32 + 11 + 64, 32 + 32]
    async with opened(primary) as store:
        for _ in range(2):  # the second put finds them
            await store.put({PAGES: [(a, b"A"), (b, b"B")]}, guides=guides)
            assert (await store.usage()).data == (await store.figures()).data_bytes == 66 + sum(sizes)
        await store.set_guides([a, b], [guides[1]])
        assert (await store.usage()).data == 66 + sizes[1]
        await store.set_guides([a], [guides[0], Guide(b"c" * 32, [b""], [a])])  # it does not have that page
        await asyncio.sleep(0.01)
        async with store.collect(0.0) as collection:
            assert await collection.remove(Stored.PAGES, [b]) == [True]
        assert (await store.usage()).data == 33 + sizes[0]
        await store.delete(PAGES, [a])
        assert (await store.usage()).data == 0
    async with opened(primary, quota_bytes=66 + sizes[0]) as store:
        with pytest.raises(StorageFull):
            await store.put({PAGES: [(a, b"A"), (b, b"B")]}, guides=guides)
        await store.put({PAGES: [(a, b"A"), (b, b"B")]}, guides=guides[:1])


async def test_a_check_names_wrong_guides_and_a_repair_derives_all_again(primary: Postgres) -> None:
    async with opened(primary) as store:
        root = json.loads(await Engine(store).create_root(MAP))["root"]
        top = Cid(root).digest
        (guide,) = await store.list_guides(None, 10)
        async with store.collect(0.0) as listing:
            pages = [item.key for item in await listing.list_items(Stored.PAGES, None, 10_000)]
        leaf = next(page for page in pages if page not in {top, *guide.below})
        wrong = [Guide(top, guide.firsts[1:], guide.below[1:]), Guide(leaf, [b""], [top])]
        await store.set_guides([top, leaf], wrong)
        found = await check_online(store, lambda _: None)
        assert {each.cid for each in found.damaged_guides} == {root, Cid(bytes(Cid(root))[:-32] + leaf).text}
        assert (found.is_sound, found.counts()["damaged_guides"], found.affected_roots) == (False, 2, [])
        assert any(line.startswith(f"damaged guide {root}: ") for line in found.lines())
        request = lookup(root, NAMES[0])
        assert verify_resolve(request, await Engine(store).resolve(request)) == LEAF
        repaired = (await repair_online(store, lambda _: None)).repaired
        assert repaired.is_sound
        assert await store.list_guides(None, 10) == [guide]
        await store.set_guides([top], [])  # as of a map that an earlier version has stored
        found = await check_online(store, lambda _: None)
        (damaged,) = found.damaged_guides
        assert (damaged.cid, damaged.what, found.is_sound) == (root, "it has no guide to its inner pages", False)
        assert (await repair_online(store, lambda _: None)).repaired.is_sound
        assert await store.list_guides(None, 10) == [guide]


async def test_guides_last_as_long_as_their_pages_and_wrong_ones_do_no_harm(primary: Postgres) -> None:
    async with opened(primary) as store:
        a, b, c, d = (bytes([i]) * 32 for i in range(4))
        rows = [(a, b"A"), (b, b"B"), (c, b"C")]
        guides = [Guide(a, [b"k", b"m"], [b, d]), Guide(b, [b"", b"l"], [a, c])]  # d is missing, and a is above itself
        await asyncio.gather(*(store.put({PAGES: rows}, guides=guides) for _ in range(8)))
        assert await store.get_descents({a: [b"n"]}) == {a: b"A"}
        assert await store.get_descents({a: [b"l"]}) == {a: b"A", b: b"B", c: b"C"}
        assert await store.get_descents({a: [b"kk"]}) == {a: b"A", b: b"B"}
        await store.delete(PAGES, [b])
        assert await store.get_descents({b: [b"l"]}) == {}
        await store.put({PAGES: [(b, b"B")]})
        assert await store.get_descents({a: [b"l"]}) == {a: b"A", b: b"B"}


async def test_tables_of_the_first_version_are_migrated_and_a_copy_has_guides(primary: Postgres) -> None:
    url = new_schema(primary)
    first = schema._first_version()
    name = url.rpartition("=")[2]
    connection = await asyncpg.connect(url)
    await connection.execute(first)
    await connection.execute("CREATE TABLE coregw_schema (version int); INSERT INTO coregw_schema VALUES (1)")
    await connection.close()
    source = MemoryStore()
    root = json.loads(await Engine(source).create_root(MAP))["root"]
    async with await open_store(url) as store:
        await copy_store(source, store, report=lambda _: None)
        assert len(await store.get_descents({Cid(root).digest: [NAMES[7].encode()]})) == 2
    primary.execute(f"DROP SCHEMA {name} CASCADE")
