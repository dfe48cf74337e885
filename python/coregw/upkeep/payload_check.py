"""Checking payloads: their chunks against their multihashes, in the order in which chunks are stored."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Container, Iterator
from itertools import groupby
from typing import Final, NamedTuple, Protocol

from coregw._core import Cid, PayloadHasher
from coregw.errors import StoreDamaged
from coregw.store.rocksdb.layout import Family, PayloadRow, chunk_range, upload_of_chunk
from coregw.store.rocksdb.salvage import RawRow, RowSource

__all__ = ["PAYLOADS_AT_ONCE", "CheckedPayload", "Orphan", "hasher_of", "orphans", "payload_of", "payloads_by_upload"]

PAYLOADS_AT_ONCE: Final = 200_000
"""Payloads whose rows are in memory at once, about 250 bytes each. More take more passes over the payloads' rows."""

_CODES: Final = (b"\x12", b"\x13", b"\x16", b"\xa0\xe4\x02")
"""The codes of SHA2-256 and of `_HASHES`, as varints."""

_CORE_HASHES: Final = {0x12: "sha2-256", 0x1E: "blake3"}
_NO_UPLOAD: Final = b""

Keep = Callable[[bytes, bytes], None]
"""Called with the key and the bytes of each chunk that is read."""


class LibraryHash(Protocol):
    """What `hashlib` returns."""

    def update(self, data: bytes, /) -> None:
        """Append bytes."""

    def digest(self) -> bytes:
        """Return the digest."""


_HASHES: Final[dict[int, Callable[[], LibraryHash]]] = {
    0x13: hashlib.sha512,
    0x16: hashlib.sha3_256,
    0xB220: lambda: hashlib.blake2b(digest_size=32),
}


class ChunkHasher(Protocol):
    """Hashes a payload that comes in chunks."""

    def update(self, chunk: bytes) -> None:
        """Append bytes."""

    def matches(self) -> bool:
        """Whether the bytes are those that the multihash names."""


class CheckedPayload(NamedTuple):
    """A payload's row that was checked.

    Attributes:
        multihash: The binary multihash.
        row: Its row.
        is_intact: Whether RocksDB can read its row and all of its chunks.
        what: What is wrong with its bytes; None if they match the multihash.
    """

    multihash: bytes
    row: PayloadRow
    is_intact: bool
    what: str | None


class _Expected(NamedTuple):
    upload: bytes
    multihash: bytes
    row: PayloadRow
    is_intact: bool


def hasher_of(multihash: bytes) -> ChunkHasher | None:
    """Return the hasher for payloads of a multihash; None if it is not one of protocol section 1."""
    try:
        cid = Cid(b"\x01\x55" + multihash)
    except ValueError:
        return None
    if cid.hash_code in _CORE_HASHES:
        return _CoreHasher(cid)
    if cid.hash_code in _HASHES:
        return _LibraryHasher(cid)
    return None


class _CoreHasher:
    def __init__(self, cid: Cid) -> None:
        self._multihash = cid.multihash
        self._hasher = PayloadHasher(hash=_CORE_HASHES[cid.hash_code])

    def update(self, chunk: bytes) -> None:
        self._hasher.update(chunk)

    def matches(self) -> bool:
        return Cid(self._hasher.cid()).multihash == self._multihash


class _LibraryHasher:
    def __init__(self, cid: Cid) -> None:
        self._digest = cid.digest
        self._hasher = _HASHES[cid.hash_code]()

    def update(self, chunk: bytes) -> None:
        self._hasher.update(chunk)

    def matches(self) -> bool:
        return self._hasher.digest() == self._digest


def payload_of(row: RawRow) -> tuple[PayloadRow, bool] | None:
    """The newest readable version of a payload's row, and whether its checksums hold; None if there is none."""
    if row.is_deleted:
        return None
    for entry in row.versions:
        if entry.value is not None:
            try:
                row_value = PayloadRow.decode(row.key, bytes(entry.value))
                return row_value, entry.is_intact and not entry.is_corrected
            except StoreDamaged:
                continue
    return None


def chunk_of(row: RawRow, size: int) -> tuple[bytes, bool] | None:
    """The best version of a chunk that has this size, and whether its checksums hold; None if there is none."""
    for entry in row.versions:
        if entry.value is not None and len(entry.value) == size:
            return bytes(entry.value), entry.is_intact and not entry.is_corrected
    return None


def payloads_by_upload(database: RowSource, keep: Keep = lambda key, chunk: None) -> Iterator[CheckedPayload]:
    """Check every payload against its multihash, in the order of their chunks. O(bytes) hashing.

    Memory is bounded by `PAYLOADS_AT_ONCE` rows.
    """
    after = _NO_UPLOAD
    while expected := heapq.nsmallest(PAYLOADS_AT_ONCE, _expected(database, after)):
        yield from _checked(database, expected, keep)
        after = expected[-1].upload


def _expected(database: RowSource, after: bytes) -> Iterator[_Expected]:
    for row in database.rows(Family.PAYLOADS):
        found = payload_of(row)
        if found is not None and found[0].upload_id > after:
            yield _Expected(found[0].upload_id, row.key, *found)


def _checked(database: RowSource, expected: list[_Expected], keep: Keep) -> Iterator[CheckedPayload]:
    """Check payloads that are sorted by upload, along the chunks between the first and the last."""
    _, end = chunk_range(expected[-1].upload)
    chunks = groupby(database.rows(Family.CHUNKS, expected[0].upload, end), key=lambda row: upload_of_chunk(row.key))
    upload, rows = next(chunks, (None, iter(())))
    for upload_id, group in groupby(expected, key=lambda each: each.upload):
        while upload is not None and upload < upload_id:
            upload, rows = next(chunks, (None, iter(())))
        found = rows if upload == upload_id else iter(())
        for number, each in enumerate(group):
            # No two payloads share an upload, so a second row of it is damaged.
            yield (
                _check_one(each, found, keep)
                if number == 0
                else CheckedPayload(*each[1:], "its upload has another row")
            )


def _check_one(expected: _Expected, rows: Iterator[RawRow], keep: Keep) -> CheckedPayload:
    _, multihash, row, is_intact = expected
    hasher = hasher_of(multihash)
    if hasher is None:
        return CheckedPayload(multihash, row, is_intact, "the row has no valid multihash")
    number = 0
    for chunk_row in rows:
        at = int.from_bytes(chunk_row.key[-4:], "big")
        if at != number or number >= row.chunks or len(chunk_row.key) != len(row.upload_id) + 4:
            continue
        chunk = chunk_of(chunk_row, row.chunk_size(number))
        if chunk is None:
            break
        hasher.update(chunk[0])
        keep(chunk_row.key, chunk[0])
        is_intact = is_intact and chunk[1]
        number += 1
    if number < row.chunks:
        return CheckedPayload(multihash, row, is_intact, f"chunk {number} of {row.chunks} is missing")
    what = None if hasher.matches() else "its bytes do not match the multihash"
    return CheckedPayload(multihash, row, is_intact, what)


class Orphan(NamedTuple):
    """A complete upload of which no row of a payload is known.

    Attributes:
        upload: Its id.
        size: Its size in bytes.
        names: The multihashes that its bytes have: by SHA2-256 and BLAKE3 first, then by all other functions.
    """

    upload: bytes
    size: int
    names: list[bytes]


def orphans(database: RowSource, known: Container[bytes]) -> Iterator[Orphan]:
    """Iterate over the orphans of a database. O(bytes) hashing.

    Args:
        database: The database.
        known: The upload ids of payloads, and of uploads that were not finished.
    """
    rows = (row for row in database.rows(Family.CHUNKS) if not row.is_deleted)
    for upload, group in groupby(rows, key=lambda row: upload_of_chunk(row.key)):
        if upload not in known:
            hashers: list[LibraryHash] = [hashlib.sha256(), *(new() for new in _HASHES.values())]
            blake3 = PayloadHasher(hash="blake3")
            size = number = 0
            for row in group:
                entry = next((entry for entry in row.versions if entry.value is not None), None)
                if entry is None or entry.value is None or int.from_bytes(row.key[-4:], "big") != number:
                    break
                chunk = bytes(entry.value)
                blake3.update(chunk)
                for hasher in hashers:
                    hasher.update(chunk)
                number, size = number + 1, size + len(chunk)
            else:
                digests = [hasher.digest() for hasher in hashers]
                sha256, *others = (
                    code + bytes((len(digest),)) + digest for code, digest in zip(_CODES, digests, strict=True)
                )
                yield Orphan(upload, size, [sha256, Cid(blake3.cid()).multihash, *others])
