"""``coregw stat`` and ``tree``, ``ls --json`` and folders that end in "/"; ``-q`` and ``-v``; golden texts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from coregw import payload_cid

Run = Callable[..., Result]
MTIME = 1_700_000_000_123_456_789


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    (folder / "docs" / "empty").mkdir(parents=True)
    (folder / "docs" / "guide").write_text("the guide\n")
    (folder / "docs" / "a\nb").write_text("")
    (folder / "docs" / "large").write_bytes(b"x" * 300_000)
    (folder / "link").symlink_to("docs/guide")
    for each in (folder / "docs" / "guide", folder / "docs" / "large", folder / "docs" / "a\nb"):
        each.chmod(0o640)
        os.utime(each, ns=(MTIME, MTIME))
    return folder


@pytest.fixture
def root(run: Run, tree: Path) -> str:
    return str(run("add", tree).stdout.strip())


def test_stat_shows_what_is_proven_and_recorded(run: Run, root: str) -> None:
    lines = dict(line.split("  ", 1) for line in run("stat", root, "docs/guide").stdout.splitlines())
    shown = {name: value.strip() for name, value in lines.items()}
    assert int(shown.pop("proof bytes")) > 0
    assert shown == {
        "path": "docs/guide",
        "kind": "file",
        "target": payload_cid(b"the guide\n"),
        "size": "10",
        "mode": "0640 (-rw-r-----)",
        "mtime": "2023-11-14 22:13:20.123456789 UTC",
    }


@pytest.mark.parametrize(
    ("path", "kind", "size"), [("docs/", "folder", None), ("link", "link", None), ("docs/large", "file", 300_000)]
)
def test_stat_as_json(run: Run, root: str, path: str, kind: str, size: int | None) -> None:
    shown = json.loads(run("stat", root, path, "--json").stdout)
    assert (shown["path"], shown["kind"], shown.get("size")) == (path.rstrip("/"), kind, size)
    assert shown.get("link") == ("docs/guide" if kind == "link" else None)
    assert ("target" in shown) == (kind == "file")


def test_stat_of_the_root_and_of_nothing(run: Run, root: str) -> None:
    assert json.loads(run("stat", root, "--json").stdout)["target"] == root
    absent = run("stat", root, "docs/none")
    assert (absent.exit_code, absent.stdout) == (1, "")
    assert "docs/none" in absent.stderr


def test_tree_is_drawn(run: Run, root: str) -> None:
    done = run("tree", root)
    assert done.stdout.splitlines() == [
        root,
        "├── docs/",
        "│   ├── a\\nb",
        "│   ├── empty/",
        "│   ├── guide",
        "│   └── large",
        "└── link -> docs/guide",
        "",
        "2 folders, 3 files, 1 link, 300,010 bytes",
    ]
    assert run("tree", root, "docs/").stdout.splitlines()[:2] == ["docs/", "├── a\\nb"]
    assert run("tree", root, "-L", "1").stdout.splitlines()[1:3] == ["├── docs/", "└── link -> docs/guide"]


def test_tree_as_json_has_what_ls_has(run: Run, root: str) -> None:
    shown = json.loads(run("tree", root, "--json").stdout)
    counts = {name: value for name, value in shown.items() if name != "entries"}
    assert counts == {"folders": 2, "files": 3, "links": 1, "bytes": 300_010}
    found: dict[str, object] = {}

    def flatten(prefix: str, entries: dict[str, dict[str, object]]) -> None:
        for name, entry in entries.items():
            below: Any = entry.pop("entries", None)
            found[prefix + name] = entry
            flatten(f"{prefix}{name}/", below or {})

    flatten("", shown["entries"])
    listed = [json.loads(line) for line in run("ls", "-R", root, "--json").stdout.splitlines()]
    expected: dict[str, object] = {entry.pop("name"): entry for entry in listed}
    assert found == expected
    assert "entries" not in json.loads(run("tree", root, "-L", "1", "--json").stdout)["entries"]["docs"]


def test_tree_follows_nested_maps(run: Run, root: str) -> None:
    outer = run("update", root, "--set", "nested", root).stdout.strip()
    assert "│   └── link -> docs/guide" in run("tree", outer, "nested").stdout or "nested/" in run("tree", outer).stdout
    assert run("tree", outer).stdout.count("guide\n") == 4


def test_ls_takes_a_folder_with_a_slash(run: Run, root: str) -> None:
    assert run("ls", root, "docs/").stdout == run("ls", root, "docs").stdout != ""
    refused = run("ls", root, "docs//")
    assert refused.exit_code == 1
    assert "docs/" in refused.stderr


def test_ls_as_json_has_names_unchanged(run: Run, root: str) -> None:
    entries = [json.loads(line) for line in run("ls", "--json", root, "docs").stdout.splitlines()]
    assert [each["name"] for each in entries] == ["a\nb", "empty", "guide", "large"]
    guide = entries[2]
    assert guide == {
        "name": "guide",
        "kind": "file",
        "target": payload_cid(b"the guide\n"),
        "size": 10,
        "mode": "0640",
        "mtime_ns": MTIME,
    }


def test_diff_can_tell_by_its_exit_code(run: Run, root: str, tree: Path) -> None:
    other = run("rm", root, "link").stdout.strip()
    assert run("diff", root, other).exit_code == 0
    assert run("diff", "--exit-code", root, other).exit_code == 6
    assert run("diff", "--exit-code", root, root).exit_code == 0
    assert run("diff", "--exit-code", root, tree).exit_code == 0
    (tree / "link").unlink()
    assert run("diff", "--exit-code", root, tree).exit_code == 6


def test_a_link_and_an_empty_folder_are_said_to_be_what_they_are(run: Run, root: str) -> None:
    for command in ("cat", "resolve"):
        link = run(command, root, "link")
        assert (link.exit_code, link.stdout) == (1, "")
        assert link.stderr == "coregw: link is a symbolic link to docs/guide, which is not followed\n"
        empty = run(command, root, "docs/empty/")
        assert (empty.exit_code, empty.stderr) == (1, "coregw: docs/empty is an empty folder\n")
    assert "is not followed" not in run("cat", root, "link/below").stderr


def test_tree_of_what_is_no_folder_is_one_name(run: Run, root: str) -> None:
    assert run("tree", root, "docs/guide").stdout == "guide\n\n0 folders, 1 file, 0 links, 10 bytes\n"
    assert run("tree", root, "link").stdout == "link -> docs/guide\n\n0 folders, 0 files, 1 link, 0 bytes\n"
    shown = json.loads(run("tree", root, "docs/guide", "--json").stdout)
    assert [*shown["entries"]] == ["guide"]
    assert shown["entries"]["guide"]["kind"] == "file"


def test_quiet_prints_results_and_errors_alone(run: Run, tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    loud, quiet = run("add", tree), run("add", "-q", tree)
    assert loud.stderr.count("coregw: ") == 2
    assert (quiet.stdout, quiet.stderr) == (loud.stdout, "")
    added = json.loads(run("add", "--json", "-q", tree).stdout)
    assert added["root"] == loud.stdout.strip()
    assert [*added["skipped"]] == [str(tree / "fifo")] or [*added["skipped"]] == ["fifo"]
    failed = run("ls", "-q", "no-cid")
    assert failed.exit_code == 1
    assert failed.stderr.startswith("coregw: ")


def test_waiting_for_a_gateway_is_said_unless_quiet(
    coregw: Callable[..., subprocess.CompletedProcess[bytes]], root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COREGW_RETRY_SECONDS", "3")
    command = ("ls", root, "--gateway", "http://127.0.0.1:9")
    waits, fails = coregw(*command).stderr.decode().splitlines()
    assert waits.startswith("coregw: ")
    assert waits.endswith("; trying again for 3 s")
    assert fails.startswith("coregw: ")
    assert len(coregw(*command, "-q").stderr.decode().splitlines()) == 1


def test_verbose_logs_each_request(
    coregw: Callable[..., subprocess.CompletedProcess[str]], gateway: str, root: str
) -> None:
    done = coregw("ls", root, "-v", "--gateway", gateway)
    assert done.returncode == 0
    assert "/v1/" in str(done.stderr)
    assert "/v1/" not in str(coregw("ls", root, "--gateway", gateway).stderr)
