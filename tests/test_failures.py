"""Failures that repeat are logged when they begin and when they end."""

from __future__ import annotations

import logging

import pytest

from coregw import telemetry
from coregw.telemetry import RepeatedFailure

LOGGER = logging.getLogger("coregw.tests.failures")


@pytest.mark.parametrize("level", [logging.ERROR, logging.WARNING])
def test_a_failure_is_logged_once_and_so_is_its_end(
    level: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(telemetry.time, "monotonic", lambda: now)
    failure = RepeatedFailure(LOGGER, "nothing can be kept", "what is read is kept again", level)
    with caplog.at_level(logging.INFO):
        failure.ends()
        assert not caplog.messages
        for number in range(100):
            failure.occurs(f"reason {number}")
            now += 10
        failure.ends()
        failure.ends()
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (level, "nothing can be kept: reason 0"),
        (logging.WARNING, "what is read is kept again after 1000.0 s"),
    ]


def test_a_failure_that_comes_and_goes_begins_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(telemetry.time, "monotonic", lambda: now)
    failure = RepeatedFailure(LOGGER, "away", "back")
    with caplog.at_level(logging.INFO):
        for _ in range(240):  # of half a second each
            failure.occurs("no answer")
            now += 0.25
            failure.ends()
            now += 0.25
        assert len(caplog.messages) == 2 * 2
        failure.occurs("no answer")
        now += 61
        assert len(caplog.messages) == 2 * 2 + 1
        failure.occurs("no answer")  # the same one still
        failure.ends()
    assert caplog.messages[-1] == "back after 61.0 s"


def test_each_occurrence_is_logged_for_debugging(caplog: pytest.LogCaptureFixture) -> None:
    failure = RepeatedFailure(LOGGER, "away", "back")
    with caplog.at_level(logging.DEBUG):
        for number in range(3):
            failure.occurs(number)
    assert caplog.messages == ["away: 0", "away: 1", "away: 2"]
