"""A store that another process of the machine has open, with its table files read directly.

Writes, published records, plants, and whatever the table files do not show go over a socket to the process that owns
the store (`coregw.store.sharing`). So an answer is never older than the question: what any process was told is written
is found by all. Immutable rows that the table files show are read here, without the other process.
"""

# ruff: noqa: D102 - what the methods do is said once, in the protocol
from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec

from coregw.errors import CoregwError, InvalidInput, Unavailable
from coregw.store import CHUNK_BYTES, Record
from coregw.store._calls import CALLS, OUTCOME, Question
from coregw.store._chunks import ChunkWriter, check_one_chunk
from coregw.store._frames import Frames
from coregw.store._records import check_plant_id
from coregw.store._rocks_layout import Family, PayloadRow, chunk_key
from coregw.store._rocks_replica import Replica

__all__ = ["RemotePayloadWriter", "RemoteStore", "open_remote"]

_T = TypeVar("_T")
_ENCODE: Final = msgspec.msgpack.Encoder().encode

_ASKED_AT_ONCE: Final = 256
"""Rows that one message asks for, so that no answer takes more than a few MiB."""


async def open_remote(
    path: str | PathLike[str],
    connection: socket.socket,
    *,
    name: str,
    cache_bytes: int,
    read_threads: int,
    on_lost: Callable[[], None] | None = None,
) -> RemoteStore:
    """The RocksDB store in a directory, which another process has open.

    Args:
        path: The directory.
        connection: A connected Unix socket, whose other end is `coregw.store.sharing.share`'s. Closed with the store.
        name: What no other process calls itself that uses the same store.
        cache_bytes: Memory for RocksDB's cache of blocks.
        read_threads: The most reads of table files at once.
        on_lost: Called when the other process has gone, or let go of the connection.
    """
    replica = Replica(Path(path), name, cache_bytes=cache_bytes, threads=read_threads)
    return await RemoteStore.connect(connection, replica, on_lost)


class RemoteStore:
    """A `coregw.store.Store` that another process has open. Made by `connect`; ``async with`` closes it.

    Closing it lets go of the connection; the store stays open where it is.
    """

    def __init__(self, connection: _Connection, replica: Replica | None) -> None:
        self._connection = connection
        self._replica = replica
        self._following = None if replica is None else asyncio.get_running_loop().create_task(replica.follow())

    @classmethod
    async def connect(
        cls, connection: socket.socket, replica: Replica | None = None, on_lost: Callable[[], None] | None = None
    ) -> Self:
        """A store at the other end of a connected Unix socket.

        Args:
            connection: One end of a pair; the other is `coregw.store.sharing.share`'s. It is closed here.
            replica: The table files of the same store, closed with this; None asks the other process for everything.
            on_lost: Called when the other process has gone, or let go of the connection.
        """
        return cls(await _Connection(on_lost).connect(connection), replica)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # --- read here where the table files show it ----------------------------------------------------------------------

    async def get_pages(self, digests: Sequence[bytes]) -> list[bytes | None]:
        return await self._filled(Family.PAGES, digests, bytes, "get_pages")

    async def has_roots(self, roots: Sequence[bytes]) -> list[bool]:
        return await self._filled(Family.ROOTS, roots, lambda _: True, "has_roots")

    async def has_payloads(self, multihashes: Sequence[bytes]) -> list[bool]:
        return await self._filled(Family.PAYLOADS, multihashes, lambda _: True, "has_payloads")

    async def stat_payload(self, multihash: bytes) -> int | None:
        row = await self._payload_row(multihash)
        size: int | None = await self._call("stat_payload", multihash) if row is None else row.size
        return size

    async def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        if start < 0 or (end is not None and end < start):
            raise InvalidInput(f"no bytes are from {start} to {end}")
        row = await self._payload_row(multihash)
        stop = end if row is None else min(row.size, row.size if end is None else end)
        while row is None or (stop is not None and start < stop):
            piece = None if row is None else await self._chunk_piece(row, start)
            if piece is None:  # not in the table files, or not as its row says: the store's owner knows
                piece = await self._call("read_piece", multihash, start, stop)
            piece = piece if stop is None else piece[: stop - start]
            if not piece:
                return
            yield piece
            start += len(piece)
            if start == stop:
                return

    # --- asked of the process that owns the store ---------------------------------------------------------------------

    async def put_pages(self, pages: Sequence[tuple[bytes, bytes]]) -> None:
        await self._call("put_pages", pages)

    async def put_roots(self, roots: Sequence[bytes], pages: Sequence[tuple[bytes, bytes]] = ()) -> None:
        await self._call("put_roots", roots, pages)

    def begin_payload(self) -> RemotePayloadWriter:
        self._connection.require_open()
        return RemotePayloadWriter(self._connection)

    async def put_payload(self, multihash: bytes, data: bytes) -> bool:
        check_one_chunk(data)
        new: bool = await self._call("put_payload", multihash, data)
        return new

    async def get_record(self, scope: str, name: str) -> Record | None:
        record: Record | None = await self._call("get_record", scope, name)
        return record

    async def publish(self, scope: str, name: str, root: bytes, expected_revision: int | None, now: datetime) -> Record:
        record: Record = await self._call("publish", scope, name, root, expected_revision, now)
        return record

    async def freeze(self, scope: str, name: str, now: datetime) -> Record:
        record: Record = await self._call("freeze", scope, name, now)
        return record

    async def list_records(self, scope: str, after: str | None, limit: int) -> list[Record]:
        records: list[Record] = await self._call("list_records", scope, after, limit)
        return records

    async def history(self, scope: str, name: str, after: int, limit: int) -> list[Record]:
        records: list[Record] = await self._call("history", scope, name, after, limit)
        return records

    async def put_plant(self, plant_id: int, plant: bytes) -> bool:
        check_plant_id(plant_id)  # which a message could not hold otherwise
        kept: bool = await self._call("put_plant", plant_id, plant)
        return kept

    async def get_plant(self, plant_id: int) -> bytes | None:
        check_plant_id(plant_id)  # which a message could not hold otherwise
        plant: bytes | None = await self._call("get_plant", plant_id)
        return plant

    async def healthy(self) -> bool:
        try:
            healthy: bool = await self._call("healthy")
        except CoregwError:
            return False
        return healthy

    async def close(self) -> None:
        await self._connection.close()
        if self._following is not None and self._replica is not None:
            self._following.cancel()
            await asyncio.to_thread(self._replica.close)

    async def _call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - as the call's annotation says
        return await self._connection.call(name, *arguments)

    async def _read(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        self._connection.require_open()
        return [None] * len(keys) if self._replica is None else await self._replica.get(family, keys)

    async def _filled(
        self, family: Family, keys: Sequence[bytes], found: Callable[[bytes], _T], call: str
    ) -> list[Any]:
        """What the table files show of `keys`, and what `call` says of all others."""
        values = await self._read(family, keys)
        missing = [key for key, value in zip(keys, values, strict=True) if value is None]
        told: list[Any] = []
        for start in range(0, len(missing), _ASKED_AT_ONCE):
            told += await self._call(call, missing[start : start + _ASKED_AT_ONCE])
        rest = iter(told)
        return [next(rest) if value is None else found(value) for value in values]

    async def _payload_row(self, multihash: bytes) -> PayloadRow | None:
        (value,) = await self._read(Family.PAYLOADS, [multihash])
        return None if value is None else PayloadRow.decode(multihash, value)

    async def _chunk_piece(self, row: PayloadRow, start: int) -> bytes | None:
        """A payload's bytes from `start` to the end of the chunk that it is in; None if they are not here, whole."""
        number, offset = divmod(start, CHUNK_BYTES)
        (chunk,) = await self._read(Family.CHUNKS, [chunk_key(row.upload_id, number)])
        return None if chunk is None or len(chunk) != row.chunk_size(number) else chunk[offset:]


class RemotePayloadWriter(ChunkWriter):
    """One upload into a `RemoteStore`; see `coregw.store.PayloadWriter`."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__()
        self._connection = connection
        self._number = next(connection.numbers)

    def _send(self, chunk: bytes) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_task(self._connection.call("write_chunk", self._number, chunk))

    async def _finish(self, last: bytes, multihash: bytes) -> bool:
        self._settled = True  # a commit ends the upload at the other end, whatever comes of it
        new: bool = await self._connection.call("commit_payload", self._number, last, multihash)
        return new

    async def _abort(self) -> None:
        with suppress(CoregwError):  # its process drops what this one leaves
            await self._connection.call("abort_payload", self._number)

    def _require_open(self) -> None:
        self._connection.require_open()
        super()._require_open()


class _Connection(Frames):
    """Calls to the process that owns the store, any number at once."""

    def __init__(self, on_lost: Callable[[], None] | None) -> None:
        super().__init__()
        self.numbers = itertools.count()
        self._on_lost = on_lost
        self._waiting: dict[int, tuple[str, asyncio.Future[Any]]] = {}
        self._closed: str | None = None

    def require_open(self) -> None:
        if self._closed is not None:
            raise Unavailable(self._closed)

    async def call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - as the call's annotation says
        """The result of a call, or its error. If the caller is cancelled, the call happens all the same.

        Raises:
            Unavailable: The store is closed, or its process has gone; whether the call happened is not known then.
        """
        self.require_open()
        number = next(self.numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = name, future
        try:
            await self.send(Question(number, name, msgspec.Raw(_ENCODE(arguments))))
            return await future
        finally:
            del self._waiting[number]

    async def close(self) -> None:
        """Waits for the calls under way, then hangs up. Idempotent."""
        self._closed = self._closed or "the store is closed"
        self._on_lost = None
        await asyncio.gather(*(future for _, future in self._waiting.values()), return_exceptions=True)
        self.hang_up()
        await self.hung_up()

    def received(self, frame: bytes) -> None:
        outcome = OUTCOME.decode(frame)
        name, future = self._waiting.get(outcome.number, ("", None))
        if future is None or future.done():
            return  # nobody waits for it any more
        if outcome.failure is not None:
            future.set_exception(outcome.failure.error())
        else:
            future.set_result(CALLS[name].result.decode(outcome.result))

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._closed = self._closed or "the process that has the store open has ended"
        for _, future in self._waiting.values():
            if not future.done():
                future.set_exception(Unavailable(self._closed))
        if self._on_lost is not None:
            self._on_lost()
