"""The faults of ``make test-servers ARGS=cluster`` in a short form: one of each kind, always with the same seed."""

from __future__ import annotations

from chaos.report import Report
from cluster import faults


def assert_ok(report: Report) -> None:
    assert report.is_ok, "\n".join([report.line(), *report.examples])


def test_a_cluster_that_loses_any_of_its_parts_loses_nothing_acknowledged() -> None:
    assert_ok(faults.run(1, len(faults.FAULTS), seconds=1.0))


def test_standbys_that_confirm_nothing_lose_acknowledged_writes() -> None:
    assert_ok(faults.run_control(1))
