"""``_core.pyi`` declares what the extension has: the same names, parameters and docstrings."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence

import pytest

from coregw import _core
from stub import STUB, documented
from tables import rows

TREE = ast.parse(STUB.read_text("utf-8"))
FUNCTIONS = {node.name: node for node in TREE.body if isinstance(node, ast.FunctionDef)}
CLASSES = {node.name: node for node in TREE.body if isinstance(node, ast.ClassDef)}
METHODS = {
    f"{owner}.{node.name}": node
    for owner, declared in CLASSES.items()
    for node in declared.body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("__") and not node.decorator_list
}


def of_stub(function: ast.FunctionDef) -> list[tuple[str, object]]:
    """Names and defaults of the parameters that a stub declares, without `self`."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    defaults = [ast.literal_eval(default) for default in function.args.defaults]
    required = [inspect.Parameter.empty] * (len(names) - len(defaults))
    named = [
        (argument.arg, inspect.Parameter.empty if default is None else ast.literal_eval(default))
        for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    ]
    pairs = [*zip(names, [*required, *defaults], strict=True), *named]
    return [pair for pair in pairs if pair[0] not in {"self", "cls"}]


def of_extension(function: object) -> list[tuple[str, object]]:
    """Names and defaults of the parameters that a function has, without `self`."""
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return [(parameter.name, parameter.default) for parameter in parameters if parameter.name != "self"]


def public(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


def members(declared: ast.ClassDef) -> set[str]:
    """The methods, properties and fields that a stub declares for a class."""
    functions = {node.name for node in declared.body if isinstance(node, ast.FunctionDef)}
    fields = {ast.unparse(node.target) for node in declared.body if isinstance(node, ast.AnnAssign)}
    return functions | fields


def test_the_stub_declares_every_name_of_the_extension_and_no_other() -> None:
    assert FUNCTIONS.keys() | CLASSES.keys() == public(_core)
    assert isinstance(_core.__version__, str)


@rows("name", CLASSES)
def test_a_class_has_the_members_that_the_stub_declares_and_no_other(name: str) -> None:
    built = getattr(_core, name)
    declared = members(CLASSES[name])
    assert declared <= set(dir(built))
    inherited = public(tuple) if issubclass(built, tuple) else set()
    assert public(built) - inherited <= declared


@rows("name", FUNCTIONS)
def test_a_function_has_the_parameters_that_the_stub_declares(name: str) -> None:
    assert of_extension(getattr(_core, name)) == of_stub(FUNCTIONS[name])


@rows("name", METHODS)
def test_a_method_has_the_parameters_that_the_stub_declares(name: str) -> None:
    owner, method = name.split(".")
    assert of_extension(getattr(getattr(_core, owner), method)) == of_stub(METHODS[name])


@rows("name", [*FUNCTIONS, *CLASSES, *METHODS])
def test_every_function_class_and_method_is_documented(name: str) -> None:
    owner, _, method = name.partition(".")
    value = getattr(_core, owner)
    assert inspect.getdoc(getattr(value, method) if method else value)


def test_the_stub_has_the_docstrings_of_the_extension() -> None:
    text = STUB.read_text("utf-8")
    assert documented(text, _core) == text, "run 'python tests/helpers/stub.py' to copy the docstrings to the stub"


def test_copied_docstrings_replace_old_ones_and_are_added_where_missing() -> None:
    before = """
def encode_key(segments: str) -> bytes: ...
def codec_code(
    codec: str,
) -> int:
    '''An old docstring.

    With a second paragraph.
    '''

class Scan(NamedTuple):
    more: bool
    proof: bytes
    '''Old.'''
"""
    after = documented(before, _core)
    assert ast.unparse(ast.parse(after)).count("Old") == 0
    nodes = [node for node in ast.walk(ast.parse(after)) if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert [ast.get_docstring(node) for node in nodes] == [inspect.getdoc(getattr(_core, node.name)) for node in nodes]
    assert after.count('"""') == 2 * 5
    assert documented(after, _core) == after


@pytest.mark.parametrize(("name", "abc"), [("Map", Mapping), ("List", Sequence)])
def test_a_tree_has_the_methods_of_its_abstract_class(name: str, abc: type) -> None:
    assert issubclass(getattr(_core, name), abc)
    assert public(abc) <= public(getattr(_core, name))
