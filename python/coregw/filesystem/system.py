"""The file system itself: listings, what is known of files, and their bytes. All of it is proven."""

from __future__ import annotations

import errno
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, BinaryIO, ClassVar, Final, NoReturn, TypeVar, overload

from fsspec import AbstractFileSystem
from fsspec.callbacks import DEFAULT_CALLBACK, Callback
from fsspec.utils import isfilelike

from coregw._core import Attributes, Cid
from coregw.client import File
from coregw.client.file_ranges import Reading, read_files
from coregw.client.folders.listing import EntryCount
from coregw.client.folders.names import check_segments, is_git, refused_git
from coregw.client.folders.paths import Path, Place, Places, folder_level, folder_tree
from coregw.errors import InvalidInput, NotFound, TooLarge
from coregw.filesystem.options import PROTOCOLS, checked_roots, client_of, gateway_of, stripped
from coregw.folders.tree import FolderEntry
from coregw.text import printable

__all__ = ["CoregwFileSystem", "Info", "OpenFile", "as_link", "dangling_link", "file_info", "folder_info", "name_of"]

Info = dict[str, Any]


def file_info(path: str, target: str, size: int | None, record: Attributes | None) -> Info:
    """Describe a file; None for a size that is not known."""
    return {"name": path, "type": "file", "size": size, "cid": target, **_recorded(record)}


def folder_info(path: str, record: Attributes | None) -> Info:
    """Describe a folder, or by its record a symbolic link that leads nowhere in the root."""
    if record is not None and record.link is not None:
        return as_link(dangling_link(path), record.link)
    return {"name": path, "type": "directory", "size": 0, **_recorded(record)}


def dangling_link(path: str) -> Info:
    """Describe a symbolic link that leads nowhere in the root."""
    return {"name": path, "type": "link", "size": 0}


def as_link(info: Info, destination: bytes) -> Info:
    """Return the description of a symbolic link: of the file that it leads to, or of a link if it leads to none."""
    found = info if info["type"] == "file" else dangling_link(info["name"])
    return {**found, "islink": True, "destination": os.fsdecode(destination)}


def name_of(info: Info) -> str:
    """Return the path of what is described."""
    name: str = info["name"]
    return name


def _recorded(record: Attributes | None) -> Info:
    if record is None:
        return {}
    known: Info = {} if record.mode is None else {"mode": record.mode}
    return known if record.mtime_ns is None else {**known, "mtime": record.mtime_ns / 1e9}


_WHOLE: Final = 1 << 62

_T = TypeVar("_T")


class OpenFile(File):
    """A file of the file system; see `coregw.client.File`. A copy that is pickled belongs to a copy of the system.

    Args:
        fs: The file system.
        path: The path, with the root.
        offset: The position.

    Attributes:
        fs: The file system.
        path: The path, with the root.
    """

    def __init__(self, fs: CoregwFileSystem, path: str, offset: int = 0) -> None:
        place = fs.place(path)
        if place.target is None:
            raise fs.no_file(path, place)
        super().__init__(fs.client, place.target, offset=offset)
        self.fs = fs
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.fs, self.path, self.tell())


class CoregwFileSystem(AbstractFileSystem):  # type: ignore[misc] # fsspec has no types
    """Folders in a gateway or static tree, read-only: ``coregw://ROOT/path``. What is returned is verified.

    `FileNotFoundError` means that the absence is proven; a gateway that lacks a root or payload is an `OSError` (EIO).
    What writes raises an `OSError` (EROFS). Safe to share between threads, to pickle, and to use after a fork.

    Args:
        gateway: Addresses as those of `coregw.client.Client`: one, several with commas, or a list. By default, those of
            the environment's ``COREGW_GATEWAY``, or http://127.0.0.1:8080.
        roots: Names that can be written instead of roots, with the roots that they stand for. They come before those of
            the trust store, each of which stands for one root as long as this object exists.
        trust: The file of the trust store; by default the user's.
        options: Options of `coregw.client.ConnectionOptions` as text (``bearer_token``, ``ca_cert``, …; ``headers`` as
            a mapping), by default those of the environment; and ``cache_bytes``, ``read_ahead_bytes``,
            ``max_entries`` and ``retry_seconds`` of `coregw.client.ClientSettings`.

    Raises:
        InvalidInput: An option is unknown or malformed.
    """

    protocol: ClassVar = PROTOCOLS
    root_marker = ""
    cachable = True

    def __init__(
        self,
        gateway: str | Sequence[str] | None = None,
        roots: Mapping[str, str] | None = None,
        trust: str | None = None,
        *,
        use_listings_cache: bool = True,
        **options: object,
    ) -> None:
        super().__init__(use_listings_cache=use_listings_cache)
        ignored = {"skip_instance_cache", "asynchronous", "listings_expiry_time", "max_paths"}
        self.client = client_of(gateway, trust, {name: value for name, value in options.items() if name not in ignored})
        self._roots = checked_roots(roots)
        self._places = Places(self.client)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:  # noqa: ANN401 - a path or a list of them
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return stripped(os.fspath(path))

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, str]:
        gateway = gateway_of(path)
        return {} if gateway is None else {"gateway": gateway}

    # What there is

    def place(self, path: str) -> Place:
        """Return where a path leads. Raises `InvalidInput` if it does not begin with a root or the name of one."""
        root, segments = self._split(path)
        with _reading(path):
            return self._places.find(root, segments)

    def info(self, path: str, **kwargs: object) -> Info:
        """Return what is known of a path: ``name``, ``type``, ``size``, ``cid``; ``mode`` and ``mtime`` if recorded.

        At most three requests. Only a file of one payload without a recorded size is fetched to know it; listings have
        None as its size. A symbolic link is what it leads to, or has the type ``link`` if that is nothing in the root.
        Listings have its ``destination``, and the type ``link`` unless it leads to a file: so walks do not enter it.

        Raises:
            FileNotFoundError: The path is proven absent.
        """
        path = self._strip_protocol(path)
        place = self.place(path)
        with _reading(path):
            record = self._places.record(place)
            if place.target is not None:
                return self._file_info(path, place.target, record)
            if record is not None or not place.inside or self._has_below(place):
                return folder_info(path, record)
        raise self.no_file(path, place)

    def exists(self, path: str, **kwargs: object) -> bool:
        """Return whether there is something at a path; False is proven."""
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def isdir(self, path: str) -> bool:
        """Return whether a path is a folder; False is proven."""
        try:
            return bool(self.info(path)["type"] == "directory")
        except FileNotFoundError:
            return False

    def isfile(self, path: str) -> bool:
        """Return whether a path is a file; False is proven."""
        place = self._followed(self._strip_protocol(path))
        return place is not None and place.target is not None

    def ls(self, path: str, detail: bool = True, **kwargs: object) -> list[Any]:
        """Return the entries of a folder, by name; of a file, the file. Proven to be complete.

        Raises:
            FileNotFoundError: The path is proven absent.
        """
        path = self._strip_protocol(path)
        place = self.place(path)
        if place.target is not None or not place.map:
            found = [self.info(path)]
        else:
            with _reading(path):
                found = [
                    self._entry_info(f"{path}/{entry.segments[-1]}", entry)
                    for entry in folder_level(self.client, place.map, place.inside)
                ]
            if not found:
                self.info(path)  # raises if there is no such folder
        return found if detail else [each["name"] for each in found]

    def find(
        self, path: str, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: object
    ) -> Any:  # noqa: ANN401 - as fsspec's
        """Return the files and links below a path. Without `maxdepth` and `withdirs`, one request for about 1,000.

        Links to folders are not followed.

        Raises:
            TooLarge: There are more than `ClientSettings.max_entries` entries: maps that nest others many times are a
                small root with as many files as its maker likes.
        """
        path = self._strip_protocol(path)
        place = self.place(path)
        if maxdepth is not None or withdirs or place.target is not None or not place.map:
            return super().find(path, maxdepth=maxdepth, withdirs=withdirs, detail=detail, **kwargs)
        with _reading(path):
            tree = _counted(self._tree(path, place.map, place.inside, 0), self._count())
            infos = [self._entry_info(name, entry) for name, entry in tree]
        found = {each["name"]: each for each in sorted(infos, key=name_of) if each["type"] != "directory"}
        return found if detail else list(found)

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = "omit",  # noqa: ANN401 - as fsspec's
        **kwargs: Any,  # noqa: ANN401 - as fsspec's
    ) -> Iterator[Any]:
        """Yield the folders below a path with their entries, as fsspec's. Links to folders are not entered.

        Raises:
            InvalidInput: Maps nest deeper than ``ClientSettings.max_nesting``.
            TooLarge: As `find`.
            ValueError: `maxdepth` is below 1.
        """
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        count, with_infos = self._count(), kwargs.pop("detail", False)
        pending: list[tuple[str, int | None, Any]] = [(self._strip_protocol(path), maxdepth, None)]
        while pending:
            top, depth, walked = pending.pop()
            if walked is not None:
                yield walked
                continue
            try:
                listing = self.ls(top, detail=True, **kwargs)
            except OSError as error:
                if on_error == "raise":
                    raise
                if callable(on_error):
                    on_error(error)
                continue
            count.add(len(listing))
            folders: Any = {}
            files: Any = {}
            for info in listing:
                name = "" if info["name"] == top else name_of(info).rpartition("/")[2]
                (folders if info["type"] == "directory" and name else files)[name] = info
            if not with_infos:
                folders, files = list(folders), list(files)
            if topdown:
                yield top, folders, files
            else:
                pending.append((top, None, (top, folders, files)))
            if depth is None or depth > 1:
                below = None if depth is None else depth - 1
                pending += [(f"{top}/{name}", below, None) for name in reversed(list(folders))]

    def _count(self) -> EntryCount:
        limit = self.client.settings.max_entries
        return EntryCount(limit, f"the folder has more than {limit:,} entries")

    def ukey(self, path: str) -> str:
        """Return the CID of a file: files with the same bytes in the same chunks have the same one."""
        return self._target(path)

    def modified(self, path: str) -> datetime:
        """Return the recorded time of modification. Raises `NotImplementedError` if none is recorded."""
        mtime = self.info(path).get("mtime")
        if mtime is None:
            raise NotImplementedError(f"{printable(path)}: no time is recorded")
        return datetime.fromtimestamp(mtime, UTC)

    def no_file(self, path: str, place: Place) -> OSError:
        """Return the exception for a path that is not a file."""
        if place.map and (not place.inside or place.record is not None or self._has_below(place)):
            return IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return FileNotFoundError(errno.ENOENT, "proven absent", path)

    # Bytes

    def _open(self, path: str, mode: str = "rb", **kwargs: object) -> OpenFile:
        if mode != "rb":
            _refuse()
        return OpenFile(self, path)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: object) -> bytes:
        """Return the bytes of a file, or a range of them; negative places count from the end."""
        with _reading(path):
            (data,) = self.client.run(read_files([self._range(path, start, end)]))
        return data

    def cat_ranges(
        self,
        paths: list[str],
        starts: int | list[int | None] | None,
        ends: int | list[int | None] | None,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: object,
    ) -> list[Any]:
        """Return ranges of files. Their payloads are requested together, in answers of about 16 MiB.

        Raises:
            ValueError: There are not as many starts and ends as paths.
        """
        first = starts if isinstance(starts, list) else [starts] * len(paths)
        after = ends if isinstance(ends, list) else [ends] * len(paths)
        if not len(first) == len(after) == len(paths):
            raise ValueError("expected as many starts and ends as paths")
        self._find_files(paths)
        try:
            with _reading("several files"):
                ranges = [self._range(*each) for each in zip(paths, first, after, strict=True)]
                return self.client.run(read_files(ranges))
        except Exception:
            if on_error == "raise":
                raise
        return super().cat_ranges(paths, first, after, on_error=on_error)  # type: ignore[no-any-return]

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **kwargs: object) -> Any:  # noqa: ANN401
        """Return the bytes of a file, or of several by their paths; see `cat_ranges`."""
        paths = self.expand_path(path, recursive=recursive)
        if not isinstance(path, list) and paths == [self._strip_protocol(path)]:
            return self.cat_file(paths[0])
        if recursive:
            paths = [each for each in paths if self.isfile(each)]
        found = self.cat_ranges(paths, None, None, on_error="raise" if on_error == "raise" else "return")
        pairs = zip(paths, found, strict=True)
        return {name: data for name, data in pairs if on_error != "omit" or not isinstance(data, Exception)}

    def expand_path(self, path: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> list[str]:  # noqa: ANN401 - as fsspec's
        """Return the paths that globs and folders stand for; below folders without links that lead to no file."""
        found = super().expand_path(path, recursive=recursive, maxdepth=maxdepth, **kwargs)
        if not recursive:
            return found  # type: ignore[no-any-return]
        self._find_files(found)
        given = {self._strip_protocol(each) for each in (path if isinstance(path, list) else [path])}
        return [each for each in found if each in given or self._is_copied(each)]

    def _is_copied(self, path: str) -> bool:
        place = self._followed(path)
        return place is not None and (place.target is not None or not place.is_link)

    def _followed(self, path: str) -> Place | None:
        """Return where a path leads; None if that takes too many symbolic links."""
        try:
            return self.place(path)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return None

    def get(
        self,
        rpath: Any,  # noqa: ANN401 - as fsspec's
        lpath: Any,  # noqa: ANN401 - as fsspec's
        recursive: bool = False,
        callback: Callback = DEFAULT_CALLBACK,
        maxdepth: int | None = None,
        **kwargs: Any,  # noqa: ANN401 - as fsspec's
    ) -> None:
        """Copy files or whole folders to the disk. No symbolic link below `lpath` is followed; see `get_file`.

        Raises:
            InvalidInput: As `get_file`; or a path is at or below a ``.git`` that is in `lpath`, before anything is
                written (code ``invalid_path``).
        """
        planned: list[tuple[str, Any]] = []
        super().get(rpath, lpath, recursive=recursive, maxdepth=maxdepth, _planned=planned)
        top = None if isinstance(lpath, list) else os.fspath(lpath)
        if top is not None:
            self._check_git(pathlib.Path(top).absolute(), planned)
        callback.set_size(len(planned))
        for source, place in callback.wrap(planned):
            with callback.branched(source, place) as child:
                self.get_file(source, place, callback=child, _top=top, **kwargs)

    def _check_git(self, top: pathlib.Path, planned: Sequence[tuple[str, Any]]) -> None:
        """Check that nothing is written into a repository that is there."""
        for source, place in planned:
            path = pathlib.Path(place).absolute()
            names = path.relative_to(top).parts
            for count, name in enumerate(names, 1):
                there = top.joinpath(*names[:count])
                if not is_git(name) or not os.path.lexists(there):
                    continue
                if count < len(names) or not (there.is_dir() and self.isdir(source)):
                    raise refused_git(path.parts[1:])

    def get_file(
        self,
        rpath: str,
        lpath: Any = None,  # noqa: ANN401 - as fsspec's
        callback: Callback = DEFAULT_CALLBACK,
        outfile: Any = None,  # noqa: ANN401 - as fsspec's
        _top: str | None = None,
        _planned: list[tuple[str, Any]] | None = None,
        **kwargs: Any,  # noqa: ANN401 - as fsspec's
    ) -> None:
        """Copy a file to the disk. No symbolic link at `lpath`, or below the destination of `get`, is followed.

        Raises:
            InvalidInput: A segment can't be a file name, such as ``..``: `get` of the folder above would write outside
                of its destination (code ``invalid_path``).
            OSError: There is a symbolic link, or something else than a file or folder (ELOOP, ENOTDIR, EISDIR, ENXIO).
            TooLarge: The file has more bytes than are free on the disk. None of them is written.
        """
        if _planned is not None:
            _planned.append((rpath, lpath))
            return
        check_segments(self._strip_protocol(rpath).split("/")[1:])
        if outfile is not None or isfilelike(lpath):
            super().get_file(rpath, lpath, callback, outfile, **kwargs)
            return
        path = pathlib.Path(lpath).absolute()
        top = path.parent if _top is None else pathlib.Path(_top).absolute()
        if self.isdir(rpath):
            if path != top:
                _write_below(top, path.relative_to(top).parts, None)
            else:
                path.mkdir(parents=True, exist_ok=True)
            return
        top = path.parent if path == top else top
        *folders, name = path.relative_to(top).parts
        with self.open(rpath, "rb", **kwargs) as source:
            _check_space(path, source.size)
            with _write_below(top, folders, name) as file:
                callback.set_size(source.size)
                while data := source.read(self.blocksize):
                    callback.relative_update(file.write(data))

    # What writes

    def _refuse(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise `OSError` (EROFS): a root never changes."""
        _refuse()

    mkdir = makedirs = rmdir = rm = rm_file = _rm = mv = touch = pipe = pipe_file = put = put_file = _refuse
    cp_file = copy = _refuse

    # Parts

    def _split(self, path: str) -> tuple[Cid, Path]:
        name, *segments = self._strip_protocol(path).split("/")
        root = self._roots.get(name)
        if root is None:
            try:
                root = Cid(self.client.root(name))
            except InvalidInput as error:
                where = f"{printable(path)}: {printable(name)!r} is not in the storage option 'roots', and"
                raise InvalidInput(f"{where} {error.message}", code=error.code) from None
            if root.text != name:
                self._roots[name] = root
        return root, tuple(segments)

    def _find_files(self, paths: Sequence[str]) -> None:
        """Look many paths up with few requests."""
        grouped: dict[Cid, list[Path]] = {}
        for each in paths:
            root, segments = self._split(each)
            grouped.setdefault(root, []).append(segments)
        for root, several in grouped.items():
            self._places.find_files(root, several)

    def _target(self, path: str) -> str:
        path = self._strip_protocol(path)
        place = self.place(path)
        if place.target is None:
            raise self.no_file(path, place)
        return place.target

    def _range(self, path: str, start: int | None, end: int | None) -> tuple[Reading, int, int]:
        reading = Reading(self.client.settings, self.client.cache, self._target(path))
        if (start or 0) < 0 or (end or 0) < 0:
            size = self.client.run(reading.size())
            start, end = (None if at is None else max(0, size + at) if at < 0 else at for at in (start, end))
        return reading, start or 0, _WHOLE if end is None else end

    def _has_below(self, place: Place) -> bool:
        return bool(self.client.scan(place.map, place.inside, None, 1).entries) if place.map else False

    def _tree(self, path: str, root: str, prefix: Path, depth: int) -> Iterator[tuple[str, FolderEntry]]:
        """Yield everything below a folder, nested maps included, with paths."""
        limit = self.client.settings.max_nesting
        if depth > limit:
            raise InvalidInput(f"{printable(path)}: maps nest deeper than {limit}")
        for entry in folder_tree(self.client, root, prefix):
            name = "/".join((path, *entry.segments[len(prefix) :]))
            if entry.kind == "map" and entry.target is not None:
                yield from self._tree(name, entry.target, (), depth + 1)
            else:
                yield name, entry

    def _entry_info(self, path: str, entry: FolderEntry) -> Info:
        if entry.kind == "file" and entry.target is not None:
            return self._file_info(path, entry.target, entry.attributes, may_fetch=False)
        if entry.kind == "link" and entry.attributes is not None and entry.attributes.link is not None:
            return as_link(self._linked(path), entry.attributes.link)
        return folder_info(path, entry.attributes)

    def _linked(self, path: str) -> Info:
        """Describe what a link leads to; one that nobody can follow is listed like any other."""
        try:
            return self.info(path)
        except FileNotFoundError:
            return dangling_link(path)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            return dangling_link(path)
        except InvalidInput:
            return dangling_link(path)

    def _file_info(self, path: str, target: str, record: Attributes | None, may_fetch: bool = True) -> Info:
        size = None if record is None else record.size
        cid = Cid(target)
        if size is None and (may_fetch or cid.kind == "list" or cid.hash_name == "identity"):
            size = self.client.run(Reading(self.client.settings, self.client.cache, cid).size())
        return file_info(path, target, size, record)


@overload
def _write_below(top: pathlib.Path, folders: Sequence[str], name: str) -> BinaryIO: ...


@overload
def _write_below(top: pathlib.Path, folders: Sequence[str], name: None) -> None: ...


def _write_below(top: pathlib.Path, folders: Sequence[str], name: str | None) -> BinaryIO | None:
    """Make folders in a local folder, which may be new, and open a file in the last one to write it.

    Symbolic links are followed in the path of `top` only.

    Args:
        top: The folder.
        folders: The names of the folders, each in the one before.
        name: The name of the file; None opens none.

    Raises:
        OSError: One of them is a symbolic link, or something else.
    """
    top.mkdir(parents=True, exist_ok=True)
    path = top
    if not hasattr(os, "O_NOFOLLOW"):  # on Windows; there is nothing to open a folder with, either
        for each in folders if name is None else (*folders, name):
            path /= each
            if path.is_symlink():
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        top.joinpath(*folders).mkdir(parents=True, exist_ok=True)
        return None if name is None else path.open("wb")
    unfollowed = os.O_NOFOLLOW | os.O_CLOEXEC
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for each in folders:
            path /= each
            with suppress(FileExistsError):
                os.mkdir(each, dir_fd=at)
            below = os.open(each, os.O_RDONLY | os.O_DIRECTORY | unfollowed, dir_fd=at)
            os.close(at)
            at = below
        if name is None:
            return None
        path /= name
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK | unfollowed
        return os.fdopen(os.open(name, flags, 0o666, dir_fd=at), "wb")
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(path)) from None
    finally:
        os.close(at)


def _check_space(path: pathlib.Path, size: int) -> None:
    """Check that a file fits on the disk, in the place of the one that is there."""
    if not hasattr(os, "statvfs"):  # on Windows
        return
    from coregw.client.folders.destination import free_bytes  # noqa: PLC0415 - needs modules of a Unix

    there = path.parent
    while not there.exists():
        there = there.parent
    free = free_bytes(there)
    with suppress(OSError):
        if free is not None:
            free += path.lstat().st_size
    if free is not None and size > free:
        raise TooLarge(f"{printable(str(path))}: {size} bytes are to be written, but {free} are free on the disk")


def _counted(entries: Iterator[_T], count: EntryCount) -> Iterator[_T]:
    """Yield entries. Raises `TooLarge` beyond the limit of their count."""
    for each in entries:
        count.add(1)
        yield each


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Turn what a gateway says that it lacks into an `OSError`: programs take a `KeyError` for a proven absence."""
    try:
        yield
    except NotFound as error:
        raise OSError(errno.EIO, error.message, path) from error


def _refuse() -> NoReturn:
    raise OSError(errno.EROFS, "coregw:// is read-only: roots never change; `coregw add` makes new ones")
