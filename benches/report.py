"""What every bench does with its figures: a table to read, a record to compare with later, and a picture.

A bench is a script ``bench_<name>.py`` that takes the common arguments, collects figures, and ends with ``finish``::

    args = report.arguments(__doc__)
    figures = report.Report("store", "The store and bare rocksdict", args)
    figures.add("get pages", 1.31, better="lower", bar=2.0, guarded=True)
    figures.finish()

The record is ``<name>.json`` beside ``<name>.svg``: in docs/benchmarks/ with ``--write``, else in target/benchmarks/.
The README of docs/benchmarks/, which shows the pictures, is made of the records. A record keeps the last full run and
the last quick one apart, since they measure different amounts of work. Figures that are times or rates of one machine
are shown but not recorded. What a figure has lost since it was recorded is ``check.py``'s part; drawing is
``picture.py``'s.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

Better = Literal["lower", "higher"]

HOUSE = Path(__file__).resolve().parent.parent
RECORDED, SCRATCH = HOUSE / "docs" / "benchmarks", HOUSE / "target" / "benchmarks"

GALLERY = """# The benches in pictures

Each picture is of one full run. Its ratios are beside it in a JSON file, together with what it ran on;
`make bench-<name> ARGS=--write` renews both, and this page. What is measured, and against what, is in
[benches/README.md](../../benches/README.md).

A value without a unit is a ratio of two sides of one run, and its row says which. Below a picture are the figures that
have a bar: what they are to be at most (≤) or at least (≥). Times and rates that only say something of one machine are
in the pictures, or printed by the bench, and not recorded.
"""


@dataclass(frozen=True)
class Figure:
    """One number of a bench. `name` and `series` together are unique in a bench."""

    name: str
    """What was measured: the row, such as "random hex, 1,000 keys"."""
    value: float
    unit: str
    """"x" for ratios; else what the value counts."""
    series: str
    """What stands side by side in a row and in the picture; may be empty."""
    better: Better | None
    bar: float | None
    """What the value has to be at most or at least, by `better`."""
    guarded: bool
    """Whether `make bench-check` fails when it gets worse by more than 15 %."""
    recorded: bool
    """False for what only says something on this machine."""
    note: str

    @property
    def key(self) -> str:
        """The name under which it is recorded."""
        return f"{self.series}: {self.name}" if self.series else self.name

    def is_met(self) -> bool:
        """Whether the value is on the right side of the bar, if there is one."""
        return self.bar is None or is_met(self.value, self.better, self.bar)


def is_met(value: float, better: Better | None, bar: float) -> bool:
    """Whether a value is on the right side of a bar."""
    return value <= bar if better == "lower" else value >= bar


@dataclass(frozen=True)
class Curve:
    """A line of a picture: values over something, such as memory over time."""

    panel: str
    label: str
    xs: list[float]
    ys: list[float]


@dataclass
class Curves:
    """All lines that share a panel of the picture."""

    title: str
    x: str
    y: str
    logarithmic: bool
    lines: list[Curve] = field(default_factory=list)


def parser(doc: str | None) -> argparse.ArgumentParser:
    """The arguments that every bench has; a bench may add its own."""
    result = argparse.ArgumentParser(description=(doc or "").partition("\n\n")[0])
    result.set_defaults(about=" ".join((result.description or "").split()))
    result.add_argument("--quick", action="store_true", help="less of everything: well under a minute")
    result.add_argument(
        "--write", action=argparse.BooleanOptionalAction, default=False, help="record the run in docs/benchmarks/"
    )
    return result


def arguments(doc: str | None) -> argparse.Namespace:
    """The common arguments of this run: `quick` and `write`, both bool, and `about`, what the bench is about."""
    return parser(doc).parse_args()


def show(value: float) -> str:
    """A value with as many digits as matter."""
    if not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


class Report:
    """The figures of one run of one bench.

    `notes` say how it was measured, one sentence each; `versions` are those of peers and tools. Both are recorded.
    """

    def __init__(self, name: str, title: str, args: argparse.Namespace, notes: tuple[str, ...] = ()) -> None:
        self.name, self.title, self.notes = name, title, notes
        self.about: str = args.about
        self.run = "quick" if args.quick else "full"
        self.folder = RECORDED if args.write else SCRATCH
        self.is_draft = args.quick and args.write  # a recorded picture shows a full run
        self.figures: dict[str, Figure] = {}
        self.panels: dict[str, Curves] = {}
        self.versions: dict[str, str] = {}
        self.skipped: dict[str, str] = {}

    def add(
        self,
        name: str,
        value: float,
        unit: str = "x",
        *,
        series: str = "",
        better: Better | None = None,
        bar: float | None = None,
        guarded: bool = False,
        recorded: bool = True,
        note: str = "",
    ) -> None:
        """Collects a figure. A bar or a guard needs `better`; an absolute time or rate is `recorded=False`."""
        if better is None and (guarded or bar is not None):
            raise ValueError(f"{name}: what is better, lower or higher?")
        figure = Figure(name, value, unit, series, better, bar, guarded, recorded, note)
        if figure.key in self.figures:
            raise ValueError(f"two figures are called {figure.key!r}")
        self.figures[figure.key] = figure

    def skip(self, series: str, reason: str) -> None:
        """Says that a series can't be measured here, which is no loss of it."""
        self.skipped[series] = reason

    def panel(self, title: str, x: str, y: str, *, logarithmic: bool = False) -> None:
        """Opens a panel of lines in the picture. With none, the picture shows the recorded figures as bars."""
        self.panels[title] = Curves(title, x, y, logarithmic)

    def line(self, panel: str, label: str, xs: list[float], ys: list[float]) -> None:
        """Draws a line in a panel opened before."""
        self.panels[panel].lines.append(Curve(panel, label, xs, ys))

    def finish(self) -> None:
        """Prints the table, and writes the record and the picture."""
        skipped = [f"not measured: {series}: {reason}" for series, reason in self.skipped.items()]
        Console(width=None if sys.stdout.isatty() else 140).print(self.table(), *self.notes, *skipped, sep="\n")
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}.json"
        record = json.loads(path.read_text()) if path.exists() else {}
        runs = record.get("runs", {}) | {self.run: self.record()}
        record = {"name": self.name, "title": self.title, "about": self.about, "runs": dict(sorted(runs.items()))}
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        if not self.is_draft:
            import picture  # noqa: PLC0415  # matplotlib is needed for nothing else

            picture.draw(self, self.folder / f"{self.name}.svg")
        if self.folder == RECORDED:
            (self.folder / "README.md").write_text(gallery(self.folder))

    def table(self) -> Table:
        """All figures, a row each, with their bars."""
        table = Table(title=f"{self.title} ({self.run} run)", title_justify="left")
        has_series = any(self.series())
        columns = ["which"] * has_series + ["what", "value", "unit", "bar", "note"]
        for column in columns:
            table.add_column(column, justify="right" if column == "value" else "left")
        before = ""
        for figure in sorted(self.figures.values(), key=lambda f: list(self.series()).index(f.series)):
            if figure.series != before:
                table.add_section()
            sign = "<=" if figure.better == "lower" else ">="
            bar = "" if figure.bar is None else f"{sign} {figure.bar:g} {'ok' if figure.is_met() else 'MISSED'}"
            series = [figure.series if figure.series != before else ""] * has_series
            table.add_row(*series, figure.name, show(figure.value), figure.unit, bar, figure.note)
            before = figure.series
        return table

    def series(self) -> dict[str, None]:
        """The names of all series, in the order of their first figures."""
        return dict.fromkeys(figure.series for figure in self.figures.values())

    def record(self) -> dict[str, Any]:
        """What is kept of this run."""
        left_out = {"name", "series", "recorded"}
        figures = {
            key: {
                name: value
                for name, value in asdict(figure).items()
                if name not in left_out and value not in (None, "")
            }
            | {"value": float(f"{figure.value:.4g}")}
            for key, figure in self.figures.items()
            if figure.recorded
        }
        context = machine() | self.versions
        return {"context": context, "notes": self.notes, "skipped": self.skipped, "figures": figures}


def gallery(folder: Path) -> str:
    """The page that shows the full runs recorded in a folder: a picture each, and how its bars are met."""
    parts = [GALLERY]
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        full = record["runs"].get("full")
        if full is None or not path.with_suffix(".svg").exists():
            continue
        sentences = [record["about"], *full["notes"]]
        ran_on = f"On {full['context']['cpu']}, {full['context']['cores']} cores."
        text = " ".join([*sentences, ran_on])
        parts.append(f"## {record['title']}\n\n{text}\n\n![{record['title']}]({path.stem}.svg)\n")
        rows = [_row(key, figure) for key, figure in full["figures"].items() if "bar" in figure]
        if rows:
            parts.append("\n".join(["| what | value | bar |", "|---|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _row(key: str, figure: Mapping[str, Any]) -> str:
    """A recorded figure that has a bar, as a line of a table."""
    value, better, bar, unit = figure["value"], figure["better"], figure["bar"], figure.get("unit", "x")
    shown = show(value) if unit == "x" else f"{show(value)} {unit}"
    missed = "" if is_met(value, better, bar) else ", **missed**"
    return f"| {key} | {shown} | {'≤' if better == 'lower' else '≥'} {bar:,g}{missed} |"


def machine() -> dict[str, str]:
    """What the run was made on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "system": platform.system(),
        "python": platform.python_version(),
        "coregw": version("coregw"),
    }
