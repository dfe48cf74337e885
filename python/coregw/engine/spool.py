"""The bytes of a CAR that is imported: a short one in memory, any other in a spool.

A spool is an unnamed file, whose frames are checked as they arrive.
"""

from __future__ import annotations

import errno
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

from coregw._core import CarReader, block_cid
from coregw.errors import StorageFull, TooLarge, Unavailable

__all__ = ["ReceivedCar", "ReceivedPayload", "Spool", "WholeCar", "joined"]

MAX_CID_BYTES: Final = 160
"""No binary CID is longer: an identity CID holds a payload of at most 128 bytes."""


SPOOL_WRITE_BYTES: Final = 1 << 20
"""Bytes of a body that are taken in one visit of a worker thread, about."""

CHECK_BYTES: Final = 1 << 20
"""Bytes that `Spool.check_more` reads and checks."""

MAX_FIRST_BLOCKS: Final = 16_384
"""Blocks that are checked as they arrive. They take 1 MiB of memory."""

SLICE_BYTES: Final = 64 << 10
"""Bytes that are checked at once as they arrive; they may have 13,000 blocks."""


MAX_WHOLE_BLOCKS: Final = 65_536
"""Blocks of a CAR that is imported from memory. They take 4 MiB of memory."""


async def joined(chunks: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Join the chunks of a body to parts of at least `SPOOL_WRITE_BYTES`, and a last one, which may be empty.

    Close it after use: it holds what it reads.
    """
    received: list[bytes] = []
    size = 0
    async for chunk in chunks:
        received.append(chunk)
        size += len(chunk)
        if size >= SPOOL_WRITE_BYTES:
            part = b"".join(received)
            received, size = [], 0
            yield part
            del part  # not held while the next one arrives
    yield b"".join(received)


class ReceivedPayload(NamedTuple):
    """A payload of a CAR: its multihash, and where its bytes start and end."""

    multihash: bytes
    start: int
    end: int

    @property
    def size(self) -> int:
        """Number of bytes."""
        return self.end - self.start


class ReceivedCar(ABC):
    """The bytes of a CAR, and the reader that checks them."""

    reader: CarReader

    @abstractmethod
    def read(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end` (exclusive), fewer at the end of the CAR."""

    def payload(self, start: int, end: int) -> ReceivedPayload:
        """Return the payload whose block, CID and data, is from `start` to `end`."""
        cid, named = block_cid(self.read(start, min(start + MAX_CID_BYTES, end)))
        return ReceivedPayload(cid.multihash, start + named, end)

    def data(self, payloads: Sequence[ReceivedPayload]) -> list[tuple[bytes, bytes]]:
        """Return the multihash and the bytes of payloads."""
        return [(each.multihash, self.read(each.start, each.end)) for each in payloads]


class WholeCar(ReceivedCar):
    """A CAR in memory.

    Args:
        body: Its bytes.
        payload_bytes: Bound of one payload, in bytes.
        blocks: Bound of the number of blocks.
    """

    def __init__(self, body: bytes, payload_bytes: int, blocks: int) -> None:
        self.reader = CarReader(payload_bytes, min(blocks, MAX_WHOLE_BLOCKS))
        self._blocks = blocks
        self._body = body

    def check(self) -> bool:
        """Check the hashes of all blocks, unless there are more than `MAX_WHOLE_BLOCKS`: then return false. O(bytes).

        Raises:
            InvalidInput: If the bytes are not a CAR, or a block has another hash.
            TooLarge: If a limit is exceeded.
        """
        try:
            self.reader.feed(self._body)
        except TooLarge:
            if self.reader.blocks < MAX_WHOLE_BLOCKS or self._blocks <= MAX_WHOLE_BLOCKS:
                raise
            return False
        return True

    def read(self, start: int, end: int) -> bytes:
        """See `ReceivedCar.read`."""
        return self._body[start:end]


class Spool(ReceivedCar):
    """A context manager; its file is deleted on exit. All methods but `read` are for one thread at a time.

    Args:
        folder: Where the file is; None is the system's folder for temporary files.
        reserve_bytes: Free space on that disk below which nothing more is written.
        payload_bytes: Bound of one payload, in bytes.
        blocks: Bound of the number of blocks.

    Raises:
        Unavailable: If the file cannot be created (`StorageFull`: the disk is full).
    """

    def __init__(self, folder: Path | None, reserve_bytes: int, payload_bytes: int, blocks: int) -> None:
        self._reserve_bytes = reserve_bytes
        self._size = 0
        self.reader = CarReader(payload_bytes, blocks)
        try:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed by `__exit__`
        except OSError as error:
            raise _unavailable(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, data: bytes) -> None:
        """Append the next bytes to the file, and check them if they are among the first. O(bytes) hashing.

        Raises:
            InvalidInput: If they are not a CAR, or a block has another hash.
            TooLarge: If a limit is exceeded.
            Unavailable: If they cannot be written (`StorageFull`: the disk is full).
        """
        if self.reader.bytes == self._size:
            self._check_first(data)
        disk = os.fstatvfs(self._file.fileno())
        if disk.f_bavail * disk.f_frsize < self._reserve_bytes + len(data):
            raise _full()
        try:
            self._file.write(data)
            self._file.flush()
        except OSError as error:
            raise _unavailable(error) from error
        self._size += len(data)

    def check_more(self) -> bool:
        """Check a part of what has not been checked. Returns whether there is more. O(`CHECK_BYTES`) hashing.

        Raises:
            InvalidInput: If the bytes are not a CAR, or a block has another hash.
            TooLarge: If a limit is exceeded.
        """
        checked = self.reader.bytes
        self.reader.feed(self.read(checked, min(checked + CHECK_BYTES, self._size)))
        return self.reader.bytes < self._size

    def _check_first(self, data: bytes) -> None:
        """Check the next bytes, unless the CAR has many blocks already: the reader needs memory for each."""
        for at in range(0, len(data), SLICE_BYTES):
            if self.reader.blocks > MAX_FIRST_BLOCKS:
                return
            self.reader.feed(data[at : at + SLICE_BYTES])

    def read(self, start: int, end: int) -> bytes:
        """See `ReceivedCar.read`."""
        return os.pread(self._file.fileno(), end - start, start)


def _unavailable(error: OSError) -> Unavailable:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _full()
    return Unavailable(f"the CAR cannot be spooled: {error}")


def _full() -> StorageFull:
    return StorageFull("there is not enough disk space to spool the CAR")
