"""Claims in the logs: damage to what was acknowledged after the mark was synced last is noticed, as far as it can be.

A power cut leaves a mark that may be a second old. Here that is a copy of the mark, put back after the process died.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from coregw.errors import StoreDamaged
from coregw.store.rocksdb import open_store
from coregw.store.rocksdb.mark import (
    MARK,
    Durable,
    Extent,
    HighWaterMarkFile,
    claims,
    encode_claim,
    read_mark,
    require_durable,
)
from coregw.store.rocksdb.wal import log_checksum, read_log
from rocksdb_support import are_held, log_file, put_roots, run_until_dead

pytestmark = pytest.mark.anyio

ROOTS = [b"root %d" % i for i in range(30)]
MARKED = 10
"""So many of them were acknowledged when the mark was synced last."""


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as a power cut leaves it: the mark is older than the last acknowledged writes. Never opened since."""
    path = tmp_path_factory.mktemp("cut") / "store"
    run_until_dead(
        path,
        f"""
        import shutil
        store = await open_store(path)
        for i in range({len(ROOTS)}):
            await put_roots(store, [b"root %d" % i], [(b"%032d" % i, random.Random(i).randbytes(3000))])
            if i == {MARKED} - 1:
                shutil.copy(path + "/rocksdb/{MARK}", path + "/old")
        die()
        """,
    )
    (path / "old").rename(path / "rocksdb" / MARK)
    return path


@pytest.fixture
def copy(cut: Path, tmp_path: Path) -> Path:
    shutil.copytree(cut, tmp_path / "copy")
    return tmp_path / "copy"


def entries(path: Path) -> list[int]:
    """Where the entries of the newest log begin that the mark does not cover: one for each root, in order."""
    mark = read_mark(path / "rocksdb")
    assert mark is not None
    data = log_file(path).read_bytes()
    found = [record.start for record in read_log(memoryview(data), "", [], start=mark.logs[-1].size)]
    assert len(found) == len(ROOTS) - MARKED
    return found


def overwrite(path: Path, start: int, how: str) -> None:
    """Damage the entry that begins at `start` of the newest log."""
    data = bytearray(log_file(path).read_bytes())
    if how == "flip":
        data[start + 500] ^= 4
    elif how == "zeroed":
        data[start : start + 7] = bytes(7)
    elif how == "too long":
        data[start + 5] ^= 0x70
    elif how == "recycled":
        data[start + 6] ^= 4
    else:
        data[start : start + 4096] = bytes(4096)
    log_file(path).write_bytes(data)


@pytest.mark.parametrize("how", ["flip", "zeroed", "too long", "recycled", "page"])
@pytest.mark.parametrize("entry", [0, 7, len(ROOTS) - MARKED - 3])
async def test_damage_that_a_later_batch_covers_is_noticed(copy: Path, how: str, entry: int) -> None:
    overwrite(copy, entries(copy)[entry], how)
    with pytest.raises(StoreDamaged, match="a later write says") as caught:
        await open_store(copy)
    assert log_file(copy).name in caught.value.message
    async with await open_store(copy, read_only_if_needed=True) as store:
        assert not await store.healthy()
    if how == "recycled":  # RocksDB would read such a record forever
        with pytest.raises(StoreDamaged, match="unknown kind"):
            await open_store(copy, salvage=True)


async def test_nothing_is_refused_without_damage(copy: Path) -> None:
    require_durable(copy / "rocksdb")
    async with await open_store(copy) as store:
        assert all(await are_held(store, ROOTS))


async def test_the_last_batch_cannot_be_told_from_a_torn_one(copy: Path) -> None:
    overwrite(copy, entries(copy)[-1], "flip")
    async with await open_store(copy) as store:
        assert await are_held(store, ROOTS) == [True] * (len(ROOTS) - 1) + [False]


async def test_torn_writes_are_dropped_whatever_follows_them(tmp_path: Path) -> None:
    # Without a sync in between, the claims of later batches do not cover earlier ones.
    run_until_dead(
        tmp_path,
        """
        store = await open_store(path)
        await put_roots(store, [b"root"])
        for i in range(20):
            await put_pages(store, [(b"%032d" % i, random.Random(i).randbytes(3000))])
        die()
        """,
    )
    mark = read_mark(tmp_path / "rocksdb")
    assert mark is not None
    overwrite(tmp_path, mark.logs[-1].size, "flip")
    async with await open_store(tmp_path) as store:
        assert await are_held(store, [b"root"]) == [True]


async def test_a_log_is_known_to_the_mark_since_its_first_acknowledged_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await open_store(tmp_path) as store:
        synced: list[Durable] = []
        write = HighWaterMarkFile.write

        def noted(self: HighWaterMarkFile, durable: Durable) -> None:
            write(self, durable)
            synced.append(durable)

        monkeypatch.setattr(HighWaterMarkFile, "write", noted)
        monkeypatch.setattr(HighWaterMarkFile, "sync", lambda self: synced.append(synced[-1]))
        before = log_file(tmp_path)
        await put_roots(store, [b"root"])
        await store.flush()
        await put_roots(store, [b"another log"])
        assert log_file(tmp_path) != before
        assert synced[-1] is synced[-2]
        assert synced[-1].logs[-1] == Extent(int(log_file(tmp_path).stem), log_file(tmp_path).stat().st_size)
        monkeypatch.undo()


# --- the claims themselves --------------------------------------------------------------------------------------------


def record(data: bytes) -> bytes:
    """A log's record with this content."""
    kind = 1
    return log_checksum(kind, memoryview(data)).to_bytes(4, "little") + len(data).to_bytes(2, "little") + b"\1" + data


def batch(value: bytes, rest: bytes = b"") -> bytes:
    """A batch that begins with a claim."""
    return bytes(8) + b"\2\0\0\0" + b"\1\5claim" + bytes([len(value)]) + value + rest


def test_claims_are_found_after_damage_and_only_those_of_the_session() -> None:
    mine, other = random.Random(1).randbytes(16), bytes(16)
    genuine = record(batch(encode_claim(mine, Extent(7, 123))))
    forged = record(batch(encode_claim(other, Extent(7, 99_999))))
    row = b"\1\3key" + bytes([len(forged)]) + forged
    log = genuine + record(batch(encode_claim(mine, Extent(7, 200)), row)) + genuine
    assert list(claims(log, 0, mine)) == [Extent(7, 123), Extent(7, 200), Extent(7, 123)]
    torn = bytearray(log)
    torn[len(genuine) + 20] ^= 1  # the payload with the forged record is searched for records now
    assert list(claims(bytes(torn), 0, mine)) == [Extent(7, 123), Extent(7, 123)]
    assert list(claims(bytes(torn), len(genuine), mine)) == [Extent(7, 123)]
    assert Extent(7, 99_999) in list(claims(bytes(torn), 0, other))


def test_a_mark_without_a_session_is_read(tmp_path: Path) -> None:
    durable = Durable(Extent(1, 2), (Extent(3, 4),))
    HighWaterMarkFile.create(tmp_path, durable).close()
    assert read_mark(tmp_path) == durable
    file = HighWaterMarkFile.create(tmp_path, durable._replace(session=b"s" * 16))
    file.close()
    assert read_mark(tmp_path) == durable._replace(session=b"s" * 16)
