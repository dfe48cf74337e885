"""The store in PostgreSQL follows keys through pages by guides, which last as long as the pages."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

import asyncpg
import pytest

from coregw import payload_cid, verify_resolve
from coregw._core import Cid
from coregw.engine import Engine
from coregw.store import Table
from coregw.store.guides import Guide
from coregw.store.memory import MemoryStore
from coregw.store.postgres import open_store, schema
from coregw.upkeep.copy import copy_store
from servers import Postgres
from store.postgres_support import new_schema, opened

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
        get, get_way = store.get, store.get_way

        async def counted_get(table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
            calls[table] += 1
            return await get(table, keys)

        async def counted_way(page: bytes, key: bytes) -> dict[bytes, bytes]:
            calls["way"] += 1
            way = await get_way(page, key)
            assert list(way) == [top, *list(way)[1:]]
            assert len(way) == 2
            return way

        store.get, store.get_way = counted_get, counted_way  # type: ignore[method-assign]
        for name in NAMES[::150]:
            calls.clear()
            request = lookup(root, name)
            assert verify_resolve(request, await Engine(store).resolve(request)) == LEAF
            assert calls == {"way": 1, Table.ROOTS: 1, PAGES: 1}  # the first two at the same time
        store.get, store.get_way = get, get_way  # type: ignore[method-assign]
        for key in (b"", b"\0", b"\xff" * 9000, NAMES[5].encode()):
            assert top in await store.get_way(top, key)
        assert await store.get_way(bytes(32), b"key") == {}


async def test_guides_last_as_long_as_their_pages_and_wrong_ones_do_no_harm(primary: Postgres) -> None:
    async with opened(primary) as store:
        a, b, c, d = (bytes([i]) * 32 for i in range(4))
        rows = [(a, b"A"), (b, b"B"), (c, b"C")]
        guides = [Guide(a, [b"k", b"m"], [b, d]), Guide(b, [b"", b"l"], [a, c])]  # d is missing, and a is above itself
        await asyncio.gather(*(store.put({PAGES: rows}, guides=guides) for _ in range(8)))
        assert await store.get_way(a, b"j") == {a: b"A"}
        assert await store.get_way(a, b"n") == {a: b"A"}
        assert await store.get_way(a, b"l") == {a: b"A", b: b"B", c: b"C"}
        assert await store.get_way(a, b"kk") == {a: b"A", b: b"B"}
        await store.delete(PAGES, [b])
        assert await store.get_way(b, b"l") == {}
        await store.put({PAGES: [(b, b"B")]})
        assert await store.get_way(a, b"l") == {a: b"A", b: b"B"}


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
        assert len(await store.get_way(Cid(root).digest, NAMES[7].encode())) == 2
    primary.execute(f"DROP SCHEMA {name} CASCADE")
