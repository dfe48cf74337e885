"""Trees in a store, for tests of what handles whole stores."""

from __future__ import annotations

import json

import coregw
from coregw._core import Cid
from coregw.engine import Engine
from coregw.store import Store


async def put_tree(store: Store, count: int) -> bytes:
    """Store a map of `count` arcs. Returns its binary root CID."""
    arcs = {f"{number % 10}/{number}": coregw.payload_cid(f"{count} {number}".encode()) for number in range(count)}
    engine = Engine(store)
    answer = await engine.create_root(json.dumps({"arcs": arcs}).encode())
    return bytes(Cid(json.loads(answer)["root"]))
