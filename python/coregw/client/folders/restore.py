"""Restoring a folder from a map root: all names are proven and checked.

A new or empty destination gets the whole tree or nothing: the tree is written into a temporary folder while its listing
comes, and the folder is renamed when it is complete. A destination with content is updated, once all names are known:
files that have the right bytes stay, and each of the others is replaced when its new version is complete, so that after
a failure the next attempt continues. What a killed process has left of a new destination is updated in the same way,
and then renamed.

A cache of the files' states, like that of adding, tells which files have the right bytes without reading them.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from coregw import _core
from coregw.client.driving.threads import to_end
from coregw.client.folders.destination import (
    Existing,
    FileStates,
    check_destination,
    publish,
    read_link,
    remove,
    survey_existing,
)
from coregw.client.folders.filling import Filler, attributes_of, link_of
from coregw.client.folders.listing import PlannedFile, list_folder, list_parts
from coregw.client.folders.names import check_names, refused, restorable_links
from coregw.client.folders.owners import Extras, set_extras
from coregw.client.folders.parallel import in_thread
from coregw.client.folders.partial import INSIDE, Partial, discard_abandoned, partial_folder
from coregw.client.folders.source import PayloadSource
from coregw.client.query import CidLike
from coregw.errors import InvalidInput
from coregw.folders.attributes import FolderEntry
from coregw.folders.restore_cache import RestoreCache
from coregw.folders.survey import Skipped, survey

__all__ = ["Deletion", "Extras", "RestorePlan", "Restored", "plan_restore", "restore_folder"]

COMPARED_BYTES = 256 << 20
"""Bytes of existing files that are compared in one call."""

COMPARED_FILES = 1_000


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has done.

    Attributes:
        files: Number of files that were written.
        bytes: Number of bytes of these.
        kept: Number of files that had the right bytes.
        deleted: Number of files, links and folders that were deleted, those inside deleted folders not counted.
        skipped: Symbolic links that were not made, and why.
        replaced: Number of the written files in whose place another one was.
    """

    files: int
    bytes: int
    kept: int = 0
    deleted: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """What a restore would do now.

    Attributes:
        created: Paths of files, links and folders that are not there, in key order.
        replaced: Paths of files and links that would be replaced by others.
        deleted: Paths of files, links and folders that would be deleted, without those inside deleted folders.
        kept: Number of files that have the right bytes.
        skipped: Symbolic links that would not be made, and why.
    """

    created: list[tuple[str, ...]]
    replaced: list[tuple[str, ...]]
    deleted: list[tuple[str, ...]]
    kept: int
    skipped: list[Skipped]


Segments = tuple[str, ...]


class _Tree(NamedTuple):
    """What is to be restored: nothing of it clashes, and the links stay inside."""

    files: list[PlannedFile]
    links: list[FolderEntry]
    folders: list[FolderEntry]
    skipped: list[FolderEntry]


class Deletion(NamedTuple):
    """Which of the things that a destination has and the tree has not are deleted.

    Attributes:
        excluded: Whether what ``coregw add`` leaves out is deleted as well: ``.git``, and what patterns in
            ``.coregwignore`` files of the destination exclude.
        exclude: Further patterns, as for ``coregw add``.
        gitignore: Whether ``.gitignore`` files count as well.
    """

    excluded: bool = False
    exclude: Sequence[str] = ()
    gitignore: bool = False

    def spared(self, top: Path) -> set[Segments]:
        """Return what of a destination stays, without what is below it.

        Raises:
            InvalidInput: A file of patterns can't be read or parsed.
        """
        if self.excluded or not top.is_dir():
            return set()
        left_out = survey(top, self.exclude, self.gitignore, "keep").left_out
        return {file.relative_to(top).parts for file, _ in left_out}


class _There:
    """What is in a destination already.

    Attributes:
        entries: All of it.
        in_the_way: Paths of what is removed first: folders where the tree has files, and files where it has folders.
        surplus: Paths of what is not in the tree.
    """

    def __init__(self, entries: Existing, in_the_way: list[tuple[str, ...]], surplus: list[tuple[str, ...]]) -> None:
        self.entries = entries
        self.in_the_way = in_the_way
        self.surplus = surplus
        self._removed = {*in_the_way}

    def is_replaced(self, path: tuple[str, ...]) -> bool:
        """Whether something is there until a file or link takes its place."""
        return path in self.entries and path not in self._removed


async def restore_folder(
    client: PayloadSource,
    root: CidLike,
    destination: Path,
    *,
    delete: Deletion | None = None,
    in_place: bool = False,
    extras: Extras = Extras(),  # noqa: B008 - a tuple
    cache: RestoreCache | None = None,
    started: Callable[[int | None], None] = lambda total: None,
    progress: Callable[[int], None] = lambda count: None,
) -> Restored:
    """Write the tree of a map root to `destination`.

    Args:
        client: The client to fetch with.
        root: A map root; nested maps become folders.
        destination: The folder to create, fill or update. Its parent must exist.
        delete: What of that which `destination` has and the tree has not is deleted. None deletes nothing: it stays,
            and a folder in the place of a file, or the reverse, is refused.
        in_place: Whether a new or empty destination is filled file by file as well, so that an attempt that fails can
            be continued.
        extras: What else is restored: owners, extended attributes.
        cache: What is known of the files of `destination` since the last time; saved at the end. None reads all files
            that may have the right bytes.
        started: Called with the number of bytes to write or compare, None if it is not known, once all names are known.
        progress: Called with further numbers of bytes that were written or compared.

    Raises:
        InvalidInput: `root` is not a map root; a path can't be a file name here (code ``invalid_path``; the message
            names it); a target is not a file; `destination` is not a folder; or another process is restoring it.
        OSError: The file system refused an operation.
        PayloadNotFound: The gateway does not hold a payload.
        ProofError: An answer is not proven.
    """
    cid = _map_root(root)
    has_content = check_destination(destination)
    states = FileStates(cache or RestoreCache.none(), are_changed=any(extras))
    restore = _Restore(client, cid, destination, extras, states, started, progress)
    try:
        return await (restore.update(delete=delete) if has_content or in_place else restore.fill())
    finally:
        states.discard()


async def plan_restore(
    client: PayloadSource,
    root: CidLike,
    destination: Path,
    *,
    delete: Deletion | None = None,
    cache: RestoreCache | None = None,
    started: Callable[[int | None], None] = lambda total: None,
    progress: Callable[[int], None] = lambda count: None,
) -> RestorePlan:
    """Return what `restore_folder` would do, and change nothing. No payload of a file is fetched.

    Modes, times and other attributes are not compared. Arguments and exceptions are those of `restore_folder`.
    """
    cid = _map_root(root)
    check_destination(destination)
    states = FileStates(cache or RestoreCache.none(), are_changed=False)
    restore = _Restore(client, cid, destination, Extras(), states, started, progress)
    try:
        return await restore.plan(delete=delete)
    finally:
        states.discard()


def _map_root(root: CidLike) -> _core.Cid:
    cid = _core.Cid(root)
    if cid.kind != "map":
        raise InvalidInput(f"{cid.text} is not a map root", code="kind_mismatch")
    return cid


_WHY_SKIPPED = "the link leads out of the folder"


class _Restore:
    """One restore."""

    def __init__(
        self,
        client: PayloadSource,
        root: _core.Cid,
        destination: Path,
        extras: Extras,
        states: FileStates,
        started: Callable[[int | None], None],
        progress: Callable[[int], None],
    ) -> None:
        self._client = client
        self._root = root
        self._destination = destination
        self._extras = extras
        self._states = states
        self._started = started
        self._progress = progress

    async def fill(self) -> Restored:
        """Write everything to a new or empty folder, at once."""
        top, existed = self._destination, self._destination.exists()
        if existed:
            await to_end(discard_abandoned, top)
        with partial_folder(top, is_inside=existed) as partial:
            done, folders = await self._fill(partial, is_moved=existed)
            publish(partial.tree, top, existed=existed)
            await to_end(self._finish_top_folders, folders)
            await to_end(self._states.save, top, partial)
        return done

    async def _fill(self, partial: Partial, *, is_moved: bool) -> tuple[Restored, list[FolderEntry]]:
        """Write the tree, and return what was done, and the folders whose attributes are to be set in the end."""
        if partial.is_left or any(self._extras):
            partial.tree.mkdir(exist_ok=True)
            tree = await self._tree()
            done = await self._change(tree, partial.tree, partial, delete=Deletion(excluded=True))
            done = replace(done, replaced=0, deleted=0)  # of what a process has left, not of the destination
            return done, [entry for entry in tree.folders if len(entry.segments) == 1]
        partial.tree.mkdir()
        with closing(_core.FolderWriter(partial.tree, is_moved=is_moved)) as writer:
            filler = self._filler(writer)
            await filler.write_listed(self._root, self._started)
            done = Restored(writer.added[0], writer.written, skipped=self._skipped(filler.outside))
        return done, filler.top_folders

    async def update(self, *, delete: Deletion | None) -> Restored:
        """Change what is different, one file after the other."""
        top = self._destination
        tree = await self._tree()
        await to_end(discard_abandoned, top)
        top.mkdir(exist_ok=True)
        with partial_folder(top, is_inside=True) as partial:
            done = await self._change(tree, top, partial, delete=delete)
            await to_end(self._states.save, top, partial)
        return done

    async def plan(self, *, delete: Deletion | None) -> RestorePlan:
        """Return what would be done."""
        top = self._destination
        tree = await self._tree()
        there = await self._there(tree, top, delete=delete)
        right = await self._matching(tree, top, there.entries)
        created: list[tuple[str, ...]] = []
        replaced: list[tuple[str, ...]] = []
        for path in {each.segments for each in tree.files} - right:
            (replaced if there.is_replaced(path) else created).append(path)
        for link in tree.links:
            if not self._is_right(link, top, there.entries):
                (replaced if there.is_replaced(link.segments) else created).append(link.segments)
        created += [path for path in _folders(tree) if there.entries.get(path) != "folder"]
        deleted = sorted([*there.in_the_way, *there.surplus]) if delete else []
        return RestorePlan(sorted(created), sorted(replaced), deleted, len(right), self._skipped(tree.skipped))

    async def _there(self, tree: _Tree, top: Path, *, delete: Deletion | None) -> _There:
        spared = await to_end(delete.spared, top) if delete else set()
        existing = await to_end(survey_existing, top, None if delete else _folders(tree))
        in_the_way, surplus = _compare(tree, existing, spared)
        if in_the_way and not delete:
            raise _in_the_way(top, in_the_way[0], existing, "--delete replaces it")
        for path in in_the_way:
            if _is_spared(path, spared) or any(each[: len(path)] == path for each in spared):
                raise _in_the_way(top, path, existing, "it is excluded, and --delete-excluded replaces it")
        return _There(existing, in_the_way, surplus)

    @staticmethod
    def _is_right(link: FolderEntry, top: Path, existing: Existing) -> bool:
        return existing.get(link.segments) == "link" and read_link(top, link.segments) == link_of(link)[0]

    def _filler(self, writer: _core.FolderWriter) -> Filler:
        return Filler(self._client, writer, self._states, self._progress)

    def _skipped(self, links: Iterable[FolderEntry]) -> list[Skipped]:
        return [Skipped(self._destination.joinpath(*link.segments), _WHY_SKIPPED) for link in links]

    async def _tree(self) -> _Tree:
        """List everything, and check it."""
        entries = await list_folder(self._client, self._root)
        check_names(entries)
        links, outside = restorable_links(entries)
        folders = [entry for entry in entries if entry.kind in ("folder", "map")]
        tree = _Tree(await list_parts(self._client, entries), links, folders, outside)
        if any(path[0] == INSIDE for path in _paths(tree)):
            raise refused((INSIDE,), "is the name of the folder for incomplete files")
        sizes = [file.size for file in tree.files]
        self._started(None if None in sizes else sum(size or 0 for size in sizes))
        return tree

    async def _change(self, tree: _Tree, top: Path, partial: Partial, *, delete: Deletion | None) -> Restored:
        folders = _folders(tree)
        there = await self._there(tree, top, delete=delete)
        right = await self._matching(tree, top, there.entries)
        await to_end(remove, top, there.in_the_way)
        is_moved = top != self._destination
        has_exec_bits = _records_exec_bits(tree)
        with closing(_core.FolderWriter(top, partial.files, is_moved=is_moved)) as writer:
            for path in sorted(folders):
                if there.entries.get(path) == "folder":
                    writer.add_folder(path, exists=True)
            for entry in tree.folders:
                writer.add_folder(entry.segments, *self._attributes(entry, top))
            added = replaced = 0
            for file in tree.files:
                if file.segments in right:
                    mode, mtime_ns = self._attributes(file, top)
                    if mode is None and has_exec_bits:
                        mode = _without_exec_bits(top, file)
                    writer.keep_file(file.segments, mode, mtime_ns)
                    self._states.note_kept(file)
                    continue
                added += 1
                replaces = there.is_replaced(file.segments)
                replaced += replaces
                root = file.target if _core.Cid(file.target).kind == "list" else None
                mode, mtime_ns = self._attributes(file, None)
                writer.add_file(file.segments, file.parts, mode, mtime_ns, replaces=replaces, list=root)
            for link in tree.links:
                if self._is_right(link, top, there.entries):
                    writer.keep_link(link.segments, link_of(link)[1])
                else:
                    writer.add_link(link.segments, *link_of(link), replaces=there.is_replaced(link.segments))
            await self._filler(writer).write_planned(top, there.surplus if delete else ())
            if any(self._extras):
                entries: list[FolderEntry | PlannedFile] = [*tree.files, *tree.links, *tree.folders]
                await to_end(set_extras, top, entries, self._extras)
            deleted = len(there.in_the_way) + (len(there.surplus) if delete else 0)
            skipped = self._skipped(tree.skipped)
            return Restored(added, writer.written, len(right), deleted, skipped, replaced)

    def _attributes(self, entry: FolderEntry | PlannedFile, top: Path | None) -> tuple[int | None, int | None]:
        """Return the mode and the time that a file or folder gets before its owner.

        Until it has that one, its group is another one than the mode is meant for. What has the owner already, below
        `top`, keeps its mode meanwhile.
        """
        mode, mtime_ns = attributes_of(entry)
        known = entry.attributes
        if mode is None or known is None or known.owner is None or not self._extras.owners:
            return mode, mtime_ns
        with suppress(OSError):
            found = None if top is None else os.lstat(top.joinpath(*entry.segments))
            if found is not None and (found.st_uid, found.st_gid) == known.owner:
                return mode, mtime_ns
        return mode & 0o700, mtime_ns

    async def _matching(self, tree: _Tree, top: Path, existing: Existing) -> set[tuple[str, ...]]:
        """Return the paths of the files that have the right bytes."""
        candidates = [file for file in tree.files if existing.get(file.segments) == "file"]
        right, unknown = await in_thread(self._states.known, top, candidates)
        self._progress(sum(file.size or 0 for file in candidates if file.segments in right))
        while unknown:
            batch: list[PlannedFile] = []
            size = 0
            while unknown and size < COMPARED_BYTES and len(batch) < COMPARED_FILES:
                batch.append(unknown.pop())
                size += batch[-1].size or 0
            files = [("/".join(file.segments), file.parts) for file in batch]
            matches = await in_thread(_core.files_match, top, files)
            matching = [file for file, is_match in zip(batch, matches, strict=True) if is_match]
            right.update(file.segments for file in matching)
            self._progress(sum(file.size or 0 for file in matching))
        return right

    def _finish_top_folders(self, folders: Sequence[FolderEntry]) -> None:
        top = self._destination
        with closing(_core.FolderWriter(top)) as writer:
            for entry in folders:
                writer.add_folder(entry.segments, *attributes_of(entry), exists=True)
            writer.finish()
        if any(self._extras):
            set_extras(top, folders, self._extras)


def _records_exec_bits(tree: _Tree) -> bool:
    """Whether a tree records of each file whether it is executable, and nothing of a file that is not."""
    known = [file.attributes for file in tree.files] + [entry.attributes for entry in (*tree.links, *tree.folders)]
    found = [each for each in known if each is not None]
    return bool(found) and all(each.size is None and each.mtime_ns is None and each.kind != "folder" for each in found)


def _without_exec_bits(top: Path, file: PlannedFile) -> int | None:
    """Return the mode of a file below `top` without the permission to execute it; None if nobody has that."""
    with suppress(OSError):
        mode = os.lstat(top.joinpath(*file.segments)).st_mode
        if stat.S_ISREG(mode) and mode & 0o111:
            return mode & 0o666
    return None


def _compare(tree: _Tree, existing: Existing, spared: AbstractSet[Segments]) -> tuple[list[Segments], list[Segments]]:
    """Return what has to go before the tree can be written, and what is not in the tree; without what is below it."""
    leaves = {*(file.segments for file in tree.files), *(link.segments for link in tree.links)}
    folders = _folders(tree)
    above_spared = {path[:count] for path in spared for count in range(1, len(path))}
    in_the_way: list[Segments] = []
    surplus: list[Segments] = []
    for path in sorted(existing):
        if _is_below(path, surplus[-1:]) or _is_below(path, in_the_way[-1:]):
            continue
        is_folder = existing[path] == "folder"
        if path in (leaves if is_folder else folders):
            in_the_way.append(path)
        elif path in leaves or path in folders or (is_folder and path in above_spared):
            continue  # a folder stays as long as something in it does
        elif not _is_spared(path, spared):
            surplus.append(path)
    return in_the_way, surplus


def _is_spared(path: Segments, spared: AbstractSet[Segments]) -> bool:
    return bool(spared) and any(path[:count] in spared for count in range(1, len(path) + 1))


def _paths(tree: _Tree) -> Iterable[tuple[str, ...]]:
    return (each.segments for group in (tree.files, tree.links, tree.folders) for each in group)


def _folders(tree: _Tree) -> set[tuple[str, ...]]:
    """Return the paths of all folders of a tree, those without an entry included."""
    folders = {entry.segments for entry in tree.folders}
    for path in _paths(tree):
        above = path[:-1]
        while above and above not in folders:
            folders.add(above)
            above = above[:-1]
    return folders


def _is_below(path: tuple[str, ...], tops: Sequence[tuple[str, ...]]) -> bool:
    return any(path[: len(top)] == top for top in tops)


def _in_the_way(top: Path, path: Segments, existing: Existing, step: str) -> InvalidInput:
    found, wanted = ("a folder", "a file") if existing[path] == "folder" else ("not a folder", "a folder")
    return refused((str(top), *path), f"is {found}, but the tree has {wanted}; {step}")
