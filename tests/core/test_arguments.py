"""Random arguments to everything in the extension: a result, or an exception that `except Exception` catches.

A panic in Rust would be raised as a `BaseException`, which these tests do not catch.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import isroutine, signature
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import coregw
from coregw import Change, CoregwError, _core

CID = coregw.payload_cid(b"one")
MAP = coregw.Map({f"docs/{number}": CID for number in range(20)})
LIST = coregw.List([CID] * 20, sizes=range(1, 21))

BIG = 1 << 70
values = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.sampled_from([0, 1, 19, 20, -1, (1 << 53) - 1, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, BIG, -BIG])
    | st.text(st.characters(exclude_categories=()), max_size=5)
    | st.binary(max_size=40)
    | st.sampled_from(
        [CID, MAP.root, LIST.root, coregw.Cid(CID), MAP, LIST, "docs/7", b"{}", "sha2-256", int, object()]
    )
    | st.sampled_from([MAP.prove("docs/7"), LIST.prove(7), MAP.scan(limit=3).proof, LIST.prove_range(3, 50)]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.builds(Change, inner, inner, inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.builds(iter, st.lists(inner, max_size=2))
    ),
    max_leaves=6,
)

FUNCTIONS = {name: value for name, value in vars(_core).items() if isroutine(value) and not name.startswith("_")}
CLASSES = {
    name: getattr(_core, name)
    for name in ("Cid", "Map", "List", "PayloadHasher", "PayloadCheck", "PageCache", "Change")
}
METHODS = {
    f"{type(tree).__name__}.{name}": getattr(tree, name)
    for tree in (MAP, LIST, coregw.PayloadHasher(), _core.PayloadCheck(coregw.payload_cid(b"")))
    for name in dir(tree)
    if not name.startswith("_") or name in {"__contains__", "__eq__", "__getitem__", "__len__", "__iter__", "__hash__"}
    if callable(getattr(tree, name))
}


CALLED: dict[str, Callable[..., object]] = {**FUNCTIONS, **CLASSES, **METHODS}


def random_arguments(called: Callable[..., object]) -> st.SearchStrategy[list[Any]]:
    """Odd values for the parameters, as many as are allowed."""
    parameters = signature(called).parameters.values()
    required = sum(parameter.default is parameter.empty for parameter in parameters)
    return st.lists(values, min_size=required, max_size=len(parameters))


@pytest.mark.parametrize("name", CALLED)
@settings(max_examples=20)
@given(st.data())
def test_random_arguments_give_a_result_or_an_ordinary_exception(name: str, data: st.DataObject) -> None:
    arguments = data.draw(random_arguments(CALLED[name]))
    try:
        CALLED[name](*arguments)
    except CoregwError as error:
        if error.code == "internal":
            pytest.fail(f"a bug, not an invalid argument: {error}")
    except Exception:  # noqa: S110, BLE001 - which one is tested per function
        pass
