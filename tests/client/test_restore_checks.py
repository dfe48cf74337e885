"""What a restore checks before it writes: the bytes of existing files, and where links lead."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

import coregw
from coregw import _core

MIB = 1 << 20


def some_bytes(size: int, seed: int = 0) -> bytes:
    return random.Random(size * 31 + seed).randbytes(size)


def cid(data: bytes) -> str:
    return coregw.payload_cid(data)


A, B = b"first", b"second"


def test_files_match_only_their_own_bytes(tmp_path: Path) -> None:
    long = [some_bytes(MIB), some_bytes(MIB, 1), b"end"]
    (tmp_path / "long").write_bytes(b"".join(long))
    (tmp_path / "short").write_bytes(A)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "link").symlink_to("short")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    blake3 = coregw.payload_cid(A, hash="blake3")
    sha512 = coregw.Cid(bytes([1, 0x55, 0x13, 64]) + hashlib.sha512(A).digest()).text
    parts = [(cid(each), len(each)) for each in long]
    cases: list[tuple[str, Sequence[tuple[str, int | None]], bool]] = [
        ("long", parts, True),
        ("long", [*parts[:-1], (parts[-1][0], None)], True),
        ("long", parts[:-1], False),
        ("long", [*parts, (cid(b""), 0)], True),
        ("long", [parts[1], parts[0], parts[2]], False),
        ("short", [(cid(A), None)], True),
        ("short", [(cid(A), 5)], True),
        ("short", [(cid(A), 6)], False),
        ("short", [(blake3, None)], True),
        ("short", [(sha512, None)], True),
        ("short", [(coregw.payload_cid(A, hash="identity"), 5)], True),
        ("short", [(cid(B), None)], False),
        ("short", [(cid(A[:-1]), 4), (cid(A[-1:]), None)], True),
        ("empty", [(cid(b""), None)], True),
        ("empty", [(cid(A), None)], False),
        *((name, [(cid(A), None)], False) for name in ("link", "folder", "pipe", "missing")),
    ]
    assert _core.files_match(tmp_path, [(name, given) for name, given, _ in cases]) == [each for *_, each in cases]


def test_no_file_outside_the_folder_is_read_to_compare_it(tmp_path: Path) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    (top / "folder").mkdir(parents=True)
    (top / "folder/file").write_bytes(A)
    outside.mkdir()
    (outside / "file").write_bytes(A)
    (top / "link").symlink_to(outside)
    (tmp_path / "link to top").symlink_to(top)
    parts = [(cid(A), len(A))]
    paths = ["folder/file", "link/file", "../outside/file", str(outside / "file"), "folder/../folder/file", "", "."]
    for folder in (top, tmp_path / "link to top"):
        found = _core.files_match(folder, [(path, parts) for path in paths])
        assert found == [True, False, False, False, False, False, False]
    for missing in (tmp_path / "missing", top / "folder/file"):
        with pytest.raises(OSError, match=missing.name):
            _core.files_match(missing, [("file", parts)])
