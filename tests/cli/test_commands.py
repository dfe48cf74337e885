"""Failures of commands, ``resolve`` and ``verify``, and the life cycle of ``serve``."""

from __future__ import annotations

import base64
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click import Context
from click.testing import Result

import serving
from coregw import List, Map, payload_cid
from coregw.cli import cli
from coregw.cli.common import trusted_names
from coregw.client import Client, query
from coregw.client.settings import DEFAULT_GATEWAY
from coregw.trust.store import TrustStore
from gateways import Reply, lying_gateway

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]
Json = dict[str, Any]

CID = payload_cid(b"content")
COMMANDS = cli.list_commands(Context(cli))


@pytest.fixture
def root(gateway: str) -> str:
    with Client(gateway) as client:
        client.put_payload(b"content")
        return client.create_root({"docs/readme": CID, "docs/guide": payload_cid(b"guide")})


def test_resolve_prints_only_the_target(run: Run, root: str) -> None:
    found = run("resolve", root, "docs/readme")
    assert (found.exit_code, found.stdout, found.stderr) == (0, f"{CID}\n", "")
    assert run("resolve", root, "").stdout == f"{root}\n"


def test_a_missing_token_is_named_for_what_it_is_needed_for(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    with serving.process(tmp_path / "data", {"GATEWAY_WRITE_TOKEN": "writers"}) as process:
        written = run("add", tmp_path / "file", gateway=process.url)
        assert (written.exit_code, written.stdout) == (1, "")
        assert "for other writes in COREGW_BEARER_TOKEN" in written.stderr
        published = run("publish", "docs/main", CID, gateway=process.url)
        assert published.exit_code == 1
        assert "names are published only where GATEWAY_ADMIN_TOKEN is set" in published.stderr


def test_a_saved_resolve_is_verified_offline(run: Run, coregw: Start, root: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved.json"
    saved.write_text(run("resolve", root, "docs/readme", "--json").stdout)
    verified = coregw("verify", saved)
    assert verified.returncode == 0, verified.stderr
    assert verified.stdout.decode() == f"proven: resolve 'docs/readme' in {root}\n  {CID}\n"
    assert run("verify", "-", input=saved.read_text()).stdout == verified.stdout.decode()
    offline = run("verify", saved, gateway="http://127.0.0.1:9")
    assert offline.exit_code == 0


def flip(saved: Json) -> None:
    step = saved["result"]["prooflist"]["steps"][0]
    proof = bytearray(base64.b64decode(step["proof"]))
    proof[0] ^= 1
    step["proof"] = base64.b64encode(proof).decode()


TAMPERED: dict[str, Callable[[Json], object]] = {
    "a bit of the proof": flip,
    "the target": lambda saved: saved["result"].update(target=payload_cid(b"another")),
    "the root": lambda saved: saved["request"].update(root=Map({"a": CID}).root),
    "the path": lambda saved: saved["request"].update(segments=["docs", "guide"]),
    "the profile": lambda saved: saved["request"].update(profile="core.read/v0alpha1"),
    "an unknown profile": lambda saved: saved["request"].update(profile="x"),
    "no request": lambda saved: saved.pop("request"),
    "no result": lambda saved: saved.pop("result"),
    "something more": lambda saved: saved.update(more=1),
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_a_tampered_file_is_not_proven(run: Run, root: str, tmp_path: Path, change: Callable[[Json], object]) -> None:
    document = json.loads(run("resolve", root, "docs/readme", "--json").stdout)
    change(document)
    saved = tmp_path / "saved.json"
    saved.write_text(json.dumps(document))
    refused = run("verify", saved)
    assert refused.exit_code == 3
    assert refused.stdout == ""
    assert refused.stderr.startswith(f"coregw: not proven: {saved}: ")
    assert len(refused.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"{}", b"[]", b"\xff", b"{" * 1000, b'{"request": {}, "result": {}}', b'{"request": {}, "request": {}}'],
)
def test_a_file_without_a_saved_proof_is_not_proven(run: Run, tmp_path: Path, content: bytes) -> None:
    saved = tmp_path / "saved.json"
    saved.write_bytes(content)
    refused = run("verify", saved)
    assert (refused.exit_code, refused.stdout) == (3, "")


def test_the_answer_to_every_kind_of_query_can_be_saved_and_verified(
    run: Run, gateway: str, root: str, tmp_path: Path
) -> None:
    with Client(gateway) as client:
        listed = client.create_list([CID, CID], [7, 7])
        answers = {
            f"read 'docs/readme' in {root}\n  {CID}": client.query(query.read_key(root, "docs/readme")),
            f"read 'docs/none' in {root}\n  absent": client.query(query.read_key(root, "docs/none")),
            f"read element 1 in {listed}\n  {CID}": client.query(query.read_index(listed, 1)),
            f"read element 2 in {listed}\n  absent: the list has 2 elements": client.query(query.read_index(listed, 2)),
            f"read range 8: in {listed}\n  {CID}  7\n  1 of 2 elements, from 7, of 14 in all": client.query(
                query.read_range(listed, 8)
            ),
            f"prove 'docs/readme' in {root}\n  {CID}": client.query(query.map_proof(root, "docs/readme")),
            f"prove 'docs' in {root}\n  absent": client.query(query.map_proof(root, "docs")),
            f"list 'docs' in {root}\n  {payload_cid(b'guide')}  docs/guide\n  more follow": client.query(
                query.scan(root, "docs", limit=1)
            ),
            f"list 'none' in {root}\n  nothing else (0 entries)": client.query(query.scan(root, "none")),
        }
    for number, (expected, proven) in enumerate(answers.items()):
        saved = tmp_path / f"{number}.json"
        saved.write_bytes(proven.saved())
        verified = run("verify", saved)
        assert (verified.exit_code, verified.stdout) == (0, f"proven: {expected}\n")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("command", ["cat", "resolve", "ls", "tree", "stat"])
def test_a_path_is_relative_to_the_root(run: Run, root: str, command: str) -> None:
    refused = run(command, root, "/docs/readme")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "'/docs/readme': segment 0: empty segment; a path is relative to the root" in refused.stderr
    assert run(command, root, "docs/readme/").exit_code == 0  # a slash at its end is allowed


def test_an_unknown_name_is_not_explained_as_a_malformed_cid(run: Run, root: str) -> None:
    unknown = run("ls", "dosc").stderr
    assert unknown.startswith("coregw: 'dosc' is not a name in ")
    assert unknown.endswith(", and not a root (a CID)\n")
    assert "wrong length" in run("ls", root[:-1]).stderr


def test_verify_with_half_of_its_arguments_says_which_one_is_missing(run: Run, root: str, tmp_path: Path) -> None:
    for given, missing in ((root, "give the folder or file"), (tmp_path, "give the root")):
        refused = run("verify", given)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert missing in refused.stderr


def test_an_oversized_document_is_exit_code_3(run: Run, tmp_path: Path) -> None:
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate((64 << 20) + 1)  # sparse
    refused = run("verify", large)
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert refused.stderr == f"coregw: not proven: {large}: longer than {64 << 20} bytes\n"


@pytest.mark.parametrize(
    "command", [["add", "MISSING"], ["verify", "MISSING"], ["serve", "--data", "x", "--set", "cache_bytes=1"]]
)
def test_errors_of_files_and_settings_name_the_place(run: Run, tmp_path: Path, command: list[str]) -> None:
    failed = run(*[tmp_path / "missing" if word == "MISSING" else word for word in command])
    assert failed.exit_code == 1
    assert len(failed.stderr.splitlines()) == 1
    assert "missing" in failed.stderr or "cache_bytes" in failed.stderr


def parameters(command: click.Command) -> Iterator[click.Parameter]:
    yield from command.params
    for below in getattr(command, "commands", {}).values():
        yield from parameters(below)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_that_cannot_be_read_is_a_failure_and_not_wrong_usage(name: str) -> None:
    command = cli.get_command(Context(cli), name)
    assert command is not None
    for each in parameters(command):
        if isinstance(each.type, click.Path):
            assert (each.type.readable, each.type.exists) == (False, False), each.name


def test_an_unexpected_exception_is_one_line_unless_debugging_is_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coregw.cli.cat.client", lambda gateway: 1 / 0)
    failed = run("cat", CID, "path")
    assert failed.exit_code == 1
    assert failed.stderr == "coregw: internal error, please report it: ZeroDivisionError: division by zero\n"
    shown = run("cat", CID, "path", env={"COREGW_DEBUG": "1"})
    assert isinstance(shown.exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ls no", ["plain,notes", "plain,nothing"]),
        ("root accept note", ["plain,notes"]),
        ("diff notes ", ["file,"]),
        ("verify ", ["file,"]),
        ("ls notes --netrc ", ["file,"]),
    ],
)
def test_completion_offers_trusted_names_and_files(words: str, expected: list[str], tmp_path: Path) -> None:
    store = TrustStore(tmp_path / "trust.json")
    for name in ("docs", "notes", "nothing"):
        store.trust(name, Map({}).root)
    line = f"coregw {words}"
    asked = {"_COREGW_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    environment = {**os.environ, **asked, "COREGW_TRUST": str(store.path)}
    command = [sys.executable, "-c", "from coregw.cli import main; main()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == expected


def test_a_damaged_trust_store_offers_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trust.json").write_text("{")
    monkeypatch.setenv("COREGW_TRUST", str(tmp_path / "trust.json"))
    command = cli.get_command(Context(cli), "ls")
    assert command is not None
    assert trusted_names(Context(command), command.params[0], "") == []


def test_the_group_lists_every_command_with_its_summary(run: Run) -> None:
    shown = run("--help").stdout
    for name in COMMANDS:
        assert re.search(rf"^\S? *{name} +[A-Z]", shown, re.MULTILINE), name


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_text(run: Run, name: str) -> None:
    shown = run(name, "--help")
    assert shown.exit_code == 0
    assert re.search(rf"Usage: \w+ {name} ", shown.stdout)


def test_the_command_imports_no_client_or_server_code_to_start(coregw: Start) -> None:
    code = "import coregw.cli, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"asyncio", "pycurl", "litestar", "msgspec", "rocksdict", "uvicorn"} & set(loaded)
    assert coregw("--version").stdout.startswith(b"coregw")


SLOW_TO_LOAD = {"anyio", "asyncio", "concurrent", "hashlib", "random", "rich", "rich_click", "ssl"}
SERVER_MODULES = {"httpx2", "litestar", "rocksdict", "uvicorn", "uvloop"}


def loaded_by(*arguments: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    code = (
        "import atexit, sys; sys.argv[0] = 'coregw'; atexit.register(lambda: print('', *sys.modules))\n"
        "from coregw.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_a_short_command_loads_only_what_it_uses(gateway: str) -> None:
    with Client(gateway) as client:
        root = client.create_root({"docs/readme": client.put_payload(b"short\n")})
    loaded = loaded_by("cat", root, "docs/readme", "--gateway", gateway)
    assert "coregw.client.transport.blocking" in loaded
    assert not {name.partition(".")[0] for name in loaded} & (SLOW_TO_LOAD | SERVER_MODULES)
    operations = {name.rpartition(".")[2] for name in loaded if name.startswith("coregw.client.operations.")}
    assert operations == {"lookup", "payload", "steps", "tree"}
    assert not loaded & {"coregw.client.aio", "coregw.folders.survey", "coregw.client.transport.asynchronous"}


def test_get_loads_no_second_library_for_tasks(gateway: str, tmp_path: Path) -> None:
    with Client(gateway) as client:
        root = client.create_root({"docs/readme": client.put_payload(b"short\n")})
    loaded = loaded_by("get", root, str(tmp_path / "out"), "--gateway", gateway)
    assert "coregw.client.folders.restore" in loaded
    assert not {name.partition(".")[0] for name in loaded} & (SERVER_MODULES | {"anyio", "rich", "rich_click"})


def test_help_texts_are_formatted_by_rich() -> None:
    assert "rich_click" in loaded_by("cat", "--help")


def test_help_texts_show_the_options_of_a_command_before_those_of_connections(coregw: Start) -> None:
    shown = coregw("ls", "--help").stdout.decode()
    order = ["List one level", "─ Options ─", "--recursive", "--verbose", "─ Connections ─", "--gateway", "--netrc"]
    assert [shown.index(each) for each in order] == sorted(shown.index(each) for each in order)
    from_and_to = coregw("mirror", "--help").stdout.decode().partition("─ Connections ─")
    assert "--interval" in from_and_to[0]
    assert "--to-netrc" in from_and_to[2]


def test_the_default_gateway_is_the_same_as_the_clients(run: Run) -> None:
    assert DEFAULT_GATEWAY in run("ls", "--help").stdout


def test_serve_shows_its_settings_as_a_configuration_file(run: Run, tmp_path: Path) -> None:
    config, secret = tmp_path / "coregw.toml", "postgresql://me:pa55word@db/coregw"
    config.write_text('cache_bytes = "8MiB"')
    command = ("serve", "--config", config, "--port", "7", "--set", f"store={secret}", "--settings")
    shown = run(*command, env={"COREGW_ACCESS_LOG": "yes"}).stdout
    given = {"cache_bytes": "8MiB", "port": 7, "store": "postgresql://me:***@db/coregw", "access_log": True}
    assert tomllib.loads(shown) == given
    assert f"# {config}" in shown
    config.write_text(re.sub(r"(?m)^# (?=[a-z_]+ = )", "", shown))
    assert tomllib.loads(run("serve", "--config", config, "--settings").stdout) == tomllib.loads(config.read_text())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_prints_its_address_keeps_its_data_and_stops_with_exit_code_0(
    tmp_path: Path, number: signal.Signals
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COREGW_")}
    roots = []
    for _ in range(2):
        process = subprocess.Popen(
            [sys.executable, "-m", "coregw", "serve", "--data", tmp_path / "data", "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        try:
            assert process.stdout is not None
            assert select.select([process.stdout], [], [], 60)[0], "serve printed no address"
            line = process.stdout.readline().decode()
            found = re.fullmatch(r"coregw: listening on (http://127\.0\.0\.1:\d+)\n", line)
            assert found, line
            with Client(found[1]) as client:
                if not roots:
                    roots.append(client.create_root({"a": client.put_payload(b"kept")}))
                assert client.get_payload(client.resolve(roots[0], "a")) == b"kept"
            process.send_signal(number)
            out, err = process.communicate(timeout=60)
            assert process.returncode == 0, err
            assert b"Traceback" not in out + err
        finally:
            if process.poll() is None:
                process.kill()
                process.communicate()


def test_an_interrupted_get_leaves_nothing_behind(gateway: str, root: str, tmp_path: Path) -> None:
    requested, interrupted = threading.Event(), threading.Event()

    def slow(reply: Reply) -> Reply:
        if reply.path.startswith("/v1/cas/"):
            requested.set()
            interrupted.wait(60)
        return reply

    with Client(gateway) as client:
        client.put_payload(b"guide")
    with lying_gateway(slow, gateway) as url:
        process = subprocess.Popen(
            [sys.executable, "-m", "coregw", "get", root, tmp_path / "out", "--gateway", url],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            assert requested.wait(60), "get requested no payload"
            assert list(tmp_path.iterdir()) != []
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            interrupted.set()
            process.kill()
            process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_port_in_use_is_one_line_and_exit_code_1(coregw: Start, gateway: str, tmp_path: Path) -> None:
    failed = coregw("serve", "--data", tmp_path / "data", "--port", gateway.rsplit(":", 1)[1])
    assert failed.returncode == 1
    assert b"Traceback" not in failed.stderr
    assert failed.stderr.splitlines()[-1].startswith(b"coregw: ")


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


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        (["/usr/bin/coregw"], "rich_click"),
        (["C:/Scripts/coregw.exe", "ls", "-h"], "rich_click"),
        (["/site-packages/coregw/__main__.py", "--help"], "rich_click"),
        (["/usr/bin/coregw", "ls"], "click"),
        (["/site-packages/pytest/__main__.py"], "click"),
        (["/usr/bin/program", "-h"], "click"),
        ([], "click"),
    ],
)
def test_only_the_command_that_prints_a_help_text_loads_rich(arguments: list[str], loaded: str) -> None:
    code = f"import sys; sys.argv[:] = {arguments!r}; from coregw.cli.framework import click; print(click.__name__)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == f"{loaded}\n"
