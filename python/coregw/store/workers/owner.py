"""The owner process's end: serves an open store to worker processes, each over a socket of its own.

If a worker dies, its calls in progress are completed and its uncommitted uploads aborted. The other end is
`coregw.store.workers.remote`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from coregw.errors import CoregwError
from coregw.store.protocol import CHUNK_BYTES, PayloadWriter, Store, Table
from coregw.store.workers.calls import (
    CALLS,
    PAYLOAD_CALLS,
    REQUEST,
    WORKER_CALLS,
    Failure,
    PayloadCalls,
    Request,
    Response,
    WorkerCalls,
)
from coregw.store.workers.frames import FrameProtocol

__all__ = ["SharedStore", "share_store"]

_log = logging.getLogger(__name__)

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_PAYLOAD_READS: Final = frozenset({"stat_payloads", "read_piece"})
_NO_RESULT: Final = msgspec.Raw(_ENCODE(None))


async def share_store(
    store: Store,
    connection: socket.socket,
    on_miss: Callable[[], None] | None = None,
    on_report: Callable[[bytes], None] | None = None,
) -> SharedStore:
    """Serve a store to the worker at the other end of a connected Unix socket, until that end closes it.

    Args:
        store: The store; the caller closes it.
        connection: One end of a socket pair; closed by the result.
        on_miss: Called for each read that the worker could have answered from SSTs, had the rows been there.
        on_report: Called with each report that the worker sends about itself.
    """
    return await SharedStore(store, on_miss, on_report).connect(connection)


class SharedStore(FrameProtocol):
    """One worker's connection to the store. Use `share_store`."""

    def __init__(
        self,
        store: Store,
        on_miss: Callable[[], None] | None = None,
        on_report: Callable[[bytes], None] | None = None,
    ) -> None:
        super().__init__()
        self._store = store
        self._on_miss = on_miss
        self._payloads = _Payloads(store)
        self._worker = _Worker(on_report)
        self._in_progress: set[asyncio.Task[None]] = set()

    def frame_received(self, frame: bytes) -> None:
        """Start the call of a request."""
        task = asyncio.get_running_loop().create_task(self._respond(REQUEST.decode(frame)))
        self._in_progress.add(task)
        task.add_done_callback(self._in_progress.discard)

    async def ended(self) -> None:
        """Return when the worker has closed the connection, its calls are completed and its uploads aborted."""
        await self.wait_ended()
        await asyncio.gather(*self._in_progress)
        await self._payloads.close()

    async def _respond(self, request: Request) -> None:
        failure, result = None, _NO_RESULT
        try:
            arguments = CALLS[request.name].arguments.decode(request.arguments)
            if self._on_miss is not None and _is_miss(request.name, arguments):
                self._on_miss()
            method: Any = getattr(self._target(request.name), request.name)
            result = msgspec.Raw(_ENCODE(await method(*arguments)))
        except CoregwError as error:
            failure = Failure.of(error)
        except Exception:  # noqa: BLE001 - a bug; the worker must be told
            _log.exception("the store failed in %s", request.name)
            failure = Failure.of(CoregwError("the store failed; the log of its process has the reason"))
        self.send(Response(request.number, failure, result, self._store.expiries))

    def _target(self, call: str) -> object:
        """Return the object that has the method of a call."""
        if call in PAYLOAD_CALLS:
            return self._payloads
        return self._worker if call in WORKER_CALLS else self._store


def _is_miss(name: str, arguments: Sequence[Any]) -> bool:
    """Whether a worker could have answered a call from SSTs."""
    return name in _PAYLOAD_READS or (name == "get" and arguments[0] == Table.PAGES)


class _Worker(WorkerCalls):
    """What a worker has told about itself."""

    def __init__(self, on_report: Callable[[bytes], None] | None) -> None:
        self._on_report = on_report

    async def report(self, report: bytes) -> None:
        if self._on_report is not None:
            self._on_report(report)


class _WorkerUpload:
    """An upload in progress, one call at a time. It ends by a call of the worker, or by `_Payloads.close`."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.exit = AsyncExitStack()
        self.writer: PayloadWriter | None = None


class _Payloads(PayloadCalls):
    """The uploads and downloads of one worker."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._uploads: dict[int, _WorkerUpload] = {}

    async def read_piece(self, multihash: bytes, start: int, end: int | None) -> bytes:
        boundary = (start // CHUNK_BYTES + 1) * CHUNK_BYTES
        stop = boundary if end is None else min(boundary, end)
        return b"".join([piece async for piece in self._store.read_payload(multihash, start, stop)])

    async def write_chunk(self, upload: int, chunk: bytes) -> None:
        in_progress = self._uploads.setdefault(upload, _WorkerUpload())
        async with in_progress.lock:
            await (await self._writer(in_progress)).write(chunk)

    async def commit_payload(self, upload: int, last: bytes, multihash: bytes) -> bool:
        in_progress = self._uploads.pop(upload, None) or _WorkerUpload()
        async with in_progress.lock, in_progress.exit:
            writer = await self._writer(in_progress)
            await writer.write(last)
            return await writer.commit(multihash)

    async def abort_payload(self, upload: int) -> None:
        in_progress = self._uploads.pop(upload, None)
        if in_progress is not None:
            async with in_progress.lock:
                await in_progress.exit.aclose()

    async def close(self) -> None:
        """Abort the uploads in progress."""
        for upload in list(self._uploads):
            await self.abort_payload(upload)

    async def _writer(self, upload: _WorkerUpload) -> PayloadWriter:
        if upload.writer is None:
            upload.writer = await upload.exit.enter_async_context(self._store.begin_payload())
        return upload.writer
