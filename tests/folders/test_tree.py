"""Roots of folders, computed offline: those of a slow model, whatever is in the folder, at each level of attributes."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import coregw
from coregw import _core
from coregw.errors import InvalidInput, ProofError
from coregw.folders.tree import Level, Recorded, check_tree, hash_survey, survey
from folder_model import cbor, folder
from slow_targets import slow_target

CHUNK_BYTES = 256 << 10
SIZES = [0, 1, 100, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * CHUNK_BYTES + 17]
LEVELS: list[Level] = ["all", "whole", "no-times", "exec", "none"]


def slow_record(file: Path, level: Level) -> dict[str, Any] | None:
    """The record of a path, by the words of protocol section 7."""
    status = file.lstat()
    if level == "none":
        return None
    kind: dict[str, Any] = {"folder": True} if file.is_dir() else {}
    if file.is_symlink():
        kind = {"link": os.fsencode(file.readlink())}
    if level == "exec":
        return {**kind, "mode": 0o755} if not kind and status.st_mode & 0o100 else kind if "link" in kind else None
    record = {**kind} if file.is_symlink() else {**kind, "mode": status.st_mode & (0o1777 if kind else 0o777)}
    if not kind:
        record["size"] = status.st_size
    return record if level == "no-times" else {**record, "mtime": status.st_mtime_ns}


def slow_root(top: Path, level: Level) -> str:
    """The root of a folder, by the model."""
    files: dict[str, bytes] = {}
    records: dict[str, dict[str, Any]] = {}
    for file in (*top.rglob("*"), *([top] if level == "whole" else [])):
        path = file.relative_to(top).as_posix() if file != top else ".coregw"
        if file.is_file() and not file.is_symlink():
            files[path] = bytes(coregw.Cid(slow_target(file.read_bytes(), "sha2-256")))
        record = slow_record(file, level)
        if record:
            records[path] = record
    assert all(len(cbor(record)) < 2000 for record in records.values())
    return coregw.Cid(folder(files, records)[0]).text


def write_tree(folder: Path, seed: int, count: int = 60) -> None:
    rng = random.Random(seed)
    for number in range(count):
        path = "/".join(f"{rng.choice('abc')}{rng.randrange(3)}" for _ in range(rng.randrange(3))) + f"/f{number}"
        file = folder / path.removeprefix("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(rng.randbytes(SIZES[number] if number < len(SIZES) else rng.randrange(2000)))
        file.chmod(rng.choice([0o600, 0o644, 0o755, 0o4711, 0o400]))
        os.utime(file, ns=(0, rng.randrange(-(2**40), 2**62)))
    (folder / "a0").mkdir(exist_ok=True)
    (folder / "a0" / "link").symlink_to("f1")
    (folder / "out").symlink_to("../" * 60 + "etc")
    (folder / "dangling").symlink_to("/nowhere/" + "x" * 500)
    (folder / "empty" / "emptier").mkdir(parents=True)
    (folder / "empty").chmod(0o700)


@pytest.mark.parametrize("level", LEVELS)
def test_the_root_of_a_folder_is_that_of_the_model(tmp_path: Path, level: Level) -> None:
    write_tree(tmp_path, seed=len(level))
    root = slow_root(tmp_path, level)
    assert coregw.hash_tree(tmp_path, attributes=level) == coregw.hash_tree(str(tmp_path), attributes=level) == root
    # At some levels, not all links and folders are in the root.
    assert coregw.verify_tree(root, tmp_path, as_added=True) == level
    assert coregw.verify_tree(coregw.Cid(root), str(tmp_path), attributes=level, as_added=True) == level
    for other in LEVELS:
        if other != level:
            with pytest.raises(ProofError):
                coregw.verify_tree(root, tmp_path, attributes=other)


def test_the_suite_is_that_of_all_trees(tmp_path: Path) -> None:
    write_tree(tmp_path, seed=5, count=9)
    found = survey(tmp_path)
    hashed = _core.hash_survey(found, "blake3")
    arcs = {entry.path: target for place, entry in enumerate(found) if (target := hashed.target(place))}
    assert arcs["a0/f7" if "a0/f7" in arcs else next(path for path in arcs if path.endswith("f7"))] == slow_target(
        next(tmp_path.rglob("f7")).read_bytes(), "blake3"
    )
    attributes = coregw.Map([(path, target) for path, target, _ in hashed.records()], "blake3").root
    root = coregw.Map({**arcs, ".coregw/attributes": attributes}, "blake3").root
    assert hashed.roots() == (root, attributes)
    assert coregw.hash_tree(tmp_path, "blake3") == root
    assert coregw.verify_tree(root, tmp_path) == "all"


def test_a_single_file_has_its_name_as_its_path(tmp_path: Path) -> None:
    file = tmp_path / "a file"
    file.write_bytes(b"hello")
    assert coregw.hash_tree(file, attributes="none") == coregw.Map({"a file": coregw.payload_cid(b"hello")}).root
    assert coregw.hash_tree(file) == coregw.hash_tree(file, attributes="whole") == slow_root(tmp_path, "all")
    assert coregw.verify_tree(coregw.hash_tree(file), file) == "all"


def test_a_folder_without_anything_is_the_empty_map(tmp_path: Path) -> None:
    assert coregw.hash_tree(tmp_path) == coregw.Map({}).root
    (tmp_path / "empty").mkdir()
    assert coregw.hash_tree(tmp_path) == slow_root(tmp_path, "all") != coregw.Map({}).root
    assert coregw.hash_tree(tmp_path, attributes="exec") == coregw.Map({}).root
    assert coregw.hash_tree(tmp_path, attributes="whole") == slow_root(tmp_path, "whole")
    assert coregw.verify_tree(coregw.Map({}).root, tmp_path, as_added=True) == "exec"


CHANGES = ["a byte", "a name", "a file more", "a file less", "a mode", "an exec bit", "a time", "a link", "a folder"]


@pytest.mark.parametrize("change", CHANGES)
def test_any_difference_is_refused_at_the_levels_that_record_it(tmp_path: Path, change: str) -> None:
    write_tree(tmp_path, seed=3, count=12)
    roots = {level: coregw.hash_tree(tmp_path, attributes=level) for level in LEVELS}
    file = next(path for path in tmp_path.rglob("f3"))
    file.chmod(0o644)
    roots = {level: coregw.hash_tree(tmp_path, attributes=level) for level in LEVELS}
    seen = LEVELS
    match change:
        case "a byte":
            status = file.stat()
            file.write_bytes(file.read_bytes()[:-1] + bytes([file.read_bytes()[-1] ^ 1]))
            os.utime(file, ns=(0, status.st_mtime_ns))
        case "a name":
            file.rename(file.with_name("other"))
        case "a file more":
            (tmp_path / "more").touch()
        case "a file less":
            file.unlink()
        case "a mode":
            file.chmod(0o600)
            seen = ["all", "whole", "no-times"]
        case "an exec bit":
            file.chmod(0o744)
            seen = ["all", "whole", "no-times", "exec"]
        case "a time":
            os.utime(file, ns=(0, 1))
            seen = ["all", "whole"]
        case "a link":
            (tmp_path / "out").unlink()
            (tmp_path / "out").symlink_to("elsewhere")
            seen = ["all", "whole", "no-times", "exec"]
        case _:
            (tmp_path / "empty" / "emptier").rmdir()
            seen = ["all", "whole", "no-times"]
    for level, root in roots.items():
        if level in seen:
            with pytest.raises(ProofError, match="has the root"):
                coregw.verify_tree(root, tmp_path, as_added=True)
        else:
            assert coregw.verify_tree(root, tmp_path, as_added=True) == level


def test_the_folder_itself_is_compared_at_the_level_whole(tmp_path: Path) -> None:
    tmp_path.chmod(0o1750)
    os.utime(tmp_path, ns=(0, 2))
    roots = {level: coregw.hash_tree(tmp_path, attributes=level) for level in LEVELS}
    for mode, mtime_ns in ((0o1770, 2), (0o750, 2), (0o1750, 1)):
        tmp_path.chmod(mode)
        os.utime(tmp_path, ns=(0, mtime_ns))
        assert {level: coregw.hash_tree(tmp_path, attributes=level) == root for level, root in roots.items()} == {
            level: level != "whole" for level in LEVELS
        }
        with pytest.raises(ProofError, match="has the root"):
            coregw.verify_tree(roots["whole"], tmp_path)


def test_a_time_of_the_folder_itself_that_no_root_can_have_is_reported_where_it_is_recorded(tmp_path: Path) -> None:
    os.utime(tmp_path, (0, 10_413_792_000))  # 2300
    if tmp_path.stat().st_mtime != 10_413_792_000:
        pytest.skip("the file system has no such times")
    why = "its time is not between 1677 and 2262: the nearest is recorded"
    for level, skipped in (("all", []), ("whole", [(tmp_path, why)])):
        assert hash_survey(survey(tmp_path), recorded=Recorded(level)).skipped == skipped
    assert coregw.verify_tree(coregw.hash_tree(tmp_path), tmp_path) == "all"
    with pytest.raises(ProofError, match="its time is not between"):
        coregw.verify_tree(coregw.hash_tree(tmp_path, attributes="whole"), tmp_path)


def test_what_was_skipped_is_named_if_the_root_is_another(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "secret").write_bytes(b"x")
    root = coregw.hash_tree(tmp_path, attributes="none")
    (tmp_path / "secret").unlink()
    for name in ("secret", "socket"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(ProofError, match=rf"not {root}; skipped {tmp_path}/secret \(.+\) and 1 more$"):
        coregw.verify_tree(root, tmp_path)
    (tmp_path / "socket").unlink()
    with pytest.raises(ProofError, match=rf"; skipped {tmp_path}/secret \([^)]+\)$"):
        coregw.verify_tree(root, tmp_path)


def test_owners_and_extended_attributes_are_recorded_on_request(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    plain = coregw.hash_tree(tmp_path)
    status = (tmp_path / "file").stat()
    owned = coregw.hash_tree(tmp_path, owner=True)
    (_, target, record) = _core.hash_survey(survey(tmp_path)).records(owner=True)[0]
    assert coregw.decode_attributes(target, record).owner == (status.st_uid, status.st_gid)
    assert coregw.verify_tree(owned, tmp_path, owner=True) == "all"
    with pytest.raises(ProofError):
        coregw.verify_tree(owned, tmp_path)
    os.setxattr(tmp_path / "file", "user.note", b"n" * 300)
    assert coregw.hash_tree(tmp_path) == plain
    (_, target, record) = _core.hash_survey(survey(tmp_path), xattrs=True).records()[0]
    assert coregw.decode_attributes(target, record).xattrs == {"user.note": b"n" * 300}
    assert coregw.verify_tree(coregw.hash_tree(tmp_path, xattrs=True), tmp_path, xattrs=True) == "all"
    for arguments in ({"owner": True}, {"xattrs": True}):
        with pytest.raises(InvalidInput, match="records neither"):
            coregw.hash_tree(tmp_path, attributes="exec", **arguments)
        with pytest.raises(ProofError):
            coregw.verify_tree(coregw.Map({}).root, tmp_path, **arguments)


def test_what_is_excluded_is_not_in_the_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    root = coregw.hash_tree(tmp_path)
    (tmp_path / "file.o").write_bytes(b"y")
    (tmp_path / ".git").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert coregw.hash_tree(tmp_path, exclude=["*.o"]) == root
    assert coregw.verify_tree(root, tmp_path, exclude=["*.o"], as_added=True) == "all"
    hashed = hash_survey(survey(tmp_path, ["*.o"]), recorded=Recorded("no-times"))
    assert (hashed.files, hashed.bytes, hashed.skipped) == (1, 1, [(tmp_path / "pipe", "not a regular file")])
    assert hashed.root == coregw.hash_tree(tmp_path, attributes="no-times", exclude=["*.o"])
    assert hashed.attributes == _core.hash_survey(survey(tmp_path, ["*.o"])).roots("no-times")[1]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "extra", [".coregwignore", ".git/hooks/x", ".coregw/x", "pipe", "caf\udce9", "site/x", "link", "empty/"]
)
def test_nothing_in_a_folder_says_what_of_it_is_verified(tmp_path: Path, extra: str, level: Level) -> None:
    top = tmp_path / "top"
    (top / "docs").mkdir(parents=True)
    (top / "docs" / "a").write_bytes(b"x")
    root = coregw.hash_tree(top, attributes=level)
    assert coregw.verify_tree(root, top, attributes=level) == level
    status = top.stat()
    (top / ".coregwignore").write_bytes(b".coregwignore\nsite/\n" + os.fsencode(extra))
    if extra != ".coregwignore":
        (top / extra).parent.mkdir(parents=True, exist_ok=True)
        if extra == "pipe":
            os.mkfifo(top / extra)
        elif extra == "link":
            (top / extra).symlink_to("docs")
        elif extra.endswith("/"):
            (top / extra).mkdir()
        else:
            (top / extra).write_bytes(b"x")
        (top / ".coregwignore").unlink()
    os.utime(top, ns=(0, status.st_mtime_ns))  # part of the root at the level whole
    with pytest.raises(ProofError) as refused:
        coregw.verify_tree(root, top, attributes=level)
    # What `add` leaves out, by no file that the root does not have.
    is_explained = extra in (".git/hooks/x", ".coregw/x", "pipe")
    is_explained |= (extra, level) in [("link", "none"), ("empty/", "none"), ("empty/", "exec")]
    assert ("as_added would verify it" in refused.value.message) == is_explained
    if is_explained:
        assert coregw.verify_tree(root, top, attributes=level, as_added=True) == level
    else:
        with pytest.raises(ProofError):
            coregw.verify_tree(root, top, attributes=level, as_added=True)


def test_patterns_count_if_the_root_names_their_file_with_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".coregwignore").write_text("*.o\n")
    (tmp_path / "sub" / ".gitignore").write_text("*.log\n")
    for name in ("a.o", "sub/b.log", "sub/keep"):
        (tmp_path / name).write_bytes(b"x")
    root = coregw.hash_tree(tmp_path, attributes="none", gitignore=True)
    with pytest.raises(InvalidInput, match="gitignore"):
        coregw.verify_tree(root, tmp_path, gitignore=True)
    with pytest.raises(
        ProofError, match=r"as_added would verify it, without .*a\.o \(\.coregwignore, line 1\) and 1 more"
    ):
        coregw.verify_tree(root, tmp_path)
    found = check_tree(root, tmp_path, gitignore=True, as_added=True)
    assert found.left_out == [
        (tmp_path / "a.o", ".coregwignore, line 1"),
        (tmp_path / "sub" / "b.log", "sub/.gitignore, line 1"),
    ]
    with pytest.raises(ProofError):
        coregw.verify_tree(root, tmp_path, as_added=True)
    # A file of patterns that is excluded itself, by itself or by another one, is in no root.
    for own in ("*.o\n.coregwignore\n", "*.o\n.*ignore\n!/.coregwignore\n", "*.o\nsub/.gitignore\n"):
        (tmp_path / ".coregwignore").write_text(own)
        root = coregw.hash_tree(tmp_path, attributes="none", gitignore=True)
        with pytest.raises(ProofError):
            coregw.verify_tree(root, tmp_path, gitignore=True, as_added=True)
    # Nor does a root have what is behind a link.
    (tmp_path / "sub" / ".gitignore").unlink()
    (tmp_path / ".coregwignore").rename(tmp_path / "patterns")
    (tmp_path / ".coregwignore").symlink_to("patterns")
    root = coregw.hash_tree(tmp_path)
    with pytest.raises(ProofError):
        coregw.verify_tree(root, tmp_path, as_added=True)


def test_malformed_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        coregw.hash_tree(tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="suite"):
        coregw.hash_tree(tmp_path, "md5")
    with pytest.raises(InvalidInput, match="no-times"):
        coregw.hash_tree(tmp_path, attributes="some")  # type: ignore[arg-type]
    for root in (coregw.payload_cid(b"x"), coregw.List([]).root):
        with pytest.raises(InvalidInput) as refused:
            coregw.verify_tree(root, tmp_path)
        assert refused.value.code == "kind_mismatch"


WITHOUT_OPENAT2 = """
import ctypes, struct, sys

ALLOW, ENOSYS = 0x7FFF0000, 0x50000 + 38
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 437), (0x06, 0, 0, ENOSYS), (0x06, 0, 0, ALLOW)]  # 437 is openat2
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(program)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
if libc.prctl(22, 2, ctypes.byref(filter), 0, 0) != 0:
    sys.exit(77)
assert libc.syscall(437, 0, 0, 0, 0) == -1 and ctypes.get_errno() == 38
"""
SWAPPED = """
import sys
from pathlib import Path
from coregw.folders.tree import survey
from coregw.folders.tree import Recorded, hash_survey

top, swapped, target = map(Path, sys.argv[1:])
found = survey(top)
(top / swapped).rename(top.parent / "away")
(top / swapped).symlink_to(target)
hashed = hash_survey(found, recorded=Recorded("none"))
print(hashed.root, *(each.file.relative_to(top) for each in hashed.skipped))
"""


@pytest.mark.parametrize("swapped", ["folder", "folder/below"])
@pytest.mark.parametrize("prepare", ["", WITHOUT_OPENAT2], ids=["openat2", "older kernels"])
def test_a_folder_that_becomes_a_link_leads_to_no_files_outside(tmp_path: Path, swapped: str, prepare: str) -> None:
    """Somebody who may write to the folder must not have files added that they cannot read."""
    top, outside = tmp_path / "top", tmp_path / "outside"
    for each in (top / "folder" / "below", top / "kept" / "below", outside / "below", outside):
        each.mkdir(parents=True, exist_ok=True)
        (each / "file").write_bytes(f"{each}".encode())
    link = outside if swapped == "folder" else outside / "below"
    command = [sys.executable, "-c", prepare + SWAPPED, str(top), swapped, str(link)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == 77:
        pytest.skip("no seccomp filters here")
    kept = coregw.payload_cid((top / "kept" / "below" / "file").read_bytes())
    assert done.stderr == ""
    assert done.stdout.split() == [coregw.Map({"kept/below/file": kept}).root, "folder/below/file"]
