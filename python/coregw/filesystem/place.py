"""Resolution of a folder's paths: proven lookups through nested maps and symbolic links, and proven absence."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from coregw._core import Attributes, Cid, decode_attributes
from coregw.client import Client
from coregw.client.opened.cache import WeighedCache
from coregw.folders.attributes import ATTRIBUTES_PATH, attributes_root
from coregw.text import printable

__all__ = ["Place", "Places"]

_MAX_LINKS: Final = 40
_MAX_PLACES: Final = 100_000
_PARENT: Final = ".."

Path = tuple[str, ...]


class Place(NamedTuple):
    """What a path leads to, all of it proven.

    Attributes:
        map: The map that has the path; empty if the root is a file.
        inside: The path in that map.
        target: What the map binds to it; the root of a nested map has no path. None for a folder, or if it is absent.
        record: What is recorded of a path that has no target: a folder, or a symbolic link that leads nowhere.
        attributes: The map of attributes that belongs to `map`, if there is one.
    """

    map: str
    inside: Path
    target: str | None
    record: Attributes | None
    attributes: str | None


class Places:
    """Looks paths up, and remembers up to 100,000 of them. Safe to share between threads.

    Args:
        client: The client.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: WeighedCache[Place] = WeighedCache(_MAX_PLACES)

    def find(self, root: Cid, path: Path) -> Place:
        """Return where a path leads. One request for each nested map, two more where there is no file.

        Raises:
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
        """Return what is recorded of the path of a place. At most one request."""
        if place.record is not None or place.attributes is None or not place.inside:
            return place.record
        return self._records(place.attributes, [place.inside]).get(place.inside)

    def _found(self, root: Cid, path: Path) -> Place:
        for _ in range(_MAX_LINKS):
            found = self._step(root, (), path)
            if isinstance(found, Place):
                return found
            path = found
        raise OSError(errno.ELOOP, "too many symbolic links", printable("/".join(path)))

    def _step(self, root: Cid, outside: Path, path: Path) -> Place | Path:
        """Return where a path of a map leads, or the other path that a link on it stands for."""
        if root.kind != "map":
            return Place("", (), root.text if not path else None, None, None)
        prefixes = [path[:count] for count in range(1, len(path) + 1)]
        *targets, known = self._client.prove_keys(root, [*prefixes, ATTRIBUTES_PATH])
        records = attributes_root(root, known)
        if not path:
            return Place(root.text, (), None, None, records)
        for count in range(len(path), 0, -1):
            target = targets[count - 1]
            if target is None:
                continue
            cid = Cid(target)
            if cid.kind == "map":
                # The longest path to a map counts: what its parent has below that path has files of its own names.
                return self._step(cid, (*outside, *path[:count]), path[count:])
            if count == len(path):
                return Place(root.text, path, target, None, records)
        recorded = self._records(records, prefixes) if records is not None else {}
        for prefix in prefixes:
            link = recorded[prefix].link if prefix in recorded else None
            if link is not None and (led := _followed((*outside, *prefix[:-1]), link, path[len(prefix) :])) is not None:
                return led
        return Place(root.text, path, None, recorded.get(path), records)

    def _records(self, attributes: str, paths: Sequence[Path]) -> Mapping[Path, Attributes]:
        found: dict[Path, Attributes] = {}
        for path, target in zip(paths, self._client.prove_keys(attributes, paths), strict=True):
            if target is not None:
                payload = None if Cid(target).hash_name == "identity" else self._client.get_payload(target)
                found[path] = decode_attributes(target, payload)
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
