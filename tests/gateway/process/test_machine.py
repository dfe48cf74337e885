"""Limits: what they are derived from, that their sum fits, and what is said if there is too little."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import logging
import re
from itertools import pairwise
from pathlib import Path

import pytest

import coregw.gateway
from coregw.errors import InvalidInput, Unavailable
from coregw.gateway.limits import machine
from coregw.gateway.limits.machine import Limits, available_bytes, least_bytes, memory_of, warn_of_memory
from coregw.gateway.settings import GIB, MIB, Settings
from tables import rows

ANSWER = 25 * MIB
"""The longest answer."""


def taken(limits: Limits) -> int:
    """What a gateway takes at most, as docs/operations.md adds it up."""
    return (
        limits.cache_bytes
        + limits.store_cache_bytes
        + limits.payload_cache_bytes
        + limits.buffered_bytes
        + limits.hot_body_bytes
        + 2 * limits.change_bytes
        + max(3 * limits.unsent_bytes // 2, 2 * ANSWER)
        + (3 + 2) * ANSWER * limits.long_queries  # in the application, and in the front
        + 2 * MIB * (limits.worker_threads + 1)
        + (70 + 80 + 50 + 8) * MIB
    )


@rows("connections", [1, 4096, 100_000])
@rows("times", [1, 1.01, 1.5, 3, 20, 100])
def test_all_budgets_together_are_no_more_than_the_memory(connections: int, times: float) -> None:
    memory = int(least_bytes(Settings(connections=connections)) * times)
    limits = Limits.of(Settings(connections=connections, memory=memory))
    uncounted = max(memory // 8, connections * 16 << 10)
    assert taken(limits) <= memory - uncounted
    if times < 20:  # beyond it, more long queries would only take the processors from each other
        assert taken(limits) > memory - uncounted - 140 * MIB  # a long query takes 125 MiB


def test_the_least_memory_suffices_and_one_mebibyte_less_is_refused_with_the_least() -> None:
    least = least_bytes(Settings())
    limits = Limits.of(Settings(memory=least))
    assert limits.long_queries == 1
    assert limits.roots_body_bytes == limits.buffered_bytes == 16 * MIB
    assert limits.verify_body_bytes == limits.hot_body_bytes == limits.resolve_batch_body_bytes == 8 * MIB
    with pytest.raises(InvalidInput, match=f"setting memory is .*expected at least {-(-least // MIB)}MiB"):
        Limits.of(Settings(memory=least - MIB))
    with pytest.raises(Unavailable, match=f"needs at least {-(-least // MIB)}MiB for 4096 connections"):
        Limits.of(Settings(), least - MIB)


def test_more_connections_need_more_memory() -> None:
    assert least_bytes(Settings()) < 540 * MIB
    assert least_bytes(Settings(connections=100_000)) > least_bytes(Settings()) + GIB


@rows(
    ("available", "memory"),
    [(64 * GIB, 16 * GIB), (4 * GIB, GIB), (GIB, least_bytes(Settings())), (600 * MIB, least_bytes(Settings()))],
)
def test_a_quarter_of_what_there_is_is_the_default_and_at_least_what_is_needed(available: int, memory: int) -> None:
    assert memory_of(Settings(), available) == memory
    assert Limits.of(Settings(), available) == Limits.of(Settings(memory=memory))


def test_budgets_grow_with_the_memory_and_bodies_are_no_larger_than_the_memory_for_them() -> None:
    growing = [Limits.of(Settings(memory=size * MIB)) for size in (540, 700, 1024, 2048, 8192, 65536)]
    for small, large in pairwise(growing):
        for name in ("cache_bytes", "store_cache_bytes", "payload_cache_bytes", "change_bytes", "unsent_bytes"):
            assert getattr(small, name) < getattr(large, name)
        assert small.long_queries <= large.long_queries
    for limits in growing:
        assert max(limits.roots_body_bytes, limits.mutation_body_bytes) <= limits.buffered_bytes
        assert max(limits.verify_body_bytes, limits.resolve_batch_body_bytes) <= limits.hot_body_bytes
    assert growing[-1].roots_body_bytes == 256 * MIB
    assert growing[-1].long_queries == 16


def test_one_address_may_use_half_of_a_limit() -> None:
    limits = Limits.of(Settings(memory=GIB))
    assert [limits.share_of_address(each) for each in (1, 2, 5, 4096)] == [1, 1, 2, 2048]


def test_every_limit_says_where_it_comes_from_and_is_read_somewhere() -> None:
    names = {each.name for each in dataclasses.fields(Limits)}
    (body,) = (each.body for each in ast.parse(inspect.getsource(Limits)).body if isinstance(each, ast.ClassDef))
    described = {}
    for each, after in pairwise(body):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and isinstance(after, ast.Expr):
            described[each.target.id] = ast.literal_eval(after.value)
    assert described.keys() == names
    sources = "".join(path.read_text("utf-8") for path in Path(coregw.gateway.__file__).parent.rglob("*.py"))
    unread = {name for name in names if re.search(rf"\blimits\.{name}\b", sources) is None}
    assert unread == set()


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


def test_a_limit_on_the_addresses_of_the_process_counts(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert GIB // 2 < available_bytes(missing, missing, addresses=GIB) < GIB
    assert available_bytes(missing, missing, addresses=1) == 0


def test_more_memory_than_there_is_is_warned_about(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(machine, "available_bytes", lambda: GIB)
    with caplog.at_level(logging.WARNING):
        warn_of_memory(Settings())
        warn_of_memory(Settings(memory=GIB))
        assert not caplog.messages
        warn_of_memory(Settings(memory=2 * GIB))
    assert caplog.messages == [
        "COREGW_MEMORY allows 2048 MiB, and the process has 1024 MiB: lower it, or give the process more"
    ]
