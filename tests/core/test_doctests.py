"""Runs the examples in the extension's docstrings: pytest collects those of Python modules only."""

from __future__ import annotations

import doctest

import coregw
from coregw import _core
from tables import rows

FINDER = doctest.DocTestFinder(exclude_empty=True)
EXAMPLES = {
    example.name: example
    for name in dir(_core)
    if not name.startswith("_")
    for example in FINDER.find(getattr(_core, name), name, module=False, globs={"coregw": coregw, **vars(_core)})  # type: ignore[arg-type]
    if example.examples
}


@rows("name", EXAMPLES)
def test_an_example_gives_what_it_shows(name: str) -> None:
    output: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert not runner.run(EXAMPLES[name], out=output.append).failed, "".join(output)


def is_called(name: str) -> bool:
    """Whether a public name is a function or class that programs call: no result and no exception."""
    value = getattr(coregw, name)
    return callable(value) and not (isinstance(value, type) and issubclass(value, tuple | BaseException))


@rows("name", sorted(set(filter(is_called, coregw.__all__)) - {"AsyncClient", "Client"}))
def test_every_public_function_and_class_has_an_example(name: str) -> None:
    assert ">>> " in (getattr(coregw, name).__doc__ or "")
