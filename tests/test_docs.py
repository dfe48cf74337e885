"""The documentation says what the code does: settings, limits, error codes, links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import coregw
from coregw.errors import ERROR_CODES
from coregw.gateway.settings import Settings

TOP = Path(__file__).parent.parent
OPERATIONS = (TOP / "docs" / "operations.md").read_text("utf-8")
PROTOCOL = (TOP / "docs" / "protocol.md").read_text("utf-8")
PAGES = sorted([TOP / "README.md", TOP / "CHANGELOG.md", *(TOP / "docs").rglob("*.md"), *TOP.glob("benches/*.md")])


def test_the_table_of_settings_is_the_code_s_own() -> None:
    documented = [line for line in OPERATIONS.splitlines() if line.startswith("| `COREGW_")]
    assert documented == [
        f"| `{variable}` | `{default}` | {about} |" for variable, default, about in Settings.describe()
    ]


def test_the_table_of_errors_is_the_code_s_own() -> None:
    table = PROTOCOL.split("### Errors")[1].split("###")[0]
    rows = re.findall(r"^\| (\d{3}) \| (.*) \|$", table, re.MULTILINE)
    documented = {code: int(status) for status, codes in rows for code in re.findall(r"`(\w+)`", codes)}
    assert documented == {code: each.status for code, each in ERROR_CODES.items()}


def test_the_quick_start_shows_the_cid_and_the_root_that_one_gets() -> None:
    readme = (TOP / "README.md").read_text("utf-8")
    cid = coregw.payload_cid(b"hello")
    root = coregw.Map({"docs/readme": cid}).root
    assert readme.count(f'{{"cid":"{cid}"}}') == readme.count(f'{{"root":"{root}"}}') == 1
    assert set(re.findall(r"\bba[a-z2-7]{50,}", readme)) == {cid, root}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_every_link_within_the_project_leads_somewhere(page: Path) -> None:
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
    """The anchors that a page's headings have where it is rendered."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
