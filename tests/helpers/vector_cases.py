"""Reader of the vector files: their cases, and the arguments of the extension that they describe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import coregw

FOLDER = Path(__file__).parent.parent / "vectors"

Case = dict[str, Any]


def load(name: str) -> list[Case]:
    """Every case of ``tests/vectors/<name>.json``."""
    cases: list[Case] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))["cases"]
    return cases


def why(case: Case) -> str:
    """What a case shows, as its name."""
    return str(case.get("why", ""))


def text(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """A JSON value as text."""
    return json.dumps(value, ensure_ascii=False)


def changes(case: Case) -> list[coregw.Change]:
    """The case's changes, of a map (``path``) or of a list (``index``)."""
    return [
        coregw.Change(
            change["path"] if "path" in change else change["index"],
            change["before"],
            change["after"],
            change.get("size"),
        )
        for change in case["changes"]
    ]


def tree(case: Case) -> coregw.Map | coregw.List:
    """The tree that a case describes by its arcs or elements."""
    if "arcs" in case:
        return coregw.Map(case["arcs"], suite=case["suite"])
    elements = case["elements"]
    return coregw.List(
        [element["target"] for element in elements], [element["size"] for element in elements], suite=case["suite"]
    )
