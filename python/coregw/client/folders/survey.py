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
from typing import BinaryIO, NamedTuple

from coregw.client.exchange import printable
from coregw.client.files import FileState
from coregw.client.settings import MIB
from coregw.errors import InvalidInput

__all__ = ["CHUNK_BYTES", "ChunkReader", "SkipFile", "Skipped", "Source", "Survey", "display_name", "survey"]

CHUNK_BYTES = MIB
_MAX_PATH_BYTES = 4096
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class Source(NamedTuple):
    """A regular file: its location, its path in the map, and its size in bytes when it was found."""

    file: Path
    path: str
    size: int


class Skipped(NamedTuple):
    """A file or folder that is not added, and the reason."""

    file: Path
    why: str


class SkipFile(Exception):
    """Raised for a file that can't be added; it is reported, and the others are added."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(file, why)
        self.skipped = Skipped(file, why)


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
                found.skipped.append(Skipped(file, _why(error)))
    return found


def _entries(folder: Path, top: Path, found: Survey) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as listing:
            yield from sorted(listing, key=lambda entry: entry.name)
    except OSError as error:
        if folder == top:
            raise
        found.skipped.append(Skipped(folder, _why(error)))


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


class ChunkReader:
    """Reads one file in chunks, and detects whether it changed meanwhile. Blocking; call `close` at the end."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._file: BinaryIO | None = None
        self._before: FileState | None = None

    def read(self) -> bytes:
        """Return the next chunk: `CHUNK_BYTES` bytes, fewer at the end. The first call opens the file.

        Raises:
            SkipFile: The file can't be opened or read, is gone, or is no longer a regular file.
        """
        try:
            if self._file is None:
                self._file = self._open()
            return self._file.read(CHUNK_BYTES)
        except OSError as error:
            raise SkipFile(self._source.file, _why(error)) from None

    def has_changed(self) -> bool:
        """Return whether the file changed since it was opened, so that the chunks may mix versions."""
        return self._file is not None and FileState(self._file.fileno()) != self._before

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> BinaryIO:
        descriptor = os.open(self._source.file, _OPEN_FLAGS)
        self._before = FileState(descriptor)
        if not stat.S_ISREG(self._before.mode):
            os.close(descriptor)
            raise SkipFile(self._source.file, "not a regular file")
        return os.fdopen(descriptor, "rb")


def display_name(file: Path) -> str:
    """Return a file's name for messages, with escapes for control characters and bytes that are not UTF-8."""
    return printable(os.fsencode(file).decode("utf-8", "backslashreplace"), _MAX_PATH_BYTES)


def _why(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "a symbolic link"
    return (error.strerror or type(error).__name__).lower()
