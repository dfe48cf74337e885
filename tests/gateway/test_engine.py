"""The engine without HTTP: needs, budgets, cached roots, and the order of writes."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

import coregw
from car_files import block, cid, header
from coregw.engine import Engine, EngineLimits
from coregw.engine.scheduling import WorkerPool
from coregw.errors import Conflict, InvalidInput, RootNotFound, StorageFull, StoreDamaged, Unavailable
from coregw.gateway.app import engine_limits
from coregw.gateway.limits.machine import Limits
from coregw.gateway.settings import Settings
from coregw.store import Table
from coregw.store.memory import MemoryStore

T = TypeVar("T")
LEAF = coregw.payload_cid(b"leaf")
ARCS = {f"d{i % 100}/f{i}": LEAF for i in range(40_000)}


class WatchedStore(MemoryStore):
    """A store that records its calls, and can lose its pages or be full."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []
        self.lost = False
        self.full = False

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        self.calls.append((f"get {table}", len(keys)))
        is_lost = self.lost and table is Table.PAGES
        return [None] * len(keys) if is_lost else await super().get(table, keys)

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        pages, roots = rows.get(Table.PAGES, ()), rows.get(Table.ROOTS, ())
        assert sum(len(digest) + len(page) for digest, page in pages) <= (1 << 20) + 16_384
        if self.full and roots:
            raise StorageFull("no room")
        assert durable == bool(roots)
        self.calls.append(("put roots", len(roots)) if roots else ("put pages", len(pages)))
        return await super().put(rows, durable, requires, since)

    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def run(use: Callable[[Engine, WatchedStore], Awaitable[T]], limits: EngineLimits | None = None) -> T:
    """Run a test on a new engine over a new store, and close both."""

    async def main() -> T:
        store = WatchedStore()
        engine = Engine(store, limits)
        try:
            return await use(engine, store)
        finally:
            await engine.close()

    return asyncio.run(main())


def arcs(members: dict[str, str]) -> bytes:
    return json.dumps({"arcs": members}).encode()


async def created(engine: Engine, body: bytes) -> str:
    root: str = json.loads(await engine.create_root(body))["root"]
    return root


def resolving(root: str, *segments: str) -> bytes:
    return json.dumps({"profile": "core.resolve/v0alpha1", "root": root, "segments": segments}).encode()


def test_pages_are_stored_in_batches_before_the_record() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        root = await created(engine, arcs(ARCS))
        assert root == coregw.Map(ARCS).root
        *before, last = [name for name in store.names() if name != "get roots"]
        assert last == "put roots"
        assert before
        assert set(before) == {"put pages"}

    run(use)


def test_a_held_root_is_not_stored_again() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        await engine.create_root(arcs(ARCS))
        store.calls.clear()
        await engine.create_root(arcs(ARCS))
        assert store.calls == []

    run(use)


def test_a_cached_query_is_answered_without_the_store_a_thread_or_the_event_loop() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        root = await created(engine, arcs(ARCS))
        asked = resolving(root, "d7", "f7")
        first = await engine.resolve(asked)
        threads = threading.active_count()
        store.calls.clear()
        answering = engine.resolve(asked)
        with pytest.raises(StopIteration) as ended:
            answering.send(None)  # type: ignore[attr-defined]  # it ends without waiting for the event loop
        assert ended.value.value == first
        assert store.calls == []
        assert threading.active_count() == threads
        assert coregw.verify_resolve(asked, first) == LEAF

    run(use)


def test_a_query_that_spends_its_budget_continues_in_a_worker_thread() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        root = await created(engine, arcs(ARCS))
        asked = json.dumps({"profile": "core.scan/v0alpha1", "root": root, "prefix": [], "limit": 1000}).encode()
        scanned = coregw.verify_scan_result(asked, await engine.scan(asked))
        assert len(scanned.entries) == 1000
        assert scanned.more

    run(use, EngineLimits(node_budget=1))


def test_only_held_roots_are_remembered() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        root = coregw.Map({"a": LEAF, "b": LEAF}).root
        for _ in range(2):
            store.calls.clear()
            with pytest.raises(RootNotFound):
                await engine.resolve(resolving(root, "a"))
            assert store.calls == [("get roots", 1), ("get pages", 1)]  # at the same time
        await engine.create_root(arcs({"a": LEAF, "b": LEAF}))
        assert coregw.verify_resolve(resolving(root, "a"), await engine.resolve(resolving(root, "a"))) == LEAF

    run(use)


def test_the_number_of_remembered_roots_is_bounded() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        roots = [await created(engine, arcs({f"k{i}": LEAF})) for i in range(5)]
        store.calls.clear()
        for i, root in enumerate(roots):
            await engine.resolve(resolving(root, f"k{i}"))
        assert store.names().count("get roots") >= 3  # it remembers at most two of the five

    run(use, EngineLimits(held_roots=2))


def test_lost_pages_are_damage_not_absence() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        root = await created(engine, arcs(ARCS))
        store.lost = True
        with pytest.raises(StoreDamaged):
            await engine.resolve(resolving(root, "d7", "f7"))

    run(use)


def test_a_full_store_acknowledges_nothing() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        store.full = True
        with pytest.raises(StorageFull):
            await engine.create_root(arcs(ARCS))
        with pytest.raises(RootNotFound):
            await engine.resolve(resolving(coregw.Map(ARCS).root, "d7", "f7"))

    run(use)


def test_a_change_writes_few_pages_and_a_refused_one_writes_none() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        root = await created(engine, arcs(ARCS))
        store.calls.clear()
        change = {"path": "d7/f7", "before": {"target": LEAF}, "after": {"target": root}}
        receipt = json.loads(
            await engine.mutate(root, json.dumps({"deltas": [{"kind": "map", "changes": [change]}]}).encode())
        )
        assert receipt["new_root"] == coregw.Map(ARCS | {"d7/f7": root}).root
        assert "put pages" not in store.names()  # they are stored together with the record
        store.calls.clear()
        with pytest.raises(Conflict):
            await engine.mutate(
                receipt["new_root"], json.dumps({"deltas": [{"kind": "map", "changes": [change]}]}).encode()
            )
        assert "put roots" not in store.names()

    run(use)


def test_a_query_past_its_timeout_is_unavailable() -> None:
    class Slow(WatchedStore):
        async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
            if table is Table.PAGES:
                await asyncio.Event().wait()
            return await super().get(table, keys)

    async def main() -> None:
        store = Slow()
        engine = Engine(store, EngineLimits(operation_seconds=0.05))
        root = await created(engine, arcs(ARCS))
        with pytest.raises(Unavailable, match=r"0\.05"):
            await engine.resolve(resolving(root, "d7", "f7"))
        await engine.close()

    asyncio.run(main())


def test_many_queries_and_changes_at_once_agree() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        root = await created(engine, arcs(ARCS))

        async def change(i: int) -> None:
            new = {"path": f"new/{i}", "after": {"target": LEAF}}
            body = json.dumps({"deltas": [{"kind": "map", "changes": [new]}]}).encode()
            made = json.loads(await engine.mutate(root, body))["new_root"]
            for path in (f"new/{i}", f"d{i}/f{i}"):
                asked = resolving(made, *path.split("/"))
                assert coregw.verify_resolve(asked, await engine.resolve(asked)) == LEAF

        await asyncio.gather(*[change(i) for i in range(50)])

    run(use, EngineLimits(cache_bytes=1 << 20, node_budget=3))


def test_heavy_requests_wait_for_a_place() -> None:
    async def use(engine: Engine, store: WatchedStore) -> None:
        bodies = [arcs({f"{'x' * 60}{i}/{j}": LEAF for i in range(9_000)}) for j in range(3)]
        assert all(len(body) > 1 << 20 for body in bodies)
        roots = await asyncio.gather(*[engine.create_root(body) for body in bodies])
        assert len(set(roots)) == 3

    run(use, EngineLimits(heavy_requests=1))


def test_a_long_answer_is_written_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[object] = []

    async def recorded(pool: WorkerPool, work: Callable[[], T], level: int = 0) -> T:
        results.append(await original(pool, work, level))
        return results[-1]  # type: ignore[return-value]

    original = WorkerPool.run
    monkeypatch.setattr(WorkerPool, "run", recorded)

    async def use(engine: Engine, store: WatchedStore) -> None:
        long = {f"{i:03}" + "\x01" * 4000: LEAF for i in range(400)}
        root = json.loads(await engine.create_root(arcs(long)))["root"]
        request = json.dumps({"profile": "core.scan/v0alpha1", "root": root, "prefix": []}).encode()
        await engine.scan(request)  # from now on all pages are cached
        results.clear()
        answer = await engine.scan(request)
        assert len(answer) > 8 << 20
        assert results[-1] is answer, "a worker thread returned it"

    run(use)


async def until(is_reached: Callable[[], bool]) -> None:
    """Wait for a worker thread to drop what it used, and fail if it does not."""
    async with asyncio.timeout(60):
        while not is_reached():
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("blocks", [10, 70_000])
def test_a_refused_import_does_not_keep_its_body(blocks: int) -> None:
    body = header(cid(0x303110, b"\0")) + block(b"\x01\x55\x00\x00", b"") * blocks

    async def use(engine: Engine, _: WatchedStore) -> None:
        gc.collect()
        gc.disable()
        before = sys.getrefcount(body)
        try:
            with pytest.raises(InvalidInput, match="is not among the blocks"):
                await engine.cars.import_whole(body)
            await until(lambda: sys.getrefcount(body) == before)
        finally:
            gc.enable()

    run(use)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs Linux's /proc")
def test_a_refused_build_does_not_keep_its_spool(tmp_path: Path) -> None:
    async def lines() -> AsyncIterator[bytes]:
        for start in range(0, 160_000, 1000):
            yield b"".join(b'["%d","bafkqaaa"]\n' % number for number in range(start, start + 1000))
            if start == 120_000:
                yield b"{}\n" + b"\n" * (2 << 20)

    def open_files() -> list[str]:
        names = []
        for each in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # the descriptor with which the folder is read, or a path that is too long
                names.append(str(each.readlink()))
        return [name for name in names if str(tmp_path) in name]

    async def use(engine: Engine, _: WatchedStore) -> None:
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(InvalidInput, match=r"line 121001: .* expected two strings"):
                await engine.builds.build_root(lines(), "sha2-256")
            await until(lambda: open_files() == [])
        finally:
            gc.enable()

    run(use, EngineLimits(build_run_bytes=1 << 16, spool=tmp_path))


def test_a_gateway_and_an_engine_without_one_have_the_same_limits_but_for_those_of_memory(tmp_path: Path) -> None:
    settings = Settings(data=tmp_path)
    limits = engine_limits(settings, Limits.of(settings, 64 << 30))
    assert limits.spool == tmp_path
    own = EngineLimits()
    of_memory = {name: getattr(own, name) for name in ("cache_bytes", "change_bytes", "long_queries")}
    assert replace(limits, **of_memory, spool=None, reserve_bytes=0) == own
