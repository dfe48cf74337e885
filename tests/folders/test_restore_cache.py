"""The cache of a restored folder: what it knows, and that damage of any kind makes it know nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coregw import payload_cid
from coregw.folders.caches import RestoreCache, cache_file, cache_folder, state_of

TARGET, OTHER = payload_cid(b"target"), payload_cid(b"other")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def status(tmp_path: Path) -> os.stat_result:
    (tmp_path / "file").write_bytes(b"bytes")
    return (tmp_path / "file").stat()


def saved(folder: Path, status: os.stat_result, before: int) -> bytes:
    cache = RestoreCache.of(folder)
    for number in range(3):
        cache.add([(f"other {number}", state_of(status), OTHER)])
    cache.add([("a/b", state_of(status), TARGET), ("c", state_of(status), OTHER)])
    cache.save(before)
    return cache_file(folder, "restored").read_bytes()


def test_a_file_is_known_by_its_whole_state(tmp_path: Path, status: os.stat_result) -> None:
    saved(tmp_path, status, max(status.st_mtime_ns, status.st_ctime_ns) + 1)
    found = RestoreCache.of(tmp_path)
    assert found.find("a/b", status) == TARGET
    assert found.find("c", status) == OTHER
    assert found.find("a", status) is None
    (tmp_path / "other").write_bytes(b"bytes")
    assert found.find("a/b", (tmp_path / "other").stat()) is None
    assert list((cache_folder() / "stat").iterdir()) == [cache_file(tmp_path, "restored")]


def test_times_that_a_later_change_could_have_are_not_known(tmp_path: Path, status: os.stat_result) -> None:
    saved(tmp_path, status, max(status.st_mtime_ns, status.st_ctime_ns))
    assert RestoreCache.of(tmp_path).find("a/b", status) is None


def test_a_damaged_cache_or_one_of_another_folder_knows_nothing(tmp_path: Path, status: os.stat_result) -> None:
    content = saved(tmp_path, status, max(status.st_mtime_ns, status.st_ctime_ns) + 1)
    file = cache_file(tmp_path, "restored")
    for at in range(len(content)):
        file.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        assert RestoreCache.of(tmp_path).find("a/b", status) is None
        file.write_bytes(content[:at])
        assert RestoreCache.of(tmp_path).find("a/b", status) is None
    cache_file(tmp_path / "other", "restored").write_bytes(content)
    assert RestoreCache.of(tmp_path / "other").find("a/b", status) is None


def test_a_cache_that_is_not_kept_writes_nothing(tmp_path: Path, status: os.stat_result) -> None:
    cache = RestoreCache.none()
    cache.add([("a/b", state_of(status), TARGET)])
    cache.save(1 << 62)
    assert not cache.is_kept
    assert not (tmp_path / "cache").exists()


def test_a_cache_that_is_not_saved_leaves_the_last_one(tmp_path: Path, status: os.stat_result) -> None:
    content = saved(tmp_path, status, max(status.st_mtime_ns, status.st_ctime_ns) + 1)
    cache = RestoreCache.of(tmp_path)
    cache.add([("a/b", state_of(status), OTHER)])
    cache.discard()
    file = cache_file(tmp_path, "restored")
    assert file.read_bytes() == content
    assert list(file.parent.iterdir()) == [file]
