"""The interface that docs/versioning.md makes promises about, as an outline: one line per name, option and setting.

As a program, ``python tests/helpers/public_surface.py`` records it in ``public_surface.txt``. Review the difference,
and describe it in the changelog: a line that is removed or changed is a breaking change.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from enum import EnumType
from pathlib import Path
from types import GenericAlias, ModuleType, UnionType

import msgspec
from click import Command, Context, Group, Option

from coregw.cli.main import cli
from coregw.gateway.settings import Settings

PINNED = Path(__file__).parent.parent / "public_surface.txt"
_MAKEFILE = Path(__file__).parent.parent.parent / "Makefile"
_SHOWN = (bool, bytes, float, int, str, tuple, type(None))
"""Types of defaults whose texts are the same in every run."""


def documented_modules() -> list[str]:
    """The modules of the API documentation, as the Makefile lists them."""
    found = re.search(r"^documented := ((?:.*\\\n)*.*)$", _MAKEFILE.read_text("utf-8"), re.MULTILINE)
    assert found is not None
    top, rest = found[1].replace("\\\n", " ").split("$(addprefix coregw.,")
    return [*top.split(), *(f"coregw.{name}" for name in rest.rstrip(")").split())]


def _public(module: ModuleType) -> list[str]:
    """The names of `module` that are part of the interface."""
    named: list[str] | None = getattr(module, "__all__", None)
    if named is not None:
        return sorted(named)
    own = (name for name in vars(module) if not name.startswith("_"))
    return sorted(name for name in own if getattr(getattr(module, name), "__module__", None) == module.__name__)


def _parameters(value: object) -> str:
    """The parameters of a callable, without annotations and without the first one, `self` or `cls`."""
    parts = []
    if isinstance(value, GenericAlias | EnumType):  # what inspect says of these depends on the version of Python
        return ""
    try:
        parameters = inspect.signature(value).parameters.values()  # type: ignore[arg-type]
    except (TypeError, ValueError):  # of a class without its own constructor
        return ""
    is_marked = False
    for parameter in parameters:
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not is_marked:
            parts.append("*")
        is_marked |= parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}
        name = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + parameter.name
        default = parameter.default
        text = repr(default) if isinstance(default, _SHOWN) else "…"
        parts.append(name if default is parameter.empty else f"{name}={text}")
    return f"({', '.join(parts)})"


def _members(owner: type) -> Iterator[str]:
    """One line for each public method, property and field that a class defines or takes from coregw."""
    fields = [each.name for each in dataclasses.fields(owner)] if dataclasses.is_dataclass(owner) else []
    fields += getattr(owner, "_fields", ()) if issubclass(owner, tuple) else ()
    fields += owner.__struct_fields__ if issubclass(owner, msgspec.Struct) else ()
    if fields:
        yield f"    fields {', '.join(fields)}"
    ours = [base for base in owner.__mro__ if base.__module__.startswith("coregw")]
    names = {name for base in ours for name in vars(base) if not name.startswith("_")} - set(fields)
    for name in sorted(names):
        value = inspect.getattr_static(owner, name)
        if callable(getattr(owner, name)) and not isinstance(value, property):
            yield f"    {name}{_parameters(getattr(owner, name))}"
        else:
            yield f"    {name}"


def _module(name: str, seen: set[object]) -> Iterator[str]:
    """The lines of a module; the members of a class only where it is not in `seen`."""
    module = importlib.import_module(name)
    yield f"module {name}"
    for public in _public(module):
        value = getattr(module, public)
        if inspect.isclass(value):
            kind = "exception" if issubclass(value, BaseException) else "class"
            yield f"  {kind} {public}{'' if kind == 'exception' else _parameters(value)}"
            if value.__module__.startswith("coregw") and value not in seen:
                seen.add(value)
                yield from _members(value)
        elif callable(value):
            yield f"  {public}{_parameters(value)}"
        else:
            yield f"  {public}: {'Union' if isinstance(value, UnionType) else type(value).__name__}"


def _command(command: Command, path: str) -> Iterator[str]:
    yield f"command {path}"
    for parameter in command.params:
        names = parameter.opts + parameter.secondary_opts
        yield f"  {' '.join(names) if isinstance(parameter, Option) else parameter.human_readable_name}"
    if isinstance(command, Group):
        context = Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _command(found, f"{path} {name}")


def surface() -> str:
    """The outline of the interface."""
    seen: set[object] = set()
    lines = [line for name in documented_modules() for line in _module(name, seen)]
    lines += _command(cli, "coregw")
    lines += ["settings", *(f"  {name}" for name in Settings.__struct_fields__)]
    return "".join(f"{part}\n" for line in lines for part in _wrapped(line))


def _wrapped(line: str) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())] + "    "
    return textwrap.wrap(line, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PINNED.write_text(surface(), "utf-8")
