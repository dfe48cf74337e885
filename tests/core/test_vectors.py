"""Every vector file through the Python API: valid cases are accepted, forgeries are refused."""

from __future__ import annotations

from operator import itemgetter

import pytest

import coregw
from coregw import Conflict, InvalidInput, ProofError
from tables import rows
from vector_cases import Case, changes, load, text, tree, why


@rows("case", load("keys"), ids=itemgetter("key"))
def test_encode_key_gives_the_key_of_the_vector(case: Case) -> None:
    assert coregw.encode_key(case["segments"]).hex() == case["key"]
    assert coregw.encode_key("/".join(case["segments"])).hex() == case["key"]


@rows("case", load("cids"), ids=why)
def test_a_cid_in_text_is_accepted_or_refused_as_in_the_vector(case: Case) -> None:
    if case["cid"] is None:
        with pytest.raises(InvalidInput) as refused:
            coregw.Cid(case["text"])
        assert refused.value.code == "invalid_cid"
    else:
        assert coregw.Cid(case["text"]).text == case["cid"]
        assert coregw.Cid(case["cid"]).text == case["cid"]


@rows("case", load("payloads"), ids=itemgetter("cid"))
def test_a_payload_has_the_cid_of_the_vector(case: Case) -> None:
    data = bytes.fromhex(case["bytes"])
    assert coregw.payload_cid(data, codec=case["codec"], hash=case["hash"]) == case["cid"]
    hasher = coregw.PayloadHasher(codec=case["codec"], hash=case["hash"])
    for start in range(0, len(data), 7):
        hasher.update(data[start : start + 7])
    assert hasher.cid() == case["cid"]


@rows("case", load("roots"), ids=itemgetter("root"))
def test_a_tree_has_the_root_of_the_vector(case: Case) -> None:
    built = tree(case)
    assert built.root == case["root"]
    assert len(built) == case["count"]
    assert coregw.Cid(built.root).kind == case["kind"]
    assert coregw.Cid(built.root).suite == case["suite"]
    if isinstance(built, coregw.Map):
        assert coregw.Map(text(case["arcs"]).encode(), suite=case["suite"]).root == case["root"]
        assert coregw.Map(reversed(list(case["arcs"].items())), suite=case["suite"]).root == case["root"]
    else:
        assert built.total_size == case["measure"]


def check_proof(case: Case) -> object:
    """Verifies a case's proof by its query; returns what is proven, named as in the vector file."""
    root, query, proof = case["root"], case["query"], bytes.fromhex(case["proof"])
    if query["kind"] == "map_key":
        target = coregw.verify_key(root, query["segments"], proof)
        assert coregw.verify_key_many(root, [(query["segments"], proof)] * 2) == [target, target]
        return {"present": target is not None, "target": target}
    if query["kind"] == "list_index":
        element = coregw.verify_index(root, query["index"], proof)
        return {"present": element.target is not None, "target": element.target, "length": element.length}
    if query["kind"] == "list_range":
        return coregw.verify_range(root, query["start"], query.get("end"), proof)._asdict()
    scan = coregw.verify_scan(root, query["prefix"], query.get("after"), query["limit"], proof)
    return {"entries": [{"segments": path, "target": target} for path, target in scan.entries], "more": scan.more}


@rows("case", [case for case in load("proofs") if case["valid"]], ids=why)
def test_a_proof_proves_the_answer_of_the_vector(case: Case) -> None:
    proven = check_proof(case)
    assert isinstance(proven, dict)
    assert proven == {member: case[member] for member in proven}


@rows("case", [case for case in load("proofs") if not case["valid"]], ids=why)
def test_a_forged_proof_is_refused(case: Case) -> None:
    with pytest.raises(ProofError):
        check_proof(case)


@rows("case", load("multiproofs"), ids=why)
def test_a_multiproof_is_accepted_or_refused_as_in_the_vector(case: Case) -> None:
    proof = bytes.fromhex(case["proof"])
    if case["valid"]:
        assert coregw.verify_keys(case["root"], case["keys"], proof) == case["targets"]
    else:
        with pytest.raises((ProofError, InvalidInput)):
            coregw.verify_keys(case["root"], case["keys"], proof)


@rows("case", load("scans"), ids=itemgetter("root"))
def test_listing_and_its_proof_match_the_vector(case: Case) -> None:
    built = tree(case)
    assert isinstance(built, coregw.Map)
    window = (case["prefix"], case["after"], case["limit"])
    entries = [(path, target) for path, target in case["entries"]]
    proof = bytes.fromhex(case["proof"])
    for scan in (built.scan(*window), coregw.verify_scan(case["root"], *window, proof)):
        assert [(list(path), target) for path, target in scan.entries] == entries
        assert scan.more == case["more"]
        assert scan.proof == proof


@rows("case", load("transitions"))
def test_a_change_gives_root_and_proof_of_the_vector_and_the_proof_verifies(case: Case) -> None:
    built, proof = tree(case), bytes.fromhex(case["proof"])
    assert built.root == case["base_root"]
    applied = built.apply(changes(case))
    assert applied.tree.root == case["new_root"]
    assert applied.proof == proof
    assert built.root == case["base_root"], "apply changed the tree in place"
    assert coregw.verify_changes(case["base_root"], changes(case), proof) == case["new_root"]


def verify_operation(case: Case) -> None:
    """Verifies a whole operation and compares what is proven with the result."""
    request = case.get("request_text") or text(case["request"])
    result, raw = case["result"], text(case["result"])
    if case["operation"] == "resolve":
        assert coregw.verify_resolve(request, raw) == result["target"]
    elif case["operation"] == "read":
        outcome = coregw.verify_read(request.encode(), raw.encode())
        assert outcome.present
        assert outcome.target == result["target"]
        assert outcome.segments == result.get("range_segments")
    elif case["operation"] == "map_proof":
        target = coregw.verify_map_proof(request, raw)
        assert target == result.get("target")
        assert (target is not None) == result["present"]
    elif case["operation"] == "scan":
        scan = coregw.verify_scan_result(request, raw)
        assert [{"segments": path, "target": target} for path, target in scan.entries] == result["entries"]
        assert scan.more == result["more"]
    else:
        pytest.fail(f"unknown operation: {case['operation']}")


# Errors in the caller's own request. Every other invalid case is a forgery: a ProofError.
INVALID_REQUESTS = {
    "a byte order mark": (InvalidInput, "invalid_request"),
    "a change of nothing": (Conflict, "invalid_change"),
    "a coordinate twice": (Conflict, "invalid_change"),
    "a duplicate member": (InvalidInput, "invalid_request"),
    "a list root for a map proof": (InvalidInput, "kind_mismatch"),
    "a payload CID as root": (InvalidInput, "kind_mismatch"),
    "a root of an unknown kind": (InvalidInput, "invalid_cid"),
    "a root of an unknown suite": (InvalidInput, "invalid_cid"),
    "a root of wire version 2": (InvalidInput, "invalid_cid"),
    "a root with another hash function": (InvalidInput, "invalid_cid"),
    "a trailing value": (InvalidInput, "invalid_request"),
    "an after outside the prefix": (InvalidInput, "invalid_path"),
    "an escaped duplicate": (InvalidInput, "invalid_request"),
    "neither before nor after": (Conflict, "invalid_change"),
    "no changes": (InvalidInput, "invalid_request"),
    "not closed": (InvalidInput, "invalid_request"),
}


def refusal(case: Case) -> tuple[type[coregw.CoregwError], str]:
    """The exception class and error code that an invalid case must raise."""
    request = case.get("request", {})
    if case["why"] == "another root asked" and case["operation"] == "read":
        wanted = "map" if request["query"]["kind"] == "map_key" else "list"
        if coregw.Cid(request["root"]).kind != wanted:
            return InvalidInput, "kind_mismatch"
    if case["why"] == "another prefix asked":
        prefix, after = request["prefix"], request.get("after")
        if after is not None and after[: len(prefix)] != prefix:
            return InvalidInput, "invalid_path"
    return INVALID_REQUESTS.get(case["why"], (ProofError, "invalid_proof"))


@rows("case", [case for case in load("operations") if case["valid"]], ids=why)
def test_an_operation_proves_its_result(case: Case) -> None:
    verify_operation(case)


@rows("case", [case for case in load("operations") if not case["valid"]], ids=why)
def test_a_forged_operation_is_refused(case: Case) -> None:
    kind, code = refusal(case)
    with pytest.raises(kind) as caught:
        verify_operation(case)
    assert caught.value.code == code


def check_hostile(case: Case) -> None:
    if case["operation"] == "proof":
        check_proof(case)
    elif case["operation"] == "changes":
        coregw.verify_changes(case["root"], changes(case), bytes.fromhex(case["proof"]))
    else:
        verify_operation(case)


@rows("case", load("hostile"), ids=why)
def test_the_hostile_vectors_are_accepted_or_refused_as_stated(case: Case) -> None:
    if case["valid"]:
        check_hostile(case)
        return
    kind, code = refusal(case)
    with pytest.raises(kind) as caught:
        check_hostile(case)
    assert caught.value.code == code
