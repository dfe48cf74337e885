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

ROOT = coregw.Map({}).root
CACHE = _core.PageCache(1 << 20)
LONG = "a" * (6 << 20)
ARCS = {f"{number:06}": "bafkqaaa" for number in range(200_000)}


def body(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


PATHS = body({"root": ROOT, "paths": [["a"] * 2048] * 1000})
CIDS = body({"profile": "cas.has-batch/v0alpha1", "cids": [LONG]})
ENVELOPE = body({"request": {"a": LONG}, "result": {"a": LONG}})
NEW_ROOT = body({"arcs": ARCS})
CHANGES = [{"path": path, "after": {"target": target}} for path, target in ARCS.items()]
MUTATION = body({"deltas": [{"changes": CHANGES, "kind": "map"}]})
MEMBERS = body(ARCS)


@pytest.mark.parametrize(
    "parse",
    [
        pytest.param(lambda: _core.Operation.resolve_batch(CACHE, PATHS, 1 << 20), id="a batch of resolves"),
        pytest.param(lambda: refused(_core.read_has_batch, CIDS), id="CIDs"),
        pytest.param(lambda: _core.split_envelope(ENVELOPE), id="an envelope"),
        pytest.param(lambda: _core.Operation.create_root(CACHE, NEW_ROOT), id="arcs"),
        pytest.param(lambda: _core.Operation.mutate(CACHE, ROOT, MUTATION), id="changes"),
        pytest.param(lambda: _core.check_json(MEMBERS), id="members"),
    ],
)
def test_other_threads_run_while_a_long_body_is_parsed(parse: Callable[[], object], only_released_gil: None) -> None:
    # Whether the other thread is scheduled before the parser ends is up to the machine, so that one attempt proves
    # nothing on a busy one. A parser that holds the GIL fails every attempt.
    assert any(runs_beside(parse) for _ in range(200))


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
