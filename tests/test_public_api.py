"""The public API is pinned: its names, signatures and fields."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest

import coregw
from coregw import errors

PACKAGE = Path(__file__).parent.parent / "python" / "coregw"

# A name that is removed or changed here is a breaking change, and belongs in the changelog.
SURFACE = {
    "Applied": "NamedTuple",
    "AsyncClient": "class",
    "Attributes": "NamedTuple",
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
    "UnprovenAbsence": "exception",
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
    "TrustStore": "class",
    "Unauthorized": "exception",
    "Unavailable": "exception",
    "UpstreamDamaged": "exception",
    "__version__": "str",
    "build": "(arcs, store=None, suite='sha2-256', temporary=None)",
    "chunk_sizes": "(data)",
    "decode_attributes": "(target, payload=None)",
    "encode_attributes": "(kind='file', size=None, mode=None, mtime_ns=None, link=None, owner=None, xattrs=None)",
    "encode_key": "(segments)",
    "hash_tree": "(path, suite='sha2-256', attributes='all', owner=False, xattrs=False, exclude=(), gitignore=False)",
    "payload_cid": "(data, codec='raw', hash='sha2-256')",
    "verify_changes": "(root, changes, proof)",
    "verify_diff": "(a, b, response, prefix=(), after=None, limit=1000)",
    "verify_index": "(root, index, proof)",
    "verify_key": "(root, path, proof)",
    "verify_key_many": "(root, items)",
    "verify_keys": "(root, paths, proof)",
    "verify_map_proof": "(request, result)",
    "verify_range": "(root, start, end, proof)",
    "verify_read": "(request, result)",
    "verify_resolve": "(request, result)",
    "verify_scan": "(root, prefix, after, limit, proof)",
    "verify_scan_result": "(request, result)",
    "verify_transition": "(request, receipt)",
    "verify_tree": "(root, path, attributes=None, owner=False, xattrs=False, exclude=(), gitignore=False)",
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
    "Map.prove_keys": "(paths)",
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
    """A signature without annotations, ``/`` and ``*``, and the first parameter `self` or `cls`."""
    parts = []
    for name, parameter in signature.parameters.items():
        if name not in {"self", "cls"}:
            parts.append(name if parameter.default is parameter.empty else f"{name}={parameter.default!r}")
    return f"({', '.join(parts)})"


def test_exactly_these_names_are_public() -> None:
    assert sorted(coregw.__all__) == sorted(SURFACE)
    assert {name: kind_of(getattr(coregw, name)) for name in SURFACE} == SURFACE
    assert set(SURFACE) <= set(dir(coregw))


@pytest.mark.parametrize("name", FIELDS)
def test_a_named_tuple_has_these_fields_in_this_order(name: str) -> None:
    assert getattr(coregw, name)._fields == FIELDS[name]


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_this_signature(name: str) -> None:
    owner, method = name.split(".")
    value = getattr(coregw, owner)
    assert bare(inspect.signature(value if method == "__new__" else getattr(value, method))) == METHODS[name]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = coregw.Nothing  # type: ignore[attr-defined]


def test_every_exception_is_public_and_derived_from_one_base() -> None:
    exceptions = set(errors.__all__) - {"ERROR_CODES", "ErrorCode"}
    assert {name for name, kind in SURFACE.items() if kind == "exception"} == exceptions
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
