"""RocksDB's logs and MANIFEST files, read without it: records, batches, checksums.

```
block of 32 KiB: | fragment | fragment | ... | fewer than 7 bytes of padding |
fragment:        | checksum, 4 bytes | length, 2 bytes | kind, 1 byte | data |
```

A record is one fragment (`_WHOLE`), or a `_FIRST`, any number of `_MIDDLE` and a `_LAST` one. RocksDB compares the
checksums. A length that reaches past the end of the file, a kind that it knows from recycled logs, and zeros all look
to it like the end of the log, so this module follows the structure.

The bytes of a fragment whose checksum is wrong are passed on as they are: most are right, and the rows in them can be
checked. A record of a log is a batch of rows:

```
sequence (8) | count (4) | kind | family | key | value | kind | ...
```
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, NamedTuple, Self

import google_crc32c
import xxhash

__all__ = [
    "TRAILER",
    "BatchEntry",
    "Damage",
    "FileBytes",
    "LogRecord",
    "Malformed",
    "RowVersion",
    "block_checksum",
    "complete_end",
    "context_modifier",
    "intact_end",
    "log_checksum",
    "prefixed",
    "read_batch",
    "read_log",
    "varint",
]

_U32: Final = 0xFFFFFFFF

_LAST_BYTE_PRIME: Final = 0x6B9083D9

_CRC_DELTA: Final = 0xA282EAD8

_MAX_VARINT_BYTES: Final = 10

TRAILER: Final = struct.Struct("<Q")
"""The end of an internal key: the sequence number, and the kind of the entry in the lowest byte."""


LogBytes = bytes | memoryview | mmap.mmap


class Malformed(Exception):
    """Bytes that are not what the format says."""


class RowVersion(NamedTuple):
    """One version of a row, as a file has it.

    Attributes:
        key: The row's key.
        sequence: RocksDB's sequence number: of two versions of a key, the greater one is newer. 0 in old rows.
        value: The value, None for a deletion.
        is_intact: Whether the checksums over the row hold. If not, key and value may differ from what was written.
    """

    key: bytes
    sequence: int
    value: bytes | memoryview | None
    is_intact: bool


class Damage(NamedTuple):
    """A part of a file that is damaged.

    Attributes:
        file: The file's name.
        start: The first byte concerned.
        end: The byte after the last one concerned.
        family: The column family whose rows were there, or None if that is not known.
        what: What is wrong.
        after: The last key known to come before the damaged rows of an SST, or None.
        before: The first key known to come after them, or None.
        has_rows: Whether rows were there, some of which may be lost.
    """

    file: str
    start: int
    end: int
    family: str | None
    what: str
    after: bytes | None = None
    before: bytes | None = None
    has_rows: bool = True


def varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """Read a varint64 of RocksDB; the value and the offset after it. Raises `Malformed`.

    It may have 10 bytes, and need not be minimal, unlike those of multiformats (`coregw._core.read_varint`).
    """
    value = shift = 0
    for position in range(at, min(end, at + _MAX_VARINT_BYTES)):
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
    raise Malformed(f"byte {at}: no varint")


def prefixed(data: bytes | memoryview, at: int, end: int) -> tuple[memoryview, int]:
    """Read bytes that follow their length; the bytes and the offset after them. Raises `Malformed`."""
    size, start = varint(data, at, end)
    if size > end - start:
        raise Malformed(f"byte {at}: {size} bytes are announced, {end - start} follow")
    return memoryview(data)[start : start + size], start + size


def log_checksum(kind: int, payload: LogBytes) -> int:
    """The masked CRC-32C of a log record: over the byte of its kind and the payload. O(bytes)."""
    crc: int = google_crc32c.extend(google_crc32c.value(bytes((kind,))), bytes(payload))
    return ((crc >> 15 | crc << 17) + _CRC_DELTA) & _U32


def block_checksum(block: memoryview) -> int:
    """The XXH3 checksum of a block with the byte of its compression type, without the context's modifier. O(bytes)."""
    low = xxhash.xxh3_64_intdigest(block[:-1]) & _U32
    return low ^ (block[-1] * _LAST_BYTE_PRIME & _U32)


def context_modifier(base: int, offset: int) -> int:
    """What the position of a block in its file adds to its checksum (format version 6)."""
    return (base ^ (offset + (offset >> 32))) & _U32 if base else 0


_BLOCK_BYTES: Final = 32 << 10

_HEADER: Final = struct.Struct("<IHB")

_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class LogRecord(NamedTuple):
    """A record of a log: where it starts, its bytes, and whether it is complete with valid checksums."""

    start: int
    data: bytes
    is_intact: bool


class _Fragment(NamedTuple):
    """A fragment by its header, whose checksum may be wrong."""

    start: int
    end: int
    checksum: int
    kind: int

    def data(self, file: LogBytes) -> LogBytes:
        return file[self.start + _HEADER.size : self.end]

    def is_intact(self, file: LogBytes) -> bool:
        """Whether its checksum is right. O(bytes)."""
        return self.checksum == log_checksum(self.kind, self.data(file))

    @property
    def begins_record(self) -> bool:
        return self.kind in (_WHOLE, _FIRST)

    @property
    def ends_record(self) -> bool:
        return self.kind in (_WHOLE, _LAST)


def _fragment_at(file: LogBytes, at: int, end: int) -> _Fragment | None:
    """The fragment at an offset; None if there is no header, or if it announces more than is left up to `end`."""
    if end - at < _HEADER.size:
        return None
    checksum, length, kind = _HEADER.unpack_from(file, at)
    stop = at + _HEADER.size + length
    return _Fragment(at, stop, checksum, kind) if _WHOLE <= kind <= _LAST and stop <= end else None


def _fragments(file: LogBytes, at: int, size: int) -> Iterator[_Fragment]:
    """Iterate over fragments, up to the first that has no header or does not fit. O(fragments)."""
    while at < size:
        block = at - at % _BLOCK_BYTES + _BLOCK_BYTES
        if block - at < _HEADER.size:
            at = block
            continue
        fragment = _fragment_at(file, at, min(block, size))
        if fragment is None:
            return
        yield fragment
        at = fragment.end


def complete_end(data: bytes | mmap.mmap, start: int, end: int) -> int:
    """Return where the last complete record of a log file ends, before anything malformed. O(fragments).

    Args:
        data: The file.
        start: Where a record ends; 0 is the file's beginning.
        end: The bytes from here on are not considered.
    """
    return _end_of_records(data, start, end, lambda fragment: True)


def intact_end(data: bytes | mmap.mmap, start: int, end: int) -> int:
    """Return what `complete_end` does, but also before the first wrong checksum. O(bytes)."""
    return _end_of_records(data, start, end, lambda fragment: fragment.is_intact(data))


def _end_of_records(data: bytes | mmap.mmap, start: int, end: int, is_right: Callable[[_Fragment], bool]) -> int:
    complete, is_inside = start, False
    for fragment in _fragments(data, start, end):
        if fragment.begins_record is is_inside or not is_right(fragment):
            break
        is_inside = not fragment.ends_record
        if not is_inside:
            complete = fragment.end
    return complete


def read_log(data: memoryview, file: str, damages: list[Damage], *, start: int = 0) -> Iterator[LogRecord]:
    """Iterate over the records of a log file; append to `damages` what is damaged. O(bytes).

    The end of a log that a process was writing to may be part of a record that was not acknowledged. It cannot be
    told from damage, so it is reported as well.

    Args:
        data: The file.
        file: Its name.
        damages: Where damage is reported.
        start: Where a record begins; what is before it is not read.
    """
    parts: list[_Fragment] = []
    is_whole = True
    for fragment, is_intact in _readable(data, file, damages, start):
        if fragment.begins_record and parts:
            yield _joined(data, parts, is_intact=False)
            parts, is_whole = [], True
        is_whole = is_whole and is_intact and bool(parts or fragment.begins_record)
        parts.append(fragment)
        if fragment.ends_record:
            yield _joined(data, parts, is_intact=is_whole)
            parts, is_whole = [], True
    if parts:
        damages.append(Damage(file, parts[0].start, parts[-1].end, None, "the last record is truncated"))
        yield _joined(data, parts, is_intact=False)


def _joined(data: memoryview, parts: list[_Fragment], *, is_intact: bool) -> LogRecord:
    return LogRecord(parts[0].start, b"".join(part.data(data) for part in parts), is_intact)


def _readable(data: memoryview, file: str, damages: list[Damage], at: int) -> Iterator[tuple[_Fragment, bool]]:
    """Iterate over fragments and whether they are intact; of damaged ones, the bytes before the next intact one."""
    size = len(data)
    while at < size:
        damaged: _Fragment | None = None
        for fragment in _fragments(data, at, size):
            at = fragment.start
            if not fragment.is_intact(data):
                damaged = fragment
                break
            yield fragment, True
            at = fragment.end
        end = min(at - at % _BLOCK_BYTES + _BLOCK_BYTES, size)
        if end - at < _HEADER.size:
            at = end
            continue
        damaged = damaged or _truncated(data, at, end)
        if damaged is None and not any(data[at:end]):
            after, what = end, "zeros"
        else:
            after = _next_intact(data, at + 1, end)
            what = "no record header" if damaged is None else "wrong checksum"
        damages.append(Damage(file, at, after, None, what))
        if damaged is not None:
            yield damaged._replace(end=max(at + _HEADER.size, min(damaged.end, after))), False
        at = after


def _truncated(data: memoryview, at: int, end: int) -> _Fragment | None:
    """What there is of a fragment that announces more bytes than its block or its file has."""
    checksum, _, kind = _HEADER.unpack_from(data, at)
    return _Fragment(at, end, checksum, kind) if _WHOLE <= kind <= _LAST else None


def _next_intact(data: memoryview, at: int, end: int) -> int:
    """The offset of the next intact fragment of a block, or the block's end."""
    block = bytes(data[at:end])
    for offset in range(len(block) - _HEADER.size):
        # A random byte is rarely a kind with a length that fits, so few checksums are computed.
        fragment = _fragment_at(block, offset, len(block))
        if fragment is not None and fragment.end > offset + _HEADER.size and fragment.is_intact(block):
            return at + offset
    return end


_BATCH_HEADER_BYTES: Final = 12

_DELETION, _VALUE, _LOG_DATA, _SINGLE_DELETION, _NOOP, _RANGE_DELETION = 0x0, 0x1, 0x3, 0x7, 0xD, 0xF

_WITH_FAMILY: Final = {0x4: _DELETION, 0x5: _VALUE, 0x8: _SINGLE_DELETION, 0xE: _RANGE_DELETION}

_MAX_KEY: Final = 1 << 16
"""No key of a store is longer; a greater length is damage."""


class BatchEntry(NamedTuple):
    """A row of a batch: the number of its column family, and the row. A range deletion has the range in `until`."""

    family: int
    entry: RowVersion
    until: bytes | None = None


def read_batch(data: bytes, families: Collection[int], *, is_intact: bool) -> Iterator[BatchEntry]:
    """Iterate over the rows of a batch. O(bytes).

    Args:
        data: The batch; of a damaged one, the part that is left.
        families: The numbers of the column families that exist.
        is_intact: Whether its checksums hold. Otherwise, what does not parse is skipped up to the next row.
    """
    if len(data) < _BATCH_HEADER_BYTES and is_intact:
        return
    sequence = int.from_bytes(data[:8], "little") if is_intact else 0
    at = _BATCH_HEADER_BYTES
    while at < len(data):
        try:
            found, after = _read(data, at, families, sequence, is_intact=is_intact)
        except Malformed:
            if is_intact:  # a kind of entry that coregw does not write
                return
            at += 1
            continue
        at = after
        if found is not None:
            yield found
            sequence += is_intact


def _read(
    data: bytes, at: int, families: Collection[int], sequence: int, *, is_intact: bool
) -> tuple[BatchEntry | None, int]:
    """The row at an offset (None for an entry without one), and the offset after it."""
    end = len(data)
    kind, at, family = data[at], at + 1, 0
    if kind in _WITH_FAMILY:
        kind = _WITH_FAMILY[kind]
        family, at = varint(data, at, end)
    if kind == _NOOP:
        return None, at
    if family not in families or kind not in (_DELETION, _VALUE, _LOG_DATA, _SINGLE_DELETION, _RANGE_DELETION):
        raise Malformed(f"byte {at}: kind {kind}, family {family}")
    key, at = prefixed(data, at, end)
    if kind == _LOG_DATA:
        return None, at
    if len(key) > _MAX_KEY or not key:
        raise Malformed(f"byte {at}: a key of {len(key)} bytes")
    if kind in (_DELETION, _SINGLE_DELETION):
        return BatchEntry(family, RowVersion(bytes(key), sequence, None, is_intact)), at
    value, at = prefixed(data, at, end)
    if kind == _RANGE_DELETION:
        return BatchEntry(family, RowVersion(bytes(key), sequence, None, is_intact), bytes(value)), at
    return BatchEntry(family, RowVersion(bytes(key), sequence, value, is_intact)), at


_SECTOR: Final = 4096


class FileBytes:
    """A file open for reading. Reads at offsets, so that threads may share it. A context manager.

    Args:
        path: The file.
        on_read: Called with the number of bytes of each read, before it; may wait, to limit the rate.

    Raises:
        OSError: If the file cannot be opened.
    """

    def __init__(self, path: Path, on_read: Callable[[int], None] = lambda size: None) -> None:
        self.name = path.name
        self._on_read = on_read
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.size = os.fstat(self._descriptor).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def read(self, start: int, end: int) -> memoryview:
        """Read the bytes from `start` to `end`, zeros where the disk fails, fewer where the file ends."""
        end = min(end, self.size)
        self._on_read(end - start)
        try:
            return memoryview(os.pread(self._descriptor, end - start, start))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        return memoryview(b"".join(self._sector(at, min(at + _SECTOR, end)) for at in range(start, end, _SECTOR)))

    def _sector(self, start: int, end: int) -> bytes:
        try:
            return os.pread(self._descriptor, end - start, start)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return bytes(end - start)
