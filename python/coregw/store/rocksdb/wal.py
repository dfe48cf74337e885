"""RocksDB's logs and MANIFEST files, read without it: records, batches, checksums.

```
block of 32 KiB: fragment | fragment | ...
fragment:        checksum (4) | length (2) | kind (1) | bytes        kind: 1 whole, 2 first, 3 middle, 4 last
```

A fragment whose checksum is wrong is passed on as it is: most of its bytes are right, and the rows in it can be
checked.

```
sequence (8) | count (4) | kind | family | key | value | kind | ...
```

```
block of 32 KiB: | record | record | ... | fewer than 7 bytes of padding |
record:          | checksum, 4 bytes | length, 2 bytes | kind, 1 byte | data |
```

An entry is one record (`_WHOLE`), or a `_FIRST`, any number of `_MIDDLE` and a `_LAST` one. RocksDB compares the
checksums. A length that reaches past the end of the file, a kind that it knows from recycled logs, and a zeroed record
all look to it like the end of the log, so this module follows the structure.
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
    "corrected",
    "flipped_bit",
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

_MAX_CORRECTED: Final = 1 << 14
"""Searching for a flipped bit in more bytes than these takes longer than a second."""

_CRC32C: Final = 0x82F63B78


def _crc_table() -> list[int]:
    table = []
    for value in range(256):
        crc = value
        for _ in range(8):
            crc = crc >> 1 ^ (_CRC32C if crc & 1 else 0)
        table.append(crc)
    return table


_CRC_TABLE: Final = _crc_table()

TRAILER: Final = struct.Struct("<Q")
"""The end of an internal key: the sequence number, and the kind of the entry in the lowest byte."""


class Malformed(Exception):
    """Bytes that are not what the format says."""


class RowVersion(NamedTuple):
    """One version of a row, as a file has it.

    Attributes:
        key: The row's key.
        sequence: RocksDB's sequence number: of two versions of a key, the greater one is newer. 0 in old rows.
        value: The value, None for a deletion.
        is_intact: Whether the checksums over the row hold. If not, key and value may differ from what was written.
        is_corrected: Whether they hold since a flipped bit was corrected; RocksDB cannot read the row.
    """

    key: bytes
    sequence: int
    value: bytes | memoryview | None
    is_intact: bool
    is_corrected: bool = False


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


def log_checksum(kind: int, payload: bytes | memoryview) -> int:
    """The masked CRC-32C of a log record: over the byte of its kind and the payload. O(bytes)."""
    crc: int = google_crc32c.extend(google_crc32c.value(bytes((kind,))), bytes(payload))
    return ((crc >> 15 | crc << 17) + _CRC_DELTA) & _U32


def flipped_bit(kind: int, payload: bytes | memoryview, checksum: int) -> tuple[int, int] | None:
    """Find the one flipped bit of a log record's payload: its byte and its mask, or None. O(bytes).

    A CRC is linear: the difference of two checksums is that of the flipped bit alone, carried on by one byte for each
    that follows it.
    """
    rotated = (checksum - _CRC_DELTA) & _U32
    stored = (rotated >> 17 | rotated << 15) & _U32
    computed = google_crc32c.extend(google_crc32c.value(bytes((kind,))), bytes(payload))
    difference = computed ^ stored
    deltas = [_CRC_TABLE[1 << bit] for bit in range(8)]
    for at in range(len(payload) - 1, -1, -1):
        if difference in deltas:
            return at, 1 << deltas.index(difference)
        deltas = [_CRC_TABLE[delta & 0xFF] ^ delta >> 8 for delta in deltas]
    return None


def block_checksum(block: memoryview | bytearray) -> int:
    """The XXH3 checksum of a block with the byte of its compression type, without the context's modifier. O(bytes)."""
    low = xxhash.xxh3_64_intdigest(block[:-1]) & _U32
    return low ^ (block[-1] * _LAST_BYTE_PRIME & _U32)


def corrected(data: bytes | memoryview, is_right: Callable[[bytearray], bool]) -> bytes | None:
    """Find the one flipped bit of some bytes, by trying each: the bytes without it, or None. O(bytes^2).

    With a checksum of 32 bits, other damage to n bytes is taken for a flipped bit once in 2^29 / n cases.
    """
    if len(data) > _MAX_CORRECTED:
        return None
    attempt = bytearray(data)
    for at in range(len(attempt)):
        for bit in range(8):
            attempt[at] ^= 1 << bit
            if is_right(attempt):
                return bytes(attempt)
            attempt[at] ^= 1 << bit
    return None


def context_modifier(base: int, offset: int) -> int:
    """What the position of a block in its file adds to its checksum (format version 6)."""
    return (base ^ (offset + (offset >> 32))) & _U32 if base else 0


_BLOCK: Final = 32_768

_RECORD_HEADER_BYTES: Final = 7

_MAX_CORRECTIONS: Final = 64
"""Fragments of a file in which a flipped bit is searched, some 0.1 s each."""

_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class LogRecord(NamedTuple):
    """A record of a log: where it starts, its bytes, and whether it is complete with valid checksums."""

    start: int
    data: bytes
    is_intact: bool


class _Fragment(NamedTuple):
    start: int
    kind: int
    data: memoryview
    is_intact: bool


def read_log(
    data: memoryview, file: str, damages: list[Damage], *, start: int = 0, corrects: bool = True
) -> Iterator[LogRecord]:
    """Iterate over the records of a log file; append to `damages` what is damaged. O(bytes).

    The end of a log that a process was writing to may be part of a record that was not acknowledged. It cannot be
    told from damage, so it is reported as well.

    Args:
        data: The file.
        file: Its name.
        damages: Where damage is reported.
        start: Where a record begins; what is before it is not read.
        corrects: Whether to search for flipped bits in damaged records.
    """
    parts: list[_Fragment] = []
    for fragment in _fragments(data, file, damages, start, _MAX_CORRECTIONS if corrects else 0):
        if fragment.kind in (_WHOLE, _FIRST) and parts:
            yield _joined(parts, is_complete=False)
            parts = []
        parts.append(fragment)
        if fragment.kind in (_WHOLE, _LAST):
            is_complete = parts[0].kind in (_WHOLE, _FIRST)
            yield _joined(parts, is_complete=is_complete)
            parts = []
    if parts:
        last = parts[-1]
        damages.append(Damage(file, parts[0].start, last.start + len(last.data), None, "the last record is truncated"))
        yield _joined(parts, is_complete=False)


def _joined(parts: list[_Fragment], *, is_complete: bool) -> LogRecord:
    is_intact = is_complete and all(part.is_intact for part in parts)
    return LogRecord(parts[0].start, b"".join(part.data for part in parts), is_intact)


def _fragments(data: memoryview, file: str, damages: list[Damage], at: int, corrections: int) -> Iterator[_Fragment]:
    size = len(data)
    while at < size:
        end = min(at - at % _BLOCK + _BLOCK, size)
        if end - at < _RECORD_HEADER_BYTES:
            at = end
            continue
        fragment = _fragment_at(data, at, end)
        if fragment is not None and fragment.is_intact:
            yield fragment
            at += _RECORD_HEADER_BYTES + len(fragment.data)
            continue
        if fragment is None and not any(data[at:end]):
            damages.append(Damage(file, at, end, None, "zeros"))
            at = end
            continue
        right = _corrected(data, at, end) if corrections else None
        corrections -= corrections > 0
        if right is not None:
            stop = at + _RECORD_HEADER_BYTES + len(right.data)
            damages.append(Damage(file, at, stop, None, "a flipped bit, which a repair corrects", has_rows=False))
            yield right
            at = stop
            continue
        after = _next_intact(data, at + 1, end)
        if fragment is None:
            damages.append(Damage(file, at, after, None, "no record header"))
        else:
            damages.append(Damage(file, at, after, None, "wrong checksum"))
            stop = min(at + _RECORD_HEADER_BYTES + len(fragment.data), after)
            yield fragment._replace(data=data[at + _RECORD_HEADER_BYTES : max(stop, at + _RECORD_HEADER_BYTES)])
        at = after


def _fragment_at(data: memoryview, at: int, end: int) -> _Fragment | None:
    """The fragment at an offset, cut off at the end of the block or file; None if there is no header."""
    return _fragment(data[at : at + _RECORD_HEADER_BYTES], data, at, end)


def _fragment(header: bytes | bytearray | memoryview, data: memoryview, at: int, end: int) -> _Fragment | None:
    """The fragment at an offset with this header."""
    kind = header[6]
    if not _WHOLE <= kind <= _LAST:
        return None
    length = header[4] | header[5] << 8
    payload = data[at + _RECORD_HEADER_BYTES : min(at + _RECORD_HEADER_BYTES + length, end)]
    checksum = int.from_bytes(header[:4], "little")
    is_intact = len(payload) == length and checksum == log_checksum(kind, payload)
    return _Fragment(at, kind, payload, is_intact)


def _corrected(data: memoryview, at: int, end: int) -> _Fragment | None:
    """The fragment at an offset without the one bit of it that was flipped; None if it has other damage."""
    for position in range(8 * _RECORD_HEADER_BYTES):
        header = bytearray(data[at : at + _RECORD_HEADER_BYTES])
        header[position // 8] ^= 1 << position % 8
        fragment = _fragment(header, data, at, end)
        if fragment is not None and fragment.is_intact:
            return fragment
    fragment = _fragment_at(data, at, end)
    if fragment is None or at + _RECORD_HEADER_BYTES + (data[at + 4] | data[at + 5] << 8) > end:
        return None
    checksum = int.from_bytes(data[at : at + 4], "little")
    found = flipped_bit(fragment.kind, fragment.data, checksum)
    if found is None:
        return None
    right = bytearray(fragment.data)
    right[found[0]] ^= found[1]
    return fragment._replace(data=memoryview(bytes(right)), is_intact=True)


def _next_intact(data: memoryview, at: int, end: int) -> int:
    """The offset of the next intact fragment of a block, or the block's end."""
    block = bytes(data[at:end])
    for offset in range(len(block) - _RECORD_HEADER_BYTES):
        # A random byte is rarely a kind with a length that fits, so few checksums are computed.
        kind = block[offset + 6]
        length = block[offset + 4] | block[offset + 5] << 8
        if _WHOLE <= kind <= _LAST and 0 < length <= len(block) - offset - _RECORD_HEADER_BYTES:
            payload = block[offset + _RECORD_HEADER_BYTES : offset + _RECORD_HEADER_BYTES + length]
            if int.from_bytes(block[offset : offset + 4], "little") == log_checksum(kind, payload):
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


_BLOCK_BYTES: Final = 32 << 10

_HEADER_BYTES: Final = 7

_HEADER: Final = struct.Struct("<IHB")


def complete_end(data: bytes | mmap.mmap, start: int, end: int) -> int:
    """Return where the last complete entry of a log file ends, before anything malformed. O(records).

    Args:
        data: The file.
        start: Where an entry ends; 0 is the file's beginning.
        end: The bytes from here on are not considered.
    """
    complete = start
    for position, _, kind, size in _records(data, start, end):
        if kind in (_WHOLE, _LAST):
            complete = position + size
    return complete


def intact_end(data: bytes | mmap.mmap, start: int, end: int) -> int:
    """Return what `complete_end` does, but also before the first wrong checksum. O(bytes)."""
    intact = start
    for position, checksum, kind, size in _records(data, start, end):
        if log_checksum(kind, data[position + _HEADER_BYTES : position + size]) != checksum:
            break
        if kind in (_WHOLE, _LAST):
            intact = position + size
    return intact


def _records(data: bytes | mmap.mmap, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Iterate over well-formed records: position, checksum, kind, and size with the header."""
    position = start
    is_inside = False
    while True:
        left = _BLOCK_BYTES - position % _BLOCK_BYTES
        if left < _HEADER_BYTES:
            position += left
            continue
        if position + _HEADER_BYTES > end:
            return
        checksum, length, kind = _HEADER.unpack_from(data, position)
        size = _HEADER_BYTES + length
        may_follow = kind in (_MIDDLE, _LAST) if is_inside else kind in (_WHOLE, _FIRST)
        if not may_follow or size > left or position + size > end:
            return
        yield position, checksum, kind, size
        position += size
        is_inside = kind in (_FIRST, _MIDDLE)
