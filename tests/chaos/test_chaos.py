"""The harnesses of ``make chaos`` in a short form: few rounds, always with the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos import backups, damage, hostile, kill, power_cut, recorder, shortage
from chaos.attacks import MIXED_HTTP2
from chaos.report import Report

pytestmark = pytest.mark.slow

needs_recorder = pytest.mark.skipif(recorder.missing() is not None, reason=recorder.missing() or "")


def assert_ok(report: Report) -> None:
    assert report.is_ok, "\n".join([report.line(), *report.examples])


def test_kills_lose_nothing_acknowledged(tmp_path: Path) -> None:
    assert_ok(kill.run(1, 2, tmp_path, seconds=0.5))


@needs_recorder
def test_power_cuts_lose_nothing_acknowledged(tmp_path: Path) -> None:
    assert_ok(power_cut.run(1, 6, tmp_path, seconds=0.4))


@needs_recorder
def test_a_disk_that_ignores_syncs_loses_acknowledged_writes(tmp_path: Path) -> None:
    assert_ok(power_cut.run(1, 2, tmp_path, seconds=0.4, is_control=True))


def test_damage_is_never_a_silent_loss_or_a_wrong_answer(tmp_path: Path) -> None:
    assert_ok(damage.run(1, 3, tmp_path, seconds=0.3, openings=1))


@needs_recorder
def test_writes_resume_after_shortages_of_space_syncs_and_descriptors(tmp_path: Path) -> None:
    assert_ok(shortage.run(1, 3, tmp_path))


def test_honest_clients_are_answered_beside_hostile_ones(tmp_path: Path) -> None:
    assert_ok(hostile.run(1, 3, tmp_path, connections=30, seconds=0.7))


def test_honest_clients_are_answered_beside_hostile_ones_of_http2(tmp_path: Path) -> None:
    assert_ok(hostile.run(1, 1, tmp_path, names=[MIXED_HTTP2], connections=60, seconds=3.0))


def test_killed_backups_and_restores_harm_nothing(tmp_path: Path) -> None:
    assert_ok(backups.run(1, 2, tmp_path))


@needs_recorder
def test_power_cuts_of_a_backup_leave_the_one_before(tmp_path: Path) -> None:
    assert_ok(backups.run_power_cuts(1, 4, tmp_path))
