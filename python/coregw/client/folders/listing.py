"""The complete, proven listing of a folder: its files, links and folders, with their attributes and payloads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from coregw import _core
from coregw.client.folders.parallel import for_each
from coregw.client.folders.source import PayloadSource
from coregw.client.operations.tree import PAGE_ENTRIES
from coregw.client.query import scan
from coregw.errors import InvalidInput, TooLarge
from coregw.folders.attributes import Attributes, FolderEntry
from coregw.text import printable

__all__ = [
    "EntryCount",
    "Part",
    "PlannedFile",
    "Signal",
    "Taken",
    "list_folder",
    "list_of",
    "list_parts",
    "walk_folder",
]

Part = tuple[str, int | None]
"""A payload of a file and its size, if that is known."""

Taken = Callable[[_core.FolderListing, tuple[str, ...]], Awaitable[Iterable[FolderEntry]]]
"""Takes what a listing of the map at a path has joined, and returns its nested maps."""

_CONCURRENT_LISTS: Final = 8

_MAX_AHEAD: Final = 8 * PAGE_ENTRIES
"""Entries that one listing of a folder may be ahead of the other."""


class PlannedFile(NamedTuple):
    """A file to write: its path, its target, its payloads in order, and what is known of it."""

    segments: tuple[str, ...]
    target: str
    parts: Sequence[Part]
    attributes: Attributes | None

    @property
    def size(self) -> int | None:
        """The size of the file in bytes, if it is known."""
        total = 0
        for _, size in self.parts:
            if size is None:
                return None
            total += size
        return total


class Signal:
    """Wakes the tasks that wait for something to change."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def send(self) -> None:
        """Wake all tasks that wait."""
        self._event.set()
        self._event = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """The event of the next `send`."""
        return self._event

    async def wait(self) -> None:
        """Wait for the next `send`."""
        await self._event.wait()


async def list_folder(client: PayloadSource, root: _core.Cid) -> list[FolderEntry]:
    """Return every path of a folder, those of nested maps included, which follow their parents.

    Raises:
        InvalidInput, ProofError, TooLarge: As `walk_folder`.
    """
    found: list[FolderEntry] = []

    async def take(listing: _core.FolderListing, base: tuple[str, ...]) -> Iterable[FolderEntry]:
        taken = [FolderEntry(base + fields[0], *fields[1:]) for fields in listing.take()]
        found.extend(taken)
        return (entry for entry in taken if entry.kind == "map")

    await walk_folder(client, root, take)
    return found


async def walk_folder(client: PayloadSource, root: _core.Cid, take: Taken) -> None:
    """List a folder, and the maps nested in it after it, and pass on each listing whenever more of it is joined.

    Memory: a few pages, unless a folder has thousands of names before ``.coregw/attributes``.

    Args:
        client: The client to list with.
        root: The folder's root.
        take: Takes entries from a listing.

    Raises:
        InvalidInput: Maps nest deeper than ``max_nesting``, or the folder's two maps contradict each other.
        ProofError: A listing is not proven.
        TooLarge: There are more than ``max_entries`` entries.
    """
    limit = client.settings.max_entries
    count = EntryCount(limit, f"the tree has more than {limit} entries")
    pending: list[tuple[tuple[str, ...], str, int]] = [((), root.text, 0)]
    while pending:
        base, here, depth = pending.pop()
        if depth > client.settings.max_nesting:
            raise InvalidInput(f"{'/'.join(base)!r}: maps nest deeper than {client.settings.max_nesting}")
        listed = _MapListing(client, here, base, count, take)
        await listed.run()
        pending += [(entry.segments, entry.target, depth + 1) for entry in listed.maps if entry.target is not None]


class EntryCount:
    """Counts the entries that are listed.

    Args:
        limit: How many there may be.
        message: What `TooLarge` says if there are more.
    """

    def __init__(self, limit: int, message: str) -> None:
        self._left = limit
        self._message = message

    def add(self, entries: int) -> None:
        """Count some more. Raises `TooLarge` beyond the limit."""
        self._left -= entries
        if self._left < 0:
            raise TooLarge(self._message)


class _MapListing:
    """The listing of one map and its attributes. A page of one is verified while the gateway works on one of the other.

    Attributes:
        maps: The maps nested in it.
    """

    def __init__(self, client: PayloadSource, root: str, base: tuple[str, ...], count: EntryCount, take: Taken) -> None:
        self.maps: list[FolderEntry] = []
        self._client = client
        self._root = root
        self._base = base
        self._count = count
        self._take = take
        self._joined = Signal()
        self._listing = _core.FolderListing(root)

    async def run(self) -> None:
        files = _Pages(self._client, self._root, self._listing.add_files, self._count)
        await files.add_page()
        while self._listing.may_have_attributes:
            await files.add_page()
        await self._pass_on()
        attributes = self._listing.attributes_root
        if attributes is None:
            await self._add_rest(files, 0)
            return
        records = _Pages(self._client, attributes, self._listing.add_records, self._count)
        await for_each([(files, 0), (records, 1)], lambda each: self._add_rest(*each), 2)

    async def _add_rest(self, pages: _Pages, side: int) -> None:
        while pages.has_more:
            while self._is_ahead(side):
                await self._joined.wait()
            await pages.add_page()
            for cid in self._listing.missing_records if side else ():
                self._listing.supply_record(cid, await self._client.get_payload(cid))
            await self._pass_on()

    def _is_ahead(self, side: int) -> bool:
        waiting = self._listing.waiting
        return waiting[side] > _MAX_AHEAD and waiting[1 - side] == 0

    async def _pass_on(self) -> None:
        self.maps += await self._take(self._listing, self._base)
        self._joined.send()


class _Pages:
    """The pages of one map's listing."""

    def __init__(
        self,
        client: PayloadSource,
        root: str,
        add: Callable[[bytes, bytes], tuple[int, list[str] | None]],
        count: EntryCount,
    ) -> None:
        self.has_more = True
        self._client = client
        self._root = root
        self._add = add
        self._count = count
        self._after: list[str] | None = None

    async def add_page(self) -> None:
        """Request the next page, and add it to the listing, which verifies it."""
        query = replace(scan(self._root, (), self._after, PAGE_ENTRIES), verify=self._verify)
        await self._client.query(query)

    def _verify(self, request: bytes, result: bytes) -> None:
        entries, self._after = self._add(request, result)
        self._count.add(entries)
        self.has_more = self._after is not None


async def list_parts(client: PayloadSource, entries: Iterable[FolderEntry]) -> list[PlannedFile]:
    """Return the payloads of every file. One request for each list of at most 8,000 chunks.

    Raises:
        InvalidInput: A target is not a file (code ``kind_mismatch``).
        ProofError: A list is not proven.
    """
    planned: list[PlannedFile] = []
    lists: list[tuple[int, FolderEntry]] = []
    for entry in entries:
        segments, kind, target, attributes = entry
        if kind != "file" or target is None:
            continue
        if _core.Cid(target).kind == "list":
            lists.append((len(planned), entry))
        parts = [(target, None if attributes is None else attributes.size)]
        planned.append(PlannedFile(segments, target, parts, attributes))

    async def expand(numbered: tuple[int, FolderEntry]) -> None:
        number, entry = numbered
        if parts := await list_of(client, entry):
            planned[number] = planned[number]._replace(parts=parts)

    await for_each(lists, expand, _CONCURRENT_LISTS)
    return planned


async def list_of(client: PayloadSource, entry: FolderEntry) -> list[Part]:
    """Return the elements of a list of payloads, and check their sum against the recorded size."""
    elements = await client.list_elements(entry.target or "")
    total = sum(size for _, size in elements)
    if entry.attributes is not None and entry.attributes.size not in (None, total):
        path = printable("/".join(entry.segments), 1000)
        raise InvalidInput(f"{path}: recorded with {entry.attributes.size} bytes, but its list has {total}")
    return list(elements)
