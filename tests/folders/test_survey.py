"""Surveys of folders: what they find, and what they skip."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import threading
import time
from pathlib import Path

import pytest

import coregw
from coregw._core import hash_survey
from coregw.errors import InvalidInput
from coregw.folders.tree import survey
from named_files import write


def paths(top: Path, exclude: tuple[str, ...] = (), gitignore: bool = False) -> list[str]:
    return [entry.path for entry in survey(top, exclude, gitignore) if entry.kind == "file"]


def test_a_survey_finds_files_links_and_folders_in_key_order(tmp_path: Path) -> None:
    rng = random.Random(7)
    names = ["a", "a b", "a.b", "ab", "b", "é", "@payload", "Ω😀", "-", "\x01", "z"]
    for _ in range(200):
        folder = tmp_path.joinpath(*rng.choices(names, k=rng.randrange(4)))
        kind = rng.randrange(4)
        if not any(above.is_symlink() or above.is_file() for above in [folder, *folder.parents]):
            folder.mkdir(parents=True, exist_ok=True)
            if kind:
                write(folder, f"file {kind}{rng.choice(names)}")
            elif not (folder / "link").is_symlink():
                (folder / "link").symlink_to(rng.choice(names))
    found = survey(tmp_path)
    slow = {}
    for folder, folders, files in os.walk(tmp_path):
        for name in [*folders, *files]:
            file = Path(folder, name)
            kind = "link" if file.is_symlink() else "folder" if file.is_dir() else "file"
            slow[file.relative_to(tmp_path).as_posix()] = (kind, file.lstat())
    assert [entry.path for entry in found] == sorted(slow, key=coregw.encode_key)
    assert (found.files, found.links, found.folders) == tuple(
        sum(kind == each for kind, _ in slow.values()) for each in ("file", "link", "folder")
    )
    assert found.bytes == sum(status.st_size for kind, status in slow.values() if kind == "file")
    assert found.skipped == []
    for place, entry in enumerate(found):
        kind, status = slow[entry.path]
        size = 0 if kind == "folder" else status.st_size
        assert entry == (
            *(entry.path, kind, size, status.st_mode & 0o7777, status.st_mtime_ns, status.st_ctime_ns),
            *(status.st_ino, status.st_dev, (status.st_uid, status.st_gid)),
        )
        assert found.location(place) == tmp_path / entry.path
    assert found[-1] == found[len(found) - 1]
    with pytest.raises(IndexError):
        found[len(found)]


def test_special_files_and_reserved_names_are_skipped_and_reported(tmp_path: Path) -> None:
    write(tmp_path, "real", ".coregw/attributes", "below/.coregw")
    os.mkfifo(tmp_path / "pipe")
    found = survey(tmp_path)
    assert [entry.path for entry in found] == ["below", "below/.coregw", "real"]
    assert found.skipped == [(tmp_path / ".coregw", "the name is reserved"), (tmp_path / "pipe", "not a regular file")]


def test_links_are_found_and_never_followed(tmp_path: Path) -> None:
    write(tmp_path, "folder/inside")
    targets = {"file": "folder/inside", "to-folder": "folder", "nothing": "nowhere", "loop": ".", "out": "../../etc"}
    for name, target in targets.items() | {("long", "x/" * 2047 + "y"), ("passwd", "/etc/passwd")}:
        (tmp_path / name).symlink_to(target)
    found = survey(tmp_path)
    assert [entry.path for entry in found if entry.kind != "link"] == ["folder", "folder/inside"]
    records = {
        path: coregw.decode_attributes(target, record) for path, target, record in hash_survey(found).records("exec")
    }
    assert {path: record.link for path, record in records.items()} == {
        **{name: target.encode() for name, target in targets.items()},
        "long": b"x/" * 2047 + b"y",
        "passwd": b"/etc/passwd",
    }


def test_names_and_paths_that_no_map_has_are_errors_that_name_the_file(tmp_path: Path) -> None:
    bad = os.fsencode(tmp_path / "a") + b"/caf\xe9"
    (tmp_path / "a").mkdir()
    os.close(os.open(bad, os.O_CREAT))
    with pytest.raises(InvalidInput, match=r"a/caf\\xe9: the name is not UTF-8") as refused:
        survey(tmp_path)
    assert refused.value.code == "invalid_path"
    with pytest.raises(InvalidInput, match="not UTF-8"):
        survey(Path(os.fsdecode(bad)))
    assert paths(tmp_path, ("a",)) == []
    os.unlink(bad)  # noqa: PTH108 - pathlib has no such names
    folder = tmp_path
    while len(os.fsencode(folder.relative_to(tmp_path))) < 3842:  # with the name below, more than 4,096
        folder /= "d" * 100
    folder.mkdir(parents=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:  # by descriptor, as the whole path is longer than the system allows in a call
        os.close(os.open("ü" * 127, os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
    finally:
        os.close(descriptor)
    with pytest.raises(InvalidInput, match="the path is longer than 4096 bytes"):
        survey(tmp_path)


def test_a_link_given_as_the_argument_is_followed_and_a_file_keeps_its_name(tmp_path: Path) -> None:
    write(tmp_path, "real/file")
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "name").symlink_to("real/file")
    assert paths(tmp_path / "folder") == ["file"]
    (entry,) = found = survey(tmp_path / "name")
    assert (entry.path, entry.kind, found.location(0)) == ("name", "file", (tmp_path / "real/file").resolve())
    assert hash_survey(found).target(0) == coregw.payload_cid(b"real/file")


def test_a_missing_path_and_a_special_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        survey(tmp_path / "nothing")
    assert missing.value.filename == str(tmp_path / "nothing")  # a str, as that of `open`
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="neither a folder nor a regular file"):
        survey(tmp_path / "pipe")
    with pytest.raises(TypeError):
        survey(7)  # type: ignore[arg-type]


IGNORES = {
    ".coregwignore": "*.o\n!keep.o\n/build/\n# a comment\n",
    "deep/.coregwignore": "!*.o\nsecret\n",
    ".gitignore": "*.log\n",
}
FILES = [
    "a.o",
    "keep.o",
    "build/x",
    "deep/b.o",
    "deep/secret",
    "deep/build/y",
    "x.log",
    ".git/config",
    "deep/.git",
    "z",
]


@pytest.mark.parametrize(
    ("exclude", "gitignore", "kept"),
    [
        ((), False, {"keep.o", "deep/b.o", "deep/build/y", "x.log", "z"}),
        ((), True, {"keep.o", "deep/b.o", "deep/build/y", "z"}),
        (("z", "deep/build"), False, {"keep.o", "deep/b.o", "x.log"}),
        (
            ("!a.o", "!.git"),
            False,
            {"a.o", "keep.o", "deep/b.o", "deep/build/y", "x.log", "z", ".git/config", "deep/.git"},
        ),
        (("/deep", "*", "!z"), False, {"z"}),
    ],
)
def test_patterns_leave_files_and_folders_out(
    tmp_path: Path, exclude: tuple[str, ...], gitignore: bool, kept: set[str]
) -> None:
    write(tmp_path, *FILES)
    for name, text in IGNORES.items():
        (tmp_path / name).write_text(text)
    ignores = set() if "*" in exclude else {".coregwignore", ".gitignore"} | {"deep/.coregwignore"}
    assert set(paths(tmp_path, exclude, gitignore)) == kept | ignores
    assert survey(tmp_path, exclude, gitignore).skipped == []


@pytest.mark.parametrize("name", [".coregwignore", ".gitignore"])
@pytest.mark.parametrize("line", ["a[b", "a[[:beta:]]", "a\\", "*\0.\0o\0"])
def test_malformed_patterns_are_errors_that_name_their_place(tmp_path: Path, name: str, line: str) -> None:
    with pytest.raises(InvalidInput, match=r'exclude "a\[": .*'):
        survey(tmp_path, ["a["])
    write(tmp_path, "x/y")
    (tmp_path / "x" / name).write_text(f"b\n{line}\ny\n")
    with pytest.raises(InvalidInput, match=rf"x/\{name}: line 2: .*"):
        survey(tmp_path, gitignore=True)


@pytest.mark.parametrize("name", [".coregwignore", ".gitignore"])
@pytest.mark.parametrize(
    ("target", "why"),
    [
        ("/dev/zero", "not lead to a regular file"),
        ("../large", "larger than"),
        ("../comments", "larger than"),
        ("nowhere", "no such file"),
    ],
)
def test_patterns_that_are_not_read_are_errors(tmp_path: Path, name: str, target: str, why: str) -> None:
    with (tmp_path / "large").open("wb") as large:
        large.truncate(1 << 40)
    (tmp_path / "comments").write_bytes(b"y\n" + b"#" * (4 << 20))
    write(tmp_path, "x/y")
    (tmp_path / "x" / name).symlink_to(target)
    with pytest.raises(InvalidInput, match=rf"x/\{name}: .*{why}"):
        survey(tmp_path, gitignore=True)


def test_a_folder_with_the_name_of_a_file_of_patterns_has_none(tmp_path: Path) -> None:
    write(tmp_path, ".gitignore/y", ".coregwignore/y")
    assert paths(tmp_path, gitignore=True) == [".coregwignore/y", ".gitignore/y"]


def test_patterns_are_bytes(tmp_path: Path) -> None:
    write(tmp_path, "a.o", "secret.env", "x.o", "é")
    os.close(os.open(os.fsencode(tmp_path) + b"/caf\xe9", os.O_CREAT))
    (tmp_path / ".gitignore").write_bytes(b"# gesch\xfctzt\n*.o\ncaf\xe9\n*.env\n!x.o\n\xc3\xa9")
    assert paths(tmp_path, gitignore=True) == [".gitignore", "x.o"]
    assert paths(tmp_path, (os.fsdecode(b"caf\xe9"), "*.*", "\u00e9")) == []


def test_what_is_no_file_of_patterns_is_not_opened(tmp_path: Path) -> None:
    pipe, opened = tmp_path / "pipe", threading.Event()
    write(tmp_path, "top/x")
    (tmp_path / "top" / ".gitignore").symlink_to("../pipe")
    os.mkfifo(pipe)

    def write_to_pipe() -> None:
        os.close(os.open(pipe, os.O_WRONLY))  # waits until somebody opens the other end
        opened.set()

    writing = threading.Thread(target=write_to_pipe)
    writing.start()
    try:
        time.sleep(0.1)
        with pytest.raises(InvalidInput, match="not lead to a regular file"):
            survey(tmp_path / "top", gitignore=True)
        assert not opened.wait(0.1)
    finally:
        os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))
        writing.join()


PIECES = ["*", "**", "?", "/", "a", "b", "ab", "[a-b]", "[!a]", "[]x]", "[^b-]", "\\*", "\\a", "{a,b}", "é", ".", " "]
PIECES += ["[[:alpha:]]", "[b[:digit:]]", "[\\]]", "[[a]", "**/", "/**", "1", "!", "#", "\\ ", "\\!", "\\#", "\t"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_patterns_exclude_what_git_ignores(tmp_path: Path) -> None:
    rng = random.Random(11)
    names = ["a", "b", "ab", "aab", "a.b", "*", "{a,b}", "é", "1", "]", " a", "#a", "!a", "b ", "x"]
    top = tmp_path / "top"
    write(top, "a/a")
    for _ in range(300):
        file = top.joinpath(*rng.choices(names, k=rng.randrange(1, 5)))
        if not any(above.is_file() for above in [file, *file.parents]) and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(b"")
    files = paths(top)
    git = ["git", "-c", "core.excludesFile=/dev/null", "-C", os.fspath(top)]
    subprocess.run([*git, "init", "-q"], check=True)
    compared = 0
    for _ in range(150):
        lines = ["".join(rng.choices(PIECES, k=rng.randrange(1, 6))) for _ in range(rng.randrange(1, 4))]
        (top / ".gitignore").write_text("\r\n".join(lines) if rng.random() < 0.1 else "\n".join(lines))
        (top / "a" / ".gitignore").write_text("".join(rng.choices(PIECES, k=2)) if rng.random() < 0.3 else "")
        try:
            kept = paths(top, gitignore=True)
        except InvalidInput:
            continue  # a line that git takes for one that matches nothing
        listing = [*git, "ls-files", "--others", "--exclude-per-directory=.gitignore", "-z"]
        found = subprocess.run(listing, capture_output=True, check=True).stdout.decode().split("\0")[:-1]
        assert sorted(kept) == sorted(found), lines
        compared += len(kept) < len(files)
    assert compared > 30


def test_a_link_to_patterns_is_followed(tmp_path: Path) -> None:
    write(tmp_path, "x/y", "patterns")
    (tmp_path / "patterns").write_bytes("\ufeffy\r\n".encode())
    (tmp_path / "x" / ".coregwignore").symlink_to("../patterns")
    assert paths(tmp_path) == ["patterns"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_and_folders_are_skipped_and_reported(tmp_path: Path) -> None:
    write(tmp_path, "secret/file", "file")
    (tmp_path / "secret").chmod(0)
    (tmp_path / "file").chmod(0)
    found = survey(tmp_path)
    assert hash_survey(found).skipped == [
        (tmp_path / "file", "permission denied"),
        (tmp_path / "secret", "permission denied"),
    ]


def test_a_folder_that_becomes_a_link_while_it_is_surveyed_shows_nothing_from_outside(tmp_path: Path) -> None:
    top, outside = tmp_path / "top", tmp_path / "outside"
    write(outside, "deeper/secret")
    (outside / ".coregwignore").write_text("[")  # malformed: to read it is an error
    link = top / "link"
    write(top, "swapped/deeper/own", *(f"{number}" for number in range(300)))
    link.symlink_to(outside)
    ended = threading.Event()

    def swap() -> None:
        folder, aside = top / "swapped", top / "aside"
        while not ended.is_set():
            folder.rename(aside)
            link.rename(folder)
            folder.rename(link)
            aside.rename(folder)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(200):
            assert not [entry.path for entry in survey(top) if "secret" in entry.path]
    finally:
        ended.set()
        swapping.join()


def test_progress_counts_the_entries_and_ends_the_survey_by_an_exception(tmp_path: Path) -> None:
    write(tmp_path, *(f"d{number % 7}/{number}" for number in range(3000)))
    counted: list[int] = []
    survey(tmp_path, progress=counted.append)
    assert sum(counted) == 3007

    def refuse(_: int) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        survey(tmp_path, progress=refuse)
