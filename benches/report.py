"""The report of a bench: a table to read, a record to compare with later, and a picture.

A bench is a script ``bench_<name>.py`` that takes the common arguments, collects figures, and ends with ``finish``::

    args = report.arguments(__doc__)
    figures = report.Report("store", "The store and bare rocksdict", args)
    figures.add("get pages", 1.31, better="lower", bar=2.0, guarded=True)
    figures.finish()

The record is ``<name>.json`` beside ``<name>.svg``: in docs/benchmarks/ with ``--write``, else in target/benchmarks/.
The README of docs/benchmarks/, which shows the pictures, is generated from the records, and so is the table of figures
in the README. A record keeps the last full run and the last quick run separately, since they measure different amounts
of work. Times and rates of one machine are shown but not recorded, except headlines, which the README's table shows.
``check.py`` compares runs with records; ``picture.py`` draws.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from figures import Bars, Better, Curve, Curves, Figure, Headline, Listing, is_met, quantity, show

REPOSITORY = Path(__file__).resolve().parent.parent
RECORDED, SCRATCH = REPOSITORY / "docs" / "benchmarks", REPOSITORY / "target" / "benchmarks"
README = REPOSITORY / "README.md"
HEADLINES_BEGIN, HEADLINES_END = "<!-- figures: written by the benches -->", "<!-- end of figures -->"

GALLERY = """# Benchmark results

For those who want figures of coregw's speed. Each picture shows one full run. The JSON file of the same name has its
ratios and the machine it ran on; `make bench ARGS='<name> --write'` regenerates both, and this page. What is measured,
and compared with what, is described in [benches/README.md](../../benches/README.md); what profiling showed is in
[profiling.md](profiling.md).

A value without a unit is a ratio of two sides of one run, which its row names. Below each picture are the figures that
have a bar: an upper (≤) or lower (≥) bound. Times and rates, which are meaningful for one machine only, are in the
pictures, in tables, or printed by the bench; a few of them are in the table of the [README](../../README.md#figures).
"""


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common arguments; a bench may add its own."""
    result = argparse.ArgumentParser(description=(doc or "").partition("\n\n")[0])
    result.set_defaults(about=" ".join((result.description or "").split()))
    result.add_argument("--quick", action="store_true", help="less of everything, in well under a minute")
    result.add_argument(
        "--write", action=argparse.BooleanOptionalAction, default=False, help="record the run in docs/benchmarks/"
    )
    return result


def arguments(doc: str | None) -> argparse.Namespace:
    """Return the common arguments: `quick` and `write`, both bool, and `about`, the first paragraph of `doc`."""
    return parser(doc).parse_args()


class Report:
    """The figures of one run of one bench.

    `notes` describe how it was measured, one sentence each; `versions` are those of peers and tools. Both are recorded.
    """

    def __init__(self, name: str, title: str, args: argparse.Namespace, notes: tuple[str, ...] = ()) -> None:
        self.name, self.title, self.notes = name, title, notes
        self.about: str = args.about
        self.run = "quick" if args.quick else "full"
        self.folder = RECORDED if args.write else SCRATCH
        self.is_draft = args.quick and args.write  # a recorded picture shows a full run
        self.figures: dict[str, Figure] = {}
        self.panels: dict[str, Curves] = {}
        self.charts: list[Bars] = []
        self.headlines: list[Headline] = []
        self.listing: Listing | None = None
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
        """Add a figure. A bar or a guard needs `better`; absolute times and rates are `recorded=False`."""
        if better is None and (guarded or bar is not None):
            raise ValueError(f"{name}: a bar or a guard needs better='lower' or better='higher'")
        figure = Figure(name, value, unit, series, better, bar, guarded, recorded, note)
        if figure.key in self.figures:
            raise ValueError(f"duplicate figure {figure.key!r}")
        self.figures[figure.key] = figure

    def skip(self, series: str, reason: str) -> None:
        """Record that a series cannot be measured on this machine, which is not a regression."""
        self.skipped[series] = reason

    def headline(
        self, what: str, value: float, unit: str, against: str = "", against_value: float | None = None
    ) -> None:
        """Add a row to the table of figures in the README, which shows it with the date and the machine."""
        self.headlines.append(Headline(what, value, unit, against, against_value))

    def rows(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Show a table below the picture, of values that are meaningful together on the machine of the run."""
        self.listing = Listing(list(columns), [list(row) for row in rows])

    def chart(
        self, title: str, unit: str, bars: Mapping[str, float], *, better: Better, floors: Collection[str] = ()
    ) -> None:
        """Add bars to the picture; `floors` are the names of those that no implementation is better than.

        Without charts and panels, the picture shows the figures that have a bar, or else all recorded ones.
        """
        self.charts.append(Bars(title, unit, better, dict(bars), set(floors)))

    def panel(self, title: str, x: str, y: str, *, logarithmic: bool = False) -> None:
        """Add a panel of curves to the picture."""
        self.panels[title] = Curves(title, x, y, logarithmic)

    def line(self, panel: str, label: str, xs: list[float], ys: list[float]) -> None:
        """Add a curve to an existing panel."""
        self.panels[panel].lines.append(Curve(panel, label, xs, ys))

    def finish(self) -> None:
        """Print the table, and write the record and the picture."""
        skipped = [f"not measured: {series}: {reason}" for series, reason in self.skipped.items()]
        tables = [self.table(), *([] if self.listing is None else [self.listing.table()])]
        Console(width=None if sys.stdout.isatty() else 140).print(*tables, *self.notes, *skipped, sep="\n")
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{self.name}.json"
        record = json.loads(path.read_text()) if path.exists() else {}
        runs = record.get("runs", {}) | {self.run: self.record()}
        record = {"name": self.name, "title": self.title, "about": self.about, "runs": dict(sorted(runs.items()))}
        path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        if not self.is_draft:
            self.draw(self.folder / f"{self.name}.svg")
        if self.folder == RECORDED:
            (self.folder / "README.md").write_text(gallery(self.folder))
            README.write_text(with_headlines(README.read_text(), self.folder))

    def draw(self, path: Path) -> None:
        """Draw the picture; it needs matplotlib."""
        import picture  # noqa: PLC0415  # matplotlib is needed for nothing else

        title = self.title if self.run == "full" else f"{self.title} (quick run)"
        picture.draw(title, self.charts, list(self.panels.values()), list(self.figures.values()), path)

    def table(self) -> Table:
        """Return a table of all figures with their bars."""
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
        """Return the names of all series, in order of appearance."""
        return dict.fromkeys(figure.series for figure in self.figures.values())

    def record(self) -> dict[str, Any]:
        """Return the record of this run."""
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
        record = {"context": context, "notes": self.notes, "skipped": self.skipped, "figures": figures}
        if self.listing is not None:
            record["listing"] = asdict(self.listing)
        headlines = [{**asdict(headline), "value": float(f"{headline.value:.4g}")} for headline in self.headlines]
        return record | ({"headlines": headlines} if headlines else {})


def gallery(folder: Path) -> str:
    """Return the page that shows every recorded full run: its picture, and its figures with bars."""
    parts = [GALLERY]
    for path in sorted(folder.glob("*.json")):
        record = json.loads(path.read_text())
        full = record["runs"].get("full")
        if full is None or not path.with_suffix(".svg").exists():
            continue
        sentences = [record["about"], *full["notes"]]
        ran_on = f"On {measured_on(full['context'])}."
        text = " ".join([*sentences, ran_on])
        parts.append(f"## {record['title']}\n\n{text}\n\n![{record['title']}]({path.stem}.svg)\n")
        rows = [_row(key, figure) for key, figure in full["figures"].items() if "bar" in figure]
        if rows:
            parts.append("\n".join(["| what | value | bar |", "|---|---|---|", *rows]) + "\n")
        if "listing" in full:
            parts.append(Listing(**full["listing"]).markdown())
    return "\n".join(parts)


def measured_on(context: Mapping[str, str]) -> str:
    """Return the machine of a run, and its date if that was recorded."""
    machine = f"{context['cpu']}, {context['cores']} cores"
    return f"{machine}, {context['date']}" if "date" in context else machine


def headlines(folder: Path) -> str:
    """Return the README's table of figures: those of all recorded full runs, with their dates and machines."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        full = json.loads(path.read_text())["runs"].get("full", {})
        for each in full.get("headlines", []):
            against = each["against"]
            if each["against_value"] is not None:
                against += f": {quantity(each['against_value'], each['unit'])}"
            row = (each["what"], f"**{quantity(each['value'], each['unit'])}**", against, measured_on(full["context"]))
            rows.append(f"| {' | '.join(row)} |")
    if not rows:
        return "No full run is recorded yet."
    return "\n".join(["| what | figure | compared with | measured on |", "|---|---|---|---|", *rows])


def with_headlines(text: str, folder: Path) -> str:
    """Return the README with the table of figures of the records in this folder.

    Raises:
        ValueError: If its markers are missing.
    """
    before, begin, rest = text.partition(HEADLINES_BEGIN)
    _, end, after = rest.partition(HEADLINES_END)
    if not begin or not end:
        raise ValueError(f"{HEADLINES_BEGIN!r} and {HEADLINES_END!r} are not in the README")
    return f"{before}{begin}\n{headlines(folder)}\n{end}{after}"


def _row(key: str, figure: Mapping[str, Any]) -> str:
    """Format a recorded figure with a bar as a table row."""
    value, better, bar, unit = figure["value"], figure["better"], figure["bar"], figure.get("unit", "x")
    shown = quantity(value, unit)
    missed = "" if is_met(value, better, bar) else ", **missed**"
    return f"| {key} | {shown} | {'≤' if better == 'lower' else '≥'} {bar:,g}{missed} |"


def machine() -> dict[str, str]:
    """Return what the run was made on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "date": datetime.now(UTC).date().isoformat(),
        "system": platform.system(),
        "python": platform.python_version(),
        "coregw": version("coregw"),
    }
