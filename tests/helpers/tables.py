"""Tables of cases that one test goes through, as opposed to one test a case: some of them have a thousand rows."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import pytest

ParameterSet = type(pytest.param())

# What a row may raise. Skips and failures of pytest are no exceptions of the class `Exception`.
OUTCOMES = (Exception, pytest.fail.Exception, pytest.skip.Exception)


def rows(
    names: str | tuple[str, ...], table: Iterable[Any], ids: Callable[[Any], object] | Iterable[str] | None = None
) -> Callable[..., Any]:
    """Call a test for each row of a table. Used as `pytest.mark.parametrize` is.

    Every row that fails is reported with its number and name. A row that passes costs nothing but the call: a
    subtest of its own would cost as much as a test. The rows share the fixtures of the test, ``tmp_path`` included.

    Args:
        names: Parameter of the test, or a tuple of them.
        table: A row is the value of the only parameter, the values of all, or `pytest.param` with an ID.
        ids: Names of the rows, or what names a row of one value. Without it, a row is named by its values.
    """
    parameters = [names] if isinstance(names, str) else [*names]
    numbered = [*_rows(parameters, table, ids)]
    assert numbered, f"no row for {names}"

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(test)
        own = [each for name, each in signature.parameters.items() if name not in {*parameters, "subtests"}]
        added = inspect.Parameter("subtests", inspect.Parameter.KEYWORD_ONLY)

        def passed(fixtures: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
            return {name: value for name, value in fixtures.items() if name in signature.parameters} | row

        if inspect.iscoroutinefunction(test):

            @wraps(test)
            async def in_order(*args: Any, **fixtures: Any) -> None:  # noqa: ANN401
                for name, row in numbered:
                    try:
                        await test(*args, **passed(fixtures, row))
                    except OUTCOMES:
                        with fixtures["subtests"].test(msg=name):
                            raise
        else:

            @wraps(test)
            def in_order(*args: Any, **fixtures: Any) -> None:  # noqa: ANN401
                for name, row in numbered:
                    try:
                        test(*args, **passed(fixtures, row))
                    except OUTCOMES:
                        with fixtures["subtests"].test(msg=name):
                            raise

        in_order.__signature__ = signature.replace(parameters=[*own, added])  # type: ignore[attr-defined]
        return in_order

    return decorate


def _rows(
    parameters: list[str], table: Iterable[Any], ids: Callable[[Any], object] | Iterable[str] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and arguments of every row."""
    given = None if ids is None or callable(ids) else [*ids]
    for number, each in enumerate(table):
        values, name = (each,) if len(parameters) == 1 else each, None
        if isinstance(each, ParameterSet):
            assert not each.marks, f"row {number} has a mark, which only a test can have"
            values, name = each.values, each.id
        if name is None and given is not None:
            name = given[number]
        elif name is None and callable(ids):
            name = ids(*values)
        elif name is None:
            name = ", ".join(repr(value)[:80] for value in values)
        yield f"{number}: {name}", dict(zip(parameters, values, strict=True))
