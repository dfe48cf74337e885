"""Trees of RFC 9162 against a slow model that is written as the RFC is, and proofs that were changed."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coregw import ProofError
from coregw.tlog.tree import (
    EMPTY_ROOT,
    MAX_SIZE,
    consistency_path,
    cover,
    inclusion_path,
    leaf_hash,
    node_hash,
    root_of,
    verify_consistency,
    verify_inclusion,
)


def split(count: int) -> int:
    power = 1
    while power * 2 < count:
        power *= 2
    return power


def mth(leaves: list[bytes]) -> bytes:
    """RFC 9162, 2.1.1."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    k = split(len(leaves))
    return sha256(b"\x01" + mth(leaves[:k]) + mth(leaves[k:])).digest()


def path(m: int, leaves: list[bytes]) -> list[bytes]:
    """RFC 9162, 2.1.3.1."""
    if len(leaves) == 1:
        return []
    k = split(len(leaves))
    if m < k:
        return [*path(m, leaves[:k]), mth(leaves[k:])]
    return [*path(m - k, leaves[k:]), mth(leaves[:k])]


def subproof(m: int, leaves: list[bytes], whole: bool) -> list[bytes]:
    """RFC 9162, 2.1.4.1."""
    if m == len(leaves):
        return [] if whole else [mth(leaves)]
    k = split(len(leaves))
    if m <= k:
        return [*subproof(m, leaves[:k], whole), mth(leaves[k:])]
    return [*subproof(m - k, leaves[k:], False), mth(leaves[:k])]


LEAVES = [b"%d" % number for number in range(70)]
ROOTS = [mth(LEAVES[:size]) for size in range(len(LEAVES) + 1)]


def hashes(ranges: list[tuple[int, int]]) -> list[bytes]:
    found = []
    for start, end in ranges:
        nodes = [mth(LEAVES[each.number << each.level : (each.number + 1) << each.level]) for each in cover(start, end)]
        found.append(root_of(nodes))
    return found


def inclusion(index: int, size: int) -> list[bytes]:
    return hashes([(each.start, each.end) for each in inclusion_path(index, size)])


def consistency(old: int, size: int) -> list[bytes]:
    seed, siblings = consistency_path(old, size)
    return hashes(([] if seed is None else [seed]) + [(each.start, each.end) for each in siblings])


def test_proofs_are_those_of_the_rfc_and_verify() -> None:
    for size in range(1, len(LEAVES) + 1):
        assert hashes([(0, size)]) == [ROOTS[size]]
        for index in range(size):
            proof = inclusion(index, size)
            assert proof == path(index, LEAVES[:size])
            verify_inclusion(LEAVES[index], index, size, ROOTS[size], proof)
            proof = consistency(index + 1, size)
            assert proof == subproof(index + 1, LEAVES[:size], True)
            verify_consistency(index + 1, ROOTS[index + 1], size, ROOTS[size], proof)
        verify_consistency(0, EMPTY_ROOT, size, ROOTS[size], [])


@given(st.integers(1, 70), st.data())
def test_changed_proofs_are_refused(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    other = data.draw(st.integers(0, 70).filter(lambda each: each != index))
    proof = inclusion(index, size)
    for bad in (proof[:-1], [*proof, ROOTS[1]], [*proof[:-1], ROOTS[0]]):
        if bad != proof:
            with pytest.raises(ProofError) as refused:
                verify_inclusion(LEAVES[index], index, size, ROOTS[size], bad)
            assert refused.value.check == "inclusion"
    with pytest.raises(ProofError):
        verify_inclusion(LEAVES[index], other, size, ROOTS[size], proof)
    with pytest.raises(ProofError):
        verify_inclusion(b"other", index, size, ROOTS[size], proof)
    old = index + 1
    proof = consistency(old, size)
    for bad in (proof[:-1], [*proof, ROOTS[1]], [*proof[:-1], ROOTS[0]]):
        if bad != proof:
            with pytest.raises(ProofError):
                verify_consistency(old, ROOTS[old], size, ROOTS[size], bad)
    with pytest.raises(ProofError) as refused:
        verify_consistency(old, leaf_hash(b"fork"), size, ROOTS[size], proof)
    assert refused.value.check == "fork"
    with pytest.raises(ProofError) as refused:
        verify_consistency(size + 1, ROOTS[1], size, ROOTS[size], proof)
    assert refused.value.check == "rollback"


def test_bounds() -> None:
    assert len(inclusion_path(MAX_SIZE - 1, MAX_SIZE)) <= 54
    assert len(consistency_path(MAX_SIZE - 1, MAX_SIZE)[1]) <= 54
    for index, size in ((-1, 1), (1, 1), (0, 0), (0, MAX_SIZE + 1)):
        with pytest.raises(ProofError):
            verify_inclusion(b"", index, size, EMPTY_ROOT, [])
    with pytest.raises(ProofError):
        verify_consistency(0, ROOTS[1], 1, ROOTS[1], [])
    assert node_hash(ROOTS[1], ROOTS[1]) != leaf_hash(ROOTS[1] + ROOTS[1])
