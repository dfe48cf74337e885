"""Restoring a folder from a map root: all names are checked before anything is written, and all files appear or none.

The tree is written into a temporary folder, which is renamed when it is complete; a failure or an interruption leaves
nothing behind. Modes, times and owners are those of new files: a map holds names and bytes only.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from coregw import _core
from coregw.client.aio import AsyncClient
from coregw.client.files import create_file, reported_as
from coregw.client.folders.parallel import for_each
from coregw.client.operations.tree import Leaf
from coregw.client.query import CidLike
from coregw.errors import InvalidInput
from coregw.text import printable

__all__ = ["Restored", "check_names", "restore_folder"]

WORKERS = 8


@dataclass(frozen=True, slots=True)
class Restored:
    """The number of files and bytes that were written."""

    files: int
    bytes: int


async def restore_folder(
    client: AsyncClient,
    root: CidLike,
    destination: Path,
    started: Callable[[int], None] = lambda files: None,
    progress: Callable[[int], None] = lambda count: None,
    workers: int = WORKERS,
) -> Restored:
    """Write the tree of a map root to `destination`, which must be new or an empty folder.

    Args:
        client: The client to fetch with.
        root: A map root; nested maps become folders.
        destination: The folder to create or fill. Its parent must exist.
        started: Called with the number of files, once all names are known and checked.
        progress: Called with the size in bytes of each file that is written.
        workers: Maximum number of files in progress.

    Raises:
        InvalidInput: `root` is not a map root; a path can't be a file name here (code ``invalid_path``; the message
            names it); a target is not a file; or `destination` is not empty.
        OSError: The file system refused an operation.
        ProofError: An answer is not proven.
    """
    cid = _core.Cid(root)
    if cid.kind != "map":
        raise InvalidInput(f"{cid.text} is not a map root", code="kind_mismatch")
    _check_destination(destination)
    leaves: list[Leaf] = []
    async with aclosing(client.walk(cid)) as found:
        async for leaf in found:
            leaves.append(leaf)  # noqa: PERF401 - aclosing needs the loop
    check_names(leaves)
    started(len(leaves))
    total = 0
    with _staging(destination) as folder:
        writer = _Writer(folder)
        for leaf in leaves:
            writer.make_folders(leaf.segments[:-1])

        async def write(leaf: Leaf) -> None:
            nonlocal total
            with os.fdopen(writer.new_file(leaf.segments), "wb") as file:
                if _core.Cid(leaf.target).kind == "cas":
                    await client.download(leaf.target, file)  # streamed: it may be large
                else:
                    async with aclosing(client.contents(leaf.target)) as chunks:
                        async for chunk in chunks:
                            file.write(chunk)
                size = file.tell()
            total += size
            progress(size)

        await for_each(leaves, write, workers)
    return Restored(len(leaves), total)


def check_names(leaves: Sequence[Leaf]) -> None:
    """Check that the leaves can be a tree of files.

    Raises:
        InvalidInput: A segment is ``.`` or ``..``, or contains a NUL or a path separator; a path occurs twice; or a
            path is both a file and a folder (code ``invalid_path``). The message names the path.
    """
    files: set[tuple[str, ...]] = set()
    folders: set[tuple[str, ...]] = set()
    for leaf in leaves:
        path = tuple(leaf.segments)
        for segment in path:
            if segment in (".", "..") or "\0" in segment or any(mark in segment for mark in _separators()):
                raise _refused(path, f"{segment!r} can't be a file name")
        if path in files:
            raise _refused(path, "the tree has this path twice")
        files.add(path)
        folders.update(path[:cut] for cut in range(1, len(path)))
    for path in sorted(files & folders):
        raise _refused(path, "it is both a file and a folder")


def _separators() -> set[str]:
    return {mark for mark in ("/", os.sep, os.altsep) if mark}


def _refused(path: Sequence[str], why: str) -> InvalidInput:
    return InvalidInput(f"{printable('/'.join(path), 1000)}: {why}", code="invalid_path")


def _check_destination(destination: Path) -> None:
    if not os.path.lexists(destination):
        if not destination.absolute().parent.is_dir():
            raise InvalidInput(f"{destination.parent}: no such folder", code="invalid_path")
        return
    if not destination.is_dir():
        raise InvalidInput(f"{destination}: exists and is not a folder", code="invalid_path")
    with os.scandir(destination) as listing:
        if next(listing, None) is not None:
            raise InvalidInput(f"{destination}: the folder is not empty", code="invalid_path")


@contextmanager
def _staging(destination: Path) -> Iterator[Path]:
    """A temporary folder that becomes `destination` on success and is removed on failure."""
    existed = destination.exists()
    name = f".coregw-{secrets.token_hex(8)}.partial"
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
        shutil.rmtree(folder, ignore_errors=True)
        raise


class _Writer:
    """Creates the folders and files of a tree. If one exists already, it was created for another path: a clash."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._made: set[tuple[str, ...]] = {()}

    def make_folders(self, segments: Sequence[str]) -> None:
        for cut in range(1, len(segments) + 1):
            path = tuple(segments[:cut])
            if path in self._made:
                continue
            try:
                self._top.joinpath(*path).mkdir()
            except FileExistsError:
                raise self._clash(path) from None
            except OSError as error:
                raise self._unnameable(path, error) from None
            self._made.add(path)

    def new_file(self, segments: Sequence[str]) -> int:
        try:
            return create_file(self._top.joinpath(*segments))
        except InvalidInput:
            raise self._clash(segments) from None
        except OSError as error:
            raise self._unnameable(segments, error) from None

    def _unnameable(self, path: Sequence[str], error: OSError) -> Exception:
        """Return an error that names the path if the file system refuses the name, else the error itself."""
        if error.errno in (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ):
            return _refused(path, (error.strerror or "not a valid file name here").lower())
        return error

    def _clash(self, path: Sequence[str]) -> InvalidInput:
        return _refused(path, "another path of the tree has the same name on this file system")
