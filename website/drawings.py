"""Drawings of proofs: pruned trees as SVG, parsed from the bytes that the prover returns (protocol section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

import coregw
from website.pages import HOME

__all__ = ["Drawn", "drawings", "parse"]

_STYLE: Final = """
  text { font: 13px system-ui, sans-serif; fill: #24292f; text-anchor: middle }
  .small { font-size: 11px; fill: #57606a }
  .shown { fill: #ddf4ff; stroke: #0969da; stroke-width: 1.5 }
  .stub { fill: #f6f8fa; stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 4 3 }
  .line { stroke: #57606a; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .shown { fill: #0c2d6b; stroke: #58a6ff }
    .stub { fill: #21262d; stroke: #9198a1 }
    .line { stroke: #9198a1 }
  }
"""
_WIDTH: Final = 104
_HEIGHT: Final = 74


@dataclass
class Drawn:
    """A node of a proof: its lines of text, whether it is a stub, and its children."""

    lines: tuple[str, ...]
    is_stub: bool = False
    children: list[Drawn] = field(default_factory=list)

    def nodes(self) -> Iterator[Drawn]:
        """Yield this node, and those below it, in preorder."""
        yield self
        for child in self.children:
            yield from child.nodes()


class _Reader:
    """Reads a proof that the prover made, so nothing is checked here but the tags."""

    def __init__(self, proof: bytes, names: dict[bytes, str]) -> None:
        self._rest = memoryview(proof)
        self._names = names
        self._seen: list[str] = []

    def node(self, floor: int = 0) -> Drawn:
        tag = self._take(1)[0]
        if tag in {0x03, 0x13}:
            count = self._varint()
            if tag == 0x13:
                self._varint()
            self._take(32)
            return Drawn((f"{count} pruned", "digest"), is_stub=True)
        if tag in {0x01, 0x11}:
            self._take(self._varint()) if tag == 0x01 else self._varint()
            return Drawn(("leaf", self._names[bytes(self._take(self._varint()))]))
        if tag == 0x12:
            return Drawn(("inner",), children=[self.node(), self.node()])
        gap = self._varint()
        bit = floor + gap
        self._take(((bit + 7) // 8 - floor // 8) if gap else 0)
        return Drawn(("inner", f"bit {bit}"), children=[self.node(bit + 1), self.node(bit + 1)])

    def is_at_end(self) -> bool:
        return not self._rest

    def _take(self, size: int) -> memoryview:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value


def parse(proof: bytes, names: dict[bytes, str]) -> Drawn:
    """Return the tree of a proof. `names` has the texts of leaves by the binary CIDs of their targets."""
    reader = _Reader(proof, names)
    top = reader.node()
    assert reader.is_at_end(), "a proof is one tree"  # noqa: S101 - of our own prover
    return top


def _svg(title: str, top: Drawn) -> str:
    """Return the drawing of a tree: leaves and stubs in columns of their own, inner nodes above their children."""
    placed: list[tuple[Drawn, float, int]] = []
    parts: list[str] = []
    column = 0

    def place(node: Drawn, depth: int) -> float:
        nonlocal column
        if node.children:
            below = [place(child, depth + 1) for child in node.children]
            x = sum(below) / len(below)
            parts.extend(
                f'<path class="line" d="M{x:.0f} {_y(depth) + 20}L{each:.0f} {_y(depth + 1) - 20}"/>' for each in below
            )
        else:
            x = _WIDTH * (column + 0.5)
            column += 1
        placed.append((node, x, depth))
        return x

    place(top, 0)
    for node, x, depth in placed:
        kind = "stub" if node.is_stub else "shown"
        parts.append(
            f'<rect class="{kind}" x="{x - 47:.0f}" y="{_y(depth) - 20}" width="94" height="40" rx="6"/>'
            + _text(node.lines, x, _y(depth))
        )
    width, height = max(_WIDTH * column, _WIDTH), _y(max(depth for _, _, depth in placed)) + 28
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _y(depth: int) -> int:
    return 28 + depth * _HEIGHT


def _text(lines: tuple[str, ...], x: float, y: int) -> str:
    if len(lines) == 1:
        return f'<text x="{x:.0f}" y="{y + 4}">{escape(lines[0])}</text>'
    first, second = lines
    return (
        f'<text class="small" x="{x:.0f}" y="{y - 3}">{escape(first)}</text>'
        f'<text x="{x:.0f}" y="{y + 12}">{escape(second)}</text>'
    )


def drawings() -> dict[str, str]:
    """Return the SVG of each drawing of docs/proofs.md by its name; all are of the same map, and of a list."""
    paths = ["a", "b", "docs/a", "docs/b", "docs/c", "x", "y", "z"]
    targets = {path: coregw.payload_cid(path.encode()) for path in paths}
    tree = coregw.Map(targets)
    names = {bytes(coregw.Cid(target)): path for path, target in targets.items()}
    names[bytes(coregw.Cid(coregw.payload_cid(b"new")))] = "new"
    elements = [coregw.payload_cid(b"%d" % index) for index in range(8)]
    names |= {bytes(coregw.Cid(target)): f"e{index}" for index, target in enumerate(elements)}
    change = coregw.Change("docs/b", before=targets["docs/b"], after=coregw.payload_cid(b"new"))
    proofs: dict[str, tuple[str, Callable[[], bytes]]] = {
        "inclusion": ("The inclusion proof of docs/b", lambda: tree.prove("docs/b")),
        "absence": ("The absence proof of docs/d", lambda: tree.prove("docs/d")),
        "multiproof": ("The multiproof of a and docs/b", lambda: tree.prove_keys(["a", "docs/b"])),
        "listing": ("The listing proof of docs", lambda: tree.scan(["docs"], limit=10).proof),
        "range": ("The range proof of elements 2 to 4", lambda: coregw.List(elements).prove_range(2, 5)),
        "transition": ("The transition proof of a change of docs/b", lambda: tree.apply([change]).proof),
    }
    return {name: _svg(title, parse(prove(), names)) for name, (title, prove) in proofs.items()}


def main() -> None:
    """Write the drawings to docs/proofs: ``python -m website.drawings``, after a change of what they show."""
    for name, svg in drawings().items():
        (HOME / "docs" / "proofs" / f"{name}.svg").write_text(svg, "utf-8")


if __name__ == "__main__":
    main()
