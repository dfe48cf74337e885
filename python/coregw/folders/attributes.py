"""Folders as maps (protocol section 7): the two listings of a folder joined into one, and checked.

The folder's map has the files; a second map, bound to `ATTRIBUTES_PATH` in it, has what is known of each path. Symbolic
links and empty folders are in the second one alone. `encode_attributes` and `decode_attributes` are its codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from coregw._core import Attributes, Cid, decode_attributes, encode_attributes
from coregw.errors import InvalidInput
from coregw.text import printable

__all__ = [
    "ATTRIBUTES_PATH",
    "RESERVED_NAME",
    "Attributes",
    "FolderEntry",
    "attributes_root",
    "decode_attributes",
    "encode_attributes",
    "join_folder",
]

ATTRIBUTES_PATH = (".coregw", "attributes")
"""The reserved path of a folder's map whose target is the map of attributes."""

RESERVED_NAME = ".coregw"
"""A file or folder of this name in the top folder is never added."""


class FolderEntry(NamedTuple):
    """A path of a folder, and what is known of it.

    Attributes:
        segments: The path.
        kind: What it is; a ``map`` is a nested map, a folder with attributes of its own.
        target: The target in the folder's map; None for a symbolic link or a folder.
        attributes: What is known of it; None if there is no record.
    """

    segments: tuple[str, ...]
    kind: Literal["file", "link", "folder", "map"]
    target: str | None
    attributes: Attributes | None


def attributes_root(root: str | bytes | Cid, target: str | None) -> str | None:
    """Return the root of a folder's map of attributes, given the target at the reserved path of the folder's map.

    Args:
        root: The folder's root.
        target: The target of `ATTRIBUTES_PATH`, or None if that path is proven absent.

    Raises:
        InvalidInput: The target is not a map, or not of the suite of `root` (code ``kind_mismatch``).
    """
    if target is None:
        return None
    cid = Cid(target)
    if cid.kind != "map" or cid.suite != Cid(root).suite:
        raise InvalidInput(
            f"{'/'.join(ATTRIBUTES_PATH)}: {cid.text} is not a map of the folder's suite", code="kind_mismatch"
        )
    return cid.text


def join_folder(
    files: Iterable[tuple[Iterable[str], str]], records: Iterable[tuple[Iterable[str], Attributes]]
) -> Iterator[FolderEntry]:
    """Join the listings of a folder's two maps. Yields every path once, in key order. O(entries), O(depth) memory.

    Args:
        files: Paths and targets of the folder's map, in key order, as it is listed. The reserved path is left out.
        records: Paths and attributes of the map of attributes, in key order.

    Raises:
        InvalidInput: A record contradicts the folder's map: a file's record without the file, another's with it, or
            something below a symbolic link (code ``invalid_path``). The message names the path.

    >>> link = decode_attributes(encode_attributes("link", link=b"go")[0])
    >>> [entry.kind for entry in join_folder([(["go"], "bafkqaaa")], [(["now"], link)])]
    ['file', 'link']
    """
    below_link: tuple[str, ...] | None = None
    for path, target, attributes in _merged(files, records):
        if below_link is not None and path[: len(below_link)] == below_link:
            raise _refused(path, "it is below a symbolic link")
        kind = _kind(path, target, attributes)
        below_link = path if kind == "link" else None
        yield FolderEntry(path, kind, target, attributes)


def _merged(
    files: Iterable[tuple[Iterable[str], str]], records: Iterable[tuple[Iterable[str], Attributes]]
) -> Iterator[tuple[tuple[str, ...], str | None, Attributes | None]]:
    # Tuples of segments sort as keys do: code points as their UTF-8, and a parent before what is below it.
    targets = ((tuple(path), target) for path, target in files)
    targets = ((path, target) for path, target in targets if path != ATTRIBUTES_PATH)
    known = ((tuple(path), attributes) for path, attributes in records)
    file, record = next(targets, None), next(known, None)
    while file is not None or record is not None:
        if record is None or (file is not None and file[0] < record[0]):
            assert file is not None  # noqa: S101 - for mypy
            yield *file, None
            file = next(targets, None)
        elif file is None or record[0] < file[0]:
            yield record[0], None, record[1]
            record = next(known, None)
        else:
            yield *file, record[1]
            file, record = next(targets, None), next(known, None)


def _kind(
    path: tuple[str, ...], target: str | None, attributes: Attributes | None
) -> Literal["file", "link", "folder", "map"]:
    if target is None:
        assert attributes is not None  # noqa: S101 - for mypy: a path comes from one listing at least
        if attributes.kind == "file":
            raise _refused(path, "it has a file's attributes, and no file")
        return attributes.kind
    if Cid(target).kind == "map":
        if attributes is not None and attributes.kind != "folder":
            raise _refused(path, f"it is a map with the attributes of a {attributes.kind}")
        return "map"
    if attributes is not None and attributes.kind != "file":
        raise _refused(path, f"it is a file with the attributes of a {attributes.kind}")
    return "file"


def _refused(path: tuple[str, ...], why: str) -> InvalidInput:
    return InvalidInput(f"{printable('/'.join(path), 1000)}: {why}", code="invalid_path")
