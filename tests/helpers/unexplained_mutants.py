"""Surviving mutants without a row in `rust/core/mutants.md`, and rows without a mutant: the end of `make mutants`.

A row explains a mutant if it names its file, its function and its change. A row that matches none is as wrong as a
missing one: the code that it describes has changed.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ROWS = ROOT / "rust/core/mutants.md"
CRATES = {"": "core", "folders": "folders", "lanes": "lanes", "ops": "ops"}

SPAN = re.compile(r"`([^`]+)`")
CHANGES = (
    re.compile(r"replace match guard (?P<old>.*) with (?:true|false)(?: in .*)?", re.DOTALL),
    re.compile(r"replace (?P<old>\S+) with \S+(?: in .*)?"),
    re.compile(r"delete match arm (?P<old>.*) in .*", re.DOTALL),
    re.compile(r"delete field (?P<old>\w+) from .*"),
    re.compile(r"delete (?P<old>[!-])(?: in .*)?"),
)


@dataclass(frozen=True)
class Mutant:
    """One change of a function: `old` becomes `new`. `old` is empty if the function's result is replaced."""

    name: str
    file: str
    function: str
    old: str
    new: str
    line: str

    @classmethod
    def of(cls, listed: dict[str, Any], read: Callable[[str], str]) -> "Mutant":
        """Return one mutant of `cargo mutants --list --json`. `read` returns the text of a file."""
        described = listed["name"].split(": ", 1)[1]
        old = ""
        if listed["genre"] != "FnValue":
            old = next(match["old"] for change in CHANGES if (match := change.fullmatch(described)))
        line = read(listed["file"]).splitlines()[listed["span"]["start"]["line"] - 1]
        function = listed["function"]["function_name"] if listed["function"] else ""
        return cls(listed["name"], listed["file"], function, old, listed["replacement"], line.strip())


@dataclass(frozen=True)
class Change:
    """`old` becomes one of `new`, in a line that has all `parts`; everything if an item is empty."""

    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Change":
        """Parse ``all``, ``becomes `B` ``, ```A` becomes `B` or `C` in `part` ``, or ```A` is deleted``."""
        text, _, where = text.partition(" in `")
        parts = tuple(SPAN.findall(f"`{where}" if where else ""))
        before, deleted, _ = text.partition("is deleted")
        if deleted:
            return cls(tuple(SPAN.findall(before)), ("",), parts)
        before, becomes, after = text.partition("becomes")
        if not becomes and "all" not in text.split():
            raise ValueError(f"neither all, nor becomes, nor is deleted: {text!r}")
        return cls(tuple(SPAN.findall(before)), tuple(SPAN.findall(after)), parts)

    def matches(self, mutant: Mutant) -> bool:
        return (
            (not self.old or mutant.old in self.old)
            and (not self.new or mutant.new in self.new)
            and all(part in mutant.line for part in self.parts)
        )


@dataclass(frozen=True)
class Row:
    """One row of a table: places, changes, and a reason."""

    text: str
    places: tuple[tuple[str, tuple[str, ...]], ...]
    changes: tuple[Change, ...]

    @classmethod
    def parse(cls, text: str) -> "Row":
        where, what, _reason = (cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", text)[1:-1])
        crate, colon, rest = where.partition(": ")
        places = []
        for place in (rest if colon else where).split("; "):
            file, *functions = SPAN.findall(place)
            places.append((f"rust/{CRATES[crate if colon else '']}/src/{file}", tuple(functions)))
        return cls(text, tuple(places), tuple(map(Change.parse, what.split("; "))))

    def explains(self, mutant: Mutant) -> bool:
        return any(change.matches(mutant) for change in self.changes) and any(
            mutant.file == file and (not names or any(f"::{mutant.function}".endswith(f"::{name}") for name in names))
            for file, names in self.places
        )


def rows(text: str) -> list[Row]:
    """Return the rows of all tables."""
    return [Row.parse(line) for line in text.splitlines() if line.startswith("| ") and "`" in line]


def report(table: list[Row], mutants: list[Mutant], survivors: set[str]) -> list[str]:
    """Return a line for each survivor that no row explains, and for each change of a row without a mutant."""
    lines = [
        f"no row explains {mutant.name}"
        for mutant in mutants
        if mutant.name in survivors and not any(row.explains(mutant) for row in table)
    ]
    for row in table:
        for change in row.changes:
            alone = Row(row.text, row.places, (change,))
            if not any(alone.explains(mutant) for mutant in mutants):
                lines.append(f"no mutant for {change} in: {row.text}")
        for place in row.places:
            alone = Row(row.text, (place,), row.changes)
            if not any(alone.explains(mutant) for mutant in mutants):
                lines.append(f"no mutant in {place} for: {row.text}")
    return lines


def main(directory: str) -> int:
    listed = subprocess.run(["cargo", "mutants", "--list", "--json"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    survivors = set((Path(directory) / "missed.txt").read_text().splitlines())
    read = cache(lambda file: (ROOT / file).read_text())
    mutants = [Mutant.of(one, read) for one in json.loads(listed.stdout)]
    lines = report(rows(ROWS.read_text()), mutants, survivors)
    print("\n".join(lines) or f"rust/core/mutants.md explains all {len(survivors)} mutants that survived")
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
