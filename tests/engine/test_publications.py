"""Published records by compare-and-set, on every kind of store (protocol section 5, *published record*)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest

from coregw import Map, payload_cid
from coregw._core import Cid
from coregw.engine.publications import PublicationStore, RecordTable
from coregw.engine.records import Record, encode_record, record_key, revision_key
from coregw.errors import Conflict, InvalidInput, RecordNotFound, RootNotFound, StoreDamaged
from coregw.messages.query import UnsignedPublication
from coregw.store import Store, Table
from coregw.tlog.checkpoint import Checkpoint, parse_hash, verify_publication
from stores import KINDS, opened
from tables import rows

pytestmark = pytest.mark.anyio

NOW = datetime(2024, 2, 29, 12, 34, 56, 789_012, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
R1, R2 = b"\x01root 1", b"\x01root 2"
CIDS = [bytes(Cid(Map({"a": payload_cid(each)}).root)) for each in (b"1", b"2")]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(request.param, tmp_path / "store") as store:
        yield store


@pytest.fixture
def records(store: Store) -> RecordTable:
    return RecordTable(store)


async def test_the_first_publication_is_revision_1(records: RecordTable) -> None:
    assert await records.get("docs", "main") is None
    record = await records.publish("docs", "main", R1, None, NOW)
    assert record == Record(
        scope="docs", name="main", root=R1, revision=1, previous_root=None, published_at=NOW, frozen=False
    )
    assert await records.get("docs", "main") == record


async def test_times_never_go_back(records: RecordTable) -> None:
    """The clock of the machine, or of another gateway on the same store, may."""
    await records.publish("docs", "main", R1, None, LATER)
    assert (await records.publish("docs", "main", R2, None, NOW)).published_at == LATER
    assert (await records.freeze("docs", "main", NOW)).frozen_at == LATER


async def test_each_publication_increments_the_revision_and_names_the_previous_root(records: RecordTable) -> None:
    await records.publish("docs", "main", R1, None, NOW)
    again = await records.publish("docs", "main", R1, None, NOW)
    other = await records.publish("docs", "main", R2, None, LATER)
    assert (again.revision, again.previous_root) == (2, R1)
    assert (other.revision, other.previous_root, other.root, other.published_at) == (3, R1, R2, LATER)
    assert await records.get("docs", "main") == other


async def test_publishing_creates_no_root(store: Store, records: RecordTable) -> None:
    await records.publish("docs", "main", R1, None, NOW)
    assert await store.get(Table.ROOTS, [R1]) == [None]


async def test_times_are_stored_in_utc_to_the_microsecond(records: RecordTable) -> None:
    elsewhere = NOW.astimezone(timezone(timedelta(hours=5, minutes=45)))
    await records.publish("docs", "main", R1, None, elsewhere)
    record = await records.get("docs", "main")
    assert record is not None
    assert record.published_at == NOW
    assert record.published_at.utcoffset() == timedelta(0)


async def test_a_publication_on_the_expected_revision_succeeds(records: RecordTable) -> None:
    assert (await records.publish("docs", "main", R1, 0, NOW)).revision == 1
    assert (await records.publish("docs", "main", R2, 1, NOW)).revision == 2


@pytest.mark.parametrize("expected", [0, 1, 3])
async def test_a_publication_on_another_revision_changes_nothing(records: RecordTable, expected: int) -> None:
    await records.publish("docs", "main", R1, None, NOW)
    before = await records.publish("docs", "main", R2, None, NOW)
    with pytest.raises(Conflict, match=f"revision 2, not {expected}") as caught:
        await records.publish("docs", "main", R1, expected, LATER)
    assert caught.value.code == "revision_mismatch"
    assert json.loads(caught.value.details or b"") == {"revision": 2}
    assert await records.get("docs", "main") == before


async def test_a_new_name_is_at_revision_0(records: RecordTable) -> None:
    with pytest.raises(Conflict, match="revision 0, not 1"):
        await records.publish("docs", "main", R1, 1, NOW)
    assert await records.get("docs", "main") is None


async def test_exactly_one_of_concurrent_publications_on_a_revision_wins(records: RecordTable) -> None:
    for expected in range(5):
        results = await asyncio.gather(
            *(records.publish("docs", "main", b"root %d" % i, expected, NOW) for i in range(20)), return_exceptions=True
        )
        won = [result for result in results if isinstance(result, Record)]
        lost = [result for result in results if isinstance(result, Conflict)]
        assert len(won) == 1
        assert len(lost) == 19
        assert won[0].revision == expected + 1
        assert await records.get("docs", "main") == won[0]


async def test_concurrent_publications_get_consecutive_revisions(records: RecordTable) -> None:
    roots = [b"root %d" % i for i in range(50)]
    published = await asyncio.gather(*(records.publish("docs", "main", root, None, NOW) for root in roots))
    by_revision = sorted(published, key=lambda record: record.revision)
    assert [record.revision for record in by_revision] == list(range(1, 51))
    assert {record.root for record in published} == set(roots)
    previous = [None, *(record.root for record in by_revision)]
    assert [record.previous_root for record in by_revision] == previous[:-1]
    assert await records.history("docs", "main", 0, 100) == by_revision


async def test_nothing_is_published_after_a_freeze(records: RecordTable) -> None:
    record = await records.publish("docs", "main", R1, None, NOW)
    frozen = await records.freeze("docs", "main", LATER)
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
            await records.publish("docs", "main", R2, expected, LATER)
        assert caught.value.code == "record_frozen"
    assert await records.get("docs", "main") == frozen
    assert await records.history("docs", "main", 0, 10) == [frozen]


async def test_freezing_again_changes_nothing(records: RecordTable) -> None:
    await records.publish("docs", "main", R1, None, NOW)
    frozen = await records.freeze("docs", "main", NOW)
    assert await records.freeze("docs", "main", LATER) == frozen
    assert await asyncio.gather(*(records.freeze("docs", "main", LATER) for _ in range(10))) == [frozen] * 10


async def test_freezing_a_name_does_not_freeze_others(records: RecordTable) -> None:
    for scope, name in (("docs", "main"), ("docs", "main2"), ("docs2", "main")):
        await records.publish(scope, name, R1, None, NOW)
    await records.freeze("docs", "main", NOW)
    for scope, name in (("docs", "main2"), ("docs2", "main")):
        assert (await records.publish(scope, name, R2, 1, NOW)).revision == 2


async def test_in_a_race_with_a_freeze_no_publication_follows_it(records: RecordTable) -> None:
    await records.publish("docs", "main", R1, None, NOW)

    async def publish() -> int | str:
        try:
            return (await records.publish("docs", "main", R2, None, NOW)).revision
        except Conflict as conflict:
            return conflict.code

    half = [publish() for _ in range(20)]
    results = await asyncio.gather(*half, records.freeze("docs", "main", LATER), *(publish() for _ in range(20)))
    frozen = results[20]
    assert isinstance(frozen, Record)
    published = [result for result in results if isinstance(result, int)]
    assert sorted(published) == list(range(2, frozen.revision + 1))
    assert results.count("record_frozen") == 40 - len(published)
    assert await records.get("docs", "main") == frozen


async def test_an_unpublished_name_cannot_be_frozen_and_has_no_history(records: RecordTable) -> None:
    with pytest.raises(RecordNotFound, match="docs/main"):
        await records.freeze("docs", "main", NOW)
    with pytest.raises(RecordNotFound, match="docs/main"):
        await records.history("docs", "main", 0, 10)


async def test_history_is_paged_from_the_oldest_revision(records: RecordTable) -> None:
    published = [await records.publish("docs", "main", b"root %d" % i, None, NOW) for i in range(5)]
    await records.publish("docs", "main.2", R1, None, NOW)
    assert await records.history("docs", "main", 0, 100) == published
    assert await records.history("docs", "main", 0, 2) == published[:2]
    assert await records.history("docs", "main", 2, 2) == published[2:4]
    assert await records.history("docs", "main", 4, 2) == published[4:]
    assert await records.history("docs", "main", 5, 2) == []
    assert await records.history("docs", "main", 1 << 60, 2) == []


async def test_records_of_a_scope_are_listed_in_byte_order_of_their_names(records: RecordTable) -> None:
    names = ["Z", "a", "a-", "a.", "aa", "b", "x" * 128]
    for name in reversed(names):
        for scope in ("docs", "docs-", "doc"):
            await records.publish(scope, name, R1, None, NOW)
    newest = [await records.publish("docs", name, R2, None, NOW) for name in names]
    assert await records.in_scope("docs", None, 100) == newest
    assert [record.name for record in await records.in_scope("docs", None, 100)] == sorted(names)
    assert await records.in_scope("docs", None, 3) == newest[:3]
    assert await records.in_scope("docs", "a.", 2) == newest[4:6]
    assert await records.in_scope("docs", "a0", 1) == newest[4:5]
    assert await records.in_scope("docs", "x" * 128, 2) == []
    assert await records.in_scope("none", None, 2) == []


@rows("bad", ["", "x" * 129, "a/b", "a\0", "a b", "ä", "a\n", "a:b"])
async def test_malformed_scopes_and_names_are_refused(records: RecordTable, bad: str) -> None:
    for scope, name in ((bad, "name"), ("scope", bad)):
        for call in (
            records.get(scope, name),
            records.publish(scope, name, R1, None, NOW),
            records.freeze(scope, name, NOW),
            records.in_scope(scope, name, 1),
            records.history(scope, name, 0, 1),
        ):
            with pytest.raises(InvalidInput, match="characters"):
                await call


async def test_invalid_arguments_are_refused(records: RecordTable) -> None:
    await records.publish("docs", "main", R1, None, NOW)
    naive = NOW.replace(tzinfo=None)
    for call in (
        records.publish("docs", "main", R2, None, naive),
        records.publish("docs", "main", R2, -1, NOW),
        records.freeze("docs", "main", naive),
        records.in_scope("docs", None, 0),
        records.history("docs", "main", 0, 0),
    ):
        with pytest.raises(InvalidInput):
            await call
    assert [record.revision for record in await records.history("docs", "main", 0, 10)] == [1]


async def test_a_malformed_row_is_damage(store: Store, records: RecordTable) -> None:
    await store.put({Table.RECORDS: [(record_key("docs", "main"), b"?")]})
    for call in (
        records.get("docs", "main"),
        records.in_scope("docs", None, 10),
        records.history("docs", "main", 0, 10),
        records.publish("docs", "main", R1, None, NOW),
        records.freeze("docs", "main", NOW),
    ):
        with pytest.raises(StoreDamaged, match="malformed"):
            await call


async def test_a_missing_revision_is_damage(store: Store, records: RecordTable) -> None:
    for root in (R1, R2, R1):
        await records.publish("docs", "main", root, None, NOW)
    await store.delete(Table.RECORDS, [revision_key("docs", "main", 2)])
    with pytest.raises(StoreDamaged, match="1 revisions of docs/main"):
        await records.history("docs", "main", 0, 10)


# --- restoring what was published elsewhere ---------------------------------------------------------------------------


def revision(number: int, root: bytes = R1, **changes: object) -> Record:
    previous = None if number == 1 else R1
    return msgspec.structs.replace(
        Record(scope="docs", name="main", root=root, revision=number, previous_root=previous, published_at=NOW),
        **changes,
    )


async def history(records: RecordTable) -> list[Record]:
    return await records.history("docs", "main", 0, 100)


async def test_missing_revisions_are_restored_as_they_were_published(store: Store, records: RecordTable) -> None:
    await store.put({Table.ROOTS: [(R1, b""), (R2, b"")]})
    given = [revision(1), revision(2), revision(3, R2)]
    assert await records.restore(given)
    assert await history(records) == given
    assert not await records.restore(given)
    await store.delete(Table.RECORDS, [revision_key("docs", "main", 1)])
    await store.delete(Table.RECORDS, [revision_key("docs", "main", 3), record_key("docs", "main")])
    assert await records.restore(given)
    assert await history(records) == given
    assert (await records.publish("docs", "main", R1, 3, LATER)).revision == 4
    assert not await records.restore(given)  # an older state of the other gateway changes nothing
    assert (await history(records))[:3] == given


async def test_another_publication_of_the_same_revision_is_never_replaced(store: Store, records: RecordTable) -> None:
    await store.put({Table.ROOTS: [(R1, b""), (R2, b"")]})
    await records.publish("docs", "main", R1, None, NOW)
    here = await history(records)
    for other in (revision(1, R2), revision(1, published_at=LATER)):
        with pytest.raises(Conflict, match="another revision 1"):
            await records.restore([other, revision(2)])
        assert await history(records) == here


async def test_a_freeze_is_restored_and_a_frozen_name_gets_no_revisions(store: Store, records: RecordTable) -> None:
    await store.put({Table.ROOTS: [(R1, b"")]})
    frozen = revision(1, frozen=True, frozen_at=LATER)
    assert await records.restore([revision(1)])
    assert await records.restore([frozen])
    assert await history(records) == [frozen]
    assert not await records.restore([revision(1)])
    with pytest.raises(Conflict) as caught:
        await records.restore([frozen, revision(2)])
    assert caught.value.code == "record_frozen"
    assert await history(records) == [frozen]


async def test_nothing_is_restored_without_the_newest_root(records: RecordTable) -> None:
    with pytest.raises(RootNotFound):
        await records.restore([revision(1)])
    assert await records.get("docs", "main") is None


# --- logs -------------------------------------------------------------------------------------------------------------


async def proofs_hold(store: Store, scope: str, name: str) -> None:
    """Every revision is proven in every tree, and every tree continues every older one."""
    publications = PublicationStore(store)
    whole = await publications.prove(scope, name)
    for size in range(1, whole.size + 1):
        for old in range(size + 1):
            found = await publications.prove(scope, name, old, None, size)
            before = (await publications.prove(scope, name, 0, None, old)).root_hash if old else None
            known = None if before is None else Checkpoint("o", old, parse_hash(before))
            head = Checkpoint("o", size, parse_hash(found.root_hash))
            assert verify_publication(scope, name, found, head, known, None) == found.record
    with pytest.raises(InvalidInput):
        await publications.prove(scope, name, 0, None, whole.size + 1)


async def test_every_revision_and_the_freeze_are_in_the_log_of_a_name(store: Store, records: RecordTable) -> None:
    for number in range(9):
        await records.publish("docs", "main", CIDS[number % 2], None, NOW)
    await proofs_hold(store, "docs", "main")
    await records.freeze("docs", "main", LATER)
    await proofs_hold(store, "docs", "main")
    found = await PublicationStore(store).prove("docs", "main")
    assert (found.size, found.record.revision, found.record.frozen) == (10, 9, True)
    assert not (await PublicationStore(store).prove("docs", "main", 0, None, 9)).record.frozen


class Counted:
    """Counts the rows that a store reads and writes."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows = 0
        get, put = store.get, store.put

        async def counted_get(table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
            self.rows += len(keys)
            return await get(table, keys)

        async def counted_put(rows: Mapping[Table, Sequence[tuple[bytes, bytes]]], durable: bool = True) -> int:
            self.rows += sum(map(len, rows.values()))
            return await put(rows, durable)

        monkeypatch.setattr(store, "get", counted_get)
        monkeypatch.setattr(store, "put", counted_put)


async def test_a_proof_reads_few_rows_and_writes_none_whatever_is_lost(
    store: Store, records: RecordTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        await records.publish("docs", "main", CIDS[number % 2], None, NOW)
    publications = PublicationStore(store)
    whole = await publications.prove("docs", "main")
    note = f"o/docs/main\n40\n{whole.root_hash}\n\n— o/docs/main AAAAAAAA\n"
    await publications.sign("docs", "main", note)
    nodes = [key for key, _ in await store.list_rows(Table.RECORDS, b"t", None, 99)]
    await store.delete(Table.RECORDS, [*nodes[40:], revision_key("docs", "main", 30)])
    counted = Counted(store, monkeypatch)
    for call in (publications.prove, publications.public):
        for revision in (7, 30):
            with pytest.raises(StoreDamaged):
                await call("docs", "main", 1, revision)
    assert counted.rows < 80


async def test_the_log_is_computed_again_when_revisions_are_restored(store: Store, records: RecordTable) -> None:
    await store.put({Table.ROOTS: [(cid, b"") for cid in CIDS]})
    for number in range(6):
        await records.publish("docs", "main", CIDS[number % 2], None, NOW)
    whole, given = (await PublicationStore(store).prove("docs", "main")).root_hash, await history(records)
    nodes = [key for key, _ in await store.list_rows(Table.RECORDS, b"t", None, 99)]
    assert len(nodes) == 10
    await store.delete(Table.RECORDS, nodes)
    assert not await records.restore(given)
    assert (await PublicationStore(store).prove("docs", "main")).root_hash == whole
    await store.delete(Table.RECORDS, nodes[3:])
    await records.publish("docs", "main", CIDS[0], None, NOW)
    assert not await records.restore(given)
    await proofs_hold(store, "docs", "main")
    await store.delete(Table.RECORDS, nodes)
    await records.freeze("docs", "main", NOW)
    assert not await records.restore(await history(records))
    await proofs_hold(store, "docs", "main")


async def test_publishing_goes_on_when_revisions_are_lost_and_proofs_when_they_are_restored(
    store: Store, records: RecordTable
) -> None:
    await store.put({Table.ROOTS: [(cid, b"") for cid in CIDS]})
    for _ in range(3):
        await records.publish("docs", "main", CIDS[0], None, NOW)
    lost = await history(records)
    await store.delete(Table.RECORDS, [key for key, _ in await store.list_rows(Table.RECORDS, b"t", None, 99)])
    await store.delete(Table.RECORDS, [revision_key("docs", "main", 2)])
    await records.publish("docs", "main", CIDS[1], None, NOW)
    with pytest.raises(StoreDamaged):
        await PublicationStore(store).prove("docs", "main")
    assert await records.restore(lost)
    await proofs_hold(store, "docs", "main")


async def test_a_history_that_lost_signed_leaves_gets_no_others_in_their_place(
    store: Store, records: RecordTable
) -> None:
    """A repair falls back to an older revision if the newest is lost: the next publication would fork the log."""
    await store.put({Table.ROOTS: [(cid, b"") for cid in CIDS]})
    for _ in range(2):
        await records.publish("docs", "main", CIDS[0], None, NOW)
    publications, given = PublicationStore(store), await history(records)
    await publications.sign(
        "docs",
        "main",
        f"o/docs/main\n2\n{(await publications.prove('docs', 'main')).root_hash}\n\n— o/docs/main AAAAAAAA\n",
    )
    await store.delete(Table.RECORDS, [revision_key("docs", "main", 2)])
    await store.put({Table.RECORDS: [(record_key("docs", "main"), encode_record(given[0]))]})
    for call in (records.publish("docs", "main", CIDS[1], None, NOW), records.freeze("docs", "main", NOW)):
        with pytest.raises(StoreDamaged, match="has 1 leaves, but its signed checkpoint 2"):
            await call
    assert await records.restore(given)
    assert (await records.publish("docs", "main", CIDS[1], None, NOW)).revision == 3
    await proofs_hold(store, "docs", "main")


async def test_a_signed_checkpoint_is_kept_if_it_is_of_this_log_and_no_older(
    store: Store, records: RecordTable
) -> None:
    publications = PublicationStore(store)
    for _ in range(3):
        await records.publish("docs", "main", CIDS[0], None, NOW)
    heads = [await publications.prove("docs", "main", 0, None, size) for size in (1, 2, 3)]
    notes = [f"o/docs/main\n{each.size}\n{each.root_hash}\n\n— o/docs/main AAAAAAAA\n" for each in heads]
    unsigned = UnsignedPublication(record=await publications.get("docs", "main"), status="unsigned")
    assert await publications.public("docs", "main") == await publications.public("docs", "main", 1, 3) == unsigned
    for not_public in (publications.public("docs", "main", 0, 2), publications.entries("docs", "main", 0, 9)):
        with pytest.raises(RecordNotFound, match="no signed checkpoint"):
            await not_public
    assert (await publications.sign("docs", "main", notes[1])).checkpoint == notes[1]
    assert [each.revision for each in (await publications.entries("docs", "main", 0, 9))[0]] == [1, 2]
    assert (await publications.public("docs", "main")).record.revision == 2
    assert (await publications.public("docs", "main", 1, 1)).record.revision == 1
    with pytest.raises(RecordNotFound):
        await publications.public("docs", "main", 0, 3)
    for bad in (notes[0], notes[2].replace("\n3\n", "\n2\n"), notes[2].replace("\n3\n", "\n4\n")):
        with pytest.raises(Conflict) as refused:
            await publications.sign("docs", "main", bad)
        assert refused.value.code == "checkpoint_mismatch"
    for malformed in ("", "x", notes[1].replace("o/docs", "\x07"), notes[1].replace("—", "-"), "a" * (64 << 10) + "\n"):
        with pytest.raises(InvalidInput):
            await publications.sign("docs", "main", malformed)
    await publications.sign("docs", "main", notes[2])
    assert (await publications.public("docs", "main")).record.revision == 3
    await records.freeze("docs", "main", LATER)
    assert not (await publications.public("docs", "main")).record.frozen  # not signed yet
    assert [each.frozen for each in (await publications.entries("docs", "main", 2, 9))[0]] == [False]
