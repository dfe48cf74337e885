"""RocksDB's statuses, provoked in the real library, as coregw's exceptions.

Corrupt and missing files are in `test_rocksdb_damage.py`, files that cannot grow in `test_rocksdb_commit.py`.
"""

from __future__ import annotations

import errno
import gc
import os
import subprocess
import sys
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


def test_a_process_that_was_forked_does_not_keep_a_closed_store_locked(tmp_path: Path) -> None:
    script = """
import os, sys
from pathlib import Path
from coregw.store.rocksdb import CACHE_BYTES
from coregw.store.rocksdb.database import Database

path = Path(sys.argv[1])
database = Database(path, CACHE_BYTES)
end, hold = os.pipe()
if os.fork() == 0:
    os.close(hold)
    os.read(end, 1)
    os._exit(0)
os.close(end)
database.close()
Database(path, CACHE_BYTES).close()
os.close(hold)
os.wait()
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)


def test_a_directory_that_may_not_be_listed_is_opened_under_the_lock_of_rocksdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Database(tmp_path, CACHE_BYTES).close()
    opened = os.open

    def refusing(path: Path, *options: int) -> int:
        if path == tmp_path:
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, *options)

    monkeypatch.setattr("coregw.store.rocksdb.directory.os.open", refusing)
    database = Database(tmp_path, CACHE_BYTES)
    with pytest.raises(Unavailable, match="in use by another process"):
        Database(tmp_path, CACHE_BYTES)
    database.close()


def test_no_log_is_cut_off_while_another_process_has_the_lock_of_rocksdb(tmp_path: Path) -> None:
    Database(tmp_path, CACHE_BYTES).close()
    rocksdb = tmp_path / "rocksdb"
    durable = read_mark(rocksdb)
    assert durable is not None
    HighWaterMarkFile.create(rocksdb, durable._replace(logs=(Extent(durable.newest.number + 1000, 10),))).close()
    holder = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX)
    print("locked", flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", holder, str(rocksdb / "LOCK")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(Unavailable, match="in use by another process"):
            Database(tmp_path, CACHE_BYTES)
    with pytest.raises(StoreDamaged, match="missing"):
        Database(tmp_path, CACHE_BYTES)


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
