"""The public interface is pinned: names, signatures, fields, commands, options and settings."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import typing
from collections.abc import Mapping
from pathlib import Path

import pytest

import coregw
from coregw import errors
from coregw.client import AsyncPublications, Publications
from public_surface import PINNED, documented_modules, surface
from unasync import MADE, made

PACKAGE = Path(__file__).parent.parent / "python" / "coregw"


def test_the_interface_is_as_recorded() -> None:
    """After an intended change: `.venv/bin/python tests/helpers/public_surface.py`, and a line in the changelog."""
    assert surface() == PINNED.read_text("utf-8")


def test_the_blocking_client_is_made_of_the_asyncio_client() -> None:
    """After a change of ``client/aio.py``: `.venv/bin/python tests/helpers/unasync.py`."""
    assert MADE.read_text("utf-8") == made()


def test_names_of_the_package_are_loaded_when_used() -> None:
    assert all(getattr(coregw, name) is not None for name in coregw.__all__)
    assert set(coregw.__all__) <= set(dir(coregw))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = coregw.Nothing  # type: ignore[attr-defined]


def test_every_exception_is_public_and_derived_from_one_base() -> None:
    exceptions = set(errors.__all__) - {"ERROR_CODES", "ErrorCode"}
    public = {name: getattr(coregw, name) for name in coregw.__all__}
    raised = {name for name, value in public.items() if inspect.isclass(value) and issubclass(value, BaseException)}
    assert raised == exceptions
    assert all(issubclass(getattr(errors, name), coregw.CoregwError) for name in exceptions)
    assert issubclass(coregw.InvalidInput, ValueError)
    assert issubclass(coregw.PathNotFound, KeyError)
    assert issubclass(coregw.IndexNotFound, IndexError)


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_every_public_module_class_and_function_has_a_docstring() -> None:
    undocumented = []
    for info in pkgutil.walk_packages([str(PACKAGE)], "coregw."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        if not module.__doc__:
            undocumented.append(info.name)
        for name in getattr(module, "__all__", []):
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and not inspect.getdoc(value):
                undocumented.append(f"{info.name}.{name}")
    assert not undocumented


def test_help_shows_no_address_of_a_default() -> None:
    shown = []
    for module in map(importlib.import_module, documented_modules()):
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            for member in (value, *(vars(value).values() if inspect.isclass(value) else ())):
                function = getattr(member, "__func__", member)
                defaults = inspect.signature(function).parameters.values() if inspect.isfunction(function) else ()
                shown += [f"{module.__name__}.{name}: {each}" for each in defaults if inspect.isroutine(each.default)]
    assert shown == []


def test_help_of_a_method_of_a_client_is_complete() -> None:
    """It describes every argument and what is raised, and does not send its reader to what does."""
    incomplete = []
    for of in (coregw.Client, coregw.AsyncClient, Publications, AsyncPublications):
        for name, method in vars(of).items():
            if name.startswith("_") or not inspect.isroutine(method):
                continue
            text = inspect.getdoc(method) or ""
            sections = {part.partition("\n")[0]: part for part in text.split("\n\n")}
            described = re.findall(r"(?m)^    (\w+): ", sections.get("Args:", ""))
            if described != [each for each in inspect.signature(method).parameters if each != "self"]:
                incomplete.append(f"{of.__name__}.{name}: arguments")
            if "Raises:" not in sections or "Unavailable: " not in sections["Raises:"]:
                incomplete.append(f"{of.__name__}.{name}: errors")
            if re.search(r"[Ss]ee `(?!Client|AsyncClient)", text):
                incomplete.append(f"{of.__name__}.{name}: a reference")
    assert incomplete == []


def test_docstrings_name_the_errors_that_are_raised() -> None:
    """Those of functions that are part of an interface, unless they say which function is described in their place."""
    silent = []
    for path in PACKAGE.rglob("*.py"):
        if {"cli", "gateway", "plants"} & {*path.relative_to(PACKAGE).parts}:
            continue  # commands have exit codes, and the errors of routes are in the OpenAPI documents
        tree = ast.parse(path.read_text("utf-8"))
        for owner in [tree, *tree.body]:
            if not isinstance(owner, ast.Module) and (not isinstance(owner, ast.ClassDef) or owner.name[0] == "_"):
                continue
            about = (ast.get_docstring(owner) or "") if isinstance(owner, ast.ClassDef) else ""
            for function in owner.body:
                if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) or function.name.startswith("_"):
                    continue
                text = ast.get_docstring(function)
                if text is None or re.search(r"\b([Aa]s|[Ss]ee|Steps of) `", text):
                    continue
                silent += [
                    f"{path.relative_to(PACKAGE)}: {function.name}: {each.exc.func.id}"
                    for each in ast.walk(function)
                    if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Call)
                    if isinstance(each.exc.func, ast.Name) and each.exc.func.id in errors.__all__
                    if each.exc.func.id not in text + about
                ]
    assert silent == []


def test_type_hints_of_the_whole_interface_can_be_resolved() -> None:
    failed, count = [], 0
    for module in map(importlib.import_module, documented_modules()):
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            members = vars(value).values() if inspect.isclass(value) else ()
            for member in (value, *members):
                function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                if (
                    not inspect.isfunction(function)
                    or function.__name__.startswith("_")
                    or not function.__annotations__
                ):
                    continue
                count += 1
                try:
                    typing.get_type_hints(function)
                except NameError as error:
                    failed.append(f"{module.__name__}: {function.__qualname__}: {error}")
    assert failed == []
    assert count > 200


def test_annotations_of_verifiers_name_what_they_take() -> None:
    assert Mapping[str, object] in typing.get_args(typing.get_type_hints(coregw.verify_resolve)["request"])
