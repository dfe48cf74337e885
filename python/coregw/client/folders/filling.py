"""Fetching and writing the files of a tree: all that are planned, or those of a listing while it comes.

Payloads are requested many at a time, several requests in flight. Threads of the extension verify and write them
(`coregw._core.FolderWriter`). With a listing, its next pages are requested and verified meanwhile, and what is known of
a file is forgotten when it is complete: so memory does not grow with the number of files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from coregw import _core
from coregw.client.driving.threads import to_end
from coregw.client.folders.destination import FileStates, remove
from coregw.client.folders.listing import PlannedFile, Signal, list_of, walk_folder
from coregw.client.folders.names import restorable_links
from coregw.client.folders.parallel import for_each
from coregw.client.folders.source import PayloadSource
from coregw.errors import Unavailable
from coregw.folders.attributes import FolderEntry

__all__ = ["Filler", "attributes_of", "link_of"]

REQUESTS = 4
"""Requests for payloads in flight."""

REQUEST_BYTES = 16 << 20
"""Payloads that one request asks for, in bytes, about (decision 0394)."""


class Filler:
    """Writes the files of a tree with a writer, which it starts.

    Args:
        client: The client to fetch with.
        writer: A writer that is not started.
        states: Gets the states of the files that were written.
        progress: Called with further numbers of bytes that were written.

    Attributes:
        outside: The symbolic links that lead out of the tree; they are not made.
        top_folders: Folders in the top folder whose attributes are not set, since they are moved.
    """

    def __init__(
        self,
        client: PayloadSource,
        writer: _core.FolderWriter,
        states: FileStates,
        progress: Callable[[int], None],
    ) -> None:
        self.outside: list[FolderEntry] = []
        self.top_folders: list[FolderEntry] = []
        self._client = client
        self._writer = writer
        self._states = states
        self._progress = progress
        self._written = 0  # as last reported
        self._links: list[FolderEntry] = []
        self._is_listed = True
        self._listed, self._fetched = Signal(), Signal()

    async def write_planned(self, top: Path, surplus: Iterable[tuple[str, ...]]) -> None:
        """Fetch and write what was added to the writer, and remove what is left over below `top` before the end."""
        await self._start()
        await for_each([self._fetch] * REQUESTS, _call, REQUESTS)
        await to_end(remove, top, surplus)
        await self._finish()

    async def write_listed(self, root: _core.Cid, started: Callable[[int | None], None]) -> None:
        """List a folder, and fetch and write its files while its listing comes.

        Args:
            root: Its root.
            started: Called with the number of bytes to write, None if it is not known, when all names are known.

        Raises:
            InvalidInput: A path can't be a file name here, or two paths exclude each other (code ``invalid_path``).
        """
        self._is_listed = False

        async def list_all() -> None:
            await walk_folder(self._client, root, self._take)
            started(self._writer.added[1])
            self._is_listed = True
            self._listed.send()

        await self._start()
        await for_each([list_all, *[self._fetch] * REQUESTS], _call, REQUESTS + 1)
        inside, self.outside = restorable_links(self._links)
        for link in inside:
            self._writer.add_link(link.segments, *link_of(link))
        await self._finish()

    async def _start(self) -> None:
        await to_end(self._writer.start, stop=self._writer.stop)

    async def _finish(self) -> None:
        await to_end(self._writer.finish, stop=self._writer.stop)
        self._states.note_written(self._writer)

    async def _take(self, listing: _core.FolderListing, base: tuple[str, ...]) -> list[FolderEntry]:
        maps: list[FolderEntry] = []
        others = self._writer.add_listed(listing, base)
        self._listed.send()
        for fields in others:
            entry = FolderEntry(*fields)
            is_at_top = len(entry.segments) == 1
            if entry.kind == "link":
                self._links.append(entry)
            elif entry.kind == "file":
                parts = await list_of(self._client, entry) or [(entry.target or "", None)]
                self._writer.add_file(entry.segments, parts, *attributes_of(entry), list=entry.target)
            else:
                self._writer.add_folder(entry.segments, *attributes_of(entry))
                if is_at_top and self._writer.is_moved:
                    self.top_folders.append(entry)
            if entry.kind == "map":
                maps.append(entry)
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
    """Return the mode and the time of modification, as far as they are known."""
    known = entry.attributes
    return (None, None) if known is None else (known.mode, known.mtime_ns)


def link_of(entry: FolderEntry) -> tuple[bytes, int | None]:
    """Return the target of a symbolic link, and its time of modification if that is known."""
    known = entry.attributes
    return (b"", None) if known is None or known.link is None else (known.link, known.mtime_ns)
