"""Forged proofs: each violates one check, and is refused with the check that failed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import coregw
from coregw import Change, Conflict, InvalidInput, ProofError
from forging import LIST, MAP, Part, binary, list_inner, list_leaf, list_stub, map_inner, map_leaf, map_stub
from tables import rows

A, B, C = (coregw.payload_cid(text) for text in (b"a", b"b", b"c"))
TREE = coregw.Map({"a/b": A, "a/c": B, "a/d/e": C, "b": A, "c/x": B})
ITEMS = coregw.List([A, B, C] * 3, sizes=[1, 2, 3] * 3)
KEY = coregw.encode_key("a")
LIMIT = 1 << 53

Query = tuple[str, bytes, Callable[[str, bytes], object]]


def queries() -> list[Query]:
    """A root, its proof and its verifier, for a query of every kind."""
    removal, replacement = [Change("a/c", B, None)], [Change(4, B, C)]
    return [
        (TREE.root, TREE.prove("a/c"), lambda root, proof: coregw.verify_key(root, "a/c", proof)),
        (TREE.root, TREE.prove("a/z"), lambda root, proof: coregw.verify_key(root, "a/z", proof)),
        (
            TREE.root,
            TREE.prove_keys(["b", "a/c", "q"]),
            lambda root, proof: coregw.verify_keys(root, ["b", "a/c", "q"], proof),
        ),
        (
            TREE.root,
            TREE.scan("a", limit=2).proof,
            lambda root, proof: coregw.verify_scan(root, "a", None, 2, proof),
        ),
        (
            TREE.root,
            TREE.apply(removal).proof,
            lambda root, proof: coregw.verify_changes(root, removal, proof),
        ),
        (ITEMS.root, ITEMS.prove(4), lambda root, proof: coregw.verify_index(root, 4, proof)),
        (ITEMS.root, ITEMS.prove_range(5, 9), lambda root, proof: coregw.verify_range(root, 5, 9, proof)),
        (
            ITEMS.root,
            ITEMS.apply(replacement).proof,
            lambda root, proof: coregw.verify_changes(root, replacement, proof),
        ),
    ]


def refuse_map(part: Part, why: str, proof: bytes | None = None) -> None:
    """Assert that a proof is refused as that of a key, and as that of a listing."""
    shown = part.proof if proof is None else proof
    with pytest.raises(ProofError, match=why):
        coregw.verify_key(part.root(MAP), "a", shown)
    with pytest.raises(ProofError, match=why):
        coregw.verify_scan(part.root(MAP), "", None, 1, shown)


def refuse_list(part: Part, why: str, proof: bytes | None = None, index: int = 0) -> None:
    """Assert that a proof is refused as that of an element."""
    with pytest.raises(ProofError, match=why):
        coregw.verify_index(part.root(LIST), index, part.proof if proof is None else proof)


ONE = map_leaf(KEY, binary(A))
ELEMENT = list_leaf(1, binary(A))


def test_truncated_proof_is_refused() -> None:
    for length in range(len(ONE.proof)):
        refuse_map(ONE, "end inside", ONE.proof[:length])
    for length in range(len(ELEMENT.proof)):
        refuse_list(ELEMENT, "end inside", ELEMENT.proof[:length])
    for root, proof, verify in queries():
        for length in range(len(proof)):
            with pytest.raises(ProofError):
                verify(root, proof[:length])


def test_bytes_after_the_tree_are_refused() -> None:
    for root, proof, verify in queries():
        for more in (b"\0", b"\3", b"\xff", proof):
            with pytest.raises(ProofError, match="bytes follow"):
                verify(root, proof + more)


def test_long_varint_is_refused() -> None:
    for long, why in ((b"\x84\0", "minimal"), (b"\x84\x80\0", "minimal"), (b"\xff" * 9, "9 bytes")):
        refuse_map(ONE, why, ONE.proof[:1] + long + ONE.proof[2:])
        refuse_list(ELEMENT, why, ELEMENT.proof[:1] + long + ELEMENT.proof[2:])


def test_stray_bits_are_refused() -> None:
    fork = map_inner(9, b"b\0", map_stub(1), map_stub(1))
    assert coregw.verify_key(fork.root(MAP), "a", fork.proof) is None
    refuse_map(fork, "a stray bit in a label", fork.proof[:3] + b"\1" + fork.proof[4:])
    below = map_inner(8, b"a", map_leaf(KEY, binary(A), 9), map_stub(1))
    assert coregw.verify_key(below.root(MAP), "a", below.proof) == A
    refuse_map(below, "a stray bit in a tail", below.proof[:5] + b"\x80" + below.proof[6:])


def test_unknown_node_tag_is_refused() -> None:
    for tag in (4, 0x10, 0x11, 0x12, 0x13, 0xFF):
        refuse_map(ONE, "unknown node tag", bytes([tag]) + ONE.proof[1:])
    for tag in (0, 1, 2, 3, 0x14, 0xFF):
        refuse_list(ELEMENT, "unknown node tag", bytes([tag]) + ELEMENT.proof[1:])


def test_empty_node_inside_a_tree_is_refused() -> None:
    for left, right in ((list_leaf(1, binary(A)), None), (None, list_leaf(1, binary(A)))):
        empty = Part(0, 0, b"\0" * 32, b"\x10")
        refuse_list(list_inner(left or empty, right or empty), "an empty node inside a tree")
    forged = map_inner(8, b"a", Part(0, 0, b"\0" * 32, b"\0"), map_stub(1))
    refuse_map(forged, "an empty node inside a tree", forged.proof + map_stub(1).proof * 2)


def test_list_of_another_shape_is_refused() -> None:
    leaf = list_leaf(1, binary(A))
    whole = list_inner(list_stub(2, 2), leaf)
    assert coregw.verify_index(whole.root(LIST), 2, whole.proof).target == A
    for sides in ((leaf, list_stub(2, 2)), (list_stub(3, 3), leaf), (list_stub(1, 1), list_inner(leaf, leaf))):
        refuse_list(list_inner(*sides), "another shape", index=2)


@rows(
    ("key", "why"),
    [
        (b"b", "no terminator"),
        (b"b\0", "invalid escape"),
        (b"b\0\2\0\0", "invalid escape"),
        (b"\0\0", "empty segment"),
        (b"b\0\1\0\0", "empty segment"),
        (b"b\0\0c\0\0", "bytes follow"),
        (b"b/c\0\0", "'/'"),
        (b"b\xff\0\0", "UTF-8"),
        (b"b\xed\xa0\x80\0\0", "UTF-8"),
        (b"x" * 4097 + b"\0\0", "4,096 bytes"),
        (b"x" * 8195, "8,194 bytes"),
    ],
)
def test_invalid_key_is_refused(key: bytes, why: str) -> None:
    refuse_map(map_leaf(key, binary(A)), why)


@rows(
    "target",
    [
        b"",
        binary(A)[:35],
        binary(A) + b"\0",
        b"\2" + binary(A)[1:],
        b"\1\x55\x11\x14" + b"\7" * 20,
        b"\1\xd5\0\x12\x20" + b"\7" * 32,
        b"\1\x90\xa2\xc0\1\x12\x20" + b"\7" * 32,
        b"\1\x90\xe6\xc0\1\x12\x20" + b"\7" * 32,
        b"\1\x90\xe2\xc0\1\x1e\x20" + b"\7" * 32,
        b"\1\x55\0\x81\1" + b"\7" * 129,
    ],
)
def test_invalid_target_is_refused(target: bytes) -> None:
    refuse_map(map_leaf(KEY, target), "not a valid CID")
    refuse_list(list_leaf(1, target), "not a valid CID")


def test_counts_and_measures_out_of_range_are_refused() -> None:
    for measure, why in ((0, "measure 0"), (LIMIT, "2.53"), (LIMIT + 1, "2.53")):
        refuse_list(list_leaf(measure, binary(A)), why)
    for count, why in ((0, "count 0"), (LIMIT, "2.53")):
        refuse_map(map_inner(9, b"b\0", map_stub(count), map_stub(1)), why)
    half = LIMIT // 2
    refuse_map(map_inner(9, b"b\0", map_stub(half), map_stub(half)), "2.53")
    refuse_list(list_inner(list_stub(half, 1), list_stub(half, 1)), "2.53", index=LIMIT - 1)
    refuse_list(list_inner(list_stub(1, half), list_stub(1, half)), "2.53", index=LIMIT - 1)


def test_bit_past_the_longest_key_is_refused() -> None:
    refuse_map(map_inner(65_552, b"x" * 8194, map_stub(1), map_stub(1)), "past the longest key")


def test_node_below_a_whole_key_is_refused() -> None:
    forged = map_inner(24, b"a\0\0", map_stub(1), map_stub(1))
    with pytest.raises(ProofError, match="below a whole key"):
        coregw.verify_key(forged.root(MAP), "a", forged.proof)
    assert coregw.verify_key(forged.root(MAP), "b", forged.proof) is None


def test_withheld_node_is_refused() -> None:
    for root, _, verify in queries():
        digest = binary(root)[-32:]
        stub = b"\3\5" if root == TREE.root else b"\x13\x09\x12"
        with pytest.raises(ProofError, match="does not show"):
            verify(root, stub + digest)
    with pytest.raises(ProofError, match="does not show"):
        coregw.verify_scan(TREE.root, "a", None, 3, TREE.scan("a", limit=1).proof)


def test_superfluous_node_is_refused() -> None:
    whole = {TREE.root: TREE.scan("", limit=9).proof, ITEMS.root: ITEMS.prove_range(0, None)}
    for root, _, verify in queries():
        with pytest.raises(ProofError, match=r"more than the query needs|more leaves than the query can visit"):
            verify(root, whole[root])


def test_proof_of_another_root_is_refused() -> None:
    others = {TREE.root: coregw.Map({"a/c": C}).root, ITEMS.root: coregw.List([A]).root}
    blake = {
        TREE.root: coregw.Map({"a/c": B}, suite="blake3").root,
        ITEMS.root: coregw.List([A], suite="blake3").root,
    }
    for root, proof, verify in queries():
        for other in (others[root], blake[root]):
            with pytest.raises(ProofError, match="not the root's"):
                verify(other, proof)


def test_root_of_the_other_kind_is_refused() -> None:
    on_map, on_list = queries()[0], queries()[5]
    for (_, proof, verify), root in ((on_map, ITEMS.root), (on_list, TREE.root)):
        with pytest.raises(InvalidInput) as caught:
            verify(root, proof)
        assert caught.value.code == "kind_mismatch"


def test_substituted_target_is_refused() -> None:
    for root, proof, verify in queries():
        for there, other in ((A, B), (B, C), (C, A)):
            if binary(there) in proof:
                with pytest.raises(ProofError, match="not the root's"):
                    verify(root, proof.replace(binary(there), binary(other), 1))


def test_changed_count_or_measure_of_a_pruned_subtree_is_refused() -> None:
    proof = ITEMS.prove(8)
    assert proof[:3] == b"\x12\x13\x08"
    for at in (2, 3):
        forged = bytearray(proof)
        forged[at] += 1
        with pytest.raises(ProofError):
            coregw.verify_index(ITEMS.root, 8, bytes(forged))


def test_proof_of_another_query_is_refused() -> None:
    for root, own, verify in queries():
        for other_root, proof, _ in queries():
            if root == other_root and proof != own:
                with pytest.raises(ProofError):
                    verify(root, proof)


def test_claimed_absence_of_a_present_key_is_refused() -> None:
    for present in ("a/b", "a/c", "a/d/e", "b", "c/x"):
        for absent in ("a", "a/z", "a/d", "z", "a/d/f", "\0"):
            try:
                assert coregw.verify_key(TREE.root, present, TREE.prove(absent)) is not None
            except ProofError:
                continue
    with pytest.raises(ProofError, match="does not show"):
        coregw.verify_index(ITEMS.root, 8, ITEMS.prove(99))


def test_multiproof_of_other_keys_is_refused() -> None:
    asked = ["a/c", "b", "q"]
    own = TREE.prove_keys(asked)
    for other in (["a/c", "b"], ["a/c", "q"], ["a/b", "b", "q"], ["a/c", "b", "c/x"], ["a/c"]):
        proof = TREE.prove_keys(other)
        if proof != own:
            with pytest.raises(ProofError):
                coregw.verify_keys(TREE.root, asked, proof)


def test_listing_with_a_gap_is_refused() -> None:
    for proof in (
        TREE.scan("a", limit=1).proof,
        TREE.scan("a", limit=2).proof,
        TREE.scan("a", "a/c", limit=3).proof,
        TREE.scan("a/d", limit=3).proof,
        coregw.Map({"a/b": A, "a/c": B, "b": A, "c/x": B}).scan("a", limit=3).proof,
    ):
        with pytest.raises(ProofError):
            coregw.verify_scan(TREE.root, "a", None, 3, proof)


def test_changes_that_do_not_fit_the_map_are_refused() -> None:
    removal, insertion = TREE.apply([Change("a/c", B, None)]).proof, TREE.apply([Change("a/z", None, A)]).proof
    for change, proof in (
        (Change("a/c", A, None), removal),
        (Change("a/c", None, C), removal),
        (Change("a/z", A, C), insertion),
        (Change("a/z", A, None), insertion),
    ):
        with pytest.raises(ProofError, match="the current target is"):
            coregw.verify_changes(TREE.root, [change], proof)
    for changes in ([Change("a/c", B, B)], [Change("a/c", B, C)] * 2):
        with pytest.raises(Conflict):
            coregw.verify_changes(TREE.root, changes, removal)


def test_changes_that_do_not_fit_the_list_are_refused() -> None:
    replaced, appended = ITEMS.apply([Change(4, B, C)]).proof, ITEMS.apply([Change(9, None, A)]).proof
    for change, proof, why in (
        (Change(4, A, C), replaced, "the current target is"),
        (Change(4, None, C), replaced, "the current target is"),
        (Change(4, B, None), replaced, "not the end of the list"),
        (Change(10, None, A), appended, "leaves a gap"),
        (Change(9, A, B), appended, "the current target is nothing"),
    ):
        with pytest.raises(ProofError, match=why):
            coregw.verify_changes(ITEMS.root, [change], proof)


def test_proof_longer_than_the_limit_is_refused() -> None:
    for root, _, verify in queries():
        with pytest.raises(ProofError, match="the limit is"):
            verify(root, bytes((16 << 20) + 1))
    with pytest.raises(ProofError, match="the limit is 2892588"):
        coregw.verify_key(TREE.root, "a", bytes(2_892_589))
