"""Layout of the RocksDB store on disk: column families, keys and values.

``docs/decisions/0010`` gives the reasons. A change that makes old data unreadable needs a new `FORMAT_VERSION`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from coregw.errors import StoreDamaged
from coregw.store.protocol import CHUNK_BYTES, Table

__all__ = [
    "CLAIM_KEY",
    "DIGEST_BYTES",
    "EPOCH_KEY",
    "EXPIRED_KEY",
    "FAMILIES",
    "FORMAT_VERSION",
    "TIME_KEY",
    "UNDATED_KEY",
    "Confirmed",
    "Family",
    "PayloadRow",
    "RootRow",
    "RowKey",
    "base_of",
    "chunk_key",
    "chunk_range",
    "decode_date",
    "decode_epoch",
    "encode_date",
    "encode_epoch",
    "epoch_of_upload",
    "is_kept_base",
    "kept_base",
    "page_of_base",
    "payload_date",
    "root_date",
    "upload_id",
    "upload_of_chunk",
]

FORMAT_VERSION: Final = 2
"""The version of the layout, recorded in the store's directory (`coregw.store.rocksdb.directory`).

In version 1, all pages are stored as a whole. A store of version 1 has version 2 once it is opened for writing.
"""

EPOCH_KEY: Final = b"epoch"
"""In `Family.META`: the number of times the store was opened, 4 bytes; the first part of new upload ids.

It is greater than that number if the row was damaged once, as no epoch may be used twice.
"""

UNDATED_KEY: Final = b"undated"
"""In `Family.META`: when rows without a date count as dated, a `Confirmed`.

Versions that do not date rows do not write it.
"""

TIME_KEY: Final = b"uptime"
"""In `Family.META`: the time of the store's clock, a `Confirmed`.

Versions that date rows by the system's clock do not write it.
"""

EXPIRED_KEY: Final = b"expired"
"""In `Family.META`: roots dated before this time are expired, 8 bytes. Absent before the first collection."""


CLAIM_KEY: Final = b"claim"
"""In `Family.META`: what was durable before the batch that has this row (`coregw.store.rocksdb.mark`)."""


DIGEST_BYTES: Final = 32
"""The size of a digest: the key of a page, and how a difference begins."""


class Family(StrEnum):
    """The column families. They share one write-ahead log, so a batch across them is atomic.

    `PAGES` and `RECORDS` hold the rows of the `coregw.store.Table` of the same name, unchanged; `ROOTS` with dates. A
    page that has no row in `PAGES` may have one in `DIFFERENCES`.
    """

    __hash__ = str.__hash__  # the enumeration's own is a Python function, and rows are looked up often

    META = "default"
    """The store's state, by the names above; `payload_date` -> its date: stored or renewed."""
    PAGES = "pages"
    DIFFERENCES = "differences"
    """Digest of a page -> its difference to a base, which is stored as a whole (`coregw._core.apply_difference`).

    A base is a page in `PAGES`, or here, if it is kept for differences alone: then its own digest, and the page.
    """
    ROOTS = "roots"
    """Binary root CID -> `RootRow`."""
    RECORDS = "records"
    PAYLOADS = "payloads"
    """Binary multihash -> `PayloadRow`. A payload exists if this row does."""
    CHUNKS = "chunks"
    """Upload id, chunk number (4 bytes) -> `CHUNK_BYTES` bytes of a payload, fewer in its last chunk."""
    UPLOADS = "uploads"
    """Upload id -> nothing: an upload of several chunks that is not committed."""


FAMILIES: Final = {table: Family(table) for table in Table}
"""The families of the tables, which have their names."""


class RowKey(NamedTuple):
    """The address of a row."""

    family: Family
    key: bytes


_DATE = struct.Struct(">Q")
_EPOCH = struct.Struct(">I")
_CONFIRMED = struct.Struct(">IQ")
_PAYLOAD = struct.Struct(">12sQ")
_UPLOAD_ID = struct.Struct(">IQ")
_CHUNK = struct.Struct(">12sI")


def encode_epoch(epoch: int) -> bytes:
    """The value of the row `EPOCH_KEY`."""
    return _EPOCH.pack(epoch)


def decode_epoch(value: bytes) -> int:
    """Read the value of the row `EPOCH_KEY`; `StoreDamaged` if it is malformed."""
    if len(value) != _EPOCH.size:
        raise StoreDamaged(f"an epoch has {len(value)} bytes, not {_EPOCH.size}")
    (epoch,) = _EPOCH.unpack(value)
    return int(epoch)


def encode_date(date: int) -> bytes:
    """A time in milliseconds as the value of a row."""
    return _DATE.pack(date)


def decode_date(value: bytes) -> int:
    """Read the value of a row; `StoreDamaged` if it is malformed."""
    if len(value) != _DATE.size:
        raise StoreDamaged(f"a date has {len(value)} bytes, not {_DATE.size}")
    (date,) = _DATE.unpack(value)
    return int(date)


def payload_date(multihash: bytes) -> bytes:
    """The key in `Family.META` of the date of a payload; absent if an older version stored the payload."""
    return b"p" + multihash


class Confirmed(NamedTuple):
    """A time in milliseconds, and the epoch in which it was confirmed last.

    Every opening confirms it. So if the epoch has moved on, an older version had the store open, which does not know
    the row, and what it stored may be newer.
    """

    epoch: int
    time: int

    def encode(self) -> bytes:
        """The row's value."""
        return _CONFIRMED.pack(*self)

    @classmethod
    def decode(cls, value: bytes) -> Confirmed:
        """Read the row's value; `StoreDamaged` if it is malformed."""
        if len(value) != _CONFIRMED.size:
            raise StoreDamaged(f"a time and its epoch have {len(value)} bytes, not {_CONFIRMED.size}")
        return cls(*_CONFIRMED.unpack(value))


def root_date(stored: bytes) -> int | None:
    """Read the date of a `RootRow`; `StoreDamaged` if it is malformed."""
    return decode_date(stored[: _DATE.size]) if stored else None


class RootRow(NamedTuple):
    """The value of a row of `Family.ROOTS`: when the root was stored or renewed, then what was put.

    The row is empty if an older version stored the root, which never put anything; its date is None.
    """

    date: int | None
    value: bytes

    def encode(self) -> bytes:
        """The row's value."""
        return b"" if self.date is None else _DATE.pack(self.date) + self.value

    @classmethod
    def decode(cls, stored: bytes) -> RootRow:
        """Read a row's value; `StoreDamaged` if it is malformed."""
        return cls(root_date(stored), stored[_DATE.size :])


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
        return tuple.__new__(cls, _PAYLOAD.unpack(value))  # half the time of the constructor

    @staticmethod
    def sizes_of(multihashes: Sequence[bytes], values: Sequence[bytes | None]) -> list[int | None]:
        """Read the sizes alone of many rows, in a fifth of the time of `decode`, None for each that is absent.

        Raises:
            StoreDamaged: A row is malformed.
        """
        found = [value for value in values if value is not None]
        if not {_PAYLOAD.size}.issuperset(map(len, found)):
            rows = zip(multihashes, values, strict=True)
            return [None if value is None else PayloadRow.decode(multihash, value).size for multihash, value in rows]
        sizes = iter([size for _, size in _PAYLOAD.iter_unpack(b"".join(found))])
        return [None if value is None else next(sizes) for value in values]

    @property
    def chunks(self) -> int:
        """The number of chunks."""
        return -(-self.size // CHUNK_BYTES)

    def chunk_size(self, number: int) -> int:
        """The size of a chunk in bytes."""
        return min(CHUNK_BYTES, self.size - number * CHUNK_BYTES)


def base_of(difference: bytes) -> bytes:
    """The digest of the base of a difference; of a base that is kept alone, its own."""
    return difference[:DIGEST_BYTES]


def kept_base(digest: bytes, page: bytes) -> bytes:
    """The value in `Family.DIFFERENCES` of a base that is kept alone."""
    return digest + page


def is_kept_base(digest: bytes, stored: bytes) -> bool:
    """Whether what `Family.DIFFERENCES` has of a page is no difference, but a base that is kept alone."""
    return base_of(stored) == digest


def page_of_base(kept: bytes) -> bytes:
    """The page of a base that is kept alone."""
    return kept[DIGEST_BYTES:]


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
