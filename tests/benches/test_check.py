"""Which changes of figures `make bench ARGS=check` reports as regressions, and which it tolerates as noise."""

from __future__ import annotations

from typing import Any, Literal

import check


def figures(value: float, better: Literal["lower", "higher"] = "lower", *, guarded: bool = True) -> dict[str, Any]:
    return {"the ratio": {"value": value, "better": better, "guarded": guarded}}


def test_ratio_may_be_at_most_fifteen_percent_worse() -> None:
    assert check.regressions(figures(1.0), figures(1.149)) == []
    assert check.regressions(figures(1.0), figures(1.16)) == [check.Regression("the ratio", 1.0, 1.16)]


def test_lower_value_is_a_regression_where_higher_is_better() -> None:
    assert check.regressions(figures(10.0, "higher"), figures(9.0, "higher")) == []
    assert check.regressions(figures(10.0, "higher"), figures(8.6, "higher")) == [
        check.Regression("the ratio", 10.0, 8.6)
    ]


def test_improvement_of_any_size_is_no_regression() -> None:
    assert check.regressions(figures(1.0), figures(0.01)) == []
    assert check.regressions(figures(1.0, "higher"), figures(100.0, "higher")) == []


def test_drop_to_zero_is_a_regression_where_higher_is_better() -> None:
    assert check.regressions(figures(10.0, "higher"), figures(0.0, "higher")) == [
        check.Regression("the ratio", 10.0, 0.0)
    ]


def test_missing_figure_is_a_regression() -> None:
    assert check.regressions(figures(1.0), {}) == [check.Regression("the ratio", 1.0, None)]
    assert check.regressions(figures(1.0, "higher"), {}) == [check.Regression("the ratio", 1.0, None)]


def test_unguarded_figures_may_change() -> None:
    assert check.regressions(figures(1.0, guarded=False), figures(9.0)) == []
    assert check.regressions(figures(1.0, guarded=False), {}) == []


def test_regression_is_measured_again_and_the_best_of_three_runs_counts() -> None:
    runs = iter((1.5, 1.1, 1.4))
    assert check.check(figures(1.0), lambda: check.Run(figures(next(runs)), {})) == []
    assert list(runs) == [1.4], "the second run was good, so there is no third"


def test_regression_in_three_runs_is_reported_with_the_best_value() -> None:
    runs = iter((1.5, 1.3, 1.4))
    found = check.check(figures(1.0), lambda: check.Run(figures(next(runs)), {}))
    assert [str(each) for each in found] == ["the ratio: 1.3, recorded as 1"]


def test_skipped_series_are_ignored_and_the_others_are_checked() -> None:
    recorded = {f"{peer}: prove": figures(2.0)["the ratio"] for peer in ("one", "other")}
    found = check.check(recorded, lambda: check.Run({}, {"one": "it cannot be built"}))
    assert [each.key for each in found] == ["other: prove"]
