"""Payloads that a restore asks for, and the files that they fill; what is incomplete is kept, and continued.

Payloads are requested many at a time, several requests in flight. Threads of the extension verify and write them
(`coregw._core.FolderWriter`). With a listing, its next pages are requested and verified meanwhile, and what is known of
a file is forgotten when it is complete: so memory does not grow with the number of files.

What is incomplete is in a folder whose name follows from the destination, so nothing has to be searched. Whoever writes
to it holds a lock on it (`flock`), which ends with the process: a folder without a lock has no writer any more.

```text
parent/dest                            a new destination, while it is made:
parent/.coregw-1f0e…partial/tree       the content of dest, renamed when it is complete

parent/dest/                           a destination that exists:
parent/dest/.coregw.partial/files      files, each renamed to its path when it is complete
parent/dest/.coregw.partial/tree       or the content, if dest is empty
```
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from coregw import _core
from coregw.client.folders.destination import Cursor, remove_tree
from coregw.client.folders.listing import FileLists, Nested, PayloadSource, PlannedFile, Signal, walk_folder
from coregw.client.folders.names import INSIDE, TOP, leads_outside
from coregw.concurrency import Check, for_each, in_stoppable_thread, in_thread
from coregw.durability import reported_as
from coregw.errors import InvalidInput, Unavailable
from coregw.folders.caches import Entry, RestoreCache, State, state_of
from coregw.folders.tree import Attributes, FolderEntry

__all__ = [
    "FileStates",
    "Filler",
    "PartialFolder",
    "attributes_of",
    "discard_abandoned",
    "is_exec_bit",
    "link_of",
    "partial_folder",
]

_MAX_PAUSES = 100
"""A clock that stands still for longer is not waited for: some file systems do not record changes of a folder."""
_PAUSE_SECONDS = 0.001
"""The pause between two looks at the file system's clock, which counts in ticks: of 1 to 10 ms in Linux."""

REQUESTS = 4
"""Requests for payloads in flight."""

REQUEST_BYTES = 16 << 20
"""Payloads that one request asks for, in bytes, about: half as much took longer, twice as much no less."""


class Filler:
    """Writes the files of a tree with a writer, which it starts.

    Args:
        client: The client to fetch with.
        writer: A writer that is not started.
        states: Gets the states of the files that were written.
        progress: Called with further numbers of bytes that were written.

    Attributes:
        outside: The paths of symbolic links that lead out of the tree and are not made.
        top: What is recorded of the top folder itself.
        top_folders: Folders in the top folder whose attributes are not set, since they are moved.
    """

    def __init__(
        self,
        client: PayloadSource,
        writer: _core.FolderWriter,
        states: FileStates,
        progress: Callable[[int], None],
    ) -> None:
        self.outside: list[tuple[str, ...]] = []
        self.top: Attributes | None = None
        self.top_folders: list[FolderEntry] = []
        self._client = client
        self._writer = writer
        self._states = states
        self._progress = progress
        self._written = 0  # as last reported
        self._links: list[tuple[int, FolderEntry]] = []
        self._maps: dict[int, tuple[int, tuple[str, ...]]] = {}
        """Nested maps, by the numbers of their folders: the map that each is in, and its path there."""
        self._is_listed = True
        self._listed, self._fetched = Signal(), Signal()

    async def write_planned(self, before_the_end: Callable[[Check], None]) -> None:
        """Fetch and write what was added to the writer; links and attributes follow `before_the_end`."""
        await self._start()
        await for_each([self._fetch] * REQUESTS, _call, REQUESTS)
        await in_stoppable_thread(before_the_end)
        await self._finish()

    async def write_listed(
        self, root: _core.Cid, lists: FileLists, started: Callable[[int | None], None], *, all_links: bool
    ) -> None:
        """List a folder, and fetch and write its files while its listing comes.

        Args:
            root: Its root.
            lists: Lists the payloads of files.
            all_links: Whether links that lead out of the tree are made as well.
            started: Called with the number of bytes to write, None if it is not known, when all names are known.

        Raises:
            InvalidInput: A path can't be a file name here, or two paths exclude each other (code ``invalid_path``).
            TooLarge: The files have more bytes than the writer may write.
        """
        self._is_listed = False

        async def list_all() -> None:
            async def take(listing: _core.FolderListing, folder: int) -> list[Nested[int]]:
                return await self._take(listing, folder, lists)

            await walk_folder(self._client, root, TOP, take, xattrs=False)
            started(self._writer.added[1])
            self._is_listed = True
            self._listed.send()

        await self._start()
        await for_each([list_all, *[self._fetch] * REQUESTS], _call, REQUESTS + 1)
        await in_stoppable_thread(self._add_links, all_links)
        await self._finish()

    def _add_links(self, all_links: bool, check: Check) -> None:
        """Add the links to the writer, when all folders and links are known."""
        targets: dict[tuple[int, str], bytes] = {}
        placed: list[tuple[int, int, FolderEntry]] = []
        for number, link in self._links:
            folder = self._writer.add_folder(link.segments[:-1], below=number) if link.segments[1:] else number
            targets[folder, link.segments[-1]] = link_of(link)[0]
            placed.append((number, folder, link))

        def find(folder: int, name: str) -> int | bytes | None:
            target = targets.get((folder, name))
            return self._writer.folder_in(folder, name) if target is None else target

        for number, folder, link in placed:
            check(1)
            if all_links or not leads_outside(folder, link_of(link)[0], (find, self._writer.folder_above)):
                self._writer.add_link(link.segments[-1:], *link_of(link), below=folder)
            else:
                self.outside.append((*self._path(number), *link.segments))

    def _path(self, number: int) -> tuple[str, ...]:
        """Return the path of a nested map, or of the top folder."""
        parts: list[tuple[str, ...]] = []
        while number != TOP:
            number, path = self._maps[number]
            parts.append(path)
        return tuple(name for path in reversed(parts) for name in path)

    async def _start(self) -> None:
        await in_thread(self._writer.start, stop=self._writer.stop)

    async def _finish(self) -> None:
        await in_thread(self._writer.finish, stop=self._writer.stop)
        self._states.note_written(self._writer)

    async def _take(self, listing: _core.FolderListing, below: int, lists: FileLists) -> list[Nested[int]]:
        maps: list[Nested[int]] = []
        others = self._writer.add_listed(listing, below)
        self._listed.send()
        if below == TOP:
            self.top = listing.top
        elif (own := listing.top) is not None:
            self._add_nested(below, own)
        for fields in others:
            entry = FolderEntry(*fields)
            if entry.kind == "link":
                self._links.append((below, entry))
                continue
            if entry.kind == "file":
                parts = await lists.parts(entry)
                mode, mtime_ns = attributes_of(entry)
                self._writer.add_file(
                    entry.segments, parts, mode, mtime_ns, list=entry.target, below=below, executable=is_exec_bit(entry)
                )
                continue
            number = self._writer.add_folder(entry.segments, *attributes_of(entry), below=below)
            if below == TOP and len(entry.segments) == 1 and self._writer.is_moved:
                self.top_folders.append(entry)
            if entry.kind == "map" and entry.target is not None:
                self._maps[number] = (below, entry.segments)
                maps.append((number, len(entry.segments), entry.target))
        self._listed.send()
        while self._writer.has_enough:
            await self._fetched.wait()
        return maps

    def _add_nested(self, folder: int, own: Attributes) -> None:
        """Give the folder of a nested map what is recorded of the map itself. Idempotent."""
        above, segments = self._maps[folder]
        entry = FolderEntry(segments, "folder", None, own)
        self._writer.add_folder((), *attributes_of(entry), below=folder)
        if above == TOP and len(segments) == 1 and self._writer.is_moved:
            self.top_folders = [*(each for each in self.top_folders if each.segments != segments), entry]

    async def _fetch(self) -> None:
        limit = self._client.settings.max_payload_bytes
        while True:
            # What is listed while the files are written whose payloads are in their CIDs is asked for again.
            is_listed, listed = self._is_listed, self._listed.next
            request = await in_thread(self._writer.request, REQUEST_BYTES, limit, stop=self._writer.stop)
            if request is None:
                if is_listed:
                    return
                await listed.wait()
                continue
            self._fetched.send()
            await self._client.get_payloads(request)
            missing = await in_thread(request.finish, stop=self._writer.stop)
            if missing:
                await self._client.get_payload(missing[0])  # raises why
                raise Unavailable(f"get {missing[0]}: left out of an answer, although the gateway holds it")
            self._states.note_written(self._writer)
            self._progress(self._writer.written - self._written)
            self._written = self._writer.written


async def _call(work: Callable[[], Awaitable[None]]) -> None:
    await work()


def attributes_of(entry: FolderEntry | PlannedFile) -> tuple[int | None, int | None]:
    """Return the mode and the time of modification, as far as they are known; no mode for an exec bit alone."""
    known = entry.attributes
    return (None, None) if known is None or is_exec_bit(entry) else (known.mode, known.mtime_ns)


def is_exec_bit(entry: FolderEntry | PlannedFile) -> bool:
    """Whether nothing is known but that a file is executable, as at the level ``exec``: others are up to the umask."""
    return entry.attributes == _EXEC_BIT


_EXEC_BIT: Final = Attributes("file", None, 0o755, None, None, None, {})


def link_of(entry: FolderEntry) -> tuple[bytes, int | None]:
    """Return the target of a symbolic link, and its time of modification if that is known."""
    known = entry.attributes
    return (b"", None) if known is None or known.link is None else (known.link, known.mtime_ns)


_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_NO_LOCKS: Final = (errno.ENOTSUP, errno.EINVAL, errno.ENOLCK, errno.ENOSYS)

_ATTEMPTS: Final = 100


class PartialFolder:
    """A folder for incomplete files, with a lock.

    Attributes:
        tree: Where the content of the destination is made; it does not exist, unless `is_left` is true.
        files: An empty folder for single files.
        is_left: Whether `tree` is what a process has left that was killed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tree = folder / "tree"
        self.files = folder / "files"
        self.is_left = self.tree.is_dir()
        _remove_tree(self.files)
        self.files.mkdir()

    def now(self) -> int:
        """Return the time that the file system gives to changes, in nanoseconds since 1970."""
        os.utime(self.folder)
        return self.folder.stat().st_ctime_ns


@asynccontextmanager
async def partial_folder(destination: Path, *, is_inside: bool) -> AsyncIterator[PartialFolder]:
    """Yield the folder for incomplete files of a destination; it is removed at the end, with all it has, in a thread.

    Args:
        destination: The destination.
        is_inside: Whether the folder is in the destination, or beside it.

    Raises:
        InvalidInput: Another process writes to the destination (code ``invalid_path``).
    """
    with reported_as(destination):
        folder, lock = _make(_place(destination, is_inside=is_inside), destination)
    try:
        yield await in_thread(PartialFolder, folder)
    finally:
        try:
            await in_thread(_remove_tree, folder)
        finally:
            os.close(lock)


def discard_abandoned(destination: Path, check: Check) -> None:
    """Remove the folder beside a destination that a process has left that was killed, if there is one."""
    folder = _place(destination, is_inside=False)
    lock = _lock(folder, lambda: None)
    if lock is not None:
        try:
            _remove_tree(folder, check)
        finally:
            os.close(lock)


def _place(destination: Path, *, is_inside: bool) -> Path:
    if is_inside:
        return destination / INSIDE
    absolute = destination.absolute()
    derived = hashlib.sha256(os.fsencode(absolute.name)).hexdigest()[:16]
    return absolute.with_name(f".coregw-{derived}.partial")


def _make(folder: Path, destination: Path) -> tuple[Path, int]:
    """Make a folder and lock it, or take one that was left. If something else has the name, choose another one."""

    def refuse() -> None:
        raise InvalidInput(f"{destination}: another process is restoring it", code="invalid_path")

    for _ in range(_ATTEMPTS):
        is_new = False
        try:
            with suppress(FileExistsError):
                folder.mkdir(mode=0o700)
                is_new = True
            lock = _lock(folder, refuse, is_new=is_new)
        except InvalidInput:  # the folder is another process's now
            raise
        except BaseException:  # an interrupt, too: the caller does not know of the folder yet
            if is_new:
                with suppress(OSError):
                    folder.rmdir()
            raise
        if lock is not None:
            return folder, lock
        if os.path.lexists(folder):
            folder = folder.with_name(f".coregw-{os.urandom(8).hex()}.partial")
    raise InvalidInput(f"{folder}: is repeatedly created and removed", code="invalid_path")


def _lock(folder: Path, on_writer: Callable[[], None], *, is_new: bool = False) -> int | None:
    """Lock a folder for incomplete files and return its descriptor; None if it is absent or not this user's.

    Args:
        folder: The folder.
        on_writer: Called if another process holds the lock.
        is_new: Whether this process has just made it, so it needs no lock where the file system has none.
    """
    try:
        descriptor = os.open(folder, _OPEN_FOLDER)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        on_writer()
        return None
    except OSError as error:
        if is_new and error.errno in _NO_LOCKS:
            return descriptor
        os.close(descriptor)
        return None
    if _is_own(folder, descriptor):
        return descriptor
    os.close(descriptor)
    return None


def _is_own(folder: Path, descriptor: int) -> bool:
    """Whether a locked folder still has its name, belongs to this user alone, and has nothing that it must not have."""
    status = os.fstat(descriptor)
    with suppress(OSError):
        found = folder.lstat()
        is_same = (found.st_dev, found.st_ino) == (status.st_dev, status.st_ino)
        is_private = status.st_uid == os.geteuid() and not status.st_mode & 0o077
        return is_same and is_private and {*os.listdir(descriptor)} <= {"tree", "files"}
    return False


def _remove_tree(folder: Path, check: Check = lambda count: None) -> None:
    """Remove a folder, if it exists, as far as that is possible."""
    with suppress(OSError), Cursor.at(folder.parent) as above:
        remove_tree(above.folder, folder.name, check)


class FileStates:
    """The states of the files of a destination: which have the right bytes already, and what the next restore can know.

    Args:
        cache: What is known since the last time; see `coregw.folders.caches`.
        are_changed: Whether the attributes of all files are changed after they were written.

    Attributes:
        inodes: The inodes of the files that were written, by their paths, if their attributes are changed.
    """

    def __init__(self, cache: RestoreCache, *, are_changed: bool) -> None:
        self.inodes: dict[str, int] = {}
        self._cache = cache
        self._are_changed = are_changed
        self._found: dict[int, State] = {}
        self._changed: list[Entry] = []
        self._newest = 0

    def known(
        self, states: Mapping[int, os.stat_result], files: Iterable[PlannedFile], check: Check
    ) -> tuple[set[int], list[PlannedFile]]:
        """Return the numbers of the files that have not changed since they had the right bytes, and the other files.

        O(files), without reading one. `check` is called for each.
        """
        right: set[int] = set()
        others: list[PlannedFile] = []
        for file in files:
            check(1)
            status = states[file.number]
            self._found[file.number] = state_of(status)
            if self._cache.find("/".join(file.segments), status) == file.target:
                right.add(file.number)
            else:
                others.append(file)
        return right, others

    def note_kept(self, file: PlannedFile) -> None:
        """Note that a file had the right bytes in the state in which `known` found it."""
        if self._cache.is_kept and (state := self._found.get(file.number)) is not None:
            self._note([("/".join(file.segments), state, file.target)])

    def note_written(self, writer: _core.FolderWriter) -> None:
        """Note the states of the files that `writer` has completed since the last call."""
        files, moved = writer.take_states()
        if self._are_changed:
            moved = [*moved, *files]
            self.inodes.update((path, state[0]) for path, state, _ in moved)
        if not self._cache.is_kept:
            return
        self._changed += moved
        if not self._are_changed:
            self._note(files)

    def save(self, top: Path, clock: Callable[[], int]) -> None:
        """Save the states, for the next time. Blocks for up to a tick of the file system's clock, mostly 10 ms or less.

        Args:
            top: The destination.
            clock: Returns the time of its file system, in nanoseconds since 1970.
        """
        if not self._cache.is_kept:
            return
        changed, self._changed, self._are_changed = self._changed, [], False
        self._note([(path, _renamed(f"{top}/{path}", state), target) for path, state, target in changed])
        self._cache.save(_time_after(clock, self._newest))

    def discard(self) -> None:
        """Forget what was not saved. Idempotent."""
        self._cache.discard()

    def _note(self, entries: Sequence[Entry]) -> None:
        if self._are_changed:
            self._changed += entries
            return
        self._newest = max(self._newest, *(state[3] for _, state, _ in entries), 0)
        self._cache.add(entries)


def _renamed(path: str, state: State) -> State:
    """Return the state of a file whose time of change has been changed by its restore alone."""
    with suppress(OSError):
        found = state_of(os.lstat(path))
        if found[:3] == state[:3]:
            return found
    return state


def _time_after(clock: Callable[[], int], newest: int) -> int:
    """Return the file system's time, if possible after `newest`. No later change has an earlier time.

    Timestamps are those of the file system, which may be on another machine. Those with fractions of a second advance
    every 16 ms or more often; all others are exact to two seconds (FAT), for which `RestoreCache` allows.
    """
    now = clock()
    for _ in range(_MAX_PAUSES):
        if now != newest or newest % 1_000_000_000 == 0:
            break
        time.sleep(_PAUSE_SECONDS)
        now = clock()
    return now
