"""Comparing a folder of this machine with a root: proven listings on one side, hashed files on the other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from coregw import _core
from coregw.client.folders.listing import Part, PayloadSource, explained_elements, list_folder
from coregw.client.operations.steps import map_root
from coregw.concurrency import Check, in_stoppable_thread, in_thread
from coregw.errors import InvalidInput, TooLarge
from coregw.folders.compare import MAX_COMPARED_ELEMENTS, FolderDifference, changed_ranges, compare_folders
from coregw.folders.tree import (
    RESERVED_NAME,
    Attributes,
    FolderEntry,
    Level,
    Recorded,
    Skipped,
    Survey,
    decode_attributes,
    join_folder,
    skipped_at,
    survey,
    unrecorded,
)
from coregw.verify import CidLike

__all__ = ["ComparedFolder", "compare_folder"]


@dataclass(frozen=True, slots=True)
class ComparedFolder:
    """The result of `compare_folder`.

    Attributes:
        differences: Every path that differs, in key order; ``before`` is the root's side, ``after`` the folder's.
        recorded: Which attributes were compared.
        skipped: What of the folder could not be compared, and why. It is a difference, of the kind ``other`` unless it
            is a folder that the root does not have; names that are not UTF-8 are as those of `os.fsdecode`.
        left_out: What was not compared, without what is below it, and why.
        as_added: What ``as_added`` would leave out if that would explain all differences; otherwise empty.
    """

    differences: list[FolderDifference]
    recorded: Recorded
    skipped: list[Skipped]
    left_out: list[Skipped]
    as_added: list[Skipped]


async def compare_folder(
    client: PayloadSource,
    root: CidLike,
    path: Path,
    *,
    attributes: Level | None = None,
    exclude: Sequence[str] = (),
    gitignore: bool = False,
    as_added: bool = False,
) -> ComparedFolder:
    """Compare, as `AsyncClient.diff_tree`, which describes arguments and errors."""
    cid = map_root(root)
    if gitignore and not as_added:
        raise InvalidInput("gitignore: only with as_added, since the folder's own files would say what is compared")
    proven = await list_folder(client, cid)
    listed = [
        entry._replace(kind="folder", target=None) if entry.kind == "map" else entry
        for entry in proven.entries
        if entry.kind != "map" or entry.attributes is not None  # otherwise it is what its paths say
    ]
    named = {"/".join(each.segments): each.target for each in listed if each.target and each.segments[-1] in _IGNORES}
    purpose: Literal["strict", "as-added"] = "as-added" if as_added else "strict"
    found = await in_stoppable_thread(survey, path, exclude, gitignore, purpose, named if as_added else None)
    records = [entry.attributes for entry in listed if entry.attributes is not None]
    recorded = _recorded(records, proven.top, attributes)
    hashed = await in_stoppable_thread(_core.hash_survey, found, cid.suite or "", None, recorded.xattrs)
    local, own = await in_thread(_entries, hashed, recorded)
    if recorded.attributes == "whole":
        listed.insert(0, FolderEntry((), "folder", None, proven.top))
        local.insert(0, FolderEntry((), "folder", None, own))
    places = {entry.path: place for place, entry in enumerate(hashed)}
    skipped = skipped_at(hashed, recorded.attributes)
    others: dict[tuple[str, ...], FolderEntry] = {}
    for skip in skipped:
        segments = _below(path, skip.file)
        place = places.get("/".join(segments))
        is_folder = not segments or (place is not None and hashed[place].kind == "folder")
        others[segments] = FolderEntry(segments, "folder" if is_folder else "other", None, None)
    unlisted = await in_thread(_unlisted, path, [each.segments for each in others.values() if each.kind == "folder"])
    left_out = [Skipped(*each) for each in found.left_out]
    for each in unrecorded(found, recorded.attributes):
        if as_added:
            left_out.append(Skipped(path / each.path, f"a {each.kind}, which the root does not record"))
        else:
            segments = tuple(each.path.split("/"))
            others.setdefault(segments, FolderEntry(segments, each.kind, None, None))
    differences = [
        changed
        for each in compare_folders(*_with_others(listed, local, others, unlisted))
        if (changed := await _with_ranges(client, each, found, hashed, places)) is not None
    ]
    explaining: list[Skipped] = []
    if differences and not as_added:
        explaining = await in_stoppable_thread(_explaining, path, exclude, named, recorded.attributes, differences)
    return ComparedFolder(differences, recorded, skipped, sorted(left_out), explaining)


_IGNORES = (".coregwignore", ".gitignore")


def _below(top: Path, file: Path) -> tuple[str, ...]:
    """Return the path of a file below a folder, with names as of `os.fsdecode`. That of a single file is its name."""
    if file == top and not top.is_dir():
        return (top.name,)
    return file.relative_to(top).parts if file.is_relative_to(top) else ()


def _unlisted(top: Path, folders: Sequence[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return which of these folders cannot be listed. Of others, something else could not be read. O(their entries)."""
    unlisted = set()
    for segments in folders:
        try:
            with os.scandir(top.joinpath(*segments)) as entries:
                for each in entries:
                    each.stat(follow_symlinks=False)
        except OSError:
            unlisted.add(segments)
    return unlisted


def _with_others(
    listed: list[FolderEntry],
    local: list[FolderEntry],
    others: Mapping[tuple[str, ...], FolderEntry],
    unlisted: set[tuple[str, ...]],
) -> tuple[list[FolderEntry], list[FolderEntry]]:
    """Return the paths of a root and of a folder, with what the folder has besides. O(entries · depth).

    Args:
        listed: The paths of the root.
        local: The paths of the folder that a root may have.
        others: What else the folder has, some of which could not be read: none of it is absent.
        unlisted: Which of these are folders that cannot be listed: nothing is known of what is in them.
    """
    held = {each.segments[:depth] for each in listed for depth in range(len(each.segments))} & unlisted
    held |= {each.segments for each in listed if each.kind == "folder"} & unlisted

    def is_unknown(segments: tuple[str, ...]) -> bool:
        return any(segments[:depth] in held for depth in range(len(segments) + 1))

    theirs = [each for each in listed if not is_unknown(each.segments)]
    mine = {each.segments: each for each in local if not is_unknown(each.segments)}
    for segments, each in others.items():
        if segments and not is_unknown(segments):
            mine.setdefault(segments, each)
    theirs += [FolderEntry(each, "folder", None, None) for each in held]
    return theirs, [*mine.values(), *(FolderEntry(each, "other", None, None) for each in held)]


def _explaining(
    path: Path,
    exclude: Sequence[str],
    named: Mapping[str, str],
    level: Level,
    differences: Sequence[FolderDifference],
    check: Check,
) -> list[Skipped]:
    """Return what is left out as added, if every difference is a part of it that the root does not have."""
    for gitignore in (False, True):
        found = survey(path, exclude, gitignore, "as-added", named, check)
        left_out = [Skipped(*each) for each in found.left_out]
        left_out += [Skipped(path / each.path, each.kind) for each in unrecorded(found, level)]
        tops = {_below(path, each.file) for each in left_out}
        depths = {len(top) for top in tops}
        if all(
            each.kinds[0] is None and any(each.segments[:depth] in tops for depth in depths) for each in differences
        ):
            return left_out
    return []


def _recorded(records: Sequence[Attributes], top: Attributes | None, level: Level | None) -> Recorded:
    """Which attributes a root records, as its records show. Without any, only names and bytes are compared."""
    known = [*records, *([top] if top is not None else [])]
    if level is None:
        level = "exec" if known else "none"
        if top is not None:
            level = "whole"
        elif any(each.mtime_ns is not None for each in known):
            level = "all"
        elif any(each.size is not None or each.kind == "folder" for each in known):
            level = "no-times"
    if level in ("exec", "none"):
        return Recorded(level)
    return Recorded(level, any(each.owner is not None for each in known), any(each.xattrs for each in known))


def _entries(hashed: _core.HashedFolder, recorded: Recorded) -> tuple[list[FolderEntry], Attributes | None]:
    """Return what a folder of this machine has, and what is known of the folder itself if that is recorded."""
    files = [
        (entry.path.split("/"), target)
        for place, entry in enumerate(hashed)
        if (target := hashed.target(place)) is not None
    ]
    records = hashed.records(recorded.attributes, recorded.owner)
    decoded: list[tuple[list[str], Attributes]] = [
        (name.split("/"), decode_attributes(target, record)) for name, target, record in records
    ]
    decoded.sort(key=lambda each: each[0])
    own = next((known for path, known in decoded if path == [RESERVED_NAME]), None)
    return list(join_folder(sorted(files), decoded)), own


async def _with_ranges(
    client: PayloadSource,
    found: FolderDifference,
    surveyed: Survey,
    hashed: _core.HashedFolder,
    places: Mapping[str, int],
) -> FolderDifference | None:
    """Add what differs between two lists. A file that only is cut in another way has the same bytes."""
    if found.before is None or found.after is None or found.kinds != ("file", "file"):
        return found
    kinds = _core.Cid(found.before).kind, _core.Cid(found.after).kind
    if "list" not in kinds:
        return found
    is_list = kinds[0] == "list"
    place = places["/".join(found.segments)]
    size = hashed[place].size
    parts: list[Part] = [(found.before, None)]
    has_same_size = not is_list

    def limit(total: int, _: int) -> int:
        nonlocal has_same_size
        has_same_size = total == size
        return explained_elements(client.settings, total) if has_same_size else MAX_COMPARED_ELEMENTS

    if is_list:
        try:
            parts = [*await client.list_elements(found.before, limit=limit)]
        except TooLarge:
            if has_same_size:
                raise
            return found
    if has_same_size:
        file = surveyed.location(place)
        top = file.parents[len(found.segments) - 1]
        if (await in_stoppable_thread(_core.files_match, top, [(file.relative_to(top), parts)]))[0]:
            return replace(found, before=None, after=None) if found.attributes else None
    chunks = hashed.chunks(place)
    if chunks is None or not is_list:
        return found
    before = [(target, size or 0) for target, size in parts]
    return replace(found, ranges=tuple(changed_ranges(before, chunks)))
