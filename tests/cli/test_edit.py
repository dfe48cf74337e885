"""``coregw put``, ``rm`` and ``mv``: the root is that of a folder which was changed in the same way and added."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "bin").mkdir(parents=True)
    (folder / "docs" / "deep").mkdir(parents=True)
    (folder / "bin" / "go").write_text("#!")
    (folder / "bin" / "go").chmod(0o755)
    (folder / "bin" / "now").symlink_to("go")
    (folder / "docs" / "a").write_text("a")
    (folder / "docs" / "deep" / "b").write_bytes(os.urandom(300_000))
    (folder / "empty").mkdir()
    (folder / "readme").write_text("readme")
    return folder


@pytest.fixture
def root(run: Run, tree: Path) -> str:
    return added(run, tree)


def added(run: Run, folder: Path) -> str:
    """The root of a folder, with modes, links and sizes. Times would differ after a change of the folder."""
    done = run("add", folder, "--attributes", "no-times", "--no-cache")
    assert done.exit_code == 0, done.stderr
    return str(done.stdout.strip())


def changed(run: Run, *command: object) -> str:
    done = run(*command)
    assert (done.exit_code, done.stderr) == (0, "")
    return str(done.stdout.strip())


@pytest.mark.parametrize("target", ["", "docs", "docs/", "docs/deep/c", "readme", "bin/now"])
def test_put_a_file(run: Run, root: str, tree: Path, tmp_path: Path, target: str) -> None:
    source = tmp_path / "c"
    source.write_text("new")
    source.chmod(0o600)
    place = tree / target
    if target == "bin/now":
        place.unlink()  # a link is replaced, not followed
    shutil.copy2(source, place)
    assert changed(run, "put", root, source, target, "--attributes", "no-times") == added(run, tree)


@pytest.mark.parametrize("target", ["", "docs/", "docs/c"])
def test_put_what_a_link_leads_to(run: Run, root: str, tree: Path, tmp_path: Path, target: str) -> None:
    (tmp_path / "real").write_text("new")
    (tmp_path / "name").symlink_to("real")
    shutil.copy2(tmp_path / "real", tree / target / "name" if target != "docs/c" else tree / target)
    after = added(run, tree)
    assert changed(run, "put", root, tmp_path / "name", target, "--attributes", "no-times") == after
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x").write_text("x")
    (tmp_path / "link").symlink_to("folder")
    shutil.copytree(tmp_path / "folder", tree / "link")
    put = changed(run, "put", after, tmp_path / "link", "--attributes", "exec")
    assert run("cat", put, "link/x").stdout == "x"


def test_put_of_nothing_is_an_error(run: Run, root: str, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    refused = run("put", root, tmp_path / "nothing")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "nothing to put at 'nothing': it is an empty folder" in refused.stderr


def test_put_a_folder_merges(run: Run, root: str, tree: Path, tmp_path: Path) -> None:
    source = tmp_path / "docs"
    (source / "deep" / "new").mkdir(parents=True)
    (source / "a").write_text("another a")
    shutil.copytree(source, tree / "docs", dirs_exist_ok=True)
    assert changed(run, "put", root, source, "--attributes", "no-times") == added(run, tree)
    done = run("put", root, source, "empty/x", "--attributes", "none", "--json")
    assert json.loads(done.stdout)["path"] == "empty/x"
    listed = run("ls", "-R", json.loads(done.stdout)["root"], "empty").stdout
    assert [line.split()[-1] for line in listed.splitlines()] == ["x/a"]


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("readme/x", "readme is a file"),
        ("bin/now/x", "bin/now is a symbolic link"),
        (".coregw/x", ".coregw is reserved"),
        ("a//b", "a//b"),
    ],
)
def test_put_refuses_what_is_below_no_folder(run: Run, root: str, tmp_path: Path, path: str, says: str) -> None:
    (tmp_path / "x").write_text("x")
    done = run("put", root, tmp_path / "x", path)
    assert done.exit_code == 1
    assert says in done.stderr
    assert done.stdout == ""


def test_a_folder_does_not_replace_a_file_nor_the_other_way_round(run: Run, root: str, tmp_path: Path) -> None:
    (tmp_path / "readme").mkdir()
    (tmp_path / "readme" / "x").write_text("x")
    for name, says in (("a/x", "docs/a is a file"), ("deep", "docs/deep is a folder"), ("a/x/y", "docs/a is a file")):
        shutil.rmtree(tmp_path / "docs", ignore_errors=True)
        (tmp_path / "docs" / name).parent.mkdir(parents=True)
        (tmp_path / "docs" / name).write_text("a file")
        done = run("put", root, tmp_path / "docs")
        assert done.exit_code == 1
        assert says in done.stderr
    done = run("put", root, tmp_path / "readme")
    assert done.exit_code == 1
    assert "readme is a file" in done.stderr


def test_rm(run: Run, root: str, tree: Path) -> None:
    (tree / "readme").unlink()
    (tree / "bin" / "now").unlink()
    shutil.rmtree(tree / "docs")
    shutil.rmtree(tree / "empty")
    assert changed(run, "rm", "-r", root, "readme", "bin/now", "docs/", "empty") == added(run, tree)


def test_rm_of_everything_is_the_root_of_an_empty_folder(run: Run, root: str, tree: Path) -> None:
    for each in ("bin", "docs", "empty"):
        shutil.rmtree(tree / each)
    (tree / "readme").unlink()
    assert changed(run, "rm", "-r", root, "readme", "bin", "docs", "empty") == added(run, tree)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("docs", "docs is a folder: remove it with --recursive"),
        ("empty", "empty is a folder"),
        ("none", "none: there is no such file or folder"),
        ("readme/x", "readme is a file"),
        (".coregw/attributes", "no such file"),
        ("", "no such file"),
    ],
)
def test_rm_refuses_what_is_no_file(run: Run, root: str, path: str, says: str) -> None:
    done = run("rm", root, path)
    assert done.exit_code == 1
    assert says in done.stderr


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("readme", "docs/guide"),
        ("readme", "docs/"),
        ("readme", "docs/a"),
        ("bin/now", "now"),
        ("docs", "bin"),
        ("docs/deep", "shallow"),
        ("empty", "bin/none"),
        ("bin/go", "bin/now"),
    ],
)
def test_mv(run: Run, root: str, tree: Path, old: str, new: str) -> None:
    place = tree / new
    if place.is_symlink():
        place.unlink()
    shutil.move(tree / old, place)
    assert changed(run, "mv", root, old, new) == added(run, tree)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("docs", "docs/deep", "docs can't be moved into itself"),
        ("docs", "readme", "readme already exists"),
        ("readme", "readme", "readme already exists"),
        ("none", "x", "no such file"),
        ("docs/a", "readme/x", "readme is a file"),
        ("readme", ".coregw/x", "reserved"),
    ],
)
def test_mv_refuses(run: Run, root: str, old: str, new: str, says: str) -> None:
    done = run("mv", root, old, new)
    assert done.exit_code == 1
    assert says in done.stderr


def test_a_nested_map_moves_as_one_target(run: Run, root: str, tree: Path) -> None:
    inner = added(run, tree / "docs")
    outer = changed(run, "update", root, "--set", "nested", inner)
    moved = changed(run, "mv", outer, "nested", "docs/inner")
    assert changed(run, "resolve", moved, "docs/inner") == inner
    for command in (("rm", moved, "docs/inner"), ("mv", moved, "readme", "docs/inner/x")):
        assert run(*command).exit_code == 1
    assert changed(run, "rm", "-r", moved, "docs/inner") == root


@pytest.mark.parametrize(
    ("command", "place"),
    [("put", ".."), ("put", "docs/../x"), ("put", "./x"), ("mv", "docs/./x"), ("mv", "a\0b")],
)
def test_a_name_that_no_file_can_have_is_not_bound(
    run: Run, root: str, tmp_path: Path, command: str, place: str
) -> None:
    (tmp_path / "new").write_text("new")
    what = [root, tmp_path / "new", place] if command == "put" else [root, "readme", place]
    done = run(command, *what)
    assert done.exit_code != 0
    assert "segments[" in done.stderr
    assert "can't be a file name" in done.stderr
