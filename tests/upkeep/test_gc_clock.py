"""Collections on machines whose clock is wrong when the store is opened."""

from __future__ import annotations

import asyncio
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import coregw.upkeep.pins
from coregw.errors import RootNotFound
from coregw.store.rocksdb import CACHE_BYTES
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import TIME_KEY, Family
from coregw.upkeep.pins import Pins
from upkeep_site import Site, Time, site_on

pytestmark = pytest.mark.anyio

GRACE = 60.0
YEARS = 10 * 365 * 86_400.0


async def is_held(site: Site, root: str) -> bool:
    try:
        await site.resolve(root, "a")
    except RootNotFound:
        return False
    return True


@pytest.mark.parametrize(
    "errors", [(YEARS, 0.0), (-YEARS, 0.0), (0.0, YEARS, 0.0), (0.0, -YEARS, 0.0), (YEARS, -YEARS)]
)
async def test_a_wrong_clock_lets_nothing_be_removed_that_was_stored_just_now(
    tmp_path: Path, errors: tuple[float, ...]
) -> None:
    clock = Time()
    roots: list[str] = []
    payloads: list[str] = []
    for number, clock.error in enumerate(errors):
        async with site_on(tmp_path, clock) as site:
            await site.collect(grace=GRACE)
            payloads.append(await site.put(b"payload %d" % number))
            roots.append(await site.create({"a": payloads[0], "b": payloads[-1]}))
            clock.seconds += 10
            await site.collect(grace=GRACE)
            assert [await is_held(site, root) for root in roots] == [True] * len(roots)
            assert [await site.is_stored(payload) for payload in payloads] == [True] * len(payloads)
    async with site_on(tmp_path, clock) as site:
        clock.seconds += GRACE
        await site.collect(grace=GRACE)
        assert [await is_held(site, root) for root in roots] == [False] * len(roots)
        assert [await site.is_stored(payload) for payload in payloads] == [False] * len(payloads)


async def test_time_in_which_the_store_is_closed_does_not_count(tmp_path: Path) -> None:
    """Nobody could bind a payload meanwhile, and no clock tells that time from an error of the clock."""
    clock = Time()
    async with site_on(tmp_path, clock) as site:
        payload = await site.put(b"payload")
        clock.seconds += GRACE / 2
    clock.seconds += 10 * GRACE
    async with site_on(tmp_path, clock) as site:
        clock.seconds += GRACE / 2 - 1
        await site.collect(grace=GRACE)
        assert await site.is_stored(payload)
        clock.seconds += 2
        await site.collect(grace=GRACE)
        assert not await site.is_stored(payload)


@pytest.mark.slow
async def test_time_counts_although_no_process_closed_the_store(tmp_path: Path) -> None:
    clock = Time()
    here = tmp_path / "0"
    async with site_on(here, clock) as site:
        payload = await site.put(b"payload")
    for number in range(1, 3):
        async with site_on(here, clock) as site:
            clock.seconds += GRACE
            await asyncio.sleep(2.5)  # the committer looks at the clock each second
            here = Path(shutil.copytree(here, tmp_path / str(number)))
    async with site_on(here, clock) as site:
        await site.collect(grace=1.9 * GRACE)
        assert not await site.is_stored(payload)


async def test_what_an_older_version_stored_counts_as_stored_at_the_next_opening(tmp_path: Path) -> None:
    """Versions that took the time from the machine's clock leave a store whose recorded time is of an earlier epoch."""
    clock = Time()
    async with site_on(tmp_path, clock) as site:
        clock.seconds += 100 * GRACE
    async with site_on(tmp_path, clock) as site:
        payload = await site.put(b"payload")
    database = Database(tmp_path, CACHE_BYTES, clock=clock.clock())
    database.write([(Family.META, TIME_KEY, None)])
    database.sync()
    database._release()
    database._unlock()
    clock.error = YEARS
    async with site_on(tmp_path, clock) as site:
        clock.seconds += GRACE - 1
        await site.collect(grace=GRACE)
        assert await site.is_stored(payload)
        clock.seconds += 2
        await site.collect(grace=GRACE)
        assert not await site.is_stored(payload)


async def test_a_wrong_clock_ends_no_pin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Time()

    class Wrong(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:
            return datetime.now(UTC) + timedelta(seconds=clock.error + clock.seconds)

    monkeypatch.setattr(coregw.upkeep.pins, "datetime", Wrong)
    async with site_on(tmp_path, clock) as site:
        root = await site.create({"a": await site.put(b"payload")})
        await Pins(site.store).add(root, "kept", Wrong.now() + timedelta(seconds=10 * GRACE))
        clock.seconds += 2 * GRACE
        clock.error = YEARS
        await site.collect(grace=GRACE)
        assert await is_held(site, root)
        clock.error = 0
        clock.seconds += 7 * GRACE
        await site.collect(grace=GRACE)
        assert await is_held(site, root)
        clock.seconds += 2 * GRACE
        await site.collect(grace=GRACE)
        clock.seconds += 2 * GRACE
        await site.collect(grace=GRACE)
        assert not await is_held(site, root)
