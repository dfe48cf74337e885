"""Failures of commands: one line that names the place, and an exit code for each kind."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import click
import pytest
from click import Context
from click.testing import Result

import coregw
import serving
from coregw import Client, List, Map, payload_cid
from coregw.cli.framework import described
from coregw.cli.main import cli
from coregw.durability import reported_as
from gateways import Reply, lying_gateway
from tables import rows

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]
CID = payload_cid(b"content")
COMMANDS = cli.list_commands(Context(cli))


def test_a_missing_token_is_named_for_what_it_is_needed_for(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with serving.process(tmp_path / "data", {"GATEWAY_WRITE_TOKEN": "writers"}) as process:
        written = run("add", tmp_path / "file", gateway=process.url)
        assert (written.exit_code, written.stdout) == (1, "")
        assert "give the gateway's GATEWAY_WRITE_TOKEN in COREGW_BEARER_TOKEN" in written.stderr
        published = run("publish", "docs/main", CID, gateway=process.url)
        assert published.exit_code == 1
        assert "it exists only where GATEWAY_ADMIN_TOKEN is set" in published.stderr


def test_names_are_published_at_the_management_address_and_read_by_everybody(run: Run, tmp_path: Path) -> None:
    with (
        serving.process(tmp_path / "data", serving.ADMIN, management_address="127.0.0.1:0") as process,
        serving.control(tmp_path / "data") as control,
    ):
        management = control.get("/admin/v1/maintenance/status").json()["addresses"][0]
        with Client(process.url) as client:
            root = client.create_root({"file": client.put_payload(b"content")})
        token = ("--token", serving.ADMIN_TOKEN)
        refused = run("publish", "docs/main", root, *token, gateway=process.url)
        assert refused.exit_code == 1
        assert "give the address that serves /admin: the gateway's COREGW_MANAGEMENT_ADDRESS" in refused.stderr
        untold = run("publish", "docs/main", root, gateway=management)
        assert "give the gateway's GATEWAY_ADMIN_TOKEN in COREGW_ADMIN_TOKEN (--token)" in untold.stderr
        assert run("publish", "docs/main", root, *token, gateway=management).exit_code == 0
        for number, (url, given) in enumerate(product((process.url, management), ((), token))):
            followed = run("root", "trust", f"docs{number}", "--follow", "docs/main", *given, gateway=url)
            assert (followed.exit_code, followed.stdout) == (0, f"{root}\n"), followed.stderr
        misled = run("cat", root, "file", gateway=management)
        assert "give the address for clients: a management address serves no data" in misled.stderr
        assert "a management address serves no data" in run("doctor", gateway=management).stdout


def test_messages_name_what_the_user_has_given(run: Run, coregw: Start, tmp_path: Path) -> None:
    folder, text, odd = tmp_path / "folder", tmp_path / "todo.txt", tmp_path / os.fsdecode(b"odd\xff")
    folder.mkdir()
    text.write_bytes(b"not a CAR at all")
    imported = run("import", folder)
    assert (imported.exit_code, imported.stderr) == (1, f"coregw: '{folder}': Is a directory\n")
    expires = run("pin", CID, "--data", tmp_path, "--expires", "yesterday")
    assert expires.exit_code == 2
    assert "Invalid value for --expires: 'yesterday' is neither" in expires.stderr
    with serving.process(tmp_path / "data") as process:
        root = run("add", folder, gateway=process.url).stdout.strip()
        healed = run("heal", "--from", text, "--data", tmp_path / "data")
        assert healed.exit_code == 1
        assert healed.stdout.startswith(f"refused: {text}: the header: ")
        backed_up = coregw("backup", odd, "--data", tmp_path / "data")
        assert backed_up.returncode == 1
        assert backed_up.stderr.decode().startswith(f"coregw: {tmp_path}/odd\\xff: expected a path in UTF-8")
        assert f"to {tmp_path}/odd\\xff" in coregw("get", root, odd, "--gateway", process.url).stderr.decode()


@pytest.mark.parametrize("status", [403, 404])
def test_a_proxy_that_hides_the_administration_is_a_possible_reason(
    run: Run, gateway: str, root: str, status: int
) -> None:
    def hide(reply: Reply) -> Reply:
        return replace(reply, status=status, body=b"<html>") if reply.path.startswith("/admin/") else reply

    with lying_gateway(hide, gateway) as url:
        refused = run("publish", "docs/main", root, gateway=url)
    assert "earlier version" not in refused.stderr
    expected = "a proxy may hide /admin" if status == 404 else "if it is a proxy, --header"
    assert expected in refused.stderr


def test_a_full_store_is_not_blamed_on_the_connection(run: Run, gateway: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    full = b'{"error": "storage_full", "message": "no room"}'
    with lying_gateway(lambda reply: replace(reply, status=507, body=full), gateway) as url:
        refused = run("add", tmp_path / "file", gateway=url)
    assert refused.exit_code == 1
    assert "no room (storage_full)" in refused.stderr
    assert "connection" not in refused.stderr


@rows(
    "command",
    [
        ["resolve", "ROOT", "docs/none"],
        ["cat", "ROOT", "docs/none"],
        ["ls", "ROOT", "docs/none"],
        ["cat", "ROOT", "docs"],
    ],
)
def test_an_absent_path_is_one_line_and_exit_code_1(run: Run, root: str, command: list[str]) -> None:
    failed = run(*[root if word == "ROOT" else word for word in command])
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert len(failed.stderr.splitlines()) == 1
    assert failed.stderr.startswith("coregw: ")
    assert command[2] in failed.stderr


@pytest.mark.parametrize("command", ["ls", "cat", "get", "resolve"])
@pytest.mark.parametrize("bad", ["nonsense", "-", "../..", "bafkqaaaa"])
def test_an_invalid_root_is_one_line_and_exit_code_1(run: Run, tmp_path: Path, command: str, bad: str) -> None:
    failed = run(command, "--", bad, tmp_path / "out")
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert len(failed.stderr.splitlines()) == 1


def test_using_a_map_as_a_file_or_a_payload_as_a_folder_is_an_error(run: Run, root: str, tmp_path: Path) -> None:
    assert "is a map, not a file" in run("cat", root, "").stderr
    assert run("cat", root, "docs").stderr == "coregw: docs is a folder: list it with coregw ls\n"
    assert "is a folder" not in run("cat", root, "none").stderr
    assert "is not a map root" in run("get", CID, tmp_path / "out").stderr
    assert "is not a map root" in run("get", List([CID]).root, tmp_path / "out").stderr


def test_an_unreachable_gateway_is_one_line_and_exit_code_1(run: Run, root: str) -> None:
    failed = run("resolve", root, "docs/readme", "--gateway", "http://127.0.0.1:9")
    assert failed.exit_code == 1
    assert "http://127.0.0.1:9" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "command",
    [["resolve", "ROOT", "docs/readme"], ["cat", "ROOT", "docs/readme"], ["ls", "ROOT"], ["get", "ROOT", "OUT"]],
)
def test_a_tampered_answer_is_exit_code_3(
    run: Run, gateway: str, root: str, tmp_path: Path, command: list[str]
) -> None:
    words = {"ROOT": root, "OUT": tmp_path / "out"}
    with lying_gateway(
        lambda reply: reply.with_body(reply.body.replace(b'"proof":"', b'"proof":"AAAA')), gateway
    ) as url:
        failed = run(*[words.get(word, word) for word in command], gateway=url)
    assert (failed.exit_code, failed.stdout) == (3, "")
    assert failed.stderr.startswith("coregw: not proven: ")
    assert list(tmp_path.iterdir()) == []


def test_a_wrong_cid_or_root_while_adding_is_exit_code_3(run: Run, gateway: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    other = Map({"other": CID}).root.encode()
    for path, body in (("/v1/cas", b'{"cid": "%s"}' % CID.encode()), ("/v1/roots", b'{"root": "%s"}' % other)):
        with lying_gateway(
            lambda reply, at=path, lie=body: reply.with_body(lie) if reply.path.startswith(at) else reply, gateway
        ) as url:
            failed = run("add", tmp_path, gateway=url)
        assert (failed.exit_code, failed.stdout) == (3, "")


@rows(
    "command",
    [
        ["nonsense"],
        ["add"],
        ["ls"],
        ["resolve", "x"],
        ["serve", "--port", "x"],
        ["serve", "--set", "x"],
        ["--nonsense"],
        ["serve", "--set", "environ=1"],
        ["add", "--suite", "md5", "x"],
    ],
)
def test_wrong_usage_is_exit_code_2(run: Run, command: list[str]) -> None:
    assert run(*command).exit_code == 2


@pytest.mark.parametrize(("name", "similar"), [("ad", "add"), ("lss", "ls"), ("serve-plant", "serve-plants")])
def test_a_mistyped_command_is_recognized(run: Run, name: str, similar: str) -> None:
    refused = run(name)
    assert refused.exit_code == 2
    assert f"No such command '{name}'. Did you mean {similar}" in refused.stderr
    assert "Did you mean" not in run("xyzzy").stderr


@rows(
    ("assignment", "similar"),
    [("memori=1", "memory"), ("COREGW_PROT=1", "port"), ("xyzzy=1", None), ("port", None)],
)
def test_a_mistyped_setting_is_recognized(run: Run, assignment: str, similar: str | None) -> None:
    refused = run("serve", "--set", assignment)
    assert refused.exit_code == 2
    shown = " ".join(refused.stderr.replace("│", "").split())
    assert (f"did you mean {similar}?" in shown) if similar else ("did you mean" not in shown)


@rows("command", ["cat", "resolve", "ls", "tree", "stat"])
def test_a_path_is_relative_to_the_root(run: Run, root: str, command: str) -> None:
    refused = run(command, root, "/docs/readme")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "'/docs/readme': segment 0: empty segment; a path is relative to the root" in refused.stderr
    assert run(command, root, "docs/readme/").exit_code == 0  # a slash at its end is allowed


def test_an_unknown_name_is_not_explained_as_a_malformed_cid(run: Run, root: str) -> None:
    unknown = run("ls", "dosc").stderr
    assert unknown.startswith("coregw: 'dosc' is not a name in ")
    assert unknown.endswith(", and not a root (a CID); coregw root list shows the names\n")
    mistyped = run("ls", root[:-1]).stderr
    assert "wrong length" in mistyped
    assert mistyped.count(root[:-1]) == 1


@pytest.mark.parametrize(
    "command", [["add", "MISSING"], ["verify", "MISSING"], ["serve", "--data", "x", "--set", "port=x"]]
)
def test_errors_of_files_and_settings_name_the_place(run: Run, tmp_path: Path, command: list[str]) -> None:
    failed = run(*[tmp_path / "missing" if word == "MISSING" else word for word in command])
    assert failed.exit_code == 1
    assert len(failed.stderr.splitlines()) == 1
    assert "missing" in failed.stderr or "port" in failed.stderr


def parameters(command: click.Command) -> Iterator[click.Parameter]:
    yield from command.params
    for below in getattr(command, "commands", {}).values():
        yield from parameters(below)


@rows("name", COMMANDS)
def test_a_file_that_cannot_be_read_is_a_failure_and_not_wrong_usage(name: str) -> None:
    command = cli.get_command(Context(cli), name)
    assert command is not None
    for each in parameters(command):
        if isinstance(each.type, click.Path):
            assert (each.type.readable, each.type.exists) == (False, False), each.name


def test_an_unexpected_exception_is_one_line_unless_debugging_is_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coregw.cli.entries.client", lambda gateway: 1 / 0)
    failed = run("cat", CID, "path")
    assert failed.exit_code == 1
    assert failed.stderr == "coregw: internal error, please report it: ZeroDivisionError: division by zero\n"
    shown = run("cat", CID, "path", env={"COREGW_DEBUG": "1"})
    assert isinstance(shown.exception, ZeroDivisionError)


def import_what_is_new(_: object) -> None:
    exec("from coregw._core import added_lately")  # noqa: S102 - a name that type checkers would miss


@rows("used", [import_what_is_new, lambda _: vars(coregw)["_core"].added_lately])
def test_an_extension_that_is_older_than_the_package_is_recognized(
    used: Callable[[object], object], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coregw.cli.entries.client", used)
    failed = run("cat", CID, "path")
    assert failed.exit_code == 1
    assert failed.stderr == ("coregw: the extension coregw._core is older than the package: run make install\n")


def test_a_command_takes_several_gateways_and_options_of_connections(
    run: Run, gateway: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COREGW_BEARER_TOKEN", "hunter2")
    seen: list[str] = []

    def unavailable(reply: Reply) -> Reply:
        seen.append(reply.path)
        return reply.with_body(b"", 503)

    (tmp_path / "file").write_bytes(b"one")
    (tmp_path / "headers").write_text("X-A: 1\nX-B: 2\n")
    headers = ["--header", "X-C: 3", "--header", f"@{tmp_path / 'headers'}"]
    with lying_gateway(unavailable) as busy:
        several = run("add", tmp_path / "file", "--no-cache", *headers, gateway=f"{busy}, {gateway}")
        root = several.stdout.strip()
        repeated = run("cat", root, "file", "--gateway", busy, "--gateway", gateway)
    assert (several.exit_code, repeated.exit_code, repeated.stdout) == (0, 0, "one")
    assert len(seen) == 2
    malformed = run("cat", root, "file", "--header", "hunter2")
    assert (malformed.exit_code, malformed.stderr) == (1, "coregw: headers[0]: expected Name: value\n")
    missing = run("cat", root, "file", "--ca-cert", "/no/such")
    assert (missing.exit_code, missing.stderr) == (1, "coregw: ca_cert: /no/such is not a readable file\n")


def test_an_error_without_a_number_keeps_its_text(tmp_path: Path) -> None:
    """As that of `shutil.rmtree` if a link has taken the place of the folder."""
    path = tmp_path / "folder"
    with pytest.raises(OSError, match="symbolic link") as caught, reported_as(path):
        raise OSError("Cannot call rmtree on a symbolic link")
    assert described(caught.value) == f"'{path}': Cannot call rmtree on a symbolic link"


def test_an_error_of_an_open_file_names_the_file(gateway: str, tmp_path: Path) -> None:
    """As on a full disk: the system refuses the bytes, and its error has no file."""
    resource = pytest.importorskip("resource")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "large").write_bytes(random.Random(0).randbytes(300_000))
    with Client(gateway) as client:
        root = client.add(tmp_path / "folder").root

    cases: list[tuple[int, Path | str, list[str]]] = [
        (100_000, tmp_path / "x.car", ["export", root, str(tmp_path / "x.car"), "--payloads"]),
        (100_000, "v1/cas", ["export", root, "--static", str(tmp_path / "tree")]),
        (100_000, "large", ["get", root, str(tmp_path / "got")]),
        (100_000, "<stdout>", ["cat", root, "large"]),
        (10, tmp_path / "key", ["key", str(tmp_path / "key"), "--name", "example.org/log"]),
        (10, tmp_path / "data" / "coregw" / "trust.json", ["root", "trust", "name", root]),
    ]
    for allowed, file, arguments in cases:
        with (tmp_path / "stdout").open("wb") as stdout:
            failed = subprocess.run(
                [sys.executable, "-m", "coregw", *arguments],
                stdout=stdout,
                stderr=subprocess.PIPE,
                env={**os.environ, "COREGW_GATEWAY": gateway, "XDG_DATA_HOME": str(tmp_path / "data")},
                preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (allowed, allowed)),
                check=False,
            )
        last = failed.stderr.decode().splitlines()[-1]
        assert failed.returncode == 1, arguments
        assert "File too large" in last, arguments
        assert str(file) in last, arguments
    assert {path.name for path in tmp_path.iterdir()} <= {"folder", "stdout", "tree", "data"}
