"""Hashing of the files of a survey: what is read, what changes meanwhile, progress, and interrupts."""

from __future__ import annotations

import errno
import io
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

import coregw
from coregw import _core
from coregw._core import hash_survey
from coregw.errors import InvalidInput
from coregw.folders.tree import survey
from descriptors import more_descriptors
from named_files import write


@contextmanager
def changing(file: Path, mode: Literal["ab", "r+b"], change: Callable[[io.FileIO], object]) -> Iterator[None]:
    """The context in which a thread that has opened a file in this mode changes it all the time."""
    is_done = threading.Event()

    def repeat() -> None:
        with file.open(mode, buffering=0) as opened:
            while not is_done.is_set():
                change(opened)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()


def test_files_that_became_something_else_are_skipped_and_reported(tmp_path: Path) -> None:
    write(tmp_path, "gone", "link", "pipe", "folder", "kept")
    found = survey(tmp_path)
    for name in ("gone", "link", "pipe", "folder"):
        (tmp_path / name).unlink()
    (tmp_path / "link").symlink_to("kept")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    hashed = hash_survey(found)
    assert {entry.path for place, entry in enumerate(hashed) if hashed.target(place)} == {"kept"}
    assert {file.name: why for file, why in hashed.skipped} == {
        "gone": os.strerror(errno.ENOENT).lower(),
        "link": "a symbolic link",
        "pipe": "not a regular file",
        "folder": "not a regular file",
    }
    assert [path for path, *_ in hashed.records()] == ["kept"]


def test_known_targets_are_not_read(tmp_path: Path) -> None:
    write(tmp_path, "a", "b/c")
    found = survey(tmp_path)
    (tmp_path / "a").unlink()
    other = coregw.payload_cid(b"other")
    hashed = hash_survey(found, known={0: (other, 7), 2: (coregw.List([]).root, 3)})
    assert [hashed.target(place) for place in range(3)] == [other, None, coregw.List([]).root]
    assert (hashed.files, hashed.bytes, hashed.skipped) == (2, 10, [])
    assert [entry.size for entry in hashed] == [7, 0, 3]
    with pytest.raises(IndexError):
        hash_survey(found, known={1: (other, 1)})
    with pytest.raises(IndexError):
        hash_survey(found, known={3: (other, 1)})
    for refused in (
        coregw.Map({}).root,
        coregw.List([], suite="blake3").root,
        coregw.payload_cid(b"", hash="identity"),
    ):
        with pytest.raises(InvalidInput, match="is not the target of a file"):
            hash_survey(found, known={0: (refused, 1)})


def test_a_file_that_grows_is_read_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"line\n" * 2_000_000)
    with changing(file, "ab", lambda log: log.write(b"line\n")):
        hashed = hash_survey(survey(tmp_path))
    assert hashed.skipped == []
    prefix = file.read_bytes()[: hashed[0].size]
    assert len(prefix) >= 10_000_000
    assert sum(size for _, size in hashed.chunks(0) or []) == len(prefix)
    (tmp_path / "log").write_bytes(prefix)
    assert hash_survey(survey(tmp_path)).target(0) == hashed.target(0)


def test_a_file_that_keeps_changing_is_skipped_and_reported(tmp_path: Path) -> None:
    file = tmp_path / "changing"
    file.write_bytes(bytes(64 << 20))
    stamps = itertools.count(1)

    def change(opened: io.FileIO) -> None:
        stamp = next(stamps).to_bytes(8, "big")
        os.pwrite(opened.fileno(), stamp, 0)
        os.pwrite(opened.fileno(), stamp, 63 << 20)

    write(tmp_path, "kept")
    with changing(file, "r+b", change):
        hashed = hash_survey(survey(tmp_path))
    assert hashed.skipped == [(file, "it keeps changing")]
    assert hashed.files == 1


def test_progress_counts_all_bytes_and_its_exceptions_end_the_work(tmp_path: Path) -> None:
    write(tmp_path, *(f"{number}/file" for number in range(100)))
    found = survey(tmp_path)
    counts: list[int] = []
    hashed = hash_survey(found, progress=counts.append)
    assert sum(counts) == hashed.bytes == found.bytes

    def fail(count: int) -> None:
        raise ZeroDivisionError(count)

    with pytest.raises(ZeroDivisionError):
        hash_survey(found, progress=fail)


PROGRAM = """
import signal, sys
from coregw import _core
from coregw._core import hash_survey
signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored in this process group
print('ready', flush=True)
_core.hash_survey(_core.survey(sys.argv[1]))
"""


def test_an_interrupt_ends_the_hashing_of_a_long_file(tmp_path: Path) -> None:
    write(tmp_path, "short")  # so that the main thread may have nothing left to do
    with (tmp_path / "long").open("wb") as file:
        file.truncate(1 << 40)  # hours of work, and no space on the disk
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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


def test_the_words_for_what_is_recorded_are_checked(tmp_path: Path) -> None:
    hashed = hash_survey(survey(tmp_path))
    for call in (hashed.roots, hashed.records):
        with pytest.raises(InvalidInput, match="no-times"):
            call("some")
    with pytest.raises(InvalidInput, match="suite"):
        hash_survey(survey(tmp_path), "md5")
    assert isinstance(hashed, _core.HashedFolder)


def test_no_extended_attributes_are_read_through_a_link_that_took_the_place_of_a_folder(tmp_path: Path) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    for folder, value in ((top / "folder/deeper", b"own"), (outside / "deeper", b"secret")):
        folder.mkdir(parents=True)
        os.setxattr(folder, "user.note", value)
    found = survey(top)
    (top / "folder").rename(top / "aside")
    (top / "folder").symlink_to(outside)
    records = hash_survey(found, xattrs=True).records("all", True)
    known = {path: _core.decode_attributes(target, data).xattrs for path, target, data in records}
    assert known == {"folder": {}, "folder/deeper": {}}
    (top / "folder").unlink()
    (top / "aside").rename(top / "folder")
    records = hash_survey(found, xattrs=True).records("all", True)
    known = {path: _core.decode_attributes(target, data).xattrs for path, target, data in records}
    assert known["folder/deeper"] == {"user.note": b"own"}


def test_extended_attributes_that_no_descriptor_is_left_for_are_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    os.setxattr(tmp_path / "file", "user.note", b"kept")
    found = survey(tmp_path)
    with more_descriptors(0):
        hashed = hash_survey(found, known={0: (coregw.payload_cid(b""), 0)}, xattrs=True)
    ((path, why),) = hashed.skipped
    assert path == tmp_path / "file"
    assert why.startswith("its extended attributes can't be read: Too many open files")


def test_the_callback_of_progress_may_hash_other_files(tmp_path: Path) -> None:
    (tmp_path / "big").mkdir()
    (tmp_path / "small").mkdir()
    with (tmp_path / "big" / "file").open("wb") as file:
        file.truncate(64 << 20)
    (tmp_path / "small" / "file").write_bytes(b"hello")
    found: list[str | None] = []

    def progress(_: int) -> None:
        time.sleep(0.05)  # so that it is called again
        if len(found) < 3:
            found.append(hash_survey(survey(tmp_path / "small")).target(0))

    hashed = hash_survey(survey(tmp_path / "big"), progress=progress)
    assert found == [coregw.payload_cid(b"hello")] * len(found) != []
    assert hashed.target(0) == hash_survey(survey(tmp_path / "big")).target(0)


def test_one_extended_attribute_that_no_record_has_hides_no_other(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    os.setxattr(tmp_path / "file", "user.good", b"kept")
    os.setxattr(os.fsencode(tmp_path / "file"), b"user.\xff", b"odd")
    hashed = hash_survey(survey(tmp_path), xattrs=True)
    assert hashed.skipped == [(tmp_path / "file", "its extended attribute user.\\xff has a name that is not UTF-8")]
    ((_, target, data),) = hashed.records("all", True)
    assert _core.decode_attributes(target, data).xattrs == {"user.good": b"kept"}


@pytest.mark.parametrize("file", ["/proc/version", "/proc/meminfo", "/sys/kernel/mm/transparent_hugepage/enabled"])
def test_a_size_that_is_not_the_number_of_bytes_is_not_trusted(file: str) -> None:
    try:
        size = len(Path(file).read_bytes())
    except OSError:
        pytest.skip("the system has no such file")
    hashed = hash_survey(survey(file))
    assert (hashed.skipped, hashed.target(0) == coregw.payload_cid(b"")) == ([], False)
    assert hashed[0].size == hashed.bytes
    if file != "/proc/meminfo":
        assert hashed.target(0) == coregw.payload_cid(Path(file).read_bytes())
        assert hashed.bytes == size
