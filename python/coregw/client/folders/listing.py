"""The complete, proven listing of a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from coregw import _core
from coregw.client.operations.tree import FREE_DEPTH, PAGE_ENTRIES
from coregw.client.query import Proven, Query, scan
from coregw.client.settings import ClientSettings
from coregw.concurrency import for_each
from coregw.errors import InvalidInput, TooLarge
from coregw.folders.tree import Attributes, FolderEntry
from coregw.text import printable
from coregw.verify import CidLike

__all__ = [
    "EntryCount",
    "FileLists",
    "FolderPaths",
    "Nested",
    "Part",
    "PayloadSource",
    "Signal",
    "Taken",
    "explained_elements",
    "list_folder",
    "walk_folder",
]

T = TypeVar("T")


class PayloadSource(Protocol):
    """The methods of `coregw.client.AsyncClient` that list trees and fetch payloads."""

    @property
    def settings(self) -> ClientSettings:
        """The client's limits."""

    async def query(self, query: Query[T]) -> Proven[T]:
        """Send a query and return the verified value with its proof."""

    async def list_elements(
        self, target: CidLike, *, limit: Callable[[int, int], int] | None = None
    ) -> list[tuple[str, int]]:
        """Return the payloads of a file that is a list, with their sizes."""

    async def get_payload(self, cid: CidLike) -> bytes:
        """Return the verified bytes of a payload."""

    async def get_payloads(self, request: _core.PayloadSink) -> None:
        """Request payloads and give the answer to their sink."""


Part = tuple[str, int | None]
"""A payload of a file and its size, if that is known."""

B = TypeVar("B")

Nested = tuple[B, int, str]
"""A nested map: where it is, how many folders it is below in the map that it is nested in, and its root."""

Taken = Callable[[_core.FolderListing, B], Awaitable[Iterable[Nested[B]]]]
"""Takes what the listing of a map has joined, given where that map is, and returns its nested maps."""

_CONCURRENT_LISTS: Final = 8

_EXPLAINED_BYTES: Final = 16 << 10
"""Files that are lists may have an element for so many bytes, the shortest chunk of a file that was added; and
``max_entries`` elements besides."""

_REMEMBERED_ELEMENTS: Final = 1 << 20
"""Elements of lists that are remembered, in case that another file is the same list."""

_MAX_AHEAD: Final = 8 * PAGE_ENTRIES
"""Entries that one listing of a folder may be ahead of the other."""


class FolderPaths(NamedTuple):
    """What a folder has: what is recorded of itself, if anything is, and its paths."""

    top: Attributes | None
    entries: list[FolderEntry]


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


async def list_folder(client: PayloadSource, root: _core.Cid, *, xattrs: bool = True) -> FolderPaths:
    """Return every path of a folder, those of nested maps included, which follow their parents.

    What is recorded of a nested map itself comes before what the map above has recorded of its path.

    Args:
        client: The client to list with.
        root: The folder's root.
        xattrs: Whether attributes have the extended ones. A record that many paths share is kept once in any case.

    Raises:
        InvalidInput, ProofError, TooLarge: As `walk_folder`.
    """
    found: list[FolderEntry] = []
    tops: dict[tuple[str, ...], Attributes] = {}

    async def take(listing: _core.FolderListing, base: tuple[str, ...]) -> Iterable[Nested[tuple[str, ...]]]:
        taken = [FolderEntry(base + fields[0], *fields[1:]) for fields in listing.take()]
        found.extend(taken)
        if (own := listing.top) is not None:
            tops[base] = own
        return [
            (entry.segments, len(entry.segments) - len(base), entry.target)
            for entry in taken
            if entry.kind == "map" and entry.target is not None
        ]

    top: tuple[str, ...] = ()
    await walk_folder(client, root, top, take, xattrs=xattrs)
    if tops.keys() - {top}:
        found = [
            each._replace(attributes=tops.get(each.segments, each.attributes)) if each.kind == "map" else each
            for each in found
        ]
    return FolderPaths(tops.get(top), found)


async def walk_folder(client: PayloadSource, root: _core.Cid, top: B, take: Taken[B], *, xattrs: bool) -> None:
    """List a folder, and the maps nested in it after it, and pass on each listing whenever more of it is joined.

    Memory: a few pages, unless a folder has thousands of names before ``.coregw/attributes``.

    Args:
        client: The client to list with.
        root: The folder's root.
        top: Where the folder is, for `take`.
        take: Takes entries from a listing.
        xattrs: As for `list_folder`.

    Raises:
        InvalidInput: Maps nest deeper than ``max_nesting``, or the folder's two maps contradict each other.
        ProofError: A listing is not proven.
        TooLarge: There are more than ``max_entries`` entries.
    """
    limit = client.settings.max_entries
    count = EntryCount(limit, f"the tree has more than {limit} entries")
    first = _core.FolderListing(root, xattrs)
    pending: list[tuple[B, int, str, int]] = [(top, 0, root.text, 0)]
    while pending:
        base, above, here, nesting = pending.pop()
        if nesting > client.settings.max_nesting:
            raise InvalidInput(f"{here}: maps nest deeper than {client.settings.max_nesting}")
        listing = first.nested(here) if nesting else first
        maps = await _MapListing(client, here, listing, count.below(above)).run(base, take)
        pending += [(place, above + depth, target, nesting + 1) for place, depth, target in maps]


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

    def below(self, depth: int) -> Callable[[int], None]:
        """Return what counts entries of a map that is below so many folders. Each of them has its whole path."""
        weight = 1 + depth // FREE_DEPTH
        return lambda entries: self.add(entries * weight)


class _MapListing:
    """The listing of one map and its attributes: a page is verified while the gateway works on one of the other."""

    def __init__(
        self, client: PayloadSource, root: str, listing: _core.FolderListing, count: Callable[[int], None]
    ) -> None:
        self._client = client
        self._root = root
        self._listing = listing
        self._count = count
        self._joined = Signal()
        self._pass_on: Callable[[], Awaitable[None]]

    async def run(self, base: B, take: Taken[B]) -> list[Nested[B]]:
        """List everything, and return the maps that are nested in this one."""
        maps: list[Nested[B]] = []

        async def pass_on() -> None:
            maps.extend(await take(self._listing, base))
            self._joined.send()

        self._pass_on = pass_on
        await self._list()
        return maps

    async def _list(self) -> None:
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


class _Pages:
    """The pages of one map's listing."""

    def __init__(
        self,
        client: PayloadSource,
        root: str,
        add: Callable[[bytes, bytes], tuple[int, list[str] | None]],
        count: Callable[[int], None],
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
        self._count(entries)
        self.has_more = self._after is not None


class FileLists:
    """The elements of files that are lists. Each list is requested once, and nothing that their sizes do not explain.

    All lists count together from each answer on, those that are requested at the same time included.

    Args:
        client: The client to list with.
        max_bytes: The bytes that all files that are lists may have together; None for any number.
    """

    def __init__(self, client: PayloadSource, max_bytes: int | None) -> None:
        self._client = client
        self._max_bytes = max_bytes
        self._bytes = self._elements = 0
        self._known: dict[str, list[Part]] = {}
        self._remembered = 0

    async def parts(self, path: str, target: str, recorded: int | None) -> list[Part]:
        """Return the payloads of a file. One request for about 8,000 of them.

        Args:
            path: Its path, for messages.
            target: The list.
            recorded: The size that is recorded, if one is.

        Raises:
            InvalidInput: The list has another size than is recorded, or an element is not a payload.
            ProofError: The list is not proven.
            TooLarge: The files have more bytes than they may have, or more elements than their sizes explain. Nothing
                but the size of the list has been requested then, or no more elements than are explained.
        """
        known = self._known.get(target)
        counted = 0

        def limit(total: int, count: int) -> int:
            nonlocal counted
            if not counted:
                self._count_bytes(path, recorded, total)
            self._elements += count - counted
            counted = count
            others = self._elements - count
            return explained_elements(self._client.settings, self._bytes) - others

        if known is None:
            known = [*await self._client.list_elements(target, limit=limit)]
            if self._remembered + len(known) > _REMEMBERED_ELEMENTS:
                self._known, self._remembered = {}, 0
            self._known[target] = known
            self._remembered += len(known)
        elif len(known) > limit(sum(size or 0 for _, size in known), len(known)):
            raise TooLarge(
                f"{_shown(path)}: the tree has more elements of lists than its {self._bytes:,} bytes explain"
            )
        return known or [(target, None)]

    def _count_bytes(self, path: str, recorded: int | None, total: int) -> None:
        """Check the size of a list that a file is, and count it."""
        if recorded not in (None, total):
            raise InvalidInput(f"{_shown(path)}: recorded with {recorded} bytes, but its list has {total}")
        self._bytes += total
        if self._max_bytes is not None and self._bytes > self._max_bytes:
            needed = f"{_shown(path)}: with this file, {self._bytes} bytes are to be written"
            raise TooLarge(f"{needed}, but {self._max_bytes} are free on the disk")


def explained_elements(settings: ClientSettings, size: int) -> int:
    """Return how many elements of lists this number of bytes explains."""
    return settings.max_entries + size // _EXPLAINED_BYTES


def _shown(path: str) -> str:
    return printable(path, 1000)
