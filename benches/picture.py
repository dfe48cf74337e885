"""The picture of a bench as SVG: bars for its recorded figures, or the curves that it plots itself.

Colours are readable on white and on black, since the background is the page's. Output is deterministic.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt

from report import show

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from report import Curves, Figure, Report

INK, FAINT, BAR = "#6e7781", "#6e778155", "#d1242f"
COLOURS = (
    *("#2f81f7", "#e0823d", "#2da44e", "#a475f9", "#c99400", "#e5534b"),
    *("#1b9e9e", "#d56bb0", "#8c6d4f", "#7d8590", "#6a8f00", "#5561c9"),
)
STYLE: dict[Any, Any] = {
    "axes.edgecolor": INK,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "figure.constrained_layout.use": True,
    "font.family": ["sans-serif"],
    "font.size": 9,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "savefig.transparent": True,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "coregw",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
WIDE = 50
"""The largest by the smallest value from which an axis is logarithmic."""


def draw(report: Report, path: Path) -> None:
    """Draws the bench's lines if it has any, else its recorded figures, a panel for each unit."""
    with mpl.rc_context(STYLE):
        figure = lines(list(report.panels.values())) if report.panels else bars(report)
        if figure is None:
            return
        figure.suptitle(
            f"{report.title}{'' if report.run == 'full' else ' (quick run)'}", x=0.01, ha="left", weight="bold"
        )
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(figure)


def bars(report: Report) -> Drawing | None:
    """Draw a panel per unit, a row per name, a bar per series, and a mark where the target is."""
    shown = [figure for figure in report.figures.values() if figure.recorded]
    if not shown:
        return None
    colours = dict(zip(report.series(), cycle(COLOURS), strict=False))
    units = {unit: [f for f in shown if f.unit == unit] for unit in dict.fromkeys(f.unit for f in shown)}
    heights = [0.3 * len(of) + 0.35 * len({f.name for f in of}) + 0.5 for of in units.values()]
    figure, axes = plt.subplots(
        len(units), 1, figsize=(9, sum(heights) + 0.6), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, (unit, of) in zip(axes[:, 0], units.items(), strict=True):
        panel_of_bars(axis, of, "ratio" if unit == "x" else unit, colours)
    return figure


def panel_of_bars(axis: Axes, figures: list[Figure], label: str, colours: dict[str, str]) -> None:
    at, ticks, named = 0.0, {}, set()
    for name in dict.fromkeys(f.name for f in figures):
        row = [f for f in figures if f.name == name]
        ticks[name] = at + (len(row) - 1) / 2
        for figure in row:
            label_once = figure.series if figure.series not in named else None
            named.add(figure.series)
            axis.barh(at, figure.value, height=0.8, color=colours[figure.series], label=label_once)
            axis.annotate(
                show(figure.value), (figure.value, at), (3, 0), textcoords="offset points", va="center", fontsize=8
            )
            if figure.bar is not None:
                axis.plot([figure.bar] * 2, [at - 0.48, at + 0.48], color=BAR, linewidth=2, solid_capstyle="butt")
                direction = "at most" if figure.better == "lower" else "at least"
                axis.annotate(
                    f"{direction} {figure.bar:g}", (figure.bar, at - 0.45), (2, 1), textcoords="offset points",
                    fontsize=6, color=BAR,
                )  # fmt: skip
            at += 1
        at += 0.6
    values = [f.value for f in figures if f.value > 0]
    if values and max(values) > WIDE * min(values):
        axis.set_xscale("log")
    axis.set_yticks(list(ticks.values()), list(ticks))
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(label)
    axis.margins(x=0.12)
    if named - {""}:
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1))


def lines(panels: list[Curves]) -> Drawing:
    """Draw panels below each other, with a curve per label in the same colour everywhere."""
    labels = dict.fromkeys(line.label for panel in panels for line in panel.lines)
    colours = dict(zip(labels, cycle(COLOURS), strict=False))
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 3.2 * len(panels) + 0.4), squeeze=False)
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        few = max((len(line.xs) for line in panel.lines), default=0) <= 12
        for line in panel.lines:
            axis.plot(line.xs, line.ys, color=colours[line.label], marker="o" if few else None, ms=4, label=line.label)
        if panel.logarithmic:
            axis.set_xscale("log")
            axis.set_yscale("log")
        axis.set_title(panel.title)
        axis.set_xlabel(panel.x)
        axis.set_ylabel(panel.y)
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure
