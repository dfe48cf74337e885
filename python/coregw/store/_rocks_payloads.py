"""Payloads in RocksDB: uploads that cost two chunks of memory whatever their size, and reads chunk by chunk.

A payload of one chunk is written when it is committed, in one atomic batch. A longer one is written chunk by chunk
under an upload id that `Family.UPLOADS` marks; the commit writes the payload's row and takes the mark away. No process
can finish what is still marked when the store is opened, so that is deleted (`coregw.store._rocks_database`).
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Final

from coregw.errors import CoregwError, InvalidInput, PayloadNotFound, StoreDamaged
from coregw.store import CHUNK_BYTES
from coregw.store._chunks import ChunkWriter, check_one_chunk
from coregw.store._rocks_committer import Committer, Transaction
from coregw.store._rocks_database import Database
from coregw.store._rocks_layout import Family, PayloadRow, Row, chunk_key, upload_id
from coregw.store._rocks_reader import Reader

_log = logging.getLogger(__name__)

_ROW_BYTES: Final = 128
"""About what a payload takes beside its chunks."""


class Payloads:
    """The payload part of the store.

    Args:
        reader: Reads of the database.
        committer: Writes to it.
        epoch: The database's, for new upload ids.
    """

    def __init__(self, reader: Reader, committer: Committer, epoch: int) -> None:
        self._reader = reader
        self._committer = committer
        self._ids = (upload_id(epoch, counter) for counter in itertools.count())

    def begin(self) -> RocksPayloadWriter:
        self._reader.require_open()
        return RocksPayloadWriter(self._committer, next(self._ids))

    async def put(self, multihash: bytes, data: bytes) -> bool:
        check_one_chunk(data)
        self._reader.require_open()
        return await _put_one_chunk(self._committer, next(self._ids), multihash, data)

    async def stat(self, multihash: bytes) -> int | None:
        (value,) = await self._reader.get_durable(Family.PAYLOADS, [multihash])
        return None if value is None else PayloadRow.decode(multihash, value).size

    async def has(self, multihashes: Sequence[bytes]) -> list[bool]:
        values = await self._reader.get_durable(Family.PAYLOADS, multihashes)
        return [value is not None for value in values]

    async def read(self, multihash: bytes, start: int, end: int | None) -> AsyncIterator[bytes]:
        if start < 0 or (end is not None and end < start):
            raise InvalidInput(f"no bytes are from {start} to {end}")
        number = start // CHUNK_BYTES
        # The row and the first chunk in one visit of a worker thread: most payloads have no more.
        row, chunk = await self._reader.run(lambda database: _find(database, multihash, number))
        await self._reader.settle(Family.PAYLOADS, [multihash])
        stop = row.size if end is None else min(end, row.size)
        while start < stop:
            if chunk is None:
                (chunk,) = await self._reader.get(Family.CHUNKS, [chunk_key(row.upload_id, number)])
            chunk = _checked(multihash, row, number, chunk)
            offset = number * CHUNK_BYTES
            piece = chunk[start - offset : stop - offset]
            start, number, chunk = start + len(piece), number + 1, None
            yield piece


def _put_one_chunk(committer: Committer, upload: bytes, multihash: bytes, data: bytes) -> asyncio.Future[bool]:
    """Queues a payload of at most one chunk, for one atomic batch; the result is whether it is newly stored."""
    payload = Row(Family.PAYLOADS, multihash)
    row = PayloadRow(upload, len(data)).encode()

    def put(transaction: Transaction) -> bool:
        if transaction.get(payload) is not None:
            return False
        if data:
            transaction.put(Row(Family.CHUNKS, chunk_key(upload, 0)), data)
        transaction.put(payload, row)
        return True

    return committer.enqueue(put, reads=(payload,), size=len(data) + _ROW_BYTES, durable=True)


def _find(database: Database, multihash: bytes, number: int) -> tuple[PayloadRow, bytes | None]:
    """The row of a payload and its chunk of that number (None past its end)."""
    (value,) = database.get(Family.PAYLOADS, [multihash])
    if value is None:
        raise PayloadNotFound(f"no payload has the multihash {multihash.hex()}")
    row = PayloadRow.decode(multihash, value)
    if number >= row.chunks:
        return row, None
    (chunk,) = database.get(Family.CHUNKS, [chunk_key(row.upload_id, number)])
    return row, _checked(multihash, row, number, chunk)


def _checked(multihash: bytes, row: PayloadRow, number: int, chunk: bytes | None) -> bytes:
    expected = row.chunk_size(number)
    if chunk is None or len(chunk) != expected:
        found = "is missing" if chunk is None else f"has {len(chunk)} bytes, not {expected}"
        raise StoreDamaged(f"chunk {number} of {row.chunks} of payload {multihash.hex()} {found}")
    return chunk


class RocksPayloadWriter(ChunkWriter):
    """One upload into a `coregw.store.rocksdb.RocksStore`; see `coregw.store.PayloadWriter`."""

    def __init__(self, committer: Committer, upload: bytes) -> None:
        super().__init__()
        self._committer = committer
        self._upload = upload
        self._multihash: bytes | None = None

    def _send(self, chunk: bytes) -> asyncio.Future[None]:
        row, first = self._chunk(self._sent), self._sent == 0

        def send(transaction: Transaction) -> None:
            if first:
                transaction.put(Row(Family.UPLOADS, self._upload), b"")
            transaction.put(row, chunk)

        return self._committer.enqueue(send, size=len(chunk), durable=False)

    async def _finish(self, last: bytes, multihash: bytes) -> bool:
        if not self._sent:
            return await _put_one_chunk(self._committer, self._upload, multihash, last)
        self._multihash = multihash
        payload = Row(Family.PAYLOADS, multihash)

        def commit(transaction: Transaction) -> bool:
            if transaction.get(payload) is not None:
                self._drop(transaction)
                return False
            transaction.put(self._chunk(self._sent), last)  # never empty: a chunk is sent when more follows
            size = self._sent * CHUNK_BYTES + len(last)
            transaction.put(payload, PayloadRow(self._upload, size).encode())
            transaction.delete(Row(Family.UPLOADS, self._upload))
            return True

        new = await self._committer.submit(
            commit,
            reads=[payload],
            size=len(last) + _ROW_BYTES,
            durable=True,
            after_sync=True,
        )
        self._settled = True
        return new

    async def _abort(self) -> None:
        """Deletes what was sent, unless a commit whose outcome was not heard has made it a payload.

        A chunk on its way is written all the same, before the deletion.
        """
        reads = [] if self._multihash is None else [Row(Family.PAYLOADS, self._multihash)]

        def abort(transaction: Transaction) -> None:
            values = [(row.key, transaction.get(row)) for row in reads]
            rows = (PayloadRow.decode(key, value) for key, value in values if value is not None)
            if all(row.upload_id != self._upload for row in rows):
                self._drop(transaction)

        try:
            await self._committer.submit(abort, reads=reads, size=0, durable=False)
        except CoregwError as error:
            _log.warning("what is left of a broken-off upload stays until the next start: %s", error)

    def _drop(self, transaction: Transaction) -> None:
        for number in range(self._sent):
            transaction.delete(self._chunk(number))
        transaction.delete(Row(Family.UPLOADS, self._upload))

    def _chunk(self, number: int) -> Row:
        return Row(Family.CHUNKS, chunk_key(self._upload, number))
