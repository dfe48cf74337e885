"""Every example of the documentation, run in the order of its page, with a real gateway on a real socket."""

from __future__ import annotations

import doctest
import os
import random
import re
import shutil
import socket
import sys
from configparser import ConfigParser
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from sybil import Document, Example, Region
from sybil.parsers.markdown import CodeBlockParser, PythonCodeBlockParser

from coregw.gateway.settings import Settings
from documentation_pages import LANGUAGES, PAGES, TOP, Page, pages
from documentation_shell import Shell, commands_of, is_shown

BLOCK = re.compile(r"^```(\w+).*\n((?:.*\n)*?)^```$", re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and first line of every block of a page that has a language."""
    found = BLOCK.findall((TOP / page).read_text("utf-8"))
    return [(language, text.partition("\n")[0]) for language, text in found]


def free_port() -> str:
    """A port that is free, below those that the system gives to connections: a page may use it minutes later."""
    while True:
        with closing(socket.socket()) as probe:
            try:
                probe.bind(("127.0.0.1", port := random.randrange(10_000, 32_000)))
            except OSError:
                continue
            return str(port)


WITH_EXAMPLES = [page for page in pages() if {language for language, _ in blocks(page)} & {*LANGUAGES}]


def parse(page: str, text: str, shell: Shell, skipped: set[str]) -> Document:
    """Return the document with the examples that are run."""

    def evaluate(example: Example) -> str | None:
        for line, command, shown in commands_of(example.parsed):
            wrong = shell.check(command, shown, is_strict=example.region.lexemes["arguments"] == "console")
            if wrong is not None:
                return f"line {example.line + 1 + line}: {wrong}"
        return None

    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    parsers = [
        PythonCodeBlockParser(doctest_optionflags=flags),
        CodeBlockParser("sh", evaluate),
        CodeBlockParser("console", evaluate),
        CodeBlockParser("nginx", lambda example: Path("nginx.conf").write_text(example.parsed, "utf-8") and None),
    ]
    document = Document(text, str(TOP / page))
    for parser in parsers:
        for region in parser(document):
            if first_line(document, region) not in skipped:
                document.add(region)
    return document


def first_line(document: Document, region: Region) -> str:
    """The first line of the block that a region is in; there are several in a block of doctests."""
    start = document.text.rindex("```", 0, region.start + 3)
    return document.text[start:].split("\n", 2)[1]


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[] if page == "README.md" else pytest.mark.slow) for page in WITH_EXAMPLES]
)
def test_the_examples_of_a_page_work(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    how = PAGES.get(page, Page())
    if how.program is not None and shutil.which(how.program) is None:
        pytest.skip(f"{how.program} is not installed")
    ports = {"folder": str(tmp_path)} | {name: free_port() for name in "abcd"}
    replaced = {"8080": "{a}"} | dict(how.replaced)
    text = (TOP / page).read_text("utf-8")
    skipped = {*how.skipped} | {first for first, module in how.optional.items() if find_spec(module) is None}
    for shown, actual in replaced.items():
        text = text.replace(shown, actual.format(**ports))
        skipped = {first.replace(shown, actual.format(**ports)) for first in skipped}
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("COREGW_") and name != "COREGW_RETRY_SECONDS"]:
        monkeypatch.delenv(name)
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "XDG_DATA_HOME": str(tmp_path / "data-home"),
        "COREGW_GATEWAY": f"http://127.0.0.1:{ports['a']}",
        "COREGW_PORT": ports["a"],
        "COREGW_RETRY_SECONDS": "20",
        "TZ": "UTC",
        **{name: value.format(**ports) for name, value in how.variables.items()},
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with Shell(tmp_path, os.environ) as shell:
        before = how.before
        for name, value in ports.items():
            before = before.replace(f"{{{name}}}", value)
        for command in before.splitlines():
            wrong = shell.check(command, None, is_strict=False)
            assert wrong is None, wrong
        document = parse(page, text, shell, skipped)
        document.namespace.update({name: shell.value(word) for name, word in how.names.items()})
        for example in document.examples():
            example.evaluate()


def test_every_example_is_run_or_has_a_reason_not_to_be() -> None:
    for page, how in PAGES.items():
        first_lines = {line for language, line in blocks(page) if language in LANGUAGES}
        assert {*how.skipped, *how.optional} <= first_lines, f"{page}: skips an example that it does not have"
        assert all(how.skipped.values())
    assert {*PAGES} <= {*pages()}


def test_blocks_in_other_languages_are_checked(tmp_path: Path) -> None:
    """js/ runs those in TypeScript, cargo that in Rust; nginx gets its configuration from the commands of its page."""
    found = [match for page in pages() for match in BLOCK.findall((TOP / page).read_text("utf-8"))]
    assert {language for language, _ in found} <= {*LANGUAGES, "ini", "nginx", "rust", "toml", "ts", "yaml"}
    for language, text in found:
        if language == "toml":
            config = tmp_path / "coregw.toml"
            config.write_text(text, "utf-8")
            Settings.load({"COREGW_CONFIG": str(config)})
        if language == "yaml":
            assert yaml.safe_load(text)
        if language == "ini":  # units of systemd
            units = ConfigParser(strict=False, delimiters="=", interpolation=None)
            units.read_string(text)
            assert {*units.sections()} <= {"Unit", "Service", "Timer", "Install"}


def test_ellipses_stand_for_any_text_and_nothing_else_does() -> None:
    assert is_shown("a … c", "a b\nb c\n")
    assert is_shown("a  \n", "a\n")
    assert not is_shown("a … c", "a b")
    assert not is_shown("a.c", "abc")
    assert not is_shown("a", "a\nb")


def test_a_shell_notices_wrong_output_and_failures(tmp_path: Path) -> None:
    with Shell(tmp_path, os.environ) as shell:
        assert shell.check("echo a", "a", is_strict=True) is None
        assert "printed:\nb" in str(shell.check("echo b", "a", is_strict=True))
        assert "printed:\nb" in str(shell.check("echo b", "", is_strict=True))
        assert shell.check("echo b", "", is_strict=False) is None
        assert shell.check("(sleep 0.1; echo late) &", "late", is_strict=True) is None
        assert shell.check("(exit 3)", "", is_strict=False) is not None
        assert shell.check("echo $?", "3", is_strict=True) is None
        assert shell.check("echo no >&2; false", "no", is_strict=True) is None
        assert "exit code 1" in str(shell.check("echo next", "next", is_strict=True))


def test_commands_are_found_with_what_they_print() -> None:
    block = "$ one \\\n    two\nthree\n$ four\n"
    assert [*commands_of(block)] == [(0, "one \\\n    two", "three"), (3, "four", "")]
    assert [*commands_of("one\n\ntwo \\\n  2\n")] == [(0, "one", None), (2, "two \\\n  2", None)]
    assert [*commands_of("if a\n  b\nfi\n")] == [(0, "if a\n  b\nfi\n", None)]
