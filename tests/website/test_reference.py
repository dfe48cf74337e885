"""The reference of the site has every public name, command, option, route, setting and error; pages are navigable."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import coregw
from coregw.cli import cli
from coregw.errors import ERROR_CODES
from coregw.plants.settings import PlantSettings
from website import build, http, pages, reference

TOP = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return build.generated()


def first_column(page: str) -> list[str]:
    """What the first code span of each row of the tables of a page has."""
    return re.findall(r"^\| \[?`([^`]+)`", page, re.MULTILINE)


def test_python_lists_everything_that_the_package_exports(generated: dict[str, str]) -> None:
    exported = {name for name in coregw.__all__ if name != "__version__"}
    assert exported <= {*first_column(generated["reference/python.md"])}
    assert not re.search(r"\| *\|$", generated["reference/python.md"], re.MULTILINE), "a name has no documentation"


def parameters(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """Yield the section of each command below `command`, and every option of it."""
    for below, each in getattr(command, "commands", {}).items():
        yield from parameters(each, f"{name} {below}")
    if not hasattr(command, "commands"):
        shown = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        yield from ((name, option) for each in shown for option in each.opts)


def test_commands_lists_every_option_of_every_command(generated: dict[str, str]) -> None:
    sections = dict(re.findall(r"(?ms)^## (coregw .*?)\n(.*?)(?=^## |\Z)", generated["reference/commands.md"]))
    context = click.Context(cli)
    known = {
        pair
        for name in cli.list_commands(context)
        if (command := cli.get_command(context, name))
        for pair in parameters(command, f"coregw {name}")
    }
    assert len(known) > 200
    missing = {
        (name, option)
        for name, option in known
        if not re.search(rf"^\| `[^`]*{re.escape(option)}\b", sections.get(name, ""), re.MULTILINE)
    }
    assert missing == set()


def test_settings_and_errors_are_all_listed(generated: dict[str, str]) -> None:
    assert {*first_column(generated["reference/settings.md"])} == {name for name, _, _ in PlantSettings.describe()}
    assert first_column(generated["reference/errors.md"]) == [*ERROR_CODES]


def test_http_lists_every_route_parameter_and_message(generated: dict[str, str]) -> None:
    page = generated["reference/http.md"]
    document = http.gateway_document()
    routes = {f"{method.upper()} {path}" for path, methods in document["paths"].items() for method in methods}
    assert {*re.findall(r"^### ((?:GET|HEAD|POST|PUT|DELETE) .*)$", page, re.MULTILINE)} == routes
    assert {*re.findall(r"^### (\w+)$", page, re.MULTILINE)} == {*document["components"]["schemas"]}
    named = {
        each["name"]
        for methods in document["paths"].values()
        for operation in methods.values()
        for each in operation.get("parameters", [])
    }
    assert named <= {*first_column(page)}


def test_every_page_can_be_reached(generated: dict[str, str]) -> None:
    """Every page is in the navigation, except the decisions, which their own page lists."""
    navigation = (TOP / "website" / "zensical.toml").read_text("utf-8")
    listed = re.findall(r'= "([\w/-]+\.md)"', navigation)
    assert tomllib.loads(navigation)["project"]["nav"]
    decisions = {place for place in pages.sources().values() if re.match(r"decisions/\d", place)}
    assert sorted(listed) == sorted({*pages.sources().values(), *generated} - decisions)


def test_links_lead_to_pages_of_the_site_or_to_the_repository() -> None:
    places = pages.sources()
    text = "[a](../SECURITY.md#x) [b](../deploy/compose.yml) [c](decisions/README.md)\n```\n[d](e)\n```\n[f](#g)"
    assert pages.rewritten("docs/kzg.md", text, places) == (
        f"[a](security.md#x) [b]({pages.REPOSITORY}deploy/compose.yml) [c](decisions/index.md)\n"
        "```\n[d](e)\n```\n[f](#g)"
    )
    with pytest.raises(ValueError, match=r"docs/kzg\.md: nothing\.md: the repository has no docs/nothing\.md"):
        pages.rewritten("docs/kzg.md", "[a](nothing.md)", places)


def test_a_table_escapes_what_would_end_its_cells() -> None:
    assert reference.table(("a", "b"), [("x|y", "1\n2")]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 2 |\n"
