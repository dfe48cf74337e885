"""The folder that a restore writes to: new or empty, filled all at once; or in use, and updated file by file.

Nothing outside it is touched: what exists in it is reached name by name, without following symbolic links.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from coregw import _core
from coregw.client.files import reported_as
from coregw.client.folders.listing import PlannedFile
from coregw.client.folders.partial import INSIDE, Partial
from coregw.errors import InvalidInput
from coregw.folders.restore_cache import RestoreCache, State, decode_entries, encode_entries, state_of

__all__ = [
    "Existing",
    "FileStates",
    "check_destination",
    "open_below",
    "publish",
    "read_link",
    "remove",
    "survey_existing",
]

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_PAUSE_SECONDS = 0.001
"""The pause between two looks at the file system's clock, which counts in ticks: of 1 to 10 ms in Linux."""

_MAX_PAUSES = 100
"""A clock that stands still for longer is not waited for: some file systems do not record changes of a folder."""

Existing = dict[tuple[str, ...], Literal["file", "link", "folder", "other"]]
"""What a folder has, by path."""


def check_destination(destination: Path) -> bool:
    """Return whether a destination has content, other than the incomplete files of a process that was killed.

    Raises:
        InvalidInput: It is not a folder, or it does not exist and neither does the folder above it (code
            ``invalid_path``).
    """
    if not os.path.lexists(destination):
        if not destination.absolute().parent.is_dir():
            raise InvalidInput(f"{destination.parent}: no such folder", code="invalid_path")
        return False
    if not destination.is_dir():
        raise InvalidInput(f"{destination}: exists and is not a folder", code="invalid_path")
    with os.scandir(destination) as listing:
        return any(entry.name != INSIDE for entry in listing)


def publish(tree: Path, destination: Path, *, existed: bool) -> None:
    """Give a complete folder the name of a destination, which is new, or an empty folder if it `existed`.

    Raises:
        InvalidInput: Something was created in the destination meanwhile (code ``invalid_path``); nothing is moved then.
    """
    if not existed:
        tree.rename(destination)
        return
    # The folder must stay the same inode, as it may be a working directory: so its new content is moved up.
    moves = [(child, destination / child.name) for child in sorted(tree.iterdir())]
    for _, place in moves:
        if os.path.lexists(place):
            raise InvalidInput(f"{place}: was created by somebody else meanwhile", code="invalid_path")
    with ExitStack() as undo:
        for child, place in moves:
            child.rename(place)
            undo.callback(place.rename, child)
        undo.pop_all()


def survey_existing(top: Path, entered: Collection[tuple[str, ...]] | None) -> Existing:
    """Return what is below a folder, but for incomplete files; nothing if it does not exist. O(entries).

    Symbolic links are not followed, also if one takes the place of a folder meanwhile: that is an error.

    Args:
        top: The folder.
        entered: The folders below it that are entered; None enters all.
    """
    found: Existing = {}
    pending: list[tuple[str, ...]] = [()] if os.path.lexists(top) else []
    while pending:
        path = pending.pop()
        with reported_as(top.joinpath(*path)), open_below(top, path) as folder, os.scandir(folder) as listing:
            for entry in listing:
                below = (*path, entry.name)
                if below == (INSIDE,):
                    continue
                if entry.is_symlink():
                    found[below] = "link"
                elif entry.is_dir(follow_symlinks=False):
                    found[below] = "folder"
                    if entered is None or below in entered:
                        pending.append(below)
                else:
                    found[below] = "file" if entry.is_file(follow_symlinks=False) else "other"
    return found


@contextmanager
def open_below(top: Path, segments: Sequence[str]) -> Iterator[int]:
    """Open a folder below `top`, name by name, without following symbolic links. Yields its descriptor."""
    descriptor = os.open(top, _OPEN_FOLDER & ~os.O_NOFOLLOW)
    try:
        for segment in segments:
            above, descriptor = descriptor, os.open(segment, _OPEN_FOLDER, dir_fd=descriptor)
            os.close(above)  # one at a time: a tree may be deeper than a process may have files open
        yield descriptor
    finally:
        os.close(descriptor)


def read_link(top: Path, path: tuple[str, ...]) -> bytes:
    """Return the target of a symbolic link below `top`."""
    with reported_as(top.joinpath(*path)), open_below(top, path[:-1]) as folder:
        return os.fsencode(os.readlink(path[-1], dir_fd=folder))


def remove(top: Path, paths: Iterable[tuple[str, ...]]) -> None:
    """Remove files, links and whole folders below `top`.

    Raises:
        OSError: One can't be removed; those before it are.
    """
    for path in paths:
        with reported_as(top.joinpath(*path)), open_below(top, path[:-1]) as folder:
            if stat.S_ISDIR(os.lstat(path[-1], dir_fd=folder).st_mode):
                import shutil  # noqa: PLC0415 - loading it takes 3 ms

                shutil.rmtree(path[-1], dir_fd=folder)
            else:
                os.unlink(path[-1], dir_fd=folder)


class FileStates:
    """The states of the files of a destination: which have the right bytes already, and what the next restore can know.

    Args:
        cache: What is known since the last time; see `coregw.folders.restore_cache`.
        are_changed: Whether the attributes of all files are changed after they were written.
    """

    def __init__(self, cache: RestoreCache, *, are_changed: bool) -> None:
        self._cache = cache
        self._are_changed = are_changed
        self._found: dict[tuple[str, ...], State] = {}
        self._changed: list[tuple[str, State, str]] = []
        self._newest = 0

    def known(
        self, top: Path, files: Iterable[PlannedFile], check: Callable[[int], object]
    ) -> tuple[set[tuple[str, ...]], list[PlannedFile]]:
        """Return the paths of the files that have not changed since they had the right bytes, and the other files.

        O(files), without reading one. `check` may raise.
        """
        right: set[tuple[str, ...]] = set()
        others: list[PlannedFile] = []
        for file in files:
            check(0)
            path = "/".join(file.segments)
            with suppress(OSError):
                status = os.lstat(f"{top}/{path}")
                self._found[file.segments] = state_of(status)
                if self._cache.find(path, status) == file.target:
                    right.add(file.segments)
                    continue
            others.append(file)
        return right, others

    def note_kept(self, file: PlannedFile) -> None:
        """Note that a file had the right bytes in the state in which `known` found it."""
        if self._cache.is_kept and (state := self._found.get(file.segments)) is not None:
            self._note([("/".join(file.segments), state, file.target)])

    def note_written(self, writer: _core.FolderWriter) -> None:
        """Note the states of the files that `writer` has completed since the last call."""
        entries, count, newest, moved = writer.take_states()
        if not self._cache.is_kept:
            return
        self._changed += moved
        if self._are_changed:
            self._changed += decode_entries(entries, count)
        else:
            self._newest = max(self._newest, newest)
            self._cache.add(entries, count)

    def save(self, top: Path, partial: Partial) -> None:
        """Save the states, for the next time. Blocks for up to a tick of the file system's clock, mostly 10 ms or less.

        Args:
            top: The destination.
            partial: Its folder for incomplete files.
        """
        if not self._cache.is_kept:
            return
        changed, self._changed, self._are_changed = self._changed, [], False
        self._note([(path, _renamed(f"{top}/{path}", state), target) for path, state, target in changed])
        self._cache.save(_time_after(partial, self._newest))

    def discard(self) -> None:
        """Forget what was not saved. Idempotent."""
        self._cache.discard()

    def _note(self, entries: Sequence[tuple[str, State, str]]) -> None:
        if self._are_changed:
            self._changed += entries
            return
        self._newest = max(self._newest, *(state[3] for _, state, _ in entries), 0)
        self._cache.add(encode_entries(entries), len(entries))


def _renamed(path: str, state: State) -> State:
    """Return the state of a file whose time of change has been changed by its restore alone."""
    with suppress(OSError):
        found = state_of(os.lstat(path))
        if found[:3] == state[:3]:
            return found
    return state


def _time_after(partial: Partial, newest: int) -> int:
    """Return the file system's time, if possible after `newest`. No later change has an earlier time.

    Timestamps are those of the file system, which may be on another machine. Those with fractions of a second advance
    every 16 ms or more often; all others are exact to two seconds (FAT), for which `RestoreCache` allows.
    """
    now = partial.now()
    for _ in range(_MAX_PAUSES):
        if now != newest or newest % 1_000_000_000 == 0:
            break
        time.sleep(_PAUSE_SECONDS)
        now = partial.now()
    return now
