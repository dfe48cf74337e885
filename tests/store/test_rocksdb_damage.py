"""Directories that are refused, and damage that is detected, in the RocksDB store."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import serving
from coregw.errors import CoregwError, InvalidInput, StoreDamaged, Unavailable
from coregw.store import CHUNK_BYTES, Stored, Table
from coregw.store.collection import Identity
from coregw.store.rocksdb import CACHE_BYTES, open_store, read_identity
from coregw.store.rocksdb.database import Database, Write
from coregw.store.rocksdb.layout import Family, PayloadRow, chunk_key
from coregw.upkeep.repair import repair_store
from rocksdb_support import (
    are_held,
    flip_bit,
    flip_bit_in_ssts,
    get_pages,
    log_file,
    put_roots,
    run_until_dead,
)
from store_payloads import multihash_of, random_bytes, read, upload

pytestmark = pytest.mark.anyio

MARKER = "coregw-store.json"


async def refused(path: Path) -> CoregwError:
    with pytest.raises(CoregwError) as caught:
        await open_store(path)
    assert str(path) in caught.value.message
    return caught.value


def files_of(path: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


# --- directories ------------------------------------------------------------------------------------------------------


async def test_a_missing_directory_is_created_with_its_parents(tmp_path: Path) -> None:
    async with await open_store(tmp_path / "some" / "where") as store:
        assert store.path == tmp_path / "some" / "where"
        identity = store.identity
    assert identity is not None
    assert json.loads((tmp_path / "some" / "where" / MARKER).read_text()) == {
        "store": "coregw",
        "format": 2,
        "state": "ready",
        "id": str(identity.store),
        "incarnation": str(identity.incarnation),
    }


async def test_a_store_of_an_earlier_version_is_named_when_it_is_opened_for_writing(tmp_path: Path) -> None:
    async with await open_store(tmp_path):
        pass
    marker = tmp_path / MARKER
    marker.write_text('{"store":"coregw","format":1,"state":"ready"}\n')
    assert read_identity(tmp_path) is None
    async with await open_store(tmp_path) as store:
        identity = store.identity
    assert identity is not None
    assert read_identity(tmp_path) == identity
    async with await open_store(tmp_path) as store:
        assert store.identity == identity
        await store.identify(other := Identity.new(identity.store))
        assert store.identity == other
    assert read_identity(tmp_path) == other


async def test_a_repair_keeps_what_a_damaged_marker_says_of_the_store(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        identity = store.identity
    text = (tmp_path / MARKER).read_text()
    for damaged in (text, text.replace("format", "fo?mat"), text[:-20] + "?"):
        (tmp_path / MARKER).write_text(damaged)
        repair_store(tmp_path, lambda _: None)
        found = read_identity(tmp_path)
        assert found is not None
        assert identity is not None
        assert found.store == identity.store
        assert found == identity or damaged == text[:-20] + "?"


async def test_the_entries_of_created_directories_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power cut after the first acknowledged write must not take away a directory on the way to it."""
    synced: list[tuple[Path, set[str]]] = []
    fsync = os.fsync

    def recorded(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if path.is_dir():
            synced.append((path, {entry.name for entry in path.iterdir()}))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", recorded)
    await (await open_store(tmp_path / "some" / "where")).close()
    for directory, entry in [
        (tmp_path, "some"),
        (tmp_path / "some", "where"),
        (tmp_path / "some" / "where", MARKER),
        (tmp_path / "some" / "where", "rocksdb"),
        (tmp_path / "some" / "where" / "rocksdb", "coregw-mark"),
    ]:
        assert any(path == directory and entry in entries for path, entries in synced), (directory, entry, synced)


async def test_a_created_directory_is_for_its_owner_alone(tmp_path: Path) -> None:
    await (await open_store(tmp_path / "data")).close()
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


async def test_a_directory_with_other_files_is_refused_and_unchanged(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    before = files_of(tmp_path)
    error = await refused(tmp_path)
    assert isinstance(error, InvalidInput)
    assert "letters.txt" in error.message
    assert files_of(tmp_path) == before


async def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(await refused(tmp_path / "file"), InvalidInput)


async def test_a_directory_below_a_file_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert isinstance(await refused(tmp_path / "file" / "store"), Unavailable)


async def test_a_store_of_a_newer_format_is_refused_and_unchanged(tmp_path: Path) -> None:
    await (await open_store(tmp_path)).close()
    marker = tmp_path / MARKER
    marker.write_text(marker.read_text().replace('"format":2', '"format":3'))
    before = files_of(tmp_path)
    error = await refused(tmp_path)
    assert isinstance(error, Unavailable)
    assert "format 3" in error.message
    assert files_of(tmp_path) == before


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"store":"coregw","format":0,"state":"ready"}', "has format 0, which was never written"),
        ('{"store":"coregw","format":-1,"state":"ready"}', "has format -1, which was never written"),
        ('{"store":"coregw","state":"ready"}', "does not say which format"),
        ('{"store":"coregw"}', "does not say which format"),
        ("{}", "does not say which format"),
    ],
)
async def test_a_store_of_an_unknown_format_is_refused_and_unchanged_until_it_is_repaired(
    tmp_path: Path, text: str, what: str
) -> None:
    async with await open_store(tmp_path) as store:
        await upload(store, b"payload")
    (tmp_path / MARKER).write_text(text)
    before = files_of(tmp_path)
    with pytest.raises(Unavailable, match=what) as caught:
        await open_store(tmp_path, read_only_if_needed=True)
    assert str(tmp_path) in caught.value.message
    assert "coregw fsck --repair" in caught.value.message
    assert files_of(tmp_path) == before
    assert serving.run("fsck", "--repair", "--data", tmp_path).returncode == 0
    async with await open_store(tmp_path) as store:
        assert await read(store, multihash_of(b"payload")) == b"payload"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"store":"coregw","format":"1","state":"ready"}',
        '{"store":"other","format":1,"state":"ready"}',
        '{"store":"coregw","fopmat":1,"state":"ready"}',
        '{"store":"coregw","format":1,"state":"half"}',
        '{"store":"coregw","format":1,"state":"\xe4eady"}',
    ],
)
async def test_a_malformed_marker_is_damage(tmp_path: Path, text: str) -> None:
    await (await open_store(tmp_path)).close()
    (tmp_path / MARKER).write_text(text, "latin-1")
    assert isinstance(await refused(tmp_path), StoreDamaged)


async def test_a_store_is_opened_once_at_a_time(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        error = await refused(tmp_path)
        assert isinstance(error, Unavailable)
        assert "in use" in error.message
        assert await upload(store, b"still working")
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


async def test_an_interrupted_creation_is_repeated(tmp_path: Path) -> None:
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
            await put_roots(store, [b"root"])
        async with await open_store(path) as store:
            assert await are_held(store, [b"root"]) == [True]


async def test_a_creation_interrupted_before_its_marker_is_repeated(tmp_path: Path) -> None:
    (tmp_path / (MARKER + ".new")).write_text("{")
    await (await open_store(tmp_path)).close()
    assert {file.relative_to(tmp_path).parts[0] for file in files_of(tmp_path)} == {MARKER, "rocksdb"}


# --- damage -----------------------------------------------------------------------------------------------------------


def killed_with_roots(path: Path) -> None:
    """Make a store with all writes in the log only: 100 roots, and a payload of three chunks after 50 of them."""
    run_until_dead(
        path,
        """
        store = await open_store(path)
        for i in range(100):
            await put_roots(store, [b"root %d" % i], [(b"%032d" % i, b"page %d" % i * 10)])
            if i == 50:
                await upload(store, random.Random(1).randbytes(2 * CHUNK_BYTES + 5))
        die()
        """,
    )


ROOTS = [b"root %d" % i for i in range(100)]


async def test_a_flipped_bit_in_the_log_is_damage_and_salvage_keeps_the_rest(tmp_path: Path) -> None:
    killed_with_roots(tmp_path)
    log = log_file(tmp_path)
    data = random.Random(1).randbytes(2 * CHUNK_BYTES + 5)
    second_chunk = data[CHUNK_BYTES + 100_000 : CHUNK_BYTES + 100_050]
    flip_bit(log, log.read_bytes().index(second_chunk))
    error = await refused(tmp_path)
    assert isinstance(error, StoreDamaged)
    assert isinstance(await refused(tmp_path), StoreDamaged)  # the first attempt did not hide it
    async with await open_store(tmp_path, salvage=True) as store:
        held = await are_held(store, ROOTS)
        assert held[:50] == [True] * 50
        assert await get_pages(store, [b"%032d" % i for i in range(50)]) == [b"page %d" % i * 10 for i in range(50)]
        assert await store.stat_payloads([multihash_of(data)]) == [None]
        assert await upload(store, data)
    async with await open_store(tmp_path) as store:  # salvage is needed once
        assert await read(store, multihash_of(data)) == data


async def test_a_missing_log_is_damage(tmp_path: Path) -> None:
    killed_with_roots(tmp_path)
    for log in (tmp_path / "rocksdb").glob("*.log"):
        log.unlink()
    error = await refused(tmp_path)
    assert isinstance(error, StoreDamaged)
    assert "log" in error.message
    async with await open_store(tmp_path, salvage=True) as store:
        assert await are_held(store, ROOTS) == [False] * 100


async def test_uploads_after_a_lost_log_do_not_mix_with_earlier_ones(tmp_path: Path) -> None:
    run_until_dead(
        tmp_path,
        """
        store = await open_store(path)
        await upload(store, random.Random(1).randbytes(2 * CHUNK_BYTES))
        await store.flush()
        die()
        """,
    )
    for log in (tmp_path / "rocksdb").glob("*.log"):
        log.unlink()
    datas = [random.Random(seed).randbytes(2 * CHUNK_BYTES) for seed in (1, 2)]
    async with await open_store(tmp_path, salvage=True) as store:
        for data in [*datas, datas[0]]:
            await upload(store, data)
            assert await read(store, multihash_of(data)) == data


async def test_a_missing_database_is_damage_and_not_an_empty_store(tmp_path: Path) -> None:
    await (await open_store(tmp_path)).close()
    shutil.rmtree(tmp_path / "rocksdb")
    error = await refused(tmp_path)
    assert isinstance(error, StoreDamaged)
    assert "lost its database" in error.message


async def test_a_missing_current_file_is_damage(tmp_path: Path) -> None:
    await (await open_store(tmp_path)).close()
    (tmp_path / "rocksdb" / "CURRENT").unlink()
    assert isinstance(await refused(tmp_path), StoreDamaged)


async def test_a_flipped_bit_in_an_sst_is_damage_when_it_is_read(tmp_path: Path) -> None:
    data = random_bytes(5000)
    async with await open_store(tmp_path) as store:
        await put_roots(store, [b"root"], [(bytes(32), data)])
    assert flip_bit_in_ssts(tmp_path, data[100:150]) == 1
    async with await open_store(tmp_path) as store:
        with pytest.raises(StoreDamaged, match="damaged"):
            await get_pages(store, [bytes(32)])
        assert await are_held(store, [b"root"]) == [True]


async def test_a_flipped_bit_under_a_listing_is_damage_and_not_a_shorter_listing(tmp_path: Path) -> None:
    rows = [(b"key-%03d" % i, random_bytes(36, i)) for i in range(200)]
    async with await open_store(tmp_path) as store:
        await store.put({Table.RECORDS: rows})
    assert flip_bit_in_ssts(tmp_path, rows[100][1]) == 1
    async with await open_store(tmp_path) as store:
        assert await store.list_rows(Table.RECORDS, b"key", None, 50) == rows[:50]
        with pytest.raises(StoreDamaged):
            await store.list_rows(Table.RECORDS, b"key", None, 200)


async def test_a_missing_sst_is_damage(tmp_path: Path) -> None:
    async with await open_store(tmp_path) as store:
        await upload(store, bytes(5000))
    max((tmp_path / "rocksdb").glob("*.sst"), key=lambda file: file.stat().st_size).unlink()
    assert isinstance(await refused(tmp_path), StoreDamaged)


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("left", [None, b"", b"short"])
async def test_a_missing_or_short_chunk_is_damage(tmp_path: Path, number: int, left: bytes | None) -> None:
    data = random_bytes(2 * CHUNK_BYTES + 100)
    async with await open_store(tmp_path) as store:
        await upload(store, data)
    rewrite(tmp_path, lambda database: [(Family.CHUNKS, chunk_key(upload_of(database, data), number), left)])
    async with await open_store(tmp_path) as store:
        chunks = store.read_payload(multihash_of(data))
        assert b"".join([await anext(chunks) for _ in range(number)]) == data[: number * CHUNK_BYTES]
        with pytest.raises(StoreDamaged, match=f"chunk {number} of 3"):
            await anext(chunks)


async def test_a_malformed_payload_row_is_damage(tmp_path: Path) -> None:
    name = multihash_of(b"data")
    async with await open_store(tmp_path) as store:
        await upload(store, b"data")
    rewrite(tmp_path, lambda _: [(Family.PAYLOADS, name, b"?")])
    async with await open_store(tmp_path) as store:
        with pytest.raises(StoreDamaged, match="1 bytes, not 20"):
            await store.stat_payloads([name])
        with pytest.raises(StoreDamaged, match="1 bytes, not 20"):
            await store.renew(Stored.PAYLOADS, [multihash_of(b"absent"), name], True)
        with pytest.raises(StoreDamaged, match="1 bytes, not 20"):
            await read(store, name)


def rewrite(path: Path, rows: Callable[[Database], list[Write]]) -> None:
    """Write rows into a closed store."""
    database = Database(path, CACHE_BYTES, salvage=False)
    database.write(rows(database))
    database.close()


def upload_of(database: Database, data: bytes) -> bytes:
    """The upload id of a payload."""
    (value,) = database.get(Family.PAYLOADS, [multihash_of(data)])
    assert value is not None
    return PayloadRow.decode(multihash_of(data), value).upload_id
