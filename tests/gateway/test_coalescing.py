"""Writes of one event loop iteration are sent together, and nothing is lost or reordered.

The protocol is driven through asyncio's own interface, on a transport that records what is done to it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
import uvicorn
from uvicorn.server import ServerState

import serving
from coregw.gateway.http.coalescing import MAX_HELD_BYTES, protocol_for
from coregw.gateway.http.connection import GatewayProtocol, refusal
from coregw.gateway.settings import Settings

if TYPE_CHECKING:
    from litestar.types import HTTPScope, Receive, Send

GET = b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n"


class Recorder(asyncio.Transport):
    """A transport that records calls, and is as slow as its test says."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[bytes | str] = []
        self.unsent = 0
        self._closing = False

    @property
    def sent(self) -> bytes:
        return b"".join(call for call in self.calls if isinstance(call, bytes))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append(bytes(data))

    def close(self) -> None:
        self.calls.append("close")
        self._closing = True

    def abort(self) -> None:
        self.calls.append("abort")
        self._closing = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def get_extra_info(self, name: str, default: object = None) -> object:
        return self if name == "socket" else default

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", 1

    getpeername = getsockname
    family = 2

    def setsockopt(self, *_: object) -> None:
        self.calls.append("linger")


class Server:
    """An application whose responses are what its test says, and connections to it."""

    def __init__(self, chunks: list[bytes], **settings: object) -> None:
        self.seen: list[str] = []
        self._chunks = chunks
        self._protocol = protocol_for(Settings.load({}, **settings), refusal)
        self._config = uvicorn.Config(
            self._app, interface="asgi3", lifespan="off", log_config=None, proxy_headers=False
        )
        self._state = ServerState()

    async def _app(self, scope: HTTPScope, _: Receive, send: Send) -> None:
        self.seen.append(scope["path"])
        length = b"%d" % sum(map(len, self._chunks))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def connect(self) -> tuple[GatewayProtocol, Recorder]:
        protocol = self._protocol(self._config, self._state, {}, asyncio.get_running_loop())
        transport = Recorder()
        protocol.connection_made(transport)
        return protocol, transport


async def iterations(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def running(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 10))


def test_head_and_body_are_sent_in_one_piece() -> None:
    async def test() -> None:
        protocol, transport = Server([b"first", b"second"]).connect()
        protocol.data_received(GET % 1)
        await iterations()
        [response] = transport.calls
        assert isinstance(response, bytes)
        assert response.endswith(b"\r\n\r\nfirstsecond")

    running(test)


def test_responses_of_one_iteration_are_sent_after_all_of_them_are_written() -> None:
    async def test() -> None:
        server = Server([b"body"])
        connections = [server.connect() for _ in range(3)]
        for number, (protocol, _) in enumerate(connections):
            protocol.data_received(GET % number)
        sent_after: list[int] = []
        for _ in range(10):
            await asyncio.sleep(0)
            sent_after.append(sum(len(transport.calls) for _, transport in connections))
        assert server.seen == ["/0", "/1", "/2"]
        assert set(sent_after) == {0, 3}

    running(test)


@pytest.mark.parametrize("size", [1000, MAX_HELD_BYTES, MAX_HELD_BYTES + 1, 1 << 20])
def test_at_most_a_limited_part_of_a_response_is_held(size: int) -> None:
    async def test() -> None:
        chunks = [bytes([number % 251]) * size for number in range(max(2, (1 << 20) // size))]
        protocol, transport = Server(chunks).connect()
        protocol.data_received(GET % 1)
        while not transport.calls:
            await asyncio.sleep(0)
        written = b"".join(chunks)
        assert len(transport.sent.partition(b"\r\n\r\n")[2]) >= len(written) - MAX_HELD_BYTES
        await iterations()
        assert transport.sent.partition(b"\r\n\r\n")[2] == written

    running(test)


def test_closing_sends_what_is_held() -> None:
    async def test() -> None:
        protocol, transport = Server([b"last words"]).connect()
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        await iterations()
        assert transport.sent.endswith(b"last words")
        assert transport.calls[-1] == "close"

    running(test)


def test_a_closed_connection_is_sent_nothing_and_the_others_are() -> None:
    async def test() -> None:
        server = Server([b"body"])
        (lost, lost_transport), (kept, kept_transport) = server.connect(), server.connect()
        for protocol in (lost, kept):
            protocol.data_received(GET % 1)
        while len(server.seen) < 2:
            await asyncio.sleep(0)
        lost_transport.abort()
        await iterations()
        assert lost_transport.calls == ["abort"]
        assert kept_transport.sent.endswith(b"body")

    running(test)


@pytest.mark.parametrize("unsent", [[0], [9, 9], [9, 8, 8]])
def test_a_client_that_does_not_read_the_last_bytes_is_reset(unsent: list[int]) -> None:
    async def test() -> None:
        protocol, transport = Server([b"body"], write_seconds=0.01).connect()
        sizes = itertools.chain(unsent, itertools.repeat(unsent[-1]))
        transport.get_write_buffer_size = lambda: next(sizes)  # type: ignore[method-assign]
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        await asyncio.sleep(0.05)
        assert ("abort" in transport.calls) is (unsent != [0])

    running(test)


def test_a_response_arrives_in_one_piece(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        for _ in range(20):  # if head and body were sent separately, they would nearly always arrive so
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert json.loads(body)
