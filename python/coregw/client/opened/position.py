"""Position in an open file, and how far is read ahead: shared by the blocking and the asyncio file. Sans-I/O."""

from __future__ import annotations

import os
from typing import Final

from coregw.client.opened.reading import Cached, Reading, cut, load_files, read_files
from coregw.client.operations.steps import Steps
from coregw.client.query import CidLike
from coregw.client.settings import ClientSettings
from coregw.verify import Buffer

__all__ = ["Position", "copied"]

_FIRST_AHEAD_BYTES: Final = 256 << 10
_LINE_BYTES: Final = 8 << 10
"""Of a peek, at most: for each line the bytes up to its end are looked at."""


class Position:
    """The position in one open file.

    A read that continues where the last one ended requests 256 KiB more than it was asked for if something of it is not
    cached; the next one twice that, up to ``read_ahead_bytes``. Any other read requests just its payloads.

    Args:
        settings: The client's.
        cache: The client's.
        target: The file: a payload, or a list of payloads.
        recorded: The size that a record says the file has, if there is one.
        offset: The position.

    Attributes:
        reading: The file.
        offset: The position in bytes from the start; may be after the end.
    """

    def __init__(
        self, settings: ClientSettings, cache: Cached, target: CidLike, recorded: int | None = None, offset: int = 0
    ) -> None:
        self.reading = Reading(settings, cache, target, recorded)
        self.offset = offset
        self._max_ahead = min(settings.read_ahead_bytes, settings.cache_bytes // 2)
        self._ahead = 0
        self._end_of_last = -1
        self._kept, self._kept_at = b"", 0

    def kept(self, size: int) -> bytes | None:
        """Return the next `size` bytes and move past them, if they are at hand without a step."""
        at = self.offset - self._kept_at
        if not 0 <= at <= at + size <= len(self._kept):
            return None
        self.offset += size
        self._end_of_last = self.offset
        return self._kept[at : at + size]

    def kept_line(self) -> bytes | None:
        """Return the next line and move past it, if all of it is at hand without a step."""
        at = self.offset - self._kept_at
        end = self._kept.find(b"\n", at) + 1 if 0 <= at < len(self._kept) else 0
        return self.kept(end - at) if end else None

    def read(self, size: int | None) -> Steps[bytes]:
        """Return the next bytes, fewer than `size` only at the end, and move past them; all that follow for None or -1.

        Raises:
            ProofError, PayloadNotFound, InvalidInput: As `read_files`.
        """
        start = self.offset
        if size is None or size < 0:
            size = max(0, (yield from self.reading.size()) - start)
        data = yield from self._load(start, size)
        self.offset = self._end_of_last = start + len(data)
        return data

    def read_at(self, offset: int, size: int) -> Steps[bytes]:
        """Return at most `size` bytes from `offset` on; the position stays. See `read`."""
        if offset < 0:
            raise ValueError(f"negative offset {offset}")
        (data,) = yield from read_files([(self.reading, offset, offset + max(0, size))])
        return data

    def peek(self) -> Steps[bytes]:
        """Return some of the next bytes, none only at the end; the position stays."""
        at = self.offset - self._kept_at
        if 0 <= at < len(self._kept):
            return self._kept[at : at + _LINE_BYTES]
        if not (yield from self._load(self.offset, 1)):
            return b""
        at = self.offset - self._kept_at
        return self._kept[at : at + _LINE_BYTES]

    def line(self, limit: int = -1) -> Steps[bytes]:
        """Return the next line with its end, or at most `limit` bytes of it; empty at the end of the file."""
        parts: list[bytes] = []
        while limit and (found := (yield from self.peek())):
            found = found if limit < 0 else found[:limit]
            end = found.find(b"\n") + 1 or len(found)
            parts.append(found[:end])
            limit = limit if limit < 0 else limit - end
            self.offset = self._end_of_last = self.offset + end
            if found[end - 1 : end] == b"\n":
                break
        return b"".join(parts)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> Steps[int]:
        """Move, and return the position.

        Raises:
            ValueError: The position would be negative, or `whence` is none of `os.SEEK_SET`, `os.SEEK_CUR` and
                `os.SEEK_END`.
        """
        if whence == os.SEEK_SET:
            target = offset
        elif whence == os.SEEK_CUR:
            target = self.offset + offset
        elif whence == os.SEEK_END:
            target = (yield from self.reading.size()) + offset
        else:
            raise ValueError(f"invalid whence {whence}")
        if target < 0:
            raise ValueError(f"negative seek position {target}")
        self.offset = target
        return target

    def forget(self) -> None:
        """Drop the bytes that are kept."""
        self._kept = b""

    def _load(self, start: int, size: int) -> Steps[bytes]:
        """Return at most `size` bytes from `start` on, and keep the last payload that has some of them."""
        if size <= 0:
            return b""
        is_next = start == self._end_of_last
        self._ahead = min(max(2 * self._ahead, _FIRST_AHEAD_BYTES), self._max_ahead) if is_next else 0
        (payloads,) = yield from load_files([(self.reading, start, start + size)], self._ahead)
        if payloads:
            self._kept_at, self._kept = payloads[-1]
        return cut(payloads, start, start + size)


def copied(data: bytes, into: Buffer) -> int:
    """Copy bytes to the start of a buffer that is long enough, and return how many they are."""
    memoryview(into).cast("B")[: len(data)] = data
    return len(data)
