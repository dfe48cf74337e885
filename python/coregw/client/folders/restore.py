"""Restoring a folder from a map root: all names are proven and checked.

A new or empty destination gets the whole tree or nothing: the tree is written into a temporary folder while its listing
comes, and the folder is renamed when it is complete. A destination with content is updated, once all names are known:
files that have the right bytes stay, and each of the others is replaced when its new version is complete, so that after
a failure the next attempt continues. What a killed process has left of a new destination is updated in the same way,
and then renamed.

A cache of the files' states, like that of adding, tells which files have the right bytes without reading them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

from coregw import _core
from coregw.client.folders.destination import (
    Extras,
    PartialFolder,
    check_destination,
    discard_abandoned,
    free_bytes,
    partial_folder,
    publish,
)
from coregw.client.folders.listing import FileLists, Nested, PayloadSource, Signal, walk_folder
from coregw.client.operations.steps import map_root
from coregw.concurrency import Check, for_each, in_stoppable_thread, in_thread
from coregw.errors import Unavailable
from coregw.folders.caches import RestoreCache
from coregw.folders.tree import Skipped, survey
from coregw.verify import CidLike

__all__ = ["Deletion", "Extras", "Links", "RestorePlan", "Restored", "plan_restore", "restore_folder"]

Links = Literal["inside", "all"]
"""Which symbolic links are made: those that stay inside the folder, or every one as it is recorded."""

REQUESTS = 4
"""Requests for payloads in flight."""

REQUEST_BYTES = 16 << 20
"""Payloads that one request asks for, in bytes, about: half as much took longer, twice as much no less."""

_CONCURRENT_LISTS = 8


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

    def spared(self, top: Path, check: Check) -> list[Path]:
        """Return what of a destination stays, as relative paths, without what is below it.

        Raises:
            InvalidInput: A file of patterns can't be read or parsed.
        """
        if self.excluded or not top.is_dir():
            return []
        left_out = survey(top, self.exclude, self.gitignore, "keep", None, check).left_out
        return [file.relative_to(top) for file, _ in left_out]


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
    cid = map_root(root)
    has_content = check_destination(destination)
    if cache is not None:
        cache.prepare()
    restore = _Restore(client, cid, destination, _Choices(links, allow_git, extras, cache), started, progress)
    return await (restore.update(delete) if has_content or in_place else restore.fill())


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
    cid = map_root(root)
    check_destination(destination)
    restore = _Restore(client, cid, destination, _Choices(links, allow_git, Extras(), cache), started, progress)
    return await restore.plan(delete)


_WHY_SKIPPED = "the link leads out of the folder"


class _Choices(NamedTuple):
    """What the caller chose."""

    links: Links
    allow_git: bool
    extras: Extras
    cache: RestoreCache | None


class _Restore:
    """One restore."""

    def __init__(
        self,
        client: PayloadSource,
        root: _core.Cid,
        destination: Path,
        choices: _Choices,
        started: Callable[[int | None], None] | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self._client = client
        self._root = root
        self._destination = destination
        self._choices = choices
        self._started = started or (lambda total: None)
        self._progress = progress or (lambda count: None)

    async def fill(self) -> Restored:
        """Write everything to a new or empty folder, at once."""
        top, existed = self._destination, self._destination.exists()
        if existed:
            await in_stoppable_thread(discard_abandoned, top)
        with closing(_core.FolderRights(top)):
            async with partial_folder(top, is_inside=existed) as partial:
                partial.tree.mkdir(exist_ok=True)
                with closing(self._writer(partial.tree, partial, is_moved=existed)) as writer:
                    done = await (self._change if partial.is_left else self._stream)(writer, partial.tree)
                    await in_thread(writer.prepare_top, top if existed else partial.tree)
                    await in_thread(lambda: publish(partial.tree, top, existed=existed))
                    if existed:
                        await in_thread(writer.finish_moved, top)
                    await in_thread(self._save, writer, partial)
        await in_thread(writer.finish_top, top)
        return replace(done, replaced=0, deleted=0)  # of what a process has left, not of the destination

    async def update(self, delete: Deletion | None) -> Restored:
        """Change what is different, one file after the other."""
        top = self._destination
        await in_stoppable_thread(discard_abandoned, top)
        with ExitStack() as made:
            if not top.exists():
                top.mkdir()
                made.callback(_remove_empty, top)
            with closing(_core.FolderRights(top)):
                async with partial_folder(top, is_inside=True) as partial:
                    with closing(self._writer(top, partial, has_content=True)) as writer:
                        done = await self._change(writer, top, delete)
                        await in_thread(self._save, writer, partial)
            made.pop_all()
        await in_thread(writer.finish_top, top)
        return done

    async def plan(self, delete: Deletion | None) -> RestorePlan:
        """Return what would be done."""
        with tempfile.TemporaryDirectory() as nothing:
            top = self._destination if self._destination.exists() else Path(nothing)
            with closing(self._writer(top, None, has_content=True)) as writer:
                await self._compare(_Filler(self._client, writer, self._progress), top, delete)
                *found, kept = await in_thread(writer.preview)
                created, replaced, deleted = ([tuple(path) for path in paths] for paths in found)
                return RestorePlan(created, replaced, deleted, kept, self._skipped(writer))

    def _writer(
        self, top: Path, partial: PartialFolder | None, *, is_moved: bool = False, has_content: bool | None = None
    ) -> _core.FolderWriter:
        links, allow_git, extras, cache = self._choices
        if has_content is None:
            has_content = partial is not None and partial.is_left
        return _core.FolderWriter(
            top,
            partial.files if partial is not None and has_content else None,
            is_moved=is_moved,
            has_content=has_content,
            gives_rights=partial is not None,
            destination=self._destination,
            max_bytes=None if has_content else free_bytes(top),
            cache=None if cache is None else (cache.file, cache.folder),
            all_links=links == "all",
            allow_git=allow_git or top != self._destination,
            extras=extras,
        )

    async def _stream(self, writer: _core.FolderWriter, top: Path) -> Restored:
        """Write everything to a new folder while the listing comes."""
        filler = _Filler(self._client, writer, self._progress)
        lists, xattrs = FileLists(self._client, free_bytes(top)), self._choices.extras.has_xattrs
        await filler.write_listed(self._root, lists, self._started, xattrs=xattrs)
        return self._done(writer)

    async def _change(
        self,
        writer: _core.FolderWriter,
        top: Path,
        delete: Deletion | None = Deletion(excluded=True),  # noqa: B008
    ) -> Restored:
        """Write what is not in a folder, and delete what is not in the tree."""
        filler = _Filler(self._client, writer, self._progress)
        await self._compare(filler, top, delete)
        await in_thread(writer.apply, free_bytes(top), stop=writer.stop)
        await filler.write_planned()
        return self._done(writer)

    async def _compare(self, filler: _Filler, top: Path, delete: Deletion | None) -> None:
        """List the tree, find out what of it is there, and decide what becomes of that."""
        writer = filler.writer
        await filler.list(self._root, xattrs=self._choices.extras.has_xattrs)
        found = await in_thread(writer.survey, stop=writer.stop)
        free = free_bytes(self._destination)
        await filler.add_lists(FileLists(self._client, None if free is None else free + found))
        self._started((await in_thread(lambda: writer.added))[1])
        self._progress(await in_thread(writer.recall, stop=writer.stop))
        while (right := await in_thread(writer.compare, stop=writer.stop)) is not None:
            self._progress(right)
        spared = await in_stoppable_thread(delete.spared, top) if delete is not None else None
        await in_thread(writer.decide, spared, stop=writer.stop)

    def _done(self, writer: _core.FolderWriter) -> Restored:
        files, kept, deleted, replaced = writer.done
        return Restored(files, writer.written, kept, deleted, self._skipped(writer), replaced)

    def _skipped(self, writer: _core.FolderWriter) -> list[Skipped]:
        xattrs = [
            Skipped(self._destination / path, _why(name, count)) for path, name, count in writer.unrestored_xattrs
        ]
        links = [Skipped(self._destination / path, _WHY_SKIPPED) for path in writer.links_left_out]
        return [*xattrs, *links]

    def _save(self, writer: _core.FolderWriter, partial: PartialFolder) -> None:
        if self._choices.cache is not None:
            self._choices.cache.save(writer, partial.folder)


def _remove_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _why(name: str, count: int) -> str:
    others = f", and those of {count - 1:,} more," if count > 1 else ""
    return f"its extended attribute {name}{others} is restored to root only by name, with --xattr"


class _Filler:
    """Lists a tree for a writer, and requests the payloads that it writes.

    Payloads are requested many at a time, several requests in flight. Threads of the extension verify and write them.
    With a listing, its next pages are requested and verified meanwhile, and what is known of a file is forgotten when
    it is complete: so memory does not grow with the number of files.

    Args:
        client: The client to fetch with.
        writer: A writer that is not started.
        progress: Called with further numbers of bytes that were written.
    """

    def __init__(self, client: PayloadSource, writer: _core.FolderWriter, progress: Callable[[int], None]) -> None:
        self.writer = writer
        self._client = client
        self._progress = progress
        self._written = 0  # as last reported
        self._is_listed = True
        self._listed, self._fetched = Signal(), Signal()
        self._lists: FileLists | None = None
        self._pending: dict[str, list[tuple[int, str, int | None]]] = {}
        """Files that are lists, by these: the number, path and recorded size of each."""

    async def list(self, root: _core.Cid, *, xattrs: bool) -> None:
        """Add all entries of a tree to the writer; `add_lists` follows.

        Raises:
            InvalidInput: A path can't be a file name here, or two paths exclude each other (code ``invalid_path``).
            ProofError, TooLarge: As `walk_folder`.
        """
        await walk_folder(self._client, root, 0, self._take, xattrs=xattrs)

    async def add_lists(self, lists: FileLists) -> None:
        """Supply the payloads of files that are lists. Raises as `FileLists.parts`."""
        pending, self._pending = self._pending, {}

        async def expand(target: str) -> None:
            for number, path, size in pending[target]:
                self.writer.supply_list(number, await lists.parts(path, target, size))

        await for_each(pending, expand, _CONCURRENT_LISTS)

    async def write_planned(self) -> None:
        """Fetch and write what the writer, which is started, is to write; links and attributes follow."""
        await for_each([self._fetch] * REQUESTS, _call, REQUESTS)
        await in_thread(self.writer.finish, stop=self.writer.stop)

    async def write_listed(
        self, root: _core.Cid, lists: FileLists, started: Callable[[int | None], None], *, xattrs: bool
    ) -> None:
        """List a folder, and fetch and write its files while its listing comes.

        Args:
            root: Its root.
            lists: Lists the payloads of files.
            started: Called with the number of bytes to write, None if it is not known, when all names are known.
            xattrs: Whether extended attributes are restored.

        Raises:
            InvalidInput, ProofError: As `list`.
            TooLarge: The files have more bytes than the writer may write, or as `list`.
        """
        self._is_listed, self._lists = False, lists

        async def list_all() -> None:
            await self.list(root, xattrs=xattrs)
            started(self.writer.added[1])
            self._is_listed = True
            self._listed.send()

        await in_thread(self.writer.start, stop=self.writer.stop)
        await for_each([list_all, *[self._fetch] * REQUESTS], _call, REQUESTS + 1)
        await in_thread(self.writer.finish, stop=self.writer.stop)

    async def _take(self, listing: _core.FolderListing, below: int) -> Iterable[Nested[int]]:
        maps, lists = self.writer.add_listed(listing, below)
        self._listed.send()
        for number, path, target, size in lists:
            if self._lists is None:
                self._pending.setdefault(target, []).append((number, path, size))
            else:
                self.writer.supply_list(number, await self._lists.parts(path, target, size))
                self._listed.send()
        while self.writer.has_enough:
            await self._fetched.wait()
        return maps

    async def _fetch(self) -> None:
        writer, limit = self.writer, self._client.settings.max_payload_bytes
        while True:
            # What is listed while the files are written whose payloads are in their CIDs is asked for again.
            is_listed, listed = self._is_listed, self._listed.next
            request = await in_thread(writer.request, REQUEST_BYTES, limit, stop=writer.stop)
            if request is None:
                if is_listed:
                    return
                await listed.wait()
                continue
            self._fetched.send()
            await self._client.get_payloads(request)
            missing = await in_thread(request.finish, stop=writer.stop)
            if missing:
                await self._client.get_payload(missing[0])  # raises why
                raise Unavailable(f"get {missing[0]}: left out of an answer, although the gateway holds it")
            self._progress(writer.written - self._written)
            self._written = writer.written


async def _call(work: Callable[[], Awaitable[None]]) -> None:
    await work()
