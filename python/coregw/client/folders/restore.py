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
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from coregw import _core
from coregw.client.folders.destination import (
    Existing,
    Extras,
    Rights,
    check_destination,
    free_bytes,
    publish,
    remove,
    set_extras,
    survey_existing,
)
from coregw.client.folders.filling import (
    FileStates,
    Filler,
    PartialFolder,
    attributes_of,
    discard_abandoned,
    is_exec_bit,
    link_of,
    partial_folder,
)
from coregw.client.folders.listing import FileLists, PayloadSource, PlannedFile, list_folder, list_parts
from coregw.client.folders.names import INSIDE, TOP, DestinationMaps, Paths, is_git, leads_outside, refused, refused_git
from coregw.concurrency import Check, in_stoppable_thread, in_thread
from coregw.errors import InvalidInput
from coregw.folders.caches import RestoreCache
from coregw.folders.tree import Attributes, FolderEntry, Skipped, survey
from coregw.verify import CidLike

__all__ = ["Deletion", "Extras", "Links", "RestorePlan", "Restored", "plan_restore", "restore_folder"]

Links = Literal["inside", "all"]
"""Which symbolic links are made: those that stay inside the folder, or every one as it is recorded."""

COMPARED_BYTES = 256 << 20
"""Bytes of existing files that are compared in one call."""

COMPARED_FILES = 1_000


Segments = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore has done.

    Attributes:
        files: Number of files that were written.
        bytes: Number of bytes of these.
        kept: Number of files that had the right bytes.
        deleted: Number of files, links and folders that were deleted, those inside deleted folders not counted.
        skipped: Symbolic links that were not made, and why; and extended attributes that were not restored to root, by
            the folder itself and by the first file or folder in it that has each.
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
        created: Paths of files, links and empty folders that are not there, in key order. Folders that have something
            in them are not named: a tree of deep folders would have the square of its names.
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


class _Named(NamedTuple):
    """The names of what is to be restored, which do not clash: the number of each path, and what it is."""

    paths: Paths
    files: list[tuple[int, FolderEntry]]
    links: list[tuple[int, FolderEntry]]
    folders: list[tuple[int, FolderEntry]]


class _Tree(NamedTuple):
    """What is to be restored: the links stay inside, unless all links are restored."""

    paths: Paths
    files: list[PlannedFile]
    links: list[tuple[int, FolderEntry]]
    folders: list[tuple[int, FolderEntry]]
    skipped: list[tuple[int, FolderEntry]]


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

    def spared(self, top: Path, check: Check) -> set[Segments]:
        """Return what of a destination stays, without what is below it.

        Raises:
            InvalidInput: A file of patterns can't be read or parsed.
        """
        if self.excluded or not top.is_dir():
            return set()
        left_out = survey(top, self.exclude, self.gitignore, "keep", None, check).left_out
        return {file.relative_to(top).parts for file, _ in left_out}


class _There:
    """What is in a destination already.

    Attributes:
        found: All of it, as far as the tree has its folders.
        in_the_way: Numbers of what is removed first: folders where the tree has files, and files where it has folders.
        spared: Paths of what is not deleted, without what is below them.
        above_spared: Paths of the folders that these are in.
    """

    spared: AbstractSet[Segments] = frozenset()
    above_spared: AbstractSet[Segments] = frozenset()

    def __init__(self, paths: Paths, found: Existing) -> None:
        self.found = found
        self._paths = paths
        self.in_the_way = [
            number
            for number, kind in sorted(found.kinds.items())
            if (kind == "folder") is not (paths.kinds[number] == "folder")
        ]

    def leave_out(self, numbers: Iterable[int]) -> None:
        """Take what is at paths that are not restored for something that the tree does not have."""
        paths, found = self._paths, self.found
        left_out = {number for number in numbers if found.kinds.pop(number, None) is not None}
        self.in_the_way = [number for number in self.in_the_way if number not in left_out]
        found.surplus += [(paths.above[number], paths.names[number]) for number in sorted(left_out)]

    def spare(self, spared: AbstractSet[Segments]) -> None:
        """Delete nothing of some paths, without what is below them, and none of the folders that they are in."""
        self.spared = spared
        self.above_spared = {path[:count] for path in spared for count in range(1, len(path))}

    def is_spared(self, path: Segments) -> bool:
        """Whether a path is spared, or below one that is."""
        return bool(self.spared) and any(path[:count] in self.spared for count in range(1, len(path) + 1))

    def surplus(self, top: Path, check: Check) -> list[tuple[int, Segments]]:
        """Return what is deleted of what the tree does not have: by the number of a folder, the path below that."""
        found: list[tuple[int, Segments]] = [(folder, (name,)) for folder, name in self.found.surplus]
        if not self.spared:
            return found
        deleted: list[tuple[int, Segments]] = []
        while found:
            check(1)
            folder, below = found.pop()
            path = (*self._paths.path(folder), *below)
            if path in self.above_spared:  # a folder stays as long as something in it does
                found += [(folder, (*below, each.name)) for each in top.joinpath(*path).iterdir()]
            elif not self.is_spared(path):
                deleted.append((folder, below))
        return deleted

    def is_replaced(self, number: int) -> bool:
        """Whether something is there until a file or link takes its place."""
        return number in self.found.kinds and not self.is_folder(number)

    def is_folder(self, number: int) -> bool:
        """Whether a folder is there."""
        return self.found.kinds.get(number) == "folder"


async def restore_folder(
    client: PayloadSource,
    root: CidLike,
    destination: Path,
    *,
    delete: Deletion | None = None,
    in_place: bool = False,
    links: Links = "inside",
    allow_git: bool = False,
    extras: Extras = Extras(),  # noqa: B008 - a tuple
    cache: RestoreCache | None = None,
    started: Callable[[int | None], None] | None = None,
    progress: Callable[[int], None] | None = None,
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
        links: Which symbolic links are made. A link that leads out of `destination`, by itself or through a link that
            is there, is left out unless all are.
        allow_git: Whether what is in a ``.git`` that was there may be changed: git runs programs that it names.
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
        TooLarge: The tree has more entries or nested maps than the client's settings allow, or more bytes than are free
            on the disk, or a list has more elements than its size explains.
    """
    cid = _map_root(root)
    has_content = check_destination(destination)
    states = FileStates(cache or RestoreCache.none(), are_changed=any(extras))
    restore = _Restore(client, cid, destination, _Choices(links, allow_git, extras), states, started, progress)
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
    links: Links = "inside",
    allow_git: bool = False,
    cache: RestoreCache | None = None,
    started: Callable[[int | None], None] | None = None,
    progress: Callable[[int], None] | None = None,
) -> RestorePlan:
    """Return what `restore_folder` would do, and change nothing. No payload of a file is fetched.

    Modes, times and other attributes are not compared. Arguments and exceptions are those of `restore_folder`.
    """
    cid = _map_root(root)
    check_destination(destination)
    states = FileStates(cache or RestoreCache.none(), are_changed=False)
    restore = _Restore(client, cid, destination, _Choices(links, allow_git, Extras()), states, started, progress)
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


class _Choices(NamedTuple):
    """What the caller chose."""

    links: Links
    allow_git: bool
    extras: Extras


class _Restore:
    """One restore."""

    def __init__(
        self,
        client: PayloadSource,
        root: _core.Cid,
        destination: Path,
        choices: _Choices,
        states: FileStates,
        started: Callable[[int | None], None] | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._client = client
        self._root = root
        self._destination = destination
        self._choices = choices
        self._states = states
        self._started = started or (lambda total: None)
        self._progress = progress or (lambda count: None)
        self._top: Attributes | None = None
        """What is recorded of the folder itself, once it is listed."""

    async def fill(self) -> Restored:
        """Write everything to a new or empty folder, at once."""
        top, existed = self._destination, self._destination.exists()
        if existed:
            await in_stoppable_thread(discard_abandoned, top)
        with _changeable(top):
            async with partial_folder(top, is_inside=existed) as partial:
                done, folders = await self._fill(partial, is_moved=existed)
                await in_thread(self._prepare_top, top if existed else partial.tree)
                await in_thread(lambda: publish(partial.tree, top, existed=existed))
                await in_thread(self._finish_top_folders, folders)
                await in_thread(self._states.save, top, partial.now)
        return replace(done, skipped=[*await in_thread(self._finish_top), *done.skipped])

    async def _fill(self, partial: PartialFolder, *, is_moved: bool) -> tuple[Restored, list[FolderEntry]]:
        """Write the tree, and return what was done, and the folders whose attributes are to be set in the end."""
        if partial.is_left or any(self._choices.extras):
            partial.tree.mkdir(exist_ok=True)
            done, tree = await self._change(partial.tree, partial, await self._named(), delete=Deletion(excluded=True))
            done = replace(done, replaced=0, deleted=0)  # of what a process has left, not of the destination
            return done, [entry for number, entry in tree.folders if tree.paths.above[number] == TOP]
        partial.tree.mkdir()
        free = free_bytes(partial.tree)
        with closing(_core.FolderWriter(partial.tree, is_moved=is_moved, max_bytes=free)) as writer:
            filler = self._filler(writer)
            lists = FileLists(self._client, free)
            await filler.write_listed(self._root, lists, self._started, all_links=self._choices.links == "all")
            self._top = filler.top
            done = Restored(writer.added[0], writer.written, skipped=self._skipped(filler.outside))
        return done, filler.top_folders

    async def update(self, *, delete: Deletion | None) -> Restored:
        """Change what is different, one file after the other."""
        top = self._destination
        named = await self._named()
        await in_stoppable_thread(discard_abandoned, top)
        top.mkdir(exist_ok=True)
        with _changeable(top):
            async with partial_folder(top, is_inside=True) as partial:
                done, _ = await self._change(top, partial, named, delete=delete)
                await in_thread(self._states.save, top, partial.now)
        return replace(done, skipped=[*await in_thread(self._finish_top), *done.skipped])

    async def plan(self, *, delete: Deletion | None) -> RestorePlan:
        """Return what would be done."""
        top = self._destination
        named = await self._named()
        rights = Rights(top, named.paths, are_given=False)
        there = _There(named.paths, await in_stoppable_thread(survey_existing, top, named.paths, rights))
        tree = await self._tree(top, named, there)
        if delete:
            there.spare(await in_stoppable_thread(delete.spared, top))
        right = await self._matching(tree, top, there.found)
        paths = tree.paths
        made = self._made(tree, there, right)
        self._check_changes(tree, there, made, delete=delete)
        above = {paths.above[number] for number in made}
        created = [paths.path(number) for number in made if number not in above and not there.is_replaced(number)]
        replaced = [paths.path(number) for number in made if there.is_replaced(number)]
        deleted = [paths.path(number) for number in there.in_the_way] if delete else []
        surplus = await in_stoppable_thread(there.surplus, top) if delete else []
        deleted += [(*paths.path(folder), *below) for folder, below in surplus]
        skipped = self._skipped(entry.segments for _, entry in tree.skipped)
        return RestorePlan(sorted(created), sorted(replaced), sorted(deleted), len(right), skipped)

    @staticmethod
    def _made(tree: _Tree, there: _There, right: set[int]) -> list[int]:
        """Return the numbers of all files, links and folders that are made."""
        files = [file.number for file in tree.files if file.number not in right]
        links = [number for number, link in tree.links if there.found.links.get(number) != link_of(link)[0]]
        kinds = enumerate(tree.paths.kinds)
        folders = [
            number for number, kind in kinds if kind == "folder" and number != TOP and not there.is_folder(number)
        ]
        return [*files, *links, *folders]

    def _check_changes(self, tree: _Tree, there: _There, made: Sequence[int], *, delete: Deletion | None) -> None:
        """Check that what is there may be changed as the tree has it."""
        paths = tree.paths
        for number in there.in_the_way:
            is_spared = there.is_spared(paths.path(number)) or paths.path(number) in there.above_spared
            if is_spared or not delete:
                found, wanted = ("a folder", "a file") if there.is_folder(number) else ("not a folder", "a folder")
                step = "it is excluded, and --delete-excluded replaces it" if is_spared else "--delete replaces it"
                why = f"is {found}, but the tree has {wanted}; {step}"
                raise refused((str(self._destination), *paths.path(number)), why)
        if self._choices.allow_git:
            return
        inside: set[int] = set()
        for number in range(1, len(paths.names)):
            is_there = number in there.found.kinds
            if (is_there and is_git(paths.names[number])) or paths.above[number] in inside:
                inside.add(number)
        for number in (*there.in_the_way, *made):
            if number in inside:
                raise refused_git((str(self._destination), *paths.path(number)), "; --allow-git changes it")

    def _filler(self, writer: _core.FolderWriter) -> Filler:
        return Filler(self._client, writer, self._states, self._progress)

    def _skipped(self, links: Iterable[Sequence[str]]) -> list[Skipped]:
        return [Skipped(self._destination.joinpath(*path), _WHY_SKIPPED) for path in links]

    async def _named(self) -> _Named:
        """List all names, and check them."""
        paths = Paths()
        named = _Named(paths, [], [], [])
        self._top, entries = await list_folder(self._client, self._root, xattrs=self._choices.extras.has_xattrs)
        for entry in entries:
            if entry.segments[0] == INSIDE:
                raise refused((INSIDE,), "is the name of the folder for incomplete files")
            if entry.kind == "file":
                named.files.append((paths.add(entry.segments, "file"), entry))
            elif entry.kind == "link":
                named.links.append((paths.add(entry.segments, "link"), entry))
            else:
                named.folders.append((paths.add(entry.segments, "folder"), entry))
        return named

    async def _tree(self, top: Path, named: _Named, there: _There) -> _Tree:
        """Check the links, and list the payloads of all files."""
        paths = named.paths
        free = free_bytes(self._destination)
        if free is not None:
            free += sum(status.st_size for status in there.found.states.values())
        files = await list_parts(FileLists(self._client, free), named.files)
        links = named.links
        skipped: list[tuple[int, FolderEntry]] = []
        if self._choices.links == "inside":
            targets = {number: link_of(entry)[0] for number, entry in links}
            links, skipped = await in_stoppable_thread(
                _split_links, links, DestinationMaps(self._destination, paths, targets)
            )
        there.leave_out(number for number, _ in skipped)
        sizes = [file.size for file in files]
        self._started(None if None in sizes else sum(size or 0 for size in sizes))
        return _Tree(paths, files, links, named.folders, skipped)

    async def _change(
        self, top: Path, partial: PartialFolder, named: _Named, *, delete: Deletion | None
    ) -> tuple[Restored, _Tree]:
        with Rights(top, named.paths) as rights:
            there = _There(named.paths, await in_stoppable_thread(survey_existing, top, named.paths, rights))
            tree = await self._tree(top, named, there)
            if delete:
                there.spare(await in_stoppable_thread(delete.spared, top))
            right = await self._matching(tree, top, there.found)
            made = self._made(tree, there, right)
            is_moved = top != self._destination
            if not is_moved:
                self._check_changes(tree, there, made, delete=delete)
            done = await self._write(_Changes(tree, there, right, made, rights), top, partial, delete=delete)
            rights.leave(number for number, entry in tree.folders if attributes_of(entry)[0] is not None)
        return done, tree

    async def _write(
        self, changes: _Changes, top: Path, partial: PartialFolder, *, delete: Deletion | None
    ) -> Restored:
        tree, there, right, made, rights = changes
        paths, found = tree.paths, there.found
        replaced = [file.number for file in tree.files if file.number not in right and there.is_replaced(file.number)]
        free = free_bytes(top)
        if free is not None:
            free += sum(found.states[number].st_size for number in replaced if number in found.states)
        is_moved = top != self._destination
        surplus = await in_stoppable_thread(there.surplus, top) if delete else []
        with closing(_core.FolderWriter(top, partial.files, is_moved=is_moved, max_bytes=free)) as writer:
            await in_stoppable_thread(self._add, writer, changes, top)
            folders = {paths.above[number] for number in (*made, *there.in_the_way)} | {each for each, _ in surplus}
            await in_stoppable_thread(rights.give, {each for each in folders if each == TOP or there.is_folder(each)})
            in_the_way = [(paths.above[number], (paths.names[number],)) for number in there.in_the_way]
            await in_stoppable_thread(remove, top, paths, in_the_way)
            await self._filler(writer).write_planned(lambda check: remove(top, paths, surplus, check))
            skipped = self._skipped(entry.segments for _, entry in tree.skipped)
            if any(self._choices.extras):
                numbered: list[tuple[int, FolderEntry | PlannedFile]] = [
                    *((file.number, file) for file in tree.files),
                    *tree.links,
                    *tree.folders,
                ]
                inodes = {number: found.states[number].st_ino for number in right}
                written = self._states.inodes
                inodes |= {
                    file.number: written.get("/".join(file.segments), 0)
                    for file in tree.files
                    if file.number not in right
                }
                left_out = await in_stoppable_thread(set_extras, top, paths, numbered, inodes, self._choices.extras)
                skipped += [Skipped(self._destination / each.file.relative_to(top), each.why) for each in left_out]
            return Restored(
                len(tree.files) - len(right),
                writer.written,
                len(right),
                len(in_the_way) + len(surplus),
                skipped,
                len(replaced),
            )

    def _add(self, writer: _core.FolderWriter, changes: _Changes, top: Path, check: Check) -> None:
        """Add everything to a writer, without writing anything."""
        tree, there, right, made, _ = changes
        paths = tree.paths
        numbers = {TOP: 0}
        writer.add_folder((), self._top_mode(top), exists=True)
        for number, kind in enumerate(paths.kinds):
            if kind == "folder" and number != TOP:
                above, name = numbers[paths.above[number]], paths.names[number]
                numbers[number] = writer.add_folder([name], exists=there.is_folder(number), below=above)
        for number, entry in tree.folders:
            above, name = numbers[paths.above[number]], paths.names[number]
            writer.add_folder([name], *self._attributes(entry, top), below=above)
        has_exec_bits = _records_exec_bits(tree)
        for file in tree.files:
            check(1)
            above, name = numbers[paths.above[file.number]], paths.names[file.number]
            if file.number in right:
                status = there.found.states[file.number]
                identity = (status.st_dev, status.st_ino)
                mode, mtime_ns = self._attributes(file, top)
                if is_exec_bit(file):
                    if not status.st_mode & stat.S_IXUSR:  # like other new permissions: for those who may read it
                        mode = stat.S_IMODE(status.st_mode) | stat.S_IXUSR | (status.st_mode & 0o444) >> 2
                elif mode is None and has_exec_bits and status.st_mode & 0o111:
                    mode = status.st_mode & 0o666
                writer.keep_file([name], mode, mtime_ns, file=identity, below=above)
                self._states.note_kept(file)
                continue
            root = file.target if _core.Cid(file.target).kind == "list" else None
            replaces = there.is_replaced(file.number)
            mode, mtime_ns = self._attributes(file, None)
            writer.add_file([name], file.parts, mode, mtime_ns, replaces, root, above, is_exec_bit(file))
        are_made = {*made}
        for number, link in tree.links:
            above, name = numbers[paths.above[number]], paths.names[number]
            if number not in are_made:
                writer.keep_link([name], link_of(link)[1], below=above)
            else:
                writer.add_link([name], *link_of(link), replaces=there.is_replaced(number), below=above)

    def _attributes(self, entry: FolderEntry | PlannedFile, top: Path | None) -> tuple[int | None, int | None]:
        """Return the mode and the time that a file or folder gets before its owner.

        Until it has that one, its group is another one than the mode is meant for. What has the owner already, below
        `top`, keeps its mode meanwhile.
        """
        mode, mtime_ns = attributes_of(entry)
        known = entry.attributes
        if mode is None or known is None or known.owner is None or not self._choices.extras.owners:
            return mode, mtime_ns
        with suppress(OSError):
            found = None if top is None else os.lstat(top.joinpath(*entry.segments))
            if found is not None and (found.st_uid, found.st_gid) == known.owner:
                return mode, mtime_ns
        return mode & 0o700, mtime_ns

    async def _matching(self, tree: _Tree, top: Path, found: Existing) -> set[int]:
        """Return the numbers of the files that have the right bytes."""
        candidates = [file for file in tree.files if file.number in found.states]
        right, unknown = await in_stoppable_thread(self._states.known, found.states, candidates)
        self._progress(sum(file.size or 0 for file in candidates if file.number in right))
        while unknown:
            batch: list[PlannedFile] = []
            size = 0
            while unknown and size < COMPARED_BYTES and len(batch) < COMPARED_FILES:
                batch.append(unknown.pop())
                size += batch[-1].size or 0
            files = [("/".join(file.segments), file.parts) for file in batch]
            matches = await in_stoppable_thread(_core.files_match, top, files)
            matching = [file for file, is_match in zip(batch, matches, strict=True) if is_match]
            right.update(file.number for file in matching)
            self._progress(sum(file.size or 0 for file in matching))
        return right

    def _top_mode(self, top: Path) -> int | None:
        """Return the mode that the folder itself has while it is changed: no looser than in the end."""
        mode, _ = self._attributes(FolderEntry((), "folder", None, self._top), top)
        return None if mode is None else mode | stat.S_IRWXU

    def _prepare_top(self, top: Path) -> None:
        """Give a folder, before all content gets there at once, the mode that it has meanwhile."""
        if self._top is None:
            return
        with closing(_core.FolderWriter(top)) as writer:
            writer.add_folder((), self._top_mode(top), exists=True)
            writer.finish()

    def _finish_top(self) -> list[Skipped]:
        """Set what is recorded of the folder itself: nothing in it changes after that. Returns what was not set."""
        if self._top is None:
            return []
        top, entry = self._destination, FolderEntry((), "folder", None, self._top)
        with closing(_core.FolderWriter(top)) as writer:
            writer.add_folder((), *self._attributes(entry, top), exists=True)
            writer.finish()
        if not any(self._choices.extras):
            return []
        return set_extras(top, Paths(), [(TOP, entry)], {}, self._choices.extras)

    def _finish_top_folders(self, folders: Sequence[FolderEntry]) -> None:
        top = self._destination
        with closing(_core.FolderWriter(top)) as writer:
            for entry in folders:
                writer.add_folder(entry.segments, *attributes_of(entry), exists=True)
            writer.finish()
        if any(self._choices.extras):
            paths = Paths()
            numbered = [(paths.add(entry.segments, "folder"), entry) for entry in folders]
            set_extras(top, paths, numbered, {}, self._choices.extras)


def _records_exec_bits(tree: _Tree) -> bool:
    """Whether a tree records of each file whether it is executable, and nothing of a file that is not."""
    known = [file.attributes for file in tree.files] + [entry.attributes for _, entry in (*tree.links, *tree.folders)]
    found = [each for each in known if each is not None]
    return bool(found) and all(each.size is None and each.mtime_ns is None and each.kind != "folder" for each in found)


class _Changes(NamedTuple):
    """A tree, what is there, the numbers of files that are right and of what is made, and the rights to make it."""

    tree: _Tree
    there: _There
    right: set[int]
    made: list[int]
    rights: Rights


@contextmanager
def _changeable(top: Path) -> Iterator[None]:
    """Let this user change a folder of the user's own, if it exists, as long as the context lasts."""
    with Rights(top, Paths()) as rights:
        if top.exists():
            rights.give([TOP])
        yield


def _split_links(
    links: Iterable[tuple[int, FolderEntry]], maps: DestinationMaps, check: Check
) -> tuple[list[tuple[int, FolderEntry]], list[tuple[int, FolderEntry]]]:
    """Return the links that stay inside, and those that do not."""
    inside: list[tuple[int, FolderEntry]] = []
    outside: list[tuple[int, FolderEntry]] = []
    for number, entry in links:
        check(1)
        is_outside = leads_outside(maps.paths.above[number], link_of(entry)[0], (maps.find, maps.above))
        (outside if is_outside else inside).append((number, entry))
    return inside, outside
