"""Where backups may be, and what interrupts them."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
from pathlib import Path

import pytest

from backup_support import backed_up, pool, restored
from coregw.errors import CoregwError, InvalidInput, StoreDamaged, Unavailable
from coregw.messages.management import Progress
from coregw.store.rocksdb import RocksStore, open_store
from coregw.upkeep import restore
from coregw.upkeep.backup import Repository, back_up
from rocksdb_support import are_held, put_roots, run_until_dead
from store_payloads import random_bytes, upload
from stored_trees import put_tree

pytestmark = pytest.mark.anyio

MEMORY = Path("/dev/shm")  # noqa: S108 - the file system, not a place for secrets


# --- places -----------------------------------------------------------------------------------------------------------


async def test_a_directory_with_other_files_is_no_destination(store: RocksStore, tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "letters").write_text("dear")
    with pytest.raises(InvalidInput, match="it holds 'letters'"):
        await backed_up(store, place)
    assert [path.name for path in place.iterdir()] == ["letters"]


async def test_the_data_directory_is_no_destination(store: RocksStore, tmp_path: Path) -> None:
    for place in (store.path, store.path / "backups", tmp_path / "data" / ".." / "data" / "backups"):
        with pytest.raises(InvalidInput, match="is in the data directory"):
            await backed_up(store, place)


async def test_a_backup_is_no_place_to_restore_to(store: RocksStore, destination: Path) -> None:
    await backed_up(store, destination)
    before = sorted(destination.rglob("*"))
    for place in (destination, destination / "below", destination / ".." / destination.name / "below"):
        with pytest.raises(InvalidInput, match="is in the backup"):
            await restored(destination, place)
    assert sorted(destination.rglob("*")) == before


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_failed_restore_leaves_no_directory_that_it_has_made(
    store: RocksStore, destination: Path, tmp_path: Path, *, is_there: bool
) -> None:
    await put_tree(store, 100)
    await backed_up(store, destination)
    file = max((destination / "files").rglob("*"), key=lambda each: each.stat().st_size if each.is_file() else 0)
    file.write_bytes(file.read_bytes()[:-1])
    place = tmp_path / "new" / "place"
    if is_there:
        place.mkdir(parents=True)
    with pytest.raises(StoreDamaged):
        await restored(destination, place)
    assert [each.exists() for each in (place, place.parent)] == [is_there] * 2
    assert not is_there or not list(place.iterdir())


async def test_a_restore_that_fails_at_its_end_leaves_nothing(
    store: RocksStore, destination: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_tree(store, 100)
    await backed_up(store, destination)
    place = tmp_path / "place"

    def fail(path: Path) -> None:
        if path == place:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(restore, "sync_path", fail)
    with pytest.raises(Unavailable):
        await restored(destination, place)
    assert not place.exists()
    monkeypatch.undo()
    await restored(destination, place)


async def test_a_path_that_cannot_be_made_is_not_made_in_part(
    store: RocksStore, destination: Path, tmp_path: Path
) -> None:
    await backed_up(store, destination)
    (tmp_path / "loop").symlink_to("loop")
    for place in (tmp_path / "new" / "below" / ("n" * 300), tmp_path / "loop" / "below"):
        with pytest.raises(Unavailable):
            await restored(destination, place)
        with pytest.raises(Unavailable):
            await backed_up(store, place)
    assert not (tmp_path / "new").exists()


async def test_a_directory_without_a_backup_is_no_source(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidInput, match="is not a backup"):
            await restored(place, tmp_path / "copy")


async def test_a_destination_in_use_is_unavailable(store: RocksStore, destination: Path, tmp_path: Path) -> None:
    await backed_up(store, destination)
    with Repository.open(destination).locked(), pytest.raises(Unavailable, match="in use"):
        await backed_up(store, destination)
    with Repository.open(destination).locked(shared=True):
        await restored(destination, tmp_path / "copy")


@pytest.mark.skipif(not MEMORY.is_dir(), reason="needs a second file system")
async def test_a_destination_on_another_file_system(store: RocksStore, tmp_path: Path) -> None:
    destination = MEMORY / f"coregw-backup-{os.getpid()}"
    try:
        await put_tree(store, 100)
        await backed_up(store, destination)
        assert (await backed_up(store, destination)).copied_bytes == 0
        assert destination.stat().st_dev != store.path.stat().st_dev
        await restored(destination, tmp_path / "copy")
    finally:
        shutil.rmtree(destination, ignore_errors=True)


async def test_a_backup_of_a_newer_format_is_refused(store: RocksStore, destination: Path, tmp_path: Path) -> None:
    await backed_up(store, destination)
    marker = destination / "coregw-backup.json"
    marker.write_text(marker.read_text().replace('"format":1', '"format":2'))
    for attempt in (backed_up(store, destination), restored(destination, tmp_path / "copy")):
        with pytest.raises(Unavailable, match="format 2"):
            await attempt


# --- interruptions ----------------------------------------------------------------------------------------------------


async def test_a_cancelled_backup_leaves_the_earlier_ones_and_no_checkpoint(
    store: RocksStore, destination: Path
) -> None:
    await put_tree(store, 100)
    await backed_up(store, destination)
    before = pool(destination)
    await upload(store, random_bytes(5_000_000))
    loop = asyncio.get_running_loop()

    def cancel(progress: Progress) -> None:
        if progress.done > 1_000_000:
            loop.call_soon_threadsafe(task.cancel)

    task = loop.create_task(back_up(store, destination, 7, cancel))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert Repository.open(destination).numbers() == [1]
    assert pool(destination) == before
    assert not (store.path / "checkpoint").exists()
    assert (await backed_up(store, destination)).generation == 2


async def test_a_checkpoint_of_a_killed_process_is_removed_when_the_store_is_opened(tmp_path: Path) -> None:
    run_until_dead(
        tmp_path,
        """
        store = await open_store(path)
        await put_roots(store, [b"root"])
        async with store.checkpoint() as copy:
            assert (copy / "rocksdb" / "CURRENT").is_file()
            die()
        """,
    )
    assert (tmp_path / "checkpoint").is_dir()
    async with await open_store(tmp_path) as store:
        assert not (tmp_path / "checkpoint").exists()
        assert await are_held(store, [b"root"]) == [True]


async def test_there_is_one_checkpoint_at_a_time(store: RocksStore) -> None:
    async with store.checkpoint():
        with pytest.raises(Unavailable, match="has a checkpoint already"):
            async with store.checkpoint():
                pass
    async with store.checkpoint() as path:
        assert path.is_dir()


async def test_backups_go_on_while_the_store_is_written(store: RocksStore, destination: Path, tmp_path: Path) -> None:
    rng = random.Random(1)
    acknowledged: list[bytes] = []

    async def write() -> None:
        while True:
            root = rng.randbytes(36)
            await put_roots(store, [root], [(root[-32:], rng.randbytes(3000))])
            acknowledged.append(root)

    writing = asyncio.create_task(write())
    expected = []
    for _ in range(3):
        await asyncio.sleep(0.05)
        expected.append(list(acknowledged))
        await backed_up(store, destination)
    writing.cancel()
    for number, roots in enumerate(expected, 1):
        repository = Repository.open(destination)
        data = tmp_path / f"copy-{number}"
        for file in repository.generation(number).files:
            (data / file.path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(repository.file(file.sha256), data / file.path)
        async with await open_store(data) as copy:
            assert all(await are_held(copy, roots))
            assert roots


async def test_a_closed_store_cannot_be_backed_up(tmp_path: Path, destination: Path) -> None:
    store = await open_store(tmp_path / "data")
    await store.close()
    with pytest.raises(CoregwError, match="closed"):
        await backed_up(store, destination)
