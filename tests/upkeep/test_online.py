"""Checks and repairs of a store that is in use, by the calls of the store."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from coregw import payload_cid
from coregw._core import Cid
from coregw.engine import Engine
from coregw.engine.pages import CHECKING, COMPLETE, INCOMPLETE, WHOLE
from coregw.engine.records import (
    checkpoint_key,
    decode_record,
    encode_record,
    node_key,
    record_key,
    revision_key,
    rows_of_history,
)
from coregw.store import Table
from coregw.store.rocksdb import RocksStore, open_store
from coregw.tlog.tree import Node
from coregw.upkeep.check import check_online
from coregw.upkeep.file_check import check_database
from coregw.upkeep.repair import readable, repair_online, repair_store
from damage_support import fill
from damaged_rows import damage_rows

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_sound_store_is_sound_while_it_is_written_to(tmp_path: Path) -> None:
    truth = await fill(tmp_path, 5, is_killed=False)
    async with await open_store(tmp_path, reserve_bytes=0) as store:
        engine = Engine(store)
        is_ended = False

        async def write() -> None:
            for number in range(10_000):
                if is_ended:
                    return
                leaf = payload_cid(b"%d" % number)
                await engine.create_root(json.dumps({"arcs": {f"k{number}/{i}": leaf for i in range(300)}}).encode())

        writing = asyncio.create_task(write())
        found = await check_online(store, lambda _: None)
        is_ended = True
        await writing
    assert found.is_sound, list(found.lines())
    assert found.payloads == len(truth.payloads)
    assert found.roots >= len(truth.roots)
    counts = [len(roots) for roots in truth.names.values()]
    nodes = sum(2 * count - count.bit_count() for count in counts)  # of the complete subtrees of each name's log
    assert found.records == len(counts) + sum(counts) + nodes


async def signed_names(store: RocksStore) -> None:
    """Publish and sign ``docs/main``: three revisions and a freeze; and ``docs/other``, which stays sound."""
    engine = Engine(store)
    roots = [
        json.loads(await engine.create_root(json.dumps({"arcs": {"a": payload_cid(b"%d" % i)}}).encode()))["root"]
        for i in range(3)
    ]
    for name in ("main", "other"):
        for root in roots:
            await engine.publications.publish("docs", name, root, None)
        if name == "main":
            await engine.publications.freeze("docs", name)
        head = await engine.publications.prove("docs", name)
        note = f"o/docs/{name}\n{head.size}\n{head.root_hash}\n\n— o/docs/{name} AAAAAAAA\n"
        await engine.publications.sign("docs", name, note)


MAIN = ("docs", "main")
HARMS: dict[str, tuple[Callable[[dict[bytes, bytes]], dict[bytes, bytes]], str, bool]] = {
    "previous root": (
        lambda rows: changed(rows, 2, previous_root=decode_record(rows[revision_key(*MAIN, 2)]).root),
        "revision 2 does not follow the one before",
        False,
    ),
    "frozen in between": (
        lambda rows: changed(rows, 2, frozen=True, frozen_at=datetime.now(UTC)),
        "revision 2 is frozen, but another one follows",
        False,
    ),
    "newest of another history": (
        lambda rows: {record_key(*MAIN): changed(rows, 3, frozen=False, frozen_at=None)[revision_key(*MAIN, 3)]},
        "its newest revision is not revision 3 of its history",
        False,
    ),
    "unfrozen": (
        lambda rows: (
            changed(rows, 3, frozen=False, frozen_at=None)
            | {record_key(*MAIN): changed(rows, 3, frozen=False, frozen_at=None)[revision_key(*MAIN, 3)]}
        ),
        "3 hashes of its log do not follow from its revisions",
        False,
    ),
    "rolled back with its log": (
        lambda rows: (
            {key: b"" for key in rows if key[:1] == b"t" and b"main" in key}
            | changed(rows, 3, frozen=False, frozen_at=None)
            | {record_key(*MAIN): changed(rows, 3, frozen=False, frozen_at=None)[revision_key(*MAIN, 3)]}
            | dict(rows_of_history(*MAIN, [decode_record(rows[revision_key(*MAIN, number)]) for number in (1, 2)]))
            | {node_key(*MAIN, Node(0, 2)): rows[node_key(*MAIN, Node(0, 2))]}
        ),
        "its signed checkpoint has 4 leaves, and its history 3: it was rolled back",
        False,
    ),
    "another publication": (
        lambda rows: changed(rows, 2, published_at=datetime.now(UTC)),
        "hashes of its log do not follow from its revisions",
        False,
    ),
    "another checkpoint": (
        lambda rows: {checkpoint_key(*MAIN): rows[checkpoint_key("docs", "other")]},
        "its signed checkpoint of 3 leaves is of another history",
        False,
    ),
    "no checkpoint": (lambda rows: {checkpoint_key(*MAIN): b"?"}, "its signed checkpoint is malformed", False),
    "lost hashes": (
        lambda rows: {node_key(*MAIN, Node(1, 0)): b""},
        "1 hashes of its log are lost",
        True,
    ),
    "wrong hash": (
        lambda rows: {node_key(*MAIN, Node(1, 0)): bytes(32)},
        "1 hashes of its log do not follow from its revisions",
        True,
    ),
}


def changed(rows: dict[bytes, bytes], number: int, **changes: object) -> dict[bytes, bytes]:
    key = revision_key(*MAIN, number)
    return {key: encode_record(msgspec.structs.replace(decode_record(rows[key]), **changes))}


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound store with `signed_names`."""
    folder = tmp_path_factory.mktemp("signed") / "store"

    async def make() -> None:
        async with await open_store(folder, reserve_bytes=0) as store:
            await signed_names(store)
            found = await check_online(store, lambda _: None)
            assert found.is_sound, list(found.lines())

    asyncio.run(make())
    return folder


@pytest.mark.parametrize("harm", HARMS)
async def test_a_name_whose_revisions_log_and_checkpoint_do_not_agree_is_not_sound(
    signed: Path, tmp_path: Path, harm: str
) -> None:
    make, what, is_repaired = HARMS[harm]
    shutil.copytree(signed, tmp_path / "store")
    async with await open_store(tmp_path / "store", reserve_bytes=0) as store:
        rows = {
            key: row for kind in b"cnrt" for key, row in await store.list_rows(Table.RECORDS, bytes([kind]), None, 99)
        }
        await store.put({Table.RECORDS: list(make(rows).items())})
        online = await check_online(store, lambda _: None)
        assert [(each.scope, each.name) for each in online.affected_records] == [MAIN]
        assert what in online.affected_records[0].what
        assert not online.is_sound
    shutil.copytree(tmp_path / "store", tmp_path / "other")
    with readable(tmp_path / "store") as files:
        assert check_database(files, lambda _: None).affected_records == online.affected_records
    assert repair_store(tmp_path / "store", lambda _: None).is_sound == is_repaired
    async with await open_store(tmp_path / "other", reserve_bytes=0) as store:
        assert (await repair_online(store, lambda _: None)).is_sound == is_repaired


async def test_damaged_rows_are_named_with_what_is_above_them_and_a_repair_notes_what_is_lost(tmp_path: Path) -> None:
    truth = await fill(tmp_path, 6, is_killed=False)
    async with await open_store(tmp_path, reserve_bytes=0) as store:
        damage = await damage_rows(store, truth, random.Random(6))
        found = await check_online(store, lambda _: None)
        assert not found.is_sound
        assert {each.cid for each in found.damaged_payloads} == {damage.payload, damage.long_payload}
        # Neither is there as what its root names.
        assert {each.cid for each in found.missing_pages} == {damage.damaged_root, damage.missing_root}
        affected = {each.root: each.is_complete for each in found.affected_roots}
        assert affected[damage.damaged_root] is affected[damage.missing_root] is False
        assert {each.root for each in found.affected_records} & {damage.damaged_root, damage.missing_root}
        whole, *others = (
            root
            for root, arcs in truth.roots.items()
            if damage.payload in arcs.values() and root not in (damage.damaged_root, damage.missing_root)
        )
        marks = [(bytes(Cid(whole)), WHOLE), *((bytes(Cid(other)), CHECKING + b"0") for other in others[:1])]
        await store.put({Table.ROOTS: marks})

        result = await repair_online(store, lambda _: None)
        assert result.found.is_sound is result.repaired.is_sound is False
        assert result.repaired.damaged_payloads == []
        assert await store.get(Table.PAGES, [Cid(damage.damaged_root).digest]) == [None]
        assert set(result.repaired.lost) == {damage.payload, damage.long_payload}
        assert set(result.repaired.incomplete_roots) == {damage.damaged_root, damage.missing_root}
        rows = await store.get(Table.ROOTS, [bytes(Cid(damage.damaged_root)), bytes(Cid(damage.missing_root))])
        assert rows == [INCOMPLETE, INCOMPLETE]
        assert set(await store.get(Table.ROOTS, [root for root, _ in marks])) == {COMPLETE}
        assert await store.stat_payloads([Cid(damage.payload).multihash]) == [None]


async def test_cancelling_a_check_ends_its_thread(tmp_path: Path) -> None:
    await fill(tmp_path, 7, is_killed=False)
    async with await open_store(tmp_path, reserve_bytes=0) as store:
        began = asyncio.Event()
        loop = asyncio.get_running_loop()
        check = asyncio.create_task(check_online(store, lambda _: loop.call_soon_threadsafe(began.set) and None))
        await began.wait()
        check.cancel()
        with pytest.raises(asyncio.CancelledError):
            await check
