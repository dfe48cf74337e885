"""Offering an open store to other processes of the machine, each over a socket of its own.

The other end is `coregw.store.remote`. What a process that dies had under way is ended as if it had given up: writes
that were asked for happen, uploads that were not committed are dropped. Leaves out who starts those processes.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec

from coregw.errors import CoregwError
from coregw.store import CHUNK_BYTES, PayloadWriter, Store
from coregw.store._calls import CALLS, PAYLOAD_CALLS, QUESTION, Failure, Outcome, PayloadCalls, Question
from coregw.store._frames import Frames

__all__ = ["SharedStore", "share"]

_log = logging.getLogger(__name__)

_ENCODE: Final = msgspec.msgpack.Encoder().encode
_READS: Final = frozenset({"get_pages", "has_roots", "has_payloads", "stat_payload", "read_piece"})
_NOTHING: Final = msgspec.Raw(_ENCODE(None))


async def share(store: Store, connection: socket.socket, on_read: Callable[[], None] | None = None) -> SharedStore:
    """Answers what comes over a connected Unix socket from `store`, until the other end closes it.

    Args:
        store: The store; it stays the caller's to close.
        connection: One end of a pair. It is closed here.
        on_read: Called for each question about rows that table files may hold: the other end did not find them there.
    """
    return await SharedStore(store, on_read).connect(connection)


class SharedStore(Frames):
    """One process's use of a store. Made by `share`."""

    def __init__(self, store: Store, on_read: Callable[[], None] | None = None) -> None:
        super().__init__()
        self._store = store
        self._on_read = on_read
        self._payloads = _Payloads(store)
        self._under_way: set[asyncio.Task[None]] = set()

    def received(self, frame: bytes) -> None:  # noqa: D102 - as above it
        task = asyncio.get_running_loop().create_task(self._answer(QUESTION.decode(frame)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def ended(self) -> None:
        """Returns when the other end has closed, what it asked for is done, and what it left is dropped."""
        await self.hung_up()
        await asyncio.gather(*self._under_way)
        await self._payloads.close()

    async def _answer(self, question: Question) -> None:
        failure, result = None, _NOTHING
        if self._on_read is not None and question.name in _READS:
            self._on_read()
        try:
            arguments = CALLS[question.name].arguments.decode(question.arguments)
            target: Any = self._payloads if question.name in PAYLOAD_CALLS else self._store
            result = msgspec.Raw(_ENCODE(await getattr(target, question.name)(*arguments)))
        except CoregwError as error:
            failure = Failure.of(error)
        except Exception:  # noqa: BLE001 - a bug; the process that asks must hear of it
            _log.exception("the store failed at %s", question.name)
            failure = Failure.of(CoregwError("the store failed; its process's log says how"))
        await self.send(Outcome(question.number, failure, result))


class _Upload:
    """An upload under way, one call at a time. Whoever asks for it closes it, or `_Payloads.close` does."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.end = AsyncExitStack()
        self.writer: PayloadWriter | None = None


class _Payloads(PayloadCalls):
    """The uploads and downloads of one process."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._uploads: dict[int, _Upload] = {}

    async def read_piece(self, multihash: bytes, start: int, end: int | None) -> bytes:
        border = (start // CHUNK_BYTES + 1) * CHUNK_BYTES
        stop = border if end is None else min(border, end)
        return b"".join([piece async for piece in self._store.read_payload(multihash, start, stop)])

    async def write_chunk(self, upload: int, chunk: bytes) -> None:
        under_way = self._uploads.setdefault(upload, _Upload())
        async with under_way.turn:
            await (await self._writer(under_way)).write(chunk)

    async def commit_payload(self, upload: int, last: bytes, multihash: bytes) -> bool:
        under_way = self._uploads.pop(upload, None) or _Upload()
        async with under_way.turn, under_way.end:
            writer = await self._writer(under_way)
            await writer.write(last)
            return await writer.commit(multihash)

    async def abort_payload(self, upload: int) -> None:
        under_way = self._uploads.pop(upload, None)
        if under_way is not None:
            async with under_way.turn:
                await under_way.end.aclose()

    async def close(self) -> None:
        for upload in list(self._uploads):
            await self.abort_payload(upload)

    async def _writer(self, upload: _Upload) -> PayloadWriter:
        if upload.writer is None:
            upload.writer = await upload.end.enter_async_context(self._store.begin_payload())
        return upload.writer
