"""The memory that the settings allow, and the warning if there is less."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from coregw.gateway.limits import machine
from coregw.gateway.limits.machine import allowed_bytes, available_bytes, check_memory, fit_defaults
from coregw.gateway.settings import MIB, Settings
from coregw.gateway.workers import worker_settings
from tables import rows

GIB = 1 << 30


def test_the_settings_allow_the_sum_of_their_budgets() -> None:
    print(f"the default settings allow {allowed_bytes(Settings()) / MIB:.0f} MiB")
    small = Settings(cache_bytes=MIB, long_queries=1)
    assert allowed_bytes(Settings(cache_bytes=64 * MIB, long_queries=1)) == allowed_bytes(small) + 63 * MIB * 9 // 8
    assert allowed_bytes(Settings(cache_bytes=MIB, long_queries=3)) == allowed_bytes(small) + 2 * 3 * 25 * MIB
    assert allowed_bytes(Settings(worker_threads=9)) == allowed_bytes(Settings(worker_threads=4)) + 5 * 2 * MIB
    two = Settings(workers=2, worker_threads=9)
    assert allowed_bytes(two) == allowed_bytes(Settings(workers=2, worker_threads=4)) + 2 * 5 * 2 * MIB


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/a/b\n", {"a/memory.max": f"{GIB}\n", "a/b/memory.max": "max\n"}, GIB),
        ("0::/a/b\n", {"a/memory.max": f"{GIB}\n", "a/b/memory.max": f"{GIB // 2}\n"}, GIB // 2),
        ("0::/\n", {"memory.max": f"{GIB}\n"}, GIB),
        ("0::/../b\n", {"memory.max": f"{GIB}\n"}, GIB),
        ("3:cpu:/a\n2:memory,x:/a\n", {"memory/a/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
        ("0::/a\n", {"a/memory.max": "max\n", "a/memory.high": f"{GIB}\n"}, GIB),
        ("0::/a\n", {}, None),
        ("malformed\n", {}, None),
        ("", {}, None),
    ],
)
def test_the_least_limit_of_a_control_group_counts(
    tmp_path: Path, groups: str, files: dict[str, str], limit: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text(groups)
    machines = available_bytes(tmp_path / "missing", tmp_path)
    assert machines > GIB
    assert available_bytes(tmp_path / "own", tmp_path) == (limit or machines)


def test_a_limit_on_the_addresses_of_each_process_counts(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    one = available_bytes(missing, missing, addresses=GIB)
    assert GIB // 2 < one < GIB
    assert available_bytes(missing, missing, addresses=GIB, workers=3) == 3 * one
    assert available_bytes(missing, missing, addresses=1) == 0


def _changed(settings: Settings) -> set[str]:
    return {name for name in Settings.__dataclass_fields__ if getattr(settings, name) != getattr(Settings(), name)}


def test_defaults_stay_where_there_is_enough_memory() -> None:
    assert fit_defaults(Settings(), (), allowed_bytes(Settings()) * 8 // 7 + 1) == Settings()
    assert fit_defaults(Settings(), (), allowed_bytes(Settings())) != Settings()


@rows("workers", [1, 2, 5])
@rows("available", [512, 700, 1024, 2048, 3972])
def test_defaults_are_lowered_in_proportion_to_what_there_is(available: int, workers: int) -> None:
    fitted = fit_defaults(Settings(workers=workers), ("workers",), available * MIB)
    least = allowed_bytes(fit_defaults(Settings(workers=workers), ("workers",), 0))
    assert least <= allowed_bytes(fitted) <= max(least, available * MIB * 7 // 8)
    if allowed_bytes(fitted) > least:
        assert allowed_bytes(fitted) > available * MIB * 7 // 8 - 160 * MIB  # a long query takes 75 MiB
        assert abs(fitted.change_bytes - fitted.buffered_bytes) <= MIB or fitted.buffered_bytes <= 16 * MIB * workers
    worker_settings(fitted)


def test_the_least_defaults_fit_into_a_small_container() -> None:
    fitted = fit_defaults(Settings(), (), 0)
    print(f"the least defaults allow {allowed_bytes(fitted) / MIB:.0f} MiB")
    assert allowed_bytes(fitted) < 400 * MIB
    assert fitted == fit_defaults(Settings(), (), 16 * MIB)
    assert _changed(fitted) == {
        *("cache_bytes", "store_cache_bytes", "change_bytes", "buffered_bytes", "unsent_bytes", "long_queries"),
        *("roots_body_bytes", "mutation_body_bytes", "verify_body_bytes"),
    }


def test_bodies_are_no_larger_than_the_memory_for_them() -> None:
    fitted = fit_defaults(Settings(workers=2), ("workers",), GIB)
    share = worker_settings(fitted).buffered_bytes
    assert share - MIB < fitted.roots_body_bytes <= share
    assert max(fitted.mutation_body_bytes, fitted.verify_body_bytes) <= share


def test_what_is_set_stays_and_the_rest_makes_room_for_it() -> None:
    alone = fit_defaults(Settings(), (), GIB)
    given = {"cache_bytes": 256 * MIB}  # as the default, but chosen
    fitted = fit_defaults(Settings(**given), given, GIB)
    assert fitted.cache_bytes == 256 * MIB
    assert fitted.change_bytes < alone.change_bytes
    assert allowed_bytes(fitted) <= GIB * 7 // 8
    body = {"roots_body_bytes": 200 * MIB, "workers": 2}
    fitted = fit_defaults(Settings(**body), body, GIB)
    assert (fitted.roots_body_bytes, fitted.buffered_bytes) == (200 * MIB, 400 * MIB)
    for name in ("resolve_batch_body_bytes", "json_body_bytes"):  # held in memory, with small defaults
        body = {name: 100 * MIB}
        assert fit_defaults(Settings(**body), body, 512 * MIB).buffered_bytes == 100 * MIB


def test_more_than_there_is_that_was_set_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda **_: GIB)
    given = {"change_bytes": GIB}
    fitted = fit_defaults(Settings(**given), given)
    assert fitted.change_bytes == GIB
    with caplog.at_level(logging.WARNING):
        check_memory(fitted)
    assert len(caplog.messages) == 1
    assert "lower COREGW_CHANGE_BYTES (1024 MiB count twice)" in caplog.messages[0]


def test_a_gateway_that_may_use_more_memory_than_there_is_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda **_: allowed_bytes(Settings()) * 8 // 7 + 1)
    with caplog.at_level(logging.WARNING):
        check_memory(Settings())
        assert not caplog.messages
        check_memory(Settings(cache_bytes=Settings().cache_bytes + MIB))
    assert len(caplog.messages) == 1
    assert "lower COREGW_CHANGE_BYTES (1024 MiB count twice), COREGW_BUFFERED_BYTES (1024 MiB)" in caplog.messages[0]
