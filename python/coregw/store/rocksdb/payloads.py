"""Payloads in RocksDB: uploads that buffer two chunks whatever their size, and reads chunk by chunk.

A payload of one chunk is written when it is committed, in one atomic batch. A longer one is written chunk by chunk
under an upload id that is marked in `Family.UPLOADS`; the commit writes the payload's row and deletes the mark. Uploads
that are still marked when the store is opened are deleted (`coregw.store.rocksdb.database`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from typing import Final, cast

from coregw.errors import CoregwError, PayloadNotFound, StoreDamaged
from coregw.store.chunks import ChunkWriter
from coregw.store.protocol import CHUNK_BYTES, check_payload_sizes, check_range, check_whole_payload
from coregw.store.rocksdb.committer import Committer, Request, Transaction
from coregw.store.rocksdb.database import Database
from coregw.store.rocksdb.garbage import Dates
from coregw.store.rocksdb.layout import Family, PayloadRow, RowKey, chunk_key, epoch_of_upload, upload_id
from coregw.store.rocksdb.reader import Reader

__all__ = [
    "RocksPayloadWriter",
    "RocksPayloads",
    "RocksUpload",
    "find_small",
    "note_left",
    "read_part",
]

_log = logging.getLogger(__name__)

_ROW_BYTES: Final = 128
"""The approximate size of a payload's rows without its chunks."""

_MAX_FOUND_ROWS: Final = 8192
"""Rows that `RocksPayloads.stat` keeps for `RocksPayloads.get`, which take about 2 MB."""


class RocksPayloads:
    """The payload methods of a `coregw.store.rocksdb.RocksStore`.

    Args:
        reader: Reads of the database.
        committer: Its writer.
        dates: The dates of its rows.
    """

    def __init__(self, reader: Reader, committer: Committer, dates: Dates) -> None:
        self._reader = reader
        self._committer = committer
        self._dates = dates
        self._counter = itertools.count()
        self._found: dict[bytes, PayloadRow] = {}  # by multihash: durable, but perhaps deleted or replaced since

    def begin(self) -> RocksPayloadWriter:
        """See `coregw.store.Store.begin_payload`."""
        self._reader.require_open()
        return RocksPayloadWriter(self._committer, self)

    def begin_upload(self) -> RocksUpload:
        """Return an upload of which nothing is written. For any thread."""
        return RocksUpload(self._dates, self._new_id())

    async def put(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """See `coregw.store.Store.put_payloads`."""
        check_payload_sizes(payloads)
        self._reader.require_open()
        return cast("list[bool]", await self._committer.queue(self.request(payloads)))

    def request(self, payloads: Sequence[tuple[bytes, bytes]]) -> Request:
        """Return a request for payloads of at most one chunk each, whose result is which are new. For any thread."""
        rows = [(self._new_id(), RowKey(Family.PAYLOADS, multihash), data) for multihash, data in payloads]

        def put(transaction: Transaction) -> list[bool]:
            are_new = []
            self._dates.date_payloads(transaction, [row.key for _, row, _ in rows])
            for upload, row, data in rows:
                is_new = transaction.get(row) is None
                are_new.append(is_new)
                if is_new:
                    if data:
                        transaction.put_all(Family.CHUNKS, [(chunk_key(upload, 0), data)])
                    transaction.put(row, PayloadRow(upload, len(data)).encode())
            return are_new

        size = sum(len(data) for _, data in payloads) + _ROW_BYTES * len(payloads)
        return Request(put, [row for _, row, _ in rows], size, durable=True, count=len(rows))

    def _new_id(self) -> bytes:
        return upload_id(self._committer.epoch, next(self._counter))

    async def stat(self, multihashes: Sequence[bytes]) -> list[int | None]:
        """See `coregw.store.Store.stat_payloads`.

        The rows of several payloads are kept, since `get` mostly follows: a stream of many payloads asks for all sizes
        first.
        """
        rows = await self._rows(multihashes)
        if len(rows) > 1:
            if len(self._found) > _MAX_FOUND_ROWS:
                self._found.clear()
            # Not those of empty payloads, which have no chunk that would be missed.
            self._found.update({key: row for key, row in zip(multihashes, rows, strict=True) if row and row.size})
        return [None if row is None else row.size for row in rows]

    async def _rows(self, multihashes: Sequence[bytes]) -> list[PayloadRow | None]:
        values = await self._reader.get_durable(Family.PAYLOADS, multihashes)
        return _decoded(multihashes, values)

    async def renew(self, multihashes: Sequence[bytes], *, below_held: bool) -> list[int | None]:
        """See `coregw.store.Store.renew`."""
        # Asked before the rows are read, which a collection in progress might remove after that and end.
        if below_held and not await self._dates.is_collecting(self._committer):
            values = await self._reader.get_durable(Family.PAYLOADS, multihashes)
            return PayloadRow.sizes_of(multihashes, values)
        # Most of those that clients ask for may be absent: these cost no visit of the committer's thread.
        found = await self._rows(multihashes)
        rows = [RowKey(Family.PAYLOADS, key) for key, row in zip(multihashes, found, strict=True) if row is not None]
        if not rows:
            return [None] * len(found)

        def renew(transaction: Transaction) -> list[int | None]:
            return [self._dates.renew_payload(transaction, row) for row in rows]

        renewed = iter(await self._committer.submit(renew, reads=rows, size=0, durable=True))
        return [None if row is None else next(renewed) for row in found]

    async def get(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        """See `coregw.store.Store.get_payloads`."""
        epoch = self._reader.epoch
        rows = [self._found.pop(multihash, None) for multihash in multihashes]
        async with self._reader.bulk:
            payloads = await self._reader.run(lambda database: _get_whole(database, multihashes, rows))
        found = [key for key, payload in zip(multihashes, payloads, strict=True) if payload is not None]
        await self._reader.wait_durable(Family.PAYLOADS, found, epoch)
        return payloads

    async def read(self, multihash: bytes, start: int, end: int | None) -> AsyncIterator[bytes]:
        """See `coregw.store.Store.read_payload`."""
        check_range(start, end)
        number = start // CHUNK_BYTES
        # The row and the first chunk in one visit of a worker thread: most payloads have no more.
        epoch = self._reader.epoch
        is_long = end is None or end - start > CHUNK_BYTES
        async with self._reader.bulk if is_long else nullcontext():
            row, chunk = await self._reader.run(lambda database: _find(database, multihash, number))
        await self._reader.wait_durable(Family.PAYLOADS, [multihash], epoch)
        stop = row.size if end is None else min(end, row.size)
        while start < stop:
            if chunk is None:
                async with self._reader.bulk:
                    (chunk,) = await self._reader.get(Family.CHUNKS, [chunk_key(row.upload_id, number)])
            if chunk is None:
                (value,) = await self._reader.get(Family.PAYLOADS, [multihash])
                _require_held(multihash, row, value)
            chunk = _checked(multihash, row, number, chunk)
            offset = number * CHUNK_BYTES
            pieces = [chunk[start - offset : stop - offset]]
            start, number, chunk = start + len(pieces[0]), number + 1, None
            yield pieces.pop()  # not held while the caller waits to ask for the next one


def find_small(database: Database, multihashes: Sequence[bytes], most: int) -> list[tuple[int, bytes | None] | None]:
    """Read payloads of at most `most` bytes, and the sizes of others, as `ThreadCalls.find_payloads`."""
    rows = _decoded(multihashes, database.get(Family.PAYLOADS, multihashes))
    found: list[tuple[int, bytes | None] | None] = []
    for row, payload in zip(rows, _read_chunks(database, multihashes, rows, most), strict=True):
        is_gone = row is None or (row.size <= most and payload is None)  # or it was removed meanwhile
        found.append(None if row is None or is_gone else (row.size, payload))
    return found


def read_part(database: Database, multihash: bytes, start: int, end: int) -> bytes:
    """Read a part of a payload, as `ThreadCalls.read_payload`."""
    check_range(start, end)
    number = start // CHUNK_BYTES
    row, chunk = _find(database, multihash, number)
    stop = min(end, row.size)
    parts = []
    while start < stop:
        if chunk is None:
            (chunk,) = database.get(Family.CHUNKS, [chunk_key(row.upload_id, number)])
        if chunk is None:
            (value,) = database.get(Family.PAYLOADS, [multihash])
            _require_held(multihash, row, value)
        chunk = _checked(multihash, row, number, chunk)
        offset = number * CHUNK_BYTES
        parts.append(chunk[start - offset : stop - offset])
        start, number, chunk = start + len(parts[-1]), number + 1, None
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _find(database: Database, multihash: bytes, number: int) -> tuple[PayloadRow, bytes | None]:
    """Read the row of a payload and its chunk `number` (None past its end, or if it is missing)."""
    (value,) = database.get(Family.PAYLOADS, [multihash])
    if value is None:
        raise PayloadNotFound(f"no payload has the multihash {multihash.hex()}")
    row = PayloadRow.decode(multihash, value)
    if number >= row.chunks:
        return row, None
    (chunk,) = database.get(Family.CHUNKS, [chunk_key(row.upload_id, number)])
    return row, chunk


def _get_whole(
    database: Database, multihashes: Sequence[bytes], rows: Sequence[PayloadRow | None]
) -> list[bytes | None]:
    """Read payloads of one chunk each: the rows that are not known in one batch, then their chunks in another.

    A known row may have been deleted or replaced. Its chunk is absent then, as no other payload gets its upload id.
    """
    unknown = [multihash for multihash, row in zip(multihashes, rows, strict=True) if row is None]
    if unknown:
        read = iter(_decoded(unknown, database.get(Family.PAYLOADS, unknown)))
        rows = [next(read) if row is None else row for row in rows]
    for multihash, row in zip(multihashes, rows, strict=True):
        if row is not None and row.size > CHUNK_BYTES:
            check_whole_payload(multihash, row.size)
    return _read_chunks(database, multihashes, rows, CHUNK_BYTES)


def _read_chunks(
    database: Database, multihashes: Sequence[bytes], rows: Sequence[PayloadRow | None], most: int
) -> list[bytes | None]:
    """Read the payloads of at most `most` bytes, which have one chunk at most, in one batch; the others are None."""
    keys = [chunk_key(row.upload_id, 0) for row in rows if row and 0 < row.size <= most]
    chunks = iter(database.get(Family.CHUNKS, keys))
    payloads: list[bytes | None] = []
    for multihash, row in zip(multihashes, rows, strict=True):
        if row is None or row.size > most:
            payloads.append(None)
            continue
        chunk = next(chunks) if row.size else b""
        if chunk is None or len(chunk) != row.size:
            chunk = _whole(database, multihash, row, chunk)
        payloads.append(chunk)
    return payloads


def _whole(database: Database, multihash: bytes, row: PayloadRow, chunk: bytes | None) -> bytes | None:
    """Return the chunk of a payload that has one; None if the payload was removed meanwhile."""
    if chunk is None:
        (found,) = _decoded([multihash], database.get(Family.PAYLOADS, [multihash]))
        if found != row:
            return None if found is None else _get_whole(database, [multihash], [found])[0]
    return _checked(multihash, row, 0, chunk)


def _decoded(multihashes: Sequence[bytes], values: Sequence[bytes | None]) -> list[PayloadRow | None]:
    rows = zip(multihashes, values, strict=True)
    return [None if value is None else PayloadRow.decode(multihash, value) for multihash, value in rows]


def _require_held(multihash: bytes, row: PayloadRow, value: bytes | None) -> None:
    """Raise `PayloadNotFound` if a payload was removed while it was read: `value` is its row now."""
    if value is None or PayloadRow.decode(multihash, value).upload_id != row.upload_id:
        raise PayloadNotFound(f"the payload of the multihash {multihash.hex()} was removed while it was read")


def _checked(multihash: bytes, row: PayloadRow, number: int, chunk: bytes | None) -> bytes:
    expected = row.chunk_size(number)
    if chunk is None or len(chunk) != expected:
        found = "is missing" if chunk is None else f"has {len(chunk)} bytes, not {expected}"
        raise StoreDamaged(f"chunk {number} of {row.chunks} of payload {multihash.hex()} {found}")
    return chunk


class RocksUpload:
    """What is written of one payload, chunk by chunk.

    Args:
        dates: The dates of payloads.
        upload_id: The id of its chunks.
    """

    def __init__(self, dates: Dates, upload_id: bytes) -> None:
        self._dates = dates
        self._id = upload_id
        self._epoch = epoch_of_upload(upload_id)
        self._written = 0
        self._multihash: bytes | None = None

    def chunk(self, data: bytes) -> Request:
        """Return a request for the next chunk, of `CHUNK_BYTES`, which others follow."""

        def write(transaction: Transaction) -> None:
            transaction.require_epoch(self._epoch)  # else the chunks before it were deleted
            if not self._written:
                transaction.put(RowKey(Family.UPLOADS, self._id), b"")
            transaction.put(self._row(self._written), data)
            self._written += 1

        return Request(write, (), len(data), durable=False)

    def end(self, last: bytes, multihash: bytes) -> Request:
        """Return a request for the last chunk of several, which stores the payload. Its result is whether that is new.

        Args:
            last: The chunk, which is not empty.
            multihash: The binary multihash of the payload.
        """
        self._multihash = multihash
        payload = RowKey(Family.PAYLOADS, multihash)

        def commit(transaction: Transaction) -> bool:
            transaction.require_epoch(self._epoch)
            self._dates.date_payloads(transaction, [multihash])
            if transaction.get(payload) is not None:
                self._delete(transaction)
                return False
            transaction.put(self._row(self._written), last)
            size = self._written * CHUNK_BYTES + len(last)
            transaction.put(payload, PayloadRow(self._id, size).encode())
            transaction.delete(RowKey(Family.UPLOADS, self._id))
            return True

        return Request(commit, [payload], len(last) + _ROW_BYTES, durable=True, after_sync=True)

    def drop(self) -> Request:
        """Return a request to delete the chunks, unless a commit whose result was not received has made them a payload.

        A chunk that is in flight is written before.
        """
        reads = [] if self._multihash is None else [RowKey(Family.PAYLOADS, self._multihash)]

        def abort(transaction: Transaction) -> None:
            values = [(row.key, transaction.get(row)) for row in reads]
            rows = (PayloadRow.decode(key, value) for key, value in values if value is not None)
            if all(row.upload_id != self._id for row in rows):
                self._delete(transaction)

        return Request(abort, reads, 0, durable=False)

    def _delete(self, transaction: Transaction) -> None:
        for number in range(self._written):
            transaction.delete(self._row(number))
        transaction.delete(RowKey(Family.UPLOADS, self._id))

    def _row(self, number: int) -> RowKey:
        return RowKey(Family.CHUNKS, chunk_key(self._id, number))


class RocksPayloadWriter(ChunkWriter):
    """One upload into a `coregw.store.rocksdb.RocksStore`; see `coregw.store.PayloadWriter`.

    Args:
        committer: The writer of the database.
        payloads: The payloads.
    """

    def __init__(self, committer: Committer, payloads: RocksPayloads) -> None:
        super().__init__()
        self._committer = committer
        self._payloads = payloads
        self._upload = payloads.begin_upload()

    def _send(self, chunk: bytes) -> asyncio.Future[None]:
        return self._committer.queue(self._upload.chunk(chunk))

    async def _finish(self, last: bytes, multihash: bytes) -> bool:
        if not self._sent:
            (is_new,) = await self._payloads.put([(multihash, last)])
            return is_new
        is_new = cast("bool", await self._committer.queue(self._upload.end(last, multihash)))
        self._is_settled = True
        return is_new

    async def _abort(self) -> None:
        try:
            await self._committer.queue(self._upload.drop())
        except CoregwError as error:
            note_left(error)


def note_left(error: CoregwError) -> None:
    """Log that an upload was not dropped, in an outage, which is logged when it begins, not for every upload."""
    _log.debug("the chunks of an aborted upload stay until the store is opened next: %s", error)
