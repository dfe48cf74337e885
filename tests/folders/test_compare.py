"""Differences of listings: the ranges in which two files differ, against what the files are."""

from __future__ import annotations

import random

from coregw.folders.compare import Chunk, changed_ranges, compare_folders
from coregw.folders.tree import Attributes, FolderEntry


def parts(chunks: list[Chunk], start: int, end: int) -> list[Chunk]:
    """The chunks of a range, which must be whole ones."""
    found: list[Chunk] = []
    position = 0
    for chunk in chunks:
        if start <= position < end:
            assert position + chunk[1] <= end
            found.append(chunk)
        position += chunk[1]
    return found


def test_what_is_outside_the_ranges_is_the_same_in_both() -> None:
    rng = random.Random(7)
    for _ in range(3000):
        names = "abcdefghijkl"[: rng.randint(1, 12)]
        first, second = ([(name, ord(name) - 96) for name in rng.choices(names, k=rng.randint(0, 9))] for _ in "ab")
        if rng.random() < 0.5:
            second = first[: rng.randint(0, 9)] + second[:2] + first[rng.randint(0, 9) :]
        ranges = list(changed_ranges(first, second))
        assert all(before[0] < before[1] or after[0] < after[1] for before, after in ranges)
        place = other = 0
        for before, after in [*ranges, ((1 << 30, 1 << 30), (1 << 30, 1 << 30))]:
            assert parts(first, place, before[0]) == parts(second, other, after[0])
            place, other = before[1], after[1]
        assert (ranges == []) == (first == second)


def test_an_insertion_and_a_removal_are_only_these() -> None:
    chunks = [(str(number), 10) for number in range(100)]
    changed = [*chunks[:20], ("new", 7), *chunks[20:60], *chunks[63:]]
    assert list(changed_ranges(chunks, changed)) == [((200, 200), (200, 207)), ((600, 630), (607, 607))]
    zeros = [("0", 5)] * 1000
    assert list(changed_ranges(zeros, [*zeros, ("0", 5)])) == [((5000, 5000), (5000, 5005))]


def test_a_folder_that_is_only_above_other_paths_is_no_difference() -> None:
    file = FolderEntry(("docs", "a"), "file", "x", None)
    folder = FolderEntry(("docs",), "folder", None, Attributes("folder", None, 0o755, None, None, None, {}))
    assert list(compare_folders([file], [folder, file])) == list(compare_folders([folder, file], [file])) == []
    assert [each.kinds for each in compare_folders([folder], [])] == [("folder", None)]
