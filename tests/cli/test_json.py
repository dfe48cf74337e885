"""``--json`` prints one object on stdout, whatever the command, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from coregw.cli import cli

Run = Callable[..., Result]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a").write_text("a")
    return tmp_path / "folder"


@pytest.fixture
def as_json(run: Run) -> Callable[..., Any]:
    def parsed(*command: object) -> Any:  # noqa: ANN401 - what JSON has
        done = run(*command, "--json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    return parsed


def test_roots_that_were_computed_or_stored(as_json: Callable[..., Any], folder: Path, tmp_path: Path) -> None:
    added = as_json("add", folder)
    root = added["root"]
    assert added == {"root": root, "files": 1, "bytes": 1, "skipped": {}}
    assert as_json("hash", folder) == added
    assert as_json("verify", root, folder) == {"root": root, "path": str(folder), "attributes": "all"}
    arcs = tmp_path / "arcs.tsv"
    arcs.write_text(f"a\t{root}\n")
    built = as_json("build", arcs)
    assert built == as_json("build", arcs, "--offline") == {"root": built["root"], "arcs": 1}


def test_copies(as_json: Callable[..., Any], run: Run, folder: Path, tmp_path: Path, gateway: str) -> None:
    root = as_json("add", folder)["root"]
    written = as_json("export", root, tmp_path / "root.car", "--payloads")
    assert written["blocks"] >= 3
    assert as_json("import", tmp_path / "root.car")["roots"] == [root]
    static = as_json("export", root, "--static", tmp_path / "static")
    assert (static["roots"], static["payloads"], static["record"]) == (2, 1, None)
    checked = as_json("export", "--static", tmp_path / "static", "--check")
    assert checked["findings"] == []
    mirrored = as_json("mirror", root, "--from", gateway, "--to", gateway)
    assert mirrored["root"] == root
    assert run("export", root, "-", "--json").exit_code == 2
    restored = as_json("get", root, tmp_path / "copy")
    assert restored == {"files": 1, "bytes": 1, "kept": 0, "deleted": 0, "skipped": {}}
    assert as_json("get", root, tmp_path / "copy")["kept"] == 1


def test_a_saved_proof(as_json: Callable[..., Any], run: Run, folder: Path, tmp_path: Path) -> None:
    root = as_json("add", folder, "--attributes", "none")["root"]
    saved = tmp_path / "proof.json"
    saved.write_text(run("resolve", root, "a", "--json").stdout)
    verified = as_json("verify", saved)
    assert verified["proven"] == run("resolve", root, "a").stdout.strip()
    assert verified["request"]["root"] == root


def test_every_command_has_q_and_v(run: Run) -> None:
    """But those that serve, which have settings for their logs, and groups, whose commands have them."""
    context = cli.make_context("coregw", ["--version"], resilient_parsing=True)
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        names = {each.name for each in command.params}
        if name not in {"serve", "serve-plants", "witness"} and not hasattr(command, "commands"):
            assert {"quiet", "verbose"} <= names, name
            assert {"as_json", "json_file"} & names or name in {"cat", "tree"}, name
