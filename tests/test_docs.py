"""The documentation agrees with the code: settings, error codes, CIDs, links, paths and make targets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import coregw
from coregw.errors import ERROR_CODES
from coregw.plants.settings import PlantSettings

TOP = Path(__file__).parent.parent
DOCS = TOP / "docs"
PAGES = sorted([*TOP.glob("*.md"), *DOCS.rglob("*.md"), *TOP.glob("benches/*.md")])


def read(page: str) -> str:
    return (TOP / page).read_text("utf-8")


def test_operations_lists_every_setting_with_its_default() -> None:
    documented = [line for line in read("docs/operations.md").splitlines() if line.startswith("| `COREGW_")]
    assert documented == [
        f"| `{variable}` | `{default}` | {about} |" for variable, default, about in PlantSettings.describe()
    ]


def test_gateway_page_lists_every_error_code_with_status_and_meaning() -> None:
    documented = [
        line for line in read("docs/gateway.md").splitlines() if re.match(r"\| `[a-z_]+` \| [45]\d\d \|", line)
    ]
    assert documented == [f"| `{code}` | {error.status} | {error.meaning} |" for code, error in ERROR_CODES.items()]


def test_protocol_lists_every_error_code_under_its_status() -> None:
    table = read("docs/protocol.md").split("### Errors")[1].split("###")[0]
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", table, re.MULTILINE)
    documented = {code: int(status) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert documented == {code: error.status for code, error in ERROR_CODES.items()}


def test_quick_start_shows_the_actual_cid_and_root() -> None:
    readme = read("README.md")
    cid = coregw.payload_cid(b"hello")
    root = coregw.Map({"docs/readme": cid}).root
    assert readme.count(f'{{"cid":"{cid}"}}') == readme.count(f'{{"root":"{root}"}}') == 1
    assert set(re.findall(r"\bba[a-z2-7]{50,}", readme)) == {cid, root}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_within_the_project_resolve(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), target
        if anchor:
            assert anchor in anchors(file), target


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get when it is rendered."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_source_paths_in_documentation_exist(page: Path) -> None:
    named = re.findall(r"`((?:python|rust|tests|benches|docs)/[\w./-]+\.\w+)`", page.read_text("utf-8"))
    assert [name for name in named if not (TOP / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_make_targets_in_documentation_exist(page: Path) -> None:
    makefile = read("Makefile")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    targets |= {f"bench-{bench.stem.removeprefix('bench_')}" for bench in TOP.glob("benches/bench_*.py")}
    named = set(re.findall(r"`make ([a-z][a-z-]*)(?![a-z<-])", page.read_text("utf-8")))
    assert named <= targets
