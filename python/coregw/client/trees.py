"""Maps as directory trees and lists as files: listings and contents, proven piece by piece (streams of operations).

A map is read as a tree by its paths: what stands before a ``/`` is a directory, a nested map is one too. Sans-I/O like
``operations``. Leaves out disks (``coregw.cli``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from coregw import _core
from coregw.client.operations import Piece, Steps, Stream, answered, get_payload
from coregw.client.questions import CidLike, PathLike, map_proof, read_range, resolve, scan, segments_of
from coregw.client.settings import ClientSettings
from coregw.errors import InvalidInput, PathNotFound, ProofError, TooLarge

__all__ = ["Entry", "Leaf", "children", "contents", "entries", "list_size", "locate", "walk"]

_PAGE = 1000


class Entry(NamedTuple):
    """One line of a directory: a name, and what it is. A directory that is no map of its own has no target."""

    name: str
    kind: Literal["cas", "list", "map", "directory"]
    target: str | None


class Leaf(NamedTuple):
    """A payload or a list at the end of a path."""

    segments: list[str]
    target: str


def entries(settings: ClientSettings, root: CidLike, prefix: PathLike = ()) -> Stream[Leaf]:
    """Every entry of one map at and below `prefix`, in the order of the keys; nested maps are entries, not followed."""
    after: list[str] | None = None
    while True:
        page = yield from answered(settings, scan(root, prefix, after, _PAGE))
        for segments, target in page.entries:
            yield Piece(Leaf(segments, target))
        if not page.more:
            return
        after = _last(page)


def walk(settings: ClientSettings, root: CidLike, prefix: PathLike = ()) -> Stream[Leaf]:
    """Every payload and list of a tree at and below `prefix`; nested maps are followed, each after its parent.

    Raises:
        InvalidInput: Maps nest deeper than ``max_nesting``.
        TooLarge: More entries than ``max_entries``, nested maps counted too.
    """
    count = 0
    pending: list[tuple[list[str], str, list[str], int]] = [([], _core.Cid(root).text, segments_of(prefix), 0)]
    while pending:
        outside, here, inside, depth = pending.pop()
        if depth > settings.max_nesting:
            raise InvalidInput(f"{'/'.join(outside)!r}: maps nest deeper than {settings.max_nesting}")
        after: list[str] | None = None
        more = True
        while more:
            page = yield from answered(settings, scan(here, inside, after, _PAGE))
            count += len(page.entries)
            if count > settings.max_entries:
                raise TooLarge(f"the tree has more than {settings.max_entries} entries")
            for segments, target in page.entries:
                if _core.Cid(target).kind == "map":
                    pending.append((outside + segments, target, [], depth + 1))
                else:
                    yield Piece(Leaf(outside + segments, target))
            more = page.more
            after = _last(page) if more else None


def locate(settings: ClientSettings, root: CidLike, path: PathLike) -> Steps[tuple[str, list[str]]]:
    """What to list for `path`: a CID, and if that is a map, the prefix inside it, empty for the whole map.

    A resolve finds targets, not directories, so each way to cut the path in two is tried: first none of it leads to a
    nested map, then one segment, and so on; at last it may lead to a payload or a list.

    Raises:
        PathNotFound: No way of cutting the path leads to anything. Nothing proves that.
    """
    segments = segments_of(path)
    for cut in range(len(segments) + 1):
        rest = segments[cut:]
        try:
            target = yield from answered(settings, resolve(root, segments[:cut]))
        except PathNotFound:
            continue
        if not rest:
            return target, rest
        if _core.Cid(target).kind != "map":
            continue
        page = yield from answered(settings, scan(target, rest, None, 2))
        if len(page.entries) == 1 and page.entries[0][0] == rest:
            return page.entries[0][1], []
        if page.entries:
            return target, rest
    raise PathNotFound(f"nothing at or below {'/'.join(segments)!r} in {_core.Cid(root).text}")


def children(settings: ClientSettings, root: CidLike, prefix: PathLike = ()) -> Stream[Entry]:
    """One level of a map, in the order of the keys: complete, as a listing is proven to be without a gap.

    A prefix that is itself an entry is yielded first, under its last segment. A directory that is larger than a page
    is skipped by its name, so the cost is one request for 1,000 entries and two more for each such directory.
    """
    base = segments_of(prefix)
    after: list[str] | None = None
    directory: str | None = None
    while True:
        page = yield from answered(settings, scan(root, base, after, _PAGE))
        for segments, target in page.entries:
            if len(segments) <= len(base) + 1:
                yield Piece(Entry(segments[-1], _core.Cid(target).kind, target))
            elif segments[len(base)] != directory:
                directory = segments[len(base)]
                yield Piece(Entry(directory, "directory", None))
        if not page.more:
            return
        after = _last(page)
        if len(after) > len(base) + 1:
            after = _past_directory(after[: len(base) + 1])
            left_out = yield from answered(settings, map_proof(root, after))
            if left_out is not None:
                yield Piece(Entry(after[-1], _core.Cid(left_out).kind, left_out))


def _last(page: _core.Scan) -> list[str]:
    if not page.entries:
        raise ProofError("a listing says that more follows, but has no entry to continue after", check="more")
    return page.entries[-1][0]


def _past_directory(directory: Sequence[str]) -> list[str]:
    """The path to continue after so that all below `directory` is skipped.

    In the order of keys (protocol section 2) the first key after everything below ``d`` is that of ``d`` with a NUL at
    its end: a separator is ``00 01``, a NUL ``00 FF``. A listing leaves out the path that it continues after, so the
    caller has to ask for that one by itself.
    """
    return [*directory[:-1], directory[-1] + "\0"]


def list_size(settings: ClientSettings, target: CidLike) -> Steps[int]:
    """The proven sum of a list's measures: its size in bytes, if it is a file. One request."""
    outcome = yield from answered(settings, read_range(target, 0, 0))
    if outcome.total_size is None:
        raise ProofError(f"{_core.Cid(target).text}: the answer has no total size", check="total_size")
    return outcome.total_size


def contents(settings: ClientSettings, target: CidLike) -> Stream[bytes]:
    """The bytes of a file, verified piece by piece: a payload is one piece, a measured list one piece a chunk.

    Raises:
        InvalidInput: The target is a map, or a list whose measures are not the sizes of payloads
            (code ``kind_mismatch``): then it is no file.
        ProofError: A piece is not proven.
    """
    cid = _core.Cid(target)
    if cid.kind == "map":
        raise InvalidInput(f"{cid.text} is a map, not a file", code="kind_mismatch")
    if cid.kind == "cas":
        yield Piece((yield from get_payload(settings, cid)))
        return
    start, total, window = 0, 1, settings.window_bytes
    while start < total:
        try:
            part = yield from answered(settings, read_range(cid, start, start + window))
        except TooLarge:
            # Many small elements: a range of more than 10,000 is refused, so ask for less at a time.
            if window <= 1:
                raise
            window = max(1, window // 8)
            continue
        if part.total_size is None or part.segments is None or part.sizes is None:
            raise ProofError(f"{cid.text}: the answer is no range", check="range")
        total = part.total_size
        if not part.segments:
            break
        if part.offset != start:
            raise ProofError(f"{cid.text}: the range begins at {part.offset}, not at {start}", check="offset")
        for chunk, size in zip(part.segments, part.sizes, strict=True):
            yield Piece((yield from _chunk(settings, cid, start, chunk, size)))
            start += size


def _chunk(settings: ClientSettings, listed: _core.Cid, position: int, target: str, size: int) -> Steps[bytes]:
    if _core.Cid(target).kind != "cas":
        raise InvalidInput(f"{listed.text} is no file: at {position} it holds {target}", code="kind_mismatch")
    data = yield from get_payload(settings, target)
    if len(data) != size:
        raise InvalidInput(
            f"{listed.text} is no file: at {position} it says {size} bytes of a payload of {len(data)}",
            code="kind_mismatch",
        )
    return data
