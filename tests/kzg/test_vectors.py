"""Vectors that `make_vectors.py` made with the public setup, and another verifier's opinion of their openings."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import ckzg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coregw
from coregw import ProofError
from coregw.client.query import saved_query
from coregw.kzg import KzgRoot, opening, operations
from coregw.kzg.opening import Opening, Openings
from kzg.prover import Document, point_of

VECTORS: list[Document] = json.loads(Path(__file__).with_name("vectors.json").read_text("utf-8"))
VERIFIERS = {
    "resolve": coregw.verify_resolve,
    "read": coregw.verify_read,
    "map_proof": coregw.verify_map_proof,
}


def verified(vector: Document, result: Document | bytes | None = None) -> Any:  # noqa: ANN401 - of each operation
    shown = vector["result"] if result is None else result
    text = shown if isinstance(shown, bytes) else json.dumps(shown)
    return VERIFIERS[vector["operation"]](json.dumps(vector["request"]), text)


def expected(vector: Document) -> tuple[str | None, list[str] | None]:
    result = vector["result"]
    return result.get("target"), result.get("range_segments")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_a_vector_is_verified_by_each_way_to_verify(vector: Document) -> None:
    value = verified(vector)
    found = (value.target, value.segments) if vector["operation"] == "read" else (value, None)
    assert found == expected(vector)
    request, result = (json.dumps(vector[name]).encode() for name in ("request", "result"))
    assert saved_query(request).verify(request, result) == value
    assert operations.cid_text(bytes(KzgRoot.parse(vector["request"]["root"]))) == vector["request"]["root"]


def test_what_a_range_proves() -> None:
    by_name = {vector["name"]: verified(vector) for vector in VECTORS if vector["operation"] == "read"}
    bounded, to_end = by_name["read a range"], by_name["read a range to the end"]
    assert (bounded.sizes, bounded.offset, bounded.length, bounded.total_size) == ([16, 16, 16], 0, 4, 50)
    assert (to_end.sizes, to_end.offset) == ([16, 2], 32)
    assert by_name["read past a list's end"].segments == []
    assert by_name["read an index two levels down"].length == 4096


def test_another_verifier_accepts_the_openings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """c-kzg checks each opening of the vectors alone. Of a setup, that needs one point; the others may be anything."""
    claims: list[Opening] = []
    check = Openings.check
    monkeypatch.setattr(Openings, "check", lambda self: (claims.extend(self._claims), check(self)))
    for vector in VECTORS:
        verified(vector)
    one, infinity = opening.G1Point().to_compressed_bytes(), b"\xc0" + bytes(47)
    g1, g2 = [one] + [infinity] * 4095, [opening.G2Point().to_compressed_bytes(), opening.TAU_G2]
    points = [*g1, *g2, *[b"\xc0" + bytes(95)] * 63, *g1]
    file = tmp_path / "setup.txt"
    file.write_text("\n".join(["4096", "65", *(each.hex() for each in points)]), "ascii")
    setup = ckzg.load_trusted_setup(str(file), 0)
    assert len({*claims}) > 15
    for claim in {*claims}:
        point = point_of(claim.slot).to_bytes(32)
        assert ckzg.verify_kzg_proof(claim.commitment, point, claim.scalar, claim.proof, setup)
        assert not ckzg.verify_kzg_proof(claim.commitment, point, bytes(31) + b"\1", claim.proof, setup)


@settings(max_examples=150)
@given(st.sampled_from(VECTORS), st.integers(0), st.integers(0, 7))
def test_a_bit_flipped_anywhere_never_changes_what_is_proven(vector: Document, at: int, bit: int) -> None:
    text = bytearray(json.dumps(vector["result"]).encode())
    text[at % len(text)] ^= 1 << bit
    try:
        value = verified(vector, bytes(text))
    except ProofError:
        return
    assert value == verified(vector)  # in words that repeat others, which nobody reads


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_each_bit_of_an_opening_matters(vector: Document) -> None:
    step = vector["result"]["prooflist"]["steps"][0]
    member = "proof" if "proof" in step else "evidence"
    shown = json.loads(base64.b64decode(step[member]))
    holder, name = (shown["steps"][0], "proof") if shown.get("steps") else (shown, "metadata_proof")
    opened = base64.b64decode(holder[name])
    for at in (0, 1, 47, 48, 79, 83):
        forged = opened[:at] + bytes([opened[at] ^ 1]) + opened[at + 1 :]
        holder[name] = base64.b64encode(forged).decode()
        changed = step | {member: base64.b64encode(json.dumps(shown).encode()).decode()}
        steps = [changed, *vector["result"]["prooflist"]["steps"][1:]]
        with pytest.raises(ProofError) as refused:
            verified(vector, vector["result"] | {"prooflist": vector["result"]["prooflist"] | {"steps": steps}})
        assert refused.value.check in {"point", "pairing", "cell", "slot"}
