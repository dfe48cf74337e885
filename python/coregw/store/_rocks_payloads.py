"""Payloads in RocksDB: uploads that cost two chunks of memory whatever their size, and reads chunk by chunk.

A payload of one chunk is written when it is committed, in one atomic batch. A longer one is written chunk by chunk
under an upload id that `Family.UPLOADS` marks; the commit writes the payload's row and takes the mark away. No process
can finish what is still marked when the store is opened, so that is deleted (`coregw.store._rocks_database`).
"""

from __future__ import annotations

import asyncio
import io
import itertools
import logging
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import Final, Self

from coregw.errors import CoregwError, InvalidInput, PayloadNotFound, StoreDamaged
from coregw.store import CHUNK_BYTES
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


class RocksPayloadWriter:
    """One upload into a `coregw.store.rocksdb.RocksStore`; see `coregw.store.PayloadWriter`.

    While one chunk is on its way to the disk, the next one is gathered.
    """

    def __init__(self, committer: Committer, upload: bytes) -> None:
        self._committer = committer
        self._upload = upload
        self._buffer = io.BytesIO()
        self._shipped = 0
        self._under_way: asyncio.Future[None] | None = None
        self._multihash: bytes | None = None
        self._ended = False
        self._stored = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended = True
        self._buffer = io.BytesIO()
        if self._shipped and not self._stored:
            await self._abort()

    async def write(self, chunk: bytes) -> None:
        self._require_open()
        rest = memoryview(chunk)
        while rest:
            # A full chunk is shipped when more follows, so that a payload of one chunk never is.
            if self._buffer.tell() == CHUNK_BYTES:
                await self._ship()
            rest = rest[self._buffer.write(rest[: CHUNK_BYTES - self._buffer.tell()]) :]

    async def commit(self, multihash: bytes) -> bool:
        self._require_open()
        self._ended = True
        self._multihash = multihash
        await self._arrived()
        last, self._buffer = self._buffer.getvalue(), io.BytesIO()  # no copy
        payload = Row(Family.PAYLOADS, multihash)

        def commit(transaction: Transaction) -> bool:
            if transaction.get(payload) is not None:
                self._drop(transaction)
                return False
            if last:
                transaction.put(self._chunk(self._shipped), last)
            size = self._shipped * CHUNK_BYTES + len(last)
            transaction.put(payload, PayloadRow(self._upload, size).encode())
            if self._shipped:
                transaction.delete(Row(Family.UPLOADS, self._upload))
            return True

        new = await self._committer.submit(
            commit,
            reads=[payload],
            size=len(last) + _ROW_BYTES,
            durable=True,
            after_sync=self._shipped > 0,
        )
        self._stored = True
        return new

    async def _ship(self) -> None:
        await self._arrived()
        data, self._buffer = self._buffer.getvalue(), io.BytesIO()  # no copy
        chunk, first = self._chunk(self._shipped), self._shipped == 0

        def ship(transaction: Transaction) -> None:
            if first:
                transaction.put(Row(Family.UPLOADS, self._upload), b"")
            transaction.put(chunk, data)

        self._under_way = self._committer.enqueue(ship, size=len(data), durable=False)
        self._shipped += 1

    async def _arrived(self) -> None:
        """Waits for the chunk that is on its way; raises what went wrong with it."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            try:
                await under_way
            except BaseException:
                self._ended = True
                raise

    async def _abort(self) -> None:
        """Deletes what was shipped, unless a commit whose outcome was not heard has made it a payload."""
        reads = [] if self._multihash is None else [Row(Family.PAYLOADS, self._multihash)]

        def abort(transaction: Transaction) -> None:
            values = [(row.key, transaction.get(row)) for row in reads]
            rows = (PayloadRow.decode(key, value) for key, value in values if value is not None)
            if all(row.upload_id != self._upload for row in rows):
                self._drop(transaction)

        try:
            # Nobody will hear of the chunk that is on its way. It is written all the same, before the deletion.
            if self._under_way is not None and not self._under_way.cancel():
                self._under_way.exception()
            await self._committer.submit(abort, reads=reads, size=0, durable=False)
        except CoregwError as error:
            _log.warning("what is left of a broken-off upload stays until the next start: %s", error)

    def _drop(self, transaction: Transaction) -> None:
        if self._shipped:
            for number in range(self._shipped):
                transaction.delete(self._chunk(number))
            transaction.delete(Row(Family.UPLOADS, self._upload))

    def _chunk(self, number: int) -> Row:
        return Row(Family.CHUNKS, chunk_key(self._upload, number))

    def _require_open(self) -> None:
        if self._ended:
            raise InvalidInput("the upload has ended: nothing can be written to it or committed")
