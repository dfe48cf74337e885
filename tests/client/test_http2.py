"""HTTP/2, which the clients use where TLS offers it: the gateway's application on a server that speaks it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import hypercorn.asyncio
import pytest
from hypercorn.config import Config

import coregw
from client_calls import Call, both_clients
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.engine import Engine
from coregw.errors import PayloadNotFound, TooLarge
from coregw.gateway.app import create_app_over
from coregw.gateway.context import Gateway
from coregw.gateway.settings import Settings
from coregw.store.memory import MemoryStore

if TYPE_CHECKING:
    from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope

ONCE = ClientSettings(attempts=1)
LARGE = bytes(range(256)) * (3 << 12)
"""3 MiB: many frames, and more than a stream's window."""
ARCS = {f"d/{number}": coregw.payload_cid(b"%d" % number) for number in range(200)}


class Server:
    """A server in a thread.

    Attributes:
        url: Its address.
        requests: Requests by version of HTTP.
        connections: The ports of clients.
    """

    def __init__(self, certificate: Path, data: Path) -> None:
        self.url = ""
        self.requests: Counter[str] = Counter()
        self.connections: set[int] = set()
        self._certificate = certificate
        self._data = data
        self._is_ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda *_: None)  # it reports connections that are cancelled at the end
        self._end = asyncio.Event()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        config = Config()
        config.certfile, config.keyfile = str(self._certificate), f"{self._certificate}.key"
        config.bind = ["127.0.0.1:0"]
        config.graceful_timeout = 0.1
        sockets = config.create_sockets()
        listener = sockets.secure_sockets[0]
        self.url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        config.bind = [f"fd://{listener.detach()}"]
        engine = Engine(MemoryStore())
        gateway: Any = create_app_over(Gateway.over(engine, Settings.load({}, port=0, data=self._data)), None)

        async def counted(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
            if scope["type"] == "http":
                self.requests[scope["http_version"]] += 1
                assert scope["client"] is not None
                self.connections.add(scope["client"][1])
                await gateway({**scope, "state": {}}, receive, send)

        async def until_end() -> None:
            self._is_ready.set()
            await self._end.wait()

        await hypercorn.asyncio.serve(counted, config, shutdown_trigger=until_end, mode="asgi")
        await engine.close()


@pytest.fixture
def server(certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with Server(certificate, tmp_path) as running:
        yield running
        assert set(running.requests) == {"2"}


@both_clients
def test_every_kind_of_exchange_works(call: Call, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(LARGE)
    large = coregw.payload_cid(LARGE)
    assert call(server.url, ONCE, "put_payload", b"small") == coregw.payload_cid(b"small")
    assert call(server.url, ONCE, "put_payload", file) == large  # a streamed request
    assert call(server.url, ONCE, "get_payload", large) == LARGE
    assert call(server.url, ONCE, "save_payload", large, tmp_path / "saved") == len(LARGE)  # a streamed answer
    assert (tmp_path / "saved").read_bytes() == LARGE
    root = call(server.url, ONCE, "create_root", ARCS)
    assert call(server.url, ONCE, "build", ARCS) == root == coregw.Map(ARCS).root
    assert call(server.url, ONCE, "resolve", root, "d/7") == ARCS["d/7"]
    with pytest.raises(PayloadNotFound):
        call(server.url, ONCE, "get_payload", coregw.payload_cid(b"absent"))
    with pytest.raises(TooLarge):
        call(server.url, replace(ONCE, max_payload_bytes=1000), "get_payload", large)


def test_a_connection_survives_an_answer_that_is_given_up(server: Server) -> None:
    with Client(server.url, ONCE) as client:
        large = client.put_payload(LARGE)
        for _ in range(3):
            with pytest.raises(TooLarge):
                client.get_payload(large, 1000)
            assert client.get_payload(large) == LARGE


def test_tasks_share_connections(server: Server) -> None:
    async def resolve_all() -> list[str]:
        async with AsyncClient(server.url, ONCE) as client:
            root = await client.create_root(ARCS)
            return await asyncio.gather(*(client.resolve(root, path) for path in ARCS))

    assert asyncio.run(resolve_all()) == list(ARCS.values())
    assert len(server.connections) == 1
