"""Named forgeries: results that a prover who knows the secret of the setup could send, and that must be refused."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from py_arkworks_bls12381 import G1Point

import coregw
from coregw import InvalidInput, ProofError
from coregw.kzg.cid import KzgRoot, cid_bytes, identity_cid
from coregw.kzg.lists import Metadata
from coregw.kzg.maps import leaf_marker, slots_of
from coregw.kzg.opening import Openings
from kzg.make_vectors import cid, sharing
from kzg.prover import (
    ORDER,
    SLOTS,
    BucketMap,
    Document,
    Known,
    ListTree,
    MapTree,
    g1,
    index_read,
    key_read,
    map_proven,
    opening,
    packed,
    range_read,
    resolved,
    scalar,
    to64,
)

Change = Callable[[Document], Any]

KEY, PRESENT = "docs", cid("docs")


def rejected(verify: Callable[[str, str], object], request: Document, result: Document) -> ProofError:
    with pytest.raises(ProofError) as refused:
        verify(json.dumps(request), json.dumps(result))
    return refused.value


def with_proof(result: Document, change: Change, step: int = 0) -> Document:
    """The result with a changed proof in one of its steps."""
    forged = copy.deepcopy(result)
    holder = forged["prooflist"]["steps"][step]
    member = "proof" if "proof" in holder else "evidence"
    shown = json.loads(base64.b64decode(holder[member]))
    change(shown)
    holder[member] = packed(shown)
    return forged


def node_of(setup: Known, cell: bytes, version: int = 3) -> tuple[KzgRoot, Document]:
    """A map with one cell, in the first slot of `KEY`, and the level of a proof that shows it."""
    cells = {slots_of(KEY)[0]: cell}
    shown = {"slot": to64(cell), "proof": to64(opening(setup, cells, slots_of(KEY)[0]))}
    return KzgRoot(version, "map", setup.commit(cells)), shown


def claimed(root: KzgRoot, proof: Document, target: str | None) -> tuple[Document, Document]:
    """The request and result of a map proof of `KEY` with any proof."""
    step = {"kind": "map_absence" if target is None else "map_step", "from": {"/": root.text}, "path": KEY}
    step |= {"target": target and {"/": target}, "evidence_kind": "structure", "evidence_backend": "map"}
    prooflist = {"root": {"/": root.text}, "query": KEY, "steps": [step | {"proof": packed(proof)}]}
    profile = "malt.map-proof/v0alpha1"
    result = {"profile": profile, "present": target is not None, "prooflist": prooflist}
    request = {"profile": profile, "root": root.text, "key": [KEY]}
    return request, result | ({} if target is None else {"target": target})


def test_openings(setup: Known) -> None:
    cell = leaf_marker(KEY, cid_bytes(PRESENT))
    slot = slots_of(KEY)[0]
    root, level = node_of(setup, cell)
    honest = base64.b64decode(level["proof"])
    unreduced = (scalar(cell) + ORDER).to_bytes(32)
    small = b"\x80" + bytes(46) + b"\x04"  # on the curve, in another group
    assert not G1Point.from_compressed_bytes_unchecked(small).is_in_subgroup()
    forged = {
        "another slot": (honest[:80] + (slot ^ 1).to_bytes(4), "slot"),
        "a slot past the last": (honest[:80] + SLOTS.to_bytes(4), "slot"),
        "another scalar": (honest[:48] + bytes(32) + honest[80:], "cell"),
        "a scalar that is not reduced": (honest[:48] + unreduced + honest[80:], "cell"),
        "one byte less": (honest[:-1], "opening"),
        "one byte more": (honest + b"\0", "opening"),
        "not on the curve": (b"\x80" + bytes(46) + b"\x01" + honest[48:], "point"),
        "not in the group": (small + honest[48:], "point"),
        "another encoding of infinity": (b"\xff" * 48 + honest[48:], "point"),
        "another point": (g1(7).to_compressed_bytes() + honest[48:], "pairing"),
        "infinity": (b"\xc0" + bytes(47) + honest[48:], "pairing"),
    }
    for name, (opened, check) in forged.items():
        error = rejected(coregw.verify_map_proof, *claimed(root, {"steps": [level | {"proof": to64(opened)}]}, PRESENT))
        assert (name, error.check, error.step or 0) == (name, check, 0)
    other, _ = node_of(setup, leaf_marker(KEY, cid_bytes(cid("other"))))
    assert rejected(coregw.verify_map_proof, *claimed(other, {"steps": [level]}, PRESENT)).check == "pairing"
    coregw.verify_map_proof(*map(json.dumps, claimed(root, {"steps": [level]}, PRESENT)))


def test_errors_of_openings_that_cancel_each_other(setup: Known) -> None:
    cells = {1: b"one", 2: b"two"}
    commitment = setup.commit(cells)
    factors = [(setup.value(cells) - scalar(cells[slot])) * setup.inverses[slot] for slot in (1, 2)]
    error = 5
    shift = error * (setup.tau - setup.points[1]) * setup.inverses[2]
    openings = Openings()
    for slot, factor in ((1, factors[0] + error), (2, factors[1] - shift)):
        proof = g1(factor).to_compressed_bytes() + scalar(cells[slot]).to_bytes(32) + slot.to_bytes(4)
        openings.add(commitment, slot, cells[slot], proof, f"slot {slot}")
    with pytest.raises(ProofError, match="slot 1: the opening is false"):
        openings.check()


def test_cells_of_maps(setup: Known) -> None:
    """Roots that no honest writer makes, with true openings."""
    target = cid_bytes(PRESENT)
    leaf = leaf_marker(KEY, target)
    nested, below = node_of(setup, leaf)
    cells: dict[str, tuple[bytes, str]] = {
        "a payload": (target, "cell"),
        "a list": (bytes(nested._replace(kind="list")), "cell"),
        "a map of another version": (bytes(nested._replace(version=2)), "cell"),
        "a bucket of version 2": (identity_cid(b"malt:map:radix:bucket:v1:" + bytes(nested)), "cell"),
        "a bucket of a payload": (identity_cid(b"malt:map:radix:bucket:v2:" + target), "cell"),
        "a leaf in another codec": (b"\x01\x70" + leaf[2:], "cell"),
        "a leaf whose key is cut": (identity_cid(b"malt:map:radix:leaf:v1:\0\xff" + KEY.encode()), "cell"),
        "a leaf without a key": (identity_cid(b"malt:map:radix:leaf:v1:\0\0" + target), "cell"),
        "a leaf with an empty segment": (leaf_marker("docs//a", target), "cell"),
        "a leaf without a target": (leaf_marker(KEY, b""), "cell"),
        "unknown": (identity_cid(b"malt:map:radix:other:v1:"), "cell"),
        "a node, and the proof ends": (bytes(nested), "steps"),
        "another key's leaf": (leaf_marker("other", target), "target"),
        "another target's leaf": (leaf_marker(KEY, cid_bytes(cid("other"))), "target"),
        "an empty cell": (b"", "target"),
    }
    for name, (cell, check) in cells.items():
        root, level = node_of(setup, cell)
        error = rejected(coregw.verify_map_proof, *claimed(root, {"steps": [level]}, PRESENT))
        assert (name, error.check) == (name, check)
        if check in {"cell", "steps"}:
            rejected(coregw.verify_map_proof, *claimed(root, {"steps": [level]}, None))
    root, level = node_of(setup, leaf)
    for proof, present, check in [
        ({"steps": [level]}, None, "present"),
        ({"steps": [level, below]}, PRESENT, "steps"),
        ({"steps": [level], "bucket": {"proof": ""}}, PRESENT, "bucket"),
        ({"steps": []}, PRESENT, "proof"),
        ({"steps": [level], "more": 1}, PRESENT, "proof"),
    ]:
        assert rejected(coregw.verify_map_proof, *claimed(root, proof, present)).check == check


def test_buckets(setup: Known) -> None:
    arcs = {name: cid(name) for name in ("a", "b", "c")}
    tree = BucketMap(setup, arcs | {KEY: PRESENT}, KEY)
    coregw.verify_map_proof(*map(json.dumps, map_proven(tree, KEY)))
    shown = tree.proof(KEY)["bucket"]
    for bucket, check in [
        ({"proof": tree.proof("a")["bucket"]["proof"]}, "cell"),
        (shown | {"entries": [to64(leaf_marker("a", cid_bytes(arcs["a"])))]}, "bucket"),
        (shown | {"batches": [""]}, "bucket"),
    ]:
        forged = with_proof(map_proven(tree, KEY)[1], lambda proof, bucket=bucket: proof.update(bucket=bucket))
        assert rejected(coregw.verify_map_proof, map_proven(tree, KEY)[0], forged).check == check
    request, result = map_proven(tree, KEY)
    forged = with_proof(result, lambda proof: proof.pop("bucket"))
    assert rejected(coregw.verify_map_proof, request, forged).check == "bucket"


def test_the_absence_of_a_key_from_a_bucket(setup: Known, bucket: BucketMap) -> None:
    arcs, tree = bucket.arcs, bucket
    request, result = map_proven(tree, KEY)
    assert coregw.verify_map_proof(json.dumps(request), json.dumps(result)) is None
    shown = tree.proof(KEY)["bucket"]
    entries, batches = shown["entries"], shown["batches"]
    with_key = BucketMap(setup, arcs | {KEY: PRESENT}, KEY)
    its_entries = [to64(each) for each in with_key.bucket.values()]
    cut = to64(base64.b64decode(batches[0])[:-84])
    other = base64.b64decode(batches[255])
    false = to64(other[:-84] + g1(7).to_compressed_bytes() + other[-36:])
    forgeries: dict[str, tuple[Document, str]] = {
        "one leaf": ({"entries": entries[:1]}, "bucket"),
        "a leaf withheld": ({"entries": entries[:2]}, "cell"),
        "another order": ({"entries": entries[::-1]}, "bucket"),
        "a leaf twice": ({"entries": [entries[0], *entries]}, "bucket"),
        "the key among them": ({"entries": its_entries}, "bucket"),
        "a batch withheld": ({"batches": batches[:-1]}, "bucket"),
        "a batch too many": ({"batches": [*batches, batches[0]]}, "proof"),
        "a batch cut": ({"batches": [cut, *batches[1:]]}, "bucket"),
        "batches in another order": ({"batches": batches[::-1]}, "slot"),
        "a proof of one": ({"proof": tree.proof("a")["bucket"]["proof"]}, "bucket"),
        "a false opening of an empty slot": ({"batches": [*batches[:-1], false]}, "pairing"),
    }
    for name, (change, check) in forgeries.items():
        forged = with_proof(result, lambda proof, change=change: proof["bucket"].update(change))
        assert (name, rejected(coregw.verify_map_proof, request, forged).check) == (name, check)


def test_lists(setup: Known) -> None:
    tree = ListTree(setup, [cid("same")] * 4095 + [cid("last")])
    request, result = index_read(tree, 4095)
    assert coregw.verify_read(json.dumps(request), json.dumps(result)).target == cid("last")
    short = ListTree(setup, [cid("a"), cid("b")])
    a, b = index_read(short, 0), index_read(short, 1)

    def of_step(**change: object) -> Document:
        return {"prooflist": b[1]["prooflist"] | {"steps": [b[1]["prooflist"]["steps"][0] | change]}}

    metadata = {name: to64(each.cell) for name, each in {
        "length": Metadata.of(3), "height": Metadata(1, 2, 0, 0), "size": Metadata(0, 2, 5, 0),
    }.items()}  # fmt: skip
    forgeries = [
        (request, with_proof(result, lambda proof: proof["steps"].pop()), "steps"),
        (request, with_proof(result, lambda proof: proof["steps"][1].update(slot=2)), "slot"),
        (request, with_proof(result, lambda proof: proof["steps"][0].update(proof["steps"][1] | {"slot": 2})), "slot"),
        (request, with_proof(result, lambda proof: proof.update(steps=proof["steps"][::-1])), "slot"),
        (b[0], a[1], "query"),
        (b[0], b[1] | {"target": cid("a")}, "index"),
        (b[0], b[1] | of_step(length=3), "cell"),
        (b[0], b[1] | of_step(length=1), "kind"),
        (b[0], b[1] | of_step(index=0), "index"),
        (b[0], b[1] | of_step(proof=a[1]["prooflist"]["steps"][0]["proof"]), "slot"),
        (b[0], b[1] | of_step(evidence_backend="measured_list"), "index"),
        (b[0], b[1] | of_step(kind="list_range"), "index"),
        *((b[0], with_proof(b[1], lambda proof, cell=cell: proof.update(metadata_target=cell)), check)
          for cell, check in zip(metadata.values(), ["length", "length", "cell"], strict=True)),
    ]  # fmt: skip
    for number, (asked, forged, check) in enumerate(forgeries):
        assert (number, rejected(coregw.verify_read, asked, forged).check) == (number, check)
    top, level = node_of(setup, bytes(short.root))
    as_map = claimed(top._replace(kind="list"), {"steps": [level]}, PRESENT)
    assert rejected(coregw.verify_map_proof, *as_map).check == "kind"


def test_ranges(setup: Known) -> None:
    tree = ListTree(setup, [cid(f"chunk {number}") for number in range(4)], total=50, chunk=16)
    request, result = range_read(tree, 15, 33)
    other = range_read(tree, 0, 40)[1]
    swapped = copy.deepcopy(result)
    for links in (swapped["range_segments"], swapped["prooflist"]["steps"][0]["segments"]):
        links[:2] = links[1::-1]

    def of_step(**change: object) -> Document:
        return result | {"prooflist": result["prooflist"] | {"steps": [result["prooflist"]["steps"][0] | change]}}

    def withheld(number: int) -> Document:
        forged = with_proof(result, lambda proof: proof["index_proofs"].pop(number))
        forged["range_segments"].pop(number)
        forged["prooflist"]["steps"][0]["segments"].pop(number)
        return forged

    forgeries = [
        (result | {"range_segments": result["range_segments"][::-1]}, "segments"),
        (result | {"range_segments": []}, "segments"),
        (swapped, "target"),
        (withheld(0), "range"),
        (withheld(2), "range"),
        (of_step(end=32), "range"),
        (of_step(start=16), "range"),
        (of_step(total_size=49), "cell"),
        (of_step(chunk_size=17), "length"),
        (of_step(chunk_size=0), "length"),
        (of_step(child_count=5), "length"),
        (with_proof(result, lambda proof: proof["index_proofs"][0].update(index=1)), "range"),
        (result | {"prooflist": other["prooflist"]}, "query"),
    ]
    for number, (forged, check) in enumerate(forgeries):
        assert (number, rejected(coregw.verify_read, request, forged).check) == (number, check)
    asked, empty = range_read(tree, 50)
    past = json.loads(json.dumps(empty).replace("range:50:", "range:51:").replace('"start": 50', '"start": 51'))
    from_51 = {"kind": "list_range", "start": 51}
    assert rejected(coregw.verify_read, asked | {"query": from_51}, past).check == "range"
    with pytest.raises(InvalidInput, match="not empty"):
        coregw.verify_read(json.dumps(asked | {"query": from_51 | {"end": 51}}), "{}")


def test_prooflists(setup: Known) -> None:
    folder = MapTree(setup, {"@payload": cid("folder"), "readme": cid("readme")})
    other = MapTree(setup, {"docs": folder.root.text})
    top = MapTree(setup, {"docs": folder.root.text, sharing("docs"): cid("other")})
    request, result = resolved([top, folder], ["docs", "readme"])
    steps = result["prooflist"]["steps"]
    payload = resolved([folder], ["@payload"])

    def with_steps(*changed: Document, **members: object) -> Document:
        return result | {"prooflist": result["prooflist"] | {"steps": [*changed]} | members}

    forgeries = [
        (result | {"target": cid("other")}, "path"),
        (with_steps(steps[0]), "path"),
        (with_steps(steps[1]), "from"),
        (with_steps(*steps[::-1]), "from"),
        (with_steps(*steps, steps[1]), "from"),
        (with_steps(), "path"),
        (with_steps(*steps, root={"/": other.root.text}), "root"),
        (with_steps(*steps, query="docs"), "query"),
        (with_steps(*steps, query="docs/readme/"), "query"),
        (with_steps(steps[0] | {"path": "docs/"}, steps[1]), "slot"),
        (with_steps(steps[0] | {"kind": "payload_binding"}, steps[1]), "kind"),
        (with_steps(steps[0] | {"kind": "list_index"}, steps[1]), "kind"),
        (with_steps(steps[0] | {"proof": steps[0]["evidence"]}, steps[1]), "proof"),
        (with_steps(steps[0] | {"evidence_kind": "structure"}, steps[1]), "kind"),
        (with_steps(steps[0] | {"target": {"/": "b"}}, steps[1]), "cid"),
        (with_steps(steps[0] | {"unknown": 1}, steps[1]), "result"),
        (with_steps(steps[0], steps[1] | {"target": None, "kind": "map_absence"}), "kind"),
        (result | {"profile": "core.resolve/v0alpha1"}, "result"),
    ]
    for number, (forged, check) in enumerate(forgeries):
        assert (number, rejected(coregw.verify_resolve, request, forged).check) == (number, check)
    as_step = json.loads(json.dumps(payload[1]).replace("payload_binding", "map_step"))
    assert rejected(coregw.verify_resolve, payload[0], as_step).check == "kind"
    asked, got = map_proven(top, "docs")
    for change in ({"present": False}, {"target": cid("other")}):
        assert rejected(coregw.verify_map_proof, asked, got | change).check == "target"
    without = {name: value for name, value in got.items() if name != "target"}
    assert rejected(coregw.verify_map_proof, asked, without).check == "target"
    asked, got = key_read(top, "docs")
    assert rejected(coregw.verify_read, asked, got | {"range_segments": []}).check == "segments"
    last = got["prooflist"]["steps"][0]["proof"]
    for spoiled in (last[:-4] + "AB=D", last + "\n", "=" + last):
        text = json.dumps(got).replace(json.dumps(last), json.dumps(spoiled))
        with pytest.raises(ProofError, match="base64"):
            coregw.verify_read(json.dumps(asked), text)


def test_the_target_of_no_segments_is_the_root(setup: Known) -> None:
    root = MapTree(setup, {}).root.text
    request: Document = {"profile": "malt.resolve/v0alpha1", "root": root, "segments": []}
    result: Document = {"profile": "malt.resolve/v0alpha1", "target": root}
    result["prooflist"] = {"root": {"/": root}, "steps": []}
    assert coregw.verify_resolve(json.dumps(request), json.dumps(result)) == root
    assert rejected(coregw.verify_resolve, request, result | {"target": cid("other")}).check == "steps"
    assert coregw.verify_map_proof(*map(json.dumps, map_proven(MapTree(setup, {}), KEY))) is None


def test_requests_that_are_refused(setup: Known) -> None:
    root = MapTree(setup, {KEY: PRESENT}).root
    asked: Document = {"profile": "malt.resolve/v0alpha1", "root": root.text, "segments": [KEY]}
    codec = bytes.fromhex("01 82 e2 c0 01 00 20") + bytes(32)
    ipa = "b" + base64.b32encode(codec).decode().rstrip("=").lower()
    for change, message in [
        ({"segments": ["a/b"]}, "separator|/"),
        ({"segments": ["a", ""]}, "empty"),
        ({"root": ipa}, "IPA"),
        ({"root": root.text[:-2]}, "CID|profile"),
        ({"root": PRESENT}, "KZG|not proven"),
        ({"root": root._replace(version=4).text}, "version"),
        ({"profile": "core.resolve/v0alpha1"}, "profile"),
        ({"more": 1}, "more"),
        ({"root": coregw.Map({}).root}, "profile|root|not proven"),
    ]:
        with pytest.raises((InvalidInput, ProofError), match=message):
            coregw.verify_resolve(json.dumps(asked | change), "{}")
    for key in ([], ["a", ""]):
        with pytest.raises(InvalidInput):
            coregw.verify_map_proof(json.dumps({"profile": "malt.map-proof/v0alpha1", "root": root.text, "key": key}),
                                    json.dumps(map_proven(MapTree(setup, {}), KEY)[1]))  # fmt: skip
