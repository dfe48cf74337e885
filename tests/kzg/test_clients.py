"""Clients of a gateway that answers for KZG roots: what they send, and what they make of true and false answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from coregw import AsyncClient, Client, InvalidInput, ProofError, UnprovenAbsence
from coregw.client import query
from coregw.client.settings import ClientSettings
from gateways import Reply, lying_gateway
from kzg.make_vectors import cid
from kzg.prover import Document, Known, ListTree, MapTree, index_read, key_read, map_proven, range_read, resolved

SETTINGS = ClientSettings(attempts=1)
Answer = tuple[Document, Document]


@contextmanager
def answering(*answers: tuple[str, Answer]) -> Iterator[str]:
    """Run a gateway that knows these requests by heart. Everything else is not found."""
    known = {(f"/v1/{route}", json.dumps(request, sort_keys=True)): result for route, (request, result) in answers}

    def answer(reply: Reply) -> Reply:
        asked = json.dumps(json.loads(reply.request), sort_keys=True)
        result = known.get((reply.path, asked))
        if result is None:
            return reply.with_body(b'{"error": "path_not_found", "message": "no"}', 404)
        return reply.with_body(json.dumps(result).encode())

    with lying_gateway(answer) as url:
        yield url


@pytest.fixture
def trees(setup: Known) -> tuple[MapTree, MapTree, ListTree]:
    folder = MapTree(setup, {"readme": cid("readme")})
    chunks = ListTree(setup, [cid("one"), cid("two")], total=20, chunk=16)
    return MapTree(setup, {"docs": folder.root.text, "chunks": chunks.root.text}), folder, chunks


@pytest.fixture
def gateway(trees: tuple[MapTree, MapTree, ListTree]) -> Iterator[str]:
    top, folder, chunks = trees
    with answering(
        ("resolve", resolved([top, folder], ["docs", "readme"])),
        ("read", key_read(top, "chunks")),
        ("read", index_read(chunks, 1)),
        ("read", range_read(chunks, 10, 18)),
        ("map-proof", map_proven(top, "docs")),
        ("map-proof", map_proven(top, "missing")),
    ) as url:
        yield url


def test_both_clients_verify_what_a_gateway_of_malt_core_answers(
    gateway: str, trees: tuple[MapTree, MapTree, ListTree]
) -> None:
    top, _, chunks = trees
    root, elements = top.root.text, chunks.root.text
    with Client(gateway, SETTINGS) as client:
        assert client.resolve(root, "docs/readme") == cid("readme")
        assert client.query(query.resolve(bytes(top.root), ["docs", "readme"])).value == cid("readme")
        assert client.query(query.read_key(root, "chunks")).value.target == elements
        assert client.query(query.read_index(elements, 1)).value.target == cid("two")
        read = client.read_range(elements, 10, 18)
        assert (read.segments, read.sizes, read.offset) == ([cid("one"), cid("two")], [16, 4], 0)
        assert client.query(query.map_proof(root, "docs")).value == top.arcs["docs"]
        assert client.query(query.map_proof(root, "missing")).value is None
        for missing in (query.resolve(root, "missing"), query.read_key(root, "missing"), query.read_index(elements, 2)):
            with pytest.raises(UnprovenAbsence):
                client.query(missing)

    async def resolve() -> str:
        async with AsyncClient(gateway, SETTINGS) as client:
            return await client.resolve(root, "docs/readme")

    assert asyncio.run(resolve()) == cid("readme")


def test_a_false_answer_is_refused(setup: Known, trees: tuple[MapTree, MapTree, ListTree]) -> None:
    top, folder, _ = trees
    request, result = resolved([top, folder], ["docs", "readme"])
    other = MapTree(setup, {"readme": cid("other")})
    spliced = json.loads(json.dumps(result).replace(cid("readme"), cid("other")))
    spliced["prooflist"]["steps"][1]["evidence"] = resolved([other], ["readme"])[1]["prooflist"]["steps"][0]["evidence"]
    with (
        answering(("resolve", (request, spliced))) as url,
        Client(url, SETTINGS) as client,
        pytest.raises(ProofError, match=r"resolve 'docs/readme' in baga.*steps\[1\]: level 0: the opening is false"),
    ):
        client.resolve(top.root.text, "docs/readme")


@pytest.mark.parametrize("ask", [query.scan, lambda root: query.map_keys(root, ["a"])])
def test_queries_that_kzg_roots_do_not_have(ask: Callable[[str], object], setup: Known) -> None:
    with pytest.raises(InvalidInput, match="KZG") as refused:
        ask(MapTree(setup, {}).root.text)
    assert refused.value.code == "kind_mismatch"


def test_the_command_verifies_a_saved_answer(tmp_path: Path) -> None:
    vectors = json.loads(Path(__file__).with_name("vectors.json").read_text("utf-8"))
    verify = [sys.executable, "-m", "coregw", "verify", "-"]
    for vector in vectors[:2]:
        saved = json.dumps({"request": vector["request"], "result": vector["result"]})
        done = subprocess.run(verify, input=saved, capture_output=True, text=True, check=True)
        assert vector["result"]["target"] in done.stdout
    request = vectors[0]["request"] | {"profile": "malt.scan/v0alpha1"}
    done = subprocess.run(
        verify, input=json.dumps({"request": request, "result": {}}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "malt.resolve/v0alpha1" in done.stderr
