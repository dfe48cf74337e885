"""What garbage collection removes and what it keeps, and what it reports."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path

import pytest

import coregw
from coregw.errors import InvalidInput, PayloadNotFound, RecordNotFound, RootNotFound, StoreDamaged, Unavailable
from coregw.messages.management import GarbageCollected, GarbageRoot, Progress
from coregw.store import Stored, Table
from coregw.upkeep import gc
from coregw.upkeep.gc import MARKS_FOLDER, collect_garbage
from coregw.upkeep.pins import Pins
from upkeep_site import Site, Time, site_on

pytestmark = pytest.mark.anyio

A, B, C = (coregw.payload_cid(letter) for letter in (b"a", b"b", b"c"))


def many(count: int, target: str = A) -> dict[str, str]:
    """A map of several pages."""
    return {f"folder/{number:05}": target for number in range(count)}


async def is_held(site: Site, root: str) -> bool:
    return (await site.store.get(Table.ROOTS, [bytes(coregw.Cid(root))])) != [None]


# --- what is removed and what is kept ---------------------------------------------------------------------------------


async def test_old_roots_and_their_pages_are_removed_and_published_ones_stay(site: Site) -> None:
    kept = await site.create(many(2000))
    await site.publish(kept)
    garbage = [await site.change(kept, "folder/00007", B, A), await site.create(many(700, B))]
    site.time.seconds += 100
    result = await site.collect(grace=60)
    assert (result.roots, result.roots_removed) == (3, 2)
    assert 0 < result.pages_removed < result.pages
    assert result.page_bytes_removed > 0
    assert await site.resolve(kept, "folder", "00007") == A
    await site.export(kept)
    for root in garbage:
        assert not await is_held(site, root)
        with pytest.raises(RootNotFound):
            await site.resolve(root, "folder", "00007")
        with pytest.raises(RootNotFound):
            await site.change(root, "folder/00008", B, A)
    again = await site.collect(grace=60)
    assert (again.roots_removed, again.pages_removed, again.payloads_removed) == (0, 0, 0)
    assert again.pages == result.pages - result.pages_removed


async def test_what_is_younger_than_the_grace_period_stays(site: Site) -> None:
    old = await site.create({"a": A})
    site.time.seconds += 50
    young = await site.create({"b": B})
    payload = await site.put(b"young")
    site.time.seconds += 50
    result = await site.collect(grace=60)
    assert (result.roots_removed, result.payloads_removed) == (1, 0)
    assert not await is_held(site, old)
    assert await site.resolve(young, "b") == B
    assert await site.is_stored(payload)


async def test_payloads_stay_as_long_as_a_kept_root_leads_to_them(site: Site) -> None:
    bound, unbound = await site.put(b"bound"), await site.put(b"unbound" * 100_000)
    root = await site.create({"file": bound})
    await site.publish(root)
    site.time.seconds += 100
    result = await site.collect(grace=60)
    assert (result.payloads, result.payloads_removed, result.payload_bytes_removed) == (2, 1, 700_000)
    assert await site.is_stored(bound)
    assert not await site.is_stored(unbound)
    with pytest.raises(PayloadNotFound):
        await site.engine.payloads.find(unbound)
    assert await site.put(b"unbound" * 10)  # stored again from the start


async def test_roots_nested_in_kept_ones_stay_with_all_that_they_lead_to(site: Site) -> None:
    payload = await site.put(b"deep")
    inner = await site.create({"file": payload})
    middle = await site.create({"inner": inner} | many(500))
    outer = await site.create({"middle": middle})
    await site.publish(outer)
    for _ in range(3):
        site.time.seconds += 100
        assert (await site.collect(grace=60)).roots_removed == 0
    assert await site.resolve(outer, "middle", "inner", "file") == payload
    assert await site.is_stored(payload)
    assert await is_held(site, inner)


async def test_as_much_history_of_a_published_name_stays_as_is_configured(site: Site) -> None:
    roots = [await site.create({"a": A, f"{number}": B}) for number in range(5)]
    for root in roots:
        await site.publish(root)
    other = await site.create({"other": A})
    await site.publish(other, "other")
    site.time.seconds += 100
    assert (await site.collect(grace=60)).roots_removed == 0
    site.time.seconds += 100
    assert (await site.collect(grace=60, revisions=2)).roots_removed == 3
    assert [await is_held(site, root) for root in [*roots, other]] == [False, False, False, True, True, True]


async def test_the_root_of_the_newest_signed_checkpoint_stays_however_many_revisions_follow(site: Site) -> None:
    roots = [await site.create({"a": A, f"{number}": B}) for number in range(6)]
    publications = site.engine.publications
    for number, root in enumerate(roots):
        await site.publish(root)
        if number in (1, 2):
            head = await publications.prove("docs", "main")
            note = f"o/docs/main\n{head.size}\n{head.root_hash}\n\n— o/docs/main AAAAAAAA\n"
            await publications.sign("docs", "main", note)
    site.time.seconds += 100
    assert (await site.collect(grace=60, revisions=2)).roots_removed == 3
    assert (await publications.public("docs", "main")).record.root == roots[2]
    assert [await is_held(site, root) for root in roots] == [False, False, True, False, True, True]


async def test_named_roots_stay_and_a_dry_run_lists_the_others(site: Site) -> None:
    inner = await site.create({"x": A})
    named, other = await site.create({"inner": inner}), await site.create({"b": B})
    site.time.seconds += 100
    absent = coregw.Map({"absent": A}).root
    keep = [bytes(coregw.Cid(root)) for root in (named, absent)]

    async def collect(*, dry_run: bool = False, ask: float = 0) -> GarbageCollected:
        return await collect_garbage(
            site.store,
            grace_seconds=60,
            revisions=0,
            dry_run=dry_run,
            report=lambda _: None,
            keep=keep,
            ask_seconds=ask,
        )

    dry = await collect(dry_run=True)
    assert (dry.roots_removed, dry.listed_roots) == (1, [GarbageRoot(root=other, age_seconds=100)])
    asked = await collect(ask=101)
    assert (asked.dry_run, asked.young_roots, asked.listed_roots) == (True, 1, dry.listed_roots)
    assert await is_held(site, other)
    site.time.seconds += 10
    done = await collect(ask=101)
    assert (done.dry_run, done.young_roots, done.roots_removed, done.listed_roots) == (False, 0, 1, [])
    assert [await is_held(site, root) for root in (inner, named, other)] == [True, True, False]


class Later(datetime):
    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime.now(tz) + timedelta(hours=1)


async def test_pinned_roots_stay_until_the_pin_is_removed_or_expires(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = Pins(site.store)
    pinned, leased = await site.create({"a": A}), await site.create({"b": B})
    soon = datetime.now(UTC) + timedelta(minutes=30)
    assert (await pins.add(pinned, "backup-1", None)).name == "backup-1"
    assert (await pins.add(leased, None, soon)).name == leased
    site.time.seconds += 3600
    monkeypatch.setattr("coregw.upkeep.pins.datetime", Later)
    assert (await site.collect(grace=60)).roots_removed == 1
    assert not await is_held(site, leased)
    assert [(pin.name, pin.root, pin.has_expired) for pin in await pins.all()] == [
        ("backup-1", pinned, False),
        (leased, leased, True),
    ]
    await pins.remove("backup-1")
    site.time.seconds += 100
    assert (await site.collect(grace=60)).roots_removed == 1


async def test_a_pin_is_refused_for_what_is_not_a_held_root(site: Site) -> None:
    pins = Pins(site.store)
    root = await site.create({"a": A})
    with pytest.raises(RootNotFound):
        await pins.add(coregw.Map({"x": A}).root, None, None)
    with pytest.raises(InvalidInput, match="payload"):
        await pins.add(A, None, None)
    with pytest.raises(InvalidInput, match="name"):
        await pins.add(root, "a/b", None)
    with pytest.raises(InvalidInput, match="future"):
        await pins.add(root, None, datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(RecordNotFound):
        await pins.remove("unknown")
    assert await pins.all() == []


# --- reports ----------------------------------------------------------------------------------------------------------


async def test_a_dry_run_counts_what_a_collection_removes_and_removes_nothing(site: Site) -> None:
    inner = await site.create({"x": A})
    kept = await site.create({"inner": inner} | many(1000))
    await site.publish(kept)
    await site.put(b"unbound")
    garbage = await site.change(kept, "folder/00007", B, A)
    site.time.seconds += 100
    dry = await site.collect(grace=60, dry_run=True)
    assert dry.dry_run
    assert await site.resolve(garbage, "folder", "00007") == B
    real = await site.collect(grace=60)
    assert (dry.roots_removed, dry.pages_removed, dry.page_bytes_removed, dry.payloads_removed) == (
        real.roots_removed,
        real.pages_removed,
        real.page_bytes_removed,
        real.payloads_removed,
    )
    assert (real.roots_removed, real.payloads_removed) == (1, 1)


async def test_the_disk_space_of_garbage_is_freed(site: Site, tmp_path: Path) -> None:
    root = await site.create(many(2000))
    await site.publish(root)
    for number in range(20):
        await site.create({f"{number:05}/{path}": target for path, target in many(2000).items()})
    await site.engine.store.flush()  # type: ignore[attr-defined]
    site.time.seconds += 100
    steps: list[Progress] = []
    result = await collect_garbage(site.store, grace_seconds=60, revisions=0, dry_run=False, report=steps.append)
    assert (result.roots, result.roots_removed) == (21, 20)
    assert result.disk_bytes < result.disk_bytes_before / 2
    assert {step.step for step in steps} >= {"reading pages", "following kept roots", "removing pages", "compacting"}
    assert not (tmp_path / "store" / MARKS_FOLDER).exists()
    await site.export(root)


async def test_nothing_is_removed_while_a_page_of_a_kept_root_is_missing(site: Site) -> None:
    kept = await site.create(many(3000))
    await site.publish(kept)
    garbage = await site.create(many(10, B))
    async with site.store.collect(0) as collection:
        pages = await collection.list_items(Stored.PAGES, None, 1000)
    top = coregw.Cid(kept).digest
    lost = next(page.key for page in pages if page.key not in (top, coregw.Cid(garbage).digest))
    await site.store.delete(Table.PAGES, [lost])
    site.time.seconds += 100
    with pytest.raises(StoreDamaged, match=f"page {lost.hex()} of a kept root is missing"):
        await site.collect(grace=60)
    assert await site.resolve(garbage, "folder", "00007") == B


async def test_nothing_is_removed_while_a_page_of_a_kept_root_is_damaged_and_damaged_garbage_is(site: Site) -> None:
    kept = await site.create(many(3000))
    await site.publish(kept)
    top = coregw.Cid(kept).digest
    (page,) = await site.store.get(Table.PAGES, [top])
    assert page is not None
    garbage = await site.create(many(1, B))
    await site.store.put({Table.PAGES: [(coregw.Cid(garbage).digest, b"damaged"), (top, page[:-1])]})
    site.time.seconds += 100_000
    with pytest.raises(StoreDamaged, match=f"page {top.hex()} of a kept root is damaged"):
        await site.collect(grace=60)
    assert await is_held(site, garbage)
    await site.store.put({Table.PAGES: [(top, page)]})
    result = await site.collect(grace=60)
    assert (result.roots_removed, result.pages_removed) == (1, 1)
    await site.export(kept)


async def test_no_payload_is_removed_if_a_page_that_names_it_may_be_lost(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = await site.put(b"bound")
    kept = await site.create({"file": payload})
    await site.publish(kept)
    site.time.seconds += 100
    get = site.store.get

    async def get_without_pages(table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        return [None for _ in keys] if table is Table.PAGES else await get(table, keys)

    monkeypatch.setattr(site.store, "get", get_without_pages)
    with pytest.raises(StoreDamaged, match="no payload was removed"):
        await site.collect(grace=60)
    monkeypatch.undo()
    assert await site.is_stored(payload)


async def test_a_filter_that_is_too_small_keeps_garbage_and_loses_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "_MIN_FILTER_BYTES", 32)
    bound = [await site.put(b"bound %d" % number) for number in range(300)]
    for number in range(30):
        await site.put(b"unbound %d" % number)
    await site.publish(await site.create({str(number): cid for number, cid in enumerate(bound)}))
    site.time.seconds += 100
    result = await collect_garbage(
        site.store, grace_seconds=60, revisions=0, dry_run=False, report=lambda _: None, filter_bytes=0
    )
    assert result.payloads == 330
    assert result.payloads_removed < 10  # the hash functions are chosen at random
    assert (await site.collect(grace=60)).payloads_removed > 20
    assert all([await site.is_stored(cid) for cid in bound])


async def test_a_second_collection_at_the_same_time_is_refused(site: Site) -> None:
    async with site.store.collect(60):
        with pytest.raises(Unavailable, match="already"):
            await site.collect()
    async with asyncio.TaskGroup() as tasks, site.store.collect(60):
        later = tasks.create_task(site.collect())
        await asyncio.sleep(0.01)
        assert not later.done()  # it waits a little, since a check begins short collections


async def test_a_collection_that_is_cancelled_at_any_step_can_be_repeated(site: Site) -> None:
    root = await site.create(many(300))
    await site.publish(root)
    await site.put(b"unbound")
    site.time.seconds += 100
    for rounds in (0, 1, 2, 3, 5, 8, 13, 21):
        collecting = asyncio.create_task(site.collect(grace=60))
        for _ in range(rounds):
            await asyncio.sleep(0)
        collecting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await collecting
    await site.collect(grace=60)
    await site.export(root)
    assert not await site.is_stored(coregw.payload_cid(b"unbound"))


# --- stores of older versions, and restarts ---------------------------------------------------------------------------


async def test_dates_and_the_limit_survive_a_restart(tmp_path: Path) -> None:
    time = Time()
    async with site_on(tmp_path, time) as site:
        root, payload = await site.create({"a": A}), await site.put(b"payload")
        time.seconds += 100
    async with site_on(tmp_path, time) as site:
        assert (await site.collect(grace=1000)).roots_removed == 0
        result = await site.collect(grace=60)
        assert (result.roots_removed, result.payloads_removed) == (1, 1)
    time.seconds -= 100_000  # the system's clock was set back
    async with site_on(tmp_path, time) as site:
        assert not await site.is_stored(payload)
        assert await site.create({"a": A}) == root
        assert await site.resolve(root, "a") == A
