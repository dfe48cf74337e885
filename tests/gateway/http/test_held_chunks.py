"""Responses that are streamed: what they hold while they wait for the next chunk, and who stops waiting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from coregw.gateway.limits.peers import Peer
from coregw.gateway.limits.slots import Slots
from coregw.gateway.replies import Reply, gated

STREAMS = 20


class Chunk(bytes):
    """Counts how many of them there are."""

    alive = 0

    def __init__(self, _: bytes) -> None:
        Chunk.alive += 1

    def __del__(self) -> None:
        Chunk.alive -= 1


class Streams:
    """Responses of two chunks, of which the second waits for `go_on`."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.disconnected = asyncio.Event()
        self.waiting = self.closed = 0
        self.sent = bytearray()
        self.reads = asyncio.Semaphore(STREAMS)
        slots = Slots("streams", STREAMS, STREAMS, time.monotonic)
        bodies = [slots.occupy(gated(self._chunks(), self.reads), Peer()) for _ in range(STREAMS)]
        scope: Any = {"method": "GET"}
        self.tasks = [asyncio.create_task(Reply(body)(scope, self._receive, self._send)) for body in bodies]

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            yield Chunk(b"first")
            self.waiting += 1
            await self.go_on.wait()
            yield Chunk(b"second")
        finally:
            self.closed += 1

    async def _receive(self) -> Any:  # noqa: ANN401 - Litestar's types
        await self.disconnected.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:  # noqa: ANN401 - Litestar's types
        self.sent += message.get("body", b"")

    async def until_all_wait(self) -> None:
        while self.waiting < STREAMS:
            await asyncio.sleep(0)


@pytest.mark.anyio
async def test_streams_that_wait_hold_no_chunk() -> None:
    streams = Streams()
    await streams.until_all_wait()
    assert Chunk.alive == 0
    streams.go_on.set()
    await asyncio.gather(*streams.tasks)
    assert streams.sent.count(b"second") == STREAMS
    assert (Chunk.alive, streams.closed) == (0, STREAMS)


@pytest.mark.anyio
async def test_streams_end_when_their_clients_disconnect_although_the_next_chunk_never_comes() -> None:
    streams = Streams()
    await streams.until_all_wait()
    streams.disconnected.set()
    await asyncio.gather(*streams.tasks)
    assert streams.closed == STREAMS
    assert not streams.reads.locked()
    assert bytes(streams.sent) == b"first" * STREAMS
