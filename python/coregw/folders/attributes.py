"""Folders as maps (protocol section 7): the two listings of a folder joined into one, and checked.

The folder's map has the files; a second map, bound to `ATTRIBUTES_PATH` in it, has what is known of each path. Symbolic
links and empty folders are in the second one alone. `encode_attributes` and `decode_attributes` are its codec.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from coregw import _core
from coregw._core import Attributes, Cid, decode_attributes, encode_attributes
from coregw.errors import InvalidInput

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
    return map(FolderEntry._make, _core.join_folder(files, records))
