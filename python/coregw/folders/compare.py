"""Differences between two folders, path by path: content, kind, attributes, and ranges of changed files.

Nothing here asks a gateway or reads a file: it compares what is listed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from coregw.folders.tree import Attributes, FolderEntry

__all__ = [
    "MAX_COMPARED_ELEMENTS",
    "AttributeChange",
    "ChangedRange",
    "Chunk",
    "FolderDifference",
    "changed_ranges",
    "compare_entries",
    "compare_folders",
]

Chunk = tuple[str, int]
"""A payload of a file, and its length in bytes."""

MAX_COMPARED_ELEMENTS: Final = 1 << 20
"""Elements of a list whose ranges are compared. Lists of a few nodes may have 2^52."""

Kind = Literal["file", "link", "folder", "map", "other"]


class AttributeChange(NamedTuple):
    """An attribute that differs; None where nothing is known.

    Attributes:
        name: ``mode``, ``mtime_ns``, ``link``, ``owner`` or ``xattrs``; ``size`` if only the record of it differs.
        before: Its value in the first folder, as in `Attributes`.
        after: Its value in the second folder.
    """

    name: str
    before: object
    after: object


class ChangedRange(NamedTuple):
    """Bytes of a file that were replaced by others, in whole chunks; either range may be empty.

    Attributes:
        before: The first byte, and the one after the last, in the first file.
        after: The same in the second file.
    """

    before: tuple[int, int]
    after: tuple[int, int]


@dataclass(frozen=True, slots=True)
class FolderDifference:
    """A path that differs between two folders.

    Attributes:
        segments: The path.
        kinds: What it is in each folder; None where there is nothing, ``other`` for what no root has.
        before: The target of the first folder's file or nested map, if the targets differ.
        after: The target of the second folder's.
        attributes: Attributes that differ, in a fixed order; empty for a path that only one folder has.
        ranges: What differs between two files that are lists; None for anything else, and if one of the lists has more
            than `MAX_COMPARED_ELEMENTS`.
    """

    segments: tuple[str, ...]
    kinds: tuple[Kind | None, Kind | None]
    before: str | None = None
    after: str | None = None
    attributes: tuple[AttributeChange, ...] = ()
    ranges: tuple[ChangedRange, ...] | None = None


def compare_folders(before: Sequence[FolderEntry], after: Sequence[FolderEntry]) -> Iterator[FolderDifference]:
    """Yield every difference between two folders, in key order. O(entries · depth).

    A folder that is only a part of other paths on one side is not a difference.

    Args:
        before: All paths of the first folder, each once.
        after: All paths of the second folder.
    """
    first, second = ({entry.segments: entry for entry in entries} for entries in (before, after))
    orders = sorted(first), sorted(second)
    for path in sorted(first.keys() | second.keys()):
        old, new = first.get(path), second.get(path)
        found = compare_entries(old, new)
        if found is None or (found.kinds == ("folder", None) and _has_below(orders[1], path)):
            continue
        if found.kinds == (None, "folder") and _has_below(orders[0], path):
            continue
        yield found


def compare_entries(before: FolderEntry | None, after: FolderEntry | None) -> FolderDifference | None:
    """Compare what two folders have at one path, of which at least one has something. None if that is the same."""
    entry = before or after
    if entry is None:
        return None
    old, new = before.target if before else None, after.target if after else None
    changes: tuple[AttributeChange, ...] = ()
    if before and after and before.kind == after.kind:
        changes = tuple(_changes(before.attributes, after.attributes, has_same_bytes=old == new))
        if old == new:
            if not changes:
                return None
            old = new = None
    kinds = before.kind if before else None, after.kind if after else None
    return FolderDifference(entry.segments, kinds, old, new, changes)


def _changes(before: Attributes | None, after: Attributes | None, *, has_same_bytes: bool) -> Iterator[AttributeChange]:
    for name in ("mode", "mtime_ns", "link", "owner", "xattrs", *(("size",) if has_same_bytes else ())):
        old, new = (getattr(each, name, None) for each in (before, after))
        if name == "xattrs":
            old, new = old or None, new or None
        if old != new:
            yield AttributeChange(name, old, new)


def _has_below(order: Sequence[tuple[str, ...]], path: tuple[str, ...]) -> bool:
    """Whether a path of a sorted list is below another path."""
    place = bisect_right(order, path)
    return place < len(order) and order[place][: len(path)] == path


def changed_ranges(before: Sequence[Chunk], after: Sequence[Chunk]) -> Iterator[ChangedRange]:
    """Yield the byte ranges in which two files differ, in whole chunks and in order. O(n log n) for n chunks.

    Equal chunks at both ends, equal chunks that each file has once, in the order of both, and equal chunks beside
    these are the same; a chunk that moved past others is a difference.

    >>> list(changed_ranges([("a", 5), ("b", 5)], [("x", 2), ("a", 5), ("b", 5)]))
    [ChangedRange(before=(0, 0), after=(0, 2))]
    """
    ends = len(before), len(after)
    place = old_byte = new_byte = 0
    other = 0
    for old_start, new_start, count in [*_common_runs(before, after), (*ends, 0)]:
        old_end = old_byte + sum(size for _, size in before[place:old_start])
        new_end = new_byte + sum(size for _, size in after[other:new_start])
        if (old_end, new_end) != (old_byte, new_byte):
            yield ChangedRange((old_byte, old_end), (new_byte, new_end))
        size = sum(size for _, size in before[old_start : old_start + count])
        old_byte, new_byte = old_end + size, new_end + size
        place, other = old_start + count, new_start + count


def _common_runs(before: Sequence[Chunk], after: Sequence[Chunk]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of equal chunks in the order of both: their first places, and their number."""
    old = new = 0
    anchors = [(-1, -1), *_anchors(before, after), (len(before), len(after))]
    for old_anchor, new_anchor in anchors[1:]:
        if old_anchor < old:  # part of the run before
            continue
        count = 0
        while old + count < old_anchor and new + count < new_anchor and before[old + count] == after[new + count]:
            count += 1
        if count:
            yield old, new, count
            old, new = old + count, new + count
        back = 0
        while (
            old_anchor - back > old
            and new_anchor - back > new
            and before[old_anchor - back - 1] == after[new_anchor - back - 1]
        ):
            back += 1
        is_chunk = old_anchor < len(before) and new_anchor < len(after)
        if back or is_chunk:
            yield old_anchor - back, new_anchor - back, back + is_chunk
        old, new = old_anchor + is_chunk, new_anchor + is_chunk


def _anchors(before: Sequence[Chunk], after: Sequence[Chunk]) -> list[tuple[int, int]]:
    """The longest increasing sequence of pairs of places of chunks that each file has exactly once."""
    counts = Counter(before), Counter(after)
    places = {chunk: place for place, chunk in enumerate(before) if counts[0][chunk] == 1}
    pairs = [(places[chunk], new) for new, chunk in enumerate(after) if chunk in places and counts[1][chunk] == 1]
    tops: list[int] = []  # the smallest last place of an increasing sequence of each length
    holders: list[int] = []
    links: list[int] = []
    for index, (old, _) in enumerate(pairs):
        length = bisect_left(tops, old)
        links.append(holders[length - 1] if length else -1)
        tops[length : length + 1] = [old]
        holders[length : length + 1] = [index]
    found: list[tuple[int, int]] = []
    index = holders[-1] if holders else -1
    while index >= 0:
        found.append(pairs[index])
        index = links[index]
    return found[::-1]
