"""The complete, proven listing of a folder: its files, links and folders, with their attributes and payloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from coregw import _core
from coregw.client.folders.parallel import for_each
from coregw.client.folders.source import PayloadSource
from coregw.client.operations.tree import PAGE_ENTRIES, last_path
from coregw.errors import InvalidInput, TooLarge
from coregw.folders.attributes import (
    ATTRIBUTES_PATH,
    Attributes,
    FolderEntry,
    attributes_root,
    decode_attributes,
    join_folder,
)
from coregw.text import printable

__all__ = ["Part", "PlannedFile", "list_folder", "list_parts"]

Part = tuple[str, int | None]
"""A payload of a file and its size, if that is known."""

_CONCURRENT_LISTS = 8


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


async def list_folder(client: PayloadSource, root: _core.Cid) -> list[FolderEntry]:
    """Return every path of a folder, those of nested maps included, which follow their parents.

    Raises:
        InvalidInput: Maps nest deeper than ``max_nesting``, or the folder's two maps contradict each other.
        ProofError: A listing is not proven.
        TooLarge: There are more than ``max_entries`` entries.
    """
    found: list[FolderEntry] = []
    pending: list[tuple[tuple[str, ...], str, int]] = [((), root.text, 0)]
    while pending:
        outside, here, depth = pending.pop()
        if depth > client.settings.max_nesting:
            raise InvalidInput(f"{'/'.join(outside)!r}: maps nest deeper than {client.settings.max_nesting}")
        count = _Count(len(found), client.settings.max_entries)
        for entry in await _list_map(client, here, count):
            placed = entry._replace(segments=outside + entry.segments) if outside else entry
            found.append(placed)
            if entry.kind == "map" and entry.target is not None:
                pending.append((placed.segments, entry.target, depth + 1))
    return found


async def _list_map(client: PayloadSource, root: str, count: _Count) -> Iterable[FolderEntry]:
    """List one map with its attributes. A page of one is verified while the gateway works on a page of the other."""
    files = _Listing(client, root, count)
    await files.add_page()
    records_root = _records_root(files)
    if records_root is None:  # then it is not there, or a thousand names come before it
        await files.add_rest()
        records_root = _records_root(files)
    if records_root is None:
        return join_folder(files.arcs, ())
    listing = _Listing(client, records_root, count)
    records: list[tuple[list[str], Attributes]] = []

    async def add_records() -> None:
        while listing.has_more:
            for path, target in await listing.add_page():
                cid = _core.Cid(target)
                payload = None if cid.hash_name == "identity" else await client.get_payload(cid)
                records.append((path, _attributes(path, cid, payload)))

    await for_each([files.add_rest, add_records], lambda work: work(), 2)
    return join_folder(files.arcs, records)


@dataclass(slots=True)
class _Count:
    """Counts the entries that are listed."""

    listed: int
    limit: int

    def add(self, entries: int) -> None:
        self.listed += entries
        if self.listed > self.limit:
            raise TooLarge(f"the tree has more than {self.limit} entries")


class _Listing:
    """The entries of one map, listed page by page."""

    def __init__(self, client: PayloadSource, root: str, count: _Count) -> None:
        self.root = root
        self.arcs: list[tuple[list[str], str]] = []
        self.has_more = True
        self._client = client
        self._count = count
        self._after: list[str] | None = None

    async def add_page(self) -> list[tuple[list[str], str]]:
        """List the next page, and return what it has."""
        page = await self._client.scan(self.root, (), self._after, PAGE_ENTRIES)
        self._count.add(len(page.entries))
        self.arcs += page.entries
        self.has_more = page.more
        if page.more:
            self._after = last_path(page)
        return page.entries

    async def add_rest(self) -> None:
        """List the pages that follow."""
        while self.has_more:
            await self.add_page()


def _records_root(files: _Listing) -> str | None:
    """The root of a map's attributes, if their path is listed."""
    path = [*ATTRIBUTES_PATH]
    return attributes_root(files.root, next((target for segments, target in files.arcs if segments == path), None))


def _attributes(path: Sequence[str], cid: _core.Cid, payload: bytes | None) -> Attributes:
    try:
        return decode_attributes(cid, payload)
    except InvalidInput as error:
        shown = printable("/".join(path), 1000)
        raise InvalidInput(f"the attributes of {shown}: {error.message}", code=error.code) from None


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
        if parts := await _list_of(client, entry):
            planned[number] = planned[number]._replace(parts=parts)

    await for_each(lists, expand, _CONCURRENT_LISTS)
    return planned


async def _list_of(client: PayloadSource, entry: FolderEntry) -> list[Part]:
    """Return the elements of a list of payloads, and check their sum against the recorded size."""
    elements = await client.list_elements(entry.target or "")
    total = sum(size for _, size in elements)
    if entry.attributes is not None and entry.attributes.size not in (None, total):
        path = printable("/".join(entry.segments), 1000)
        raise InvalidInput(f"{path}: recorded with {entry.attributes.size} bytes, but its list has {total}")
    return list(elements)
