"""The column of progress bars with the rate, the time left, and pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.progress import Progress

from coregw.cli.progress import AmountColumn, PaceColumn

if TYPE_CHECKING:
    import pytest

MIB = 1 << 20


def test_a_bar_shows_rate_and_time_left_and_how_long_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    column = PaceColumn()
    bar = Progress(column, get_time=lambda: now, disable=True)
    number = bar.add_task("getting", total=1000 * MIB)
    task = bar.tasks[0]
    assert column.render(task).plain == ""
    for _ in range(5):
        now += 1
        bar.update(number, advance=2 * MIB)
    assert column.render(task).plain == "2.0 MiB/s, 8 min 15 s left"
    now += 2.5
    assert column.render(task).plain == "2.0 MiB/s, 8 min 15 s left"
    now += 38
    assert column.render(task).plain == "waiting for 40 s"
    for _ in range(2):
        now += 1
        bar.update(number, advance=4 * MIB)
    assert column.render(task).plain == "4.0 MiB/s, 4 min 06 s left"


def test_an_unknown_total_is_no_question_mark() -> None:
    column = AmountColumn()
    bar = Progress(column, disable=True)
    number = bar.add_task("exporting", total=None, completed=134 * MIB)
    assert column.render(bar.tasks[0]).plain == "134.0 MiB"
    bar.update(number, total=200 * MIB)
    assert column.render(bar.tasks[0]).plain == "134.0/200.0 MiB"


def test_long_times_are_in_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    column = PaceColumn()
    bar = Progress(column, get_time=lambda: now, disable=True)
    number = bar.add_task("getting", total=7560 * 1024 + 2048)
    for _ in range(2):
        now += 1
        bar.update(number, advance=1024)
    assert column.render(bar.tasks[0]).plain == "1.0 KiB/s, 2 h 06 min left"
