"""``coregw get --dry-run`` says what ``coregw get`` then does, and changes nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def root(run: Run, tmp_path: Path) -> str:
    tree = tmp_path / "tree"
    (tree / "docs" / "deep").mkdir(parents=True)
    (tree / "docs" / "deep" / "b").write_bytes(os.urandom(300_000))
    (tree / "docs" / "a").write_text("a")
    (tree / "readme").write_text("readme")
    (tree / "link").symlink_to("readme")
    (tree / "empty").mkdir()
    done = run("add", tree, "--no-cache")
    assert done.exit_code == 0, done.stderr
    return str(done.stdout.strip())


@pytest.fixture
def dest(run: Run, root: str, tmp_path: Path) -> Path:
    """A restored folder of which something was changed, removed and added afterwards."""
    dest = tmp_path / "dest"
    assert run("get", root, dest).exit_code == 0
    (dest / "docs" / "a").write_text("mine")
    (dest / "docs" / "deep" / "b").unlink()
    (dest / "link").unlink()
    (dest / "link").symlink_to("docs")
    (dest / "own").mkdir()
    (dest / "own" / "file").write_text("own")
    return dest


def states(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        str(path.relative_to(folder)): (
            path.lstat().st_mtime_ns,
            path.lstat().st_ino,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("cache", ["--cache", "--no-cache"])
def test_a_dry_run_says_what_get_does(run: Run, root: str, dest: Path, cache: str) -> None:
    before = states(dest)
    for more, deleted in ([], []), (["--delete"], ["- own"]):
        planned = run("get", root, dest, "--dry-run", cache, *more)
        assert (planned.exit_code, planned.stdout.splitlines()) == (
            0,
            ["~ docs/a", "+ docs/deep/b", "~ link", *deleted],
        )
        assert "nothing was changed" in planned.stderr
    assert states(dest) == before
    done = run("get", root, dest, "--delete", "--json", cache)
    assert json.loads(done.stdout) == {
        "files": 2,
        "bytes": 300_001,
        "replaced": 1,
        "kept": 1,
        "deleted": 1,
        "skipped": {},
    }
    again = run("get", root, dest, "-n", "--delete", "--json", cache)
    assert json.loads(again.stdout) == {"created": [], "replaced": [], "deleted": [], "kept": 3, "skipped": {}}


def test_a_dry_run_makes_no_folder(run: Run, root: str, tmp_path: Path) -> None:
    planned = run("get", root, tmp_path / "new", "-n")
    assert planned.exit_code == 0
    assert planned.stdout.splitlines() == [f"+ {path}" for path in ("docs/a", "docs/deep/b", "empty", "link", "readme")]
    assert not (tmp_path / "new").exists()
    assert run("get", root, tmp_path / "nothing" / "new", "-n").exit_code != 0


def test_a_dry_run_refuses_what_get_refuses(run: Run, root: str, dest: Path) -> None:
    (dest / "readme").unlink()
    (dest / "readme").mkdir()
    refused, planned = run("get", root, dest), run("get", root, dest, "-n")
    assert planned.exit_code == refused.exit_code != 0
    assert planned.stderr == refused.stderr
    planned = run("get", root, dest, "-n", "--delete")
    assert planned.exit_code == 0
    assert {"- readme", "+ readme"} <= {*planned.stdout.splitlines()}


def test_get_says_how_many_files_it_has_replaced(run: Run, root: str, dest: Path) -> None:
    assert "(1 file replaced)" in run("get", root, dest).stderr


def test_delete_spares_what_add_leaves_out(run: Run, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in ("docs/a", "build/kept", ".git/HEAD", "build/out.o", "old/deep/b.o", "old/c", "x.log", "x.tmp"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    (tree / ".coregwignore").write_text("*.o\n")
    (tree / ".gitignore").write_text("*.log\n")
    spared = ["--gitignore", "--exclude", "*.tmp"]
    root = run("add", tree, *spared, "--exclude", "/old").stdout.strip()
    planned = run("get", root, tree, "--delete", "-n", *spared)
    assert planned.stdout == "- old/c\n"
    assert run("get", root, tree, "--delete", *spared).exit_code == 0
    names = lambda: sorted(str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file())  # noqa: E731
    left = [".coregwignore", ".git/HEAD", ".gitignore", "build/kept", "build/out.o", "docs/a", "old/deep/b.o"]
    assert names() == [*left, "x.log", "x.tmp"]
    assert run("verify", root, tree, "--as-added", *spared, "--exclude", "/old").exit_code == 0
    assert run("get", root, tree, "--delete").exit_code == 0
    assert names() == left
    (tree / ".coregwignore").write_text("a[\n")
    refused = run("get", root, tree, "--delete")
    assert (refused.exit_code, names()) == (1, left)
    assert ".coregwignore: line 1: " in refused.stderr
    assert run("get", root, tree, "--delete-excluded").exit_code == 0
    assert names() == [".coregwignore", ".gitignore", "build/kept", "docs/a"]
    assert run("verify", root, tree).exit_code == 0


def test_what_is_excluded_is_not_replaced_by_something_else(run: Run, root: str, tmp_path: Path) -> None:
    dest = tmp_path / "dest"
    (dest / "readme" / ".git").mkdir(parents=True)
    (dest / "docs").write_text("own")
    (dest / ".coregwignore").write_text("docs\n")
    for path in ("docs", "readme"):
        refused = run("get", root, dest, "--delete")
        assert refused.exit_code == 1
        assert f"{dest}/{path}: is " in refused.stderr
        assert "--delete-excluded replaces it" in refused.stderr
        (dest / ".coregwignore").write_text("")
    assert (dest / "docs").read_text() == "own"
    assert run("get", root, dest, "--delete-excluded").exit_code == 0
    assert (dest / "readme").read_text() == "readme"
