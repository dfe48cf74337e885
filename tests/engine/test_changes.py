"""The memory that mutations and new roots hold: a limit for each of them, and one for all together."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator

import pytest

import coregw
from coregw.engine import Engine, EngineLimits
from coregw.engine.scheduling import Holder
from coregw.errors import TooLarge, Unavailable
from coregw.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

LEAF, OTHER = (coregw.payload_cid(text) for text in (b"leaf", b"other"))
LIMIT = 64 << 10

# Each key branches off the path of the next one, so that a change visits a node for each.
DEEP = {"a/" * depth + "z": LEAF for depth in range(600)}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def mutation(count: int, mark: int = 0) -> bytes:
    """A mutation that changes this many of the keys, the deepest first."""
    paths = sorted(DEEP, key=len, reverse=True)[:count]
    changes: list[dict[str, object]] = [
        {"path": path, "before": {"target": LEAF}, "after": {"target": OTHER}} for path in paths
    ]
    changes.append({"path": f"mark/{mark}", "after": {"target": LEAF}})
    return json.dumps({"deltas": [{"kind": "map", "changes": changes}]}).encode()


async def deep_map(engine: Engine) -> str:
    return str(json.loads(await engine.create_root(json.dumps({"arcs": DEEP}).encode()))["root"])


async def test_a_mutation_has_a_limit_and_frees_what_it_held() -> None:
    engine = Engine(MemoryStore(), EngineLimits(node_budget=50))
    changes = engine._driver.changes
    try:
        root = await deep_map(engine)
        await engine.mutate(
            root, mutation(0, mark=1)
        )  # what the last one below reads is cached, however far the other gets
        changes._max_bytes = LIMIT
        with pytest.raises(TooLarge, match=re.escape("needs more than 65,536 bytes of memory")):
            await engine.mutate(root, mutation(600))
        assert changes.total == 0
        receipt = json.loads(await engine.mutate(root, mutation(0)))
        assert receipt["arc_count"] == 1
        assert changes.total == 0
    finally:
        await engine.close()


async def test_mutations_together_have_a_limit_which_the_oldest_keeps_to() -> None:
    """Those that fail may be sent again."""
    engine = Engine(MemoryStore(), EngineLimits(node_budget=50))
    changes = engine._driver.changes
    try:
        root = await deep_map(engine)
        most = [0]
        hold = changes.hold

        def noted(holder: Holder) -> None:
            try:
                hold(holder)
            finally:
                most.append(max(changes._held.values(), default=0))

        changes.hold = noted  # type: ignore[method-assign]
        await engine.mutate(root, mutation(600))
        alone = max(most)
        assert alone > 100_000
        changes._max_bytes = alone + alone // 2
        requests = [mutation(600, mark) for mark in range(1, 9)]
        outcomes = await asyncio.gather(*(engine.mutate(root, each) for each in requests), return_exceptions=True)
        refused = [number for number, each in enumerate(outcomes) if isinstance(each, BaseException)]
        assert all(isinstance(outcomes[number], Unavailable) for number in refused), outcomes
        assert 0 < len(refused) < len(requests)
        assert changes.total == 0
        assert not changes._held
        for number in refused:
            assert json.loads(await engine.mutate(root, requests[number]))["new_root"]
    finally:
        await engine.close()


def arcs_of(count: int, mark: int = 0) -> dict[str, str]:
    return {f"{mark}/{number:06d}": LEAF for number in range(count)}


async def chunks_of(data: bytes, size: int = 64 << 10) -> AsyncIterator[bytes]:
    for at in range(0, len(data), size):
        yield data[at : at + size]


async def car_of(arcs: dict[str, str]) -> bytes:
    engine = Engine(MemoryStore())
    try:
        root = json.loads(await engine.create_root(json.dumps({"arcs": arcs}).encode()))["root"]
        return b"".join([chunk async for chunk in await engine.cars.export_car(root, payloads=False)])
    finally:
        await engine.close()


async def test_every_way_to_create_a_root_has_the_limit_of_changes() -> None:
    few, many = arcs_of(100), arcs_of(5000)
    lines = "".join(f"{json.dumps([path, target])}\n" for path, target in many.items()).encode()
    engine = Engine(MemoryStore(), EngineLimits(change_bytes=256 << 10, build_run_bytes=64 << 10))
    changes, car = engine._driver.changes, await car_of(many)
    too_much = re.escape("needs more than 262,144 bytes of memory")
    try:
        for _ in range(2):
            for creation in (
                engine.create_root(json.dumps({"arcs": many}).encode()),
                engine.builds.build_root(chunks_of(lines), "sha2-256"),
                engine.cars.import_car(chunks_of(car)),
                engine.cars.import_whole(car),
            ):
                with pytest.raises(TooLarge, match=too_much):
                    await creation
                assert changes.total == 0
                assert not changes._held
        assert json.loads(await engine.create_root(json.dumps({"arcs": few}).encode()))["root"]
        assert json.loads(await engine.cars.import_car(chunks_of(await car_of(few))))["blocks"] == 199
    finally:
        await engine.close()


async def test_creations_and_mutations_share_one_limit() -> None:
    """What is refused may be sent again when the others have ended."""
    engine = Engine(MemoryStore(), EngineLimits(node_budget=50))
    changes = engine._driver.changes
    try:
        root = await deep_map(engine)
        creation = json.dumps({"arcs": arcs_of(3000)}).encode()
        with changes.holding(Held(900 << 20)):
            assert json.loads(await engine.create_root(creation))["root"]
        with changes.holding(Held(1 << 30)):
            for refused in (engine.create_root(creation), engine.mutate(root, mutation(600))):
                with pytest.raises(Unavailable, match="the changes in progress need too much memory"):
                    await refused
        assert changes.total == 0
        assert json.loads(await engine.mutate(root, mutation(600)))["new_root"]
    finally:
        await engine.close()


class Held:
    """A change that holds so much."""

    def __init__(self, held_bytes: int) -> None:
        self.held_bytes = held_bytes
