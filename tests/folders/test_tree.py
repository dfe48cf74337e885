"""Roots of folders, computed offline: those of a slow model, whatever is in the folder."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import coregw
from coregw import _core
from coregw.errors import Conflict, InvalidInput, ProofError
from coregw.folders.survey import CHUNK_BYTES, survey
from coregw.folders.tree import hash_survey

SIZES = [0, 1, 100, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 17]


def slow_target(data: bytes, suite: str) -> str:
    """The target of a file, by the public classes."""
    chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)] or [b""]
    cids = [coregw.payload_cid(chunk) for chunk in chunks]
    return cids[0] if len(cids) == 1 else coregw.List(cids, [len(chunk) for chunk in chunks], suite).root


def write_tree(folder: Path, seed: int, count: int = 60) -> dict[str, bytes]:
    rng = random.Random(seed)
    files: dict[str, bytes] = {}
    for number in range(count):
        path = "/".join(f"{rng.choice('abc')}{rng.randrange(3)}" for _ in range(rng.randrange(3))) + f"/f{number}"
        path = path.removeprefix("/")
        data = rng.randbytes(SIZES[number] if number < len(SIZES) else rng.randrange(2000))
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
        files[path] = data
    return files


@pytest.mark.parametrize("suite", ["sha2-256", "blake3"])
def test_the_root_of_a_folder_is_that_of_the_map_of_its_files(tmp_path: Path, suite: str) -> None:
    files = write_tree(tmp_path, seed=len(suite))
    root = coregw.Map({path: slow_target(data, suite) for path, data in files.items()}, suite).root
    assert coregw.hash_tree(tmp_path, suite) == coregw.hash_tree(str(tmp_path), suite) == root
    coregw.verify_tree(root, tmp_path)
    coregw.verify_tree(coregw.Cid(root), str(tmp_path))


def test_a_single_file_has_its_name_as_its_path(tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_bytes(b"hello")
    assert coregw.hash_tree(file) == coregw.Map({"a file": coregw.payload_cid(b"hello")}).root


def test_a_folder_without_files_is_the_empty_map(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert coregw.hash_tree(tmp_path) == coregw.Map({}).root


@pytest.mark.parametrize("change", ["a byte", "a name", "a file more", "a file less"])
def test_any_difference_is_refused(tmp_path: Path, change: str) -> None:
    write_tree(tmp_path, seed=3, count=12)
    root = coregw.hash_tree(tmp_path)
    file = next(path for path in tmp_path.rglob("f3"))
    match change:
        case "a byte":
            file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1]))
        case "a name":
            file.rename(file.with_name("other"))
        case "a file more":
            (tmp_path / "more").touch()
        case _:
            file.unlink()
    with pytest.raises(ProofError, match="has the root"):
        coregw.verify_tree(root, tmp_path)


def test_what_is_skipped_is_reported_and_not_in_the_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    root = coregw.hash_tree(tmp_path)
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    hashed = hash_survey(survey(tmp_path))
    assert hashed.root == root
    assert {skipped.file.name: skipped.why for skipped in hashed.skipped} == {
        "link": "a symbolic link",
        "pipe": "not a regular file",
    }


def test_a_file_that_became_something_else_after_the_survey_is_skipped(tmp_path: Path) -> None:
    for name in ("gone", "link", "pipe", "folder", "kept"):
        (tmp_path / name).write_bytes(b"x")
    found = survey(tmp_path)
    for name in ("gone", "link", "pipe", "folder"):
        (tmp_path / name).unlink()
    (tmp_path / "link").symlink_to("kept")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    hashed = hash_survey(found)
    assert list(hashed.arcs) == ["kept"]
    assert {skipped.file.name: skipped.why for skipped in hashed.skipped} == {
        "gone": os.strerror(errno.ENOENT).lower(),
        "link": "a symbolic link",
        "pipe": "not a regular file",
        "folder": "not a regular file",
    }


def test_a_file_that_keeps_changing_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "changing"
    file.write_bytes(bytes(16 * CHUNK_BYTES))
    is_done = threading.Event()

    def touch() -> None:
        stamp = 0
        while not is_done.is_set():
            stamp += 1
            os.utime(file, ns=(stamp, stamp))

    thread = threading.Thread(target=touch)
    thread.start()
    try:
        with pytest.raises(Conflict, match="changing: changed each of the times"):
            coregw.hash_tree(tmp_path)
    finally:
        is_done.set()
        thread.join()


def test_malformed_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        coregw.hash_tree(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="suite"):
        coregw.hash_tree(tmp_path, "md5")
    for root in (coregw.payload_cid(b"x"), coregw.List([]).root):
        with pytest.raises(InvalidInput) as refused:
            coregw.verify_tree(root, tmp_path)
        assert refused.value.code == "kind_mismatch"
    with pytest.raises(TypeError):
        _core.hash_files([1])  # type: ignore[list-item]


def test_progress_counts_all_bytes(tmp_path: Path) -> None:
    files = write_tree(tmp_path, seed=5)
    counts: list[int] = []
    hashed = hash_survey(survey(tmp_path), progress=counts.append)
    assert sum(counts) == hashed.bytes == sum(map(len, files.values()))


def test_an_interrupt_ends_the_hashing_of_a_long_file(tmp_path: Path) -> None:
    with (tmp_path / "long").open("wb") as file:
        file.truncate(1 << 40)  # hours of work, and no space on the disk
    program = (
        "import signal, sys, coregw\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored in this process group\n"
        "print('ready', flush=True)\n"
        "coregw.hash_tree(sys.argv[1])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(0.2)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert "KeyboardInterrupt" in errors
