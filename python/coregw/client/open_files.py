"""Open files: `File`, and `AsyncFile` of an asyncio client.

Both are thin over `coregw.client.file_ranges.Position`. They are no twins: a read of `File` that the cache can answer
enters no generator.
"""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Coroutine
from typing import Any, Protocol, Self, TypeVar

from coregw.client.file_ranges import Cached, Position, copied
from coregw.client.operations.steps import Steps
from coregw.client.settings import ClientSettings
from coregw.client.transport.gateways import watch_forks
from coregw.verify import Buffer, CidLike

__all__ = ["AsyncFile", "AsyncFileClient", "File", "FileClient"]

T = TypeVar("T")

_READ1_BYTES = 64 << 10


class FileClient(Protocol):
    """What an open file needs of `coregw.client.Client`."""

    settings: ClientSettings

    @property
    def cache(self) -> Cached:
        """What the open files of the client keep."""

    def run(self, steps: Steps[T]) -> T:
        """Drive an operation to its end, and return its value."""


class File(io.BufferedIOBase):
    """A file that is read from a gateway: seekable, read-only, and every byte verified before it is returned.

    Only the payloads that hold what is read are fetched; they are cached by the client, for all of its files. A read
    that continues where the last one ended fetches more and more ahead, up to ``read_ahead_bytes`` of the settings.

    Safe to share between threads, which share the position; `read_at` has none. After a fork each process has its own.
    A copy that is pickled has a client of its own, with the same addresses, settings and credentials. Closing a file
    does not close its client.

    Args:
        client: The client.
        target: The CID of a payload, or of a list of payloads whose measures are their sizes.
        recorded: The size that a record says the file has, if there is one. What is read has to agree.
        offset: The position.

    Attributes:
        cid: The file's CID.
        mode: ``rb``.

    Raises:
        InvalidInput: The target is a map (code ``kind_mismatch``).
    """

    mode = "rb"

    def __init__(self, client: FileClient, target: CidLike, recorded: int | None = None, offset: int = 0) -> None:
        self._client = client
        self._position = Position(client.settings, client.cache, target, recorded, offset)
        self._lock = threading.RLock()
        self.cid = self._position.reading.target.text
        watch_forks(self)

    def forked(self) -> object:
        """Forget what a thread of the parent process may hold."""
        kept, self._lock = self._lock, threading.RLock()
        return kept

    def __reduce__(self) -> tuple[object, ...]:
        self._check_open()
        reading = self._position.reading
        return type(self), (self._client, self.cid, reading.recorded, self._position.offset)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__qualname__} {self.cid}{' closed' if self.closed else ''}>"

    @property
    def name(self) -> str:
        """The file's CID."""
        return self.cid

    @property
    def size(self) -> int:
        """The size in bytes. The first use may send a request; see `coregw.client.file_ranges.Reading.size`."""
        with self._lock:
            self._check_open()
            return self._client.run(self._position.reading.size())

    def readable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """Return True."""
        self._check_open()
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes, fewer than `size` only at the end of the file; all that follow for -1 or None.

        Raises:
            InvalidInput: The target is not a file: the elements of its list are not payloads of the proven sizes.
            PayloadNotFound: The gateway says that it does not hold a payload.
            ProofError: An answer is not proven.
            Unavailable: The gateway can't be reached.
            ValueError: The file is closed.
        """
        with self._lock:
            self._check_open()
            if size is not None and size >= 0 and (found := self._position.kept(size)) is not None:
                return found
            return self._client.run(self._position.read(size))

    def read1(self, size: int = -1, /) -> bytes:
        """Return the next bytes, at most `size`; about 64 KiB for -1. See `read`."""
        return self.read(size if size >= 0 else _READ1_BYTES)

    def readinto(self, buffer: Buffer, /) -> int:
        """Read into a buffer, and return how many bytes; fewer than it has only at the end. See `read`."""
        return copied(self.read(memoryview(buffer).nbytes), buffer)

    def readinto1(self, buffer: Buffer, /) -> int:
        """Read into a buffer, and return how many bytes. See `read`."""
        return self.readinto(buffer)

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return the next line with its end, or at most `size` bytes of it; empty at the end of the file."""
        with self._lock:
            self._check_open()
            limit = -1 if size is None else size
            if limit < 0 and (found := self._position.kept_line()) is not None:
                return found
            return self._client.run(self._position.line(limit))

    def read_at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on, without the position. Several threads can do so at once.

        Raises:
            ValueError: `offset` is negative, or the file closed. Otherwise as `read`.
        """
        self._check_open()
        return self._client.run(self._position.read_at(offset, size))

    def peek(self, size: int = 0, /) -> bytes:
        """Return some of the next bytes without moving; none only at the end of the file. `size` is ignored."""
        with self._lock:
            self._check_open()
            return self._client.run(self._position.peek())

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move, and return the position. From the end, the first use may send a request, as `size`.

        Raises:
            ValueError: The position would be negative, `whence` is unknown, or the file is closed.
        """
        with self._lock:
            self._check_open()
            return self._client.run(self._position.seek(offset, whence))

    def tell(self) -> int:
        """Return the position in bytes from the start."""
        with self._lock:
            self._check_open()
            return self._position.offset

    def close(self) -> None:
        """Close the file, not its client. Idempotent."""
        if not self.closed and "_position" in vars(self):  # the finalizer closes what __init__ refused, too
            self._position.forget()
        super().close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file")


class AsyncFileClient(Protocol):
    """What an open file needs of `coregw.client.AsyncClient`."""

    settings: ClientSettings

    @property
    def cache(self) -> Cached:
        """What the open files of the client keep."""

    def run(self, steps: Steps[T]) -> Coroutine[Any, Any, T]:
        """Drive an operation to its end, and return its value."""


class AsyncFile:
    """A file that is read from a gateway by the tasks of one event loop; otherwise as `coregw.client.File`.

    Every method is a coroutine. An asynchronous context manager, and an asynchronous iterator of lines. Closing a file
    does not close its client.

    Args:
        client: The client.
        target: The CID of a payload, or of a list of payloads whose measures are their sizes.
        recorded: The size that a record says the file has, if there is one. What is read has to agree.

    Attributes:
        cid: The file's CID.
        closed: Whether the file is closed.

    Raises:
        InvalidInput: The target is a map (code ``kind_mismatch``).
    """

    def __init__(self, client: AsyncFileClient, target: CidLike, recorded: int | None = None) -> None:
        import asyncio  # noqa: PLC0415 - so that a blocking client loads none

        self._client = client
        self._position = Position(client.settings, client.cache, target, recorded)
        self._lock = asyncio.Lock()
        self.cid = self._position.reading.target.text
        self.closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if line := await self.readline():
            return line
        raise StopAsyncIteration

    async def size(self) -> int:
        """Return the size in bytes. The first use may send a request."""
        return await self._run(self._position.reading.size())

    async def read(self, size: int | None = -1) -> bytes:
        """Return the next bytes, fewer than `size` only at the end; all that follow for -1 or None.

        Raises:
            InvalidInput, PayloadNotFound, ProofError, Unavailable, ValueError: As `coregw.client.File.read`.
        """
        return await self._run(self._position.read(size))

    async def readinto(self, buffer: Buffer) -> int:
        """Read into a buffer, and return how many bytes; fewer than it has only at the end. See `read`."""
        return copied(await self.read(memoryview(buffer).nbytes), buffer)

    async def readline(self, limit: int = -1) -> bytes:
        """Return the next line with its end, or at most `limit` bytes of it; empty at the end of the file."""
        return await self._run(self._position.line(limit))

    async def read_at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes from `offset` on, without the position. Several tasks can do so at once."""
        self._check_open()
        return await self._client.run(self._position.read_at(offset, size))

    async def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move, and return the position. Raises `ValueError` if it would be negative."""
        return await self._run(self._position.seek(offset, whence))

    async def tell(self) -> int:
        """Return the position in bytes from the start."""
        self._check_open()
        return self._position.offset

    async def aclose(self) -> None:
        """Close the file, not its client. Idempotent."""
        self.closed = True
        self._position.forget()

    async def _run(self, steps: Steps[T]) -> T:
        async with self._lock:
            self._check_open()
            return await self._client.run(steps)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file")
