"""The root of a folder, computed offline: the one that ``coregw add`` gives (docs/decisions/0031)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from coregw import _core
from coregw.errors import Conflict, InvalidInput, ProofError
from coregw.folders.survey import Skipped, Source, Survey, survey, why_unreadable
from coregw.text import display_name

__all__ = ["HashedTree", "hash_survey", "hash_tree", "verify_tree"]

_FILES_AT_ONCE = 1024
"""Files in one call of the extension: enough to keep all cores busy, few enough for progress."""
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HashedTree:
    """The result of `hash_survey`.

    Attributes:
        root: The root of the map.
        arcs: The target of every file's path.
        bytes: Total size of all files.
        skipped: What was left out, and why.
    """

    root: str
    arcs: dict[str, str]
    bytes: int
    skipped: list[Skipped]


def hash_survey(
    found: Survey, suite: str = "sha2-256", progress: Callable[[int], None] = lambda count: None
) -> HashedTree:
    """Hash the files of a survey on all cores, and return their map's root.

    O(bytes). Each core holds at most 1 MiB of a file in memory.

    Args:
        found: The files.
        suite: The suite of the map and of the lists: ``sha2-256`` or ``blake3``.
        progress: Called with the number of bytes of files that were hashed.

    Raises:
        Conflict: A file kept changing while it was read.
        InvalidInput: The suite is unknown.
    """
    arcs: dict[str, str] = {}
    skipped = [*found.skipped]
    total = 0
    for sources in _batches(found.sources, _FILES_AT_ONCE):
        for source, hashed in zip(sources, _core.hash_files([source.file for source in sources], suite), strict=True):
            if hashed.target is None:
                skipped.append(Skipped(source.file, _why(source, hashed.failure)))
            else:
                arcs[source.path] = hashed.target
                total += hashed.size
                progress(hashed.size)
    return HashedTree(_core.Map(arcs, suite).root, arcs, total, skipped)


def hash_tree(path: str | os.PathLike[str], suite: str = "sha2-256") -> str:
    """Return the root that ``coregw add`` gives a folder or a file, without a gateway.

    O(bytes), on all cores, with the GIL released. The root is that of the map from the paths of all regular files to
    their payloads, or to lists of 1 MiB payloads for longer files; a single file has its name as its path. Symbolic
    links, special files, and files that cannot be read are left out, as by ``coregw add``.

    Args:
        path: The folder or file.
        suite: The hash function of the trees: ``sha2-256`` or ``blake3``.

    Raises:
        Conflict: A file kept changing while it was read.
        InvalidInput: A name is not UTF-8 or a path too long (code ``invalid_path``; the message names the file),
            `path` is neither a folder nor a regular file, or the suite is unknown.
        OSError: `path` itself, or the single file, cannot be read.

    >>> import coregw, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "readme").write_bytes(b"hello")
    ...     root = coregw.hash_tree(folder)
    >>> root == coregw.Map({"readme": coregw.payload_cid(b"hello")}).root
    True
    """
    return _hash_all(Path(path), suite).root


def verify_tree(root: str | bytes | _core.Cid, path: str | os.PathLike[str]) -> None:
    """Check, without a gateway, that a folder or file is the one that a trusted root names.

    O(bytes), on all cores. The root commits to every regular file's path and bytes, and to there being no others; not
    to symbolic links, special files, empty folders, modes and times.

    Args:
        root: The trusted root: a map's, as ``coregw add`` and `hash_tree` return it.
        path: The folder or file.

    Raises:
        ProofError: The folder has another root. The message says which.
        Conflict: A file kept changing while it was read.
        InvalidInput: `root` is not the root of a map (code ``kind_mismatch``), or as `hash_tree`.
        OSError: As `hash_tree`.

    >>> import coregw, tempfile
    >>> root = coregw.Map({"readme": coregw.payload_cid(b"hello")}).root
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "readme").write_bytes(b"hello")
    ...     coregw.verify_tree(root, folder)
    """
    cid = _core.Cid(root)
    if cid.kind != "map" or cid.suite is None:
        raise InvalidInput(f"root: {cid.text} is not the root of a map", code="kind_mismatch")
    found = _hash_all(Path(path), cid.suite).root
    if found != cid.text:
        raise ProofError(f"{display_name(Path(path))} has the root {found}, not {cid.text}", check="root")


def _hash_all(path: Path, suite: str) -> HashedTree:
    hashed = hash_survey(survey(path), suite)
    if hashed.skipped and not path.is_dir():
        raise OSError(f"{display_name(path)}: {hashed.skipped[0].why}")
    return hashed


def _why(source: Source, failure: int | str | None) -> str:
    """Return why a file was left out; raise `Conflict` if it kept changing."""
    if failure == "changing":
        raise Conflict(f"{display_name(source.file)}: changed each of the times that it was read")
    return why_unreadable(OSError(failure, os.strerror(failure))) if isinstance(failure, int) else str(failure)


def _batches(items: list[_T], size: int) -> Iterator[list[_T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
