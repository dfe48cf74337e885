"""Maps of KZG roots: a radix tree of SHA-256(key), 12 bits a level.

The cell of a slot is empty, the CID of another node, or a marker: an identity CID whose payload is a leaf, or names a
bucket, a node that lists all keys of one slot in their order.
"""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from msgspec import UNSET

from coregw.errors import InvalidInput, ProofError
from coregw.kzg.cid import IDENTITY, RAW, KzgRoot, identity_cid, parse
from coregw.kzg.messages import MAX_MAP_STEPS, Bucket, MapProof, from_base64, proof_of
from coregw.kzg.opening import OPENING_BYTES, SLOTS, Openings

__all__ = ["check_key", "leaf_marker", "slots_of"]

_LEAF: Final = b"malt:map:radix:leaf:v1:"
_BUCKETS: Final = {b"malt:map:radix:bucket:v1:": 2, b"malt:map:radix:bucket:v2:": 3}
"""The markers of buckets, and the version of the maps that each occurs in."""

_DIGIT_BITS: Final = 12
_BATCH_SLOTS: Final = 16


class _Leaf(NamedTuple):
    key: bytes
    target: bytes


class _BucketRoot(NamedTuple):
    root: KzgRoot


def check_key(openings: Openings, root: KzgRoot, key: str, target: bytes | None, proof: str, place: str) -> None:
    """Check the structure of the proof that a map binds a key to a target; of its absence, if `target` is None.

    The openings are added to `openings`, and are still to be checked.

    Args:
        openings: Takes the openings of the proof.
        root: The root of the map.
        key: The key: the segments of the path, joined with ``/``.
        target: The CID in binary form.
        proof: The proof, as it is in the step.
        place: Where the proof is, for messages.

    Raises:
        ProofError: It is not that proof.
    """
    if root.kind != "map":
        raise ProofError(f"{place}: {root.text} is not a map", check="kind")
    shown = proof_of(proof, MapProof, place)
    node, last = root, len(shown.steps) - 1
    for depth, (slot, step) in enumerate(zip(slots_of(key), shown.steps, strict=False)):
        here = f"{place}: level {depth}"
        cell = from_base64(step.slot, here)
        openings.add(node.commitment, slot, cell, from_base64(step.proof, here), here)
        found = _cell(cell, root, here)
        if not isinstance(found, KzgRoot):
            if depth != last:
                raise ProofError(f"{here}: the descent ends here, and the proof goes on", check="steps")
            _check_end(openings, found, key, target, shown, here)
            return
        node = found
    raise ProofError(f"{place}: the descent goes on, and the proof ends", check="steps")


def leaf_marker(key: str, target: bytes) -> bytes:
    """Return the cell that binds a key to a target, a CID in binary form."""
    encoded = key.encode()
    return identity_cid(_LEAF + len(encoded).to_bytes(2) + encoded + target)


def slots_of(key: str) -> list[int]:
    """Return the slots of a key, from the top node down: 12 bits of its digest each, padded with zeros."""
    bits = int.from_bytes(hashlib.sha256(key.encode()).digest()) << MAX_MAP_STEPS * _DIGIT_BITS - 256
    return [bits >> _DIGIT_BITS * level & SLOTS - 1 for level in reversed(range(MAX_MAP_STEPS))]


def _cell(cell: bytes, root: KzgRoot, place: str) -> KzgRoot | _Leaf | _BucketRoot | None:
    """Return what a cell is; None if it is empty."""
    if not cell:
        return None
    try:
        cid = parse(cell)
        if cid.hash_code != IDENTITY or cid.codec != RAW:
            return _node(cell, root)
        if cid.digest.startswith(_LEAF):
            return _leaf(cid.digest[len(_LEAF) :])
        for prefix, version in _BUCKETS.items():
            if cid.digest.startswith(prefix) and version == root.version:
                return _BucketRoot(_node(cid.digest[len(prefix) :], root))
    except InvalidInput as error:
        raise ProofError(f"{place}: {error.message}", check="cell") from None
    raise ProofError(f"{place}: the cell is not a node, leaf or bucket", check="cell")


def _node(binary: bytes, root: KzgRoot) -> KzgRoot:
    node = KzgRoot.parse(binary)
    if (node.kind, node.version) != ("map", root.version):
        raise InvalidInput(f"{node.text} is not a node of a map of version {root.version}")
    return node


def _leaf(payload: bytes) -> _Leaf:
    length = int.from_bytes(payload[:2])
    key, target = payload[2 : 2 + length], payload[2 + length :]
    if len(key) != length or not all(key.split(b"/")):
        raise InvalidInput("a leaf without a valid key")
    try:
        key.decode()
    except UnicodeDecodeError:
        raise InvalidInput("the key of a leaf is not UTF-8") from None
    parse(target)
    return _Leaf(key, target)


def _check_end(
    openings: Openings,
    found: _Leaf | _BucketRoot | None,
    key: str,
    target: bytes | None,
    shown: MapProof,
    place: str,
) -> None:
    """Check that the cell where a descent ends shows the key with its target, or that it is absent."""
    bucket = None if shown.bucket is UNSET else shown.bucket
    if isinstance(found, _BucketRoot) != (bucket is not None):
        raise ProofError(f"{place}: a bucket is shown if, and only if, the descent ends at one", check="bucket")
    if isinstance(found, _BucketRoot) and bucket is not None:
        if target is None:
            _check_bucket_without(openings, found.root, key, bucket, place)
        elif bucket.entries or bucket.batches:
            raise ProofError(f"{place}: the bucket of a present key shows one leaf", check="bucket")
        else:
            opening = from_base64(bucket.proof, place)
            openings.add(found.root.commitment, None, leaf_marker(key, target), opening, f"{place}: bucket")
    elif target is None:
        if isinstance(found, _Leaf) and found.key == key.encode():
            raise ProofError(f"{place}: the key is present", check="present")
    elif found != _Leaf(key.encode(), target):
        raise ProofError(f"{place}: the slot does not bind the key to the target", check="target")


def _check_bucket_without(openings: Openings, root: KzgRoot, key: str, bucket: Bucket, place: str) -> None:
    """Check that a bucket has other keys alone: all 4,096 cells are shown, of which the first are leaves in order."""
    if root.version == min(_BUCKETS.values()):
        raise ProofError(f"{place}: the buckets of version {root.version} prove no absence", check="bucket")
    if bucket.proof or len(bucket.entries) < 2 or len(bucket.batches) != SLOTS // _BATCH_SLOTS:
        raise ProofError(f"{place}: the bucket of an absent key shows all of its slots", check="bucket")
    cells = [from_base64(entry, f"{place}: bucket entry {at}") for at, entry in enumerate(bucket.entries)]
    before = b""
    for at, cell in enumerate(cells):
        leaf = _cell(cell, root, f"{place}: bucket entry {at}")
        if not isinstance(leaf, _Leaf) or leaf.key <= before or leaf.key == key.encode():
            raise ProofError(f"{place}: bucket entry {at}: not the next leaf of another key", check="bucket")
        before = leaf.key
    cells += [b""] * (SLOTS - len(cells))
    batches = [from_base64(batch, f"{place}: batch {at}") for at, batch in enumerate(bucket.batches)]
    for at, batch in enumerate(batches):
        if len(batch) != 4 + _BATCH_SLOTS * OPENING_BYTES or int.from_bytes(batch[:4]) != _BATCH_SLOTS:
            raise ProofError(f"{place}: batch {at}: not the openings of {_BATCH_SLOTS} slots", check="bucket")
        for offset in range(_BATCH_SLOTS):
            slot = at * _BATCH_SLOTS + offset
            start = 4 + offset * OPENING_BYTES
            opening = batch[start : start + OPENING_BYTES]
            openings.add(root.commitment, slot, cells[slot], opening, f"{place}: bucket slot {slot}")
