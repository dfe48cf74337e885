"""What every store does with published records (protocol section 5, *published record*)."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from coregw.errors import Conflict, InvalidInput, RecordNotFound
from coregw.store import Record, Store

pytestmark = pytest.mark.anyio

NOW = datetime(2024, 2, 29, 12, 34, 56, 789_012, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
R1, R2 = b"\x01root 1", b"\x01root 2"


async def test_the_first_publication_is_revision_1(store: Store) -> None:
    assert await store.get_record("docs", "main") is None
    record = await store.publish("docs", "main", R1, None, NOW)
    assert record == Record(
        scope="docs", name="main", root=R1, revision=1, previous_root=None, published_at=NOW, frozen=False
    )
    assert await store.get_record("docs", "main") == record


async def test_each_publication_counts_on_and_names_the_root_before(store: Store) -> None:
    await store.publish("docs", "main", R1, None, NOW)
    again = await store.publish("docs", "main", R1, None, NOW)
    other = await store.publish("docs", "main", R2, None, LATER)
    assert (again.revision, again.previous_root) == (2, R1)
    assert (other.revision, other.previous_root, other.root, other.published_at) == (3, R1, R2, LATER)
    assert await store.get_record("docs", "main") == other


async def test_publishing_makes_no_root(store: Store) -> None:
    await store.publish("docs", "main", R1, None, NOW)
    assert await store.has_roots([R1]) == [False]


async def test_times_are_kept_in_utc_to_the_microsecond(store: Store) -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5, minutes=45)))
    await store.publish("docs", "main", R1, None, elsewhere)
    record = await store.get_record("docs", "main")
    assert record is not None
    assert record.published_at == NOW
    assert record.published_at.utcoffset() == timedelta(0)


async def test_a_publication_on_the_expected_revision_goes_through(store: Store) -> None:
    assert (await store.publish("docs", "main", R1, 0, NOW)).revision == 1
    assert (await store.publish("docs", "main", R2, 1, NOW)).revision == 2


@pytest.mark.parametrize("expected", [0, 1, 3])
async def test_a_publication_on_another_revision_changes_nothing(store: Store, expected: int) -> None:
    await store.publish("docs", "main", R1, None, NOW)
    before = await store.publish("docs", "main", R2, None, NOW)
    with pytest.raises(Conflict, match=f"revision 2, not {expected}") as caught:
        await store.publish("docs", "main", R1, expected, LATER)
    assert caught.value.code == "revision_mismatch"
    assert json.loads(caught.value.details or b"") == {"revision": 2}
    assert await store.get_record("docs", "main") == before


async def test_a_new_name_is_at_revision_0(store: Store) -> None:
    with pytest.raises(Conflict, match="revision 0, not 1"):
        await store.publish("docs", "main", R1, 1, NOW)
    assert await store.get_record("docs", "main") is None


async def test_of_many_publications_on_one_revision_exactly_one_wins(store: Store) -> None:
    for expected in range(5):
        results = await asyncio.gather(
            *(store.publish("docs", "main", b"root %d" % i, expected, NOW) for i in range(20)), return_exceptions=True
        )
        won = [result for result in results if isinstance(result, Record)]
        lost = [result for result in results if isinstance(result, Conflict)]
        assert len(won) == 1
        assert len(lost) == 19
        assert won[0].revision == expected + 1
        assert await store.get_record("docs", "main") == won[0]


async def test_of_many_publications_at_once_each_gets_a_revision_of_its_own(store: Store) -> None:
    roots = [b"root %d" % i for i in range(50)]
    records = await asyncio.gather(*(store.publish("docs", "main", root, None, NOW) for root in roots))
    by_revision = sorted(records, key=lambda record: record.revision)
    assert [record.revision for record in by_revision] == list(range(1, 51))
    assert {record.root for record in records} == set(roots)
    previous = [None, *(record.root for record in by_revision)]
    assert [record.previous_root for record in by_revision] == previous[:-1]
    assert await store.history("docs", "main", 0, 100) == by_revision


async def test_nothing_is_published_after_a_freeze(store: Store) -> None:
    record = await store.publish("docs", "main", R1, None, NOW)
    frozen = await store.freeze("docs", "main", LATER)
    assert frozen == Record(
        scope="docs",
        name="main",
        root=R1,
        revision=1,
        previous_root=None,
        published_at=record.published_at,
        frozen=True,
        frozen_at=LATER,
    )
    for expected in (None, 1, 7):
        with pytest.raises(Conflict, match="frozen") as caught:
            await store.publish("docs", "main", R2, expected, LATER)
        assert caught.value.code == "record_frozen"
    assert await store.get_record("docs", "main") == frozen
    assert await store.history("docs", "main", 0, 10) == [frozen]


async def test_freezing_again_changes_nothing(store: Store) -> None:
    await store.publish("docs", "main", R1, None, NOW)
    frozen = await store.freeze("docs", "main", NOW)
    assert await store.freeze("docs", "main", LATER) == frozen
    assert await asyncio.gather(*(store.freeze("docs", "main", LATER) for _ in range(10))) == [frozen] * 10


async def test_freezing_one_name_leaves_others_free(store: Store) -> None:
    for scope, name in (("docs", "main"), ("docs", "main2"), ("docs2", "main")):
        await store.publish(scope, name, R1, None, NOW)
    await store.freeze("docs", "main", NOW)
    for scope, name in (("docs", "main2"), ("docs2", "main")):
        assert (await store.publish(scope, name, R2, 1, NOW)).revision == 2


async def test_in_a_race_of_publishers_and_a_freeze_nothing_follows_the_freeze(store: Store) -> None:
    await store.publish("docs", "main", R1, None, NOW)

    async def publish() -> int | str:
        try:
            return (await store.publish("docs", "main", R2, None, NOW)).revision
        except Conflict as conflict:
            return conflict.code

    half = [publish() for _ in range(20)]
    results = await asyncio.gather(*half, store.freeze("docs", "main", LATER), *(publish() for _ in range(20)))
    frozen = results[20]
    assert isinstance(frozen, Record)
    published = [result for result in results if isinstance(result, int)]
    assert sorted(published) == list(range(2, frozen.revision + 1))
    assert results.count("record_frozen") == 40 - len(published)
    assert await store.get_record("docs", "main") == frozen


async def test_what_was_never_published_cannot_be_frozen_and_has_no_history(store: Store) -> None:
    with pytest.raises(RecordNotFound, match="docs/main"):
        await store.freeze("docs", "main", NOW)
    with pytest.raises(RecordNotFound, match="docs/main"):
        await store.history("docs", "main", 0, 10)


async def test_history_is_paged_from_the_oldest_on(store: Store) -> None:
    records = [await store.publish("docs", "main", b"root %d" % i, None, NOW) for i in range(5)]
    await store.publish("docs", "main.2", R1, None, NOW)
    assert await store.history("docs", "main", 0, 100) == records
    assert await store.history("docs", "main", 0, 2) == records[:2]
    assert await store.history("docs", "main", 2, 2) == records[2:4]
    assert await store.history("docs", "main", 4, 2) == records[4:]
    assert await store.history("docs", "main", 5, 2) == []
    assert await store.history("docs", "main", 1 << 60, 2) == []


async def test_records_are_listed_by_scope_in_the_order_of_their_names(store: Store) -> None:
    names = ["Z", "a", "a-", "a.", "aa", "b", "x" * 128]
    for name in reversed(names):
        for scope in ("docs", "docs-", "doc"):
            await store.publish(scope, name, R1, None, NOW)
    newest = [await store.publish("docs", name, R2, None, NOW) for name in names]
    assert await store.list_records("docs", None, 100) == newest
    assert [record.name for record in await store.list_records("docs", None, 100)] == sorted(names)
    assert await store.list_records("docs", None, 3) == newest[:3]
    assert await store.list_records("docs", "a.", 2) == newest[4:6]
    assert await store.list_records("docs", "a0", 1) == newest[4:5]
    assert await store.list_records("docs", "x" * 128, 2) == []
    assert await store.list_records("none", None, 2) == []


@pytest.mark.parametrize("bad", ["", "x" * 129, "a/b", "a\0", "a b", "ä", "a\n", "a:b"])
async def test_scopes_and_names_of_another_form_are_refused(store: Store, bad: str) -> None:
    for scope, name in ((bad, "name"), ("scope", bad)):
        for call in (
            store.get_record(scope, name),
            store.publish(scope, name, R1, None, NOW),
            store.freeze(scope, name, NOW),
            store.list_records(scope, name, 1),
            store.history(scope, name, 0, 1),
        ):
            with pytest.raises(InvalidInput, match="characters"):
                await call


async def test_arguments_without_a_meaning_are_refused(store: Store) -> None:
    await store.publish("docs", "main", R1, None, NOW)
    naive = NOW.replace(tzinfo=None)
    for call in (
        store.publish("docs", "main", R2, None, naive),
        store.publish("docs", "main", R2, -1, NOW),
        store.freeze("docs", "main", naive),
        store.list_records("docs", None, 0),
        store.history("docs", "main", 0, 0),
    ):
        with pytest.raises(InvalidInput):
            await call
    assert [record.revision for record in await store.history("docs", "main", 0, 10)] == [1]
