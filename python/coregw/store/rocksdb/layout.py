"""Layout of the RocksDB store on disk: column families, keys and values.

``docs/decisions/0010`` gives the reasons. A change that makes old data unreadable needs a new `FORMAT_VERSION`.
"""

from __future__ import annotations

import struct
from enum import StrEnum
from typing import Final, NamedTuple

from coregw.errors import StoreDamaged
from coregw.store import CHUNK_BYTES

__all__ = [
    "EPOCH_KEY",
    "FORMAT_VERSION",
    "Family",
    "PayloadRow",
    "Row",
    "chunk_key",
    "chunk_range",
    "epoch_of_upload",
    "upload_id",
    "upload_of_chunk",
]

FORMAT_VERSION: Final = 1
"""The version of the layout, recorded in the store's directory (`coregw.store.rocksdb.directory`)."""

EPOCH_KEY: Final = b"epoch"
"""In `Family.META`: the number of times the store was opened, 4 bytes; the first part of new upload ids."""


class Family(StrEnum):
    """The column families. They share one write-ahead log, so a batch across them is atomic.

    `PAGES`, `ROOTS` and `RECORDS` hold the rows of the `coregw.store.Table` of the same name, unchanged.
    """

    __hash__ = str.__hash__  # the enumeration's own is a Python function, and rows are looked up often

    META = "default"
    """`EPOCH_KEY`."""
    PAGES = "pages"
    ROOTS = "roots"
    RECORDS = "records"
    PAYLOADS = "payloads"
    """Binary multihash -> `PayloadRow`. A payload exists if this row does."""
    CHUNKS = "chunks"
    """Upload id, chunk number (4 bytes) -> `CHUNK_BYTES` bytes of a payload, fewer in its last chunk."""
    UPLOADS = "uploads"
    """Upload id -> nothing: an upload of several chunks that is not committed."""


class Row(NamedTuple):
    """The address of a row."""

    family: Family
    key: bytes


_PAYLOAD = struct.Struct(">12sQ")
_UPLOAD_ID = struct.Struct(">IQ")
_CHUNK = struct.Struct(">12sI")


class PayloadRow(NamedTuple):
    """The value of a row of `Family.PAYLOADS`: which upload the chunks belong to, and the payload's size in bytes."""

    upload_id: bytes
    size: int

    def encode(self) -> bytes:
        """The row's value."""
        return _PAYLOAD.pack(*self)

    @classmethod
    def decode(cls, multihash: bytes, value: bytes) -> PayloadRow:
        """Read a row's value; `StoreDamaged` if it is malformed."""
        if len(value) != _PAYLOAD.size:
            raise StoreDamaged(f"the row of payload {multihash.hex()} has {len(value)} bytes, not {_PAYLOAD.size}")
        return cls(*_PAYLOAD.unpack(value))

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return -(-self.size // CHUNK_BYTES)

    def chunk_size(self, number: int) -> int:
        """The size of a chunk in bytes."""
        return min(CHUNK_BYTES, self.size - number * CHUNK_BYTES)


def upload_id(epoch: int, counter: int) -> bytes:
    """Make the id of an upload. Ids increase, so chunks are written in key order."""
    return _UPLOAD_ID.pack(epoch, counter)


def epoch_of_upload(upload: bytes) -> int:
    """The epoch in which an upload began."""
    epoch: int = _UPLOAD_ID.unpack(upload)[0]
    return epoch


def chunk_key(upload: bytes, number: int) -> bytes:
    """The key of a chunk in `Family.CHUNKS`."""
    return _CHUNK.pack(upload, number)


def upload_of_chunk(key: bytes) -> bytes:
    """The upload id in a chunk's key."""
    return key[: _UPLOAD_ID.size]


def chunk_range(upload: bytes) -> tuple[bytes, bytes]:
    """The first key of an upload's chunks, and the first key after them."""
    return upload, (int.from_bytes(upload, "big") + 1).to_bytes(len(upload), "big")
