"""Pages are those of docs/protocol.md, section 8: of the vectors, of a slow model, and of what the engine stores."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from coregw import Cid, Map, payload_cid
from coregw._core import page_links
from coregw.engine import Engine
from coregw.store import Table
from coregw.store.memory import MemoryStore
from page_model import VECTORS, Tree, vectors
from tables import rows

pytestmark = pytest.mark.anyio

CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text("utf-8"))["cases"]
TREES = [case for case in CASES if "root" in case]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def stored(kind: str, suite: str, content: Any) -> tuple[str, dict[bytes, bytes]]:  # noqa: ANN401
    """The root of a tree, and the pages that an engine stores for it."""
    store = MemoryStore()
    engine = Engine(store)
    arcs = content if kind == "map" else {}
    created = await engine.create_root(json.dumps({"arcs": arcs, "suite": suite}).encode())
    root: str = json.loads(created)["root"]
    if kind == "list":
        changes = [{"index": i, "after": {"target": target, "size": size}} for i, (target, size) in enumerate(content)]
        receipt = await engine.mutate(root, json.dumps({"deltas": [{"kind": kind, "changes": changes}]}).encode())
        root = json.loads(receipt)["new_root"]
    pages = dict(store._tables[Table.PAGES])
    await engine.close()
    return root, pages


def reached(root: str, pages: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The pages of a tree: an engine also stores those of the trees that it was made from."""
    found, pending = {}, [Cid(root).digest]
    while pending:
        digest = pending.pop()
        found[digest] = pages[digest]
        [links] = page_links([(digest, pages[digest])])
        assert links is not None
        pending += links.pages
    return found


@rows("case", TREES, ids=lambda case: f"{case['kind']} {case['suite']} {case['root'][-6:]}")
async def test_the_engine_stores_the_pages_of_the_vectors(case: dict[str, Any]) -> None:
    root, pages = await stored(case["kind"], case["suite"], case.get("arcs", case.get("elements")))
    assert root == case["root"]
    assert {digest.hex(): page.hex() for digest, page in reached(root, pages).items()} == case["pages"]


def test_refused_pages_are_refused_and_others_are_not() -> None:
    for case in CASES:
        if "page" in case:
            [links] = page_links([(bytes.fromhex(case["digest"]), bytes.fromhex(case["page"]))])
            assert (links is None) == (case["kind"] == "refused"), case["why"]
    assert {case["kind"] for case in CASES} == {"map", "list", "refused", "accepted"}


def test_the_vectors_are_those_of_the_model() -> None:
    assert [*vectors()] == CASES


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
async def test_random_trees_have_the_pages_of_the_model(suite: str) -> None:
    rng = random.Random(suite)
    target = lambda i: rng.choice([payload_cid(b"%d" % i), "bafkqac3imvwgy3zao5xxe3de", Map({}).root])  # noqa: E731
    for count in (40, 700, 6000):
        lengths = rng.choices([1, 2, 30, 300], [20, 5, 2, 1], k=count)
        arcs = {f"{'x' * length}{rng.randrange(9)}/{i}": target(i) for i, length in enumerate(lengths)}
        tree = Tree("map", suite)
        root, pages = await stored("map", suite, arcs)
        assert tree.pages(tree.map({path: bytes(Cid(each)) for path, each in arcs.items()})) == reached(root, pages)
        elements = [(target(i), rng.choice([1, 262_144, 2**40])) for i in range(count)]
        tree = Tree("list", suite)
        root, pages = await stored("list", suite, elements)
        assert tree.pages(tree.list([(bytes(Cid(each)), size) for each, size in elements])) == reached(root, pages)
