"""Deadlines and limits: clients that stall, stop reading, or are too many."""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx2

import serving
from coregw.store.memory import MemoryStore
from tables import rows

_POST = b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"


@contextmanager
def _gateway(**settings: object) -> Iterator[str]:
    with serving.thread(MemoryStore(), **settings) as url:
        yield url


def _body(answer: bytes) -> dict[str, str]:
    return dict(json.loads(answer.partition(b"\r\n\r\n")[2]))


@rows("sent", [b"", b"GET", b"\r\n", b"GET /healthz HTTP/1.1\r\nHost: a\r\n"])
def test_head_past_its_deadline_closes_the_connection(sent: bytes) -> None:
    with _gateway(header_seconds=0.05) as url, serving.connect(url) as connection:
        connection.sendall(sent)
        assert serving.everything(connection) == b""


def test_second_head_past_its_deadline_closes_the_connection() -> None:
    with _gateway(header_seconds=0.05, keep_alive_seconds=3600) as url, serving.connect(url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /he")
        assert serving.everything(connection).count(b"HTTP/1.1 ") == 1


def test_an_idle_connection_is_closed() -> None:
    with _gateway(keep_alive_seconds=1) as url, serving.connect(url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert serving.everything(connection).count(b"HTTP/1.1 200 ") == 1


def test_stalled_body_is_refused_and_the_connection_closed() -> None:
    with _gateway(body_idle_seconds=0.05, drain_seconds=0.05) as url, serving.connect(url) as connection:
        connection.sendall(_POST + b"some")
        answer = serving.everything(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert "in time" in _body(answer)["message"]


def test_a_body_that_trickles_is_refused_and_its_connection_closed() -> None:
    settings = {"min_rate_bytes": 1 << 20, "rate_grace_seconds": 0.1, "drain_seconds": 3600}
    with _gateway(**settings) as url, serving.connect(url) as connection:
        connection.sendall(_POST)
        connection.settimeout(0.01)
        answer = b""
        for _ in range(900):
            try:
                connection.sendall(b"x")
                answer += connection.recv(65_536)
                break
            except TimeoutError:
                continue
        connection.settimeout(60)
        answer += serving.everything(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close\r\n" in answer
    assert "in time" in _body(answer)["message"]


def test_a_body_above_the_minimum_rate_is_accepted() -> None:
    # Its first bytes come with the head and are enough for five seconds, so that a pause of this process is none of it.
    with _gateway(min_rate_bytes=1, rate_grace_seconds=0.2) as url, serving.connect(url) as connection:
        connection.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 40\r\n\r\nhello")
        for _ in range(7):
            time.sleep(0.1)
            connection.sendall(b"hello")
        assert serving.everything(connection).startswith(b"HTTP/1.1 201 ")


def test_body_past_its_deadline_is_refused() -> None:
    settings = {"body_seconds": 0.2, "body_idle_seconds": 3600, "drain_seconds": 3600}
    with _gateway(**settings) as url, serving.connect(url) as connection:
        connection.sendall(_POST)
        connection.settimeout(0.01)
        answer = b""
        for _ in range(900):
            connection.sendall(b"x")
            try:
                answer = connection.recv(65_536)
                break
            except TimeoutError:
                continue
    assert answer.startswith(b"HTTP/1.1 400 ")


def test_client_that_reads_nothing_is_reset() -> None:
    with _gateway(write_seconds=0.1) as url:
        cid = httpx2.post(f"{url}/v1/cas", content=bytes(64 << 20), timeout=60).json()["cid"]
        with serving.connect(url) as slow:
            slow.sendall(f"GET /v1/cas/{cid} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            # The gateway stops waiting, so it can be stopped while this client still has not read a byte.
            serving.connect(url).close()
            while httpx2.get(f"{url}/healthz").status_code == 200:
                if _is_cut(slow):
                    break


def test_a_client_that_reads_too_slowly_is_reset() -> None:
    with _gateway(min_rate_bytes=1 << 30, rate_grace_seconds=0.1) as url:
        cid = httpx2.post(f"{url}/v1/cas", content=bytes(64 << 20), timeout=60).json()["cid"]
        with serving.connect(url) as slow:
            slow.sendall(f"GET /v1/cas/{cid} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            while not _is_cut(slow):
                assert slow.recv(1000)


def test_clients_that_read_nothing_are_reset_when_their_responses_need_too_much_memory() -> None:
    with _gateway(unsent_bytes=1 << 20, write_seconds=3600, rate_grace_seconds=3600) as url, ExitStack() as stack:
        cid = httpx2.post(f"{url}/v1/cas", content=bytes(64 << 20), timeout=60).json()["cid"]
        request = f"GET /v1/cas/{cid} HTTP/1.1\r\nHost: a\r\n\r\n".encode()
        unread = [stack.enter_context(serving.connect(url)) for _ in range(4)]
        for connection in unread:
            connection.sendall(request)
            assert connection.recv(9) == b"HTTP/1.1 "
        while sum(_is_cut(connection) for connection in unread) < 3:
            another = stack.enter_context(serving.connect(url))  # a response is what makes the gateway look
            another.sendall(request)
            assert another.recv(9) == b"HTTP/1.1 "
        assert httpx2.get(f"{url}/v1/cas/{cid}", timeout=60).content == bytes(64 << 20)


def _is_cut(connection: socket.socket) -> bool:
    """Whether the peer reset the connection, without reading what it sent before."""
    poll = select.poll()
    poll.register(connection, select.POLLHUP | select.POLLERR | select.POLLRDHUP)
    return any(events & (select.POLLHUP | select.POLLERR | select.POLLRDHUP) for _, events in poll.poll(50))


def test_a_slow_reader_gets_everything() -> None:
    with _gateway(write_seconds=1) as url:
        data = bytes(range(256)) * (4 << 12)
        cid = httpx2.post(f"{url}/v1/cas", content=data).json()["cid"]
        with serving.connect(url) as slow:
            slow.sendall(f"GET /v1/cas/{cid} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            received = b""
            while chunk := slow.recv(10_000):
                received += chunk
        assert received.partition(b"\r\n\r\n")[2] == data


def _one_answer(connection: socket.socket) -> bytes:
    """Receive one JSON response on a connection that stays open."""
    received = b""
    while not received.endswith(b"}"):
        piece = connection.recv(4096)
        assert piece, "the connection was closed"
        received += piece
    return received


def test_the_longest_idle_connection_makes_room_for_another() -> None:
    with _gateway(connections=3) as url, ExitStack() as stack:
        held = [stack.enter_context(serving.connect(url)) for _ in range(3)]
        for connection in (held[1], held[0], held[2]):
            time.sleep(0.005)  # the event loop's clock has milliseconds
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert _one_answer(connection).startswith(b"HTTP/1.1 200 ")
        assert httpx2.get(f"{url}/healthz").status_code == 200
        assert serving.everything(held[1]) == b""
        for connection in (held[0], held[2]):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            assert _one_answer(connection).startswith(b"HTTP/1.1 200 ")


def test_connections_with_unfinished_requests_make_room_too() -> None:
    with _gateway(connections=4) as url, ExitStack() as stack:
        for begun in (b"", b"GET /he", _POST, _POST + b"some") * 3:
            stack.enter_context(serving.connect(url)).sendall(begun)
            assert httpx2.get(f"{url}/healthz").status_code == 200


def test_an_address_may_use_its_share_of_connections() -> None:
    with _gateway(connections=4, proxies="none") as url, ExitStack() as stack:
        held = [stack.enter_context(serving.connect(url)) for _ in range(3)]
        assert serving.everything(held[0]) == b""
        held[2].sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        assert _one_answer(held[2]).startswith(b"HTTP/1.1 200 ")


def test_bodies_past_their_shared_memory_get_503() -> None:
    with _gateway(buffered_bytes=1 << 20) as url:
        arcs = b'{"arcs": {"' + b"a" * (2 << 20) + b'": "x"}}'
        answer = httpx2.post(f"{url}/v1/roots", content=arcs)
        assert (answer.status_code, answer.json()["error"]) == (503, "unavailable")
        assert answer.headers["retry-after"] == "1"
        for _ in range(3):  # the memory of the first is available again
            answer = httpx2.post(f"{url}/v1/roots", content=b'{"arcs": {"' + b"a" * (1 << 19) + b'": "x"}}')
            assert answer.status_code == 400


def test_a_stalled_body_gives_its_memory_to_another() -> None:
    with _gateway(buffered_bytes=1 << 20, roots_body_bytes=1 << 20) as url, serving.connect(url) as stalled:
        stalled.sendall(b"POST /v1/roots HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + bytes(900_000))
        arcs = b'{"arcs": {"' + b"a" * 800_000 + b'": "x"}}'
        while (answer := httpx2.post(f"{url}/v1/roots", content=arcs)).status_code == 503:
            assert httpx2.post(f"{url}/v1/roots", content=b'{"arcs":{}}').status_code == 201
        assert answer.status_code == 400
        assert serving.everything(stalled).startswith(b"HTTP/1.1 503 ")


def test_uploads_that_have_only_begun_hold_no_memory() -> None:
    begun = b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\nx"
    with _gateway(buffered_bytes=1 << 20) as url, ExitStack() as stack:
        for _ in range(20):
            upload = stack.enter_context(serving.connect(url))
            upload.sendall(begun)
            assert upload.recv(100).startswith(b"HTTP/1.1 100 ")
        assert httpx2.post(f"{url}/v1/cas", content=bytes(500_000)).status_code == 201


def test_each_limit_on_bodies_is_its_own() -> None:
    limits = {
        "/v1/resolve": "json_body_bytes",
        "/v1/scan": "json_body_bytes",
        "/v1/verify/read": "verify_body_bytes",
        "/v1/roots": "roots_body_bytes",
        "/v1/roots/x/mutations": "mutation_body_bytes",
        "/v1/cas": "payload_bytes",
        "/v1/resolve/batch": "resolve_batch_body_bytes",
    }
    for path, setting in limits.items():
        with _gateway(**{setting: 1000}) as url:
            for body in (bytes(1001), iter([bytes(1001)])):
                answer = httpx2.post(url + path, content=body)
                assert (answer.status_code, answer.json()["error"]) == (413, "too_large"), path
                assert ("x-core-verification-role" in answer.headers) == path.startswith("/v1/verify/")
            assert httpx2.post(url + path, content=bytes(1000)).status_code != 413
