"""Fetching and writing the files of a tree: all that are planned, or those of a listing while it comes.

Payloads are requested many at a time, several requests in flight. Threads of the extension verify and write them
(`coregw._core.FolderWriter`). With a listing, its next pages are requested and verified meanwhile, and what is known of
a file is forgotten when it is complete: so memory does not grow with the number of files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from coregw import _core
from coregw.client.driving.threads import Check, in_thread, to_end
from coregw.client.folders.destination import FileStates
from coregw.client.folders.listing import FileLists, Nested, PlannedFile, Signal, walk_folder
from coregw.client.folders.names import TOP, leads_outside
from coregw.client.folders.parallel import for_each
from coregw.client.folders.source import PayloadSource
from coregw.errors import Unavailable
from coregw.folders.attributes import Attributes, FolderEntry

__all__ = ["Filler", "attributes_of", "is_exec_bit", "link_of"]

REQUESTS = 4
"""Requests for payloads in flight."""

REQUEST_BYTES = 16 << 20
"""Payloads that one request asks for, in bytes, about: half as much took longer, twice as much no less."""


class Filler:
    """Writes the files of a tree with a writer, which it starts.

    Args:
        client: The client to fetch with.
        writer: A writer that is not started.
        states: Gets the states of the files that were written.
        progress: Called with further numbers of bytes that were written.

    Attributes:
        outside: The paths of symbolic links that lead out of the tree and are not made.
        top_folders: Folders in the top folder whose attributes are not set, since they are moved.
    """

    def __init__(
        self,
        client: PayloadSource,
        writer: _core.FolderWriter,
        states: FileStates,
        progress: Callable[[int], None],
    ) -> None:
        self.outside: list[tuple[str, ...]] = []
        self.top_folders: list[FolderEntry] = []
        self._client = client
        self._writer = writer
        self._states = states
        self._progress = progress
        self._written = 0  # as last reported
        self._links: list[tuple[int, FolderEntry]] = []
        self._maps: dict[int, tuple[int, tuple[str, ...]]] = {}
        """Nested maps, by the numbers of their folders: the map that each is in, and its path there."""
        self._is_listed = True
        self._listed, self._fetched = Signal(), Signal()

    async def write_planned(self, before_the_end: Callable[[Check], None]) -> None:
        """Fetch and write what was added to the writer; links and attributes follow `before_the_end`."""
        await self._start()
        await for_each([self._fetch] * REQUESTS, _call, REQUESTS)
        await in_thread(before_the_end)
        await self._finish()

    async def write_listed(
        self, root: _core.Cid, lists: FileLists, started: Callable[[int | None], None], *, all_links: bool
    ) -> None:
        """List a folder, and fetch and write its files while its listing comes.

        Args:
            root: Its root.
            lists: Lists the payloads of files.
            all_links: Whether links that lead out of the tree are made as well.
            started: Called with the number of bytes to write, None if it is not known, when all names are known.

        Raises:
            InvalidInput: A path can't be a file name here, or two paths exclude each other (code ``invalid_path``).
            TooLarge: The files have more bytes than the writer may write.
        """
        self._is_listed = False

        async def list_all() -> None:
            async def take(listing: _core.FolderListing, folder: int) -> list[Nested[int]]:
                return await self._take(listing, folder, lists)

            await walk_folder(self._client, root, TOP, take, xattrs=False)
            started(self._writer.added[1])
            self._is_listed = True
            self._listed.send()

        await self._start()
        await for_each([list_all, *[self._fetch] * REQUESTS], _call, REQUESTS + 1)
        await in_thread(self._add_links, all_links)
        await self._finish()

    def _add_links(self, all_links: bool, check: Check) -> None:
        """Add the links to the writer, when all folders and links are known."""
        targets: dict[tuple[int, str], bytes] = {}
        placed: list[tuple[int, int, FolderEntry]] = []
        for number, link in self._links:
            folder = self._writer.add_folder(link.segments[:-1], below=number) if link.segments[1:] else number
            targets[folder, link.segments[-1]] = link_of(link)[0]
            placed.append((number, folder, link))

        def find(folder: int, name: str) -> int | bytes | None:
            target = targets.get((folder, name))
            return self._writer.folder_in(folder, name) if target is None else target

        for number, folder, link in placed:
            check(1)
            if all_links or not leads_outside(folder, link_of(link)[0], (find, self._writer.folder_above)):
                self._writer.add_link(link.segments[-1:], *link_of(link), below=folder)
            else:
                self.outside.append((*self._path(number), *link.segments))

    def _path(self, number: int) -> tuple[str, ...]:
        """Return the path of a nested map, or of the top folder."""
        parts: list[tuple[str, ...]] = []
        while number != TOP:
            number, path = self._maps[number]
            parts.append(path)
        return tuple(name for path in reversed(parts) for name in path)

    async def _start(self) -> None:
        await to_end(self._writer.start, stop=self._writer.stop)

    async def _finish(self) -> None:
        await to_end(self._writer.finish, stop=self._writer.stop)
        self._states.note_written(self._writer)

    async def _take(self, listing: _core.FolderListing, below: int, lists: FileLists) -> list[Nested[int]]:
        maps: list[Nested[int]] = []
        others = self._writer.add_listed(listing, below)
        self._listed.send()
        for fields in others:
            entry = FolderEntry(*fields)
            if entry.kind == "link":
                self._links.append((below, entry))
                continue
            if entry.kind == "file":
                parts = await lists.parts(entry)
                mode, mtime_ns = attributes_of(entry)
                self._writer.add_file(
                    entry.segments, parts, mode, mtime_ns, list=entry.target, below=below, executable=is_exec_bit(entry)
                )
                continue
            number = self._writer.add_folder(entry.segments, *attributes_of(entry), below=below)
            if below == TOP and len(entry.segments) == 1 and self._writer.is_moved:
                self.top_folders.append(entry)
            if entry.kind == "map" and entry.target is not None:
                self._maps[number] = (below, entry.segments)
                maps.append((number, len(entry.segments), entry.target))
        self._listed.send()
        while self._writer.has_enough:
            await self._fetched.wait()
        return maps

    async def _fetch(self) -> None:
        limit = self._client.settings.max_payload_bytes
        while True:
            # What is listed while the files are written whose payloads are in their CIDs is asked for again.
            is_listed, listed = self._is_listed, self._listed.next
            request = await to_end(self._writer.request, REQUEST_BYTES, limit, stop=self._writer.stop)
            if request is None:
                if is_listed:
                    return
                await listed.wait()
                continue
            self._fetched.send()
            await self._client.get_payloads(request)
            missing = await to_end(request.finish, stop=self._writer.stop)
            if missing:
                await self._client.get_payload(missing[0])  # raises why
                raise Unavailable(f"get {missing[0]}: left out of an answer, although the gateway holds it")
            self._states.note_written(self._writer)
            self._progress(self._writer.written - self._written)
            self._written = self._writer.written


async def _call(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def attributes_of(entry: FolderEntry | PlannedFile) -> tuple[int | None, int | None]:
    """Return the mode and the time of modification, as far as they are known; no mode for an exec bit alone."""
    known = entry.attributes
    return (None, None) if known is None or is_exec_bit(entry) else (known.mode, known.mtime_ns)


def is_exec_bit(entry: FolderEntry | PlannedFile) -> bool:
    """Whether nothing is known but that a file is executable, as at the level ``exec``: others are up to the umask."""
    return entry.attributes == _EXEC_BIT


_EXEC_BIT: Final = Attributes("file", None, 0o755, None, None, None, {})


def link_of(entry: FolderEntry) -> tuple[bytes, int | None]:
    """Return the target of a symbolic link, and its time of modification if that is known."""
    known = entry.attributes
    return (b"", None) if known is None or known.link is None else (known.link, known.mtime_ns)
