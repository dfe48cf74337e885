"""The rules of docs/gateway.md: every test that the page names exists, and every endpoint has a rule."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[2]
PAGE = (TESTS.parent / "docs" / "gateway.md").read_text("utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading of the page, without its header."""
    table = re.search(r"(?:^\|.*\n)+", PAGE.split(f"\n## {heading}\n")[1], re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def test_every_named_test_exists() -> None:
    existing = {
        node.name
        for part in ("gateway", "client", "upkeep")
        for path in (TESTS / part).rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    named = {name for row in rows("Rules and their tests") for name in re.findall(r"`(test_\w+)`", row[1])}
    assert len(named) > 50
    assert named <= existing


def test_every_rule_names_a_test() -> None:
    assert [rule for rule, tests in rows("Rules and their tests") if "`test_" not in tests] == []


def test_every_endpoint_has_a_rule() -> None:
    endpoints = [re.sub(r"`|\?[^`]*", "", row[0]) for row in rows("Endpoints")]
    rules = [row[0] for row in rows("Rules and their tests")]
    assert len(endpoints) > 20
    assert [endpoint for endpoint in endpoints if endpoint not in rules] == []
