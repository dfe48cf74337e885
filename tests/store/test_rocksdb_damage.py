"""What a RocksDB store says of directories that it cannot open, and of damage."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path

import pytest

from coregw.errors import CoregwError, InvalidInput, StoreDamaged, Unavailable
from coregw.store import CHUNK_BYTES, Store
from coregw.store._rocks_layout import Family, PayloadRow, chunk_key
from coregw.store.rocksdb import open_store
from store.rocks_support import log_file, run_until_dead

pytestmark = pytest.mark.anyio

Put = Callable[[Store, bytes], Coroutine[None, None, bytes]]
Multihash = Callable[[bytes], bytes]

NOW = datetime(2024, 2, 29, tzinfo=UTC)
MARKER = "coregw-store.json"


async def refused(path: Path) -> CoregwError:
    with pytest.raises(CoregwError) as caught:
        await open_store(path)
    assert str(path) in caught.value.message
    return caught.value


def contents(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


# --- directories ------------------------------------------------------------------------------------------------------


async def test_a_missing_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    async with await open_store(tmp_path / "some" / "where") as store:
        assert store.path == tmp_path / "some" / "where"
    assert json.loads((tmp_path / "some" / "where" / MARKER).read_text()) == {
        "store": "coregw",
        "format": 1,
        "state": "ready",
    }


async def test_a_directory_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    before = contents(tmp_path)
    error = await refused(tmp_path)
    assert isinstance(error, InvalidInput)
    assert "letters.txt" in error.message
    assert contents(tmp_path) == before


async def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(await refused(tmp_path / "file"), InvalidInput)


async def test_a_directory_below_a_file_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(await refused(tmp_path / "file" / "store"), Unavailable)


async def test_a_store_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    await (await open_store(tmp_path)).close()
    marker = tmp_path / MARKER
    marker.write_text(marker.read_text().replace('"format":1', '"format":2'))
    before = contents(tmp_path)
    error = await refused(tmp_path)
    assert isinstance(error, Unavailable)
    assert "format 2" in error.message
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"store":"coregw"}',
        '{"store":"coregw","format":"1","state":"ready"}',
        '{"store":"other","format":1,"state":"ready"}',
        '{"store":"coregw","format":0,"state":"ready"}',
        '{"store":"coregw","format":1,"state":"half"}',
    ],
)
async def test_a_marker_that_makes_no_sense_is_damage(tmp_path: Path, text: str) -> None:
    await (await open_store(tmp_path)).close()
    (tmp_path / MARKER).write_text(text)
    assert isinstance(await refused(tmp_path), StoreDamaged)


async def test_a_store_is_opened_once_at_a_time(tmp_path: Path, put: Put) -> None:
    async with await open_store(tmp_path) as store:
        error = await refused(tmp_path)
        assert isinstance(error, Unavailable)
        assert "in use" in error.message
        assert await store.stat_payload(await put(store, b"still working")) == 13
    await (await open_store(tmp_path)).close()


async def test_a_store_is_opened_by_one_process_at_a_time(tmp_path: Path) -> None:
    async with await open_store(tmp_path):
        run_until_dead(
            tmp_path,
            """
            from coregw.errors import Unavailable
            try:
                await open_store(path)
            except Unavailable as error:
                assert "in use" in str(error) and path in str(error)
                die()
            """,
        )


async def test_a_creation_that_was_broken_off_is_done_again(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    await (await open_store(whole)).close()
    marker = (whole / MARKER).read_text().replace("ready", "creating")
    for left in ("nothing", "a lock", "a database"):
        path = tmp_path / left
        (path / "rocksdb").mkdir(parents=True)
        (path / MARKER).write_text(marker)
        if left == "a lock":
            (path / "rocksdb" / "LOCK").touch()
        if left == "a database":
            shutil.copytree(whole / "rocksdb", path / "rocksdb", dirs_exist_ok=True)
        async with await open_store(path) as store:
            await store.put_roots([b"root"])
        async with await open_store(path) as store:
            assert await store.has_roots([b"root"]) == [True]


async def test_a_creation_that_was_broken_off_before_it_began_is_done_again(tmp_path: Path) -> None:
    (tmp_path / (MARKER + ".new")).write_text("{")
    await (await open_store(tmp_path)).close()
    assert {file.relative_to(tmp_path).parts[0] for file in contents(tmp_path)} == {MARKER, "rocksdb"}


# --- damage -----------------------------------------------------------------------------------------------------------


def killed_with_roots(path: Path) -> None:
    """A store whose newest writes are in the log only: 100 roots, and a payload of three chunks after the first 50."""
    run_until_dead(
        path,
        """
        store = await open_store(path)
        for i in range(100):
            await store.put_roots([b"root %d" % i], [(b"%032d" % i, b"page %d" % i * 10)])
            if i == 50:
                await put(store, random.Random(1).randbytes(2 * CHUNK_BYTES + 5))
        die()
        """,
    )


ROOTS = [b"root %d" % i for i in range(100)]


async def test_a_flipped_bit_in_the_log_is_damage_and_salvage_keeps_the_rest(
    tmp_path: Path, multihash: Multihash, put: Put
) -> None:
    killed_with_roots(tmp_path)
    log = log_file(tmp_path)
    data = random.Random(1).randbytes(2 * CHUNK_BYTES + 5)
    written = bytearray(log.read_bytes())
    place = written.index(data[CHUNK_BYTES + 100_000 : CHUNK_BYTES + 100_050])  # in the second chunk of the payload
    written[place] ^= 1
    log.write_bytes(written)
    error = await refused(tmp_path)
    assert isinstance(error, StoreDamaged)
    assert isinstance(await refused(tmp_path), StoreDamaged)  # the first attempt did not paper over it
    async with await open_store(tmp_path, salvage=True) as store:
        held = await store.has_roots(ROOTS)
        assert held[:50] == [True] * 50
        assert await store.get_pages([b"%032d" % i for i in range(50)]) == [b"page %d" % i * 10 for i in range(50)]
        assert await store.has_payloads([multihash(data)]) == [False]
        assert await store.stat_payload(await put(store, data)) == len(data)  # and can be stored again
    async with await open_store(tmp_path) as store:  # from now on it opens as any other
        assert b"".join([chunk async for chunk in store.read_payload(multihash(data))]) == data


async def test_a_log_cut_off_in_its_last_entry_is_no_damage(tmp_path: Path) -> None:
    killed_with_roots(tmp_path)
    with log_file(tmp_path).open("r+b") as log:
        log.truncate(log_file(tmp_path).stat().st_size - 3)
    async with await open_store(tmp_path) as store:
        assert await store.has_roots(ROOTS) == [True] * 99 + [False]


async def test_a_lost_log_is_damage(tmp_path: Path) -> None:
    killed_with_roots(tmp_path)
    for log in (tmp_path / "rocksdb").glob("*.log"):
        log.unlink()
    error = await refused(tmp_path)
    assert isinstance(error, StoreDamaged)
    assert "log" in error.message
    async with await open_store(tmp_path, salvage=True) as store:
        assert await store.has_roots(ROOTS) == [False] * 100


async def test_uploads_after_a_lost_log_do_not_mix_with_those_before(tmp_path: Path, put: Put) -> None:
    run_until_dead(
        tmp_path,
        """
        store = await open_store(path)
        await put(store, random.Random(1).randbytes(2 * CHUNK_BYTES))
        store._database._families["chunks"].flush()
        store._database._families["payloads"].flush()
        die()
        """,
    )
    for log in (tmp_path / "rocksdb").glob("*.log"):
        log.unlink()
    datas = [random.Random(seed).randbytes(2 * CHUNK_BYTES) for seed in (1, 2)]
    async with await open_store(tmp_path, salvage=True) as store:
        for data in datas:
            multihash = await put(store, data)
            assert b"".join([chunk async for chunk in store.read_payload(multihash)]) == data
        multihash = await put(store, datas[0])
        assert b"".join([chunk async for chunk in store.read_payload(multihash)]) == datas[0]


async def test_a_lost_database_is_damage_and_not_an_empty_store(tmp_path: Path) -> None:
    await (await open_store(tmp_path)).close()
    shutil.rmtree(tmp_path / "rocksdb")
    error = await refused(tmp_path)
    assert isinstance(error, StoreDamaged)
    assert "lost its database" in error.message


async def table_with(path: Path, put: Put, data: bytes) -> Path:
    """A closed store whose biggest table file holds the page and the payload `data`."""
    async with await open_store(path) as store:
        await store.put_roots([b"root"], [(bytes(32), data)])
        await put(store, data)
    return max((path / "rocksdb").glob("*.sst"), key=lambda file: file.stat().st_size)


async def test_a_flipped_bit_in_a_table_is_damage_when_it_is_read(tmp_path: Path, put: Put) -> None:
    data = random.Random(2).randbytes(5000)
    await table_with(tmp_path, put, data)
    for table in (tmp_path / "rocksdb").glob("*.sst"):
        written = bytearray(table.read_bytes())
        place = written.find(data[100:150])
        if place >= 0:
            written[place] ^= 1
            table.write_bytes(written)
    async with await open_store(tmp_path) as store:
        with pytest.raises(StoreDamaged, match="damaged"):
            await store.get_pages([bytes(32)])
        assert await store.has_roots([b"root"]) == [True]


async def test_a_flipped_bit_under_a_listing_is_damage_and_not_a_shorter_listing(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        roots = [random.Random(i).randbytes(36) for i in range(200)]
        await asyncio.gather(*(store.publish("scope", f"name-{i:03}", root, None, NOW) for i, root in enumerate(roots)))
    for table in (tmp_path / "rocksdb").glob("*.sst"):
        written = bytearray(table.read_bytes())
        place = written.find(roots[100])
        if place >= 0:
            written[place] ^= 1
            table.write_bytes(written)
    async with await open_store(tmp_path) as store:
        assert len(await store.list_records("scope", None, 50)) == 50
        with pytest.raises(StoreDamaged):
            await store.list_records("scope", None, 200)


async def test_a_lost_table_is_damage(tmp_path: Path, put: Put) -> None:
    (await table_with(tmp_path, put, bytes(5000))).unlink()
    assert isinstance(await refused(tmp_path), StoreDamaged)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("left", [None, b"", b"short"])
async def test_a_missing_or_cut_chunk_is_damage_and_never_wrong_bytes(
    tmp_path: Path, put: Put, number: int, left: bytes | None
) -> None:
    data = random.Random(3).randbytes(2 * CHUNK_BYTES + 100)
    async with await open_store(tmp_path) as store:
        multihash = await put(store, data)
        (value,) = store._database.get(Family.PAYLOADS, [multihash])
        assert value is not None
        row = PayloadRow.decode(multihash, value)
        store._database.write([(Family.CHUNKS, chunk_key(row.upload_id, number), left)])
        chunks = store.read_payload(multihash)
        assert b"".join([await anext(chunks) for _ in range(number)]) == data[: number * CHUNK_BYTES]
        with pytest.raises(StoreDamaged, match=f"chunk {number} of 3"):
            await anext(chunks)


async def test_a_row_that_cannot_be_read_is_damage(tmp_path: Path, put: Put) -> None:
    async with await open_store(tmp_path) as store:
        multihash = await put(store, b"data")
        record = b"nscope\0name\0"
        store._database.write([(Family.PAYLOADS, multihash, b"?"), (Family.RECORDS, record, b"?")])
        for call in (
            store.stat_payload(multihash),
            anext(store.read_payload(multihash)),
            store.get_record("scope", "name"),
            store.list_records("scope", None, 10),
        ):
            with pytest.raises(StoreDamaged):
                await call
