"""The documentation agrees with the code: settings, error codes, CIDs, links, decisions, paths and make targets."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import click
import pytest
from click import Context
from click.exceptions import Exit

import coregw.cli.main
import coregw.errors
import coregw.extras
from coregw.cli.main import cli
from coregw.errors import ERROR_CODES, CoregwError
from coregw.gateway.limits.machine import Limits, least_bytes
from coregw.gateway.settings import Settings
from coregw.messages.payloads import MAX_BATCH_BLOCKS, MAX_BATCH_PAGES, MAX_BATCH_PATHS
from coregw.messages.query import MAX_PROOF_KEYS
from coregw.messages.roots import MAX_WHOLE_CAR_BYTES
from tables import rows

TOP = Path(__file__).parent.parent
DOCS = TOP / "docs"
DECISIONS = DOCS / "decisions"
SITE = "https://github.com/coregw/coregw/blob/main/"
PAGES = sorted([*TOP.glob("*.md"), *DOCS.rglob("*.md"), *TOP.glob("benches/*.md")])
DECISION_PAGES = sorted(DECISIONS.glob("[0-9]*.md"))

MAX_DECISION_WORDS = 550
SECTIONS = ["Context", "Decision", "Alternatives", "Consequences"]


def read(page: str) -> str:
    return (TOP / page).read_text("utf-8")


def test_operations_lists_every_setting_with_its_default() -> None:
    documented = [line for line in read("docs/operations.md").splitlines() if line.startswith("| `COREGW_")]
    assert documented == [
        f"| `{variable}` | `{default}` | {about} |" for variable, default, about in Settings.describe()
    ]


def test_operations_has_the_limits_that_follow_from_memory() -> None:
    page = read("docs/operations.md")
    sizes = [1 << 30, 4 << 30, 16 << 30]
    table = [line for line in page.splitlines() if re.match(r"\| `[a-z_]+` \| [0-9,]+", line)]
    names = [line.split("`")[1] for line in table]
    assert len(names) == 12
    of_each = [Limits.of(Settings(memory=size)) for size in sizes]
    for name, line in zip(names, table, strict=True):
        found = [getattr(limits, name) for limits in of_each]
        numbers = [f"{each >> 20:,} MiB" if name.endswith("_bytes") else f"{each:,}" for each in found]
        assert line.startswith(f"| `{name}` | {' | '.join(numbers)} | "), numbers
    least = f"needs at least {-(-least_bytes(Settings()) >> 20)} MiB; more connections need more"
    assert least in " ".join(page.split())


def test_gateway_page_has_the_limits_of_messages() -> None:
    limits = dict(
        re.findall(r"^\| ([^|`]*) \| ([^|]*) \|$", read("docs/gateway.md").split("## Limits")[1], re.MULTILINE)
    )
    assert limits["paths of one batch"] == f"{MAX_BATCH_PATHS:,}"
    assert limits["payloads in one answer, or looked up in JSON"] == f"{MAX_BATCH_BLOCKS:,}"
    assert limits["CAR of declared length that is imported without a spool"] == f"{MAX_WHOLE_CAR_BYTES >> 20} MiB"
    assert limits["pages in one answer"] == f"{MAX_BATCH_PAGES:,}"
    assert limits["segments of a range read, keys of a map proof"] == f"{MAX_PROOF_KEYS:,}"


def test_gateway_page_lists_every_error_code_with_status_and_meaning() -> None:
    documented = [
        line for line in read("docs/gateway.md").splitlines() if re.match(r"\| `[a-z_]+` \| [45]\d\d \|", line)
    ]
    assert documented == [f"| `{code}` | {error.status} | {error.meaning} |" for code, error in ERROR_CODES.items()]


def test_the_page_of_exceptions_lists_each_with_its_codes_and_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    page = read("docs/exceptions.md")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (\d) \| .+ \|$", page, re.MULTILINE)
    documented = [(name, {*bases.split(", ")}, {*codes.split(", ")}, int(code)) for name, bases, codes, code in rows]
    expected = []
    for each in vars(coregw.errors).values():
        if isinstance(each, type) and issubclass(each, CoregwError):
            monkeypatch.setattr(click.Group, "invoke", raising(each("what went wrong")))
            with pytest.raises(Exit) as ended:
                cli.invoke(Context(cli))
            bases = {f"`{base.__name__}`" for base in each.__bases__}
            codes = {each.default_code} | {code for code, error in ERROR_CODES.items() if error.exception is each}
            expected.append((each.__name__, bases, {f"`{code}`" for code in codes}, ended.value.exit_code))
    assert documented == expected
    for name, each in vars(coregw.extras).items():
        if isinstance(each, type) and each.__module__ == "coregw.extras" and name.endswith("Error"):
            assert f"`coregw.extras.{name}`" in page


def test_the_page_of_exceptions_lists_the_checks_that_fail() -> None:
    [table] = re.findall(r"\| check \| what is wrong \|\n\|---\|---\|\n((?:\|.*\n)+)", read("docs/exceptions.md"))
    documented = {check for line in table.splitlines() for check in re.findall(r"`([^`]+)`", line.split("|")[1])}
    sources = [path.read_text("utf-8") for path in (TOP / "python" / "coregw").rglob("*.py")]
    assert documented == {check for source in sources for check in re.findall(r"\bcheck=\"([^\"]+)\"", source)}


def raising(error: CoregwError) -> Callable[..., NoReturn]:
    """Return a function that raises the error, whatever it is called with."""

    def fail(*_: object) -> NoReturn:
        raise error

    return fail


def test_protocol_lists_every_error_code_under_its_status() -> None:
    table = read("docs/protocol.md").split("### Errors")[1].split("###")[0]
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", table, re.MULTILINE)
    documented = {code: int(status) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert documented == {code: error.status for code, error in ERROR_CODES.items()}


@rows("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_within_the_project_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if page == TOP / "README.md":  # which PyPI shows, too, so its links are absolute
            assert target.startswith((SITE, "https://", "#")), target
            target = target.removeprefix(SITE)  # noqa: PLW2901 - the file that it is
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


@rows(
    "page",
    [page for page in PAGES if page.parent != DECISIONS or page.name == "README.md"],
    ids=lambda page: str(page.relative_to(TOP)),
)
def test_the_first_line_of_a_page_says_whom_it_is_for(page: Path) -> None:
    assert re.match(r"# .+\n\nFor [a-z]", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get when it is rendered."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_page_of_commands_compares_each_of_them() -> None:
    page = read("docs/commands.md")
    table = page[page.index("| coregw | git |") :]
    compared = {
        name for row in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for name in re.findall(r"`([a-z-]+)", row)
    }
    assert compared == {*cli.list_commands(Context(cli))}
    codes = {int(code) for code in re.findall(r"^\| ([0-9]) \|", page, re.MULTILINE)}
    assert codes == {0, 2} | {value for name, value in vars(coregw.cli.main).items() if name.startswith("EXIT_")}


def test_the_example_in_rust_is_the_crates_own() -> None:
    """`cargo test` compiles and runs that one."""
    [shown] = re.findall(r"```rust\n(.*?)```", read("docs/how-to/verify.md"), re.DOTALL)
    lines = [line.removeprefix("//!").removeprefix(" ") for line in read("rust/core/src/lib.rs").splitlines()]
    start = lines.index("```")
    example = lines[start + 1 : lines.index("```", start + 1)]
    assert shown.splitlines() == [line for line in example if not line.startswith("# ")]


def test_completion_works_as_documented() -> None:
    [variable] = {*re.findall(r"(\w+)=bash_source", read("docs/commands.md"))}
    environment = {**os.environ, variable: "bash_complete", "COMP_WORDS": "coregw st", "COMP_CWORD": "1"}
    command = [sys.executable, "-c", "from coregw.cli.main import main; main()"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,stat", "plain,status"]


def test_decision_index_lists_every_page_with_its_title() -> None:
    row = re.compile(r"^- \[(\d{4})\]\((\S+)\): (.+)$", re.MULTILINE)
    sections = [row.findall(section) for section in read("docs/decisions/README.md").split("\n## ")]
    assert all(section == sorted(section) for section in sections)
    listed = sorted(entry for section in sections for entry in section)
    assert listed == [(page.name[:4], page.name, title(page)) for page in DECISION_PAGES]


def title(page: Path) -> str:
    """The title of a decision, without its number."""
    heading = page.read_text("utf-8").partition("\n")[0]
    match = re.fullmatch(rf"# {page.name[:4]}\. (.+)", heading)
    assert match is not None, heading
    return match[1]


@rows("page", [*DECISION_PAGES, DECISIONS / "template.md"], ids=lambda page: page.stem)
def test_decision_follows_the_template(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.match(r"# [N\d]{4}\. .+[^.]\n\n## Context\n", text)
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert sections == SECTIONS
    assert len(text.split()) <= MAX_DECISION_WORDS


def test_decisions_named_in_sources_exist() -> None:
    names = {page.name for page in DECISION_PAGES}
    numbers = {name[:4] for name in names}
    named = re.compile(r"(?:docs/decisions/|\bdecision )(\d{4})([\w-]*(?:\.md)?)")
    for file in sources():
        for number, rest in named.findall(file.read_text("utf-8")):
            assert number in numbers, f"{file}: {number}"
            assert not rest.endswith(".md") or number + rest in names, f"{file}: {number}{rest}"


def sources() -> list[Path]:
    """Every Python and Rust source file, and the Makefile."""
    folders = ("python", "rust", "tests", "benches")
    return [
        TOP / "Makefile",
        *(file for each in folders for kind in ("py", "rs") for file in (TOP / each).rglob(f"*.{kind}")),
    ]


@rows("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_source_paths_in_documentation_exist(page: Path) -> None:
    named = re.findall(r"`((?:python|rust|tests|benches|docs)/[\w./-]+\.\w+)`", page.read_text("utf-8"))
    assert [name for name in named if not (TOP / name).exists()] == []


@rows("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_make_targets_in_documentation_exist(page: Path) -> None:
    makefile, text = read("Makefile"), page.read_text("utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    assert set(re.findall(r"`make ([a-z][a-z-]*)", text)) <= targets
    parts = set(re.findall(r"^(?:define )?([a-z]+_[a-z-]+)(?: =.*)?$", makefile, re.MULTILINE))
    parts |= {f"fuzz_{program.stem}" for program in TOP.glob("rust/fuzz/src/bin/*.rs")}
    parts |= {bench.stem for bench in TOP.glob("benches/bench_*.py")} | {"bench_check", "bench_soak"}
    prefixes = {"test-servers": "servers", "test-clients": "clients", "test-wheel": "wheel"}
    with_parts = r"`make (bench|fuzz|lint|test-(?:servers|clients|wheel)) ARGS='?([a-z][^'`]*)"
    for target, words in re.findall(with_parts, text):
        for part in itertools.takewhile(lambda word: not word.startswith("-"), words.split()):
            assert f"{prefixes.get(target, target)}_{part}" in parts, f"make {target} has no part {part}"


@rows("page", PAGES, ids=lambda page: page.relative_to(TOP).as_posix())
def test_each_output_of_an_example_follows_its_input(page: Path) -> None:
    """doctest ignores what follows an empty line, so an output that has lost its input would pass."""
    for block in re.findall(r"```python\n(>>> .*?)```", page.read_text("utf-8"), re.DOTALL):
        after_empty_lines = re.findall(r"\n\n+(.+)", block)
        assert [line for line in after_empty_lines if not line.startswith(">>> ")] == []
