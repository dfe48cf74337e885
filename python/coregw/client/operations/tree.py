"""Maps as directory trees and lists as files: complete listings and file contents, each part verified.

A path segment that is followed by another one is a directory; so is a nested map. Nothing here touches the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from coregw import _core
from coregw.client.operations.lookup import value
from coregw.client.operations.payloads import get_payload
from coregw.client.operations.steps import Steps, Stream, StreamItem
from coregw.client.query import map_proof, read_range, resolve, scan, segments_of
from coregw.client.settings import ClientSettings
from coregw.errors import InvalidInput, ProofError, TooLarge, UnprovenAbsence
from coregw.folders.tree import ATTRIBUTES_PATH
from coregw.verify import CidLike, PathLike

__all__ = [
    "FREE_DEPTH",
    "PAGE_ENTRIES",
    "Entry",
    "Leaf",
    "children",
    "contents",
    "entries",
    "last_path",
    "list_elements",
    "list_size",
    "list_targets",
    "locate",
    "walk",
]

PAGE_ENTRIES = 1000
"""Entries that one request of a listing asks for."""

FREE_DEPTH = 16
"""An entry of a map counts once more for each so many folders that the map is below: every entry has its whole path."""

_WINDOW_ELEMENTS = 8_000  # below the 10,000 that one answer may have


class Entry(NamedTuple):
    """One line of a directory listing. A directory that is not a map of its own has no target."""

    name: str
    kind: Literal["cas", "list", "map", "directory"]
    target: str | None


class Leaf(NamedTuple):
    """A path and its target; in a `walk`, always a payload or a list."""

    segments: list[str]
    target: str


def entries(settings: ClientSettings, root: CidLike, prefix: PathLike = ()) -> Stream[Leaf]:
    """Steps of `AsyncClient.entries`, which describes arguments and errors."""
    after: list[str] | None = None
    while True:
        page = yield from value(settings, scan(root, prefix, after, PAGE_ENTRIES))
        for segments, target in page.entries:
            yield StreamItem(Leaf(segments, target))
        if not page.more:
            return
        after = last_path(page)


def walk(settings: ClientSettings, root: CidLike, prefix: PathLike = ()) -> Stream[Leaf]:
    """Steps of `AsyncClient.walk`, which describes arguments and errors."""
    count = 0
    pending: list[tuple[list[str], str, list[str], int]] = [([], _core.Cid(root).text, segments_of(prefix), 0)]
    while pending:
        outside, here, inside, depth = pending.pop()
        if depth > settings.max_nesting:
            raise InvalidInput(f"{'/'.join(outside)!r}: maps nest deeper than {settings.max_nesting}")
        after: list[str] | None = None
        has_more = True
        while has_more:
            page = yield from value(settings, scan(here, inside, after, PAGE_ENTRIES))
            count += len(page.entries) * (1 + len(outside) // FREE_DEPTH)
            if count > settings.max_entries:
                raise TooLarge(f"the tree has more than {settings.max_entries} entries")
            for segments, target in page.entries:
                if _core.Cid(target).kind != "map":
                    yield StreamItem(Leaf(outside + segments, target))
                elif tuple(segments) != ATTRIBUTES_PATH or inside:
                    pending.append((outside + segments, target, [], depth + 1))
            has_more = page.more
            after = last_path(page) if has_more else None


def locate(settings: ClientSettings, root: CidLike, path: PathLike) -> Steps[tuple[str, list[str]]]:
    """Steps of `AsyncClient.locate`, which describes arguments and errors."""
    segments = segments_of(path)
    for cut in range(len(segments) + 1):
        rest = segments[cut:]
        try:
            target = yield from value(settings, resolve(root, segments[:cut]))
        except UnprovenAbsence:
            continue
        if not rest:
            return target, rest
        if _core.Cid(target).kind != "map":
            continue
        page = yield from value(settings, scan(target, rest, None, 2))
        if len(page.entries) == 1 and page.entries[0][0] == rest:
            return page.entries[0][1], []
        if page.entries:
            return target, rest
    from coregw.client.operations.lookup import prove_absent  # noqa: PLC0415 - commands load what they use

    return (yield from prove_absent(settings, root, segments))


def children(settings: ClientSettings, root: CidLike, prefix: PathLike = ()) -> Stream[Entry]:
    """Steps of `AsyncClient.children`, which describes arguments and errors."""
    base = segments_of(prefix)
    after: list[str] | None = None
    directory: str | None = None
    while True:
        page = yield from value(settings, scan(root, base, after, PAGE_ENTRIES))
        for segments, target in page.entries:
            if len(segments) <= len(base) + 1:
                yield StreamItem(Entry(segments[-1], _core.Cid(target).kind, target))
            elif segments[len(base)] != directory:
                directory = segments[len(base)]
                yield StreamItem(Entry(directory, "directory", None))
        if not page.more:
            return
        after = last_path(page)
        if len(after) > len(base) + 1:
            after = _past_directory(after[: len(base) + 1])
            # A scan excludes the path that it continues after, which may itself be an entry.
            excluded = yield from value(settings, map_proof(root, after))
            if excluded is not None:
                yield StreamItem(Entry(after[-1], _core.Cid(excluded).kind, excluded))


def last_path(page: _core.Scan) -> list[str]:
    """Return the path that the next page of a listing comes after. Raises `ProofError` if the page is empty."""
    if not page.entries:
        raise ProofError("a listing says that more entries follow, but is empty", check="more")
    return page.entries[-1][0]


def _past_directory(directory: Sequence[str]) -> list[str]:
    """Return the path to continue after in order to skip everything below `directory`.

    In key order (protocol section 2) the first key after everything below ``d`` is that of ``d`` followed by a NUL: a
    separator is encoded as ``00 01``, a NUL as ``00 FF``.
    """
    return [*directory[:-1], directory[-1] + "\0"]


def list_size(settings: ClientSettings, target: CidLike) -> Steps[int]:
    """Steps of `AsyncClient.list_size`, which describes arguments and errors."""
    outcome = yield from value(settings, read_range(target, 0, 0))
    if outcome.total_size is None:
        raise ProofError(f"{_core.Cid(target).text}: the answer has no total size", check="total_size")
    return outcome.total_size


def list_elements(
    settings: ClientSettings, target: CidLike, limit: Callable[[int, int], int] | None = None
) -> Steps[list[tuple[str, int]]]:
    """Steps of `AsyncClient.list_elements`, which describes arguments and errors."""
    elements = yield from list_targets(settings, target, limit)
    position = 0
    for element, size in elements:
        _check_is_payload(_core.Cid(target), position, element)
        position += size
    return elements


def list_targets(
    settings: ClientSettings, target: CidLike, limit: Callable[[int, int], int] | None = None
) -> Steps[list[tuple[str, int]]]:
    """Return the targets of a list, of any kind, with their measures. One request for about 8,000 of them.

    A list of a few nodes may have 2^52 elements, since a node may occur in it any number of times.

    Args:
        settings: The client's settings.
        target: The list.
        limit: Gets, after each answer, the sum of all measures, which the first one proves, and the number of elements
            so far; returns how many there may be, or raises. None for any number.

    Raises:
        TooLarge: There are more elements than `limit` allows.
    """
    cid = _core.Cid(target)
    elements: list[tuple[str, int]] = []
    start, total, window = 0, 1, settings.window_bytes
    while start < total:
        total, found, window = yield from _elements(settings, cid, start, window)
        elements += found
        if limit is not None and len(elements) > (most := limit(total, len(elements))):
            raise TooLarge(f"{cid.text} has more than {most:,} elements for {total:,} bytes")
        if not found:
            break
        start += sum(size for _, size in found)
        window = max(window, start // len(elements) * _WINDOW_ELEMENTS)
    return elements


def contents(settings: ClientSettings, target: CidLike) -> Stream[bytes]:
    """Steps of `AsyncClient.contents`, which describes arguments and errors."""
    cid = _core.Cid(target)
    if cid.kind == "map":
        raise InvalidInput(f"{cid.text} is a map, not a file", code="kind_mismatch")
    if cid.kind == "cas":
        yield StreamItem((yield from get_payload(settings, cid)))
        return
    start, total, window = 0, 1, settings.window_bytes
    while start < total:
        total, found, window = yield from _elements(settings, cid, start, window)
        if not found:
            break
        for chunk, size in found:
            _check_is_payload(cid, start, chunk)
            yield StreamItem((yield from _chunk(settings, cid, start, chunk, size)))
            start += size


def _elements(
    settings: ClientSettings, cid: _core.Cid, start: int, window: int
) -> Steps[tuple[int, list[tuple[str, int]], int]]:
    """Request the elements of a list from byte `start` on, those within `window` bytes.

    Returns:
        The size of the whole list, the elements with their sizes, and the window that was not too large.
    """
    while True:
        try:
            part = yield from value(settings, read_range(cid, start, start + window))
        except TooLarge:
            # A range of more than 10,000 elements is refused: the elements are small, so request fewer bytes.
            if window <= 1:
                raise
            window = max(1, window // 8)
            continue
        break
    if part.total_size is None or part.segments is None or part.sizes is None:
        raise ProofError(f"{cid.text}: the answer is not a range", check="range")
    if part.segments and part.offset != start:
        raise ProofError(f"{cid.text}: the range begins at {part.offset}, not at {start}", check="offset")
    return part.total_size, list(zip(part.segments, part.sizes, strict=True)), window


def _check_is_payload(listed: _core.Cid, position: int, target: str) -> None:
    """Raise `InvalidInput` unless an element of a list that should be a file is a payload."""
    if _core.Cid(target).kind != "cas":
        raise InvalidInput(
            f"{listed.text} is not a file: the element at byte {position} is {target}, not a payload",
            code="kind_mismatch",
        )


def _chunk(settings: ClientSettings, listed: _core.Cid, position: int, target: str, size: int) -> Steps[bytes]:
    data = yield from get_payload(settings, target)
    if len(data) != size:
        raise InvalidInput(
            f"{listed.text} is not a file: the element at byte {position} has measure {size}, its payload {len(data)} "
            "bytes",
            code="kind_mismatch",
        )
    return data
