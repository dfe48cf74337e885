"""A small prover of KZG roots: trees in memory, whole operations as malt-core's gateway answers them.

It works with any setup. `Known` has a secret that is known, so an opening is one multiplication; `Ceremony` is the
public one, of which nobody knows the secret, and `ckzg` makes its openings from the file of the setup.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import ckzg
from py_arkworks_bls12381 import G1Point, G2Point, Scalar

from coregw.kzg.cid import KzgRoot, cid_bytes, cid_text, identity_cid
from coregw.kzg.lists import Metadata, digits_of, height_of
from coregw.kzg.maps import leaf_marker, slots_of

SLOTS = 4096
ORDER = 0x73EDA753299D7D483339D80809A1D80553BDA402FFFE5BFEFFFFFFFF00000001
GENERATOR = pow(7, (ORDER - 1) // SLOTS, ORDER)

Document = dict[str, Any]


def scalar(cell: bytes) -> int:
    return int.from_bytes(hashlib.sha256(cell).digest()) % ORDER


def point_of(slot: int) -> int:
    return pow(GENERATOR, int(f"{slot:012b}"[::-1], 2), ORDER)


def g1(factor: int) -> G1Point:
    return G1Point() * Scalar.from_be_bytes((factor % ORDER).to_bytes(32))


EMPTY = scalar(b"")


class Cells(Protocol):
    """Commits to the cells of a node, and opens them."""

    def commit(self, cells: dict[int, bytes]) -> bytes: ...
    def prove(self, cells: dict[int, bytes], slot: int) -> bytes: ...


def opening(setup: Cells, cells: dict[int, bytes], slot: int) -> bytes:
    return setup.prove(cells, slot) + scalar(cells.get(slot, b"")).to_bytes(32) + slot.to_bytes(4)


class Known:
    """A setup with a secret that is known."""

    def __init__(self, tau: int = 0x5EC2E7) -> None:
        self.tau = tau
        vanishing = (pow(tau, SLOTS, ORDER) - 1) * pow(SLOTS, -1, ORDER)
        self.points = [point_of(slot) for slot in range(SLOTS)]
        self.inverses = [pow(tau - point, -1, ORDER) for point in self.points]
        self.lagrange = [
            vanishing * point * inverse % ORDER for point, inverse in zip(self.points, self.inverses, strict=True)
        ]

    @property
    def tau_g2(self) -> bytes:
        return (G2Point() * Scalar.from_be_bytes(self.tau.to_bytes(32))).to_compressed_bytes()

    def value(self, cells: dict[int, bytes]) -> int:
        """The polynomial of the cells at the secret."""
        empty = EMPTY
        return (empty + sum((scalar(cell) - empty) * self.lagrange[slot] for slot, cell in cells.items())) % ORDER

    def commit(self, cells: dict[int, bytes]) -> bytes:
        return g1(self.value(cells)).to_compressed_bytes()

    def prove(self, cells: dict[int, bytes], slot: int) -> bytes:
        quotient = (self.value(cells) - scalar(cells.get(slot, b""))) * self.inverses[slot]
        return g1(quotient).to_compressed_bytes()


class Ceremony:
    """The public setup, from the file that c-kzg-4844 has as ``src/trusted_setup.txt``."""

    def __init__(self, file: Path) -> None:
        self._setup = ckzg.load_trusted_setup(str(file), 0)

    def commit(self, cells: dict[int, bytes]) -> bytes:
        return bytes(ckzg.blob_to_kzg_commitment(self._blob(cells), self._setup))

    def prove(self, cells: dict[int, bytes], slot: int) -> bytes:
        proof, _ = ckzg.compute_kzg_proof(self._blob(cells), point_of(slot).to_bytes(32), self._setup)
        return bytes(proof)

    @staticmethod
    def _blob(cells: dict[int, bytes]) -> bytes:
        return b"".join(scalar(cells.get(slot, b"")).to_bytes(32) for slot in range(SLOTS))


def to64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def packed(proof: Document) -> str:
    return to64(json.dumps(proof, separators=(",", ":")).encode())


class MapTree:
    """A map: keys to targets, both text."""

    def __init__(self, setup: Cells, arcs: dict[str, str], version: int = 3) -> None:
        self.setup, self.arcs, self.version = setup, arcs, version
        self._nodes: dict[tuple[int, ...], dict[int, bytes]] = {}
        self.root = self._build((), sorted(arcs))

    def _build(self, above: tuple[int, ...], keys: list[str]) -> KzgRoot:
        cells = {}
        by_slot: dict[int, list[str]] = {}
        for key in keys:
            by_slot.setdefault(slots_of(key)[len(above)], []).append(key)
        for slot, below in by_slot.items():
            one = len(below) == 1
            cells[slot] = (
                leaf_marker(below[0], cid_bytes(self.arcs[below[0]]))
                if one
                else bytes(self._build((*above, slot), below))
            )
        self._nodes[above] = cells
        return KzgRoot(self.version, "map", self.setup.commit(cells))

    def proof(self, key: str) -> Document:
        steps: list[Document] = []
        slots = slots_of(key)
        while (above := tuple(slots[: len(steps)])) in self._nodes:
            cells, slot = self._nodes[above], slots[len(steps)]
            step: Document = {"proof": to64(opening(self.setup, cells, slot))}
            steps.append({"slot": to64(cells[slot])} | step if slot in cells else step)
        return {"steps": steps}


class BucketMap:
    """A map with one slot, in which is a bucket, whatever the digests of the keys are: no key has another's digest."""

    def __init__(self, setup: Cells, arcs: dict[str, str], query: str) -> None:
        self.setup, self.arcs = setup, arcs
        self.bucket = {at: leaf_marker(key, cid_bytes(arcs[key])) for at, key in enumerate(sorted(arcs))}
        self.slot = slots_of(query)[0]
        marker = b"malt:map:radix:bucket:v2:" + bytes(KzgRoot(3, "map", setup.commit(self.bucket)))
        self.cells = {self.slot: identity_cid(marker)}
        self.root = KzgRoot(3, "map", setup.commit(self.cells))

    def proof(self, key: str) -> Document:
        step = {"slot": to64(self.cells[self.slot]), "proof": to64(opening(self.setup, self.cells, self.slot))}
        if key in self.arcs:
            at = sorted(self.arcs).index(key)
            return {"steps": [step], "bucket": {"proof": to64(opening(self.setup, self.bucket, at))}}
        return {"steps": [step], "bucket": self._without()}

    @cache  # noqa: B019 - 4,096 openings; the tests have one such map
    def _without(self) -> Document:
        openings = [opening(self.setup, self.bucket, slot) for slot in range(SLOTS)]
        batches = [to64((16).to_bytes(4) + b"".join(openings[at : at + 16])) for at in range(0, SLOTS, 16)]
        return {"entries": [to64(each) for each in self.bucket.values()], "proof": "", "batches": batches}


class ListTree:
    """A list of targets; with sizes, if `chunk` is one."""

    def __init__(self, setup: Cells, targets: list[str], total: int = 0, chunk: int = 0, version: int = 3) -> None:
        self.setup, self.version = setup, version
        self.metadata = Metadata.of(len(targets), total, chunk)
        self._nodes: dict[tuple[int, ...], dict[int, bytes]] = {}
        self.root = self._build((), [cid_bytes(each) for each in targets], height_of(len(targets)))

    def _build(self, above: tuple[int, ...], cells: list[bytes], height: int) -> KzgRoot:
        own = self.metadata if not above else Metadata(height, len(cells), 0, 0)
        if height:
            each = (SLOTS - 1) ** height
            groups = [cells[at : at + each] for at in range(0, len(cells), each)]
            cells = [bytes(self._build((*above, at), group, height - 1)) for at, group in enumerate(groups)]
        node = {0: own.cell} | {at + 1: cell for at, cell in enumerate(cells)}
        self._nodes[above] = node
        return KzgRoot(self.version, "list", self.setup.commit(node))

    def proof(self, index: int) -> Document:
        digits = digits_of(index, self.metadata.child_count)
        steps = []
        for level, digit in enumerate(digits):
            node = self._nodes[tuple(digits[:level])]
            shown = to64(opening(self.setup, node, digit + 1))
            steps.append({"target": to64(node[digit + 1]), "proof": shown, "slot": digit + 1})
        of_list = {"metadata_proof": self._shown_metadata}
        if self.metadata.chunk_size:
            of_list["metadata_target"] = to64(self.metadata.cell)
        return of_list | {"steps": steps}

    @property
    def _shown_metadata(self) -> str:
        return to64(opening(self.setup, self._nodes[()], 0))

    def range_proof(self, indices: range) -> Document:
        proofs = [{"index": index, "proof": packed(self.proof(index))} for index in indices]
        return {"metadata_proof": self._shown_metadata, "index_proofs": proofs}

    def target(self, index: int) -> str:
        digits = digits_of(index, self.metadata.child_count)
        return cid_text(self._nodes[tuple(digits[:-1])][digits[-1] + 1])


def link(cid: str) -> Document:
    return {"/": cid}


def prooflist(root: KzgRoot, query: str, steps: list[Document]) -> Document:
    return {"root": link(root.text)} | ({"query": query} if query else {}) | {"steps": steps}


def resolved(trees: list[MapTree], keys: list[str]) -> tuple[Document, Document]:
    """The request and result of a path that consumes one key in each map."""
    path = "/".join(keys)
    steps = []
    for tree, key in zip(trees, keys, strict=True):
        kind = "payload_binding" if key == "@payload" else "map_step"
        proof = packed(tree.proof(key))
        step = {"kind": kind, "from": link(tree.root.text), "query": key, "path": key}
        steps.append(step | {"target": link(tree.arcs[key]), "evidence_kind": "explicit", "evidence": proof})
    profile, root = "malt.resolve/v0alpha1", trees[0].root
    request = {"profile": profile, "root": root.text, "segments": path.split("/")}
    target = trees[-1].arcs[keys[-1]]
    return request, {"profile": profile, "target": target, "prooflist": prooflist(root, path, steps)}


def map_proven(tree: MapTree | BucketMap, key: str) -> tuple[Document, Document]:
    """The request and result of a map proof."""
    profile, target = "malt.map-proof/v0alpha1", tree.arcs.get(key)
    kind = "map_absence" if target is None else "payload_binding" if key == "@payload" else "map_step"
    step = {"kind": kind, "from": link(tree.root.text), "path": key, "target": target and link(target)}
    step |= {"evidence_kind": "structure", "evidence_backend": "map", "proof": packed(tree.proof(key))}
    request = {"profile": profile, "root": tree.root.text, "key": key.split("/")}
    result = {"profile": profile, "present": target is not None, "prooflist": prooflist(tree.root, key, [step])}
    return request, result | ({} if target is None else {"target": target})


def key_read(tree: MapTree, key: str) -> tuple[Document, Document]:
    """The request and result of a read of a key."""
    request, result = map_proven(tree, key)
    profile = "malt.read/v0alpha1"
    query = {"kind": "map_key", "segments": request["key"]}
    result = {name: value for name, value in result.items() if name != "present"}
    return {"profile": profile, "root": tree.root.text, "query": query}, result | {"profile": profile}


def index_read(tree: ListTree, index: int) -> tuple[Document, Document]:
    """The request and result of a read of an index."""
    profile, target, name = "malt.read/v0alpha1", tree.target(index), f"list:{index}"
    step = {"kind": "list_index", "from": link(tree.root.text), "query": name, "index": index}
    step |= {"length": tree.metadata.child_count, "target": link(target), "evidence_kind": "structure"}
    step |= {"evidence_backend": "list", "proof": packed(tree.proof(index))}
    request = {"profile": profile, "root": tree.root.text, "query": {"kind": "list_index", "index": index}}
    return request, {"profile": profile, "target": target, "prooflist": prooflist(tree.root, name, [step])}


def range_read(tree: ListTree, start: int, end: int | None = None) -> tuple[Document, Document]:
    """The request and result of a read of a range."""
    profile, name = "malt.read/v0alpha1", f"range:{start}:{'' if end is None else end}"
    _, length, total, chunk = tree.metadata
    past = total if end is None else min(end, total)
    indices = range(start // chunk, -(-past // chunk) if start < past else start // chunk)
    bounds = {"start": start} | ({} if end is None else {"end": end})
    targets = [tree.target(index) for index in indices]
    step = {"kind": "list_range", "from": link(tree.root.text), "query": name} | bounds
    step |= {"child_count": length, "total_size": total, "chunk_size": chunk, "target": link(tree.root.text)}
    step |= {"segments": [link(each) for each in targets], "evidence_kind": "structure"}
    step |= {"evidence_backend": "measured_list", "proof": packed(tree.range_proof(indices))}
    request = {"profile": profile, "root": tree.root.text, "query": {"kind": "list_range"} | bounds}
    proofs = prooflist(tree.root, name, [step])
    return request, {"profile": profile, "target": tree.root.text, "range_segments": targets, "prooflist": proofs}
