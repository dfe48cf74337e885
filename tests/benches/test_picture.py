"""Pictures of benches: what is drawn, and that its numbers are readable."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import report

picture = pytest.importorskip("picture", reason="matplotlib is not installed")


@pytest.fixture
def run() -> report.Report:
    return report.Report("sample", "A sample", report.parser("A sample.").parse_args([]))


def texts(run: report.Report, folder: Path) -> list[str]:
    run.draw(folder / "sample.svg")
    return re.findall(r"<text [^>]*>([^<]*)</text>", (folder / "sample.svg").read_text())


def test_ticks_are_plain_numbers(run: report.Report, tmp_path: Path) -> None:
    for low, high in ((0.9, 1.1), (0.02, 40.0), (1.0, 3e5)):
        run.panel(f"{low}", "keys", "ratio", logarithmic=True)
        run.line(f"{low}", "one", [1e3, 1e5, 1e6], [low, (low + high) / 2, high])
    drawn = texts(run, tmp_path)
    assert {"1,000", "100,000", "1,000,000", "0.02", "10"} <= set(drawn)
    assert not [text for text in drawn if re.search(r"[\u00d7$^]", text)]


def test_a_chart_names_bars_values_and_the_floor(run: report.Report, tmp_path: Path) -> None:
    run.chart("Requests", "1/s", {"bare": 20000.0, "gateway": 15000.0}, better="higher", floors={"bare"})
    drawn = texts(run, tmp_path)
    assert {"A sample", "Requests", "bare", "gateway", "20,000/s", "15,000/s"} <= set(drawn)
    assert any("grey: the floor" in text for text in drawn)


def test_figures_with_bars_are_drawn_with_their_bounds(run: report.Report, tmp_path: Path) -> None:
    run.add("size", 13.2, "µs", better="lower", bar=15)
    run.add("gain", 12.9, better="higher", bar=10)
    run.add("negative", -12.5, "ms", better="lower", bar=60)
    run.add("other", 3)
    drawn = texts(run, tmp_path)
    assert {"13.2 µs  (at most 15)", "12.9  (at least 10)", "-12.5 ms  (at most 60)"} <= set(drawn)
    assert "other" not in drawn


def test_numbers_do_not_overlap_bars_or_bounds(run: report.Report) -> None:
    run.add("far below", 0.1, better="lower", bar=4)
    run.add("above", 5, better="lower", bar=4)
    figure = picture.bars(list(run.figures.values()))
    figure.draw_without_rendering()
    axis = figure.axes[0]
    bounds = [line.get_window_extent().x1 for line in axis.lines]
    ends = [patch.get_window_extent().x1 for patch in axis.patches]
    for text, *drawn in zip(axis.texts, bounds, ends, strict=True):
        assert text.get_window_extent().x0 > max(drawn)
        assert text.get_window_extent().x1 < figure.bbox.x1


@pytest.mark.parametrize(
    ("tick", "text"),
    [(0.9, "0.9"), (5 * 0.6, "3"), (0.6 + 0.6 + 0.6 + 0.6 + 0.6, "3"), (20, "20"), (1e6, "1,000,000"), (0, "0")],
)
def test_a_tick_is_a_plain_number(tick: float, text: str) -> None:
    assert picture.number(tick) == text
