"""A slow model of pages, from docs/protocol.md alone: trees of sections 2 and 3, cut and encoded as in section 8.

As a program it writes the vectors of section 8.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from car_files import varint
from coregw import Cid, encode_key, payload_cid

VECTORS: Final = Path(__file__).parent.parent / "vectors" / "pages.json"
PAGE_BYTES: Final = 8192
TINY_BYTES: Final = 200


@dataclass
class Node:
    """A node of a map or list, with what section 8 needs of it."""

    digest: bytes
    count: int
    measure: int
    bits: str
    """In a map, the prefix of an inner node or the key of a leaf."""
    target: bytes
    children: list[Node]
    height: int = 0
    weight: int = 0
    keep: tuple[bool, bool] = (True, True)


class Tree:
    """A map or a list of a suite."""

    def __init__(self, kind: str, suite: str) -> None:
        self.is_map = kind == "map"
        blake3 = lambda data: Cid(payload_cid(data, hash="blake3")).digest  # noqa: E731
        sha2: Callable[[bytes], bytes] = lambda data: hashlib.sha256(data).digest()  # noqa: E731
        self.hash = sha2 if suite == "sha2-256" else blake3

    # --- sections 2 and 3 ---

    def map(self, arcs: Mapping[str, bytes]) -> Node:
        leaves = []
        for path, target in arcs.items():
            key = encode_key(path)
            encoding = b"\x01" + varint(len(key)) + key + varint(len(target)) + target
            bits = "".join(f"{byte:08b}" for byte in key)
            leaves.append(Node(self.hash(encoding), 1, 1, bits, target, []))
        return self._trie(sorted(leaves, key=lambda leaf: leaf.bits)) if leaves else self._empty(b"\x00")

    def _empty(self, encoding: bytes) -> Node:
        return Node(self.hash(encoding), 0, 0, "", b"", [])

    def _trie(self, leaves: Sequence[Node]) -> Node:
        if len(leaves) == 1:
            return self.cut(leaves[0])
        first, last = leaves[0].bits, leaves[-1].bits
        bit = next(i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b)
        middle = next(i for i, leaf in enumerate(leaves) if leaf.bits[bit] == "1")
        left, right = self._trie(leaves[:middle]), self._trie(leaves[middle:])
        prefix = packed(first[:bit])
        encoding = b"\x02" + varint(bit) + prefix
        encoding += b"".join(varint(child.count) + child.digest for child in (left, right))
        count = left.count + right.count
        return self.cut(Node(self.hash(encoding), count, count, first[:bit], b"", [left, right]))

    def list(self, elements: Sequence[tuple[bytes, int]]) -> Node:
        if not elements:
            return self._empty(b"\x10")
        if len(elements) == 1:
            [(target, measure)] = elements
            encoding = b"\x11" + varint(measure) + varint(len(target)) + target
            return self.cut(Node(self.hash(encoding), 1, measure, "", target, []))
        middle = 1 << (len(elements) - 1).bit_length() - 1
        children = [self.list(elements[:middle]), self.list(elements[middle:])]
        parts = [varint(child.count) + varint(child.measure) + child.digest for child in children]
        total = sum(child.measure for child in children)
        return self.cut(Node(self.hash(b"\x12" + b"".join(parts)), len(elements), total, "", b"", children))

    # --- section 8: where to cut ---

    def cut(self, node: Node) -> Node:
        """Decide which children stay in a node's page; its children are decided."""
        if not node.children:
            node.weight = (0 if self.is_map else len(varint(node.measure))) + 1 + len(node.target)
            return node
        highest = max(child.height for child in node.children)
        stays = [self._stays(node, child) for child in node.children]
        goes = [len(self.stub(child)) for child in node.children]
        high = [child.height == highest for child in node.children]
        tiny = [size < TINY_BYTES for size in stays]
        either = [a or b for a, b in zip(high, tiny, strict=True)]
        plans = [(either, 0), (high, 0), (tiny, 1), ([tiny[0], False], 1), ([False, False], 1)]
        for keep, raised in plans:
            weight = sum(a if kept else b for kept, a, b in zip(keep, stays, goes, strict=True))
            if weight <= PAGE_BYTES or not any(keep):
                node.keep, node.height, node.weight = (keep[0], keep[1]), highest + raised, weight
                break
        return node

    def _stays(self, node: Node, child: Node) -> int:
        floor, extent = len(node.bits) + 1, len(child.bits)
        own = -(-extent // 8) - floor // 8 if self.is_map and extent > floor else 0
        return 4 + own + child.weight

    # --- sections 4 and 8: encoding ---

    def stub(self, node: Node) -> bytes:
        measure = b"" if self.is_map else varint(node.measure)
        extent = len(node.bits)
        noted = varint(node.height) + varint(node.weight) + varint(extent)
        return (b"\x03" if self.is_map else b"\x13") + varint(node.count) + measure + node.digest + noted

    def pages(self, top: Node) -> dict[bytes, bytes]:
        """All pages of a tree by digest, the top page first."""
        pending: list[Node] = []
        page = self._encode(top, 0, pending)
        found = {top.digest: page}
        for node in pending:
            found |= self.pages(node)
        return found

    def _encode(self, node: Node, floor: int, pending: list[Node]) -> bytes:
        if not node.count:
            return b"\x00" if self.is_map else b"\x10"
        if not node.children:
            target = varint(len(node.target)) + node.target
            if not self.is_map:
                return b"\x11" + varint(node.measure) + target
            tail = packed("0" * (floor % 8) + node.bits[floor:])
            return b"\x01" + varint(len(tail)) + tail + target
        encoded = b"\x12"
        below = 0
        if self.is_map:
            below = len(node.bits) + 1
            own = node.bits[floor:]
            label = packed("0" * (floor % 8) + own) if own else b""
            encoded = b"\x02" + varint(len(own)) + label
        for child, keep in zip(node.children, node.keep, strict=True):
            if keep:
                encoded += self._encode(child, below, pending)
            else:
                pending.append(child)
                encoded += self.stub(child)
        return encoded


def packed(bits: str) -> bytes:
    """Bits as bytes, the unused ones zero."""
    return bytes(int(bits[i : i + 8].ljust(8, "0"), 2) for i in range(0, len(bits), 8))


# --- vectors ---


def vectors() -> Iterator[dict[str, object]]:
    """The cases of pages.json."""
    raw = [bytes(Cid(payload_cid(b"%d" % i))) for i in range(400)]
    text = lambda target: Cid(target).text  # noqa: E731
    long = {f"{'directory ' * 2}{i % 3}/{i}": raw[i] for i in range(250)}
    arcs = [
        {},
        {"a": raw[0]},
        {"docs/a": raw[0], "docs/b": raw[1], "x": raw[2]},
        long,
        {"\0" * 4096: raw[0], "b": raw[1]},
    ]
    for suite in ("sha2-256", "blake3"):
        for some in arcs:
            tree = Tree("map", suite)
            top = tree.map(some)
            named = {path: text(target) for path, target in some.items()}
            yield {"kind": "map", "suite": suite, "arcs": named} | _files("map", suite, tree, top)
        for count in (1, 5, 300):
            tree = Tree("list", suite)
            elements = [(raw[i], 1 + i * i) for i in range(count)]
            named_elements = [[text(target), measure] for target, measure in elements]
            yield {"kind": "list", "suite": suite, "elements": named_elements} | _files(
                "list", suite, tree, tree.list(elements)
            )
    yield from _refused(Tree("map", "sha2-256"), long)


def _files(kind: str, suite: str, tree: Tree, top: Node) -> dict[str, object]:
    codec = 0x303000 | (1 if kind == "map" else 2) << 8 | (0x10 if suite == "sha2-256" else 0x11)
    root = Cid(b"\x01" + varint(codec) + (b"\x12\x20" if suite == "sha2-256" else b"\x1e\x20") + top.digest).text
    pages = {digest.hex(): page.hex() for digest, page in tree.pages(top).items()}
    return {"root": root, "pages": pages}


def _refused(tree: Tree, arcs: Mapping[str, bytes]) -> Iterator[dict[str, object]]:
    """Pages that a reader refuses, each for one reason; and one that it accepts."""
    top = tree.map(arcs)
    pages = tree.pages(top)
    page = pages[top.digest]
    child = next(digest for digest in pages if digest != top.digest)
    at = page.index(child) + 32  # the height of a stub
    height, weight_at = page[at : at + 1], at + 1
    small = tree.pages(tree.map({"a": b"\x01\x55\x00\x00"}))
    [(name, leaf)] = small.items()
    cases = {
        "another page": (child, page),
        "bytes follow the tree": (top.digest, page + b"\x00"),
        "the bytes end inside a node": (top.digest, page[:-1]),
        "the page is empty": (top.digest, b""),
        "a stub at the top": (child, page[page.index(child) - 2 :]),
        "a height of 256": (top.digest, page[:at] + b"\x80\x02" + page[at + 1 :]),
        "a varint that is not minimal": (top.digest, page[:at] + bytes([height[0] | 0x80]) + b"\x00" + page[at + 1 :]),
        "a weight of 65,536": (top.digest, page[:weight_at] + b"\x80\x80\x04" + page[weight_at + 2 :]),
        "an unknown tag": (name, b"\x04" + leaf[1:]),
        "a node of a list": (name, b"\x11" + leaf[1:]),
        "a target that is no CID": (name, leaf[:-4] + b"\x02\x55\x00\x00"),
        "a changed key": (name, leaf[:2] + bytes([leaf[2] ^ 1]) + leaf[3:]),
        "more than 16,642 bytes": (top.digest, page + bytes(16_643 - len(page))),
    }
    for why, (digest, changed) in cases.items():
        yield {"kind": "refused", "why": why, "digest": digest.hex(), "page": changed.hex()}
    other = page[:at] + bytes([height[0] ^ 1]) + page[at + 1 :]
    yield {"kind": "accepted", "why": "no digest covers heights", "digest": top.digest.hex(), "page": other.hex()}


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in vectors())
    VECTORS.write_text(f'{{"spec":"docs/protocol.md","cases":[\n{lines}\n]}}\n', "utf-8")
