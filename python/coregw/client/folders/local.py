"""The files of a survey, hashed: their targets in the folder's map, and where the bytes of each payload are."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from coregw import _core
from coregw.folders.stat_cache import StatCache
from coregw.folders.survey import Skipped, Survey
from coregw.folders.tree import Recorded

__all__ = ["Content", "LocalFolder", "Part", "Stopped"]

_FILES_AT_ONCE: Final = 256
"""Files in one call of the extension: enough to keep all cores busy, few enough for progress and interruption."""

_T = TypeVar("_T")


class Source(NamedTuple):
    """A file of a survey: its location, its path in the map, and its place in the survey."""

    file: Path
    path: str
    place: int


Part = tuple[Path, int, int, str]
"""A payload: the file that it is in, its first byte, its length, and its CID."""


class Content(NamedTuple):
    """The bytes of a target: a file that has them, their number, and if known, their payloads with lengths."""

    file: Path
    size: int
    chunks: tuple[tuple[str, int], ...] | None

    def parts(self) -> Iterator[Part]:
        """The payloads. `chunks` must be known."""
        start = 0
        for cid, size in self.chunks or ():
            yield self.file, start, size, cid
            start += size


class Stopped(Exception):
    """Whoever has set `LocalFolder.is_stopped` does not want the result any more."""


class LocalFolder:
    """The files of a survey as they were read. Blocking; for one thread at a time.

    Reading files ends early, with `Stopped` or incomplete, if `is_stopped` is set meanwhile.

    Args:
        found: The files.
        suite: The suite of the map and of the lists.
        cache: What is known of the files.
        progress: Called with the number of bytes of files whose target is known.

    Attributes:
        arcs: The target of every file's path.
        contents: The bytes of each target.
        bytes: Total size of all files.
        skipped: What was left out, and why.
        cache: What is known of the files since the last time.
        is_stopped: Set when the result is not wanted any more.
    """

    def __init__(self, found: Survey, suite: str, cache: StatCache, progress: Callable[[int], None]) -> None:
        self.arcs: dict[str, str] = {}
        self.contents: dict[str, Content] = {}
        self.bytes = 0
        self.skipped = [Skipped(*each) for each in found.skipped]
        self.is_stopped: Final = threading.Event()
        self._found = found
        self._sources = [
            Source(found.location(place), entry.path, place)
            for place, entry in enumerate(found)
            if entry.kind == "file"
        ]
        self._suite = suite
        self.cache: Final = cache
        self._progress = progress
        self._sizes: dict[str, int] = {}

    def read_all(self) -> None:
        """Hash all files that the cache does not know. O(bytes), on all cores."""
        unknown: list[tuple[Source, os.stat_result]] = []
        for source in self._sources:
            try:
                status = source.file.lstat()
            except OSError as error:
                self.skipped.append(Skipped(source.file, (error.strerror or type(error).__name__).lower()))
                continue
            target = self.cache.find(source.path, status)
            if target is None:
                unknown.append((source, status))
            else:
                is_list = _core.Cid(target).kind == "list"
                chunks = None if is_list else ((target, status.st_size),)
                self._take(source, target, status.st_size, chunks)
                self.cache.note(source.path, status, target)
        for batch in _batches(unknown, _FILES_AT_ONCE):
            if self.is_stopped.is_set():
                return
            self._read(batch)

    def read_again(self, targets: Iterable[str]) -> None:
        """Hash the files that had these targets, since one of them has other bytes meanwhile."""
        stale = set(targets)
        for target in stale:
            self.contents.pop(target, None)
        again = [source for source in self._sources if self.arcs.get(source.path) in stale]
        for source in again:
            del self.arcs[source.path]
            self.bytes -= self._sizes.pop(source.path)
        for batch in _batches([(source, None) for source in again], _FILES_AT_ONCE):
            self._read(batch)

    def leave_out(self, targets: Iterable[str]) -> None:
        """Skip the files that have these targets, since they keep changing."""
        stale = set(targets)
        for source in [source for source in self._sources if self.arcs.get(source.path) in stale]:
            del self.arcs[source.path]
            self.bytes -= self._sizes.pop(source.path)
            self.skipped.append(Skipped(source.file, "kept changing while it was sent"))

    def learn_chunks(self, targets: Iterable[str]) -> list[str]:
        """Find out the payloads of lists that are known from the cache alone; return those that have other bytes."""
        lists = [target for target in targets if self.contents[target].chunks is None]
        changed = []
        for batch in _batches(lists, _FILES_AT_ONCE):
            files = [self.contents[target].file for target in batch]
            for target, hashed in zip(batch, _core.hash_files(files, self._suite, self._check_stop), strict=True):
                if hashed.target == target:
                    self.contents[target] = self.contents[target]._replace(chunks=tuple(hashed.chunks))
                else:
                    changed.append(target)
        return changed

    def records(self, recorded: Recorded) -> list[tuple[str, str, bytes]]:
        """Return the records of the files that have targets, and of links and folders: path, target, bytes."""
        known = {
            source.place: (self.arcs[source.path], self._sizes[source.path])
            for source in self._sources
            if source.path in self.arcs
        }
        hashed = _core.hash_survey(self._found, self._suite, known, recorded.xattrs)
        left_out = {source.path for source in self._sources if source.path not in self.arcs}
        records = hashed.records(recorded.attributes, recorded.owner)
        return [record for record in records if record[0] not in left_out]

    def save(self, root: str, attributes: str | None, records: Mapping[str, str]) -> None:
        """Write the cache, for the next time."""
        self.cache.save(root, self.arcs, attributes, records)

    def _read(self, batch: Sequence[tuple[Source, os.stat_result | None]]) -> None:
        hashed_files = _core.hash_files([source.file for source, _ in batch], self._suite, self._check_stop)
        for (source, status), hashed in zip(batch, hashed_files, strict=True):
            if hashed.target is None:
                self.skipped.append(Skipped(source.file, str(hashed.failure)))
                continue
            self._take(source, hashed.target, hashed.size, tuple(hashed.chunks))
            if status is not None:
                self.cache.note(source.path, status, hashed.target)

    def _check_stop(self, _: int) -> None:
        if self.is_stopped.is_set():
            raise Stopped

    def _take(self, source: Source, target: str, size: int, chunks: tuple[tuple[str, int], ...] | None) -> None:
        self.arcs[source.path] = target
        self._sizes[source.path] = size
        known = self.contents.get(target)
        if known is None or known.chunks is None:
            self.contents[target] = Content(source.file, size, chunks)
        self.bytes += size
        self._progress(size)


def _batches(items: Iterable[_T], size: int) -> Iterator[list[_T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
