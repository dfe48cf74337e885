"""`coregw.List` against a plain list: the sequence it is, the proofs it gives, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coregw
from coregw import Change, Conflict, IndexNotFound, InvalidInput, ProofError

CIDS = [coregw.payload_cid(bytes([number])) for number in range(8)]

element = st.tuples(st.sampled_from(CIDS), st.integers(1, 1 << 20))
elements = st.lists(element, max_size=40)
suite = st.sampled_from(["sha2-256", "blake3"])


def build(content: list[tuple[str, int]], name: str = "sha2-256") -> coregw.List:
    return coregw.List([cid for cid, _ in content], [size for _, size in content], suite=name)


def test_a_list_is_a_sequence() -> None:
    built = coregw.List(CIDS)
    assert isinstance(built, Sequence)
    assert list(built) == CIDS
    assert (built[0], built[-1], built[2:5], built[::-1]) == (CIDS[0], CIDS[-1], CIDS[2:5], CIDS[::-1])
    assert (len(built), built.total_size) == (8, 8)
    assert CIDS[3] in built
    assert built.index(CIDS[3]) == 3


@pytest.mark.parametrize("index", [8, -9, 1 << 60])
def test_an_index_outside_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError) as caught:
        coregw.List(CIDS)[index]
    assert isinstance(caught.value, IndexNotFound)
    assert caught.value.code == "path_not_found"


@pytest.mark.parametrize("sizes", [[1] * 7, [1] * 9, [0] + [1] * 7, [(1 << 53) - 1] + [1] * 7, [-1] + [1] * 7])
def test_sizes_that_do_not_fit_are_refused(sizes: list[int]) -> None:
    with pytest.raises(InvalidInput):
        coregw.List(CIDS, sizes)


@given(elements, suite)
def test_every_index_has_a_proof_and_so_has_the_end(content: list[tuple[str, int]], name: str) -> None:
    built = build(content, name)
    for index in range(len(content)):
        proven = coregw.verify_index(built.root, index, built.prove(index))
        assert proven == (*content[index], len(content))
    past = coregw.verify_index(built.root, len(content), built.prove(len(content)))
    assert (past.target, past.length) == (None, len(content))


@given(elements, st.integers(0, 1 << 22), st.none() | st.integers(0, 1 << 22))
def test_a_range_is_the_elements_that_it_meets(content: list[tuple[str, int]], start: int, end: int | None) -> None:
    built = build(content)
    starts = [0, *accumulate(size for _, size in content)]
    stop = starts[-1] if end is None else min(end, starts[-1])
    met = [i for i in range(len(content)) if starts[i] < stop and start < starts[i + 1]] if start < stop else []
    proven = coregw.verify_range(built.root, start, end, built.prove_range(start, end))
    assert proven.segments == [content[i][0] for i in met]
    assert proven.sizes == [content[i][1] for i in met]
    assert proven.offset == (starts[met[0]] if met else None)
    assert (proven.length, proven.total_size) == (len(content), starts[-1])


@settings(max_examples=25)
@given(elements.filter(bool), st.data())
def test_no_changed_proof_is_accepted(content: list[tuple[str, int]], data: st.DataObject) -> None:
    built = build(content)
    index = data.draw(st.integers(0, len(content) - 1))
    proof = built.prove(index)
    for bit in range(8 * len(proof)):
        forged = bytearray(proof)
        forged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProofError):
            coregw.verify_index(built.root, index, bytes(forged))
    for length in range(len(proof)):
        with pytest.raises(ProofError):
            coregw.verify_index(built.root, index, proof[:length])
    with pytest.raises(ProofError):
        coregw.verify_index(built.root, index, proof + b"\0")


@given(elements, elements, suite)
def test_changes_lead_from_one_content_to_another_with_a_proof(
    old: list[tuple[str, int]], new: list[tuple[str, int]], name: str
) -> None:
    changes = []
    for index in range(max(len(old), len(new))):
        before = old[index] if index < len(old) else None
        after = new[index] if index < len(new) else None
        if before != after:
            changes.append(Change(index, before and before[0], after and after[0], after and after[1]))
    start = build(old, name)
    if not changes:
        return
    applied = start.apply(changes)
    assert applied.tree.root == build(new, name).root
    assert list(applied.tree) == [cid for cid, _ in new]
    assert coregw.verify_changes(start.root, changes, applied.proof) == applied.tree.root


@pytest.mark.parametrize(
    "changes",
    [
        [Change(9, None, CIDS[0])],
        [Change(3, CIDS[3], None)],
        [Change(8, None, CIDS[0]), Change(7, CIDS[7], None)],
        [Change(3, CIDS[3], CIDS[3])],
        [Change(3, CIDS[2], CIDS[4])],
        [Change(3, CIDS[3], CIDS[4]), Change(3, CIDS[3], CIDS[5])],
    ],
    ids=["a gap", "no suffix", "appends and removals", "a change of nothing", "a wrong before", "an index twice"],
)
def test_changes_that_do_not_fit_are_a_conflict(changes: list[Change]) -> None:
    with pytest.raises(Conflict):
        coregw.List(CIDS).apply(changes)
