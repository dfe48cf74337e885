"""Help texts, completion, and how little a command loads."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click import Context
from click.testing import Result

from coregw import Map
from coregw.cli.common import trusted_names
from coregw.cli.main import cli
from coregw.client import Client
from coregw.client.settings import DEFAULT_GATEWAY
from coregw.trust import TrustStore
from tables import rows

Run = Callable[..., Result]
Start = Callable[..., subprocess.CompletedProcess[bytes]]
COMMANDS = cli.list_commands(Context(cli))


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
    command = [sys.executable, "-c", "from coregw.cli.main import main; main()"]
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


@rows("name", COMMANDS)
def test_every_command_has_a_help_text(run: Run, name: str) -> None:
    shown = run(name, "--help")
    assert shown.exit_code == 0
    assert re.search(rf"Usage: \w+ {name} ", shown.stdout)


def test_the_command_imports_no_client_or_server_code_to_start(coregw: Start) -> None:
    code = "import coregw.cli.main, sys; print(*sys.modules)"
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
    assert operations == {"lookup", "payloads", "steps", "tree"}
    assert not loaded & {"coregw.client.aio", "coregw.client.transport.asynchronous"}


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


@rows(
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
