"""The folder that a restore writes to: new or empty, filled all at once; or in use, and updated file by file.

Nothing outside it is touched: what exists in it is reached name by name, without following symbolic links.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

from coregw.client.files import reported_as
from coregw.errors import InvalidInput

__all__ = [
    "Existing",
    "check_destination",
    "incomplete_folder",
    "open_below",
    "read_link",
    "remove",
    "staging",
    "survey_existing",
]

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Existing = dict[tuple[str, ...], Literal["file", "link", "folder", "other"]]
"""What a folder has, by path."""


def check_destination(destination: Path) -> bool:
    """Return whether a destination has content.

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
        return next(listing, None) is not None


@contextmanager
def staging(destination: Path, finish: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a temporary folder that becomes `destination`, which is new or empty, on success, and else is removed.

    Args:
        destination: The destination.
        finish: Called with `destination` when it has its content.
    """
    existed = destination.exists()
    name = _partial_name()
    folder = destination / name if existed else destination.absolute().with_name(name)
    with reported_as(destination):
        folder.mkdir()
    try:
        yield folder
        if existed:
            # The folder must stay the same inode, as it may be a working directory: so its new content is moved up.
            moves = [(child, destination / child.name) for child in sorted(folder.iterdir())]
            for _, place in moves:
                if os.path.lexists(place):
                    raise InvalidInput(f"{place}: was created by somebody else meanwhile", code="invalid_path")
            with ExitStack() as undo:
                for child, place in moves:
                    child.rename(place)
                    undo.callback(place.rename, child)
                undo.pop_all()
            folder.rmdir()
        else:
            folder.rename(destination)
    except BaseException:
        _remove_tree(folder)
        raise
    finish(destination)


@contextmanager
def incomplete_folder(destination: Path) -> Iterator[Path]:
    """Yield a temporary folder inside `destination`, for files until they are complete. It is removed at the end."""
    folder = destination / _partial_name()
    with reported_as(destination):
        folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        _remove_tree(folder)


def _partial_name() -> str:
    return f".coregw-{secrets.token_hex(8)}.partial"


def _remove_tree(folder: Path) -> None:
    """Remove a temporary folder, folders without permission to write included."""

    def allow(function: Callable[[str], object], path: str, _: object) -> None:
        with suppress(OSError):
            Path(path).parent.chmod(0o700)
            if function is not os.unlink:
                Path(path).chmod(0o700)  # a folder that can't be listed
            function(path)

    shutil.rmtree(folder, onerror=allow)
    if folder.exists():
        shutil.rmtree(folder, ignore_errors=True)  # what a folder had that could not be listed the first time


def survey_existing(top: Path, entered: Collection[tuple[str, ...]] | None) -> Existing:
    """Return what is below a folder. Symbolic links are not followed. O(entries).

    Args:
        top: The folder.
        entered: The folders below it that are entered; None enters all.
    """
    found: Existing = {}
    pending: list[tuple[Path, tuple[str, ...]]] = [(top, ())]
    while pending:
        folder, path = pending.pop()
        with os.scandir(folder) as listing:
            for entry in listing:
                below = (*path, entry.name)
                if entry.is_symlink():
                    found[below] = "link"
                elif entry.is_dir(follow_symlinks=False):
                    found[below] = "folder"
                    if entered is None or below in entered:
                        pending.append((Path(entry.path), below))
                else:
                    found[below] = "file" if entry.is_file(follow_symlinks=False) else "other"
    return found


@contextmanager
def open_below(top: Path, segments: Sequence[str]) -> Iterator[int]:
    """Open a folder below `top`, name by name, without following symbolic links. Yields its descriptor."""
    with ExitStack() as stack:
        descriptor = os.open(top, _OPEN_FOLDER & ~os.O_NOFOLLOW)
        stack.callback(os.close, descriptor)
        for segment in segments:
            descriptor = os.open(segment, _OPEN_FOLDER, dir_fd=descriptor)
            stack.callback(os.close, descriptor)
        yield descriptor


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
                shutil.rmtree(path[-1], dir_fd=folder)
            else:
                os.unlink(path[-1], dir_fd=folder)
