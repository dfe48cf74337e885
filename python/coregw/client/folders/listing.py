"""The complete, proven listing of a folder: its files, links and folders, with their attributes and payloads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from coregw import _core
from coregw.client.folders.parallel import for_each
from coregw.client.folders.source import PayloadSource
from coregw.client.operations.tree import Leaf
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


@dataclass(frozen=True, slots=True)
class PlannedFile:
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
        for entry in await _list_map(client, here, len(found)):
            placed = entry._replace(segments=outside + entry.segments) if outside else entry
            found.append(placed)
            if entry.kind == "map" and entry.target is not None:
                pending.append((placed.segments, entry.target, depth + 1))
    return found


async def _list_map(client: PayloadSource, root: str, known: int) -> Iterable[FolderEntry]:
    """List one map with its attributes; `known` entries are listed already."""
    files = await _entries(client, root, known)
    bound = next((leaf.target for leaf in files if tuple(leaf.segments) == ATTRIBUTES_PATH), None)
    records_root = attributes_root(root, bound)
    if records_root is None:
        return join_folder(files, ())
    records = [
        (leaf.segments, await _attributes(client, leaf))
        for leaf in await _entries(client, records_root, known + len(files))
    ]
    return join_folder(files, records)


async def _entries(client: PayloadSource, root: str, known: int) -> list[Leaf]:
    leaves: list[Leaf] = []
    async with aclosing(client.entries(root)) as found:
        async for leaf in found:
            leaves.append(leaf)
            if known + len(leaves) > client.settings.max_entries:
                raise TooLarge(f"the tree has more than {client.settings.max_entries} entries")
    return leaves


async def _attributes(client: PayloadSource, leaf: Leaf) -> Attributes:
    cid = _core.Cid(leaf.target)
    try:
        return decode_attributes(cid, None if cid.hash_name == "identity" else await client.get_payload(cid))
    except InvalidInput as error:
        path = printable("/".join(leaf.segments), 1000)
        raise InvalidInput(f"the attributes of {path}: {error.message}", code=error.code) from None


async def list_parts(client: PayloadSource, entries: Iterable[FolderEntry]) -> list[PlannedFile]:
    """Return the payloads of every file. One request for each list of at most 8,000 chunks.

    Raises:
        InvalidInput: A target is not a file (code ``kind_mismatch``).
        ProofError: A list is not proven.
    """
    files = [entry for entry in entries if entry.kind == "file" and entry.target is not None]
    parts: dict[tuple[str, ...], Sequence[Part]] = {}

    async def expand(entry: FolderEntry) -> None:
        parts[entry.segments] = await _list_of(client, entry)

    await for_each(
        [entry for entry in files if _core.Cid(entry.target or "").kind == "list"], expand, _CONCURRENT_LISTS
    )
    return [
        PlannedFile(entry.segments, entry.target or "", parts.get(entry.segments) or _single(entry), entry.attributes)
        for entry in files
    ]


def _single(entry: FolderEntry) -> list[Part]:
    return [(entry.target or "", None if entry.attributes is None else entry.attributes.size)]


async def _list_of(client: PayloadSource, entry: FolderEntry) -> list[Part]:
    """Return the elements of a list of payloads, and check their sum against the recorded size."""
    elements = await client.list_elements(entry.target or "")
    total = sum(size for _, size in elements)
    if entry.attributes is not None and entry.attributes.size not in (None, total):
        path = printable("/".join(entry.segments), 1000)
        raise InvalidInput(f"{path}: recorded with {entry.attributes.size} bytes, but its list has {total}")
    return list(elements)
