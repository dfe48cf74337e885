"""Reports of benches: tables, records, and the generated page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import check
import report


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> report.Report:
    """A quick run that records in a temporary folder and draws nothing."""
    monkeypatch.setattr(report, "RECORDED", tmp_path)
    monkeypatch.setattr(report, "README", tmp_path / "README-of-all.md")
    report.README.write_text(f"before\n{report.HEADLINES_BEGIN}\nold\n{report.HEADLINES_END}\nafter\n")
    return new_run("--quick")


def new_run(*arguments: str) -> report.Report:
    return report.Report("sample", "A sample", report.parser("A sample.").parse_args([*arguments, "--write"]))


def test_quick_run_is_recorded_next_to_the_full_run(run: report.Report, tmp_path: Path) -> None:
    record = tmp_path / "sample.json"
    record.write_text(json.dumps({"runs": {"full": {"figures": {"x": 1}}}}))
    run.add("ratio", 1.23456, better="lower", bar=2, guarded=True)
    run.finish()
    runs = json.loads(record.read_text())["runs"]
    assert runs["full"] == {"figures": {"x": 1}}
    assert runs["quick"]["figures"]["ratio"] == {
        "value": 1.235, "unit": "x", "better": "lower", "bar": 2, "guarded": True,
    }  # fmt: skip
    assert "cpu" in runs["quick"]["context"]


def test_check_reads_the_recorded_quick_run(run: report.Report, tmp_path: Path) -> None:
    run.add("ratio", 3, series="a peer", better="higher", guarded=True)
    run.finish()
    recorded = check.read(tmp_path, Path("benches/bench_sample.py"))
    assert [each.key for each in check.regressions(recorded.figures, {})] == ["a peer: ratio"]


def test_check_reads_skipped_series(run: report.Report, tmp_path: Path) -> None:
    run.skip("a peer", "it cannot be built")
    run.finish()
    assert check.read(tmp_path, Path("benches/bench_sample.py")).skipped == {"a peer": "it cannot be built"}


def test_unrecorded_figures_are_shown_only(
    run: report.Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.add("lookup", 12.5, "µs", recorded=False)
    run.finish()
    assert json.loads((tmp_path / "sample.json").read_text())["runs"]["quick"]["figures"] == {}
    assert "12.5 µs" in " ".join(capsys.readouterr().out.split()).replace(" │ ", " ")


@pytest.mark.parametrize(("better", "value"), [("lower", 2.1), ("higher", 1.9)])
def test_table_marks_missed_bars(
    run: report.Report, capsys: pytest.CaptureFixture[str], better: report.Better, value: float
) -> None:
    run.add("met", 2.0, better=better, bar=2)
    assert "MISSED" not in finished(run, capsys)
    run.add("missed", value, better=better, bar=2)
    assert "2 MISSED" in finished(run, capsys)


def finished(run: report.Report, capsys: pytest.CaptureFixture[str]) -> str:
    run.finish()
    return capsys.readouterr().out


def test_bar_without_direction_is_refused(run: report.Report) -> None:
    with pytest.raises(ValueError, match="'lower' or better='higher'"):
        run.add("ratio", 1, bar=2)


def test_duplicate_figure_is_refused(run: report.Report) -> None:
    run.add("ratio", 1)
    run.add("ratio", 1, series="a peer")
    with pytest.raises(ValueError, match="'ratio'"):
        run.add("ratio", 2)


def test_gallery_shows_full_runs_with_their_bars(run: report.Report, tmp_path: Path) -> None:
    run.add("ratio", 1.5, series="a peer", better="higher", bar=2)
    run.add("time", 2, "ms", better="lower", bar=2)
    run.add("other", 3)
    run.finish()
    assert "sample" not in (tmp_path / "README.md").read_text(), "quick runs are not shown"
    record = json.loads((tmp_path / "sample.json").read_text())
    record["runs"]["full"] = record["runs"].pop("quick")
    (tmp_path / "sample.json").write_text(json.dumps(record))
    (tmp_path / "sample.svg").write_text("<svg/>")
    page = report.gallery(tmp_path)
    assert re.search(
        r"## A sample\n\nA sample\. On .+, \d+ cores, \d{4}-\d\d-\d\d\.\n\n!\[A sample\]\(sample\.svg\)", page
    )
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert rows == ["| a peer: ratio | 1.5 | ≥ 2, **missed** |", "| time | 2 ms | ≤ 2 |"]


def test_rows_are_printed_and_shown_on_the_page(
    run: report.Report, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run.rows(["store", "changes/s"], [["one", "12"], ["another", "3.4"]])
    assert re.search(r"another +│ 3\.4 ", finished(run, capsys))
    record = json.loads((tmp_path / "sample.json").read_text())
    record["runs"]["full"] = record["runs"].pop("quick")
    (tmp_path / "sample.json").write_text(json.dumps(record))
    (tmp_path / "sample.svg").write_text("<svg/>")
    table = "| store | changes/s |\n|---|---|\n| one | 12 |\n| another | 3.4 |\n"
    assert report.gallery(tmp_path).endswith(f"\n\n{table}")


def test_recorded_gallery_is_up_to_date() -> None:
    assert (report.RECORDED / "README.md").read_text("utf-8") == report.gallery(report.RECORDED)


def test_readme_has_the_headlines_of_full_runs(run: report.Report, tmp_path: Path) -> None:
    run.headline("lookups", 12345.6, "1/s", "a constant", 23456.7)
    run.headline("verify", 1.234, "µs")
    run.finish()
    assert report.headlines(tmp_path) == "No full run is recorded yet.", "quick runs are not shown"
    record = json.loads((tmp_path / "sample.json").read_text())
    record["runs"]["full"] = record["runs"]["quick"]
    record["runs"]["full"]["context"] |= {"cpu": "A CPU", "cores": "2", "date": "2026-01-02"}
    (tmp_path / "sample.json").write_text(json.dumps(record))
    run.finish()
    lines = report.README.read_text().splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    assert lines[4:6] == [
        "| lookups | **12,350/s** | a constant: 23,457/s | A CPU, 2 cores, 2026-01-02 |",
        "| verify | **1.23 µs** |  | A CPU, 2 cores, 2026-01-02 |",
    ]


def test_readme_without_markers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not in the README"):
        report.with_headlines("no table", tmp_path)


def test_readme_has_what_is_recorded() -> None:
    text = report.README.read_text("utf-8")
    assert text == report.with_headlines(text, report.RECORDED)
