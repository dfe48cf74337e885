"""Rows of `rust/core/mutants.md` explain the mutants that they name, and no others."""

import pytest

import unexplained_mutants
from tables import rows
from unexplained_mutants import Mutant


def mutant(
    described: str, *, file: str = "rust/core/src/bits.rs", function: str = "put", line: str, new: str
) -> Mutant:
    listed = {
        "name": f"{file}:1:1: {described}",
        "file": file,
        "genre": "FnValue" if " -> " in described else "Other",
        "function": {"function_name": function},
        "span": {"start": {"line": 1}},
        "replacement": new,
    }
    return Mutant.of(listed, lambda path: line)


OPERATOR = mutant("replace | with ^ in put", line="a = b | c << 1", new="^")
GUARD = mutant("replace match guard a < b with true in X::put", function="X::put", line="_ if a < b => 1", new="true")
ARM = mutant("delete match arm Some(1) in put", line="Some(1) => 2,", new="")
VALUE = mutant("replace put -> bool with false", line="a && b", new="false")
CONSTANT = mutant("replace << with >>", function="", line="const A: u32 = 1 << 9;", new=">>")


@rows(
    ("row", "explained"),
    [
        (r"| `bits.rs`, `put` | `\|` becomes `^` | reason |", [OPERATOR]),
        (r"| `bits.rs`, `put` | `\|` becomes `&` or `^` in `b \| c` | reason |", [OPERATOR]),
        (r"| `bits.rs`, `put` | `\|` becomes `&` | reason |", []),
        (r"| `bits.rs`, `put` | `\|` becomes `^` in `d` | reason |", []),
        (r"| `bits.rs`, `get`; `key.rs` | all | reason |", []),
        (r"| lanes: `bits.rs` | all | reason |", []),
        (r"| `bits.rs` | all | reason |", [OPERATOR, GUARD, ARM, VALUE, CONSTANT]),
        (r"| `bits.rs`, `put` | `a < b` becomes `true` | reason |", [GUARD]),
        (r"| `bits.rs`, `X::put` | all | reason |", [GUARD]),
        (r"| `bits.rs`, `put` | `Some(1)` is deleted; becomes `false` | reason |", [ARM, VALUE]),
        (r"| `bits.rs` | `<<` becomes `>>` in `const A` | reason |", [CONSTANT]),
    ],
)
def test_rows_explain_what_they_name(row: str, explained: list[Mutant]) -> None:
    [parsed] = unexplained_mutants.rows(f"| file, function | mutant | why |\n|---|---|---|\n{row}\n")
    assert [one for one in (OPERATOR, GUARD, ARM, VALUE, CONSTANT) if parsed.explains(one)] == explained


def test_survivors_without_a_row_and_rows_without_a_mutant_are_reported() -> None:
    table = unexplained_mutants.rows("| `bits.rs`, `put` | `Some(1)` is deleted; `None` is deleted | reason |")
    missing, stale = unexplained_mutants.report(table, [OPERATOR, ARM, VALUE], {OPERATOR.name, ARM.name})
    assert missing == f"no row explains {OPERATOR.name}"
    assert "None" in stale


def test_a_change_of_another_form_is_an_error() -> None:
    with pytest.raises(ValueError, match="capacity"):
        unexplained_mutants.rows("| `bits.rs`, `put` | operators, capacity | reason |")


def test_every_row_can_be_read_and_names_files_that_exist() -> None:
    for row in unexplained_mutants.rows(unexplained_mutants.ROWS.read_text()):
        assert [file for file, _ in row.places if not (unexplained_mutants.ROOT / file).is_file()] == []
