"""A worker process's end: a `coregw.store.Store` that the owner process has open.

Writes, `Table.RECORDS`, `Table.ROOTS`, and whatever the SSTs do not show go to the owner over a socket. So every
acknowledged write is visible here at once, and no root is held here that the owner has expired. Pages and payloads that
the SSTs show are read in this process; a payload that was removed may be shown for some seconds more.
"""

# ruff: noqa: D102 - the protocol documents the methods
from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec

from coregw.errors import CoregwError, PayloadNotFound, Unavailable
from coregw.store.ages import Expiries
from coregw.store.chunks import ChunkWriter
from coregw.store.protocol import (
    CHUNK_BYTES,
    Stored,
    Table,
    check_listing,
    check_payload_sizes,
    check_range,
    check_renewal,
    check_whole_payload,
)
from coregw.store.rocksdb.layout import Family, PayloadRow, chunk_key
from coregw.store.rocksdb.replica import Replica
from coregw.store.workers.calls import CALLS, RESPONSE, Request
from coregw.store.workers.frames import FrameProtocol

__all__ = ["RemotePayloadWriter", "RemoteStore", "open_remote"]

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_PAUSE_SECONDS: Final = 1.0
_MAX_KEYS: Final = 256
"""The maximum number of keys in a message, so that a response takes a few MiB at most."""

_PLACES: Final = 16
"""The maximum number of large parts of uploads that the owner has at once for one worker; also that of downloads."""
_LARGE_BYTES: Final = 256 << 10

_UPLOAD_CALLS: Final = frozenset({"write_chunk", "commit_payload", "abort_payload"})
"""The end of an upload must not overtake its chunks, one of which may still be sent for a caller that was cancelled."""


async def open_remote(
    path: str | PathLike[str],
    connection: socket.socket,
    *,
    name: str,
    cache_bytes: int,
    read_threads: int,
    on_lost: Callable[[], None] | None = None,
) -> RemoteStore:
    """Open the RocksDB store in a directory, which the owner process has open.

    Args:
        path: The directory.
        connection: A connected Unix socket, whose other end was given to `coregw.store.workers.share_store`. Closed
            with the store.
        name: A name that no other worker of the same store has.
        cache_bytes: Memory for RocksDB's block cache.
        read_threads: The maximum number of concurrent reads of SSTs.
        on_lost: Called when the owner process has ended or closed the connection.
    """
    replica = Replica(Path(path), name, cache_bytes=cache_bytes, threads=read_threads)
    return await RemoteStore.connect(connection, replica, on_lost)


class RemoteStore:
    """A `coregw.store.Store` that another process has open. Use `open_remote`; ``async with`` closes it.

    Closing it closes the connection; the owner's store stays open.
    """

    def __init__(self, connection: _Connection, replica: Replica | None) -> None:
        self._connection = connection
        self._replica = replica
        self._following = asyncio.get_running_loop().create_task(self._follow())

    @classmethod
    async def connect(
        cls, connection: socket.socket, replica: Replica | None = None, on_lost: Callable[[], None] | None = None
    ) -> Self:
        """Connect to the owner process.

        Args:
            connection: As for `open_remote`.
            replica: The SSTs of the same store, closed with this one; None sends every read to the owner.
            on_lost: As for `open_remote`.
        """
        return cls(await _Connection(on_lost).connect(connection), replica)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def expiries(self) -> int:
        return self._connection.expiries.count

    def watch_expiries(self, on_expiry: Callable[[], None]) -> None:
        self._connection.expiries.watch(on_expiry)

    # --- read from the SSTs first -------------------------------------------------------------------------------------

    async def get(self, table: Table, keys: Sequence[bytes]) -> list[bytes | None]:
        if table.is_write_once:
            shown = await self._read_replica(Family(table), keys)
        else:
            shown = [None] * len(keys)
        missing = [key for key, value in zip(keys, shown, strict=True) if value is None]
        rest: list[bytes | None] = []
        for start in range(0, len(missing), _MAX_KEYS):
            rest += await self._call("get", table, missing[start : start + _MAX_KEYS])
        told = iter(rest)
        return [next(told) if value is None else value for value in shown]

    async def stat_payloads(self, multihashes: Sequence[bytes]) -> list[int | None]:
        shown = await self._read_replica(Family.PAYLOADS, multihashes)
        missing = [multihash for multihash, value in zip(multihashes, shown, strict=True) if value is None]
        rest: list[int | None] = await self._call("stat_payloads", missing) if missing else []
        told = iter(rest)
        return [
            next(told) if value is None else PayloadRow.decode(multihash, value).size
            for multihash, value in zip(multihashes, shown, strict=True)
        ]

    async def get_payloads(self, multihashes: Sequence[bytes]) -> list[bytes | None]:
        values = await self._read_replica(Family.PAYLOADS, multihashes)
        rows = [
            None if value is None else PayloadRow.decode(multihash, value)
            for multihash, value in zip(multihashes, values, strict=True)
        ]
        for multihash, row in zip(multihashes, rows, strict=True):
            check_whole_payload(multihash, 0 if row is None else row.size)
        shown = [row for row in rows if row is not None and row.size]
        chunks = iter(await self._read_replica(Family.CHUNKS, [chunk_key(row.upload_id, 0) for row in shown]))
        payloads: list[bytes | None] = [b"" if row is None or not row.size else next(chunks) for row in rows]
        for index, (multihash, row) in enumerate(zip(multihashes, rows, strict=True)):
            payload = payloads[index]
            if row is None or payload is None or len(payload) != row.size:  # the owner decides what that means
                payloads[index] = await self._get_from_owner(multihash)
        return payloads

    async def read_payload(self, multihash: bytes, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        check_range(start, end)
        (value,) = await self._read_replica(Family.PAYLOADS, [multihash])
        row = None if value is None else PayloadRow.decode(multihash, value)
        stop = end if row is None else min(row.size, row.size if end is None else end)
        while row is None or (stop is not None and start < stop):
            piece = None if row is None else await self._read_chunk(row, start)
            if piece is None:  # the SSTs do not show it, or not as its row says: the owner decides what that means
                piece = await self._read_piece(multihash, start, stop)
            pieces = [piece if stop is None else piece[: stop - start]]
            if not (size := len(pieces[0])):
                return
            del piece
            yield pieces.pop()  # not held while the caller waits to ask for the next one
            start += size
            if start == stop:
                return

    # --- sent to the owner process ------------------------------------------------------------------------------------

    async def put(
        self,
        rows: Mapping[Table, Sequence[tuple[bytes, bytes]]],
        durable: bool = True,
        requires: Sequence[bytes] = (),
        since: int | None = None,
    ) -> int:
        now: int = await self._call("put", rows, durable, requires, since)
        return now

    async def compare_and_set(
        self,
        table: Table,
        key: bytes,
        expected: bytes | None,
        value: bytes,
        further: Sequence[tuple[bytes, bytes]] = (),
        requires: Sequence[bytes] = (),
    ) -> bool:
        was_set: bool = await self._call("compare_and_set", table, key, expected, value, further, requires)
        return was_set

    async def list_rows(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> list[tuple[bytes, bytes]]:
        check_listing(limit)
        rows: list[tuple[bytes, bytes]] = await self._call("list_rows", table, prefix, after, limit)
        return rows

    async def delete(self, table: Table, keys: Sequence[bytes]) -> None:
        await self._call("delete", table, keys)

    async def renew(self, kind: Stored, keys: Sequence[bytes], below_held: bool = False) -> list[int | None]:
        check_renewal(kind)
        sizes: list[int | None] = await self._call("renew", kind, keys, below_held)
        return sizes

    def begin_payload(self) -> RemotePayloadWriter:
        self._connection.require_open()
        return RemotePayloadWriter(self._connection)

    async def put_payloads(self, payloads: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        check_payload_sizes(payloads)
        are_new: list[bool] = await self._call("put_payloads", payloads)
        return are_new

    async def healthy(self) -> bool:
        try:
            is_healthy: bool = await self._call("healthy")
        except CoregwError:
            return False
        return is_healthy

    async def obstacles(self) -> list[str]:
        try:
            found: list[str] = await self._call("obstacles")
        except CoregwError as error:
            return [error.message]
        return found

    async def report(self, report: bytes) -> None:
        """Tell the owner process about this worker; see `coregw.store.workers.share_store`."""
        await self._call("report", report)

    async def close(self) -> None:
        await self._connection.close()
        self._following.cancel()
        if self._replica is not None:
            await asyncio.to_thread(self._replica.close)

    async def _follow(self) -> None:
        """Catch up with the owner's SSTs, and learn about expired roots even while nothing is asked."""
        while True:
            pause = _PAUSE_SECONDS if self._replica is None else await self._replica.catch_up()
            with suppress(CoregwError):
                await self._call("get", Table.ROOTS, [])
            await asyncio.sleep(pause)

    async def _call(self, name: str, *arguments: object) -> Any:  # noqa: ANN401 - the call's annotation has the type
        return await self._connection.call(name, *arguments)

    async def _get_from_owner(self, multihash: bytes) -> bytes | None:
        (size,) = await self._call("stat_payloads", [multihash])
        if size is None:
            return None
        check_whole_payload(multihash, size)
        try:
            return await self._read_piece(multihash, 0, size)
        except PayloadNotFound:  # removed meanwhile
            return None

    async def _read_piece(self, multihash: bytes, start: int, end: int | None) -> bytes:
        size = CHUNK_BYTES if end is None else end - start
        places = await self._connection.downloads(size)
        piece: bytes = await self._connection.call("read_piece", multihash, start, end, places=places)
        return piece

    async def _read_replica(self, family: Family, keys: Sequence[bytes]) -> list[bytes | None]:
        self._connection.require_open()
        return [None] * len(keys) if self._replica is None else await self._replica.get(family, keys)

    async def _read_chunk(self, row: PayloadRow, start: int) -> bytes | None:
        """Read from `start` to the end of its chunk; None if the SSTs do not show the chunk in full."""
        number, offset = divmod(start, CHUNK_BYTES)
        (chunk,) = await self._read_replica(Family.CHUNKS, [chunk_key(row.upload_id, number)])
        return None if chunk is None or len(chunk) != row.chunk_size(number) else chunk[offset:]


class RemotePayloadWriter(ChunkWriter):
    """One upload into a `RemoteStore`; see `coregw.store.PayloadWriter`."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__()
        self._connection = connection
        self._number = next(connection.numbers)

    def _send(self, chunk: bytes) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_task(self._send_chunk(chunk))

    async def _send_chunk(self, chunk: bytes) -> None:
        places = await self._connection.uploads(len(chunk))
        await self._connection.call("write_chunk", self._number, chunk, places=places)

    async def _finish(self, last: bytes, multihash: bytes) -> bool:
        places = await self._connection.uploads(len(last))
        self._is_settled = True  # the owner ends the upload with this call, even if it fails
        is_new: bool = await self._connection.call("commit_payload", self._number, last, multihash, places=places)
        return is_new

    async def _abort(self) -> None:
        with suppress(CoregwError):  # the owner aborts the uploads of a lost connection
            await self._connection.call("abort_payload", self._number)

    def _require_open(self) -> None:
        self._connection.require_open()
        super()._require_open()


class _OwnerCall(NamedTuple):
    """A call without a response; see `_Connection.call`."""

    name: str
    future: asyncio.Future[Any]
    places: asyncio.Semaphore | None


class _Connection(FrameProtocol):
    """Concurrent calls to the owner process; few with large parts of payloads, which it holds until it responds."""

    def __init__(self, on_lost: Callable[[], None] | None) -> None:
        super().__init__()
        self.numbers = itertools.count()
        self.expiries: Final = Expiries()
        self._on_lost = on_lost
        self._waiting: dict[int, _OwnerCall] = {}
        self.uploads = partial(_place_for, asyncio.Semaphore(_PLACES))
        self.downloads = partial(_place_for, asyncio.Semaphore(_PLACES))
        self._closed_because: str | None = None

    def require_open(self) -> None:
        """Raise `Unavailable` if the connection is closed."""
        if self._closed_because is not None:
            raise Unavailable(self._closed_because)

    async def call(self, name: str, *arguments: object, places: asyncio.Semaphore | None = None) -> Any:  # noqa: ANN401
        """Return the result of a call, or raise its error. Cancelling the caller does not cancel the call.

        Args:
            name: A key of `CALLS`, whose annotation has the type.
            arguments: What it takes.
            places: The caller has taken one of them, which is given back when the owner has responded.

        Raises:
            Unavailable: The store is closed, or the owner has ended; the call may or may not have taken effect.
        """
        try:
            self.require_open()
            number, encoded = next(self.numbers), msgspec.Raw(_ENCODE(arguments))
        except BaseException:
            _leave(places)
            raise
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = _OwnerCall(name, future, places)
        self.send(Request(number, name, encoded), is_ordered=name in _UPLOAD_CALLS)
        del encoded, arguments  # not held until the response
        return await future

    async def close(self) -> None:
        """Wait for the calls in progress, then hang up. Idempotent."""
        self._closed_because = self._closed_because or "the store is closed"
        self._on_lost = None
        await asyncio.gather(*(call.future for call in self._waiting.values()), return_exceptions=True)
        self.hang_up()
        await self.wait_ended()

    def frame_received(self, frame: bytes) -> None:
        response = RESPONSE.decode(frame)
        self.expiries.note(response.expiries)  # an older response may be longer, and come later
        name, future, places = self._waiting.pop(response.number)
        _leave(places)
        if future.done():
            return  # the caller was cancelled
        if response.failure is not None:
            _fail(future, response.failure.error())
        else:
            future.set_result(CALLS[name].result.decode(response.result))

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._closed_because = self._closed_because or "the process that has the store open has ended"
        for _, future, places in self._waiting.values():
            _leave(places)
            if not future.done():
                _fail(future, Unavailable(self._closed_because))
        self._waiting.clear()
        if self._on_lost is not None:
            self._on_lost()


async def _place_for(places: asyncio.Semaphore, size: int) -> asyncio.Semaphore | None:
    """Take one of `places` for a part of a payload, and return them for `_Connection.call`; None if it needs none."""
    if size < _LARGE_BYTES:
        return None
    await places.acquire()
    return places


def _leave(places: asyncio.Semaphore | None) -> None:
    if places is not None:
        places.release()


def _fail(future: asyncio.Future[Any], error: CoregwError) -> None:
    future.set_exception(error)
    future.exception()  # retrieved, or asyncio would log it if the caller is cancelled before it gets it
