"""A slow second implementation of diffs, written from docs/protocol.md alone: trees, the walk, and the pruned trees.

Shares nothing with the extension but `coregw.encode_key` and `coregw.Cid`. Bits are text of 0 and 1, nodes are objects.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import coregw
from car_files import varint

OUTSIDE, INSIDE, UNKNOWN = "outside", "inside", "unknown"


def bits_of(key: bytes) -> str:
    return "".join(f"{byte:08b}" for byte in key)


def bytes_of(bits: str) -> bytes:
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))


@dataclass(eq=False)
class Node:
    """A node of a map. `bits` are its known bits: a leaf's key, or the prefix of an inner node."""

    bits: str = ""
    target: bytes = b""
    text: list[str] = field(default_factory=list)
    sides: tuple[Node, Node] | None = None

    def __post_init__(self) -> None:
        self.count: int = sum(side.count for side in self.sides) if self.sides else int(self.is_leaf)
        self.digest = hashlib.sha256(self.encoding()).digest()

    @property
    def is_leaf(self) -> bool:
        return self.target != b""

    def encoding(self) -> bytes:
        if self.sides:
            below = b"".join(varint(side.count) + side.digest for side in self.sides)
            return b"\x02" + varint(len(self.bits)) + bytes_of(self.bits) + below
        if not self.is_leaf:
            return b"\x00"
        key = bytes_of(self.bits)
        return b"\x01" + varint(len(key)) + key + varint(len(self.target)) + self.target


def tree(arcs: Mapping[str, str]) -> Node:
    """The tree of a map given by path texts."""

    def build(leaves: list[Node]) -> Node:
        if len(leaves) < 2:
            return leaves[0] if leaves else Node()
        first, last = leaves[0].bits, leaves[-1].bits
        bit = next(i for i, (x, y) in enumerate(zip(first, last, strict=False)) if x != y)
        left, right = ([leaf for leaf in leaves if leaf.bits[bit] == side] for side in "01")
        return Node(first[:bit], sides=(build(left), build(right)))

    leaves = [
        Node(bits_of(coregw.encode_key(path)), bytes(coregw.Cid(cid)), path.split("/")) for path, cid in arcs.items()
    ]
    return build(sorted(leaves, key=lambda leaf: leaf.bits))


def compare(bits: str, bound: str) -> int:
    """-1, 0 or 1, as far as both go."""
    n = min(len(bits), len(bound))
    return (bits[:n] > bound[:n]) - (bits[:n] < bound[:n])


@dataclass(frozen=True)
class Window:
    lo: str | None
    hi: str | None
    lo_left_out: bool

    @classmethod
    def of(cls, prefix: Sequence[str], after: Sequence[str] | None) -> Window:
        lo = hi = None
        if prefix:
            start = coregw.encode_key(prefix)[:-2]
            lo, hi = bits_of(start + b"\0\0"), bits_of(start + b"\0\2")
        if after is not None:
            lo = bits_of(coregw.encode_key(after))
        return cls(lo, hi, after is not None)

    def judge(self, bits: str, whole_key: bool) -> str:
        verdict = INSIDE
        if self.lo is not None:
            order = compare(bits, self.lo)
            if order < 0 or (order == 0 and whole_key and self.lo_left_out):
                return OUTSIDE
            if order == 0 and not whole_key:
                verdict = UNKNOWN
        if self.hi is not None:
            order = compare(bits, self.hi)
            if order > 0 or (order == 0 and len(bits) >= len(self.hi)):
                return OUTSIDE
            if order == 0:
                verdict = UNKNOWN
        return verdict


Place = tuple[Node, int] | None
"""A subtree with its floor, or nothing."""


class Walk:
    """One page of a diff: `entries` (leaf of a, leaf of b), `more`, and the nodes that were visited."""

    def __init__(self, a: Node, b: Node, window: Window, limit: int) -> None:
        self.window, self.limit = window, limit
        self.entries: list[tuple[Node | None, Node | None]] = []
        self.more = False
        self.visited: list[set[Node]] = [{a}, {b}]
        self.ahead: list[tuple[Place, Place]] = [((a, 0), (b, 0))]
        while self.ahead and not self.more:
            self.take(*self.ahead.pop(0))

    def take(self, x: Place, y: Place) -> None:
        if x and y and x[0].digest == y[0].digest:
            return
        pair = self.judge((x, y), after_visit=False)
        if self.more:
            return
        for place, visited in zip(pair, self.visited, strict=True):
            if place:
                visited.add(place[0])
        # An empty map is nothing, once it is visited.
        x, y = self.judge(tuple(p if p and p[0].count else None for p in pair), after_visit=True)
        if not self.more:
            self.ahead[:0] = self.split(x, y)

    def judge(self, pair: tuple[Place, ...], *, after_visit: bool) -> tuple[Place, Place]:
        verdicts: list[str | None] = []
        for place in pair:
            if place:
                node, floor = place
                bits = node.bits if after_visit else node.bits[:floor]
                verdicts.append(self.window.judge(bits, after_visit and node.is_leaf))
            else:
                verdicts.append(None)
        there = set(verdicts) - {None}
        self.more = len(self.entries) == self.limit and there == {INSIDE}
        x, y = (None if verdict == OUTSIDE else place for place, verdict in zip(pair, verdicts, strict=True))
        return x, y

    def split(self, x: Place, y: Place) -> list[tuple[Place, Place]]:
        if not x or not y:
            node = (x or y or (Node(), 0))[0]
            if node.sides:
                floor = len(node.bits) + 1
                return [((side, floor), None) if x else (None, (side, floor)) for side in node.sides]
            if x or y:
                self.entries.append((x and x[0], y and y[0]))
            return []
        a, b = x[0], y[0]
        order = compare(a.bits, b.bits)
        if order:
            return [(x, None), (None, y)] if order < 0 else [(None, y), (x, None)]
        if a.sides and b.sides and len(a.bits) == len(b.bits):
            floor = len(a.bits) + 1
            return [((m, floor), (n, floor)) for m, n in zip(a.sides, b.sides, strict=True)]
        if a.sides and len(a.bits) < len(b.bits):
            bit = len(a.bits)
            return [
                ((side, bit + 1), y if b.bits[bit] == value else None)
                for side, value in zip(a.sides, "01", strict=True)
            ]
        if b.sides and len(b.bits) < len(a.bits):
            bit = len(b.bits)
            return [
                (x if a.bits[bit] == value else None, (side, bit + 1))
                for side, value in zip(b.sides, "01", strict=True)
            ]
        assert a.bits == b.bits
        self.entries.append((a, b))
        return []


def proof(node: Node, visited: set[Node], floor: int = 0) -> bytes:
    """The pruned tree: what was visited, the rest as stubs (section 4)."""
    if node not in visited:
        return b"\x03" + varint(node.count) + node.digest
    start = floor // 8 * 8
    own = "0" * (floor - start) + node.bits[floor:]
    if node.sides:
        bit = len(node.bits)
        label = bytes_of(own) if bit > floor else b""
        return b"\x02" + varint(bit - floor) + label + b"".join(proof(s, visited, bit + 1) for s in node.sides)
    if not node.is_leaf:
        return b"\x00"
    tail = bytes_of(own)
    return b"\x01" + varint(len(tail)) + tail + varint(len(node.target)) + node.target


def answer(
    a: Mapping[str, str], b: Mapping[str, str], prefix: Sequence[str], after: Sequence[str] | None, limit: int
) -> dict[str, object]:
    """What a gateway answers, to the byte of its proofs."""
    tops = tree(a), tree(b)
    walk = Walk(*tops, Window.of(prefix, after), limit)
    entries = []
    for pair in walk.entries:
        segments = next(leaf.text for leaf in pair if leaf)
        targets = zip(("before", "after"), pair, strict=True)
        entries.append({"segments": segments} | {name: coregw.Cid(leaf.target).text for name, leaf in targets if leaf})
    proofs = [base64.b64encode(proof(top, seen)).decode() for top, seen in zip(tops, walk.visited, strict=True)]
    return {"entries": entries, "more": walk.more, "proofs": {"a": proofs[0], "b": proofs[1]}}
