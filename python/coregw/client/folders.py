"""What of a folder can be added: its regular files with their names as paths, and what is skipped and why.

Reads the disk and nothing else: sending is ``adding``. Symbolic links are never followed, so a folder can't lead
outside itself. Names become segments as they are; the protocol knows only UTF-8, so other names are errors.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

from coregw.client.payloads import FileState
from coregw.client.settings import MIB
from coregw.client.wire import printable
from coregw.errors import InvalidInput

__all__ = ["CHUNK_BYTES", "ChunkReader", "Skip", "Skipped", "Source", "Survey", "shown", "survey"]

CHUNK_BYTES = MIB
_MAX_PATH_BYTES = 4096
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class Source(NamedTuple):
    """A regular file: where it is, its path in the map, and its size in bytes when it was found."""

    file: Path
    path: str
    size: int


class Skipped(NamedTuple):
    """Something that is not added, and why not."""

    file: Path
    why: str


class Skip(Exception):
    """A file can't be added, which is named and does not stop the rest."""

    def __init__(self, file: Path, why: str) -> None:
        super().__init__(file, why)
        self.skipped = Skipped(file, why)


@dataclass(slots=True)
class Survey:
    """What a walk found, in the order of names within each folder."""

    sources: list[Source] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def total_bytes(self) -> int:
        """The sum of the files' sizes when they were found."""
        return sum(source.size for source in self.sources)


def survey(top: Path, leave_out: Collection[str] = ()) -> Survey:
    """Walks a folder, or takes a single file, whose path is then its name.

    Args:
        top: The folder or file. A symbolic link is followed here, and only here.
        leave_out: Names of folders that are not entered, wherever they are, and not counted as skipped.

    Raises:
        InvalidInput: A name that is not UTF-8, or a path past 4,096 bytes, naming the file (code ``invalid_path``);
            or `top` is neither a folder nor a regular file.
        OSError: `top` itself can't be read.
    """
    found = Survey()
    mode = top.stat().st_mode
    if stat.S_ISREG(mode):
        path = _path([_segment(Path(top.name or os.fspath(top)))], top)
        # By its real name: whoever opens it follows no symbolic link.
        found.sources.append(Source(top.resolve(), path, top.stat().st_size))
        return found
    if not stat.S_ISDIR(mode):
        raise InvalidInput(f"{shown(top)}: neither a folder nor a regular file")
    pending: list[tuple[Path, list[str]]] = [(top, [])]
    while pending:
        folder, above = pending.pop()
        for entry in _listed(folder, top, found):
            file = Path(entry.path)
            segments = [*above, _segment(file)]
            try:
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in leave_out:
                        pending.append((file, segments))
                elif entry.is_file(follow_symlinks=False):
                    found.sources.append(Source(file, _path(segments, file), entry.stat(follow_symlinks=False).st_size))
                else:
                    found.skipped.append(Skipped(file, "a symbolic link" if entry.is_symlink() else "no regular file"))
            except OSError as error:
                found.skipped.append(Skipped(file, _why(error)))
    return found


def _listed(folder: Path, top: Path, found: Survey) -> Iterator[os.DirEntry[str]]:
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
        raise InvalidInput(f"{shown(file)}: the name is not UTF-8", code="invalid_path") from None
    return file.name


def _path(segments: list[str], file: Path) -> str:
    path = "/".join(segments)
    if len(path.encode()) > _MAX_PATH_BYTES:
        raise InvalidInput(f"{shown(file)}: the path is longer than {_MAX_PATH_BYTES} bytes", code="invalid_path")
    return path


class ChunkReader:
    """Reads one file in chunks, and says whether it changed meanwhile. Blocking; close it.

    Raises:
        Skip: From `read`: the file can't be opened or read, is gone, or is no regular file any more.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._file: BinaryIO | None = None
        self._before: FileState | None = None

    def read(self) -> bytes:
        """The next chunk: of `CHUNK_BYTES`, or shorter at the end. Opens the file at the first call."""
        try:
            if self._file is None:
                self._file = self._opened()
            return self._file.read(CHUNK_BYTES)
        except OSError as error:
            raise Skip(self._source.file, _why(error)) from None

    def changed(self) -> bool:
        """Whether the file is another than when it was opened, so that the chunks may be of no one version."""
        return self._file is not None and FileState(self._file.fileno()) != self._before

    def close(self) -> None:
        """Closes the file, if it was opened."""
        if self._file is not None:
            self._file.close()

    def _opened(self) -> BinaryIO:
        descriptor = os.open(self._source.file, _OPEN_FLAGS)
        self._before = FileState(descriptor)
        if not stat.S_ISREG(self._before.mode):
            os.close(descriptor)
            raise Skip(self._source.file, "no regular file")
        return os.fdopen(descriptor, "rb")


def shown(file: Path) -> str:
    """A file's name for people: bytes that are no UTF-8 and control characters as escapes."""
    return printable(os.fsencode(file).decode("utf-8", "backslashreplace"), _MAX_PATH_BYTES)


def _why(error: OSError) -> str:
    if error.errno == errno.ELOOP:
        return "a symbolic link"
    return (error.strerror or type(error).__name__).lower()
