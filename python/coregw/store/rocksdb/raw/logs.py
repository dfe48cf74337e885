"""Log files of RocksDB, the format of write-ahead logs and MANIFESTs: records in fragments, each with a checksum.

```
block of 32 KiB: fragment | fragment | ...
fragment:        checksum (4) | length (2) | kind (1) | bytes        kind: 1 whole, 2 first, 3 middle, 4 last
```

A fragment whose checksum is wrong is passed on as it is: most of its bytes are right, and the rows in it can be
checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from coregw.store.rocksdb.raw.coding import Damage, flipped_bit, log_checksum

__all__ = ["Record", "read_log"]

_BLOCK: Final = 32_768
_HEADER: Final = 7
_MAX_CORRECTIONS: Final = 64
"""Fragments of a file in which a flipped bit is searched, some 0.1 s each."""

_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class Record(NamedTuple):
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
) -> Iterator[Record]:
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


def _joined(parts: list[_Fragment], *, is_complete: bool) -> Record:
    is_intact = is_complete and all(part.is_intact for part in parts)
    return Record(parts[0].start, b"".join(part.data for part in parts), is_intact)


def _fragments(data: memoryview, file: str, damages: list[Damage], at: int, corrections: int) -> Iterator[_Fragment]:
    size = len(data)
    while at < size:
        end = min(at - at % _BLOCK + _BLOCK, size)
        if end - at < _HEADER:
            at = end
            continue
        fragment = _fragment_at(data, at, end)
        if fragment is not None and fragment.is_intact:
            yield fragment
            at += _HEADER + len(fragment.data)
            continue
        if fragment is None and not any(data[at:end]):
            damages.append(Damage(file, at, end, None, "zeros"))
            at = end
            continue
        right = _corrected(data, at, end) if corrections else None
        corrections -= corrections > 0
        if right is not None:
            stop = at + _HEADER + len(right.data)
            damages.append(Damage(file, at, stop, None, "a flipped bit, which a repair corrects", has_rows=False))
            yield right
            at = stop
            continue
        after = _next_intact(data, at + 1, end)
        if fragment is None:
            damages.append(Damage(file, at, after, None, "no record header"))
        else:
            damages.append(Damage(file, at, after, None, "wrong checksum"))
            stop = min(at + _HEADER + len(fragment.data), after)
            yield fragment._replace(data=data[at + _HEADER : max(stop, at + _HEADER)])
        at = after


def _fragment_at(data: memoryview, at: int, end: int) -> _Fragment | None:
    """The fragment at an offset, cut off at the end of the block or file; None if there is no header."""
    return _fragment(data[at : at + _HEADER], data, at, end)


def _fragment(header: bytes | bytearray | memoryview, data: memoryview, at: int, end: int) -> _Fragment | None:
    """The fragment at an offset with this header."""
    kind = header[6]
    if not _WHOLE <= kind <= _LAST:
        return None
    length = header[4] | header[5] << 8
    payload = data[at + _HEADER : min(at + _HEADER + length, end)]
    checksum = int.from_bytes(header[:4], "little")
    is_intact = len(payload) == length and checksum == log_checksum(kind, payload)
    return _Fragment(at, kind, payload, is_intact)


def _corrected(data: memoryview, at: int, end: int) -> _Fragment | None:
    """The fragment at an offset without the one bit of it that was flipped; None if it has other damage."""
    for position in range(8 * _HEADER):
        header = bytearray(data[at : at + _HEADER])
        header[position // 8] ^= 1 << position % 8
        fragment = _fragment(header, data, at, end)
        if fragment is not None and fragment.is_intact:
            return fragment
    fragment = _fragment_at(data, at, end)
    if fragment is None or at + _HEADER + (data[at + 4] | data[at + 5] << 8) > end:
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
    for offset in range(len(block) - _HEADER):
        # A random byte is rarely a kind with a length that fits, so few checksums are computed.
        kind = block[offset + 6]
        length = block[offset + 4] | block[offset + 5] << 8
        if _WHOLE <= kind <= _LAST and 0 < length <= len(block) - offset - _HEADER:
            payload = block[offset + _HEADER : offset + _HEADER + length]
            if int.from_bytes(block[offset : offset + 4], "little") == log_checksum(kind, payload):
                return at + offset
    return end
