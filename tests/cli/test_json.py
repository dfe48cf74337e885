"""``--json`` prints one object on stdout, whatever the command, and nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import Result

import serving
from coregw.cli.main import cli

if TYPE_CHECKING:
    import click

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
    assert as_json("verify", root, folder) == {
        "root": root,
        "path": str(folder),
        "attributes": "all",
        "owner": False,
        "xattrs": False,
        "left_out": {},
    }
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
    assert restored == {"files": 1, "bytes": 1, "replaced": 0, "kept": 0, "deleted": 0, "skipped": {}}
    assert as_json("get", root, tmp_path / "copy")["kept"] == 1


@pytest.mark.slow
def test_names_of_files_that_are_not_utf_8_are_escaped(tmp_path: Path, gateway: str, root: str) -> None:
    """Folders, files, stores and settings with the byte ff in their names; each command says it in JSON."""
    place = tmp_path / os.fsdecode(b"place\xff")
    folder = place / "folder"
    folder.mkdir(parents=True)
    (folder / "a").write_text("a")
    (folder / os.fsdecode(b"b\xff")).write_text("b")
    arcs = place / "arcs.tsv"
    arcs.write_text(f"a\t{root}\n")
    environment = {**os.environ, "COREGW_GATEWAY": gateway, "COREGW_TRUST": str(place / "trust.json")}
    environment.pop("COREGW_DEBUG", None)

    def run(*arguments: object, codes: tuple[int, ...] = (0,)) -> list[Any]:
        command = [sys.executable, "-m", "coregw", *map(str, arguments), "--json"]
        done = subprocess.run(command, env=environment, capture_output=True, timeout=120, check=False)
        assert done.returncode in codes, (command, done)
        assert b"internal error" not in done.stderr, done
        return [json.loads(line) for line in done.stdout.decode("utf-8").splitlines()]

    run("add", folder, codes=(1,))
    (folder / os.fsdecode(b"b\xff")).rename(place / os.fsdecode(b"b\xff"))
    [added] = run("add", folder)
    [hashed] = run("hash", folder)
    assert hashed == added
    run("put", added["root"], place / os.fsdecode(b"b\xff"), "name", codes=(1,))
    (folder / os.fsdecode(b"c\xff")).write_text("c")
    run("build", arcs)
    run("diff", added["root"], folder, codes=(0, 1, 3, 6))
    run("verify", added["root"], folder, codes=(0, 1, 3))
    run("get", added["root"], place / os.fsdecode(b"copy\xff"))
    run("get", added["root"], place / os.fsdecode(b"copy\xff"), "--dry-run")
    run("export", added["root"], place / os.fsdecode(b"a\xff.car"), "--payloads")
    run("import", place / os.fsdecode(b"a\xff.car"))
    run("export", added["root"], "--static", place / os.fsdecode(b"static\xff"))
    run("export", "--static", place / os.fsdecode(b"static\xff"), "--check")
    run("key", place / os.fsdecode(b"key\xff"), "--name", "example.org/a")
    run("root", "trust", "mine", added["root"])
    run("root", "list")
    run("doctor")
    run("serve", "--data", place / "data", "--settings")
    data, backup = tmp_path / "data", place / os.fsdecode(b"backup\xff")
    with serving.process(data):
        run("backup", backup, "--data", data, codes=(0, 1))
        run("fsck", "--data", data)
    run("backup", backup, "--data", data)
    run("backup", backup, "--data", data, "--verify-only")
    run("restore", backup, "--data", tmp_path / "restored")
    for refused in (
        ("serve", "--data", place / "data"),
        ("restore", backup, "--data", place / "restored"),
        ("copy", "--from", f"rocksdb:{data}", "--to", f"rocksdb:{place / 'copied'}"),
    ):
        run(*refused, codes=(1,))


def test_a_saved_proof(as_json: Callable[..., Any], run: Run, folder: Path, tmp_path: Path) -> None:
    root = as_json("add", folder, "--attributes", "none")["root"]
    saved = tmp_path / "proof.json"
    saved.write_text(run("resolve", root, "a", "--json").stdout)
    verified = as_json("verify", saved)
    assert verified["proven"] == run("resolve", root, "a").stdout.strip()
    assert verified["request"]["root"] == root


def test_trusted_names(
    as_json: Callable[..., Any], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COREGW_TRUST", str(tmp_path / "trust.json"))
    roots = [as_json("hash", folder, "--attributes", kind)["root"] for kind in ("none", "all")]
    assert as_json("root", "trust", "mine", roots[0]) == {"name": "mine", "root": roots[0], "revision": None}
    assert as_json("root", "accept", "mine", roots[1]) == {"name": "mine", "root": roots[1], "revision": None}
    assert as_json("root", "forget", "mine") == {"name": "mine"}


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield the commands of a group at any depth, with their names."""
    for below, each in getattr(command, "commands", {}).items():
        yield from commands(each, f"{name} {below}")
    if not hasattr(command, "commands"):
        yield name, command


def test_every_command_has_q_and_v_and_json() -> None:
    context = cli.make_context("coregw", ["--version"], resilient_parsing=True)
    known = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    found = [each for name, command in known.items() if command is not None for each in commands(command, name)]
    assert len(found) > 30
    for name, command in found:
        names = {each.name for each in command.params}
        assert {"quiet", "verbose"} <= names, name
        assert {"as_json", "json_file"} & names or name == "cat", name


def test_a_gateway_has_q_and_v_for_its_log(run: Run) -> None:
    shown = tomllib.loads(run("serve", "-v", "--settings").stdout)
    assert shown == {"access_log": True}
    shown = tomllib.loads(run("serve", "-q", "--set", "port=9", "--settings").stdout)
    assert shown == {"log_level": "error", "port": 9}


def test_settings_are_an_object(run: Run) -> None:
    shown = json.loads(run("serve", "--set", "port=9", "--settings", "--json").stdout)
    assert (shown["port"]["value"], shown["port"]["origin"]) == (9, "option")
    assert shown["log_format"]["value"] == "json"
    assert shown["host"] == {"value": "127.0.0.1", "origin": None, "about": "Address to listen on."}


def test_services_print_their_address_and_their_log_as_json(tmp_path: Path) -> None:
    for service in (["serve", "--data", tmp_path / "a"], ["serve-plants", "--data", tmp_path / "b"]):
        command = [sys.executable, "-m", "coregw", *map(str, service), "--port", "0", "--json"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(command, **pipes, text=True) as process:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())
            assert address["url"].startswith("http://127.0.0.1:")
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=60)
        assert {json.loads(line)["level"] for line in log.splitlines()} <= {"info", "warning"}, service


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["--help"], ["ls", "--help"]])
def test_a_full_disk_is_one_line_also_for_help_texts(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "coregw", *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "coregw: <stdout>: No space left on device\n")
