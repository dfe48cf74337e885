"""Comparing a folder of this machine with a root: proven listings on one side, hashed files on the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from coregw import _core
from coregw.client.driving.threads import to_end
from coregw.client.folders.listing import Part, list_folder
from coregw.client.folders.parallel import in_thread
from coregw.client.folders.source import PayloadSource
from coregw.client.query import CidLike
from coregw.errors import InvalidInput
from coregw.folders.attributes import Attributes, FolderEntry, decode_attributes, join_folder
from coregw.folders.compare import FolderDifference, changed_ranges, compare_folders
from coregw.folders.survey import Skipped, Survey, survey
from coregw.folders.tree import Level, Recorded

__all__ = ["ComparedFolder", "compare_folder"]


@dataclass(frozen=True, slots=True)
class ComparedFolder:
    """The result of `compare_folder`.

    Attributes:
        differences: Every path that differs, in key order; ``before`` is the root's side, ``after`` the folder's.
        recorded: Which attributes were compared.
        skipped: What of the folder could not be compared, and why; it counts as absent.
    """

    differences: list[FolderDifference]
    recorded: Recorded
    skipped: list[Skipped]


async def compare_folder(
    client: PayloadSource,
    root: CidLike,
    path: Path,
    *,
    attributes: Level | None = None,
    exclude: Sequence[str] = (),
    gitignore: bool = False,
) -> ComparedFolder:
    """Compare a root with a folder or file of this machine. O(bytes of the folder + entries of the root).

    Nested maps are followed. No payload is fetched, except for records of attributes that are too long for the map.

    Args:
        client: The client to list with.
        root: The root of a folder's map.
        path: The folder or file.
        attributes: What is compared beside the bytes, as for `coregw.hash_tree`; by default what the root records, as
            its records show: owners and extended attributes, too, if it has any.
        exclude: Patterns of what is left out of the folder, as for `coregw.hash_tree`.
        gitignore: Whether ``.gitignore`` files count as well.

    Raises:
        InvalidInput: `root` is not a map root, its maps contradict each other, or `path` has an invalid name.
        OSError: `path` cannot be read.
        ProofError: A listing is not proven.
    """
    cid = _core.Cid(root)
    if cid.kind != "map" or cid.suite is None:
        raise InvalidInput(f"{cid.text} is not a map root", code="kind_mismatch")
    found = await to_end(survey, path, exclude, gitignore)
    listed = [
        entry._replace(kind="folder", target=None) if entry.kind == "map" else entry
        for entry in await list_folder(client, cid)
        if entry.kind != "map" or entry.attributes is not None  # otherwise it is what its paths say
    ]
    recorded = _recorded([entry.attributes for entry in listed if entry.attributes is not None], attributes)
    hashed = await in_thread(_core.hash_survey, found, cid.suite, None, recorded.xattrs)
    local = await to_end(_entries, hashed, recorded)
    places = {entry.path: place for place, entry in enumerate(hashed)}
    differences = [
        changed
        for each in compare_folders(listed, local)
        if (changed := await _with_ranges(client, each, found, hashed, places)) is not None
    ]
    return ComparedFolder(differences, recorded, [Skipped(*each) for each in hashed.skipped])


def _recorded(records: Iterable[Attributes], level: Level | None) -> Recorded:
    """Which attributes a root records, as its records show. Without any, only names and bytes are compared."""
    known = list(records)
    if level is None:
        level = "exec" if known else "none"
        if any(each.mtime_ns is not None for each in known):
            level = "all"
        elif any(each.size is not None or each.kind == "folder" for each in known):
            level = "no-times"
    if level in ("exec", "none"):
        return Recorded(level)
    return Recorded(level, any(each.owner is not None for each in known), any(each.xattrs for each in known))


def _entries(hashed: _core.HashedFolder, recorded: Recorded) -> list[FolderEntry]:
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
    return list(join_folder(sorted(files), decoded))


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
    parts: list[Part] = [*await client.list_elements(found.before)] if is_list else [(found.before, None)]
    place = places["/".join(found.segments)]
    if not is_list or sum(size or 0 for _, size in parts) == hashed[place].size:
        file = surveyed.location(place)
        top = file.parents[len(found.segments) - 1]
        if (await in_thread(_core.files_match, top, [(file.relative_to(top), parts)]))[0]:
            return replace(found, before=None, after=None) if found.attributes else None
    chunks = hashed.chunks(place)
    if chunks is None or not is_list:
        return found
    before = [(target, size or 0) for target, size in parts]
    return replace(found, ranges=tuple(changed_ranges(before, chunks)))
