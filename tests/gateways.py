"""Gateways for the tests of clients: an honest one on a real socket and a real store, and one that lies on purpose."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import uvloop

from coregw.client import Client
from coregw.gateway.server import GatewayServer
from coregw.gateway.settings import Settings

START_SECONDS = 30


def names(folder: Path) -> list[str]:
    """What is in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def honest_gateway(data: Path) -> Iterator[str]:
    """A gateway on RocksDB in `data`, in a thread; gives its address."""
    ready = threading.Event()
    heard: list[str] = []

    def on_ready(url: str) -> None:
        heard.append(url)
        ready.set()

    server = GatewayServer(Settings(data=data, port=0, shutdown_seconds=5), on_ready=on_ready)

    def serve() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # the loop that `coregw serve` runs on
            runner.run(server.serve())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert ready.wait(START_SECONDS), "the gateway did not start"
        yield heard[0]
    finally:
        server.stop()
        thread.join()


@dataclass(frozen=True)
class Told:
    """An answer on its way to the client."""

    method: str
    path: str
    request: bytes
    status: int
    body: bytes
    headers: dict[str, str]

    def saying(self, body: bytes, status: int | None = None) -> Told:
        return replace(self, body=body, status=self.status if status is None else status)


Lie = Callable[[Told], Told]
Liar = Callable[..., Client]  # (lie, settings=, honest=): a client of a gateway that tells it


@contextmanager
def lying_gateway(lie: Lie, honest: str | None = None) -> Iterator[str]:
    """A gateway that asks the `honest` one, and lies about what it heard. Without one it heard 200 and nothing."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            request = self.body()
            told = lie(self.heard(request))
            self.send_response(told.status)
            for name, value in told.headers.items():
                self.send_header(name, value)
            if "content-length" not in told.headers and "transfer-encoding" not in told.headers:
                self.send_header("content-length", str(len(told.body)))
            self.end_headers()
            self.wfile.write(told.body)

        do_GET = do_POST = do_HEAD = answer  # noqa: N815

        def body(self) -> bytes:
            if self.headers.get("transfer-encoding") == "chunked":
                pieces = []
                while size := int(self.rfile.readline(), 16):
                    pieces.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(pieces)
            return self.rfile.read(int(self.headers.get("content-length", 0)))

        def heard(self, request: bytes) -> Told:
            if honest is None:
                return Told(self.command, self.path, request, 200, b"", {})
            headers = {name: value for name, value in self.headers.items() if name.lower() == "content-type"}
            answer = httpx2.request(self.command, honest + self.path, content=request, headers=headers)
            return Told(self.command, self.path, request, answer.status_code, answer.content, {})

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
