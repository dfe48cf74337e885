"""HTTP framing on TCP sockets: malformed requests get an error in the gateway's format, never silence."""

from __future__ import annotations

import json
import re
import socket

import pytest

import serving
from coregw.store.memory import MemoryStore
from tables import rows

_BAD = {
    "no Host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "an invalid Host": b"GET /healthz HTTP/1.1\r\nHost: a b/@\r\nConnection: close\r\n\r\n",
    "length and chunks": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    "two lengths": b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "a negative length": b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "a length with a sign": b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\n1",
    "an endless length": b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n1",
    "a length of many digits": b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"0" * 5000 + b"2\r\n\r\n{}",
    "a bad chunk": b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "a bad chunk end": b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n0\r\n\r\n",
    "another coding": b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "chunks in HTTP/1.0": b"POST /v1/cas HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "line feeds alone": b"GET /healthz HTTP/1.1\nHost: a\n\n",
    "a folded header": b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "a space before the colon": b"GET /healthz HTTP/1.1\r\nHost : a\r\n\r\n",
    "bytes beyond ASCII in the target": b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n",
    "an unknown method": b"BREW /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    "a tunnel": b"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "no HTTP": b"hello\r\n\r\n",
}


@rows("request_bytes", _BAD.values(), ids=_BAD.keys())
def test_malformed_http_is_400_and_closes_the_connection(gateway: str, request_bytes: bytes) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(request_bytes)
        head, _, body = serving.everything(connection).partition(b"\r\n\r\n")
    check_refusal(head, body, 400)


def check_refusal(head: bytes, body: bytes, status: int) -> None:
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert b"content-type: application/json" in head
    assert b"cache-control: no-store" in head
    assert json.loads(body)["error"] == "invalid_request"


@rows(
    "request_bytes",
    [
        b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 200 + b"\r\n",
    ],
    ids=["a long header", "a long target", "many headers"],
)
def test_a_head_beyond_the_limits_is_431_and_closes_the_connection(gateway: str, request_bytes: bytes) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(request_bytes)
        head, _, body = serving.everything(connection).partition(b"\r\n\r\n")
    check_refusal(head, body, 431)


def test_endless_headers_close_the_connection() -> None:
    with serving.thread(MemoryStore(), drain_seconds=0.2) as url, serving.connect(url) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ")
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(50_000):
                connection.sendall(b"a" * (1 << 20))


def test_http_1_0_request_closes_the_connection(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert serving.everything(connection).startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_answered_in_order(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(
            b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n1"
            b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n"
            b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        answers = serving.everything(connection)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"201", b"404", b"200"]


def test_rejected_body_is_discarded_and_the_connection_closed(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(b"POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000))
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        answers = serving.everything(connection)
    assert answers.startswith(b"HTTP/1.1 404 ")
    assert (answers.count(b"HTTP/1.1 "), b"\r\nconnection: close\r\n" in answers) in {(1, True), (2, False)}


def test_too_long_body_is_refused_instead_of_100_continue(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(
            b"POST /v1/resolve HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n"
        )
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")
