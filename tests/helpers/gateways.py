"""Gateways for client tests: an honest one on a real socket and store, one that tampers with its replies, and one that
is scripted byte by byte."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NoReturn

import httpx2
import uvloop

from coregw.client import Client
from coregw.gateway.server import GatewayServer
from coregw.gateway.settings import Settings

START_SECONDS = 30


def names(folder: Path) -> list[str]:
    """The names in a folder, sorted."""
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def honest_gateway(data: Path) -> Iterator[str]:
    """Run a gateway on a RocksDB store in `data`, in a thread. Yields its address."""
    ready = threading.Event()
    addresses: list[str] = []

    def on_ready(url: str) -> None:
        addresses.append(url)
        ready.set()

    server = GatewayServer(Settings(data=data, port=0, shutdown_seconds=5), on_ready=on_ready)

    def serve() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as `coregw serve` does
            runner.run(server.serve())

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        assert ready.wait(START_SECONDS), "the gateway did not start"
        yield addresses[0]
    finally:
        server.stop()
        thread.join()


@dataclass(frozen=True)
class Reply:
    """A request, and the reply that the client will receive."""

    method: str
    path: str
    request: bytes
    status: int
    body: bytes
    headers: dict[str, str]
    received: dict[str, str] = field(default_factory=dict)
    """The headers of the request, with lower-case names."""

    def with_body(self, body: bytes, status: int | None = None) -> Reply:
        return replace(self, body=body, status=self.status if status is None else status)


def aborted() -> NoReturn:
    raise ConnectionAbortedError("the client aborted its upload")


Lie = Callable[[Reply], Reply]
Liar = Callable[..., Client]  # (lie, settings=, honest=) -> a client of a lying gateway


@contextmanager
def lying_gateway(lie: Lie, honest: str | None = None) -> Iterator[str]:
    """Run a proxy of the `honest` gateway that passes each reply through `lie`. Yields its address.

    Without an honest gateway, `lie` is given an empty reply with status 200.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            request = self.body()
            received = {name.lower(): value for name, value in self.headers.items()}
            reply = lie(replace(self.honest_reply(request), received=received))
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if "content-length" not in reply.headers and "transfer-encoding" not in reply.headers:
                self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        do_GET = do_POST = do_HEAD = answer  # noqa: N815

        def body(self) -> bytes:
            if self.headers.get("transfer-encoding") == "chunked":
                chunks = []
                while size := int(self.rfile.readline() or aborted(), 16):
                    chunks.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(chunks)
            return self.rfile.read(int(self.headers.get("content-length", 0)))

        def honest_reply(self, request: bytes) -> Reply:
            if honest is None:
                return Reply(self.command, self.path, request, 200, b"", {})
            passed = ("accept", "content-type")
            headers = {name: value for name, value in self.headers.items() if name.lower() in passed}
            answer = httpx2.request(self.command, honest + self.path, content=request, headers=headers)
            named = {"content-type": found} if (found := answer.headers.get("content-type")) else {}
            return Reply(self.command, self.path, request, answer.status_code, answer.content, named)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            if not isinstance(sys.exc_info()[1], ConnectionError):  # clients may disconnect at any time
                super().handle_error(request, client_address)

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def guarded_gateway(honest: str, key: str) -> Iterator[str]:
    """Pass on requests that have the header ``x-key`` with this value, and answer all others with 401."""

    def check(reply: Reply) -> Reply:
        return reply if reply.received.get("x-key") == key else Reply("", "", b"", 401, b"", {})

    with lying_gateway(check, honest) as url:
        yield url


@contextmanager
def scripted_gateway(script: Callable[[socket.socket], None]) -> Iterator[str]:
    """Run `script` on each connection, one at a time, and close it after. Yields the address.

    A script may block for as long as its client stays connected: it ends with the `OSError` of the disconnection.
    """
    stopped = threading.Event()

    def serve(listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            with connection, suppress(OSError):
                if stopped.is_set():
                    return
                connection.settimeout(START_SECONDS)
                script(connection)

    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)  # small, so that an upload soon has to wait
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopped.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join()


def read_head(connection: socket.socket) -> bytes:
    """Receive the head of a request. Returns what was received of its body."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(1 << 16) or aborted()
    return received.partition(b"\r\n\r\n")[2]


@dataclass
class Counted:
    """What a gateway was asked for through `lying_gateway`, and the bytes of its answers."""

    url: str = ""
    replies: list[Reply] = field(default_factory=list)

    def __call__(self, reply: Reply) -> Reply:
        self.replies.append(reply)
        return reply

    @property
    def paths(self) -> list[str]:
        return [reply.path.partition("?")[0].removeprefix("/v1/") for reply in self.replies]

    @property
    def bytes(self) -> int:
        return sum(len(reply.body) for reply in self.replies)
