"""Long bodies are parsed with the GIL released, so that an event loop beside them goes on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import pytest

import coregw
from coregw import _core

ROOT = coregw.Map({}).root
CACHE = _core.PageCache(1 << 20)
LONG = "a" * (6 << 20)
ARCS = {f"{number:06}": "bafkqaaa" for number in range(200_000)}


def body(message: object) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


PATHS = body({"root": ROOT, "paths": [["a"] * 2048] * 1000})
BLOCKS = body({"profile": "cas.put-batch/v0alpha1", "blocks": [{"data": "AAAA" * (2 << 20)}]})
ENVELOPE = body({"request": {"a": LONG}, "result": {"a": LONG}})
NEW_ROOT = body({"arcs": ARCS})
CHANGES = [{"path": path, "after": {"target": target}} for path, target in ARCS.items()]
MUTATION = body({"deltas": [{"changes": CHANGES, "kind": "map"}]})
MEMBERS = body(ARCS)


@pytest.mark.parametrize(
    "parse",
    [
        pytest.param(lambda: _core.Operation.resolve_batch(CACHE, PATHS, 1 << 20), id="a batch of resolves"),
        pytest.param(lambda: _core.read_cas_batch(BLOCKS, 64 << 20), id="a batch of payloads"),
        pytest.param(lambda: _core.split_envelope(ENVELOPE), id="an envelope"),
        pytest.param(lambda: _core.Operation.create_root(CACHE, NEW_ROOT), id="arcs"),
        pytest.param(lambda: _core.Operation.mutate(CACHE, ROOT, MUTATION), id="changes"),
        pytest.param(lambda: _core.check_json(MEMBERS), id="members"),
    ],
)
def test_other_threads_run_while_a_long_body_is_parsed(parse: Callable[[], object]) -> None:
    entered = threading.Event()
    ended = threading.Event()

    def run() -> None:
        entered.set()
        parse()
        ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    entered.wait()
    turns = 0
    while not ended.is_set():
        time.sleep(0)  # releases the GIL
        turns += 1
    thread.join()
    # If the parser held the GIL, this thread would run before it began and after it ended only.
    assert turns > 5
