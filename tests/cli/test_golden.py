"""What every command prints, as people see it: sessions with their whole output.

A file of ``golden/`` has commands, lines that begin with ``$``, and what each printed. ``name=$(…)`` keeps a command's
stdout for ``$name`` in later ones. Times, versions, sizes on disk and everything else that varies is masked.
``GOLDEN=write`` writes the files anew; read the difference before committing it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click import Context
from click.testing import CliRunner

import serving
from coregw import payload_cid
from coregw.cli.main import cli
from documentation_shell import commands_of

GOLDEN = Path(__file__).parent / "golden"
SESSIONS = sorted(GOLDEN.glob("*.txt"))
MTIME = 1_700_000_000_000_000_000

NOT_SHOWN = {"bench", "serve", "serve-plants"}
"""Commands that run until they are stopped, or print figures of the machine; tests of theirs read what they print."""

MEASURED = {"backup", "copy", "doctor", "fsck", "gc", "heal", "restore", "status"}
"""Commands whose numbers, columns and lines of progress are masked."""

MASKS = (
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UUID"),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z)?", "TIME"),
    (r"\+[0-9a-f]{8}\+[A-Za-z0-9+/=]{44}", "+KEY"),
    (r"at \d{4}-\d\d-\d\d \d\d:\d\d", "at TIME"),
    (r"(?m)^[A-Za-z0-9+/]{43}=$", "HASH"),
    (r"(?m)^— (\S+) \S+$", r"— \1 SIGNATURE"),
    (r"installed: .*", "installed: EXTRAS"),
    (r"(?m)^coregw (backup|copy|fsck|gc|heal|restore): .*\n", ""),
    (r"(?m)^(running for +).*", r"\1TIME"),
    (r"127\.0\.0\.1:\d{4,5}", "GATEWAY"),
    (r"@coregw-[0-9a-f]{32}", "@coregw-SOCKET"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory of a session."""
    files = {"tree/docs/guide": "the guide\n", "tree/docs/long": "x" * 300_000, "new.txt": "new\n"}
    files |= {"arcs.txt": json.dumps(["a/b", payload_cid(b"new\n")]) + "\n", "wrong-arcs.txt": "no arc\n"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o644)
    (tmp_path / "tree" / "link").symlink_to("docs/guide")
    for folder in (tmp_path / "tree" / "docs", tmp_path / "tree"):
        folder.chmod(0o755)
    for each in [*tmp_path.glob("tree/**/*"), *tmp_path.iterdir()]:
        os.utime(each, ns=(MTIME, MTIME), follow_symlinks=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def gateway(folder: Path) -> Iterator[str]:
    with serving.process(folder / "data", serving.ADMIN) as process:
        yield process.url


def masked(command: str, text: str, folder: Path) -> str:
    text = text.replace(str(folder), "FOLDER")
    for pattern, name in MASKS:
        text = re.sub(pattern, name, text)
    if command in MEASURED:
        text = re.sub(r" {3,}", "  ", re.sub(r"\b\d[\d,.]*( [KMG]?i?B\b)?", "N", text))
    return text


def commands(session: Path) -> list[str]:
    return [command for _, command, _ in commands_of(session.read_text())]


@pytest.mark.parametrize("session", SESSIONS, ids=lambda session: session.stem)
def test_session(session: Path, folder: Path, gateway: str) -> None:
    kept = {"GATEWAY": gateway}
    environment = {"COREGW_GATEWAY": gateway, "COREGW_ADMIN_TOKEN": serving.ADMIN_TOKEN, "COREGW_DEBUG": None}
    environment |= {"COREGW_TRUST": str(folder / "trust.json"), "COREGW_RETRY_SECONDS": "0.2", "COLUMNS": "100"}
    printed = []
    for line in commands(session):
        name, _, inner = line.partition("=$(")
        words = shlex.split(inner.removesuffix(")") if inner else line)
        arguments = [re.sub(r"\$(\w+)", lambda match: kept[match[1]], word) for word in words[1:]]
        result = CliRunner(env=environment).invoke(cli, arguments, prog_name="coregw")
        if inner:
            kept[name] = result.stdout.strip()
        code = f"[{result.exit_code}]\n" if result.exit_code else ""
        printed.append(f"$ {line}\n{masked(words[1], result.output, folder)}{code}")
    text = "\n".join(printed)
    if os.environ.get("GOLDEN") == "write":
        session.write_text(text)
    assert text == session.read_text()


def test_every_command_is_in_a_session() -> None:
    shown = {line.partition("coregw ")[2].split()[0] for session in SESSIONS for line in commands(session)}
    assert shown - {"frobnicate"} == {*cli.list_commands(Context(cli))} - NOT_SHOWN
