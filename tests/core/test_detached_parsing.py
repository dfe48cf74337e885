"""Long bodies are parsed with the GIL released, so that an event loop beside them goes on."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import coregw
from coregw import _core
from coregw.errors import InvalidInput
from tables import rows

ROOT = coregw.Map({}).root
CACHE = _core.PageCache(1 << 20)
LONG = "a" * (6 << 20)


def body(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


@pytest.fixture(scope="module")
def parsers() -> dict[str, Callable[[], object]]:
    """What parses a long body, by what is in it."""
    paths = body({"root": ROOT, "paths": [["a"] * 2048] * 1000})
    cids = body({"profile": "cas.has-batch/v0alpha1", "cids": [LONG]})
    envelope = body({"request": {"a": LONG}, "result": {"a": LONG}})
    arcs = {f"{number:06}": "bafkqaaa" for number in range(200_000)}
    new_root, members = body({"arcs": arcs}), body(arcs)
    changes = [{"path": path, "after": {"target": target}} for path, target in arcs.items()]
    mutation = body({"deltas": [{"changes": changes, "kind": "map"}]})
    return {
        "a batch of resolves": lambda: _core.Operation.resolve_batch(CACHE, paths, 1 << 20),
        "CIDs": lambda: refused(_core.read_has_batch, cids),
        "an envelope": lambda: refused(_core.resolve_verdict, envelope),
        "arcs": lambda: _core.Operation.create_root(CACHE, new_root),
        "changes": lambda: _core.Operation.mutate(CACHE, ROOT, mutation),
        "members": lambda: _core.check_json(members),
    }


@rows("content", ["a batch of resolves", "CIDs", "an envelope", "arcs", "changes", "members"])
def test_other_threads_run_while_a_long_body_is_parsed(
    content: str, parsers: dict[str, Callable[[], object]], only_released_gil: None
) -> None:
    # Whether the other thread is scheduled before the parser ends is up to the machine, so that one attempt proves
    # nothing on a busy one. A parser that holds the GIL fails every attempt.
    assert any(runs_beside(parsers[content]) for _ in range(200))


def refused(parse: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(InvalidInput):
        parse(body)


def runs_beside(parse: Callable[[], object]) -> bool:
    """Return whether this thread ran while another one parsed."""
    entered = threading.Event()
    ended: list[bool] = []

    def run() -> None:
        entered.set()
        parse()
        ended.append(True)

    thread = threading.Thread(target=run)
    thread.start()
    entered.wait()
    beside = not ended
    thread.join()
    return beside


@pytest.fixture
def only_released_gil() -> Iterator[None]:
    """Let no thread ask another one for the GIL: it passes on only where a thread releases it itself."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)
