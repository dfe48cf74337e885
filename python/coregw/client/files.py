"""Files as sources and destinations of payloads, and bodies that are spooled to disk.

Files are read and written in chunks, so a payload of 64 MiB needs less than 1 MiB of memory.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable, Generator
from io import FileIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, Final, Self

from coregw import _core
from coregw.durability import open_at_once
from coregw.errors import Conflict, InvalidInput, TooLarge
from coregw.verify import Buffer

if TYPE_CHECKING:
    from coregw.concurrency import Check

__all__ = [
    "CHUNK_BYTES",
    "Download",
    "FileState",
    "SpooledBody",
    "Upload",
    "as_bytes",
    "open_file",
    "pipe_content",
]

CHUNK_BYTES = 256 * 1024

_PAUSE_MILLISECONDS = 100
"""The longest time without a look for a cancellation while a pipe is waited for."""


def as_bytes(data: Buffer) -> bytes:
    """Return the bytes of an object with the buffer protocol: itself if it is `bytes`, otherwise a copy. O(bytes).

    Raises:
        TypeError: The object has no buffer protocol.
    """
    if isinstance(data, str):
        raise TypeError("a payload is bytes, or a Path of the file that has them, not text")
    return data if isinstance(data, bytes) else memoryview(data).tobytes()


class FileState:
    """A file's identity, size and times: equal before and after a read if the file was not changed meanwhile."""

    def __init__(self, descriptor: int) -> None:
        """Record the state of an open file."""
        status = os.fstat(descriptor)
        self.mode = status.st_mode
        self._key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileState) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


class Upload:
    """A payload to send, from memory or from a file. Its CID is known once all of it was sent.

    What is not a regular file, such as a pipe, is read to its end once, into memory.

    Raises:
        InvalidInput: The codec or hash function is unknown.
        TooLarge: The payload in memory has more than `limit` bytes.
        TypeError: It is neither, such as text, which may be meant as a payload or as the path of one.
    """

    def __init__(self, data: Buffer | Path, codec: str | int, hash: str, limit: int) -> None:
        self._data = data if isinstance(data, os.PathLike) else as_bytes(data)
        self._limit = limit
        self._new_hasher: Callable[[], _core.PayloadHasher] = lambda: _core.PayloadHasher(codec, hash)
        self._hasher = self._new_hasher()
        if isinstance(self._data, bytes):
            self.name = f"{len(self._data)} bytes"
            _check_size(self.name, len(self._data), self._limit)
            self._hasher.update(self._data)
        else:
            self.name = str(data)

    @property
    def content(self) -> bytes | Upload:
        """The content for a `Call`: the bytes, or this object, which reads the file again for each attempt."""
        return self._data if isinstance(self._data, bytes) else self

    @property
    def cid(self) -> str:
        """The CID of what was sent."""
        return self._hasher.cid()

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield the payload in chunks, and hash them.

        Raises:
            Conflict: The file changed while it was read, so the chunks may belong to different versions.
            OSError: The file can't be read.
            TooLarge: The file has more than `limit` bytes.
        """
        if isinstance(self._data, bytes):
            yield self._data
            return
        self._hasher = self._new_hasher()
        count = 0
        with open_at_once(self._data) as file:
            before = FileState(file.fileno())
            if not stat.S_ISREG(before.mode):
                data = _read_to_end(file, self.name, self._limit)
                self._hasher.update(data)
                self._data = data
                yield data
                return
            while chunk := file.read(CHUNK_BYTES):
                count += len(chunk)
                _check_size(self.name, count, self._limit)
                self._hasher.update(chunk)
                yield chunk
            if FileState(file.fileno()) != before:
                raise Conflict(f"{self.name} changed while it was read")


def open_file(path: Path, name: str) -> FileIO:
    """Open a regular file for reading. Never waits.

    Raises:
        InvalidInput: It is a pipe, a socket or a device.
        OSError: It can't be opened.
    """
    file = open_at_once(path)
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise InvalidInput(f"{name} is not a regular file, which could be read again", code="invalid_path")


def _check_size(name: str, count: int, limit: int) -> None:
    if count > limit:
        raise TooLarge(f"put {name}: more than {limit} bytes")


def pipe_content(path: Path, limit: int, check: Check = lambda count: None) -> bytes | None:
    """Return what a pipe has, up to its end, or None if it is a regular file. `check` is called while it waits.

    Raises:
        OSError: It can't be read.
        TooLarge: It has more than `limit` bytes.
    """
    with open_at_once(path) as file:
        is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
        return None if is_file else _read_to_end(file, str(path), limit, check)


def _read_to_end(file: FileIO, name: str, limit: int, check: Check = lambda count: None) -> bytes:
    """Read all of a pipe, for each attempt to send it. Waits for the first who writes to it, and for the last."""
    waiting = select.poll() if hasattr(select, "poll") else None
    if waiting is not None:
        waiting.register(file, select.POLLIN)
    data = bytearray()
    while True:
        # A named pipe that nobody has opened for writing yet would be at its end.
        while waiting is not None and not waiting.poll(_PAUSE_MILLISECONDS):
            check(0)
        chunk: bytes | None = file.read(CHUNK_BYTES)
        if chunk is None:
            continue  # somebody else reads from it as well
        if not chunk:
            return bytes(data)
        data += chunk
        check(len(chunk))
        _check_size(name, len(data), limit)


class Download:
    """A payload that is streamed into an open file. The written bytes are unverified until `matches` is true."""

    def __init__(self, cid: _core.Cid, file: BinaryIO) -> None:
        """Start at the file's position; the file must be seekable and truncatable to start over.

        Attributes:
            senders: The addresses of the gateways that sent the bytes.
        """
        self._cid = cid
        self._file = file
        self._start = file.tell()
        self._check = _core.PayloadCheck(cid)
        self.senders: set[str] = set()

    def restarted(self) -> Self:
        """Discard what an earlier attempt wrote."""
        self._file.seek(self._start)
        self._file.truncate()
        self._check = _core.PayloadCheck(self._cid)
        return self

    def write(self, chunk: bytes) -> None:
        """Hash and write the next chunk."""
        self._check.update(chunk)
        self._file.write(chunk)

    def matches(self) -> bool:
        """Return whether the written bytes have the CID's hash."""
        return self._check.matches()

    @property
    def size(self) -> int:
        """Number of bytes written."""
        return self._file.tell() - self._start


_CHUNK_BYTES: Final = 1 << 20


class SpooledBody:
    """A body that is written once, and read as often as needed (`exchange.Body`). A context manager.

    Args:
        max_memory: A body of more bytes is in a file, which has no name.
    """

    def __init__(self, max_memory: int) -> None:
        from tempfile import SpooledTemporaryFile

        # Closed with this object.
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=max_memory, prefix="coregw-")  # noqa: SIM115

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, chunk: bytes) -> None:
        """Append bytes. Raises `OSError`."""
        self._file.write(chunk)

    def chunks(self) -> Generator[bytes, None, None]:
        """Yield all of it, for one attempt of a request."""
        yield from self.span(0, self.length)

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self._file.seek(0, 2)

    def span(self, start: int, end: int) -> Generator[bytes, None, None]:
        """Yield the bytes from `start` to `end`."""
        for at in range(start, end, _CHUNK_BYTES):
            self._file.seek(at)
            yield self._file.read(min(_CHUNK_BYTES, end - at))
