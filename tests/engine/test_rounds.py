"""How many round trips to the store a lookup takes: what is read at the same time counts once."""

from __future__ import annotations

import asyncio
import json
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pytest

from coregw import payload_cid
from coregw.engine import Engine
from coregw.engine.scheduling import WorkerPool
from coregw.store import Table
from coregw.store.memory import MemoryStore
from coregw.store.protocol import Guide

pytestmark = pytest.mark.anyio

R = TypeVar("R")

LEAF = payload_cid(b"leaf")
LEVELS = [(1, 1, 1), (40_000, 1, 2), (6_000, 100, 3)]
"""Numbers of arcs, how often their names are repeated, and the levels of pages of their maps."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work runs on the event loop: what a busy machine delays would else ask in a round of its own."""

    async def run(_self: WorkerPool, work: Callable[[], R], level: int = 0) -> R:
        return work()

    monkeypatch.setattr(WorkerPool, "run", run)


class DistantStore(MemoryStore):
    """A store that answers all reads in flight at once, and counts how often."""

    def __init__(self) -> None:
        super().__init__()
        self.rounds = 0
        self.is_distant = False
        self._waiting: list[asyncio.Event] = []

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        if self.is_distant:
            arrival = asyncio.Event()
            self._waiting.append(arrival)
            await arrival.wait()
        return await super().get(table, keys)

    async def count(self, call: Coroutine[object, object, bytes]) -> int:
        """Run a call, and return how many rounds it took."""
        self.rounds, self.is_distant = 0, True
        task = asyncio.create_task(call)
        while not task.done():
            for _ in range(20):  # until everything that can be asked for is asked for
                await asyncio.sleep(0)
            if self._waiting:
                self.rounds += 1
                waiting, self._waiting = self._waiting, []
                for arrival in waiting:
                    arrival.set()
        self.is_distant = False
        await task
        return self.rounds


class GuidedDistantStore(DistantStore):
    """A distant store that keeps guides."""

    def __init__(self) -> None:
        super().__init__()
        self.guides: dict[bytes, Guide] = {}

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
        guides: Sequence[Guide] = (),
    ) -> int:
        self.guides.update((guide.page, guide) for guide in guides)
        return await super().put(rows, durable, requires, since)

    async def get_descents(self, keys: Mapping[bytes, Sequence[bytes]]) -> dict[bytes, bytes]:
        digests = set(keys)
        for page, wanted in keys.items():
            for key in wanted:
                at = page
                while guide := self.guides.get(at):
                    at = guide.below[max(bisect_right(guide.firsts, key), 1) - 1]
                    digests.add(at)
        pages = await self.get(Table.PAGES, list(digests))
        return {digest: page for digest, page in zip(digests, pages, strict=True) if page is not None}

    async def list_guides(self, after: bytes | None, limit: int) -> list[Guide]:
        raise NotImplementedError

    async def set_guides(self, pages: Sequence[bytes], guides: Sequence[Guide]) -> None:
        raise NotImplementedError


def lookup(root: str, *path: str) -> bytes:
    return json.dumps({"profile": "core.resolve/v0alpha1", "root": root, "segments": path}).encode()


@pytest.mark.parametrize("kind", [DistantStore, GuidedDistantStore])
@pytest.mark.parametrize(("arcs", "repeat", "levels"), LEVELS)
async def test_a_cold_look_up_takes_one_round_for_each_level_of_pages_or_two_with_guides(
    kind: type[DistantStore], arcs: int, repeat: int, levels: int
) -> None:
    store = kind()
    maker = Engine(store)
    names = [f"k{i}" * repeat for i in range(arcs)]
    root = json.loads(await maker.create_root(json.dumps({"arcs": dict.fromkeys(names, LEAF)}).encode()))["root"]
    rounds = levels if kind is DistantStore else min(levels, 2)
    engine = Engine(store)  # nothing is cached
    first = await store.count(engine.resolve(lookup(root, names[0])))
    assert first == rounds or (first < rounds and kind is GuidedDistantStore)  # its leaf is in an inner page
    assert await store.count(engine.resolve(lookup(root, names[0]))) == 0
    for name in names[:: max(1, arcs // 50)] if kind is GuidedDistantStore else []:
        query = {"kind": "map_key", "segments": [name]}
        read = json.dumps({"profile": "core.read/v0alpha1", "root": root, "query": query}).encode()
        proof = json.dumps({"profile": "core.map-proof/v0alpha1", "root": root, "key": [name]}).encode()
        assert await store.count(Engine(store).resolve(lookup(root, name))) <= rounds
        assert await store.count(Engine(store).read(read)) <= rounds
        assert await store.count(Engine(store).map_proof(proof)) <= rounds
    warm = [await store.count(engine.resolve(lookup(root, name))) for name in names[::37]][-20:]
    assert max(warm) <= 1  # inner pages are cached


@pytest.mark.parametrize("kind", [DistantStore, GuidedDistantStore])
async def test_batches_proofs_listings_and_nested_maps_on_an_empty_gateway_take_fewer_rounds_with_guides(
    kind: type[DistantStore],
) -> None:
    store = kind()
    maker = Engine(store)
    names = [f"{i:04}" * 100 for i in range(6_000)]

    async def create(arcs: dict[str, str]) -> str:
        return str(json.loads(await maker.create_root(json.dumps({"arcs": arcs}).encode()))["root"])

    root = await create(dict.fromkeys(names, LEAF))
    other = await create(dict.fromkeys(names, LEAF) | {names[4321]: payload_cid(b"other")})
    outer = await create({"inside": root})

    async def rounds(call: Callable[[Engine], Coroutine[object, object, bytes]]) -> int:
        return await store.count(call(Engine(store)))  # nothing is cached

    some = names[::113]
    fewer = 1 if kind is GuidedDistantStore else 0  # three levels of pages
    batch = json.dumps({"root": root, "paths": [[name] for name in some]}).encode()
    assert await rounds(lambda engine: engine.resolve_batch(batch)) == 3 - fewer
    assert await rounds(lambda engine: engine.resolve(lookup(outer, "inside", some[7]))) == 4 - fewer
    nested = json.dumps({"root": outer, "paths": [["inside", name] for name in some]}).encode()
    assert await rounds(lambda engine: engine.resolve_batch(nested)) == 4 - fewer
    proof = {"profile": "core.map-proof/v0alpha1", "root": root, "keys": [[name] for name in some]}
    assert await rounds(lambda engine: engine.map_proof(json.dumps(proof).encode())) == 3 - fewer
    scan = {"profile": "core.scan/v0alpha1", "root": root, "prefix": [], "limit": 2}
    pages = [scan, *(scan | {"after": [name]} for name in some[::9])]
    taken = [await rounds(partial(Engine.scan, request=json.dumps(page).encode())) for page in pages]
    assert set(taken) == {3 - fewer, 4 - fewer}  # some end in the next leaf page
    for prefix, after, expected in ("", names[4320], 3 - fewer), (names[4321], None, 3 - fewer), ("", None, 3):
        diff = partial(Engine.diff, a=root, b=other, prefix=prefix, after=after, limit=1)
        assert await rounds(diff) == expected


async def test_a_look_up_in_a_root_that_is_not_held_takes_one_round() -> None:
    store = DistantStore()
    absent = json.loads(await Engine(MemoryStore()).create_root(json.dumps({"arcs": {"k": LEAF}}).encode()))["root"]
    engine = Engine(store)

    async def resolve() -> bytes:
        with pytest.raises(Exception, match="no root"):
            await engine.resolve(lookup(absent, "k"))
        return b""

    assert await store.count(resolve()) == 1
