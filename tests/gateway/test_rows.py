"""The table of the service page's rows names tests that there are, and leaves none of the page's endpoints out."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent.parent
TABLE = (TESTS.parent / "docs" / "gateway-service-rows.md").read_text("utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE.splitlines() if line.startswith("|")][
    2:
]
PAGE = [
    *("POST /v1/resolve", "POST /v1/read", "POST /v1/verify/resolve", "POST /v1/verify/read", "POST /v1/cas"),
    *("GET /v1/cas/{cid}", "HEAD /v1/cas/{cid}", "POST /v1/roots", "POST /v1/roots/{root}/mutations"),
    *("GET /admin/v1/scopes/{scope}/roots", "POST /admin/v1/scopes/{scope}/roots"),
    *("GET /admin/v1/scopes/{scope}/roots/{name}", "POST /admin/v1/scopes/{scope}/roots/{name}/freeze"),
    *(f"Rule {number}" for number in range(1, 8)),
]


def test_every_test_that_the_table_names_is_there() -> None:
    there = {
        node.name
        for part in ("gateway", "client")
        for path in (TESTS / part).glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    named = {name for row in ROWS for name in re.findall(r"`(test_\w+)`", row[2])}
    assert len(named) > 50
    assert named <= there


def test_every_row_but_that_of_events_names_a_test() -> None:
    assert [row[0] for row in ROWS if "test_" not in row[2]] == ["Events: not shown"]


def test_every_endpoint_and_rule_of_the_page_has_a_row() -> None:
    rows = [re.split("[:,]", row[0])[0] for row in ROWS]
    assert [each for each in PAGE if each not in rows] == []
