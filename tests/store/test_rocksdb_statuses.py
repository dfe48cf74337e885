"""RocksDB's statuses, provoked in the real library, as coregw's exceptions.

Corrupt and missing files are in `test_rocksdb_damage.py`, files that cannot grow in `test_rocksdb_commit.py`.
"""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

from coregw.errors import CoregwError, StorageFull, StoreDamaged, Unavailable
from coregw.store import CHUNK_BYTES
from coregw.store.rocksdb import CACHE_BYTES
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.layout import Family
from coregw.store.rocksdb.mark import Extent, HighWaterMarkFile, read_mark, require_durable
from coregw.store.rocksdb.options import translated
from store_payloads import random_bytes
from tables import rows


def test_writes_wait_until_rocksdb_stalls_no_more(tmp_path: Path) -> None:
    # Most of these writes are stalled at first: they fill memtables faster than a disk takes them.
    database = Database(tmp_path, CACHE_BYTES, salvage=False)
    chunk = random_bytes(CHUNK_BYTES)
    keys = [b"%016d" % i for i in range(60)]
    for key in keys:
        database.write([(Family.CHUNKS, key, chunk)])
    assert database.get(Family.CHUNKS, keys) == [chunk] * 60
    database.close()


def test_a_second_open_is_unavailable(tmp_path: Path) -> None:
    database = Database(tmp_path, CACHE_BYTES, salvage=False)
    with pytest.raises(Unavailable, match="in use by another process, or opened twice by this one"):
        Database(tmp_path, CACHE_BYTES, salvage=False)
    database.close()


def test_the_files_of_a_store_that_is_open_are_not_taken_for_damaged(tmp_path: Path) -> None:
    database = Database(tmp_path, CACHE_BYTES, salvage=False)
    database.write([(Family.RECORDS, b"a", b"1")])
    database.sync()
    rocksdb = tmp_path / "rocksdb"
    durable = read_mark(rocksdb)
    assert durable is not None
    # As another process may read it that opens the store while a log is removed.
    removed = durable._replace(logs=(Extent(durable.newest.number + 1000, 10),))
    HighWaterMarkFile.create(rocksdb, removed).close()
    with pytest.raises(StoreDamaged, match="missing"):
        require_durable(rocksdb)
    for _ in range(2):
        with pytest.raises(Unavailable, match="in use by another process, or opened twice by this one"):
            Database(tmp_path, CACHE_BYTES, salvage=False)
        with pytest.raises(Unavailable, match="in use by another process, or opened twice by this one"):
            Database(tmp_path, CACHE_BYTES, read_only_if_needed=True)
    database.refresh_mark()
    database.close()


def test_a_database_that_was_not_closed_is_not_locked_when_it_is_gone(tmp_path: Path) -> None:
    database = Database(tmp_path, CACHE_BYTES)
    del database
    gc.collect()
    Database(tmp_path, CACHE_BYTES).close()


def test_a_closed_database_is_unavailable(tmp_path: Path) -> None:
    database = Database(tmp_path, CACHE_BYTES, salvage=False)
    database.close()
    with pytest.raises(Unavailable, match="closed"):
        database.sync()


@rows(
    ("text", "kind"),
    [
        ("IO error: No space left on device: While appending to file: /x/000012.log", StorageFull),
        ("IO error: Disk quota exceeded: While appending to file: /x/000012.log", StorageFull),
        ("Corruption: block checksum mismatch in /x/000012.sst", StoreDamaged),
        ("a status of a later version", Unavailable),
    ],
)
def test_a_status_that_cannot_be_provoked_here_is_known_by_its_text(text: str, kind: type[CoregwError]) -> None:
    with pytest.raises(CoregwError) as caught, translated(Path("/x")):
        raise Exception(text)
    assert type(caught.value) is kind


def test_errors_that_are_not_rocksdicts_pass_through() -> None:
    with pytest.raises(ZeroDivisionError), translated(Path("/x")):
        raise ZeroDivisionError
    with pytest.raises(StorageFull), translated(Path("/x")):
        raise StorageFull("no room")
