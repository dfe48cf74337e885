"""How connections are accepted: many in one event loop iteration, and those of clients that still wait first."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack

import pytest
import uvloop

import serving
from coregw.gateway.http.server import HttpServer
from coregw.gateway.limits.accepting import MAX_ACCEPTS, MAX_ADMISSIONS, Acceptor
from coregw.gateway.limits.iteration import IterationBudget
from coregw.gateway.limits.tcp import CONTINUE
from coregw.gateway.settings import Settings

SPARE_ITERATIONS = 8
LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [uvloop.new_event_loop, asyncio.new_event_loop]


async def unused(scope: object, receive: object, send: object) -> None:
    """No request is sent."""


def test_an_iteration_accepts_many_connections() -> None:
    async def count_iterations() -> int:
        ready = asyncio.Event()
        server = HttpServer(Settings.load({}, port=0, header_seconds=600), unused, ready.set, handles_signals=False)
        with ExitStack() as stack:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=MAX_ACCEPTS))
            for _ in range(MAX_ACCEPTS):
                stack.enter_context(socket.create_connection(listener.getsockname()))
            serving = asyncio.create_task(server.serve([listener]))
            await ready.wait()
            iterations = 0
            while len(server.server_state.connections) < MAX_ACCEPTS:
                await asyncio.sleep(0)
                iterations += 1
            server.should_exit = True
            await serving
        return iterations

    assert uvloop.run(count_iterations()) <= MAX_ACCEPTS // MAX_ADMISSIONS + SPARE_ITERATIONS


class Connection(asyncio.Protocol):
    """Notes what was received when the client has closed its side."""

    def __init__(self, ended: list[bytes]) -> None:
        self.ended = ended
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        if data.endswith(b"waits"):
            self.ended.append(self.received)

    def eof_received(self) -> None:
        self.ended.append(self.received)


def given_up(address: tuple[str, int], text: bytes, *, is_reset: bool = False) -> None:
    with socket.create_connection(address) as client:
        client.sendall(text)
        if is_reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def accept(listener: socket.socket, limit: int, last: set[bytes], count: int = 0) -> list[bytes]:
    """Accept connections until these, and so many, have been received; returns what all sent, in this order."""
    ended: list[bytes] = []
    acceptor = Acceptor(listener, lambda: Connection(ended), limit, IterationBudget())
    while len(ended) < count or not last <= set(ended):
        await asyncio.sleep(0)
    for _ in range(SPARE_ITERATIONS):
        await asyncio.sleep(0)
    for _ in range(2):
        await acceptor.close()
    return list(ended)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the system does not tell the state of connections")
def test_a_client_that_waits_is_served_before_those_that_have_given_up(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Also those are answered, as they may read; only resets, and the oldest beyond the limit, are not."""
    many = MAX_ACCEPTS + 50
    with asyncio.Runner(loop_factory=loop) as runner, socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        for number in range(many):
            given_up(listener.getsockname(), b"%d" % number, is_reset=number % 50 == 0)
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(b"waits")
            left = {b"%d" % number for number in range(many) if number % 50} | {b"waits"}
            received = runner.run(accept(listener, many, left))
        assert received.index(b"waits") <= SPARE_ITERATIONS
        assert sorted(received) == sorted(left)
        for number in range(many):
            given_up(listener.getsockname(), b"%d" % number)
        newest = {b"%d" % number for number in range(many - 10, many)}
        assert len(runner.run(accept(listener, 20, newest))) < many


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.skipif(not hasattr(socket, "TCP_INFO"), reason="the system does not tell the state of connections")
def test_requests_of_clients_that_have_gone_are_not_read(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """One that has only closed its side is answered, after an interim response, unless its version has none."""
    text = b"GET /%d HTTP/1.%d\r\n\r\n"
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=loop))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=MAX_ACCEPTS))
        half_closed = []
        for number in range(60):
            given_up(listener.getsockname(), text % (number, 1))
            if number % 10 == 5:
                half_closed.append(stack.enter_context(socket.create_connection(listener.getsockname())))
                half_closed[-1].sendall(text % (1000 + number, number // 10 % 2))
                half_closed[-1].shutdown(socket.SHUT_WR)
        left = {text % (1000 + number, number // 10 % 2) for number in range(5, 60, 10)}
        received = set(runner.run(accept(listener, MAX_ACCEPTS, left)))
        assert left <= received
        assert len(received) <= len(left) + 1  # the first one that waits is not asked
        for number, connection in enumerate(half_closed):
            assert serving.everything(connection) == (CONTINUE if number % 2 else b"")


@pytest.mark.parametrize("loop", LOOPS)
def test_a_short_request_is_served_before_uploads(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """Of clients that give up an upload, the system tells only when all of it has been read."""
    long = b"long" * 2000 + b"waits"
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner(loop_factory=loop))
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=MAX_ACCEPTS))
        for text in [long] * (6 * MAX_ADMISSIONS) + [b"waits"]:
            stack.enter_context(socket.create_connection(listener.getsockname())).sendall(text)
        received = runner.run(accept(listener, MAX_ACCEPTS, {b"waits", long}, 6 * MAX_ADMISSIONS + 1))
    assert received.index(b"waits") <= 2 * MAX_ADMISSIONS
    assert received.count(long) == 6 * MAX_ADMISSIONS


@pytest.mark.parametrize("loop", LOOPS)
def test_accepting_goes_on_when_descriptors_are_available_again(
    loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    failures = [errno.EMFILE, errno.ECONNABORTED, errno.ENFILE, errno.EMFILE]

    class Listener(socket.socket):
        def accept(self) -> tuple[socket.socket, object]:
            if failures:
                raise OSError(failures.pop(), "as if")
            return super().accept()

    with asyncio.Runner(loop_factory=loop) as runner, Listener() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as client:
            client.sendall(b"waits")
            assert runner.run(accept(listener, 1, {b"waits"})) == [b"waits"]
    assert not failures
    begun, ended = caplog.messages
    assert begun == "no connection can be accepted: as if"
    assert ended.startswith("connections are accepted again after ")
