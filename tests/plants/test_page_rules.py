"""The rules of docs/plant-store.md name tests that exist, and the rest of the package knows nothing of plants."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = (HERE.parent.parent / "docs" / "plant-store.md").read_text("utf-8")
RULES = [line for line in PAGE.split("\n## Rules and their tests\n")[1].splitlines() if line.startswith("|")][2:]


def test_every_rule_names_tests_that_exist() -> None:
    existing = {
        node.name
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    named = {name for rule in RULES for name in re.findall(r"`(test_\w+)`", rule)}
    assert len(named) > 10
    assert named <= existing
    assert [rule for rule in RULES if "`test_" not in rule] == []


def test_only_the_command_that_serves_plants_mentions_them() -> None:
    package = HERE.parent.parent / "python" / "coregw"
    mentions = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "plant" in path.read_text("utf-8").lower() and "plants" not in path.relative_to(package).parts
    }
    assert mentions == {"cli/main.py", "cli/serve_plants.py"}
