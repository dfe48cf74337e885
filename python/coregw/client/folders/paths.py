"""Paths of a folder, resolved through maps and links, and the listing of one level."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from coregw._core import Attributes, Cid, decode_attributes
from coregw.client.file_ranges import WeighedCache
from coregw.client.operations.diff import REMEMBERED_BYTES
from coregw.client.query import map_proof
from coregw.client.sync import Client
from coregw.errors import InvalidInput
from coregw.folders.tree import ATTRIBUTES_PATH, RESERVED_NAME, FolderEntry, attributes_root, join_folder
from coregw.text import printable

__all__ = ["Place", "Places", "Records", "decoded_record", "folder_level", "folder_record", "folder_tree"]


def folder_record(client: Client, root: str, path: Sequence[str]) -> Attributes | None:
    """Return what is recorded of one path of a folder, or without a path of the folder itself. Two requests.

    Returns:
        None if nothing is recorded.

    Raises:
        InvalidInput: A record contradicts the path (code ``invalid_path``).
        ProofError: An answer is not proven.
    """
    key = _record_key(tuple(path))
    known = _attributes_map(client, root) if key is not None else None
    target = client.query(map_proof(known, key)).value if known is not None and key is not None else None
    return None if target is None else _checked(tuple(path), decoded_record(client, target))


def _record_key(path: Path) -> Path | None:
    """Return where a map of attributes has the record of a path; None if it can have none."""
    return None if path == _TOP_RECORD else path or _TOP_RECORD


def _checked(path: Path, record: Attributes) -> Attributes:
    if not path and record.kind != "folder":
        raise InvalidInput(f"{RESERVED_NAME}: it is reserved for the record of the folder itself", code="invalid_path")
    return record


def folder_tree(client: Client, root: str, prefix: Sequence[str] = ()) -> Iterator[FolderEntry]:
    """Yield every path of one map at and below `prefix`, in key order. Nested maps are not followed. O(entries).

    The folder itself is not among them, whether anything is recorded of it or not; see `folder_record`.

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
    if not base and RESERVED_NAME in records:
        path: Path = (RESERVED_NAME,)
        own_files = [(path, files[RESERVED_NAME])] if RESERVED_NAME in files else []
        list(join_folder(own_files, [(path, records.pop(RESERVED_NAME))]))  # raises if it is not that of the folder
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


_MAX_LINKS: Final = 40

_MAX_PLACES: Final = 100_000

_PARENT: Final = ".."

_TOP_RECORD: Final = (RESERVED_NAME,)
"""Where a map of attributes has the record of the folder itself."""

Path = tuple[str, ...]


class Place(NamedTuple):
    """What a path leads to, all of it proven.

    Attributes:
        map: The map that has the path; empty if the root is a file.
        inside: The path in that map.
        target: What the map binds to it; the root of a nested map has no path. None for a folder, or if it is absent.
        record: What is recorded of a path that has no target: a folder, or a symbolic link that leads nowhere.
        attributes: The map of attributes that belongs to `map`, if there is one.
        is_link: Whether the last name of the path is a symbolic link's.
        depth: How many maps `map` is nested in.
    """

    map: str
    inside: Path
    target: str | None
    record: Attributes | None
    attributes: str | None
    is_link: bool = False
    depth: int = 0


class Places:
    """Looks paths up, and remembers up to 100,000 of them. Safe to share between threads.

    Args:
        client: The client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: WeighedCache[Place] = WeighedCache(_MAX_PLACES)
        self._shared = Records(client)

    def find(self, root: Cid, path: Path) -> Place:
        """Return where a path leads. One request for each nested map that is not known; two more if there is no file.

        Raises:
            InvalidInput: Maps nest deeper than ``max_nesting``.
            OSError: There are too many symbolic links (``ELOOP``).
            ProofError, RootNotFound, Unavailable: As a client.
        """
        place = self._known.get((root.text, path))
        if place is None:
            place = self._found(root, path)
            self._known.put((root.text, path), place, 1)
        return place

    def find_files(self, root: Cid, paths: Iterable[Path]) -> None:
        """Look the files among many paths up with one request for about 4,000 of them, for `find`."""
        unknown = [path for path in paths if path and self._known.get((root.text, path)) is None]
        if root.kind != "map" or len(unknown) < 2:
            return
        *targets, known = self._client.prove_keys(root, [*unknown, ATTRIBUTES_PATH])
        records = attributes_root(root, known)
        for path, target in zip(unknown, targets, strict=True):
            if target is not None and Cid(target).kind != "map":
                self._known.put((root.text, path), Place(root.text, path, target, None, records), 1)

    def record(self, place: Place) -> Attributes | None:
        """Return what is recorded of the path of a place, or of the map that it is. At most one request."""
        if place.record is not None or place.attributes is None:
            return place.record
        return self._records(place.attributes, [place.inside]).get(place.inside)

    def _found(self, root: Cid, path: Path) -> Place:
        is_link = False
        for _ in range(_MAX_LINKS):
            found = self._resolved(root, path)
            if isinstance(found, Place):
                is_link |= found.record is not None and found.record.link is not None
                return found._replace(is_link=is_link)
            path, is_last = found
            is_link |= is_last
        raise OSError(errno.ELOOP, "too many symbolic links", printable("/".join(path)))

    def _resolved(self, root: Cid, path: Path) -> Place | tuple[Path, bool]:
        """Return where a path leads, or the path that the first link stands for, and whether that is its last name."""
        here, above, depth = self._nearest(root, path)
        while True:
            below = path[len(above) :]
            if here.kind != "map":
                return Place("", (), None if below else here.text, None, None, depth=depth)
            if depth > self._client.settings.max_nesting:
                limit = self._client.settings.max_nesting
                raise InvalidInput(f"{printable('/'.join(above))}: maps nest deeper than {limit}")
            prefixes = [below[:count] for count in range(1, len(below) + 1)]
            *targets, known = self._client.prove_keys(here, [*prefixes, ATTRIBUTES_PATH])
            records = attributes_root(here, known)
            top = Place(here.text, (), None, None, records, depth=depth)
            self._known.put((root.text, above), top, 1)
            if not below:
                return top
            held = [(prefix, target) for prefix, target in zip(prefixes, targets, strict=True) if target is not None]
            # The longest path to a map counts: what its parent has below that path has files of its own names.
            nested = [(prefix, cid) for prefix, target in held if (cid := Cid(target)).kind == "map"]
            if held and held[-1][0] == below and not (nested and nested[-1][0] == below):
                return Place(here.text, below, held[-1][1], None, records, depth=depth)
            if not nested:
                break
            here, above, depth = nested[-1][1], above + nested[-1][0], depth + 1
        recorded = self._records(records, prefixes) if records is not None else {}
        for prefix in prefixes:
            link = recorded[prefix].link if prefix in recorded else None
            if link is not None and (led := _followed((*above, *prefix[:-1]), link, below[len(prefix) :])) is not None:
                return led, prefix == below
        return Place(here.text, below, None, recorded.get(below), records, depth=depth)

    def _nearest(self, root: Cid, path: Path) -> tuple[Cid, Path, int]:
        """Return the nearest map that is known to have a path, its own path, and how many maps it is nested in."""
        for count in range(len(path), 0, -1):
            known = self._known.get((root.text, path[:count]))
            if known is not None and known.map and not known.inside and not known.is_link:
                return Cid(known.map), path[:count], known.depth
        return root, (), 0

    def _records(self, attributes: str, paths: Sequence[Path]) -> Mapping[Path, Attributes]:
        keys = {path: key for path in paths if (key := _record_key(path)) is not None}
        if not keys:
            return {}
        found: dict[Path, Attributes] = {}
        for path, target in zip(keys, self._client.prove_keys(attributes, [*keys.values()]), strict=True):
            if target is not None:
                found[path] = _checked(path, self._shared.get(target))
        return found


def _followed(folder: Path, link: bytes, rest: Path) -> Path | None:
    """Return the path that a link in a folder stands for, or None if it leads out of the root."""
    at = [*folder]
    text = os.fsdecode(link)
    for name in () if text.startswith("/") else text.split("/"):
        if name == _PARENT:
            if not at:
                return None
            at.pop()
        elif name not in ("", "."):
            at.append(name)
    return None if text.startswith("/") else (*at, *rest)
