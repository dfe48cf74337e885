"""The table of the service page's rows names tests that there are, and leaves none of the page's parts out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
TABLE = (HERE.parent.parent / "docs" / "plant-store-rows.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines() if line.startswith("|")][
    2:
]


def test_every_test_that_the_table_names_is_there() -> None:
    there = {
        node.name
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    named = {name for row in ROWS for name in re.findall(r"`(test_\w+)`", row[2])}
    assert len(named) > 20
    assert named <= there


def test_every_row_but_that_of_events_names_a_test() -> None:
    assert [row[0] for row in ROWS if "test_" not in row[2]] == ["Events: not shown"]
