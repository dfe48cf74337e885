"""The picture of a bench as SVG: bars of one unit and the floor below them, curves, or the figures that have a bar.

Colours are readable on white and on black, since the background is the page's. Output is deterministic.
"""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("svg")

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from figures import quantity

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Drawing

    from figures import Bars, Curves, Figure

INK, FAINT, BOUND, FLOOR, ONE = "#6e7781", "#6e778155", "#d1242f", "#7d8590", "#2f81f7"
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
ROOM = 1.35
"""The end of an axis by the longest bar, so that there is room for the number after it."""
BAR_INCHES, GAP_INCHES, TITLE_INCHES = 0.26, 0.12, 0.75


def draw(title: str, all_bars: list[Bars], panels: list[Curves], figures: list[Figure], path: Path) -> None:
    """Draw a report's charts, else its curves, else its figures; nothing if there are none."""
    with mpl.rc_context(STYLE):
        if all_bars:
            drawing = charts(all_bars)
        elif panels:
            drawing = lines(panels)
        else:
            shown = [each for each in figures if each.recorded]
            shown = [each for each in shown if each.bar is not None] or shown
            if not shown:
                return
            drawing = bars(shown)
        drawing.suptitle(title, x=0.01, ha="left", weight="bold")
        drawing.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        plt.close(drawing)


def number(value: float, _: object = None) -> str:
    """Format the value of a tick: 0.9, 20 or 1,000,000, and never a power of ten."""
    text = f"{value:,.6f}"  # ticks are multiples of floats: 3 may be 2.9999999999999996
    return text.rstrip("0").rstrip(".")


def plain(axis: Axis, *, logarithmic: bool) -> None:
    """Label the ticks with numbers; on a short logarithmic axis, also those of 2 and 5 times powers of ten."""
    axis.set_major_formatter(FuncFormatter(number))
    axis.set_minor_formatter(NullFormatter())
    if logarithmic:
        low, high = axis.get_view_interval()
        steps = (1.0,) if high > WIDE * low else (1.0, 2.0, 5.0)
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_minor_locator(NullLocator())
    else:
        axis.set_major_locator(MaxNLocator(6))


def charts(all_bars: list[Bars]) -> Drawing:
    """Draw a panel per chart, with the floor in grey."""
    heights = [TITLE_INCHES + (BAR_INCHES + GAP_INCHES) * len(each.bars) for each in all_bars]
    figure, axes = plt.subplots(
        len(heights), 1, figsize=(9, sum(heights) + 0.4), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, each in zip(axes[:, 0], all_bars, strict=True):
        for at, (name, value) in enumerate(each.bars.items()):
            axis.barh(at, value, height=0.7, color=FLOOR if name in each.floors else ONE)
            beside(axis, at, value, quantity(value, each.unit))
        unit = "per second" if each.unit == "1/s" else "ratio" if each.unit == "x" else each.unit
        label = f"{unit} ({each.better} is better{'; grey: the floor' if each.floors else ''})"
        axis.set_title(each.title)
        scale(axis, list(each.bars.values()), list(enumerate(each.bars)), label)
    return figure


def bars(shown: list[Figure]) -> Drawing:
    """Draw a panel per unit, a row per figure, and a mark where its bound is."""
    units = {unit: [each for each in shown if each.unit == unit] for unit in dict.fromkeys(each.unit for each in shown)}
    heights = [0.6 + (BAR_INCHES + GAP_INCHES) * len(of) for of in units.values()]
    figure, axes = plt.subplots(
        len(units), 1, figsize=(9, sum(heights) + 0.4), squeeze=False, gridspec_kw={"height_ratios": heights}
    )
    for axis, (unit, of) in zip(axes[:, 0], units.items(), strict=True):
        for at, each in enumerate(of):
            axis.barh(at, each.value, height=0.7, color=ONE)
            end, text = each.value, quantity(each.value, unit)
            if each.bar is not None:
                axis.plot([each.bar] * 2, [at - 0.45, at + 0.45], color=BOUND, linewidth=2, solid_capstyle="butt")
                end = max(end, each.bar)
                text += f"  ({'at most' if each.better == 'lower' else 'at least'} {each.bar:,g})"
            beside(axis, at, end, text)
        ends = [value for each in of for value in (each.value, each.bar) if value is not None]
        scale(axis, ends, [(at, each.key) for at, each in enumerate(of)], "ratio" if unit == "x" else unit)
    return figure


def beside(axis: Axes, at: float, end: float, text: str) -> None:
    """Write a number after the end of a bar, where nothing is drawn."""
    axis.annotate(text, (max(end, 0), at), (5, 0), textcoords="offset points", va="center", fontsize=8)


def scale(axis: Axes, values: list[float], names: list[tuple[int, str]], label: str) -> None:
    """Set the axes of horizontal bars."""
    positive = [value for value in values if value > 0]
    is_wide = len(positive) == len(values) and max(positive) > WIDE * min(positive)
    if is_wide:
        axis.set_xscale("log")
        low = 10.0 ** int(f"{min(positive) / 2:e}".partition("e")[2])
        axis.set_xlim(low, max(positive) * (max(positive) / low) ** (ROOM - 1))
    else:
        axis.set_xlim(min(0.0, *values) * ROOM, max(positive, default=1.0) * ROOM)
    plain(axis.xaxis, logarithmic=is_wide)
    axis.set_yticks([at for at, _ in names], [name for _, name in names])
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.set_xlabel(label)


def lines(panels: list[Curves]) -> Drawing:
    """Draw panels below each other, with a curve per label in the same colour everywhere."""
    labels = dict.fromkeys(line.label for panel in panels for line in panel.lines)
    colours = dict(zip(labels, cycle(COLOURS), strict=False))
    figure, axes = plt.subplots(len(panels), 1, figsize=(9, 3.2 * len(panels) + 0.4), squeeze=False)
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        few = max((len(line.xs) for line in panel.lines), default=0) <= 12
        for line in panel.lines:
            axis.plot(line.xs, line.ys, color=colours[line.label], marker="o" if few else None, ms=4, label=line.label)
        ys = [y for line in panel.lines for y in line.ys if y > 0]
        is_wide = panel.logarithmic and bool(ys) and max(ys) > WIDE * min(ys)
        if panel.logarithmic:
            axis.set_xscale("log")
        if is_wide:
            axis.set_yscale("log")
        else:
            axis.set_ylim(bottom=0)
        plain(axis.xaxis, logarithmic=panel.logarithmic)
        plain(axis.yaxis, logarithmic=is_wide)
        axis.set_title(panel.title)
        axis.set_xlabel(panel.x)
        axis.set_ylabel(panel.y)
        axis.legend(loc="upper left", bbox_to_anchor=(1.01, 1))
    return figure
