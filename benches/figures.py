"""What a report shows: figures with their bars, rows of the README's table, and charts and curves."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

from rich.table import Table

Better = Literal["lower", "higher"]


@dataclass(frozen=True)
class Figure:
    """One value that a bench measured. `name` and `series` together are unique in a bench."""

    name: str
    """The row, such as "random hex, 1,000 keys"."""
    value: float
    unit: str
    """"x" for ratios."""
    series: str
    """What the row belongs to, such as a peer; may be empty."""
    better: Better | None
    bar: float | None
    """The bound on the value, upper or lower depending on `better`."""
    guarded: bool
    """Whether `make bench ARGS=check` fails when it gets worse by more than 15 %."""
    recorded: bool
    """False for values that are meaningful on this machine only."""
    note: str

    @property
    def key(self) -> str:
        """Its name in the record."""
        return f"{self.series}: {self.name}" if self.series else self.name

    def is_met(self) -> bool:
        """Return whether the value meets its bar, or has none."""
        return self.bar is None or is_met(self.value, self.better, self.bar)


def is_met(value: float, better: Better | None, bar: float) -> bool:
    """Return whether a value meets a bar."""
    return value <= bar if better == "lower" else value >= bar


@dataclass(frozen=True)
class Headline:
    """A row of the README's table of figures: a value of the machine that it was measured on."""

    what: str
    value: float
    unit: str
    """"1/s" for rates."""
    against: str
    """What it is to be compared with, such as the floor that no implementation is below; may be empty."""
    against_value: float | None


@dataclass(frozen=True)
class Listing:
    """A table of a run's values."""

    columns: list[str]
    rows: list[list[str]]

    def table(self) -> Table:
        """Return it for a terminal."""
        table = Table(*self.columns)
        for row in self.rows:
            table.add_row(*row)
        return table

    def markdown(self) -> str:
        """Return it for a page."""
        head = [f"| {' | '.join(self.columns)} |", "|---" * len(self.columns) + "|"]
        return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in self.rows)]) + "\n"


@dataclass
class Bars:
    """Bars of one unit, of which those of the floor are marked."""

    title: str
    unit: str
    better: Better
    bars: dict[str, float] = field(default_factory=dict)
    floors: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Curve:
    """A curve of a picture, such as memory over time."""

    panel: str
    label: str
    xs: list[float]
    ys: list[float]


@dataclass
class Curves:
    """All curves that share a panel of the picture."""

    title: str
    x: str
    y: str
    logarithmic: bool
    lines: list[Curve] = field(default_factory=list)


def show(value: float) -> str:
    """Format a value with three significant digits."""
    if not math.isfinite(value):
        return f"{value:g}"
    if abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.1f}"


def quantity(value: float, unit: str) -> str:
    """Format a value with its unit, as in 12,345/s, 1.2 µs and 1.35."""
    return show(value) if unit == "x" else f"{show(value)}/s" if unit == "1/s" else f"{show(value)} {unit}"
