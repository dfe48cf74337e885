"""Payload bytes on their way between a file and a gateway: hashed as they pass, bounded, never half done on disk.

Leaves out the requests themselves (``operations``). Files are read and written in pieces, so that 64 MiB cost less
than one MiB of memory.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from coregw import _core
from coregw.errors import Conflict, InvalidInput, TooLarge

__all__ = ["CHUNK_BYTES", "Download", "FileState", "NewFile", "Upload", "open_new", "standing_for"]

CHUNK_BYTES = 256 * 1024

# Where the system has them: never follow a symbolic link, never wait for the other end of a named pipe.
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
_NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class FileState:
    """What tells that a file was changed while it was read: its identity, size and times."""

    def __init__(self, descriptor: int) -> None:
        """Notes the state of an open file."""
        at = os.fstat(descriptor)
        self.mode = at.st_mode
        self._seen = (at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileState) and self._seen == other._seen

    def __hash__(self) -> int:
        return hash(self._seen)


class Upload:
    """A payload to send, from memory or from a file; knows its CID once all of it was sent.

    Raises:
        InvalidInput: An unknown codec or hash function.
        TooLarge: More than `limit` bytes.
    """

    def __init__(self, data: bytes | Path, codec: str | int, hash: str, limit: int) -> None:
        self._data = data
        self._limit = limit
        self._new_hasher: Callable[[], _core.PayloadHasher] = lambda: _core.PayloadHasher(codec, hash)
        self._hasher = self._new_hasher()
        if isinstance(data, bytes):
            self.name = f"{len(data)} bytes"
            self._check_size(len(data))
            self._hasher.update(data)
        else:
            self.name = str(data)

    @property
    def content(self) -> bytes | Upload:
        """What to give a `Call`: the bytes, or this object, which reads the file anew for each attempt."""
        return self._data if isinstance(self._data, bytes) else self

    @property
    def cid(self) -> str:
        """The CID of what was sent."""
        return self._hasher.cid()

    def chunks(self) -> Generator[bytes, None, None]:
        """The file in pieces, each hashed as it goes.

        Raises:
            Conflict: The file changed while it was read, so that the pieces are of no one version.
            OSError: The file can't be read.
            TooLarge: It has more bytes than allowed.
        """
        if isinstance(self._data, bytes):
            yield self._data
            return
        self._hasher = self._new_hasher()
        count = 0
        with os.fdopen(os.open(self._data, _READ_FLAGS), "rb", buffering=0) as file:
            before = FileState(file.fileno())
            while chunk := file.read(CHUNK_BYTES):
                count += len(chunk)
                self._check_size(count)
                self._hasher.update(chunk)
                yield chunk
            if FileState(file.fileno()) != before:
                raise Conflict(f"{self.name} changed while it was read")

    def _check_size(self, count: int) -> None:
        if count > self._limit:
            raise TooLarge(f"put {self.name}: more than {self._limit} bytes")


class _Hash(Protocol):
    def update(self, data: bytes, /) -> object: ...
    def digest(self) -> bytes: ...


class _Blake3:
    """BLAKE3 is not in hashlib; the extension's hasher gives a CID, whose digest is what is wanted."""

    def __init__(self) -> None:
        self._hasher = _core.PayloadHasher("raw", "blake3")

    def update(self, data: bytes, /) -> None:
        self._hasher.update(data)

    def digest(self) -> bytes:
        return _core.Cid(self._hasher.cid()).digest


_HASHES: dict[str, Callable[[], _Hash]] = {
    "sha2-256": hashlib.sha256,
    "sha2-512": hashlib.sha512,
    "sha3-256": hashlib.sha3_256,
    "blake2b-256": lambda: hashlib.blake2b(digest_size=32),
    "blake3": _Blake3,
}


def open_new(path: Path) -> int:
    """Creates a file and opens it for writing; what exists there, a symbolic link too, is never touched.

    Raises:
        InvalidInput: Something with that name exists (code ``invalid_path``).
        OSError: The file can't be created.
    """
    try:
        return os.open(path, _NEW_FLAGS, 0o666)
    except FileExistsError:
        raise InvalidInput(f"{path}: exists already", code="invalid_path") from None


@contextmanager
def standing_for(path: Path) -> Iterator[None]:
    """Lets an `OSError` of what stands for `path` until it is whole name `path`, which is the name that people know."""
    try:
        yield
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(path)) from None


class Download:
    """A payload on its way into an open file, hashed as it comes. The file is no payload before `matches` says so."""

    def __init__(self, cid: _core.Cid, file: BinaryIO) -> None:
        """Begins at the file's position, which must be one that it can be cut back to."""
        self._cid = cid
        self._file = file
        self._start = file.tell()
        self._hash = _HASHES[cid.hash_name]()

    def restarted(self) -> Self:
        """Begins anew: an attempt that broke off leaves nothing in the file."""
        self._file.seek(self._start)
        self._file.truncate()
        self._hash = _HASHES[self._cid.hash_name]()
        return self

    def write(self, chunk: bytes) -> None:
        """Takes the next piece."""
        self._hash.update(chunk)
        self._file.write(chunk)

    def matches(self) -> bool:
        """Whether what was written is what the CID names."""
        return self._hash.digest() == self._cid.digest

    @property
    def size(self) -> int:
        """How many bytes were written."""
        return self._file.tell() - self._start


class NewFile:
    """A file that appears under its name when it is whole: written beside it, and renamed by `commit`.

    As a context manager it gives the open file, and leaves nothing behind unless `commit` was called.

    Raises:
        InvalidInput: Something exists under the name already (code ``invalid_path``).
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.partial = path.with_name(f".coregw-{secrets.token_hex(8)}.partial")
        if os.path.lexists(path):
            raise InvalidInput(f"{path}: exists already", code="invalid_path")

    def __enter__(self) -> Self:
        with standing_for(self._path):
            self.file: BinaryIO = os.fdopen(open_new(self.partial), "wb")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.file.close()
        self.partial.unlink(missing_ok=True)

    def commit(self) -> None:
        """Gives the file its name, never over another file.

        Raises:
            InvalidInput: Something appeared under the name meanwhile (code ``invalid_path``).
        """
        self.file.flush()
        with standing_for(self._path):
            try:
                os.link(self.partial, self._path, follow_symlinks=False)
            except FileExistsError:
                raise InvalidInput(f"{self._path}: exists already", code="invalid_path") from None
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK):
                    raise
                # A file system without hard links: the check and the rename can't be one step there.
                if os.path.lexists(self._path):
                    raise InvalidInput(f"{self._path}: exists already", code="invalid_path") from None
                self.partial.rename(self._path)
