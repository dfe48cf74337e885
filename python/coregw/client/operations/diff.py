"""Differences of two maps, and of two folders.

Nested maps are not followed: a map inside a map is one target, which differs or does not.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final, NamedTuple, TypeVar

from coregw import _core
from coregw.client.file_ranges import WeighedCache
from coregw.client.operations.payloads import get_payload
from coregw.client.operations.steps import Steps, Stream, StreamItem, in_context, map_root, resume
from coregw.client.operations.tree import entries, list_elements
from coregw.client.query import segments_of
from coregw.client.settings import ClientSettings
from coregw.client.transport.exchange import Answer, Call
from coregw.errors import CoregwError, InvalidInput, TooLarge
from coregw.folders.compare import MAX_COMPARED_ELEMENTS, FolderDifference, changed_ranges, compare_entries
from coregw.folders.tree import ATTRIBUTES_PATH, RESERVED_NAME, Attributes, FolderEntry
from coregw.verify import CidLike, PathLike

__all__ = ["REMEMBERED_BYTES", "Difference", "differences", "folder_differences"]

_PAGE_ENTRIES = 1000


class Difference(NamedTuple):
    """A path whose target differs between two maps; None where a map does not have the path."""

    segments: list[str]
    before: str | None
    after: str | None


def differences(settings: ClientSettings, a: CidLike, b: CidLike, prefix: PathLike = ()) -> Stream[Difference]:
    """Steps of `AsyncClient.diff`, which describes arguments and errors."""
    first, second = map_root(a), map_root(b)
    if first.suite != second.suite:
        raise InvalidInput(
            f"{first.text} and {second.text} have different suites: {first.suite} and {second.suite}",
            code="kind_mismatch",
        )
    segments = segments_of(prefix)
    what = f"compare {first.text} with {second.text}"
    after: list[str] | None = None
    while True:
        params = {name: "/".join(path) for name, path in (("prefix", segments), ("after", after)) if path}
        params["limit"] = str(_PAGE_ENTRIES)
        path = f"/v1/roots/{first.text}/diff/{second.text}"
        answer: Answer = yield Call("GET", path, settings.max_result_bytes, what, params=params)
        with in_context(what):
            page = _core.verify_diff(first, second, answer.body, segments, after, _PAGE_ENTRIES)
        for entry in page.entries:
            yield StreamItem(Difference(*entry))
        if not page.more:
            return
        after = page.entries[-1][0]  # never empty: verify_diff accepts `more` only for a full page


REMEMBERED_BYTES: Final = 16 << 20
"""Records of attributes that are remembered, in case that other paths share them."""

T = TypeVar("T")


def folder_differences(
    settings: ClientSettings, a: CidLike, b: CidLike, prefix: PathLike = ()
) -> Stream[FolderDifference]:
    """Steps of `AsyncClient.diff_folders`, which describes arguments and errors."""
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
            if beside is not None and path == (RESERVED_NAME,):
                found = yield from _compared_tops(settings, beside, shared)
                here = None
            else:
                found = yield from _compared(settings, path, (here, beside), shared)
            if found is not None and (found.segments or not segments_of(prefix)):
                yield StreamItem(found)
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
        while not isinstance(step, StreamItem):
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


def _none() -> Generator[Call | StreamItem[Difference], object, None]:
    yield from ()


def _records(settings: ClientSettings, bound: Difference, prefix: PathLike) -> Stream[Difference]:
    """Yield the differences of two maps of attributes, of which one may be missing."""
    if bound.before is not None and bound.after is not None:
        yield from differences(settings, bound.before, bound.after, prefix)
        return
    listed = entries(settings, bound.before or bound.after or "", prefix)
    while (leaf := (yield from _next(listed))) is not None:
        ends = (leaf.target, None) if bound.before else (None, leaf.target)
        yield StreamItem(Difference(leaf.segments, *ends))


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


def _compared_tops(
    settings: ClientSettings, record: Difference, shared: WeighedCache[Attributes]
) -> Steps[FolderDifference | None]:
    """Return the difference of the folders themselves, given that of their records."""
    sides: list[FolderEntry] = []
    for target in (record.before, record.after):
        known = None if target is None else (yield from _decoded(settings, target, shared))
        if known is not None and known.kind != "folder":
            why = "it is reserved for the record of the folder itself"
            raise InvalidInput(f"{RESERVED_NAME}: {why}", code="invalid_path")
        sides.append(FolderEntry((), "folder", None, known))
    return compare_entries(*sides)


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
