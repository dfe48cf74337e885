"""The drawings of the documentation show what the code does: proofs, and the imports of the package."""

from __future__ import annotations

import re
from pathlib import Path

import coregw
from import_graph import drawing
from test_imports import package
from website import drawings

DOCS = Path(__file__).parent.parent.parent / "docs"


def test_the_drawings_of_proofs_are_those_of_the_prover() -> None:
    """``python -m website.drawings`` writes them."""
    drawn = drawings.drawings()
    assert {path.stem: path.read_text("utf-8") for path in (DOCS / "proofs").glob("*.svg")} == drawn
    assert set(re.findall(r"\(proofs/(\w+)\.svg\)", (DOCS / "proofs.md").read_text("utf-8"))) == {*drawn}


def test_a_drawing_has_the_leaves_that_the_proof_shows_and_stubs_for_all_others() -> None:
    targets = {f"k/{index}": coregw.payload_cid(b"%d" % index) for index in range(50)}
    names = {bytes(coregw.Cid(target)): path for path, target in targets.items()}
    proof = coregw.Map(targets).prove_keys(["k/7", "k/31"])
    nodes = [*drawings.parse(proof, names).nodes()]
    assert {node.lines[1] for node in nodes if node.lines[0] == "leaf"} == {"k/7", "k/31"}
    pruned = [int(node.lines[0].split()[0]) for node in nodes if node.is_stub]
    assert sum(pruned) == 48


def test_the_drawing_of_imports_is_that_of_the_package() -> None:
    """``python tests/helpers/import_graph.py`` writes it."""
    page = (DOCS / "architecture.md").read_text("utf-8")
    assert f"```\n{drawing('coregw', package())}```\n" in page
