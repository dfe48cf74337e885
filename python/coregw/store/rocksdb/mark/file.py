"""The file of the high-water mark: two slots, of which one is always intact, whatever ends the process or the power.

A commit overwrites the live slot, which survives the end of the process. About once a second the file is synced, and
the other slot becomes the live one. So a power cut can only spoil a slot that is newer than the other.

```
slot, 4,096 bytes: | "cgw1" | sequence | MANIFEST: number, size | count | logs: number, size ... | CRC-32 |
                   | session, 16 bytes | CRC-32 |
```

Earlier versions wrote no session, and do not read it.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, Self

from coregw.errors import StoreDamaged
from coregw.syncing import sync_path

__all__ = ["MARK", "SESSION_BYTES", "Durable", "Extent", "MarkFile", "locked_mark", "read_mark"]

MARK: Final = "coregw-mark"
"""The file's name in RocksDB's directory; RocksDB ignores it."""

SESSION_BYTES: Final = 16

_UNFINISHED: Final = MARK + ".new"
_SLOT_BYTES: Final = 4096
_MAGIC: Final = b"cgw1"
_HEAD: Final = struct.Struct(">4sQQQH")
_EXTENT: Final = struct.Struct(">QQ")
_CRC: Final = struct.Struct(">I")
_MAX_LOGS: Final = (_SLOT_BYTES - _HEAD.size - 2 * _CRC.size - SESSION_BYTES) // _EXTENT.size


class Extent(NamedTuple):
    """A file of RocksDB, by its number, and how many of its bytes are meant."""

    number: int
    size: int


class Durable(NamedTuple):
    """What is durable of a database's MANIFEST and of its logs, in ascending order.

    Attributes:
        manifest: The MANIFEST in use.
        logs: The logs.
        session: The secret of the claims in the newest logs (`coregw.store.rocksdb.mark.claims`); empty if they have
            none.
    """

    manifest: Extent
    logs: tuple[Extent, ...]
    session: bytes = b""

    @property
    def newest(self) -> Extent:
        """The newest log; one before all others if earlier versions recorded none."""
        return self.logs[-1] if self.logs else Extent(0, 0)


class MarkFile:
    """The open file, locked for `locked_mark`. Every method raises OSError."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._sequence = 0
        self._live = 0

    @classmethod
    def create(cls, database: Path, durable: Durable) -> Self:
        """Replace the file of a database, durably."""
        unfinished = database / _UNFINISHED
        descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 2 * _SLOT_BYTES)
            file = cls(descriptor)
            for _ in range(2):  # allocates both slots now, not when the disk is full
                file.write(durable)
                file.sync()
            unfinished.replace(database / MARK)
            sync_path(database)
        except BaseException:
            os.close(descriptor)
            raise
        return file

    def write(self, durable: Durable) -> None:
        """Overwrite the live slot. It survives the end of the process at once, and a power cut after `sync`."""
        self._sequence += 1
        os.pwrite(self._descriptor, _encode(self._sequence, durable), self._live * _SLOT_BYTES)

    def sync(self) -> None:
        """Sync what was written; the other slot becomes the live one."""
        os.fsync(self._descriptor)
        self._live = 1 - self._live

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read_mark(database: Path) -> Durable | None:
    """Read the mark of a database; None if it has none, as those of earlier versions.

    Raises:
        StoreDamaged: Neither slot is intact.
        OSError: The file cannot be read.
    """
    try:
        data = (database / MARK).read_bytes()
    except FileNotFoundError:
        return None
    slots = (_decode(data[start : start + _SLOT_BYTES]) for start in (0, _SLOT_BYTES))
    intact = [slot for slot in slots if slot is not None]
    if not intact:
        raise StoreDamaged(f"{database / MARK} is damaged, so it cannot be checked whether anything is lost")
    return max(intact)[1]


@contextmanager
def locked_mark(database: Path) -> Iterator[bool]:
    """Lock the mark of a database; the value is False if it has none, or an open database has locked it."""
    with ExitStack() as stack:
        try:
            file = stack.enter_context((database / MARK).open("rb"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (FileNotFoundError, BlockingIOError):
            yield False
        else:
            yield True


def _encode(sequence: int, durable: Durable) -> bytes:
    logs = durable.logs[-_MAX_LOGS:]
    numbers = [number for log in logs for number in log]
    body = struct.pack(f"{_HEAD.format}{len(numbers)}Q", _MAGIC, sequence, *durable.manifest, len(logs), *numbers)
    return body + _CRC.pack(zlib.crc32(body)) + durable.session + _CRC.pack(zlib.crc32(durable.session))


def _decode(slot: bytes) -> tuple[int, Durable] | None:
    """Return a slot's sequence number and content, None if it is not intact."""
    if len(slot) < _SLOT_BYTES:
        return None
    magic, sequence, number, size, count = _HEAD.unpack_from(slot)
    if magic != _MAGIC or count > _MAX_LOGS:
        return None
    end = _HEAD.size + count * _EXTENT.size
    if _CRC.unpack_from(slot, end) != (zlib.crc32(slot[:end]),):
        return None
    logs = tuple(Extent(*_EXTENT.unpack_from(slot, _HEAD.size + i * _EXTENT.size)) for i in range(count))
    return sequence, Durable(Extent(number, size), logs, _decode_session(slot, end + _CRC.size))


def _decode_session(slot: bytes, start: int) -> bytes:
    session = slot[start : start + SESSION_BYTES]
    (checksum,) = _CRC.unpack_from(slot, start + SESSION_BYTES)
    return session if any(session) and zlib.crc32(session) == checksum else b""
