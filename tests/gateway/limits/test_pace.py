"""The pace of a transfer: a minimum rate after a grace period, and a longest pause."""

from __future__ import annotations

import pytest

from coregw.gateway.limits.pace import Pace, Rate

RATE = Rate(bytes_per_second=1000, grace_seconds=10, pause_seconds=20)


def test_without_progress_it_is_overdue_after_the_grace_period() -> None:
    assert Pace(RATE, 5).deadline == 15


def test_a_byte_now_and_then_gains_nothing() -> None:
    pace = Pace(RATE, 0)
    for second in range(1, 10):
        pace.move(1, second)
    assert pace.deadline == pytest.approx(10.009)
    assert pace.since == 0


def test_at_the_minimum_rate_it_is_never_overdue() -> None:
    pace = Pace(RATE, 0)
    for second in range(1, 1000):
        pace.move(1000, second)
        assert pace.deadline > second + 1
        assert pace.since == second


def test_after_much_progress_a_pause_may_last_long_but_not_longer() -> None:
    pace = Pace(RATE, 0)
    pace.move(1 << 30, 1)
    assert pace.deadline == 21
    pace.move(1, 20)
    assert pace.deadline == pytest.approx(21.001)
    assert pace.since == 1


def test_it_is_slow_until_what_it_missed_has_moved() -> None:
    pace = Pace(RATE, 0)
    pace.move(1000, 5)
    assert pace.since == 0
    pace.move(4000, 5)
    assert pace.since == 5


def test_time_that_the_gateway_needed_does_not_count() -> None:
    pace = Pace(RATE, 0)
    pace.restart(100)
    assert (pace.deadline, pace.since) == (110, 100)


def test_without_a_rate_any_progress_counts() -> None:
    pace = Pace(Rate(0, 10, 20), 0)
    pace.move(1, 9)
    assert (pace.deadline, pace.since) == (29, 9)


def test_a_short_longest_pause_bounds_the_grace_period() -> None:
    assert Pace(Rate(1000, 10, 2), 0).deadline == 2
