"""Differences of two lists, by position: what a mutation needs to make one of the other."""

from __future__ import annotations

from collections.abc import Sequence

from coregw.messages import Change, Endpoint

__all__ = ["Element", "list_changes"]

Element = tuple[str, int]
"""The target and the measure of an element."""


def list_changes(before: Sequence[Element], after: Sequence[Element], at_most: int) -> list[list[Change]]:
    """Return the changes that make `after` of `before`, for one mutation after the other. O(elements).

    Elements are compared by their index: one that is inserted before others changes all of them.

    Args:
        before: The elements of the list that is changed.
        after: The elements that it gets.
        at_most: The number of changes of one mutation.

    Returns:
        The replacements, then the appends or removals; none if the lists are equal. The last element is removed first.
    """
    common = min(len(before), len(after))
    pairs = enumerate(zip(before[:common], after[:common], strict=True))
    changes = [
        Change(index=index, before=_endpoint(old), after=_endpoint(new)) for index, (old, new) in pairs if old != new
    ]
    replaced = _cut(changes, at_most)
    appended = [Change(index=common + number, after=_endpoint(each)) for number, each in enumerate(after[common:])]
    removed = [Change(index=common + number, before=_endpoint(each)) for number, each in enumerate(before[common:])]
    return [*replaced, *_cut(removed[::-1] or appended, at_most)]


def _endpoint(element: Element) -> Endpoint:
    target, size = element
    return Endpoint(target=target, size=size)


def _cut(changes: list[Change], at_most: int) -> list[list[Change]]:
    return [changes[start : start + at_most] for start in range(0, len(changes), at_most)]
