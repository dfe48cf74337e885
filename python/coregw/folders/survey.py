"""A survey of a folder: its regular files with their paths in the map, and what is skipped and why.

Symbolic links are never followed, so a folder can't refer to files outside itself. File names become path segments
unchanged; a name that is not UTF-8 is an error, as the protocol has no other text.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from coregw.errors import InvalidInput
from coregw.text import display_name

__all__ = ["CHUNK_BYTES", "Skipped", "Source", "Survey", "survey", "why_unreadable"]

CHUNK_BYTES = 1 << 20
"""The size of a chunk of a file; a file of at most this size is one payload."""

_MAX_PATH_BYTES = 4096


class Source(NamedTuple):
    """A regular file: its location, its path in the map, and its size in bytes when it was found."""

    file: Path
    path: str
    size: int


class Skipped(NamedTuple):
    """A file or folder that is not added, and the reason."""

    file: Path
    why: str


@dataclass(slots=True)
class Survey:
    """The files of a folder, in the order of names within each folder, and what was skipped."""

    sources: list[Source] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def total_bytes(self) -> int:
        """The sum of the files' sizes when they were found."""
        return sum(source.size for source in self.sources)


def survey(top: Path, ignored_folders: Collection[str] = ()) -> Survey:
    """Walk a folder. A single file is surveyed too; its path is its name.

    Args:
        top: The folder or file. If it is a symbolic link it is followed, unlike links inside it.
        ignored_folders: Names of folders that are not entered, at any depth, and not reported as skipped.

    Raises:
        InvalidInput: A name is not UTF-8, or a path exceeds 4,096 bytes (code ``invalid_path``); the message names the
            file. Or `top` is neither a folder nor a regular file.
        OSError: `top` itself can't be read.
    """
    found = Survey()
    status = top.stat()
    if stat.S_ISREG(status.st_mode):
        path = _path([_segment(Path(top.name or os.fspath(top)))], top)
        # Resolved, because the file is opened without following symbolic links.
        found.sources.append(Source(top.resolve(), path, status.st_size))
        return found
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidInput(f"{display_name(top)}: neither a folder nor a regular file")
    pending: list[tuple[Path, list[str]]] = [(top, [])]
    while pending:
        folder, above = pending.pop()
        for entry in _entries(folder, top, found):
            file = Path(entry.path)
            segments = [*above, _segment(file)]
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in ignored_folders:
                        pending.append((file, segments))
                elif entry.is_file(follow_symlinks=False):
                    found.sources.append(Source(file, _path(segments, file), entry.stat(follow_symlinks=False).st_size))
                else:
                    why = "a symbolic link" if entry.is_symlink() else "not a regular file"
                    found.skipped.append(Skipped(file, why))
            except OSError as error:
                found.skipped.append(Skipped(file, why_unreadable(error)))
    return found


def _entries(folder: Path, top: Path, found: Survey) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            yield from sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        if folder == top:
            raise
        found.skipped.append(Skipped(folder, why_unreadable(error)))


def _segment(file: Path) -> str:
    try:
        file.name.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"{display_name(file)}: the name is not UTF-8", code="invalid_path") from None
    return file.name


def _path(segments: list[str], file: Path) -> str:
    path = "/".join(segments)
    if len(path.encode()) > _MAX_PATH_BYTES:
        raise InvalidInput(
            f"{display_name(file)}: the path is longer than {_MAX_PATH_BYTES} bytes", code="invalid_path"
        )
    return path


def why_unreadable(error: OSError) -> str:
    """Return the reason why a file or folder was skipped."""
    if error.errno == errno.ELOOP:
        return "a symbolic link"
    return (error.strerror or type(error).__name__).lower()
