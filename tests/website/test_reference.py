"""The reference of the site has every public name, command, option, route, setting, error and metric.

Every page is in the navigation, and links lead somewhere.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import coregw
from coregw.cli.main import cli
from coregw.errors import ERROR_CODES
from coregw.gateway.metrics import FAMILIES
from coregw.gateway.settings import Settings
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


def test_settings_errors_and_metrics_are_all_listed(generated: dict[str, str]) -> None:
    assert {*first_column(generated["reference/settings.md"])} == {name for name, _, _ in Settings.describe()}
    assert first_column(generated["reference/errors.md"]) == [*ERROR_CODES]
    assert first_column(generated["reference/metrics.md"]) == [*FAMILIES]
    sizes = "| `coregw_response_body_bytes` | histogram | `method`, `route` | Sizes of response bodies. |"
    assert sizes in generated["reference/metrics.md"].splitlines()


@pytest.mark.parametrize(
    ("place", "documented"),
    [("reference/http.md", http.gateway_document), ("reference/management.md", http.management_document)],
)
def test_http_lists_every_route_parameter_body_result_error_and_message(
    generated: dict[str, str], place: str, documented: Callable[[], http.Json]
) -> None:
    page = generated[place]
    document = documented()
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    sections = dict(re.findall(r"(?ms)^### ((?:GET|HEAD|POST|PUT|DELETE) .*?)\n(.*?)(?=^##|\Z)", page))
    assert {*sections} == {*operations}
    schemas = {name for name in document["components"]["schemas"] if not name.startswith("Nullable")}
    assert {*re.findall(r"^### (\w+)$", page, re.MULTILINE)} == schemas
    assert {*re.findall(r"\]\(#(\w+)\)", page)} <= {name.lower() for name in schemas}
    for name, operation in operations.items():
        assert {each["name"] for each in operation.get("parameters", [])} <= {*first_column(sections[name])}
        assert ("\nBody: " in sections[name]) == ("requestBody" in operation), name
        for status, answer in operation["responses"].items():
            assert re.search(
                rf"^\| {status} \| .* \| {re.escape(answer['description'])} \|$", sections[name], re.MULTILINE
            ), name


def test_the_management_reference_has_what_long_operations_respond_with(generated: dict[str, str]) -> None:
    page = generated["reference/management.md"]
    assert "lines: {`progress`: [Progress](#progress)} or {`result`: [BackedUp](#backedup)} or {`error`: " in page
    assert "| `kept_generations` | integer | yes | How many generations the repository has now. |" in page
    assert "Attributes:" not in page


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
    assert pages.rewritten("docs/trust.md", text, places) == (
        f"[a](security.md#x) [b]({pages.REPOSITORY}deploy/compose.yml) [c](decisions/index.md)\n"
        "```\n[d](e)\n```\n[f](#g)"
    )
    with pytest.raises(ValueError, match=r"docs/trust\.md: nothing\.md: the repository has no docs/nothing\.md"):
        pages.rewritten("docs/trust.md", "[a](nothing.md)", places)


def test_a_table_escapes_what_would_end_its_cells() -> None:
    assert reference.table(("a", "b"), [("x|y", "1\n2")]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 2 |\n"
