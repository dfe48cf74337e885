"""The cache of files' states: an unchanged file is not read again, and no doubtful one is taken for unchanged."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import coregw
from coregw import _core
from coregw.client.folders.local import LocalFolder
from coregw.folders.stat_cache import StatCache, cache_folder
from coregw.folders.survey import survey

CHUNK_BYTES = 256 << 10

NAMES = ["a", "b/c", "large", "same"]
OLD = 1_000_000_000_000_000_000


@pytest.fixture(autouse=True)
def reads(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The names of the files that were read, in a new cache."""
    names: list[str] = []
    real = _core.hash_files

    def counted(files: list[Path], suite: str, progress: Callable[[int], None]) -> list[_core.HashedFile]:
        names.extend(file.name for file in files)
        return real(files, suite, progress)

    monkeypatch.setattr(_core, "hash_files", counted)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    return names


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    for name in NAMES:
        (tmp_path / name).write_bytes(b"x" * (CHUNK_BYTES + 1) if name == "large" else b"y")
    return tmp_path


def age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the files of the test be old when they are read."""
    monkeypatch.setattr("coregw.folders.stat_cache.RACY_NANOSECONDS", -(10**12))


def hashed(tree: Path, suite: str = "sha2-256", options: str = "") -> LocalFolder:
    """Read a tree with its cache, and write the cache."""
    folder = LocalFolder(survey(tree), suite, StatCache.of(tree, suite + options), lambda count: None)
    folder.read_all()
    folder.save(coregw.Map(folder.arcs, suite).root, None, {})
    return folder


def test_only_files_that_have_changed_are_read(tree: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    age(monkeypatch)
    before = hashed(tree)
    assert sorted(reads) == ["a", "c", "large", "same"]
    reads.clear()
    again = hashed(tree)
    assert reads == []
    assert (again.arcs, again.bytes) == (before.arcs, before.bytes)
    assert StatCache.of(tree, "sha2-256").root == coregw.hash_tree(tree, attributes="none")
    reads.clear()
    large = again.arcs["large"]
    assert again.contents[large].chunks is None
    assert again.learn_chunks([large]) == []
    assert [part[1:3] for part in again.contents[large].parts()] == [(0, CHUNK_BYTES), (CHUNK_BYTES, 1)]
    reads.clear()
    (tree / "a").write_bytes(b"z")
    os.utime(tree / "b/c", ns=(OLD, OLD))
    (tree / "same").unlink()
    (tree / "new").write_bytes(b"n")
    changed = hashed(tree)
    assert sorted(reads) == ["a", "c", "new"]
    assert changed.arcs["a"] == coregw.payload_cid(b"z")
    assert sorted(changed.arcs) == ["a", "b/c", "large", "new"]


def test_a_file_replaced_with_the_same_size_and_times_is_read(
    tree: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    age(monkeypatch)
    os.utime(tree / "a", ns=(OLD, OLD))
    hashed(tree)
    reads.clear()
    (tree / "a").write_bytes(b"z")  # another time of change, which nobody can set
    os.utime(tree / "a", ns=(OLD, OLD))
    assert hashed(tree).arcs["a"] == coregw.payload_cid(b"z")
    assert reads == ["a"]


def test_a_file_that_changed_just_before_it_was_read_is_read_again(tree: Path, reads: list[str]) -> None:
    hashed(tree)
    hashed(tree)
    assert sorted(reads) == sorted(["a", "c", "large", "same"] * 2)


@pytest.mark.parametrize("damage", ["a bit", "cut", "empty", "of another folder", "gone", "another version"])
def test_a_cache_that_is_damaged_or_of_another_folder_is_ignored(
    tree: Path, reads: list[str], damage: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    age(monkeypatch)
    hashed(tree)
    (file,) = (cache_folder() / "stat").iterdir()
    data = file.read_bytes()
    match damage:
        case "a bit":
            file.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        case "cut":
            file.write_bytes(data[:-1])
        case "empty":
            file.write_bytes(b"")
        case "of another folder":
            other = tmp_path_factory.mktemp("other")
            (other / "a").write_bytes(b"another")
            hashed(other)
            (theirs,) = (each for each in file.parent.iterdir() if each != file)
            theirs.replace(file)
        case "gone":
            file.unlink()
        case _:
            file.write_bytes(data.replace(b"stat 3", b"stat 4", 1))
    reads.clear()
    assert hashed(tree).arcs["a"] == coregw.payload_cid(b"y")
    assert sorted(reads) == ["a", "c", "large", "same"]


def test_other_options_have_another_cache(tree: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    age(monkeypatch)
    hashed(tree)
    reads.clear()
    hashed(tree, "blake3")
    assert len(reads) == 4
    hashed(tree, options=" other")
    assert len(reads) == 8


def test_a_cache_that_cannot_be_written_is_no_failure(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert sorted(hashed(tree).arcs) == ["a", "b/c", "blocked", "large", "same"]
