"""The pages of the reference that code declares: all but those of HTTP, which are in `website.http`."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

import coregw
from coregw.cli.main import cli
from coregw.errors import ERROR_CODES
from coregw.gateway.metrics import FAMILIES
from coregw.gateway.settings import Settings
from website.pages import HOME

__all__ = ["commands", "errors", "metrics", "python", "settings", "table"]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table. Vertical bars and line breaks in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=\.)\s", " ".join(text.split()), maxsplit=1)[0]


def errors() -> str:
    """Return the page of all error codes, and of the exceptions that clients raise for them."""
    rows = [
        (f"`{code}`", str(error.status), f"`{error.exception.__name__}`", error.meaning)
        for code, error in ERROR_CODES.items()
    ]
    return (
        "# Errors\n\n"
        "Every error response has a body `{error, message, details?}` with one of these codes; the rules are in "
        "[the gateway service](../gateway.md#errors). A client raises the exception beside the code; "
        "[`coregw.errors`](../api/coregw/errors.html) documents them. An answer that is not proven raises "
        "`ProofError`, which has no code on the wire.\n\n" + table(("code", "status", "exception", "meaning"), rows)
    )


def settings() -> str:
    """Return the page of all settings of a gateway."""
    rows = [
        (f"`{variable}`", f"`{variable.removeprefix('COREGW_').lower()}`", f"`{default}`", about)
        for variable, default, about in Settings.describe()
    ]
    head = ("variable", "key in the file, name for `--set`", "default", "meaning")
    return (
        "# Settings\n\n"
        "Of `coregw serve`, in the order that `coregw serve --settings` prints them. A configuration file has the "
        "keys; variables take precedence over it, and options over both ([how](../operations.md#settings)). Sizes are "
        "in bytes, or text with `KiB`, `MiB` or `GiB`; names that end in `_seconds` are in seconds.\n\n"
        f"{table(head, rows)}"
    )


def metrics() -> str:
    """Return the page of all metrics."""
    rows = [
        (f"`{name}`", str(family.kind), ", ".join(f"`{label}`" for label in family.labels) or "-", family.about)
        for name, family in FAMILIES.items()
    ]
    return (
        "# Metrics\n\n"
        "What `GET /metrics` exports on the [management addresses](../operations.md#management), in Prometheus' text "
        "format. [Monitoring](../operations.md#monitoring) says how to scrape it, and has a "
        "dashboard and alert rules.\n\n"
        "Labels come from bounded sets. `route` is a template such as `/v1/cas/{cid}`, or `none` for a path without a "
        "route; `method` is `other` if HTTP does not define it; `reason` is an [error code](errors.md), "
        "`malformed_http`, or why a connection was closed; `family` is a column family of the store; `kind` is a long "
        "operation such as `gc` or `backup`, and `outcome` is `succeeded`, `failed` or `cancelled`. Buckets of "
        "histograms are powers of two.\n\n" + table(("metric", "type", "labels", "meaning"), rows)
    )


def python() -> str:
    """Return the page of everything that `coregw` exports, and of all documented modules, with links into the API."""
    rows = [
        (f"[`{name}`](../api/coregw.html#{name})", _kind(value), _first_sentence(inspect.getdoc(value) or ""))
        for name in sorted(coregw.__all__, key=str.lower)
        if (value := getattr(coregw, name)) is not None and not isinstance(value, str)
    ]
    modules = [
        (f"[`{name}`](../api/{name.replace('.', '/')}.html)", _first_sentence(inspect.getdoc(module) or ""))
        for name, module in documented_modules()
    ]
    return (
        "# Python\n\n"
        "What `import coregw` has, and the modules below it. The names lead to the full documentation with signatures, "
        "types, errors and complexity, which is also [a site of its own](../api/index.html). The Rust crates have "
        "[theirs](../rust/coregw_core/index.html).\n\n"
        f"{table(('name', 'kind', 'what it is'), rows)}\n## Modules\n\n{table(('module', 'what it is'), modules)}"
    )


def documented_modules() -> Iterator[tuple[str, Any]]:
    """Yield name and module of everything that ``make docs`` has pdoc document."""
    makefile = (HOME / "Makefile").read_text("utf-8").replace("\\\n", " ")
    for name in re.findall(r"^documented := coregw \$\(addprefix coregw\.,(.*)\)$", makefile, re.MULTILINE)[0].split():
        yield f"coregw.{name}", importlib.import_module(f"coregw.{name}")


def _kind(value: object) -> str:
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if callable(value) else "value"


def commands() -> str:
    """Return the page of every command with all arguments and options, from what parses them."""
    context = click.Context(cli, info_name="coregw")
    parts = [_command(name, command, context) for name, command in _all_commands(cli, context)]
    return (
        "# Commands\n\n"
        "Every command of `coregw`, as its `--help` describes it. [What all commands share](../commands.md): exit "
        "codes, `--json`, completion.\n\n" + "\n".join(parts)
    )


def _all_commands(group: click.Group, context: click.Context, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None  # noqa: S101 - click lists what it has
        if isinstance(command, click.Group):
            yield from _all_commands(command, click.Context(command, context, info_name=name), f"{prefix}{name} ")
        else:
            yield prefix + name, command


def _command(name: str, command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, parent, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    options = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and (record := _option(parameter, context)) is not None
    ]
    about = inspect.cleandoc(command.help or "").replace("\b\n", "").replace("\f", "")
    rows = table(("option", "variable", "meaning"), options)
    return f"## coregw {name}\n\n```text\ncoregw {name} {usage}\n```\n\n{_prose(about)}\n\n{rows}"


def _option(option: click.Option, context: click.Context) -> tuple[str, str, str] | None:
    record = option.get_help_record(context)
    if record is None:
        return None
    variables = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
    about = re.sub(r"\s*\[env var: [^\];]*\]|env var: [^\];]*; ?", "", record[1])
    return f"`{record[0]}`", ", ".join(f"`{name}`" for name in variables), _prose(about)


def _prose(text: str) -> str:
    """Return the help of a command as Markdown, which would take what is between angle brackets for HTML."""
    return text.replace("<", "&lt;").replace("*", "\\*")
