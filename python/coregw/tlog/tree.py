r"""The Merkle tree of RFC 9162, section 2: hashes, inclusion proofs and consistency proofs.

Prover and verifier follow the same path: it names the subtrees whose hashes a proof has, in order. The prover looks
them up, and the verifier combines them.

```
            root                size 5: path of leaf 2
           /    \
         0-4     4              siblings, from the leaf up:
        /   \                    3-4 (right), 0-2 (left), 4-5 (right)
      0-2    2-4
     /  \   /  \
    0    1 2    3
```
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from coregw._core import check_integer
from coregw.errors import ProofError

__all__ = [
    "EMPTY_ROOT",
    "HASH_BYTES",
    "MAX_SIZE",
    "Node",
    "Sibling",
    "consistency_path",
    "cover",
    "inclusion_path",
    "leaf_hash",
    "node_hash",
    "root_of",
    "verify_consistency",
    "verify_inclusion",
]

HASH_BYTES: Final = 32
EMPTY_ROOT: Final = sha256(b"").digest()
"""The root of the tree without leaves."""

MAX_SIZE: Final = (1 << 53) - 1
"""The largest number of leaves; so no proof has more than 54 hashes."""


class Node(NamedTuple):
    """A complete subtree: leaves ``number << level`` up to, not including, ``(number + 1) << level``."""

    level: int
    number: int


class Sibling(NamedTuple):
    """A subtree beside a path: leaves `start` up to, not including, `end`; left or right of the path."""

    start: int
    end: int
    is_left: bool


def leaf_hash(entry: bytes) -> bytes:
    """Return the hash of a leaf."""
    return sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node."""
    return sha256(b"\x01" + left + right).digest()


def cover(start: int, end: int) -> list[Node]:
    """Return the complete subtrees that make up a subtree, left to right. O(log n) of them."""
    nodes = []
    while start < end:
        level = (end - start).bit_length() - 1
        nodes.append(Node(level, start >> level))
        start += 1 << level
    return nodes


def root_of(hashes: Sequence[bytes]) -> bytes:
    """Return the hash of a subtree from those of its `cover`."""
    if not hashes:
        return EMPTY_ROOT
    root = hashes[-1]
    for left in reversed(hashes[:-1]):
        root = node_hash(left, root)
    return root


def inclusion_path(index: int, size: int) -> list[Sibling]:
    """Return the siblings of the path from leaf `index` up to the root of a tree with `size` leaves."""
    siblings, start, end = [], 0, size
    while end - start > 1:
        middle = start + _split(end - start)
        if index < middle:
            siblings.append(Sibling(middle, end, is_left=False))
            end = middle
        else:
            siblings.append(Sibling(start, middle, is_left=True))
            start = middle
    return siblings[::-1]


def consistency_path(old: int, size: int) -> tuple[tuple[int, int] | None, list[Sibling]]:
    """Return what a consistency proof of two sizes has, ``0 < old <= size``.

    Returns:
        The subtree in which the old tree ends (None if that is the old tree itself, whose hash the verifier has), and
        the siblings from there up. Those on the left belong to both trees, those on the right to the new one.
    """
    siblings, start, end = [], 0, size
    while old < end:
        middle = start + _split(end - start)
        if old <= middle:
            siblings.append(Sibling(middle, end, is_left=False))
            end = middle
        else:
            siblings.append(Sibling(start, middle, is_left=True))
            start = middle
    return (None if start == 0 else (start, end)), siblings[::-1]


def verify_inclusion(entry: bytes, index: int, size: int, root: bytes, proof: Sequence[bytes]) -> None:
    """Raise `ProofError` (check ``inclusion``) unless `entry` is leaf `index` of the tree. O(log n) hashes.

    Raises `TypeError` if `index` or `size` is not an int.
    """
    is_leaf = 0 <= index < size <= MAX_SIZE
    path = inclusion_path(check_integer(index, "index"), check_integer(size, "size")) if is_leaf else []
    if not is_leaf or len(proof) != len(path):
        raise ProofError(f"an inclusion proof of leaf {index} in {size} has {len(proof)} hashes", check="inclusion")
    computed = leaf_hash(entry)
    for sibling, other in zip(path, proof, strict=True):
        computed = node_hash(other, computed) if sibling.is_left else node_hash(computed, other)
    if computed != root:
        raise ProofError(f"leaf {index} is not what the tree of {size} leaves has", check="inclusion")


def verify_consistency(old: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> None:
    """Raise `ProofError` unless the old tree is a prefix of the new one (check ``fork``, or ``rollback``). O(log n).

    Raises `TypeError` if `old` or `size` is not an int.
    """
    if not 0 <= old <= size <= MAX_SIZE:
        raise ProofError(f"a tree of {size} leaves, after one of {old}: a rollback", check="rollback")
    if check_integer(old, "old") == 0:
        if proof or old_root != EMPTY_ROOT:
            raise ProofError("a consistency proof with the empty tree has no hashes", check="fork")
        return
    seed, siblings = consistency_path(old, check_integer(size, "size"))
    if len(proof) != len(siblings) + (seed is not None):
        raise ProofError(f"a consistency proof of {old} and {size} has {len(proof)} hashes", check="fork")
    before = after = old_root if seed is None else proof[0]
    for sibling, other in zip(siblings, proof[seed is not None :], strict=True):
        if sibling.is_left:
            before = node_hash(other, before)
            after = node_hash(other, after)
        else:
            after = node_hash(after, other)
    if (before, after) != (old_root, root):
        raise ProofError(f"the tree of {size} leaves does not continue the one of {old}: a fork", check="fork")


def _split(count: int) -> int:
    """Return the largest power of two below `count`, which is at least 2."""
    return 1 << ((count - 1).bit_length() - 1)
