"""The pool of worker threads: which call is served first, the lengths of slices, and what a cancelled call leaves."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Coroutine
from itertools import pairwise
from typing import Any

import pytest

import coregw
from coregw._core import Operation
from coregw.engine import Engine, EngineLimits
from coregw.engine.scheduling import MAX_KEPT_QUERIES, MAX_LOADING_QUERIES, WorkerPool, level_of, slice_seconds
from coregw.store.memory import MemoryStore

pytestmark = pytest.mark.anyio

LEAF = coregw.payload_cid(b"leaf")
DEAR = MAX_KEPT_QUERIES + 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def begun() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_slices_grow_with_what_an_operation_has_had() -> None:
    busy, slices = 0.0, []
    while busy < 0.2:
        slices.append(slice_seconds(level_of(busy)))
        busy += slices[-1]
    assert slices[0] == slices[1] == 0.001
    assert all(later in (earlier, 2 * earlier) for earlier, later in pairwise(slices))
    assert max(slices) == 0.016
    assert [level_of(seconds) for seconds in (0, 0.0009, 0.001, 0.0039, 0.004, 1)] == [0, 0, 1, 2, 3, 10]


async def test_the_call_that_has_had_least_is_served_first() -> None:
    pool = WorkerPool(1)
    gate = threading.Event()
    served: list[int] = []
    calls: list[Coroutine[Any, Any, object]] = [pool.run(gate.wait)]
    calls += [pool.run(lambda level=level: served.append(level), level) for level in (3, 0, 7, 1, 0, 3)]  # type: ignore[misc]
    tasks = [asyncio.create_task(call) for call in calls]
    await begun()
    assert pool.jobs == 7
    gate.set()
    await asyncio.gather(*tasks)
    assert served == [0, 0, 1, 3, 3, 7]
    assert pool.jobs == 0
    await pool.close()


async def test_cancelled_calls_keep_no_thread() -> None:
    pool = WorkerPool(1)
    gate = threading.Event()
    served: list[str] = []
    running = asyncio.create_task(pool.run(gate.wait))
    waiting = asyncio.create_task(pool.run(lambda: served.append("cancelled")))
    await begun()
    for task in (running, waiting):
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    following = asyncio.create_task(pool.run(lambda: served.append("next")))
    await begun()
    assert not following.done()  # since the cancelled call runs on
    gate.set()
    await following
    assert served == ["next"]
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0)
    for _ in range(2):
        await pool.close()


async def test_closing_waits_for_calls() -> None:
    pool = WorkerPool(2)
    served: list[int] = []
    tasks = [asyncio.create_task(pool.run(lambda n=number: served.append(n))) for number in range(10)]  # type: ignore[misc]
    await begun()
    await pool.close()
    assert len(served) == 10
    await asyncio.gather(*tasks)


ARCS = {f"s{number:04}/{'x' * 2700}": LEAF for number in range(1500)}
QUERY = {"profile": "core.scan/v0alpha1", "root": coregw.Map(ARCS).root, "prefix": []}


@pytest.mark.parametrize(
    ("limit", "before"),
    [
        pytest.param(2, 1, id="what takes no thread overtakes what does"),
        pytest.param(60, DEAR // 2, id="what takes one slice overtakes what takes several"),
    ],
)
async def test_what_is_short_overtakes_what_is_long(limit: int, before: int) -> None:
    """Without time slices, each listing was made at once on the event loop, and the short one came last."""
    engine = Engine(MemoryStore(), EngineLimits(worker_threads=1))
    answered: list[int] = []

    async def ask(limit: int) -> bytes:
        answer = await engine.scan(json.dumps(QUERY | {"limit": limit}).encode())
        answered.append(limit)
        return answer

    try:
        await engine.create_root(json.dumps({"arcs": ARCS}).encode())
        long = await ask(1000)  # from now on all pages are cached
        answered.clear()
        answers = await asyncio.gather(*[ask(1000) for _ in range(DEAR)], ask(limit))
    finally:
        await engine.close()
    assert answered.index(limit) < before
    assert set(answers[:DEAR]) == {long}  # also those that were dropped and started again


async def test_few_cold_queries_read_their_pages_at_a_time() -> None:
    """Hundreds that asked for the same long listing read and parsed its pages hundreds of times, all at once."""
    store = MemoryStore()
    makers = [Engine(store) for _ in range(2)]
    await makers[0].create_root(json.dumps({"arcs": ARCS}).encode())
    request = json.dumps(QUERY | {"limit": 1000}).encode()
    expected = await makers[1].scan(request)
    pages = makers[1].figures().pages_read
    engine = Engine(store, EngineLimits(worker_threads=1))
    try:
        answers = await asyncio.gather(*[engine.scan(request) for _ in range(DEAR)])
        assert set(answers) == {expected}
        assert pages > DEAR
        assert engine.figures().pages_read <= MAX_LOADING_QUERIES * pages + DEAR  # each may look at the top page
    finally:
        for each in (engine, *makers):
            await each.close()


async def test_proofs_of_many_keys_begin_in_a_worker_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []

    class Recording:
        """Makes operations, and notes the threads in which they are made."""

        create_root = Operation.create_root

        @staticmethod
        def map_proof(*arguments: Any, **options: Any) -> object:  # noqa: ANN401 - as it is called
            threads.append(threading.current_thread())
            return Operation.map_proof(*arguments, **options)

    monkeypatch.setattr("coregw.engine.engine.Operation", Recording)
    engine = Engine(MemoryStore())
    arcs = {f"users/{number:08}/profile": LEAF for number in range(1000)}
    root = json.loads(await engine.create_root(json.dumps({"arcs": arcs}).encode()))["root"]
    for keys in ([path.split("/") for path in arcs], [["users"]]):
        request = {"profile": "core.map-proof/v0alpha1", "root": root, "keys": keys}
        await engine.map_proof(json.dumps(request).encode())
    assert [thread is threading.main_thread() for thread in threads] == [False, True]
    await engine.close()
