"""The limit on the rate at which a check reads: of `coregw fsck --rate`, also by a gateway, and of calls on a store."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

import serving
from coregw.client import Client
from coregw.messages.management import Progress
from coregw.store.rocksdb import open_store
from coregw.upkeep import inventory
from coregw.upkeep.check import check_online
from coregw.upkeep.file_check import check_database
from coregw.upkeep.inventory import RateLimiter
from damage_support import fill

RATE = 1 << 20


class Clock:
    """Time that only passes while somebody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(inventory.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(inventory.time, "sleep", self._sleep)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds


def _ignore(progress: Progress) -> None:
    pass


def test_reads_of_any_length_are_limited_to_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    limited = RateLimiter(1000)
    total = 0
    for size in (1, 10_000, 0, 500, *[7] * 1000, 3000):
        limited(size)
        assert clock.now == pytest.approx(total / 1000)  # a read begins when those before it have taken their time
        total += size
    clock.now += 60  # time without reads is not saved up
    since = clock.now
    limited(1000)
    limited(1000)
    assert clock.now == pytest.approx(since + 1)


@pytest.mark.parametrize("is_online", [False, True])
def test_a_check_tells_all_that_it_reads(is_online: bool, tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path, 5, is_killed=False))
    read: list[int] = []

    async def checked() -> int:
        async with await open_store(tmp_path, reserve_bytes=0) as store:
            return (await check_online(store, _ignore, read.append)).bytes

    size = asyncio.run(checked()) if is_online else check_database(tmp_path / "rocksdb", _ignore, read.append).bytes
    assert sum(read) >= size > 1 << 16


@pytest.mark.slow
@pytest.mark.parametrize("is_served", [False, True])
def test_a_check_takes_as_long_as_its_rate_says(is_served: bool, tmp_path: Path) -> None:
    with serving.process(tmp_path) as running, Client(running.url) as client:
        client.put_payload(random.Random(1).randbytes(3 * RATE))
    with serving.process(tmp_path) if is_served else nullcontext():
        began = time.monotonic()
        checked = serving.run("fsck", "--data", tmp_path, "--rate", RATE)
        assert checked.returncode == 0, checked
        assert time.monotonic() - began > 2
