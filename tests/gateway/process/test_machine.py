"""The memory that the settings allow, and the warning if there is less."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from coregw.gateway.limits import machine
from coregw.gateway.limits.machine import allowed_bytes, available_bytes, check_memory
from coregw.gateway.settings import MIB, Settings

GIB = 1 << 30


def test_the_settings_allow_the_sum_of_their_budgets() -> None:
    print(f"the default settings allow {allowed_bytes(Settings()) / MIB:.0f} MiB")
    small = Settings(cache_bytes=MIB, long_queries=1)
    assert allowed_bytes(Settings(cache_bytes=64 * MIB, long_queries=1)) == allowed_bytes(small) + 63 * MIB
    assert allowed_bytes(Settings(cache_bytes=MIB, long_queries=3)) == allowed_bytes(small) + 2 * 3 * 25 * MIB


@pytest.mark.parametrize(
    ("groups", "files", "limit"),
    [
        ("0::/a/b\n", {"a/memory.max": f"{GIB}\n", "a/b/memory.max": "max\n"}, GIB),
        ("0::/a/b\n", {"a/memory.max": f"{GIB}\n", "a/b/memory.max": f"{GIB // 2}\n"}, GIB // 2),
        ("0::/\n", {"memory.max": f"{GIB}\n"}, GIB),
        ("0::/../b\n", {"memory.max": f"{GIB}\n"}, GIB),
        ("3:cpu:/a\n2:memory,x:/a\n", {"memory/a/memory.limit_in_bytes": f"{GIB}\n"}, GIB),
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


def test_a_gateway_that_may_use_more_memory_than_there_is_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: allowed_bytes(Settings()))
    with caplog.at_level(logging.WARNING):
        check_memory(Settings())
        assert not caplog.messages
        check_memory(Settings(cache_bytes=Settings().cache_bytes + MIB))
    assert len(caplog.messages) == 1
    assert "lower COREGW_CHANGE_BYTES (1024 MiB count twice), COREGW_BUFFERED_BYTES (1024 MiB)" in caplog.messages[0]
