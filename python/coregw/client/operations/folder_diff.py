"""Differences between two folders that a gateway holds: the joined diffs of their two maps (protocol section 7)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, TypeVar

from coregw import _core
from coregw.client.exchange.call import Call
from coregw.client.opened.cache import WeighedCache
from coregw.client.operations.diff import Difference, differences
from coregw.client.operations.payload import get_payload
from coregw.client.operations.steps import Item, Steps, Stream, resume
from coregw.client.operations.tree import entries, list_elements
from coregw.client.query import CidLike, PathLike
from coregw.client.settings import ClientSettings
from coregw.errors import CoregwError, TooLarge
from coregw.folders.attributes import ATTRIBUTES_PATH, Attributes, FolderEntry
from coregw.folders.compare import MAX_COMPARED_ELEMENTS, FolderDifference, changed_ranges, compare_entries

__all__ = ["REMEMBERED_BYTES", "folder_differences"]

REMEMBERED_BYTES: Final = 16 << 20
"""Records of attributes that are remembered, in case that other paths share them."""

T = TypeVar("T")


def folder_differences(
    settings: ClientSettings, a: CidLike, b: CidLike, prefix: PathLike = ()
) -> Stream[FolderDifference]:
    """Yield every difference between two folders at and below `prefix`, in key order, without gaps.

    Like `operations.diff.differences`, and the attributes of both are compared, too. One request more, two for each
    1,000 differences, and two for each file that is a list in both. Attributes that do not differ are not fetched. If
    the reserved path of either is bound to something else than a map of attributes, that is a target like any other.

    Raises:
        InvalidInput: As `differences`, or a record of attributes is invalid.
        ProofError: A page is not proven. Everything yielded before is.
    """
    bound = yield from _next(differences(settings, a, b, ATTRIBUTES_PATH))
    has_attributes = bound is not None and tuple(bound.segments) == ATTRIBUTES_PATH and _are_maps(a, bound)
    known = _records(settings, bound, prefix) if bound is not None and has_attributes else _none()
    files = differences(settings, a, b, prefix)
    shared: WeighedCache[Attributes] = WeighedCache(REMEMBERED_BYTES)
    try:
        file, record = (yield from _next(files)), (yield from _next(known))
        while file is not None or record is not None:
            if file is not None and has_attributes and tuple(file.segments) == ATTRIBUTES_PATH:
                file = yield from _next(files)
                continue
            path = min(tuple(each.segments) for each in (file, record) if each is not None)
            here = file if file is not None and tuple(file.segments) == path else None
            beside = record if record is not None and tuple(record.segments) == path else None
            found = yield from _compared(settings, path, (here, beside), shared)
            if found is not None:
                yield Item(found)
            if here is not None:
                file = yield from _next(files)
            if beside is not None:
                record = yield from _next(known)
    finally:
        files.close()
        known.close()


def _next(stream: Stream[T]) -> Steps[T | None]:
    """Return the next item of a stream; None at its end."""
    try:
        step = next(stream)
        while not isinstance(step, Item):
            try:
                outcome = yield step
            except CoregwError as error:
                outcome = error
            step = resume(stream, outcome)
    except StopIteration:
        return None
    return step.value


def _are_maps(root: CidLike, bound: Difference) -> bool:
    suite = _core.Cid(root).suite
    cids = [_core.Cid(target) for target in (bound.before, bound.after) if target is not None]
    return all(cid.kind == "map" and cid.suite == suite for cid in cids)


def _none() -> Generator[Call | Item[Difference], object, None]:
    yield from ()


def _records(settings: ClientSettings, bound: Difference, prefix: PathLike) -> Stream[Difference]:
    """Yield the differences of two maps of attributes, of which one may be missing."""
    if bound.before is not None and bound.after is not None:
        yield from differences(settings, bound.before, bound.after, prefix)
        return
    listed = entries(settings, bound.before or bound.after or "", prefix)
    while (leaf := (yield from _next(listed))) is not None:
        ends = (leaf.target, None) if bound.before else (None, leaf.target)
        yield Item(Difference(leaf.segments, *ends))


def _compared(
    settings: ClientSettings,
    path: tuple[str, ...],
    changed: tuple[Difference | None, Difference | None],
    shared: WeighedCache[Attributes],
) -> Steps[FolderDifference | None]:
    """Return the difference of one path, given that of its target and that of its record."""
    file, record = changed
    sides: list[FolderEntry | None] = []
    records: list[Attributes | None] = []
    for side in ("before", "after"):
        target = getattr(record, side, None)
        records.append(None if target is None else (yield from _decoded(settings, target, shared)))
    # A file's record without a difference of the folder's map: both have the file, with the same target.
    has_file = file is None and any(each is not None and each.kind == "file" for each in records)
    for known, side in zip(records, ("before", "after"), strict=True):
        sides.append(_entry(path, getattr(file, side, None), known, has_file))
    found = compare_entries(*sides)
    if found is None or found.before is None or found.after is None:
        return found
    if _core.Cid(found.before).kind != "list" or _core.Cid(found.after).kind != "list":
        return found
    try:
        before = yield from list_elements(settings, found.before, lambda *_: MAX_COMPARED_ELEMENTS)
        after = yield from list_elements(settings, found.after, lambda *_: MAX_COMPARED_ELEMENTS)
    except TooLarge:
        return found
    ranges = tuple(changed_ranges(before, after))
    return FolderDifference(path, found.kinds, found.before, found.after, found.attributes, ranges)


def _entry(path: tuple[str, ...], target: str | None, known: Attributes | None, has_file: bool) -> FolderEntry | None:
    if target is not None:
        return FolderEntry(path, "map" if _core.Cid(target).kind == "map" else "file", target, known)
    if known is not None:
        return FolderEntry(path, known.kind, None, known)
    return FolderEntry(path, "file", None, None) if has_file else None


def _decoded(settings: ClientSettings, target: str, shared: WeighedCache[Attributes]) -> Steps[Attributes]:
    """Return the attributes of a record, which many paths may share."""
    found = shared.get(target)
    if found is None:
        payload = None if _core.Cid(target).hash_name == "identity" else (yield from get_payload(settings, target))
        found = _core.decode_attributes(target, payload)
        if payload is not None:
            shared.put(target, found, len(payload))
    return found
