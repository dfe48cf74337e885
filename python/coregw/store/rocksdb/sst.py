"""RocksDB's table files, read without it: blocks and rows.

```
data block | data block | ... | filter | index | properties | metaindex | footer (53)
block:  bytes | compression (1) | checksum (4)
```

The index names the blocks. Without it (a file that is cut off, or damage to its end) they are found one after the
other, by their structure. The checksum of a block depends on a number in the footer, so in a file that has lost it none
can be compared, and no row counts as intact.

```
entry | entry | ... | restart points (4 each) | [hash index] | number of restart points (4)
entry: shared bytes of the key | other bytes of the key | bytes of the value | key | value
```
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import lz4.block

from coregw.store.rocksdb.wal import (
    TRAILER,
    Damage,
    FileBytes,
    Malformed,
    RowVersion,
    block_checksum,
    context_modifier,
    varint,
)

__all__ = ["TableFile", "block_end", "lz4_end", "read_block"]

_HASH_INDEX: Final = 1 << 31

_RESTART_INTERVAL: Final = 16

_MAX_BUCKETS: Final = 4096


def read_block(block: memoryview, *, is_intact: bool = True) -> Iterator[tuple[bytes, memoryview]]:
    """Iterate over the (key, value) pairs of a block. O(bytes).

    Args:
        block: The block, decompressed.
        is_intact: Whether its checksum holds. Otherwise, what does not parse is skipped up to the next restart point.

    Raises:
        Malformed: An intact block does not parse.
    """
    end, restarts = _entries_end(block, is_intact=is_intact)
    at, key = 0, b""
    while at < end:
        try:
            shared, at_other = varint(block, at, end)
            other, at_value = varint(block, at_other, end)
            size, start = varint(block, at_value, end)
            if shared > len(key) or other + size > end - start:
                raise Malformed(f"byte {at} of a block: lengths {shared}, {other}, {size}")
        except Malformed:
            if is_intact:
                raise
            following = [restart for restart in restarts if restart > at]
            if not following:
                return
            at, key = min(following), b""
            continue
        key = key[:shared] + bytes(block[start : start + other])
        at = start + other + size
        yield key, block[start + other : at]


def read_index(block: memoryview, first: bytes = b"") -> Iterator[tuple[bytes, memoryview]]:
    """Iterate over the (key, handle) pairs of an index block, whose entries have no length of the value.

    With `first`, pairs with smaller keys are left out, as far as restart points allow: O(log(restart points)) then.
    """
    end, count = _restart_points(block)
    at, key = _restart_before(block, first, end, count) if first else 0, b""
    while at < end:
        shared, at_other = varint(block, at, end)
        other, start = varint(block, at_other, end)
        if shared > len(key) or other > end - start:
            raise Malformed(f"byte {at} of an index: lengths {shared}, {other}")
        key = key[:shared] + bytes(block[start : start + other])
        value = start + other
        _, middle = varint(block, value, end)
        _, at = varint(block, middle, end)
        yield key, block[value:at]


def _restart_points(block: memoryview) -> tuple[int, int]:
    """Where the restart points of an intact block begin, which is where its entries end, and their number."""
    packed = int.from_bytes(block[-4:], "little")
    end = len(block) - 4
    if packed & _HASH_INDEX and end >= 2:
        end -= 2 + int.from_bytes(block[end - 2 : end], "little")
    count = packed & ~_HASH_INDEX
    first = end - 4 * count
    if first < 0 or end < 0 or count > len(block) // 4:
        raise Malformed(f"a block of {len(block)} bytes with {count} restart points")
    return first, count


def _restart_before(block: memoryview, key: bytes, end: int, count: int) -> int:
    """The last restart point of an index block whose key is less than this one; 0 if there is none."""

    def point(number: int) -> int:
        return int.from_bytes(block[end + 4 * number : end + 4 * number + 4], "little")

    def key_at(number: int) -> bytes:
        _, at = varint(block, point(number), end)
        size, start = varint(block, at, end)
        return bytes(block[start : start + size])

    return point(max(0, bisect_left(range(count), key, key=key_at) - 1)) if count else 0


def _entries_end(block: memoryview, *, is_intact: bool) -> tuple[int, list[int]]:
    """Where the entries end, and the restart points."""
    try:
        first, count = _restart_points(block)
    except Malformed:
        if is_intact:
            raise
        return len(block), []
    points = [int.from_bytes(block[at : at + 4], "little") for at in range(first, first + 4 * count, 4)]
    return first, points


def block_end(data: memoryview, start: int, end: int) -> Iterator[int]:
    """Iterate over the offsets where an uncompressed data block that starts at `start` may end, by its structure.

    For files without an index. An entry without a key marks the first restart point, which is always 0.
    """
    at, count = start, 0
    while True:
        try:
            shared, at_other = varint(data, at, end)
            other, at_value = varint(data, at_other, end)
            size, first = varint(data, at_value, end)
        except Malformed:
            return
        if shared == other == 0:
            break
        if other + size > end - first or (count == 0 and shared):
            return
        at, count = first + other + size, count + 1
    if not count:
        return
    for restarts in {-(-count // _RESTART_INTERVAL), 1, count}:  # blocks of rows, of properties, and of names of blocks
        yield from _ends_after(data, at + 4 * restarts, end, restarts)


def _ends_after(data: memoryview, at: int, end: int, restarts: int) -> Iterator[int]:
    """The offsets after the number of restart points, which follows them directly or after a hash index."""
    if data[at : at + 4] == restarts.to_bytes(4, "little"):
        yield at + 4
    footer = (restarts | _HASH_INDEX).to_bytes(4, "little")
    window = bytes(data[at : min(end, at + _MAX_BUCKETS + 6)])
    found = window.find(footer, 3)
    while found >= 0:
        if int.from_bytes(window[found - 2 : found], "little") == found - 2:
            yield at + found + 4
        found = window.find(footer, found + 1)


def lz4_end(data: memoryview, start: int, end: int) -> int:
    """Where an LZ4 block ends that begins with the size of its content. Raises `Malformed`. O(bytes)."""
    size, at = varint(data, start, end)
    written = 0
    while at < end:
        token, at = data[at], at + 1
        literals, at = _lz4_length(data, at, end, token >> 4)
        at, written = at + literals, written + literals
        if written >= size:
            break
        at += 2  # the offset of the match
        match, at = _lz4_length(data, at, end, token & 15)
        written += match + 4
    if written != size or at > end:
        raise Malformed(f"byte {start}: no LZ4 block of {size} bytes")
    return at


def _lz4_length(data: memoryview, at: int, end: int, first: int) -> tuple[int, int]:
    length = first
    if first == 15:
        while at < end:
            byte, at = data[at], at + 1
            length += byte
            if byte != 255:
                break
    return length, at


_FOOTER: Final = 53

_MAGIC: Final = 0x88E241B785F4CFF7.to_bytes(8, "little")

_TRAILER_BYTES: Final = 5

_UNCOMPRESSED, _LZ4 = 0, 4

_DELETION, _VALUE, _SINGLE_DELETION = 0x0, 0x1, 0x7

_INDEX, _PROPERTIES = b"rocksdb.index", b"rocksdb.properties"

_MAX_BLOCK: Final = 64 << 20

_U32: Final = 0xFFFFFFFF

_LARGEST_SUFFIX: Final = b"\xff" * 8
"""An internal key that ends so is not less than any other of its row."""


class _Handle(NamedTuple):
    offset: int
    size: int


class _Block(NamedTuple):
    content: memoryview
    is_intact: bool


class TableFile:
    """One SST file. Only its end is read at first; `entries` reads the rest.

    Args:
        file: The file.

    Attributes:
        family: The name of the column family, None if the properties cannot be read.
        family_id: The number of the column family, None if the properties cannot be read.
        smallest: The smallest key of the file, if a MANIFEST names it.
        largest: The largest key of the file, if a MANIFEST names it.
        damages: What is damaged in the parts of the file that were read so far, as the keys of a dict.
    """

    def __init__(self, file: FileBytes) -> None:
        self._file = file
        self._base: int | None = None
        self._metadata: dict[bytes, _Handle] = {}
        self._metadata_start = file.size
        self._index: _Handle | None = None
        self._index_is_delta = True
        self.family: str | None = None
        self.family_id: int | None = None
        self.smallest: bytes | None = None
        self.largest: bytes | None = None
        self.damages: dict[Damage, None] = {}
        try:
            self._read_end()
        except Malformed as error:
            self._note(max(0, file.size - _FOOTER), file.size, f"no index: {error}")

    @property
    def has_index(self) -> bool:
        """Whether its end can be read, which is written last."""
        return self._index is not None

    def entries(self, first: bytes = b"", end_key: bytes | None = None) -> Iterator[RowVersion]:
        """Iterate over the rows, in the order of the file, also those of damaged blocks that parse. O(bytes).

        Args:
            first: The key to start from. Blocks before it are not read, and a few rows of its block may precede it.
            end_key: The key to end at; a few rows may follow it. None reads to the end.
        """
        previous = self.smallest
        damaged: tuple[int, int] | None = None
        for start, end, block in self._blocks(first, end_key):
            found = [] if block is None else list(_rows(block))
            if block is None or not block.is_intact:
                damaged = (start if damaged is None else damaged[0], end)
            elif found:
                if damaged is not None:
                    self._note(*damaged, "damaged rows", after=previous, before=found[0].key, has_rows=True)
                previous, damaged = found[-1].key, None
            yield from found
        if damaged is not None:
            self._note(*damaged, "damaged rows", after=previous, before=self.largest, has_rows=True)

    def index_block(self) -> memoryview | None:
        """Read the index; None if it cannot be read."""
        return None if self._index is None else self._required(self._index)

    def find(self, key: bytes, index: memoryview | None) -> Iterator[RowVersion]:
        """Iterate over the versions of a row. Notes no damage.

        O(log(rows)) with the `index_block`, if its form allows that; otherwise O(bytes).
        """
        if (self.smallest is not None and key < self.smallest) or (self.largest is not None and key > self.largest):
            return
        if index is None:
            blocks: Iterable[_Block | None] = (block for _, _, block in self._found_blocks())
        else:
            blocks = map(self._block, self._covering(index, key, key))
        for block in blocks:
            if block is not None:
                yield from (entry for entry in _rows(block) if entry.key == key)

    def check_metadata(self) -> None:
        """Check the checksums of the blocks that are not of rows: filter, index, properties. O(bytes)."""
        for name, handle in self._metadata.items():
            block = self._block(handle)
            if block is None or not block.is_intact:
                what = f"damaged {name.decode('latin-1')}"
                self._note(handle.offset, handle.offset + handle.size + _TRAILER_BYTES, what)

    # --- the end of the file ------------------------------------------------------------------------------------------

    def _read_end(self) -> None:
        """Find the metaindex, properties and index."""
        size = self._file.size
        footer = self._file.read(max(0, size - _FOOTER), size)
        if len(footer) < _FOOTER or footer[-8:] != _MAGIC:
            raise Malformed("the file has no footer")
        version, self._base = int.from_bytes(footer[-12:-8], "little"), 0
        index: _Handle | None = None
        if version >= 6:
            self._base = int.from_bytes(footer[9:13], "little")
            length = int.from_bytes(footer[13:17], "little")
            metaindex = _Handle(size - _FOOTER - _TRAILER_BYTES - length, length)
        else:
            metaindex, after = _handle(footer, 1)
            index, _ = _handle(footer, after)
        self._metadata = {b"metaindex": metaindex}
        for key, value in read_block(self._required(metaindex)):
            self._metadata[key] = _handle(value, 0)[0]
        self._metadata_start = min(handle.offset for handle in self._metadata.values())
        is_delta = self._read_properties()
        index = index or self._metadata.get(_INDEX)
        if index is None:
            raise Malformed("no index")
        self._metadata[_INDEX] = index
        self._index_is_delta = is_delta
        if any(
            handle.offset + handle.size > self._metadata_start for _, handle in self._indexed(self._required(index))
        ):
            raise Malformed("the index names blocks outside the file")
        self._index = index

    def _indexed(self, index: memoryview, first: bytes = b"") -> Iterator[tuple[bytes, _Handle]]:
        """Iterate over the index: a key not less than those of a block, and the block. For `first` see `read_index`."""
        for key, value in read_index(index, first) if self._index_is_delta else read_block(index):
            yield key, _handle(value, 0)[0]

    def _read_properties(self) -> bool:
        """Read the column family; whether the index is delta-encoded, as it is by default."""
        handle = self._metadata.get(_PROPERTIES)
        if handle is None:
            return True
        try:
            properties = {key: bytes(value) for key, value in read_block(self._required(handle))}
        except Malformed:
            return True
        name = properties.get(b"rocksdb.column.family.name")
        self.family = name.decode("utf-8", "replace") if name else None
        number = properties.get(b"rocksdb.column.family.id", b"")
        if number:
            self.family_id = varint(number, 0, len(number))[0]
        return properties.get(b"rocksdb.index.value.is.delta.encoded", b"\x01") != b"\x00"

    # --- blocks -------------------------------------------------------------------------------------------------------

    def _required(self, handle: _Handle) -> memoryview:
        """The content of a block; `Malformed` if its checksum does not hold."""
        block = self._block(handle)
        if block is None or not block.is_intact:
            raise Malformed(f"the block at byte {handle.offset} is damaged")
        return block.content

    def _block(self, handle: _Handle) -> _Block | None:
        """A block, or None if it is not readable at all."""
        offset, size = handle
        if offset < 0 or offset + size + _TRAILER_BYTES > self._file.size or not 4 <= size <= _MAX_BLOCK:
            return None
        return self._checked(self._file.read(offset, offset + size + _TRAILER_BYTES), offset)

    def _checked(self, data: memoryview, offset: int) -> _Block | None:
        """A block with its trailer, checked and decompressed; None if it does not decompress."""
        is_intact = self._is_intact(data, offset)
        content, compression = data[:-_TRAILER_BYTES], data[-_TRAILER_BYTES]
        if compression == _UNCOMPRESSED or (not is_intact and compression != _LZ4):
            return _Block(content, is_intact)
        plain = _decompressed(content)
        return None if plain is None else _Block(plain, is_intact)

    def _is_intact(self, data: memoryview, offset: int) -> bool:
        """Whether the checksum at the end of a block is right. It is not if the footer is lost."""
        if self._base is None:
            return False
        expected = (block_checksum(data[:-4]) + context_modifier(self._base, offset)) & _U32
        return int.from_bytes(data[-4:], "little") == expected

    def _blocks(self, first: bytes, end_key: bytes | None) -> Iterator[tuple[int, int, _Block | None]]:
        """Iterate over (start, end, block) of the data blocks with keys from `first` to `end_key`."""
        if self._index is None:
            yield from self._found_blocks()
            return
        for handle in self._covering(self._required(self._index), first, end_key):
            yield handle.offset, handle.offset + handle.size + _TRAILER_BYTES, self._block(handle)

    def _covering(self, index: memoryview, first: bytes, end_key: bytes | None) -> Iterator[_Handle]:
        """Iterate over the data blocks with keys from `first` to `end_key`."""
        for key, handle in self._indexed(index, first):
            if key >= first:
                yield handle
            if end_key is not None and key >= end_key + _LARGEST_SUFFIX:
                return

    def _found_blocks(self) -> Iterator[tuple[int, int, _Block | None]]:
        """Find the data blocks without an index, with the whole file in memory."""
        data = self._file.read(0, self._file.size)
        plain = bytes(data)
        at, end, damaged = 0, self._metadata_start, -1
        while at < end:
            stop = self._block_at(data, at, is_search=damaged >= 0)
            block = None if stop is None else self._checked(data[at:stop], at)
            if stop is None or block is None or not _has_rows(block.content):  # damaged, or filter, index, properties
                damaged = at if damaged < 0 else damaged
                at = next(_candidates(plain, at + 1, end), end) if stop is None else stop
                continue
            if damaged >= 0:
                yield damaged, at, _Block(data[damaged:at], is_intact=False)
                damaged = -1
            yield at, stop, block
            at = stop
        if damaged >= 0:
            yield damaged, end, _Block(data[damaged:end], is_intact=False)

    def _block_at(self, data: memoryview, at: int, *, is_search: bool) -> int | None:
        """The end of the data block that starts at an offset, with its trailer; None if there is none.

        Its structure is enough where the block before it ends, and everywhere if no checksum can be compared.
        """
        ends = list(_ends(data, at, is_search=is_search))
        intact = next((end for end in ends if self._is_intact(data[at:end], at)), None)
        if intact is not None or not ends or (is_search and self._base is not None):
            return intact
        return ends[0]

    def _note(
        self,
        start: int,
        end: int,
        what: str,
        *,
        after: bytes | None = None,
        before: bytes | None = None,
        has_rows: bool = False,
    ) -> None:
        self.damages[Damage(self._file.name, start, end, self.family, what, after, before, has_rows)] = None


def _ends(data: memoryview, at: int, *, is_search: bool) -> Iterator[int]:
    """The offsets at which a block that starts at an offset may end, with its trailer.

    A search, which tries every offset, finds uncompressed blocks only: to follow a compressed one takes too long.
    """
    if data[at] == 0:  # the first key shares no byte with one before it
        for end in block_end(data, at, len(data)):
            if end + _TRAILER_BYTES <= len(data) and data[end] == _UNCOMPRESSED:
                yield end + _TRAILER_BYTES
    if is_search:
        return
    try:
        end = lz4_end(data, at, min(len(data), at + _MAX_BLOCK))
    except Malformed:
        return
    if end + _TRAILER_BYTES <= len(data) and data[end] == _LZ4:
        yield end + _TRAILER_BYTES


def _candidates(data: bytes, start: int, end: int) -> Iterator[int]:
    """The offsets at which an uncompressed block may start: its first key shares no byte with one before it."""
    at = data.find(0, start, end)
    while at >= 0:
        yield at
        at = data.find(0, at + 1, end)


def _handle(data: memoryview, at: int) -> tuple[_Handle, int]:
    offset, at = varint(data, at, len(data))
    size, at = varint(data, at, len(data))
    return _Handle(offset, size), at


def _decompressed(content: memoryview) -> memoryview | None:
    """The content of an LZ4 block, or None if it does not decompress."""
    try:
        size, start = varint(content, 0, len(content))
        if size > _MAX_BLOCK:
            return None
        return memoryview(lz4.block.decompress(content[start:], uncompressed_size=size))
    except (Malformed, lz4.block.LZ4BlockError, ValueError):
        return None


def _has_rows(content: memoryview) -> bool:
    """Whether the keys of a block are those of rows, unlike those of an index or of properties."""
    kinds = (_DELETION, _VALUE, _SINGLE_DELETION)
    try:
        return all(len(key) >= TRAILER.size and key[-TRAILER.size] in kinds for key, _ in read_block(content))
    except Malformed:
        return False


def _rows(block: _Block) -> Iterator[RowVersion]:
    for internal, value in read_block(block.content, is_intact=block.is_intact):
        if len(internal) < TRAILER.size:
            continue
        (trailer,) = TRAILER.unpack(internal[-TRAILER.size :])
        kind, key = trailer & 0xFF, internal[: -TRAILER.size]
        if kind == _VALUE:
            yield RowVersion(key, trailer >> 8, value, block.is_intact)
        elif kind in (_DELETION, _SINGLE_DELETION):
            yield RowVersion(key, trailer >> 8, None, block.is_intact)
