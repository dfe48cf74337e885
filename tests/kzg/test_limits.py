"""The work of a hostile proof is bounded: how many points are decoded, and how many pairings are computed."""

from __future__ import annotations

import base64
import json
from collections import Counter

import pytest

import coregw
from coregw import ProofError
from coregw.kzg import messages, opening
from coregw.kzg.opening import MAX_OPENINGS, OPENING_BYTES, Openings, scalar_of
from kzg.make_vectors import cid
from kzg.prover import (
    BucketMap,
    Document,
    Known,
    ListTree,
    MapTree,
    g1,
    index_read,
    map_proven,
    packed,
    range_read,
    to64,
)

KEY = "docs"


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts decoded points, and equations of two pairings."""
    done: Counter[str] = Counter()
    point, hold = Openings._point, opening._hold
    monkeypatch.setattr(Openings, "_point", lambda *args: (done.update(["points"]), point(*args))[1])
    monkeypatch.setattr(opening, "_hold", lambda *args: (done.update(["equations"]), hold(*args))[1])
    return done


def refused(proven: tuple[Document, Document], proof: str | Document, check: str) -> None:
    request, result = json.loads(json.dumps(proven))
    step = result["prooflist"]["steps"][0]
    step["proof"] = proof if isinstance(proof, str) else packed(proof)
    verify = coregw.verify_map_proof if "key" in request else coregw.verify_read
    with pytest.raises(ProofError) as error:
        verify(json.dumps(request), json.dumps(result))
    assert error.value.check == check


def test_honest_proofs_cost_one_equation(setup: Known, work: Counter[str]) -> None:
    coregw.verify_map_proof(*map(json.dumps, map_proven(MapTree(setup, {KEY: cid(KEY)}), KEY)))
    assert work == {"equations": 1, "points": 2}
    work.clear()
    tree = ListTree(setup, [cid(str(number)) for number in range(10)], total=100, chunk=10)
    coregw.verify_read(*map(json.dumps, range_read(tree, 0)))
    assert work == {"equations": 1, "points": 1 + 11}  # the metadata once, though each element shows them


def test_a_bucket_costs_one_equation_and_a_false_one_a_few_more(
    setup: Known, bucket: BucketMap, work: Counter[str]
) -> None:
    tree = bucket
    request, result = map_proven(tree, KEY)
    assert coregw.verify_map_proof(json.dumps(request), json.dumps(result)) is None
    assert work["equations"] == 1
    assert work["points"] <= 2 * (4096 + 1)
    work.clear()
    proof = tree.proof(KEY)
    batch = base64.b64decode(proof["bucket"]["batches"][200])
    false = to64(batch[:4] + g1(7).to_compressed_bytes() + batch[52:])
    spoiled = [*proof["bucket"]["batches"][:200], false, *proof["bucket"]["batches"][201:]]
    refused((request, result), proof | {"bucket": proof["bucket"] | {"batches": spoiled}}, "pairing")
    assert work["equations"] <= 1 + 12
    work.clear()
    refused((request, result), proof | {"bucket": proof["bucket"] | {"batches": spoiled[:-1]}}, "bucket")
    refused((request, result), proof | {"bucket": proof["bucket"] | {"entries": ["AA=="] * 4097}}, "proof")
    assert not work


def test_levels(setup: Known, work: Counter[str]) -> None:
    tree = MapTree(setup, {KEY: cid(KEY)})
    steps = tree.proof(KEY)["steps"]
    refused(map_proven(tree, KEY), {"steps": steps * 23}, "proof")
    refused(map_proven(tree, KEY), {"steps": steps * 22}, "steps")
    elements = ListTree(setup, [cid("a"), cid("b")])
    shown = elements.proof(0)
    refused(index_read(elements, 0), shown | {"steps": shown["steps"] * 6}, "proof")
    refused(index_read(elements, 0), shown | {"steps": shown["steps"] * 5}, "steps")
    assert not work


def test_lengths(setup: Known, work: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    tree = MapTree(setup, {KEY: cid(KEY)})
    nested = '{"steps":' + "[" * 40 + "]" * 40 + "}"
    refused(map_proven(tree, KEY), to64(nested.encode()), "proof")
    monkeypatch.setattr(messages, "MAX_PROOF_BYTES", 3 << 10)
    refused(map_proven(tree, KEY), "A" * ((4 << 10) + 4), "limit")
    refused(map_proven(tree, KEY), "A" * (4 << 10), "proof")
    assert not work


def test_segments_of_a_range(setup: Known, work: Counter[str]) -> None:
    tree = ListTree(setup, [cid("a"), cid("b")], total=20, chunk=10)
    proof = tree.range_proof(range(2))
    refused(range_read(tree, 0), proof | {"index_proofs": proof["index_proofs"] * 5001}, "proof")
    request, result = range_read(tree, 0)
    step = result["prooflist"]["steps"][0]
    huge = step | {"child_count": (1 << 53) - 1, "total_size": (1 << 53) - 1, "chunk_size": 1}
    forged = result | {"prooflist": result["prooflist"] | {"steps": [huge]}}
    refused((request, forged), step["proof"], "cell")
    assert not work


def test_openings_in_all(work: Counter[str]) -> None:
    openings = Openings()
    shown = scalar_of(b"")
    for number in range(MAX_OPENINGS):
        openings.add(number.to_bytes(48), 0, b"", bytes(48) + shown + bytes(4), "")
    openings.add(bytes(48), 0, b"", bytes(48) + shown + bytes(4), "")  # once more
    with pytest.raises(ProofError, match="more than 16,384") as error:
        openings.add(b"\xff" * 48, 0, b"", bytes(48) + shown + bytes(4), "")
    assert (error.value.check, work) == ("limit", {})
    with pytest.raises(ProofError, match="different cells of slot 0"):
        openings.add(bytes(48), 0, b"x", bytes(48) + scalar_of(b"x") + bytes(4), "")
    assert OPENING_BYTES == 84
