"""The memory of the trees that mutations hold: a limit for each of them, and one for all together."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

import coregw
from coregw.engine import Engine
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
    engine = Engine(MemoryStore(), budget=50, change_bytes=LIMIT)
    changes = engine._driver.changes
    try:
        root = await deep_map(engine)
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
    engine = Engine(MemoryStore(), budget=50)
    changes = engine._driver.changes
    try:
        root = await deep_map(engine)
        most = [0]
        hold = changes.hold

        def noted(operation: coregw._core.Operation) -> None:
            try:
                hold(operation)
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
