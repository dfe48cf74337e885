"""The cache of files' states: an unchanged file is not read again, and no doubtful one is taken for unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

import pytest

import coregw
from coregw import _core
from coregw.folders.caches import UploadCache, cache_folder
from coregw.folders.tree import ALL, Level, Recorded, survey

CHUNK_BYTES = 256 << 10

NAMES = ["a", "b/c", "large", "same"]
OLD = 1_000_000_000_000_000_000


@pytest.fixture(autouse=True)
def caches(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A new folder for caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    for name in NAMES:
        (tmp_path / name).write_bytes(b"x" * (CHUNK_BYTES + 1) if name == "large" else b"y")
    return tmp_path


def age(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the files of the test be old when they are read."""
    monkeypatch.setattr("coregw.folders.caches.RACY_NANOSECONDS", -(10**12))


def read(tree: Path, suite: str = "sha2-256", options: str = "", recorded: Recorded = ALL) -> _core.FolderUpload:
    """Read a tree with its cache, and write the cache."""
    cache = UploadCache.of(tree, suite + options)
    upload = cache.upload(survey(tree), suite)
    upload.start()
    while not upload.is_read:
        upload.next_batch(0.05)
    cache.save(upload, upload.roots(recorded.attributes), recorded)
    return upload


def test_only_files_that_have_changed_are_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    age(monkeypatch)
    before = read(tree)
    assert (before.files_read, before.cached_root, before.changes("all", False, 100)) == (4, None, None)
    again = read(tree)
    assert again.files_read == 0
    assert (again.arcs(), again.totals()) == (before.arcs(), before.totals())
    assert again.totals() == (4, 1, CHUNK_BYTES + 4)
    assert (again.cached_root, again.cached_attributes) == again.roots() == before.roots()
    assert again.cached_root == coregw.hash_tree(tree)
    assert again.changes("all", False, 0) == ([], [])
    (tree / "a").write_bytes(b"z")
    os.utime(tree / "b/c", ns=(OLD, OLD))
    (tree / "same").unlink()
    (tree / "b.d").write_bytes(b"n")
    (tree / "link").symlink_to("a")
    changed = read(tree)
    assert changed.files_read == 3
    z, y, n = map(coregw.payload_cid, (b"z", b"y", b"n"))
    assert changed.arcs() == {"a": z, "b/c": y, "b.d": n, "large": before.arcs()["large"]}
    found = changed.changes("all", False, 100)
    assert found is not None
    assert found[0] == [("a", y, z), ("b.d", None, n), ("same", y, None)]
    assert [path for path, *_ in found[1]] == ["a", "b/c", "b.d", "link", "same"]
    assert {path: after for path, _, after in found[1]} == dict(records(changed)) | {"same": None}
    assert changed.changes("none", False, 3) == (found[0], [])
    assert changed.changes("all", False, 7) is None


def records(upload: _core.FolderUpload) -> Iterator[tuple[str, str]]:
    """The arcs of the map of attributes of the paths that the test changes."""
    for path, target in map(json.loads, b"".join(upload.record_lines("all", False, 100)).splitlines()):
        if path in ("a", "b/c", "b.d", "link"):
            yield path, target


def test_a_path_comes_after_the_folder_above_it_and_before_that_folders_siblings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(monkeypatch)
    paths = ["a/b/c", "a/b.c", "a/b c", "a.b", "a b/c", "a-b", "a0", "z", "z.a", "ü/ü", "ü.ü"]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    read(tmp_path)
    assert read(tmp_path).files_read == 0
    for path in paths:
        (tmp_path / path).unlink()
        again = read(tmp_path)
        assert again.files_read == 0
        assert again.changes("none", False, 1) == ([(path, coregw.payload_cid(path.encode()), None)], [])
        (tmp_path / path).write_text(path)
        again = read(tmp_path)
        assert (again.files_read, again.roots()[0]) == (1, coregw.hash_tree(tmp_path))


def test_roots_that_are_taken_from_the_cache_are_those_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age(monkeypatch)
    for above in ("", "a/", "a/b/", "a.b/"):
        (tmp_path / above).mkdir(exist_ok=True)
        (tmp_path / above / "file").write_text(above)
        (tmp_path / above / "link").symlink_to("file")
        (tmp_path / above / "empty").mkdir()
    changes: list[Callable[[], object]] = [
        lambda: None,
        lambda: (tmp_path / "a/file").chmod(0o700),
        lambda: os.utime(tmp_path / "a/b", ns=(OLD, OLD)),
        lambda: os.utime(tmp_path / "a/b/link", ns=(OLD, OLD), follow_symlinks=False),
        (tmp_path / "a.b/empty").rmdir,
        lambda: (tmp_path / "a.b/link").rename(tmp_path / "a.b/zink"),
        lambda: os.utime(tmp_path, ns=(OLD, OLD)),
        (tmp_path / "a/b/file").unlink,
        lambda: None,
    ]
    for level in get_args(Level) * 2:
        recorded = Recorded(level)
        read(tmp_path, recorded=recorded)
        for change in changes if level == "all" else changes[:1]:
            change()
            upload = read(tmp_path, recorded=recorded)
            assert upload.roots(level)[0] == coregw.hash_tree(tmp_path, attributes=level), (level, change)
            for other in get_args(Level):
                assert upload.roots(other)[0] == coregw.hash_tree(tmp_path, attributes=other), (level, other, change)
        (tmp_path / "a/b/file").write_text("again")
        (tmp_path / "a.b/empty").mkdir(exist_ok=True)
        if level == "all":
            (tmp_path / "a.b/zink").rename(tmp_path / "a.b/link")


def test_the_cache_of_an_unchanged_folder_is_not_written_again(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    age(monkeypatch)
    read(tree)
    (file,) = (cache_folder() / "stat").iterdir()
    before = file.stat().st_ino, file.read_bytes()
    read(tree)
    assert (file.stat().st_ino, file.read_bytes()) == before
    (tree / "a").chmod(0o700)
    read(tree)
    assert (file.stat().st_ino, file.read_bytes()) != before


def test_a_file_that_is_not_old_enough_is_known_when_it_was_read_again_later(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read(tree)
    age(monkeypatch)
    assert [read(tree).files_read, read(tree).files_read] == [4, 0]


def test_a_file_replaced_with_the_same_size_and_times_is_read(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    age(monkeypatch)
    os.utime(tree / "a", ns=(OLD, OLD))
    read(tree)
    (tree / "a").write_bytes(b"z")  # another time of change, which nobody can set
    os.utime(tree / "a", ns=(OLD, OLD))
    again = read(tree)
    assert again.arcs()["a"] == coregw.payload_cid(b"z")
    assert again.files_read == 1


def test_a_file_that_changed_just_before_it_was_read_is_read_again(tree: Path) -> None:
    assert [read(tree).files_read, read(tree).files_read] == [4, 4]


@pytest.mark.parametrize("damage", ["a bit", "cut", "empty", "of another folder", "gone", "another version"])
def test_a_cache_that_is_damaged_or_of_another_folder_is_ignored(
    tree: Path, damage: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    age(monkeypatch)
    read(tree)
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
            read(other)
            (theirs,) = (each for each in file.parent.iterdir() if each != file)
            theirs.replace(file)
        case "gone":
            file.unlink()
        case _:
            file.write_bytes(data.replace(b"stat 6", b"stat 5", 1))
    probable = UploadCache.of(tree, "sha2-256").probable_root()
    assert (probable == coregw.hash_tree(tree)) == (damage == "cut"), "only the checksum, at the start, covers the end"
    again = read(tree)
    assert again.arcs()["a"] == coregw.payload_cid(b"y")
    assert (again.files_read, again.cached_root) == (4, None)
    assert read(tree).files_read == 0


def test_the_root_of_the_last_time_is_known_before_the_survey(tree: Path) -> None:
    assert UploadCache.of(tree, "sha2-256").probable_root() is None
    read(tree)
    assert UploadCache.of(tree, "sha2-256").probable_root() == coregw.hash_tree(tree)
    assert UploadCache.of(tree, "blake3").probable_root() is None
    assert UploadCache.none().probable_root() is None


def test_other_options_have_another_cache(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    age(monkeypatch)
    read(tree)
    assert read(tree, "blake3").files_read == 4
    assert read(tree, options=" other").files_read == 4
    assert read(tree, recorded=Recorded("none")).files_read == 0
    assert read(tree).changes("none", False, 0) == ([], [])


def test_a_cache_that_cannot_be_written_is_no_failure(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert sorted(read(tree).arcs()) == ["a", "b/c", "blocked", "large", "same"]


def test_a_batch_is_sent_without_what_is_held(tree: Path) -> None:
    upload = UploadCache.none().upload(survey(tree), "sha2-256")
    upload.start()
    while not upload.is_read:
        assert upload.next_batch(0.05) is None
    upload.flush()
    assert not upload.is_read
    batch = upload.next_batch(0)
    assert batch is not None
    assert len(batch) == 3  # the byte of three files, and two chunks
    assert upload.lists_car(False) == (b"", 0)
    for wrong in (b"", b"\0\0"):
        with pytest.raises(ValueError, match="one bit"):
            batch.car(wrong)
    cids = [batch.cids[at : at + 36] for at in range(0, 108, 36)]
    held = sum(1 << place for place, cid in enumerate(cids) if coregw.Cid(cid).text == coregw.payload_cid(b"y"))
    car, count, size = batch.car(bytes([held]))
    assert (count, size) == (2, CHUNK_BYTES + 1)
    reader = _core.CarReader(1 << 20, 10)
    reader.feed(car)
    assert (reader.roots, reader.blocks, reader.bytes) == ([], 2, len(car))
    upload.acknowledge(batch)
    lists, count = upload.lists_car(True)
    assert count == 1
    reader = _core.CarReader(1 << 20, 10)
    reader.feed(lists)
    assert reader.roots == [upload.arcs()["large"]]


def test_an_upload_is_not_locked_while_a_root_is_computed(tmp_path: Path) -> None:
    """Neither another thread nor a signal handler that asks the upload waits for the root, which waits for the GIL."""
    code = f"""
import faulthandler, os, signal, threading
from coregw._core import FolderUpload, survey
faulthandler.dump_traceback_later(50, exit=True)
for number in range(40_000):
    os.symlink("target", f"{tmp_path}/link{{number:05}}")
upload = FolderUpload(survey("{tmp_path}"))
upload.start()
while not upload.is_read:
    upload.next_batch(1)
asked = []
def ask(*_):
    asked.append((upload.totals(), upload.skipped, len(upload.arcs())))
signal.signal(signal.SIGALRM, ask)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
is_done = []
def ask_always():
    while not is_done:
        ask()
thread = threading.Thread(target=ask_always)
thread.start()
roots = [upload.roots() for _ in range(3)]
is_done.append(True)
thread.join()
signal.setitimer(signal.ITIMER_REAL, 0)
print(len({{*roots}}), {{*map(repr, asked)}})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "1 {'((0, 0, 0), [], 0)'}\n"), done.stderr
