"""What both clients owe to their transport: heads, forks, threads, signals, and streams in both directions."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import pytest

import coregw
from client_calls import Call, both_clients
from coregw.client import Client, ClientSettings, ConnectionOptions
from coregw.client.transport.asynchronous import AsyncTransport
from coregw.client.transport.exchange import Answer, SentOnce, Traffic
from coregw.client.transport.exchange import Call as HttpCall
from coregw.client.transport.gateways import Address, Gateways, Retries
from coregw.errors import InvalidInput, TooLarge, Unavailable
from gateways import read_head, scripted_gateway
from tables import rows

DATA = b"the payload"
CID = coregw.payload_cid(DATA)
ONCE = ClientSettings(attempts=1)
MIB = 1 << 20


def sending(*pieces: bytes) -> Callable[[socket.socket], None]:
    """Answers with these bytes, each piece as a segment of its own."""

    def script(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        read_head(connection)
        for piece in pieces:
            connection.sendall(piece)

    return script


OK = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(DATA)
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n" % (len(DATA), DATA)


@both_clients
@rows(
    "pieces",
    [
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 X\r\nLink: y\r\n\r\n", OK, DATA], id="1xx"),
        pytest.param([b"HTTP/1.1 103 X\r\n\r\nHTTP/1.1 102 X\r\n\r\n" + OK + DATA], id="1xx in one segment"),
        pytest.param([OK[:5], OK[5:30], OK[30:], DATA[:1], DATA[1:]], id="pieces"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Length: %05000d\r\n\r\n" % len(DATA) + DATA], id="leading zeros"),
        pytest.param([CHUNKED + b"Content-Length: 1\r\nX: HTTP/1.1 500\r\n\r\n"], id="trailers"),
        pytest.param([b"HTTP/1.0 200 OK\r\n\r\n", DATA], id="until the connection ends"),
        pytest.param([b"HTTP/1.1 200 OK\nContent-Length: %d\n\n" % len(DATA), DATA], id="bare line feeds"),
    ],
)
def test_every_form_of_an_answer_is_read(call: Call, pieces: list[bytes]) -> None:
    with scripted_gateway(sending(*pieces)) as url:
        assert call(url, ONCE, "get_payload", CID) == DATA


@both_clients
@rows(
    "pieces",
    [
        pytest.param([b""], id="nothing"),
        pytest.param([b"HTTP/1.1 200 OK\r\nContent-Le"], id="half a head"),
        pytest.param([OK, DATA[:-1]], id="half a body"),
        pytest.param([CHUNKED[:-3]], id="half a chunked body"),
        pytest.param([b"SSH-2.0-OpenSSH\r\n"], id="another protocol"),
        pytest.param([b"HTTP/1.1 103 X\r\n\r\n"], id="informational answers alone"),
    ],
)
def test_an_incomplete_answer_is_unavailable(call: Call, pieces: list[bytes]) -> None:
    with scripted_gateway(sending(*pieces)) as url, pytest.raises(Unavailable, match=f"gateway {url}: "):
        call(url, ONCE, "get_payload", CID)


@both_clients
def test_an_answer_that_declares_too_much_is_refused_before_its_body(call: Call) -> None:
    def script(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n")
        connection.recv(1)  # until the client disconnects

    with scripted_gateway(script) as url, pytest.raises(TooLarge):
        call(url, ONCE, "get_payload", CID, 11)


@both_clients
def test_a_redirect_is_not_followed(call: Call) -> None:
    moved = b"HTTP/1.1 307 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"
    with scripted_gateway(sending(moved)) as url, pytest.raises(coregw.CoregwError, match="answered 307"):
        call(url, ONCE, "get_payload", CID)


@both_clients
def test_a_call_after_closing_is_an_error(call: Call, gateway: str) -> None:
    with Client(gateway) as client:
        pass
    with pytest.raises(RuntimeError, match="closed"):
        client.get_payload(CID)


@both_clients
def test_a_hostile_argument_adds_no_header(call: Call) -> None:
    with pytest.raises(InvalidInput):
        call("http://127.0.0.1:1/a\r\nX-Evil: 1", ONCE, "get_payload", CID)


class Body(io.RawIOBase):
    """A sink that counts its writes."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def tell(self) -> int:
        return sum(self.sizes)

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0

    def truncate(self, size: int | None = None) -> int:
        return 0

    def write(self, chunk: bytes) -> int:  # type: ignore[override]
        self.sizes.append(len(chunk))
        return len(chunk)


def test_a_blocking_download_arrives_in_large_chunks(client: Client) -> None:
    data = os.urandom(8 * MIB)
    body = Body()
    assert client.download(client.put_payload(data), body) == len(data)  # type: ignore[arg-type]
    assert len(body.sizes) < len(data) / (32 << 10)


def test_threads_share_a_client(gateway: str) -> None:
    few = ClientSettings(connections=3)
    with Client(gateway, few) as client, ThreadPoolExecutor(8) as pool:
        payloads = [b"%d" % number for number in range(100)]
        cids = list(pool.map(client.put_payload, payloads))
        assert list(pool.map(client.get_payload, cids)) == payloads


def test_a_forked_child_and_its_parent_keep_their_connections(gateway: str) -> None:
    with Client(gateway) as client:
        cid = client.put_payload(DATA)
        for _ in range(2):
            child = os.fork()
            if child == 0:
                is_right = False
                try:
                    is_right = client.get_payload(cid) == DATA
                    client.close()
                finally:
                    os._exit(0 if is_right else 1)
            assert client.get_payload(cid) == DATA
            assert os.waitpid(child, 0)[1] == 0
        assert client.get_payload(cid) == DATA


FORKING = """
import os
held = []
os.register_at_fork(after_in_child=held.clear)  # as fsspec empties its cache, before functions of later modules run
from coregw.client import Client
held += [Client("static+http://127.0.0.1:1"), Client("http://127.0.0.1:1")]
child = os.fork()
if child == 0:
    os._exit(0 if held == [] else 1)
assert os.waitpid(child, 0)[1] == 0
for client in held:
    client.close()
"""


def test_a_client_that_another_library_drops_in_a_forked_child_is_not_closed_there() -> None:
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=60)


def test_a_signal_interrupts_a_blocking_call(gateway: str) -> None:
    def script(connection: socket.socket) -> None:
        read_head(connection)
        os.kill(os.getpid(), signal.SIGINT)  # handled in the main thread, where the test runs
        connection.recv(1)

    with scripted_gateway(script) as url, Client(url) as client, pytest.raises(KeyboardInterrupt):
        client.get_payload(CID)


def test_a_connection_is_kept_and_replaced_when_the_gateway_closes_it() -> None:
    accepted = threading.Semaphore(0)

    def script(connection: socket.socket) -> None:
        accepted.release()
        for _ in range(2):
            read_head(connection)
            connection.sendall(OK + DATA)

    with scripted_gateway(script) as url, Client(url, ONCE) as client:
        for _ in range(4):
            assert client.get_payload(CID) == DATA
    assert accepted.acquire(blocking=False)
    assert accepted.acquire(blocking=False)
    assert not accepted.acquire(blocking=False)


ARCS = {"a": CID}
BUILT = b'{"root":"%b"}' % coregw.Map(ARCS).root.encode()
SILENT_SECONDS = 2.5  # libcurl measures silence in seconds


def working_silently(connection: socket.socket) -> None:
    """Reads a chunked body, is silent, and answers."""
    body = read_head(connection)
    while not body.endswith(b"0\r\n\r\n"):
        body += connection.recv(4096)
    time.sleep(SILENT_SECONDS)
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 201 X\r\nContent-Length: %d\r\n\r\n" % len(BUILT) + BUILT)


@pytest.mark.slow
@both_clients
def test_a_gateway_may_work_on_a_streamed_body_as_long_as_sending_it_may_take(call: Call) -> None:
    hasty = replace(ONCE, idle_seconds=0.1)
    with scripted_gateway(working_silently) as url:
        assert call(url, replace(hasty, stream_bytes_per_second=1), "build", ARCS) == coregw.Map(ARCS).root
        with pytest.raises(Unavailable, match="the answer timed out"):
            call(url, hasty, "build", ARCS)


def unavailable(after: bytes) -> bytes:
    return b"HTTP/1.1 503 X\r\nRetry-After: %b\r\nContent-Length: 0\r\n\r\n" % after


@both_clients
@rows("after", [b"61", b"Fri, 01 Jan 2100 00:00:00 GMT", b"9" * 400])
def test_a_retry_that_the_gateway_asks_for_too_late_is_not_made(call: Call, after: bytes) -> None:
    with scripted_gateway(sending(unavailable(after))) as url, pytest.raises(Unavailable) as raised:
        call(url, ClientSettings(), "get_payload", CID)
    assert raised.value.retry_after is not None
    assert raised.value.retry_after > 60


@both_clients
@rows("after", [b"0", b"Thu, 01 Jan 1970 00:00:00 GMT", b"soon", b"-1", b""])
def test_a_retry_waits_at_least_for_the_backoff(call: Call, after: bytes) -> None:
    answers = iter([unavailable(after), OK + DATA])

    def script(connection: socket.socket) -> None:
        sending(next(answers))(connection)

    with scripted_gateway(script) as url:
        assert call(url, ClientSettings(backoff_seconds=0.001), "get_payload", CID) == DATA


class Streamed:
    """A streamed request body."""

    def chunks(self) -> Generator[bytes, None, None]:
        yield DATA[:4]
        yield DATA[4:]


@pytest.mark.anyio
async def test_each_attempt_is_counted_with_the_bytes_of_its_bodies() -> None:
    refusal = (
        b"HTTP/1.1 503 X\r\nConnection: close\r\nContent-Length: 4\r\n\r\nbusy"  # not an answer, and not counted as one
    )
    settings = ClientSettings(backoff_seconds=0.001)
    for content, end in ((None, b"\r\n\r\n"), (DATA, DATA), (SentOnce(DATA), DATA), (Streamed(), b"\r\n0\r\n\r\n")):
        answers = iter([refusal, OK + DATA])

        def script(connection: socket.socket, answers: Iterator[bytes] = answers, end: bytes = end) -> None:
            request = b""
            while not request.endswith(end):
                request += connection.recv(1 << 16)
            connection.sendall(next(answers))

        traffic, steps = Traffic(), list[int]()
        traffic.on_sent = steps.append
        with scripted_gateway(script) as url:
            gateways = Gateways([Address.parse(url)], settings, ConnectionOptions())
            transport = AsyncTransport(gateways, settings)
            method = "GET" if content is None else "POST"
            found = await transport.outcome(HttpCall(method, "/x", 100, "send", content=content, traffic=traffic))
            await transport.aclose()
        sent = 0 if content is None else 2 * len(DATA)
        assert isinstance(found, Answer)
        assert (found.body, traffic.requests, traffic.received) == (DATA, 2, len(DATA))
        assert (traffic.sent, sum(steps)) == (sent, sent)


def one_gateway(settings: ClientSettings) -> Gateways:
    return Gateways([Address.parse("http://127.0.0.1:1")], settings, ConnectionOptions())


def test_retries_end_with_their_time() -> None:
    settings = ClientSettings(retry_seconds=0.05, backoff_seconds=0.01)
    retries = Retries(settings, one_gateway(settings))
    waits = [wait for _ in range(1000) if (wait := retries.wait_seconds(Unavailable("down"))) is not None]
    assert 1 <= len(waits) < 1000
    assert max(waits) <= 0.05
    asked = Unavailable("down")
    asked.retry_after = 0.5
    gateways = one_gateway(ClientSettings())
    gateways.failed(gateways.current, asked)
    assert (Retries(ClientSettings(), gateways).wait_seconds(asked) or 0) >= 0.49
    assert Retries(ClientSettings(), gateways).wait_seconds(InvalidInput("no")) is None


def test_of_calls_that_wait_at_once_one_says_so(caplog: pytest.LogCaptureFixture) -> None:
    now = 1000.0
    settings = ClientSettings(retry_seconds=60, backoff_seconds=2)
    gateways = Gateways([Address.parse("http://127.0.0.1:1")], settings, ConnectionOptions(), lambda: now)
    for _ in range(4):
        assert Retries(settings, gateways).wait_seconds(Unavailable("down")) is not None
    assert [record.getMessage() for record in caplog.records] == ["down; trying again for 60 s"]
    now += 61
    assert Retries(settings, gateways).wait_seconds(Unavailable("down")) is not None
    assert len(caplog.records) == 2
