"""What connections hold for clients that do not read: all of it counts. Real sockets, and chunks that are counted."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any, Final

import pytest
import uvicorn
from uvicorn.server import ServerState

from coregw.gateway.http.connection import GatewayProtocol, protocol_for
from coregw.gateway.http.framing import HeldFlow
from coregw.gateway.http.replies import Reply
from coregw.gateway.listener import loop_factory
from coregw.gateway.settings import Settings

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Send

_CLIENTS: Final = 4
_CHUNK_BYTES: Final = 1 << 20
_CHUNKS: Final = 8
_UNCOUNTED_BYTES: Final = 16 << 10
"""What a connection may hold besides."""


class Chunk(bytes):
    """Counts the bytes that are alive."""

    alive = 0

    def __init__(self, _: int) -> None:
        Chunk.alive += len(self)

    def __del__(self) -> None:
        Chunk.alive -= len(self)


async def _chunks() -> AsyncGenerator[bytes, None]:
    for _ in range(_CHUNKS):
        yield Chunk(_CHUNK_BYTES)


def _reply(framing: str) -> Reply:
    if framing == "whole":
        return Reply(Chunk(_CHUNKS * _CHUNK_BYTES))
    length = {"Content-Length": str(_CHUNKS * _CHUNK_BYTES)} if framing == "length" else {}
    return Reply(_chunks(), headers=length)


async def _unread(framing: str) -> tuple[int, int]:
    """Return the bytes of responses that are alive when nobody reads, and those that count."""

    async def app(scope: HTTPScope, receive: Receive, send: Send) -> None:
        await _reply(framing)(scope, receive, send)

    protocols: list[GatewayProtocol] = []
    bound = protocol_for(Settings.load({}, unsent_bytes=1 << 30))
    loop = asyncio.get_running_loop()
    config = uvicorn.Config(app, interface="asgi3", lifespan="off", log_config=None, proxy_headers=False)  # type: ignore[arg-type]

    def connected() -> GatewayProtocol:
        protocols.append(bound(config, ServerState(), {}, loop))
        return protocols[-1]

    server = await loop.create_server(connected, "127.0.0.1", 0)
    with contextlib.ExitStack() as stack:
        for _ in range(_CLIENTS):
            client = stack.enter_context(socket.create_connection(server.sockets[0].getsockname()))
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        while len(protocols) < _CLIENTS or not all(protocol.flow.write_paused for protocol in protocols):
            await asyncio.sleep(0.01)
        found = Chunk.alive, bound.shared.unsent.total
        for protocol in protocols:
            protocol.make_room()
    while bound.shared.unsent.total or Chunk.alive:
        await asyncio.sleep(0.01)
    server.close()
    return found


@pytest.mark.parametrize("framing", ["whole", "length", "chunked"])
def test_all_that_is_held_for_clients_that_do_not_read_counts(framing: str) -> None:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        alive, counted = runner.run(asyncio.wait_for(_unread(framing), 60))
    assert alive >= _CLIENTS * _CHUNK_BYTES
    assert counted >= alive - _CLIENTS * _UNCOUNTED_BYTES


class Pipe:
    """As much of a transport as `HeldFlow` uses."""

    def __init__(self) -> None:
        self.unsent = 0
        self.limit: int | None = None

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def set_write_buffer_limits(self, high: int | None = None) -> None:
        self.limit = high


def test_nothing_is_written_until_the_last_byte_of_a_large_part_is_sent() -> None:
    pipe: Any = Pipe()
    flow = HeldFlow(pipe)
    usual = pipe.limit
    for unsent in (0, 1):
        flow.part_bytes, pipe.unsent = 1 << 20, unsent
        flow.settle()
        assert (pipe.limit, flow.part_bytes) == ((0, 1 << 20) if unsent else (usual, 0))
    flow.pause_writing()
    flow.resume_writing()
    assert (pipe.limit, flow.part_bytes) == (usual, 0)
