"""Open files of the asyncio client."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import Any, Protocol, Self, TypeVar

from coregw.client.opened.position import Position, copied
from coregw.client.opened.reading import Cached
from coregw.client.operations.steps import Steps
from coregw.client.query import CidLike
from coregw.client.settings import ClientSettings
from coregw.verify import Buffer

__all__ = ["AsyncFile", "AsyncFileClient"]

T = TypeVar("T")


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

    Every method is a coroutine, as those of ``anyio.AsyncFile``. An asynchronous context manager, and an asynchronous
    iterator of lines. Closing a file does not close its client.

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
