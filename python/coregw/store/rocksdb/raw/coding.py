"""Integers of RocksDB's formats, with bounds checks, and the checksums of logs and blocks."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple

import google_crc32c
import xxhash

__all__ = [
    "TRAILER",
    "Damage",
    "Entry",
    "Malformed",
    "block_checksum",
    "context_modifier",
    "corrected",
    "flipped_bit",
    "log_checksum",
    "prefixed",
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


class Entry(NamedTuple):
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
