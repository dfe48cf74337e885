"""``coregw update``: the new root, derived locally, or one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

import coregw as package

Run = Callable[..., Result]
TEXT = package.payload_cid(b"text")


@pytest.fixture
def root(run: Run, tmp_path: Path) -> str:
    (tmp_path / "tree" / "docs").mkdir(parents=True)
    (tmp_path / "tree" / "docs" / "a").write_text("a")
    (tmp_path / "tree" / "b").write_text("b")
    added = run("add", tmp_path / "tree", "--attributes", "none")
    assert added.exit_code == 0
    return str(added.stdout.split()[-1])


def test_update_prints_the_root_of_the_resulting_map(run: Run, root: str) -> None:
    changed = run("update", root, "--set", "docs/new", TEXT, "--set", "b", TEXT, "--remove", "docs/a")
    assert (changed.exit_code, changed.stderr) == (0, "")
    assert changed.stdout.strip() == package.Map({"docs/new": TEXT, "b": TEXT}).root
    listed = run("diff", root, changed.stdout.strip())
    assert listed.stdout == "~ b\n- docs/a\n+ docs/new\n"


def test_update_removes_the_attributes_of_what_it_changes(run: Run, root: str, tmp_path: Path) -> None:
    (tmp_path / "tree" / "b").chmod(0o755)
    folder = run("add", tmp_path / "tree").stdout.split()[-1]
    changed = run("update", folder, "--set", "docs/new", TEXT, "--remove", "docs/a").stdout.strip()
    assert [line.split()[-1] for line in run("ls", "-l", changed, "docs").stdout.splitlines()] == ["new"]
    (only_exec,) = run("add", tmp_path / "tree", "--attributes", "exec").stdout.split()
    assert (
        run("update", only_exec, "--remove", "b").stdout.strip() == run("update", root, "--remove", "b").stdout.strip()
    )


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "nothing to change"),
        (["--remove", "docs/none"], 1, "docs/none"),
        (["--set", "b", "no-cid"], 1, 'coregw: b: CID "no-cid"'),
        (["--set", "", TEXT], 1, "the path to change is empty"),
        (["--set", "a//b", TEXT], 1, "coregw: 'a//b': segment 1"),
        (["--set", "b", TEXT, "--set", "b", TEXT], 1, "b: named twice"),
        (["--set", "b", TEXT, "--remove", "b"], 1, "b: named twice"),
    ],
)
def test_an_invalid_change_is_one_line_that_names_it(
    run: Run, root: str, arguments: list[str], code: int, says: str
) -> None:
    refused = run("update", root, *arguments)
    assert (refused.exit_code, refused.stdout) == (code, "")
    assert says in refused.stderr
