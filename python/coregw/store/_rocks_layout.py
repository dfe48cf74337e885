"""How the RocksDB store lays out its rows: column families, keys, values, and each family's tuning.

The key layout is described, with its reasons, in ``docs/decisions/0010-rocksdb-key-layout.md``; a change of anything
here that old data can be read wrongly by is a new `FORMAT_VERSION`. This module touches no database.
"""

from __future__ import annotations

import os
import struct
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DataBlockIndexType,
    DBCompressionType,
    DBRecoveryMode,
    Options,
)

from coregw.errors import StoreDamaged
from coregw.store import CHUNK_BYTES, Record

FORMAT_VERSION: Final = 1
"""The version of the layout; `coregw.store._rocks_directory` notes it in the store's directory."""

EPOCH_KEY: Final = b"epoch"
"""In `Family.META`: how many times the store was opened to write, 4 bytes; the first half of new upload ids."""


class Family(StrEnum):
    """The column families. One log serves all, so a batch across them is atomic."""

    __hash__ = str.__hash__  # an enumeration's own runs in Python, and rows are looked up often

    META = "default"
    """`EPOCH_KEY`."""
    PAGES = "pages"
    """Digest of the top node -> page."""
    ROOTS = "roots"
    """Binary root CID -> nothing."""
    PAYLOADS = "payloads"
    """Binary multihash -> `PayloadRow`. A payload exists when this row does."""
    CHUNKS = "chunks"
    """Upload id, chunk number (4 bytes) -> `CHUNK_BYTES` bytes of a payload, fewer in its last chunk."""
    UPLOADS = "uploads"
    """Upload id -> nothing: an upload of several chunks that is not committed."""
    RECORDS = "records"
    """`record_key` -> the newest `Record` of a name; `revision_key` -> each of its revisions; `plant_key` -> plant."""


class Row(NamedTuple):
    """Names one row."""

    family: Family
    key: bytes


# --- payloads ---------------------------------------------------------------------------------------------------------

_PAYLOAD = struct.Struct(">12sQ")
_UPLOAD_ID = struct.Struct(">IQ")
_CHUNK = struct.Struct(">12sI")


class PayloadRow(NamedTuple):
    """Where a payload is, and its size in bytes."""

    upload_id: bytes
    size: int

    def encode(self) -> bytes:
        return _PAYLOAD.pack(*self)

    @classmethod
    def decode(cls, multihash: bytes, value: bytes) -> PayloadRow:
        if len(value) != _PAYLOAD.size:
            raise StoreDamaged(f"the row of payload {multihash.hex()} has {len(value)} bytes, not {_PAYLOAD.size}")
        return cls(*_PAYLOAD.unpack(value))

    @property
    def chunks(self) -> int:
        return -(-self.size // CHUNK_BYTES)

    def chunk_size(self, number: int) -> int:
        return min(CHUNK_BYTES, self.size - number * CHUNK_BYTES)


def upload_id(epoch: int, counter: int) -> bytes:
    """The id of an upload. Ids only grow, so that chunks are written in the order of their keys."""
    return _UPLOAD_ID.pack(epoch, counter)


def chunk_key(upload: bytes, number: int) -> bytes:
    """The key of a chunk in `Family.CHUNKS`."""
    return _CHUNK.pack(upload, number)


def upload_of_chunk(key: bytes) -> bytes:
    """The id of the upload that a chunk's key belongs to."""
    return key[: _UPLOAD_ID.size]


def chunk_range(upload: bytes) -> tuple[bytes, bytes]:
    """The first key of an upload's chunks, and the first key after them."""
    return upload, (int.from_bytes(upload, "big") + 1).to_bytes(len(upload), "big")


# --- published records ------------------------------------------------------------------------------------------------
# Scopes and names hold no byte 00 (`coregw.store._records`), so it ends them.


def record_key(scope: str, name: str) -> bytes:
    """The key of a name's newest record. Within a scope, keys are in the byte order of names."""
    return b"n" + scope.encode() + b"\0" + name.encode() + b"\0"


def revision_key(scope: str, name: str, revision: int) -> bytes:
    """The key of one revision; the revisions of a name are in their own order."""
    return b"r" + scope.encode() + b"\0" + name.encode() + b"\0" + revision.to_bytes(8, "big")


def record_keys_after(scope: str, after: str | None) -> tuple[bytes, bytes]:
    """The span (start, end exclusive) of the newest records of a scope whose names come after `after`."""
    prefix = b"n" + scope.encode()
    start = prefix + b"\0" if after is None else prefix + b"\0" + after.encode() + b"\0\0"
    return start, prefix + b"\1"


_DECODER = msgspec.msgpack.Decoder(Record)


def encode_record(record: Record) -> bytes:
    """The value of a record row."""
    return msgspec.msgpack.encode(record)


def decode_record(value: bytes) -> Record:
    """The record of a row's value; `StoreDamaged` if it is none."""
    try:
        return _DECODER.decode(value)
    except msgspec.MsgspecError as error:
        raise StoreDamaged(f"the row of a published record cannot be read: {error}") from error


def plant_key(plant_id: int) -> bytes:
    """The key of the plant with this id (int64). Keys are in the order of ids."""
    return b"p" + (plant_id + (1 << 63)).to_bytes(8, "big")


# --- tuning -----------------------------------------------------------------------------------------------------------

_MIB = 1 << 20


def database_options(*, create: bool, salvage: bool) -> Options:
    """The options of the database as a whole, and of `Family.META`."""
    options = _family_options(buffer_bytes=_MIB, buffers=2)
    options.create_if_missing(create)
    options.create_missing_column_families(create)
    # See docs/decisions/0011: what is acknowledged must not go missing in silence.
    options.set_wal_recovery_mode(
        DBRecoveryMode.skip_any_corrupted_record() if salvage else DBRecoveryMode.tolerate_corrupted_tail_records()
    )
    options.set_max_total_wal_size(64 * _MIB)  # bounds the log that the next open replays
    options.set_max_background_jobs(max(2, min(4, os.cpu_count() or 2)))
    options.set_bytes_per_sync(_MIB)  # table files reach the disk as they are written, not in one stall at the end
    options.set_max_open_files(512)
    options.set_max_log_file_size(_MIB)  # RocksDB's own LOG, and how many old ones stay
    options.set_keep_log_file_num(4)
    return options


def family_options(cache: Cache) -> dict[str, Options]:
    """The options of every family but `Family.META`. `cache` holds their blocks, those of `CHUNKS` excepted."""
    small = _family_options(buffer_bytes=_MIB, buffers=2)
    small.set_block_based_table_factory(_point_lookups(cache))
    pages = _family_options(buffer_bytes=8 * _MIB, buffers=3)
    pages.set_block_based_table_factory(_point_lookups(cache))
    # Payloads are the one thing here that may compress well. Chunks bypass the block cache: one big payload would
    # empty it of pages, and the operating system's own cache serves them as well.
    chunks = _family_options(buffer_bytes=4 * _MIB, buffers=3)
    chunks.set_compression_type(DBCompressionType.lz4())
    table = BlockBasedOptions()
    table.disable_cache()
    chunks.set_block_based_table_factory(table)
    families = dict.fromkeys((Family.ROOTS, Family.PAYLOADS, Family.UPLOADS, Family.RECORDS), small)
    return {
        str(family): options for family, options in {**families, Family.PAGES: pages, Family.CHUNKS: chunks}.items()
    }


def _family_options(*, buffer_bytes: int, buffers: int) -> Options:
    options = Options(raw_mode=True)
    options.set_write_buffer_size(buffer_bytes)
    options.set_max_write_buffer_number(buffers)
    options.set_compression_type(DBCompressionType.none())
    return options


def _point_lookups(cache: Cache) -> BlockBasedOptions:
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(4096)
    table.set_bloom_filter(10, block_based=False)
    table.set_data_block_index_type(DataBlockIndexType.binary_and_hash())
    table.set_data_block_hash_ratio(0.75)
    # Filters and indices count against the cache's bound instead of growing with the store.
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    return table
