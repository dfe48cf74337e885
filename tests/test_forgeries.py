"""The table of forgeries in SECURITY.md names tests that exist, and every test of a forgery."""

from __future__ import annotations

import re
from pathlib import Path

HOME = Path(__file__).parent.parent
RUST = [
    HOME / "rust" / part / "tests" / f"{name}.rs"
    for part, name in (
        ("core", "forgeries"),
        ("core", "forged_answers"),
        ("ops", "forgeries"),
        ("ops", "forged_cars"),
        ("folders", "forged_folders"),
    )
]
PYTHON = [
    HOME / "tests" / part / f"{name}.py"
    for part, name in (("core", "test_forgeries"), ("engine", "test_forged_results"), ("client", "test_forged_folders"))
]
# Not a forgery: what the refusal says.
OTHER = {
    "check_counts_targets_that_are_not_among_the_blocks",
    "lengths_in_a_car_are_accepted_up_to_their_limits",
    "refusal_of_a_malformed_proof_names_the_byte",
}


def rows() -> list[list[str]]:
    section = (HOME / "SECURITY.md").read_text("utf-8").split("\n## Forgeries\n")[1]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return cells[1:]


def named(column: int) -> set[str]:
    return {name for row in rows() for name in re.findall(r"`([a-z0-9_]+)`", row[column])}


def test_every_forgery_of_the_table_has_a_test_in_both_languages() -> None:
    assert len(rows()) > 40
    for forgery, rust, python in rows():
        assert "`" in rust, forgery
        assert "`test_" in python or "the store only" in python, forgery


def test_the_table_names_exactly_the_tests_of_forgeries() -> None:
    in_rust = {name for file in RUST for name in re.findall(r"#\[test\]\nfn (\w+)\(", file.read_text("utf-8"))}
    assert named(1) == in_rust - OTHER
    in_python = {name for file in PYTHON for name in re.findall(r"\ndef (test_\w+)\(", file.read_text("utf-8"))}
    assert named(2) == in_python
