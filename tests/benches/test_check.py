"""What `make bench-check` holds to be a loss, and what to be noise."""

from __future__ import annotations

from typing import Any, Literal

import check


def figures(value: float, better: Literal["lower", "higher"] = "lower", *, guarded: bool = True) -> dict[str, Any]:
    return {"the ratio": {"value": value, "better": better, "guarded": guarded}}


def test_a_ratio_may_get_worse_by_fifteen_percent_and_no_more() -> None:
    assert check.losses(figures(1.0), figures(1.149)) == []
    assert check.losses(figures(1.0), figures(1.16)) == [check.Loss("the ratio", 1.0, 1.16)]


def test_where_higher_is_better_a_fall_is_the_loss() -> None:
    assert check.losses(figures(10.0, "higher"), figures(9.0, "higher")) == []
    assert check.losses(figures(10.0, "higher"), figures(8.6, "higher")) == [check.Loss("the ratio", 10.0, 8.6)]


def test_a_gain_of_any_size_is_no_loss() -> None:
    assert check.losses(figures(1.0), figures(0.01)) == []
    assert check.losses(figures(1.0, "higher"), figures(100.0, "higher")) == []


def test_a_ratio_that_falls_to_nothing_where_higher_is_better_is_lost() -> None:
    assert check.losses(figures(10.0, "higher"), figures(0.0, "higher")) == [check.Loss("the ratio", 10.0, 0.0)]


def test_a_figure_that_is_no_longer_measured_is_lost() -> None:
    assert check.losses(figures(1.0), {}) == [check.Loss("the ratio", 1.0, None)]
    assert check.losses(figures(1.0, "higher"), {}) == [check.Loss("the ratio", 1.0, None)]


def test_what_is_not_guarded_may_change() -> None:
    assert check.losses(figures(1.0, guarded=False), figures(9.0)) == []
    assert check.losses(figures(1.0, guarded=False), {}) == []


def test_a_loss_is_measured_again_and_the_best_of_three_counts() -> None:
    runs = iter((1.5, 1.1, 1.4))
    assert check.check(figures(1.0), lambda: check.Run(figures(next(runs)), {})) == []
    assert list(runs) == [1.4], "the second run was good, so there was no third"


def test_a_loss_in_three_runs_is_a_loss_and_the_best_of_them_is_named() -> None:
    runs = iter((1.5, 1.3, 1.4))
    lost = check.check(figures(1.0), lambda: check.Run(figures(next(runs)), {}))
    assert [str(loss) for loss in lost] == ["the ratio: 1.3, recorded as 1"]


def test_what_a_machine_cannot_measure_is_no_loss_and_the_rest_still_is() -> None:
    recorded = {f"{peer}: prove": figures(2.0)["the ratio"] for peer in ("one", "other")}
    lost = check.check(recorded, lambda: check.Run({}, {"one": "it can't be built"}))
    assert [loss.key for loss in lost] == ["other: prove"]
