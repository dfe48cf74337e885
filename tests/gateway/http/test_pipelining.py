"""Requests that are sent before the previous ones are answered."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from select import select
from typing import TYPE_CHECKING

import httpx2

import serving
from coregw.gateway.limits.peers import Peers
from coregw.store.memory import MemoryStore
from tables import rows

if TYPE_CHECKING:
    import pytest
    from litestar.types import Receive, Scope, Send

PAYLOAD = bytes(range(256)) * (64 << 10)  # 16 MiB, more than the sockets' buffers
SHORTEST = b"GET / HTTP/1.1\r\nHost:\r\n\r\n"
CLOSING = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


@contextmanager
def unread(**settings: object) -> Iterator[tuple[str, socket.socket]]:
    """A connection on which a long response is due, of which nothing is read yet."""
    with serving.thread(MemoryStore(), **settings) as url:
        cid = httpx2.post(f"{url}/v1/cas", content=PAYLOAD, timeout=60).json()["cid"]
        with serving.connect(url) as connection:
            connection.sendall(f"GET /v1/cas/{cid} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            assert connection.recv(9) == b"HTTP/1.1 "
            yield url, connection


def send_much(connection: socket.socket, data: bytes) -> int:
    """Send until the gateway stops reading. Returns how much it and the sockets have taken."""
    connection.settimeout(0.2)
    sent = 0
    try:
        while sent < len(data):
            sent += connection.send(data[sent : sent + (1 << 20)])
    except TimeoutError:
        pass
    connection.settimeout(60)
    return sent


def test_no_request_begins_before_the_response_to_the_last_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    original = Peers.__call__

    async def counting(self: Peers, scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])
        await original(self, scope, receive, send)

    monkeypatch.setattr(Peers, "__call__", counting)
    with unread() as (url, connection):
        requests = SHORTEST * 1_000_000
        assert send_much(connection, requests) < len(requests)
        assert httpx2.get(f"{url}/healthz").status_code == 200
        assert "/healthz" in begun
        assert "/" not in begun


@rows("body", [b"", b"\r\n\r\n" * 50, bytes(100_000)], ids=["short", "blank lines", "long"])
def test_all_of_many_pipelined_requests_are_answered_in_order(cid_of: Callable[..., str], body: bytes) -> None:
    bodies = [b"%d%b" % (number, body) for number in range(200 if len(body) > 1000 else 2000)]
    head = b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%b"
    with unread() as (_, connection):
        sent = b"".join(head % (len(each), each) for each in bodies) + CLOSING
        taken = send_much(connection, sent)
        connection.settimeout(0)
        answers = bytearray()
        while True:  # read and send at once, since neither side holds everything
            select([connection], [connection] if taken < len(sent) else [], [])
            with suppress(BlockingIOError):
                taken += connection.send(sent[taken : taken + 65_536])
            with suppress(BlockingIOError):
                piece = connection.recv(1 << 20)
                if not piece:
                    break
                answers += piece
                del answers[:-2_000_000]
    assert [cid.decode() for cid in re.findall(rb'"cid":"(\w+)"', answers)] == [cid_of(each) for each in bodies]
    assert answers.count(b"HTTP/1.1 200 ") == 1


def test_disconnection_with_requests_waiting_logs_nothing(tmp_path: Path) -> None:
    with serving.process(tmp_path / "data", log_level="warning") as running:
        cid = httpx2.post(f"{running.url}/v1/cas", content=PAYLOAD, timeout=60).json()["cid"]
        for _ in range(5):
            with serving.connect(running.url) as connection:
                connection.sendall(f"GET /v1/cas/{cid} HTTP/1.1\r\nHost: a\r\n\r\n".encode() + SHORTEST * 1000)
                assert connection.recv(9) == b"HTTP/1.1 "
        assert httpx2.get(f"{running.url}/healthz").status_code == 200
        assert running.end() == 0
        assert running.popen.stderr is not None
        assert running.popen.stderr.read() == ""


def test_head_that_waits_behind_an_unread_response_has_no_deadline() -> None:
    with unread(header_seconds=0.1) as (_, connection):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nGET /nowhere HTTP/1.1\r\nHo")
        time.sleep(0.5)
        connection.sendall(b"st: a\r\nConnection: close\r\n\r\n")
        answers = serving.everything(connection)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"200", b"404"]


@rows(
    "malformed",
    [
        b"GARBAGE\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nz",
    ],
    ids=["a head", "no Host", "a body"],
)
@rows("between", [b"", b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_malformed_request_is_refused_after_the_responses_before_it(malformed: bytes, between: bytes) -> None:
    with unread() as (_, connection):
        connection.sendall(between + malformed)
        time.sleep(0.05)
        answers = serving.everything(connection)
    head, _, rest = answers.partition(b"\r\n\r\n")
    assert b"content-length: %d" % len(PAYLOAD) in head
    assert rest[: len(PAYLOAD)] == PAYLOAD
    after = rest[len(PAYLOAD) :]
    assert re.findall(rb"HTTP/1\.1 (\d+)", after) == [*([b"200"] if between else []), b"400"]
    assert json.loads(after.rpartition(b"\r\n\r\n")[2])["error"] == "invalid_request"


def test_upload_before_a_malformed_request_is_acknowledged(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGARBAGE\r\n\r\n")
        answers = serving.everything(connection)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"201", b"400"]
