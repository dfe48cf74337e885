"""The folder that a restore writes to: what is there, what may be changed, whose it becomes.

Nothing outside it is touched: what exists in it is reached name by name, without following symbolic links.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple, Self

from coregw.client.folders.listing import PlannedFile
from coregw.client.folders.names import INSIDE, TOP, Paths
from coregw.concurrency import Check
from coregw.errors import InvalidInput
from coregw.extras import missing_extra
from coregw.folders.tree import Attributes, FolderEntry, Skipped

try:
    import fcntl  # noqa: F401 - `partial` locks with it; whoever writes to a folder imports this module first
except ModuleNotFoundError as error:
    raise missing_extra(error, "writing a folder", "client") from None

__all__ = [
    "Cursor",
    "Existing",
    "Extras",
    "Rights",
    "TreeCursor",
    "check_destination",
    "free_bytes",
    "publish",
    "remove",
    "remove_tree",
    "reported_as_path",
    "set_extras",
    "survey_existing",
]

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_RIGHTS = stat.S_IRWXU
"""What its owner needs to list a folder and to change it."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO


Kind = Literal["file", "link", "folder", "other"]


@dataclass
class Existing:
    """What a destination has.

    Attributes:
        kinds: What there is at the paths of a tree, by their numbers.
        states: The states of files at these paths.
        links: The targets of links at these paths.
        surplus: What is beside these paths: the number of its folder, and its name.
    """

    kinds: dict[int, Kind] = field(default_factory=lambda: {TOP: "folder"})
    states: dict[int, os.stat_result] = field(default_factory=dict)
    links: dict[int, bytes] = field(default_factory=dict)
    surplus: list[tuple[int, str]] = field(default_factory=list)


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


def free_bytes(destination: Path) -> int | None:
    """Return how many bytes this user may write to the disk of a destination; None if the file system does not say."""
    found = os.statvfs(destination if destination.is_dir() else destination.absolute().parent)
    return found.f_bavail * found.f_frsize if found.f_blocks else None


class Cursor:
    """An open folder, from which those in it and the one above it are opened, by name, without following links.

    One descriptor is open, whatever the depth: ``..`` is opened to go up, and has to be the folder that was there. As a
    context manager it closes that descriptor.

    Args:
        top: A descriptor of the top folder, which the cursor closes.

    Attributes:
        folder: The descriptor of the folder.
    """

    def __init__(self, top: int) -> None:
        self.folder = top
        self._above: list[tuple[int, int]] = []

    @classmethod
    def at(cls, top: Path) -> Self:
        """Open a folder. Its own path may lead through links."""
        return cls(os.open(top, _OPEN_FOLDER & ~os.O_NOFOLLOW))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.folder)

    def status(self) -> os.stat_result:
        """Return the status of the folder."""
        return os.fstat(self.folder)

    def down(self, name: str) -> None:
        """Go to a folder in this one."""
        below = os.open(name, _OPEN_FOLDER, dir_fd=self.folder)
        status = self.status()
        self._above.append((status.st_dev, status.st_ino))
        self._move(below)

    def up(self) -> None:
        """Go to the folder above. Raises `OSError` (ESTALE) if this folder is not in it any more."""
        above = os.open("..", _OPEN_FOLDER, dir_fd=self.folder)
        status = os.fstat(above)
        if (status.st_dev, status.st_ino) != self._above.pop():
            os.close(above)
            raise OSError(errno.ESTALE, "the folder was moved meanwhile")
        self._move(above)

    def _move(self, folder: int) -> None:
        os.close(self.folder)
        self.folder = folder


class TreeCursor(Cursor):
    """A cursor in the folders of a tree, by their numbers."""

    number = TOP

    def move(self, paths: Paths, number: int) -> None:
        """Go to a folder. O(folders between this one and that one)."""
        below: list[int] = []
        while number != self.number:
            if paths.depths[number] >= paths.depths[self.number]:
                below.append(number)
                number = paths.above[number]
            else:
                self.up()
                self.number = paths.above[self.number]
        for each in reversed(below):
            self.down(paths.names[each])
            self.number = each


def survey_existing(top: Path, paths: Paths, rights: Rights, check: Check = lambda count: None) -> Existing:
    """Return what is in the folders of a tree at a destination, but for incomplete files. O(entries).

    Folders that the tree does not have are not entered. Symbolic links are not followed, also if one takes the place of
    a folder meanwhile: that is an error.

    Args:
        top: The destination; nothing is there if it does not exist.
        paths: The tree.
        rights: Gives the rights to enter folders of this user.
        check: Called for each entry.
    """
    found = Existing()
    if not os.path.lexists(top):
        found.kinds.clear()
        return found
    pending = [TOP]
    with TreeCursor.at(top) as cursor:
        while pending:
            number = pending.pop()
            with reported_as_path(top, paths, number):
                rights.enter(cursor, number)
                _list(cursor, paths, found, pending, check)
    return found


def _list(cursor: TreeCursor, paths: Paths, found: Existing, pending: list[int], check: Check) -> None:
    """Note what is in the folder of a cursor, and the folders to enter."""
    with os.scandir(cursor.folder) as listing:
        for entry in listing:
            check(1)
            if cursor.number == TOP and entry.name == INSIDE:
                continue
            number = paths.find(cursor.number, entry.name)
            if number is None:
                found.surplus.append((cursor.number, entry.name))
            elif entry.is_symlink():
                found.kinds[number] = "link"
                found.links[number] = os.fsencode(os.readlink(entry.name, dir_fd=cursor.folder))
            elif entry.is_dir(follow_symlinks=False):
                found.kinds[number] = "folder"
                if paths.kinds[number] == "folder":
                    pending.append(number)
            elif entry.is_file(follow_symlinks=False):
                found.kinds[number] = "file"
                found.states[number] = entry.stat(follow_symlinks=False)
            else:
                found.kinds[number] = "other"


@contextmanager
def reported_as_path(top: Path, paths: Paths, number: int) -> Iterator[None]:
    """Make an `OSError` of a name in a folder one of the whole path."""
    try:
        yield
    except OSError as error:
        path = os.fspath(top.joinpath(*paths.path(number)))
        raise type(error)(error.errno, error.strerror or str(error), path) from None


def _lacks(folder: int, rights: int) -> bool:
    """Whether a folder is this user's, and the user lacks rights to it (`stat.S_IRWXU` or some of them)."""
    status = os.fstat(folder)
    if status.st_uid != os.geteuid() or status.st_mode & rights == rights:
        return False
    return not os.access(".", rights >> 6, dir_fd=folder, effective_ids=True)  # a superuser may lack nothing


class Rights:
    """Rights of this user to the user's own folders, which a restore needs and their modes do not give.

    They are given when they are needed, to the owner alone, and taken back in the end, also after an error: as a
    context manager it takes back those that it has given. What others may no longer do then stays so.

    Args:
        top: The top folder.
        paths: The tree.
        are_given: Whether any are given.
    """

    def __init__(self, top: Path, paths: Paths, *, are_given: bool = True) -> None:
        self._top = top
        self._paths = paths
        self._are_given = are_given
        self._modes: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.take_back()

    def enter(self, cursor: TreeCursor, number: int) -> None:
        """Move a cursor to a folder, and give the rights to list and enter that, and those that are above it."""
        paths = self._paths
        while cursor.number != number:
            try:
                cursor.move(paths, number)
            except PermissionError:
                at = number
                while at != TOP and paths.above[at] != cursor.number:
                    at = paths.above[at]
                mode = _allow(cursor.folder, paths.names[at]) if at != TOP and self._are_given else None
                if mode is None:
                    raise
                self._modes.setdefault(at, mode)
        if self._are_given and _lacks(cursor.folder, stat.S_IRUSR | stat.S_IXUSR):
            self._give(cursor, number)

    def give(self, numbers: Iterable[int], check: Check = lambda count: None) -> None:
        """Give the rights to change folders; those above them can be entered."""
        with TreeCursor.at(self._top) as cursor:
            for number in sorted(numbers):
                check(1)
                with reported_as_path(self._top, self._paths, number):
                    cursor.move(self._paths, number)
                    if _lacks(cursor.folder, _RIGHTS):
                        self._give(cursor, number)

    def _give(self, cursor: TreeCursor, number: int) -> None:
        mode = stat.S_IMODE(cursor.status().st_mode)
        self._modes.setdefault(number, mode)
        os.fchmod(cursor.folder, mode | _RIGHTS)

    def leave(self, numbers: Iterable[int]) -> None:
        """Take nothing back from folders whose modes have been set to others."""
        for number in numbers:
            self._modes.pop(number, None)

    def take_back(self) -> None:
        """Give folders the modes that they had. Idempotent. One that is not there any more is left out."""
        modes, self._modes = self._modes, {}
        numbers = sorted(modes)
        while numbers:
            with suppress(OSError), TreeCursor.at(self._top) as cursor:
                while numbers:
                    number = numbers.pop()  # those below others first, and from above: nobody can leave them afterwards
                    cursor.move(self._paths, number)
                    descriptor = os.dup(cursor.folder)
                    try:
                        cursor.move(self._paths, self._paths.above[number])
                        mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
                        others = modes[number] & ~(_OTHERS & ~mode)
                        os.fchmod(descriptor, others | (mode & stat.S_ISVTX))
                    finally:
                        os.close(descriptor)


def _allow(folder: int, name: str) -> int | None:
    """Give this user all rights to a folder in another one that cannot be opened, and return the mode that it had.

    None if it is another user's, or cannot be changed without permission to read it, as on some systems.
    """
    with suppress(OSError):
        descriptor = os.open(name, _OPEN_FOLDER | getattr(os, "O_PATH", 0), dir_fd=folder)
        try:
            status = os.fstat(descriptor)
            if status.st_uid == os.geteuid():
                Path(f"/proc/self/fd/{descriptor}").chmod(stat.S_IMODE(status.st_mode) | _RIGHTS)
                return stat.S_IMODE(status.st_mode)
        finally:
            os.close(descriptor)
    return None


def remove(top: Path, paths: Paths, items: Iterable[tuple[int, tuple[str, ...]]], check: Check) -> None:
    """Remove files, links and whole folders, by the number of a folder, and the path of each below that.

    `check` is called before each of them, and what is in them.

    Raises:
        OSError: One can't be removed; those before it are.
    """
    with TreeCursor.at(top) as cursor:
        for number, (*folders, name) in items:
            check(1)
            try:
                cursor.move(paths, number)
                with Cursor(os.dup(cursor.folder)) as at:
                    for each in folders:
                        at.down(each)
                    if stat.S_ISDIR(os.lstat(name, dir_fd=at.folder).st_mode):
                        remove_tree(at.folder, name, check)
                    else:
                        os.unlink(name, dir_fd=at.folder)
            except OSError as error:
                path = os.fspath(top.joinpath(*paths.path(number), *folders, name))
                raise type(error)(error.errno, error.strerror or str(error), path) from None


def remove_tree(folder: int, name: str, check: Check = lambda count: None) -> None:
    """Remove a folder in another one, with all that it has, whatever its depth. What can be removed is.

    Folders of this user get the rights that this needs. One that is not removed has its mode again. `check` is called
    before each file is removed.

    Raises:
        OSError: The first reason why something could not be removed.
    """
    failures: list[OSError] = []
    pending = [[name]]
    entered: list[tuple[str, int | None]] = []
    with Cursor(os.dup(folder)) as cursor:
        try:
            while pending:
                if pending[-1]:
                    below = pending[-1].pop()
                    try:
                        entered.append((below, _enter_to_remove(cursor, below)))
                    except OSError as error:
                        failures.append(error)
                    else:
                        pending.append(_remove_files(cursor.folder, failures, check))
                    continue
                pending.pop()
                if entered:
                    try:
                        _leave(cursor, *entered.pop(), is_removed=True)
                    except OSError as error:
                        failures.append(error)
        except BaseException:
            while entered:
                _leave(cursor, *entered.pop(), is_removed=False)
            raise
    if failures:
        raise failures[0]


def _leave(cursor: Cursor, name: str, mode: int | None, *, is_removed: bool) -> None:
    """Go up from a folder, and remove it. One that is not removed has its mode again."""
    descriptor = os.dup(cursor.folder)
    try:
        cursor.up()
        if is_removed:
            os.rmdir(name, dir_fd=cursor.folder)
            mode = None
    finally:
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.close(descriptor)


def _enter_to_remove(cursor: Cursor, name: str) -> int | None:
    """Go to a folder, with all rights to it. Returns the mode that it had, if that is another one."""
    mode: int | None = None
    try:
        cursor.down(name)
    except PermissionError:
        mode = _allow(cursor.folder, name)
        if mode is None:
            raise
        cursor.down(name)
    if _lacks(cursor.folder, _RIGHTS):
        mode = stat.S_IMODE(cursor.status().st_mode)
        os.fchmod(cursor.folder, mode | _RIGHTS)
    return mode


def _remove_files(folder: int, failures: list[OSError], check: Check) -> list[str]:
    """Remove all but folders from a folder, and return the names of these."""
    with os.scandir(folder) as listing:
        entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in listing]
    for name, is_folder in entries:
        if not is_folder:
            check(1)
            try:
                os.unlink(name, dir_fd=folder)
            except OSError as error:
                failures.append(error)
    return [name for name, is_folder in entries if is_folder]


_OPEN = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK) | os.O_NOFOLLOW | os.O_CLOEXEC
"""Without permission to read a file, where the system can do so."""

_RIGHTS_TO_FILE = stat.S_IRUSR | stat.S_IWUSR
"""What the owner of a file needs to change its extended attributes."""


class Extras(NamedTuple):
    """What is restored besides content, permissions, times and links.

    Attributes:
        owners: The owning user and group, and with them the set-uid and set-gid bits.
        xattrs: Extended attributes of files and folders. To root, those of users only (``user.``): others may give
            programs rights, as ``security.capability`` does. Those of users that the tree does not have are removed.
        xattr_names: Extended attributes that are restored in any case.
    """

    owners: bool = False
    xattrs: bool = False
    xattr_names: tuple[str, ...] = ()

    @property
    def has_xattrs(self) -> bool:
        """Whether any extended attributes are restored."""
        return self.xattrs or bool(self.xattr_names)

    def restored(self, xattrs: Mapping[str, bytes]) -> dict[str, bytes]:
        """Return those of a file's extended attributes that are restored."""
        has_all = self.xattrs and not _is_root()
        return {
            name: value
            for name, value in xattrs.items()
            if has_all or name in self.xattr_names or (self.xattrs and name.startswith("user."))
        }


def _is_root() -> bool:
    return os.geteuid() == 0


def set_extras(
    top: Path,
    paths: Paths,
    entries: Iterable[tuple[int, FolderEntry | PlannedFile]],
    inodes: Mapping[int, int],
    extras: Extras,
    check: Check = lambda count: None,
) -> list[Skipped]:
    """Set the owners and extended attributes of what was written below `top`, by the numbers of its paths. O(entries).

    Args:
        top: The folder.
        paths: The tree.
        entries: What is set.
        inodes: The inodes of the files. Nothing is changed of another file, which somebody may have put in the place of
            one of these.
        extras: What is restored.
        check: Called for each entry.

    Returns:
        The first path for each recorded extended attribute that is not restored, and how many others there are.

    Raises:
        OSError: The system refuses one, or something else has its name (``ESTALE``); the error names the file.
    """
    left_out: dict[str, list[int]] = {}
    with Rights(top, paths) as rights, TreeCursor.at(top) as cursor:
        for number, entry in entries:
            check(1)
            kind = paths.kinds[number]
            name = paths.names[number] or "."  # the top folder itself
            known = entry.attributes or _UNKNOWN
            if not ((extras.owners and known.owner) or (extras.has_xattrs and kind != "link")):
                continue
            with reported_as_path(top, paths, number):
                rights.enter(cursor, paths.above[number])
                _set(cursor.folder, name, (kind, inodes.get(number)), known, extras)
            if extras.xattrs and kind != "link":
                for name in known.xattrs.keys() - extras.restored(known.xattrs).keys():
                    left_out.setdefault(name, []).append(number)
    return [Skipped(top.joinpath(*paths.path(found[0])), _why(name, len(found))) for name, found in left_out.items()]


_UNKNOWN = Attributes("file", None, None, None, None, None, {})

_IS_KIND = {"file": stat.S_ISREG, "link": stat.S_ISLNK, "folder": stat.S_ISDIR}


def _why(name: str, count: int) -> str:
    others = f", and those of {count - 1:,} more," if count > 1 else ""
    return f"its extended attribute {name}{others} is restored to root only by name, with --xattr"


def _set(folder: int, name: str, expected: tuple[str, int | None], known: Attributes, extras: Extras) -> None:
    kind, inode = expected
    if kind == "link" and not hasattr(os, "O_PATH"):  # there is no descriptor of a link
        os.chown(name, *(known.owner or (-1, -1)), dir_fd=folder, follow_symlinks=False)
        return
    descriptor = os.open(name, _OPEN, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not _IS_KIND[kind](status.st_mode) or (kind == "file" and inode != status.st_ino):
            raise OSError(errno.ESTALE, "was replaced by something else meanwhile")
        file = f"/proc/self/fd/{descriptor}" if hasattr(os, "O_PATH") else descriptor
        if extras.owners and known.owner is not None:
            os.chown(file, *known.owner)
        if kind == "link":
            return  # has neither a mode nor extended attributes of users
        if extras.owners and known.owner is not None and known.mode is not None:
            os.chmod(file, known.mode)  # noqa: PTH101 - after the owner, since a change of owner clears the special bits
        stale = _stale(file, known) if extras.xattrs else []
        values = extras.restored(known.xattrs)
        status = os.fstat(descriptor)
        mode = stat.S_IMODE(status.st_mode)
        is_locked = (
            bool(stale or values) and status.st_uid == os.geteuid() and mode & _RIGHTS_TO_FILE != _RIGHTS_TO_FILE
        )
        if is_locked:
            os.chmod(file, mode | _RIGHTS_TO_FILE)  # noqa: PTH101 - a path or a descriptor
        try:
            for attribute in stale:
                os.removexattr(file, attribute)
            for attribute, value in values.items():
                os.setxattr(file, attribute, value)
        finally:
            if is_locked:
                os.chmod(file, mode)  # noqa: PTH101 - a path or a descriptor
    finally:
        os.close(descriptor)


def _stale(file: str | int, known: Attributes) -> list[str]:
    """Return the extended attributes of users that a file or folder has, and the tree does not have."""
    try:
        found = os.listxattr(file)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return []
        raise
    return [attribute for attribute in found if attribute.startswith("user.") and attribute not in known.xattrs]
