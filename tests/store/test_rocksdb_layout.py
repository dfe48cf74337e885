"""The rows of the RocksDB store on disk, byte by byte: format 2, and format 1, of which this version makes format 2."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rocksdict import Cache, Options, Rdict, WriteBatch

from coregw.engine.publications import RecordTable
from coregw.plants.app import put_plant
from coregw.store import CHUNK_BYTES, Stored, Table
from coregw.store.ages import Clock
from coregw.store.rocksdb import open_store
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.options import database_options, family_options
from store_payloads import read

pytestmark = pytest.mark.anyio

NOW = datetime(2024, 2, 29, 12, 34, 56, 789_012, tzinfo=UTC)
ONES = b"\x01" * 32
DIFFERENCE = bytes(32) + bytes([0, 1, 1]) + b"P"
SHORT, LONG, EMPTY = (b"\x12\x20" + letter * 32 for letter in (b"a", b"b", b"c"))
MARKER = '{"store":"coregw","format":1,"state":"ready"}\n'
FORMAT_2 = MARKER.replace("1", "2")

PUBLISHED = bytes.fromhex(
    "88a573636f7065a4646f6373a46e616d65a46d61696ea4726f6f74c40501726f6f74a87265766973696f6e01"
    "ad70726576696f75735f726f6f74c0ac7075626c69736865645f6174d7ffbc1d788065e079f0a666726f7a656ec2"
    "a966726f7a656e5f6174c0"
)
FROZEN = bytes.fromhex(
    "88a573636f7065a4646f6373a46e616d65a46d61696ea4726f6f74c406016f74686572a87265766973696f6e02"
    "ad70726576696f75735f726f6f74c40501726f6f74ac7075626c69736865645f6174d7ffbc1d788065e079f0"
    "a666726f7a656ec3a966726f7a656e5f6174d7ffbc1d788065e079f0"
)

DATE = bytes.fromhex("0000018df4dc5495")
"""`NOW` in milliseconds."""

FORMAT_1 = set(Family) - {Family.DIFFERENCES}

OLDER: dict[Family, dict[bytes, bytes]] = {
    Family.META: {b"epoch": b"\0\0\0\1"},
    Family.PAGES: {bytes(32): b"page"},
    Family.ROOTS: {b"\x01root": b""},
    Family.RECORDS: {
        b"ndocs\0main\0": FROZEN,
        b"p\x7f" + b"\xff" * 7: b"{}",
        b"p\x80" + bytes(6) + b"\x07": b'{"name":"fern"}',
        b"rdocs\0main\0" + bytes(7) + b"\x01": PUBLISHED,
        b"rdocs\0main\0" + bytes(7) + b"\x02": FROZEN,
    },
    Family.PAYLOADS: {
        SHORT: bytes.fromhex("000000010000000000000000 0000000000000005"),
        LONG: bytes.fromhex("000000010000000000000001 0000000000100003"),
        EMPTY: bytes.fromhex("000000010000000000000002 0000000000000000"),
    },
    Family.CHUNKS: {
        bytes.fromhex("000000010000000000000000 00000000"): b"short",
        bytes.fromhex("000000010000000000000001 00000000"): b"x" * CHUNK_BYTES,
        bytes.fromhex("000000010000000000000001 00000001"): b"xxx",
    },
    Family.UPLOADS: {},
}
"""What versions wrote that do not date roots and payloads, and have no logs."""

TIME = (1_709_210_096_789_012).to_bytes(8, "big")
"""`NOW` in microseconds."""

LEAVES = [
    hashlib.sha256(b"\0" + entry + TIME).digest()
    for entry in (
        b"\1\4docs\4main\1\5\1root\0",
        b"\1\4docs\4main\2\6\1other\5\1root",
        b"\2\4docs\4main\2",
    )
]
"""Of the log of ``docs/main``: two publications and the freeze."""

ROWS = OLDER | {
    Family.RECORDS: OLDER[Family.RECORDS]
    | {b"tdocs\0main\0\0" + bytes(7) + bytes([number]): leaf for number, leaf in enumerate(LEAVES)}
    | {b"tdocs\0main\0\1" + bytes(8): hashlib.sha256(b"\1" + LEAVES[0] + LEAVES[1]).digest()},
    Family.META: {
        b"epoch": b"\0\0\0\1",
        b"expired": (int.from_bytes(DATE, "big") - 1).to_bytes(8, "big"),
        **{b"p" + multihash: DATE for multihash in (SHORT, LONG, EMPTY)},
        b"undated": b"\0\0\0\1" + DATE,
        b"uptime": b"\0\0\0\1" + DATE,
    },
    Family.ROOTS: {b"\x01root": DATE},
}


async def test_a_store_has_exactly_the_rows_of_format_2(tmp_path: Path) -> None:
    clock = Clock(monotonic=lambda: 0.0, wall=NOW.timestamp)
    async with await open_store(tmp_path, clock=clock) as store:
        await store.put({Table.PAGES: [(bytes(32), b"page" * 100)], Table.ROOTS: [(b"\x01root", b"")]})
        await store.put({Table.PAGES: [(ONES, b"Page" + b"page" * 99)]}, differences=[(ONES, DIFFERENCE)])
        await store.put_payloads([(SHORT, b"short")])
        async with store.begin_payload() as writer:
            await writer.write(b"x" * (CHUNK_BYTES + 3))
            await writer.commit(LONG)
        await store.put_payloads([(EMPTY, b"")])
        records = RecordTable(store)
        await records.publish("docs", "main", b"\x01root", None, NOW)
        await records.publish("docs", "main", b"\x01other", 1, NOW)
        await records.freeze("docs", "main", NOW)
        await put_plant(store, 7, b'{"name":"fern"}')
        await put_plant(store, -1, b"{}")
        async with store.collect(0) as collection:
            await collection.expire()
        identity = store.identity
    assert identity is not None
    named = f',"id":"{identity.store}","incarnation":"{identity.incarnation}"'
    assert (tmp_path / "coregw-store.json").read_text() == FORMAT_2.replace("}", f"{named}}}")
    rows = rows_of(tmp_path / "rocksdb")
    claim = rows[Family.META].pop(b"claim")  # a secret of this opening, then the log that was durable before
    assert len(claim) == 32
    assert int.from_bytes(claim[16:24], "big") > 0
    assert rows == ROWS | {Family.PAGES: {bytes(32): b"page" * 100}, Family.DIFFERENCES: {ONES: DIFFERENCE}}


@pytest.mark.parametrize("rows", [ROWS, OLDER], ids=["dated", "older"])
async def test_the_rows_of_format_1_are_a_store(tmp_path: Path, rows: dict[Family, dict[bytes, bytes]]) -> None:
    write_rows(tmp_path / "rocksdb", rows)
    (tmp_path / "coregw-store.json").write_text(MARKER)
    async with await open_store(tmp_path) as store:
        assert await store.get(Table.PAGES, [bytes(32)]) == [b"page"]
        assert await store.get(Table.ROOTS, [b"\x01root"]) == [b""]
        assert await store.stat_payloads([SHORT, LONG, EMPTY]) == [5, CHUNK_BYTES + 3, 0]
        assert [await read(store, each) for each in (SHORT, LONG, EMPTY)] == [b"short", b"x" * (CHUNK_BYTES + 3), b""]
        history = await RecordTable(store).history("docs", "main", 0, 9)
        assert [(each.revision, each.root, each.previous_root, each.frozen_at) for each in history] == [
            (1, b"\x01root", None, None),
            (2, b"\x01other", b"\x01root", NOW),
        ]
        assert await RecordTable(store).in_scope("docs", None, 9) == history[1:]
        assert not await put_plant(store, 7, b"moss")
        await store.put({Table.PAGES: [(ONES, b"Page")]}, differences=[(ONES, DIFFERENCE)])
        assert await store.get(Table.PAGES, [ONES]) == [b"Page"]
    assert '"format":2' in (tmp_path / "coregw-store.json").read_text()
    assert rows_of(tmp_path / "rocksdb")[Family.DIFFERENCES] == {ONES: DIFFERENCE}


async def test_a_damaged_store_of_format_1_is_read_as_it_is(tmp_path: Path) -> None:
    write_rows(tmp_path / "rocksdb", ROWS)
    (tmp_path / "coregw-store.json").write_text(MARKER)
    root = Rdict(str(tmp_path / "rocksdb"), Options(raw_mode=True), {name: Options(raw_mode=True) for name in FORMAT_1})
    root.get_column_family("payloads").flush()
    root.close()
    table = next(each for each in (tmp_path / "rocksdb").glob("*.sst") if SHORT in each.read_bytes())
    table.unlink()
    async with await open_store(tmp_path, read_only_if_needed=True) as store:
        assert store.read_only is not None
        assert await store.get(Table.PAGES, [bytes(32), ONES]) == [b"page", None]
        assert await store.list_rows(Table.PAGES, b"", None, 9) == [(bytes(32), b"page")]
    assert (tmp_path / "coregw-store.json").read_text() == MARKER


async def test_what_an_older_version_stored_is_as_old_as_the_first_start_of_this_one(tmp_path: Path) -> None:
    write_rows(tmp_path / "rocksdb", OLDER)
    (tmp_path / "coregw-store.json").write_text(MARKER)

    async def removed(grace_days: int, *, after_days: int = 0) -> int:
        days = 0
        async with await open_store(tmp_path, clock=Clock(monotonic=lambda: days * 86_400.0)) as store:
            days = after_days
            async with store.collect(grace_days * 86_400) as collection:
                await collection.expire()
                return sum(await collection.remove(Stored.PAYLOADS, [SHORT]))

    assert await removed(1) == 0
    assert await removed(3, after_days=2) == 0
    open_with_an_older_version(tmp_path / "rocksdb")
    assert await removed(1) == 0  # that version may have confirmed it without a date
    assert await removed(1, after_days=2) == 1


def open_with_an_older_version(database: Path) -> None:
    """Count an opening, as versions do that do not date anything."""
    root = Rdict(str(database), database_options(create=False, salvage=False), family_options(Cache(1 << 20)))
    root[b"epoch"] = (int.from_bytes(root[b"epoch"], "big") + 1).to_bytes(4, "big")
    root.close()


def rows_of(database: Path) -> dict[Family, dict[bytes, bytes]]:
    """Every row of a database, as rocksdict reads it."""
    raw = Options(raw_mode=True)
    others = {str(family): raw for family in Family if family is not Family.META}
    assert sorted(Rdict.list_cf(str(database), raw)) == sorted(Family)
    root = Rdict(str(database), raw, others)
    families = {family: root.get_column_family(family) for family in Family}
    rows = {family: dict(each.items()) for family, each in families.items()}
    for each in families.values():
        each.close()
    root.close()
    return rows


def write_rows(database: Path, rows_by_family: dict[Family, dict[bytes, bytes]]) -> None:
    """Make a database of format 1 by rocksdict alone."""
    families = {name: each for name, each in family_options(Cache(1 << 20)).items() if name in FORMAT_1}
    database.parent.mkdir(exist_ok=True)
    root = Rdict(str(database), database_options(create=True, salvage=False), families)
    batch = WriteBatch(raw_mode=True)
    handles = {family: root.get_column_family_handle(family) for family in FORMAT_1}
    for family, rows in rows_by_family.items():
        for key, value in rows.items():
            batch.put(key, value, handles[family])
    root.write(batch)
    handles.clear()
    root.close()
