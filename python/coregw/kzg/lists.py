"""Lists of KZG roots: a tree of 4,095 children a node. Slot 0 of a node holds its metadata, slot i + 1 its child i."""

from __future__ import annotations

from typing import Final, NamedTuple, Self

from msgspec import UNSET

from coregw.errors import InvalidInput, ProofError
from coregw.kzg.cid import IDENTITY, RAW, KzgRoot, identity_cid, parse
from coregw.kzg.messages import MAX_RANGE_SEGMENTS, ListProof, RangeProof, from_base64, proof_of
from coregw.kzg.opening import SLOTS, Openings

__all__ = ["Metadata", "check_index", "check_range", "digits_of", "height_of"]

_METADATA: Final = b"malt:list:node-meta:"
_CHILDREN: Final = SLOTS - 1


class Metadata(NamedTuple):
    """What slot 0 of a node says.

    Attributes:
        height: The levels below it, 0 if its children are elements.
        child_count: The number of elements below it.
        total_size: The sum of their sizes in bytes, 0 in a list without sizes.
        chunk_size: The size of each of them but the last in bytes, 0 in a list without sizes.
    """

    height: int
    child_count: int
    total_size: int
    chunk_size: int

    @classmethod
    def of(cls, length: int, total_size: int = 0, chunk_size: int = 0) -> Self:
        """Return the metadata of the top node of a list."""
        return cls(height_of(length), length, total_size, chunk_size)

    @property
    def cell(self) -> bytes:
        """The cell that says it."""
        return identity_cid(_METADATA + b"".join(each.to_bytes(8) for each in self))


def check_index(
    openings: Openings, root: KzgRoot, index: int, length: int, target: bytes, proof: str, place: str
) -> None:
    """Check the structure of the proof that a list has this many elements, and this one at an index.

    The openings are added to `openings`, and are still to be checked.

    Args:
        openings: Takes the openings of the proof.
        root: The root of the list.
        index: The index, below `length`.
        length: The number of elements.
        target: The element, a CID in binary form.
        proof: The proof, as it is in the step.
        place: Where the proof is, for messages.

    Raises:
        ProofError: It is not that proof.
    """
    shown = proof_of(proof, ListProof, place)
    if root.kind != "list" or index >= length:
        raise ProofError(f"{place}: no element {index} of a list of {length}", check="kind")
    metadata = Metadata.of(length)
    if shown.metadata_target:
        metadata = _metadata(from_base64(shown.metadata_target, place), place)
        if (metadata.height, metadata.child_count) != (height_of(length), length):
            raise ProofError(f"{place}: the metadata are those of another length", check="length")
    openings.add(root.commitment, 0, metadata.cell, from_base64(shown.metadata_proof, place), f"{place}: metadata")
    slots = [digit + 1 for digit in digits_of(index, length)]
    if len(shown.steps) != len(slots):
        raise ProofError(f"{place}: {len(shown.steps)} levels are shown of {len(slots)}", check="steps")
    node = root
    for level, (slot, step) in enumerate(zip(slots, shown.steps, strict=True)):
        here = f"{place}: level {level}"
        cell = from_base64(step.target, here)
        if step.slot not in {UNSET, slot}:
            raise ProofError(f"{here}: slot {step.slot} instead of {slot}", check="slot")
        openings.add(node.commitment, slot, cell, from_base64(step.proof, here), here)
        if level + 1 < len(slots):
            node = _node(cell, root, here)
        elif cell != target:
            raise ProofError(f"{here}: another element", check="target")


def check_range(
    openings: Openings,
    root: KzgRoot,
    start: int,
    end: int | None,
    metadata: Metadata,
    targets: list[bytes],
    proof: str,
    place: str,
) -> int:
    """Check the structure of the proof that these are the elements that intersect a range of bytes.

    Returns the index of the first one. The openings are added to `openings`, and are still to be checked.

    Args:
        openings: Takes the openings of the proof.
        root: The root of the list.
        start: The first byte.
        end: The byte after the last one, or None for the end of the list.
        metadata: What the step claims of the list.
        targets: The elements, CIDs in binary form.
        proof: The proof, as it is in the step.
        place: Where the proof is, for messages.

    Raises:
        ProofError: It is not that proof.
    """
    shown = proof_of(proof, RangeProof, place)
    size, chunk = metadata.total_size, metadata.chunk_size
    if root.kind != "list" or chunk < 1 or metadata.child_count != -(-size // chunk):
        raise ProofError(f"{place}: not the metadata of a list of elements of equal size", check="length")
    openings.add(root.commitment, 0, metadata.cell, from_base64(shown.metadata_proof, place), f"{place}: metadata")
    past = size if end is None else min(end, size)
    if start > past:
        raise ProofError(f"{place}: the range starts at {start}, past the end {past}", check="range")
    first, count = start // chunk, 0 if start == past else (past - 1) // chunk - start // chunk + 1
    if not count == len(targets) == len(shown.index_proofs) <= MAX_RANGE_SEGMENTS:
        raise ProofError(f"{place}: {len(shown.index_proofs)} proofs of {count} elements", check="range")
    for index, (target, each) in enumerate(zip(targets, shown.index_proofs, strict=True), first):
        here = f"{place}: element {index}"
        if each.index != index:
            raise ProofError(f"{here}: the proof is of element {each.index}", check="range")
        check_index(openings, root, index, metadata.child_count, target, each.proof, here)
    return first


def height_of(length: int) -> int:
    """Return the levels below the top node of a list."""
    height, capacity = 0, _CHILDREN
    while capacity < length:
        height, capacity = height + 1, capacity * _CHILDREN
    return height


def digits_of(index: int, length: int) -> list[int]:
    """Return which child to descend to at each level, from the top node down."""
    return [index // _CHILDREN**level % _CHILDREN for level in reversed(range(height_of(length) + 1))]


def _metadata(cell: bytes, place: str) -> Metadata:
    try:
        cid = parse(cell)
    except InvalidInput as error:
        raise ProofError(f"{place}: {error.message}", check="cell") from None
    numbers = cid.digest.removeprefix(_METADATA)
    if (cid.codec, cid.hash_code, len(cid.digest) - len(numbers), len(numbers)) != (RAW, IDENTITY, len(_METADATA), 32):
        raise ProofError(f"{place}: the cell is not the metadata of a node", check="cell")
    found = Metadata(*(int.from_bytes(numbers[at : at + 8]) for at in range(0, 32, 8)))
    if found.total_size and not found.chunk_size:
        raise ProofError(f"{place}: elements without sizes, with the sum of their sizes", check="cell")
    return found


def _node(cell: bytes, root: KzgRoot, place: str) -> KzgRoot:
    try:
        node = KzgRoot.parse(cell)
    except InvalidInput as error:
        raise ProofError(f"{place}: {error.message}", check="cell") from None
    if (node.kind, node.version) != ("list", root.version):
        raise ProofError(f"{place}: {node.text} is not a node of this list", check="cell")
    return node
