"""Listings of a folder and its attributes (protocol section 7), proven to be complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coregw._core import Attributes, Cid, decode_attributes
from coregw.client.opened.cache import WeighedCache
from coregw.client.operations.folder_diff import REMEMBERED_BYTES
from coregw.client.query import map_proof
from coregw.client.sync import Client
from coregw.folders.attributes import ATTRIBUTES_PATH, FolderEntry, attributes_root, join_folder

__all__ = ["Records", "decoded_record", "folder_level", "folder_record", "folder_tree"]


def folder_record(client: Client, root: str, path: Sequence[str]) -> Attributes | None:
    """Return what is recorded of one path of a folder; None if that is nothing. Two requests.

    Raises:
        ProofError: An answer is not proven.
    """
    known = _attributes_map(client, root)
    target = client.query(map_proof(known, path)).value if known is not None else None
    return None if target is None else decoded_record(client, target)


def folder_tree(client: Client, root: str, prefix: Sequence[str] = ()) -> Iterator[FolderEntry]:
    """Yield every path of one map at and below `prefix`, in key order. Nested maps are not followed. O(entries).

    Raises:
        InvalidInput: The folder's two maps contradict each other (code ``invalid_path``).
        ProofError: An answer is not proven.
    """
    known = _attributes_map(client, root)
    records, listed = Records(client), client.entries(known, prefix) if known is not None else ()
    decoded = ((segments, records.get(target)) for segments, target in listed)
    return join_folder(client.entries(root, prefix), decoded)


def folder_level(client: Client, root: str, prefix: Sequence[str] = ()) -> Iterator[FolderEntry]:
    """Yield one level of a folder, by name; a folder that only has other paths below it has no attributes.

    O(entries of the level), whatever is below it. If `prefix` is itself a file, that comes first, and alone has the
    path `prefix`.

    Raises:
        InvalidInput: The folder's two maps contradict each other (code ``invalid_path``).
        ProofError: An answer is not proven.
    """
    base = tuple(prefix)
    known = _attributes_map(client, root)
    own = client.query(map_proof(known, base)).value if known is not None and base else None
    shared = Records(client)
    records: dict[str, Attributes] = {}
    folders: set[str] = set()
    listing = client.children(known, prefix) if known is not None else iter(())
    if own is not None:
        next(listing)  # the prefix's own record
    for entry in listing:
        if entry.target is None:
            folders.add(entry.name)
        else:
            records[entry.name] = shared.get(entry.target)
    files: dict[str, str] = {}
    for entry in client.children(root, prefix):
        if entry.target is None:
            folders.add(entry.name)
        else:
            files[entry.name] = entry.target
    if not base and not _has_more_than_attributes(client, root, files):
        folders.discard(ATTRIBUTES_PATH[0])
    for name in sorted(files.keys() | records.keys() | folders):
        path = (*base, name)
        if name not in files and name not in records:
            yield FolderEntry(path, "folder", None, None)
            continue
        targets = [(path, files[name])] if name in files else []
        yield from join_folder(targets, [(path, records[name])] if name in records else [])


def _has_more_than_attributes(client: Client, root: str, files: dict[str, str]) -> bool:
    """Whether the reserved folder has something beside the map of attributes."""
    if ATTRIBUTES_PATH[0] in files:
        return True
    return any(tuple(leaf.segments) != ATTRIBUTES_PATH for leaf in client.entries(root, ATTRIBUTES_PATH[:1]))


def _attributes_map(client: Client, root: str) -> str | None:
    return attributes_root(root, client.query(map_proof(root, ATTRIBUTES_PATH)).value)


class Records:
    """Records of attributes, which many paths may share: each is fetched and kept once, as long as it is remembered.

    Args:
        client: The client to fetch with.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: WeighedCache[Attributes] = WeighedCache(REMEMBERED_BYTES)

    def get(self, target: str) -> Attributes:
        """Return the attributes that a target of a map of attributes names."""
        found = self._known.get(target)
        if found is None:
            payload = None if Cid(target).hash_name == "identity" else self._client.get_payload(target)
            found = decode_attributes(target, payload)
            if payload is not None:
                self._known.put(target, found, len(payload))
        return found


def decoded_record(client: Client, target: str) -> Attributes:
    """Return the attributes that a target of a map of attributes names. A record that is a payload is fetched."""
    return Records(client).get(target)
