"""`coregw.List` compared with a plain list: sequence methods, proofs, changes, and refused arguments."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coregw
from coregw import Change, Conflict, IndexNotFound, InvalidInput, ProofError
from tables import rows

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


@given(st.lists(st.sampled_from(CIDS), max_size=12), st.slices(12) | st.builds(slice, *[st.none() | st.integers()] * 3))
def test_a_slice_is_that_of_a_plain_list(content: list[str], cut: slice) -> None:
    if cut.step == 0:
        with pytest.raises(ValueError, match="zero"):
            coregw.List(content)[cut]
    else:
        assert coregw.List(content)[cut] == content[cut]


def outcome(sequence: Sequence[str], *arguments: object) -> object:
    try:
        return sequence.index(*arguments)  # type: ignore[arg-type]
    except ValueError as error:
        return type(error)


@given(
    st.lists(st.sampled_from(CIDS[:3]), max_size=12),
    st.sampled_from(CIDS[:4]),
    st.integers(-15, 15),
    st.none() | st.integers(-15, 15),
)
def test_index_count_and_contains_agree_with_a_plain_list(
    content: list[str], target: str, start: int, stop: int | None
) -> None:
    built = coregw.List(content)
    assert outcome(built, target) == outcome(content, target)
    assert outcome(built, target, start) == outcome(content, target, start)
    if stop is not None:
        assert outcome(built, target, start, stop) == outcome(content, target, start, stop)
    assert built.count(target) == content.count(target)
    assert (target in built) == (target in content)
    assert list(reversed(built)) == content[::-1]


def test_a_target_is_found_by_each_form_of_its_cid_and_an_invalid_cid_is_absent() -> None:
    built = coregw.List(CIDS)
    for form in (CIDS[3], coregw.Cid(CIDS[3]), bytes(coregw.Cid(CIDS[3]))):
        assert form in built
        assert built.index(form) == 3
    for invalid in (None, 5, "", "no cid", b"", [CIDS[3]]):
        assert invalid not in built
        assert built.count(invalid) == 0
        with pytest.raises(ValueError, match="not in the list"):
            built.index(invalid)


def test_lists_are_equal_by_root() -> None:
    built = coregw.List(CIDS)
    again = coregw.List(iter(CIDS), sizes=[1] * 8)
    assert built == again
    assert hash(built) == hash(again)
    for other in (coregw.List(CIDS[:7]), coregw.List(CIDS, [2] * 8), coregw.List(CIDS, suite="blake3"), CIDS, 5):
        assert built != other


def test_a_list_is_immutable_and_its_repr_names_the_root() -> None:
    built = coregw.List(CIDS)
    with pytest.raises(TypeError):
        built[0] = CIDS[1]  # type: ignore[index]
    with pytest.raises(AttributeError):
        built.total_size = 9  # type: ignore[misc]
    assert repr(built) == f"<coregw.List {built.root} of 8 elements>"


def test_a_pickled_or_copied_list_is_equal() -> None:
    built = coregw.List(CIDS, range(1, 9), suite="blake3")
    for same in (pickle.loads(pickle.dumps(built)), copy.copy(built), copy.deepcopy(built)):
        assert type(same) is coregw.List
        assert (same, same.total_size) == (built, 36)


def test_a_list_matches_sequence_patterns() -> None:
    match coregw.List(CIDS):
        case [first, *_, last]:
            assert (first, last) == (CIDS[0], CIDS[-1])
        case _:
            pytest.fail("not matched as a sequence")


@rows(
    "sizes",
    [None, [1 + 7 * (i % 5) for i in range(3000)], [1 << 30] + [1] * 2999, [1] * 2999 + [1 << 30]],
    ids=["all 1", "mixed", "a large one first", "a large one last"],
)
def test_iteration_yields_every_element_whatever_the_sizes(sizes: list[int] | None) -> None:
    content = [CIDS[i % 8] for i in range(3000)]
    built = coregw.List(content, sizes)
    assert list(built) == content
    assert built.total_size == (sum(sizes) if sizes else 3000)
    targets = iter(built)
    assert iter(targets) is targets
    assert [next(targets), len(list(targets)), next(targets, None)] == [CIDS[0], 2999, None]


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
def test_an_empty_list_has_proofs_and_can_grow(suite: str) -> None:
    built = coregw.List([], suite=suite)
    assert (len(built), list(built), bool(built), built[:], built.total_size) == (0, [], False, [], 0)
    assert coregw.verify_index(built.root, 0, built.prove(0)) == (None, None, 0)
    assert coregw.verify_range(built.root, 0, None, built.prove_range(0)) == ([], [], None, 0, 0)
    applied = built.apply([Change(0, None, CIDS[0], 5)])
    assert applied.tree == coregw.List(CIDS[:1], [5], suite=suite)
    assert applied.tree.apply([Change(0, CIDS[0], None)]).tree == built


@rows("index", ["0", 1.0, None, [0]])
def test_an_index_of_a_wrong_type_is_a_type_error(index: object) -> None:
    with pytest.raises(TypeError, match="index of a List is an int or a slice"):
        coregw.List(CIDS)[index]  # type: ignore[call-overload]


@rows(
    ("elements", "sizes", "error", "message"),
    [
        (5, None, TypeError, "iterable"),
        ([CIDS[0], 5], None, TypeError, "element 1: a CID is a str"),
        ([CIDS[0], "x"], None, InvalidInput, "element 1: "),
        (CIDS[:2], [1, "2"], TypeError, "size 1 is an int, not str"),
        (CIDS[:2], [1, True], TypeError, "size 1 is an int, not bool"),
        (CIDS[:2], [1, 1 << 70], InvalidInput, "size 1: the int is not from 0"),
        (CIDS[:2], [1, 0], InvalidInput, r"sizes\[1\]: a size must be at least 1"),
        (CIDS[:2], [1], InvalidInput, "1 sizes for 2 elements"),
        (CIDS[:2], 5, TypeError, "iterable"),
    ],
)
def test_invalid_elements_and_sizes_are_refused_with_their_place(
    elements: object, sizes: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        coregw.List(elements, sizes)  # type: ignore[arg-type]


@rows("index", [8, -9, 1 << 60, -(1 << 60), 1 << 70, -(1 << 70)])
def test_an_index_out_of_range_is_an_index_error(index: int) -> None:
    with pytest.raises(IndexError) as caught:
        coregw.List(CIDS)[index]
    assert isinstance(caught.value, IndexNotFound)
    assert caught.value.code == "path_not_found"


@rows("sizes", [[1] * 7, [1] * 9, [0] + [1] * 7, [(1 << 53) - 1] + [1] * 7, [-1] + [1] * 7])
def test_wrong_counts_and_sums_of_sizes_are_refused(sizes: list[int]) -> None:
    with pytest.raises(InvalidInput):
        coregw.List(CIDS, sizes)


@given(elements, suite)
def test_every_index_and_the_end_of_the_list_have_a_proof(content: list[tuple[str, int]], name: str) -> None:
    built = build(content, name)
    for index in range(len(content)):
        proven = coregw.verify_index(built.root, index, built.prove(index))
        assert proven == (*content[index], len(content))
    past = coregw.verify_index(built.root, len(content), built.prove(len(content)))
    assert (past.target, past.length) == (None, len(content))


@given(elements, st.integers(0, 1 << 22), st.none() | st.integers(0, 1 << 22))
def test_a_range_proof_proves_the_overlapping_elements(
    content: list[tuple[str, int]], start: int, end: int | None
) -> None:
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
def test_a_modified_proof_is_refused(content: list[tuple[str, int]], data: st.DataObject) -> None:
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
def test_changes_give_the_new_list_and_a_valid_transition_proof(
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


@rows(
    "changes",
    [
        [Change(9, None, CIDS[0])],
        [Change(3, CIDS[3], None)],
        [Change(8, None, CIDS[0]), Change(7, CIDS[7], None)],
        [Change(3, CIDS[3], CIDS[3])],
        [Change(3, CIDS[2], CIDS[4])],
        [Change(3, CIDS[3], CIDS[4]), Change(3, CIDS[3], CIDS[5])],
    ],
    ids=["gap", "removal inside", "append and removal", "no change", "wrong before", "same index twice"],
)
def test_inconsistent_changes_are_a_conflict(changes: list[Change]) -> None:
    with pytest.raises(Conflict):
        coregw.List(CIDS).apply(changes)


@rows(
    ("changes", "error", "message"),
    [
        ([], InvalidInput, "at least one is required"),
        ([5], TypeError, "change 0: a Change is expected, not int"),
        ([Change("0", CIDS[0], CIDS[1])], TypeError, "change 0: the index is an int, not str"),
        ([Change(True, CIDS[1], CIDS[0])], TypeError, "change 0: the index is an int, not bool"),
        ([Change(-1, CIDS[7], CIDS[0])], InvalidInput, "change 0: the index: -1 is not from 0"),
        ([Change(0, CIDS[0], CIDS[1], 0)], InvalidInput, "size"),
        ([Change(0, CIDS[0], CIDS[1], 1 << 53)], InvalidInput, "change 0: size: 9007199254740992 is not from 0"),
        ([Change(7, CIDS[7], None, 1)], InvalidInput, "change 0: a size without an 'after'"),
    ],
)
def test_a_malformed_change_is_refused_with_its_place(changes: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        coregw.List(CIDS).apply(changes)  # type: ignore[arg-type]


def test_a_change_may_replace_the_size_alone() -> None:
    applied = coregw.List(CIDS).apply([Change(3, CIDS[3], CIDS[3], 9)])
    assert list(applied.tree) == CIDS
    assert applied.tree.total_size == 16


@rows("bound", [-1, 1 << 53, True, 1.0, "1", None])
def test_an_invalid_bound_or_index_is_refused(bound: object) -> None:
    built = coregw.List(CIDS)
    error = InvalidInput if type(bound) is int else TypeError
    with pytest.raises(error, match="index"):
        built.prove(bound)  # type: ignore[arg-type]
    with pytest.raises(error, match="start"):
        built.prove_range(bound)  # type: ignore[arg-type]
    if bound is not None:
        with pytest.raises(error, match="end"):
            built.prove_range(0, bound)  # type: ignore[arg-type]
