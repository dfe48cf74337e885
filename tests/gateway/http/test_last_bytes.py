"""A connection that closes waits for its client to read the last bytes, but not without end.

The protocol is driven through asyncio's own interface, on a transport that records what is done to it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import pytest
import uvicorn
from uvicorn.server import ServerState

from coregw.gateway.http.connection import GatewayProtocol, protocol_for
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

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def fileno(self) -> int:
        return -1

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
        self._protocol = protocol_for(Settings.load({}, **settings))
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


def running(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 10))


@pytest.mark.parametrize("unsent", [[0], [9, 9], [9, 8, 8]])
def test_a_client_that_does_not_read_the_last_bytes_is_reset(unsent: list[int]) -> None:
    async def test() -> None:
        protocol, transport = Server([b"body"], write_seconds=0.01).connect()
        sizes = itertools.chain(unsent, itertools.repeat(unsent[-1]))
        transport.get_write_buffer_size = lambda: next(sizes)  # type: ignore[method-assign]
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        await asyncio.sleep(0.05)
        while unsent != [0] and "abort" not in transport.calls:
            await asyncio.sleep(0.01)
        assert ("abort" in transport.calls) is (unsent != [0])

    running(test)
