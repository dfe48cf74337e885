"""Backups of a RocksDB store: complete, incremental, checked, and harmless to the backups before them."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from backup_support import backed_up, largest, pool, restored, silent, verified
from coregw.errors import InvalidInput, NotFound, StoreDamaged
from coregw.store import Table
from coregw.store.collection import Identity
from coregw.store.rocksdb import RocksStore, open_store
from coregw.upkeep.backup import Repository, Track, back_up
from coregw.upkeep.restore import restore
from rocksdb_support import are_held, flip_bit
from store_payloads import multihash_of, random_bytes, read, upload
from stored_trees import put_tree

pytestmark = pytest.mark.anyio


# --- what a backup contains -------------------------------------------------------------------------------------------


async def test_a_backup_has_what_was_acknowledged_before_it_and_nothing_later(
    store: RocksStore, destination: Path, tmp_path: Path
) -> None:
    payload = random_bytes(2_500_000)
    root = await put_tree(store, 500)
    await upload(store, payload)
    await store.put({Table.RECORDS: [(b"record", b"value")]})
    first = await backed_up(store, destination)
    later = await put_tree(store, 600)
    second = await backed_up(store, destination)
    assert (first.generation, second.generation) == (1, 2)
    for number, expected in ((1, [True, False]), (None, [True, True])):
        data = tmp_path / f"restored-{number}"
        found = await restored(destination, data, number)
        assert (found.generation, found.roots, found.payloads) == (number or 2, sum(expected), 1)
        async with await open_store(data) as copy:
            assert await are_held(copy, [root, later]) == expected
            assert await read(copy, multihash_of(payload)) == payload
            assert await copy.get(Table.RECORDS, [b"record"]) == [b"value"]


async def test_a_restored_store_is_a_store_of_its_own(store: RocksStore, destination: Path, tmp_path: Path) -> None:
    await put_tree(store, 100)
    await backed_up(store, destination)
    await restored(destination, tmp_path / "copy")
    async with await open_store(tmp_path / "copy") as copy:
        await upload(copy, random_bytes(2_000_000, 1))
        await upload(store, random_bytes(2_000_000, 2))
        assert await copy.stat_payloads([multihash_of(random_bytes(2_000_000, 2))]) == [None]
    assert sorted(path.name for path in (tmp_path / "copy").iterdir()) == ["coregw-store.json", "rocksdb"]
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o700


async def test_a_repository_is_of_one_store_and_of_one_incarnation_of_it(
    store: RocksStore, destination: Path, tmp_path: Path
) -> None:
    await put_tree(store, 100)
    await backed_up(store, destination)
    assert store.identity is not None
    marker = json.loads((destination / "coregw-backup.json").read_bytes())
    assert (marker["store"], marker["incarnation"]) == tuple(map(str, store.identity))
    made = Repository.open(destination).newest()
    assert (made.store, made.incarnation) == store.identity
    before = sorted(destination.rglob("*"))
    async with await open_store(tmp_path / "other") as other:
        for adopt in (False, True):
            with pytest.raises(InvalidInput, match=f"the backups of another store .*{store.identity.store}"):
                await back_up(other, destination, 1, silent, adopt=adopt)
    assert sorted(destination.rglob("*")) == before
    await restored(destination, tmp_path / "copy")
    async with await open_store(tmp_path / "copy") as copy:
        assert copy.identity is not None
        assert copy.identity.store == store.identity.store
        assert copy.identity.incarnation != store.identity.incarnation
        with pytest.raises(
            InvalidInput, match=f"another incarnation of this store .*{store.identity.incarnation}.*adopt"
        ):
            await backed_up(copy, destination)
        assert sorted(destination.rglob("*")) == before
        assert (await back_up(copy, destination, 7, silent, adopt=True)).generation == 2
        assert (await backed_up(copy, destination)).generation == 3
    with pytest.raises(InvalidInput, match="another incarnation"):
        await backed_up(store, destination)


async def test_a_repository_of_an_earlier_version_is_that_of_the_first_store_that_comes(
    store: RocksStore, destination: Path, tmp_path: Path
) -> None:
    await backed_up(store, destination)
    (destination / "coregw-backup.json").write_text('{"backup":"coregw","format":1}\n')
    async with await open_store(tmp_path / "other") as other:
        await backed_up(other, destination)
        await backed_up(other, destination)
    with pytest.raises(InvalidInput, match="another store"):
        await backed_up(store, destination)


# --- incremental ------------------------------------------------------------------------------------------------------


async def test_table_files_that_the_repository_has_are_not_copied_again(store: RocksStore, destination: Path) -> None:
    await upload(store, random_bytes(3_000_000))
    first = await backed_up(store, destination)
    before = pool(destination)
    await put_tree(store, 10)
    second = await backed_up(store, destination)
    assert first.copied_bytes == first.size_bytes > 3_000_000
    assert second.size_bytes > 3_000_000
    assert second.copied_bytes < 100_000
    after = pool(destination)
    assert before.items() <= after.items()


async def test_a_backup_of_a_restored_store_copies_no_table_files(
    store: RocksStore, destination: Path, tmp_path: Path
) -> None:
    await upload(store, random_bytes(3_000_000))
    await backed_up(store, destination)
    await restored(destination, tmp_path / "copy")
    async with await open_store(tmp_path / "copy") as copy:
        assert (await back_up(copy, destination, 7, silent, adopt=True)).copied_bytes < 100_000


async def test_files_of_two_incarnations_with_the_same_names_do_not_mix(
    store: RocksStore, destination: Path, tmp_path: Path
) -> None:
    assert store.identity is not None
    async with await open_store(tmp_path / "other") as other:
        await other.identify(Identity.new(store.identity.store))
        roots = [await put_tree(each, count) for each, count in ((store, 300), (other, 301))]
        for each in (store, other, store, other):
            await back_up(each, destination, 7, silent, adopt=True)
    for number in (1, 2, 3, 4):
        data = tmp_path / f"restored-{number}"
        await restored(destination, data, number)
        async with await open_store(data) as copy:
            assert await are_held(copy, roots) == [number % 2 == 1, number % 2 == 0]


async def test_old_generations_are_removed_with_the_files_that_only_they_have(
    store: RocksStore, destination: Path
) -> None:
    for count in range(1, 5):
        await put_tree(store, 300 + count)
        last = await backed_up(store, destination, keep=2)
    repository = Repository.open(destination)
    assert repository.numbers() == [3, 4]
    assert last.kept_generations == 2
    assert last.freed_bytes > 0
    assert {file.sha256 for file in repository.stored()} == {file.name for file in (destination / "files").iterdir()}
    assert (await verified(destination)).generations == 2


# --- damage -----------------------------------------------------------------------------------------------------------


async def test_a_flipped_bit_is_found_and_named_and_nothing_is_restored(
    store: RocksStore, destination: Path, tmp_path: Path
) -> None:
    await upload(store, random_bytes(2_000_000))
    await backed_up(store, destination)
    damaged = largest(destination)
    flip_bit(damaged, 1_000_000)
    with pytest.raises(StoreDamaged, match=damaged.name):
        await verified(destination)
    with pytest.raises(StoreDamaged, match=damaged.name):
        await restored(destination, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


async def test_a_deleted_file_is_stored_again_by_the_next_backup(store: RocksStore, destination: Path) -> None:
    await upload(store, random_bytes(2_000_000))
    await backed_up(store, destination)
    largest(destination).unlink()
    with pytest.raises(StoreDamaged, match="is missing"):
        await verified(destination)
    await backed_up(store, destination)
    assert (await verified(destination)).generations == 2


async def test_a_damaged_manifest_is_found_and_the_other_generations_stay(
    store: RocksStore, destination: Path, tmp_path: Path
) -> None:
    await put_tree(store, 100)
    for _ in range(2):
        await backed_up(store, destination)
    manifest = destination / "generations" / "000002.json"
    flip_bit(manifest, 50)
    for attempt in (verified(destination), restored(destination, tmp_path / "copy")):
        with pytest.raises(StoreDamaged, match="checksum"):
            await attempt
    await restored(destination, tmp_path / "first", 1)
    third = await backed_up(store, destination)
    assert third.freed_bytes == 0  # what the damaged manifest names may be wanted
    await restored(destination, tmp_path / "third", 3)


async def test_a_manifest_cannot_name_a_file_elsewhere(store: RocksStore, destination: Path, tmp_path: Path) -> None:
    import hashlib

    await backed_up(store, destination)
    manifest = destination / "generations" / "000001.json"
    for path in ("../escaped", "/escaped", "rocksdb/../../escaped", ""):
        content = json.loads(manifest.read_bytes().splitlines()[0])
        content["files"][0]["path"] = path
        line = json.dumps(content).encode()
        manifest.write_bytes(line + b"\n" + hashlib.sha256(line).hexdigest().encode() + b"\n")
        with pytest.raises(StoreDamaged, match="no store has"):
            await restored(destination, tmp_path / "copy")


@pytest.mark.parametrize("place", ["files", "generations", "coregw-backup.json"])
@pytest.mark.parametrize("instead", ["pipe", "device", "endless"])
async def test_what_is_no_file_of_a_backup_is_not_read(
    store: RocksStore, destination: Path, tmp_path: Path, place: str, instead: str
) -> None:
    await upload(store, random_bytes(2_000_000))
    await backed_up(store, destination)
    file = destination / place
    if file.is_dir():
        file = largest(destination) if place == "files" else file / "000001.json"
    file.unlink()
    if instead == "pipe":
        os.mkfifo(file)
    elif instead == "device":
        file.symlink_to("/dev/zero")
    else:
        with file.open("wb") as opened:
            opened.truncate(1 << 40)  # has no blocks on the disk, but its copy would fill it
    for attempt in (verified(destination), restored(destination, tmp_path / "copy")):
        with pytest.raises((StoreDamaged, InvalidInput)) as caught:
            await asyncio.wait_for(attempt, 120)
        assert str(file) in caught.value.message or "is not a backup" in caught.value.message
    if place == "files":
        await backed_up(store, destination)  # copies it again
        await verified(destination)


async def test_a_page_that_does_not_match_its_digest_fails_the_check(
    store: RocksStore, destination: Path, tmp_path: Path
) -> None:
    await put_tree(store, 100)
    await store.put({Table.PAGES: [(bytes(32), b"no page")]})
    await backed_up(store, destination)
    for attempt in (verified(destination), restored(destination, tmp_path / "copy")):
        with pytest.raises(StoreDamaged, match=r"the store in this backup is damaged.*does not match its digest"):
            await attempt
    quick = await asyncio.to_thread(restore, destination, tmp_path / "copy", None, Track(silent), quick=True)
    assert quick.pages is None
    async with await open_store(tmp_path / "copy") as copy:
        assert await copy.get(Table.PAGES, [bytes(32)]) == [b"no page"]


async def test_a_payload_that_does_not_match_its_multihash_fails_the_check(
    store: RocksStore, destination: Path
) -> None:
    await store.put_payloads([(multihash_of(b"one"), b"two")])
    await backed_up(store, destination)
    with pytest.raises(StoreDamaged, match="damaged payload"):
        await verified(destination)


# --- restoring --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("held", ["file", "store"])
async def test_a_directory_that_is_not_empty_is_refused_and_unchanged(
    store: RocksStore, destination: Path, tmp_path: Path, held: str
) -> None:
    await put_tree(store, 10)
    await backed_up(store, destination)
    data = tmp_path / "taken"
    if held == "store":
        await (await open_store(data)).close()
    else:
        data.mkdir()
        (data / "letters.txt").write_text("dear")
    before = sorted(data.rglob("*"))
    with pytest.raises(InvalidInput, match="is not empty"):
        await restored(destination, data)
    assert sorted(data.rglob("*")) == before


@pytest.mark.parametrize("moved", [False, True])
async def test_what_a_killed_restore_leaves_is_no_store_and_is_replaced_by_the_next(
    store: RocksStore, destination: Path, tmp_path: Path, moved: bool
) -> None:
    root = await put_tree(store, 10)
    await backed_up(store, destination)
    data = tmp_path / "copy"
    await restored(destination, data)
    (data / "restoring").mkdir()
    for name in ["coregw-store.json"] if moved else ["coregw-store.json", "rocksdb"]:
        (data / name).rename(data / "restoring" / name)
    with pytest.raises(InvalidInput, match="not a coregw store"):
        await open_store(data)
    await restored(destination, data)
    async with await open_store(data) as copy:
        assert await are_held(copy, [root]) == [True]


async def test_a_generation_that_does_not_exist_is_named_with_those_that_do(
    store: RocksStore, destination: Path, tmp_path: Path
) -> None:
    await backed_up(store, destination)
    with pytest.raises(NotFound, match="no generation 5; it has 1"):
        await restored(destination, tmp_path / "copy", 5)
    assert not (tmp_path / "copy").exists()
