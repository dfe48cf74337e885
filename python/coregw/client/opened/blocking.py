"""Open files of the blocking client."""

from __future__ import annotations

import io
import os
import threading
from typing import Protocol, TypeVar

from coregw.client.opened.position import Position, copied
from coregw.client.opened.reading import Cached
from coregw.client.operations.steps import Steps
from coregw.client.query import CidLike
from coregw.client.settings import ClientSettings
from coregw.client.transport.forks import watch_forks
from coregw.verify import Buffer

__all__ = ["File", "FileClient"]

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
        """The size in bytes. The first use may send a request; see `coregw.client.opened.reading.Reading.size`."""
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
