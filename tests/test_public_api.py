"""The public surface is pinned: its names, their signatures, and the stub that documents the extension."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import coregw
from coregw import _core, errors

PACKAGE = Path(__file__).parent.parent / "python" / "coregw"
STUB = ast.parse((PACKAGE / "_core.pyi").read_text("utf-8"))

# What a program may count on. A name that goes or changes here is a breaking change, and belongs in the changelog.
SURFACE = {
    "Applied": "NamedTuple",
    "AsyncClient": "class",
    "Change": "NamedTuple",
    "Cid": "class",
    "Client": "class",
    "Conflict": "exception",
    "CoregwError": "exception",
    "Diff": "NamedTuple",
    "Element": "NamedTuple",
    "IndexNotFound": "exception",
    "InvalidInput": "exception",
    "List": "class",
    "Map": "class",
    "NotFound": "exception",
    "PathNotFound": "exception",
    "PayloadHasher": "class",
    "PayloadNotFound": "exception",
    "ProofError": "exception",
    "Range": "NamedTuple",
    "ReadOutcome": "NamedTuple",
    "RecordNotFound": "exception",
    "RootNotFound": "exception",
    "Scan": "NamedTuple",
    "StorageFull": "exception",
    "StoreDamaged": "exception",
    "TooLarge": "exception",
    "Unauthorized": "exception",
    "Unavailable": "exception",
    "__version__": "str",
    "encode_key": "(segments)",
    "payload_cid": "(data, codec='raw', hash='sha2-256')",
    "verify_changes": "(root, changes, proof)",
    "verify_diff": "(a, b, response, prefix=(), after=None, limit=1000)",
    "verify_index": "(root, index, proof)",
    "verify_key": "(root, path, proof)",
    "verify_key_many": "(root, items)",
    "verify_map_proof": "(request, result)",
    "verify_range": "(root, start, end, proof)",
    "verify_read": "(request, result)",
    "verify_resolve": "(request, result)",
    "verify_scan": "(root, prefix, after, limit, proof)",
    "verify_scan_result": "(request, result)",
    "verify_transition": "(request, receipt)",
}
FIELDS = {
    "Applied": ("tree", "proof"),
    "Change": ("coordinate", "before", "after", "size"),
    "Diff": ("entries", "more"),
    "Element": ("target", "size", "length"),
    "Range": ("segments", "sizes", "offset", "length", "total_size"),
    "ReadOutcome": ("present", "target", "segments", "sizes", "offset", "length", "total_size"),
    "Scan": ("entries", "more", "proof"),
}
METHODS = {
    "Map.__new__": "(arcs, suite='sha2-256')",
    "Map.prove": "(path)",
    "Map.prove_many": "(paths)",
    "Map.scan": "(prefix=(), after=None, limit=1000)",
    "Map.apply": "(changes)",
    "List.__new__": "(elements, sizes=None, suite='sha2-256')",
    "List.prove": "(index)",
    "List.prove_range": "(start, end=None)",
    "List.apply": "(changes)",
    "PayloadHasher.__new__": "(codec='raw', hash='sha2-256')",
    "PayloadHasher.update": "(chunk)",
    "PayloadHasher.cid": "()",
}


def kind_of(value: object) -> str:
    if isinstance(value, str):
        return "str"
    if not inspect.isclass(value):
        assert callable(value)
        return bare(inspect.signature(value))
    if issubclass(value, BaseException):
        return "exception"
    return "NamedTuple" if issubclass(value, tuple) and hasattr(value, "_fields") else "class"


def bare(signature: inspect.Signature) -> str:
    """A signature without its annotations, its marks and its first parameter `self` or `cls`."""
    parts = []
    for name, parameter in signature.parameters.items():
        if name not in {"self", "cls"}:
            parts.append(name if parameter.default is parameter.empty else f"{name}={parameter.default!r}")
    return f"({', '.join(parts)})"


def test_the_public_names_are_these_and_no_others() -> None:
    assert sorted(coregw.__all__) == sorted(SURFACE)
    assert {name: kind_of(getattr(coregw, name)) for name in SURFACE} == SURFACE
    assert set(SURFACE) <= set(dir(coregw))


@pytest.mark.parametrize("name", FIELDS)
def test_a_result_has_these_fields_in_this_order(name: str) -> None:
    assert getattr(coregw, name)._fields == FIELDS[name]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_this_signature(name: str) -> None:
    owner, method = name.split(".")
    value = getattr(coregw, owner)
    assert bare(inspect.signature(value if method == "__new__" else getattr(value, method))) == METHODS[name]


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = coregw.Nothing  # type: ignore[attr-defined]


def test_every_exception_is_exported_and_under_one_base() -> None:
    exceptions = set(errors.__all__) - {"ERROR_CODES", "ErrorCode"}
    assert {name for name, kind in SURFACE.items() if kind == "exception"} == exceptions
    assert all(issubclass(getattr(errors, name), coregw.CoregwError) for name in exceptions)
    assert issubclass(coregw.InvalidInput, ValueError)
    assert issubclass(coregw.PathNotFound, KeyError)
    assert issubclass(coregw.IndexNotFound, IndexError)


def public(names: list[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_the_stub_and_the_extension_have_the_same_names() -> None:
    defined = {node.name for node in STUB.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assert defined == public(dir(_core))
    assert isinstance(_core.__version__, str)


def parameters(function: ast.FunctionDef) -> str:
    """What `bare` gives for the same function, read from the stub."""
    names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
    defaults = [None] * (len(names) - len(function.args.defaults)) + [
        ast.literal_eval(d) for d in function.args.defaults
    ]
    required = len(names) - len(function.args.defaults)
    return (
        "("
        + ", ".join(
            name if place < required else f"{name}={defaults[place]!r}"
            for place, name in enumerate(names)
            if name not in {"self", "cls"}
        )
        + ")"
    )


FUNCTIONS = {node.name: node for node in STUB.body if isinstance(node, ast.FunctionDef)}
CLASSES = {node.name: node for node in STUB.body if isinstance(node, ast.ClassDef)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_documented_and_as_its_stub_says(name: str) -> None:
    function = getattr(_core, name)
    assert bare(inspect.signature(function)) == parameters(FUNCTIONS[name])
    assert function.__doc__


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_is_documented_and_has_the_members_of_its_stub(name: str) -> None:
    built = getattr(_core, name)
    assert built.__doc__
    members = {node.name: node for node in CLASSES[name].body if isinstance(node, ast.FunctionDef)}
    fields = {node.target.id for node in CLASSES[name].body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    inherited = set(dir(tuple)) | {"_fields", "_asdict"}
    assert set(members) | fields <= set(dir(built))
    assert public(dir(built)) - inherited - from_abc(built) <= set(members) | fields
    for member, node in members.items():
        if not node.decorator_list and not member.startswith("__"):
            assert bare(inspect.signature(getattr(built, member))) == parameters(node), member


def from_abc(built: type) -> set[str]:
    """What a mapping or a sequence has beside the methods that the stub spells out."""
    from collections.abc import Mapping, Sequence

    return {name for abc in (Mapping, Sequence) if issubclass(built, abc) for name in public(dir(abc))}


def test_the_package_says_that_it_is_typed() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_every_public_thing_of_the_package_has_a_docstring() -> None:
    bare_names = []
    for info in pkgutil.walk_packages([str(PACKAGE)], "coregw."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        if not module.__doc__:
            bare_names.append(info.name)
        for name in getattr(module, "__all__", []):
            value = getattr(module, name)
            if (inspect.isclass(value) or inspect.isfunction(value)) and not inspect.getdoc(value):
                bare_names.append(f"{info.name}.{name}")
    assert not bare_names
