"""Trailers of chunked bodies: discarded, limited, and never taken for headers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

import serving
from coregw.store.memory import MemoryStore
from tables import rows

CHUNKED = b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"
NEXT = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def exchange(gateway: str, *parts: bytes) -> bytes:
    with serving.connect(gateway) as connection:
        try:
            for part in parts:
                connection.sendall(part)
        except (ConnectionResetError, BrokenPipeError):
            pass  # it has answered already
        return serving.everything(connection)


def test_trailers_are_discarded(gateway: str, cid_of: Callable[..., str]) -> None:
    trailers = b"Digest: x\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\nHost: b\r\nExpect: 100-continue\r\n"
    answers = exchange(gateway, CHUNKED + trailers + b"\r\n" + NEXT)
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"201", b"200"]
    assert cid_of(b"hello").encode() in answers


def test_token_in_a_trailer_does_not_authenticate(gateway: str) -> None:
    token = f"Authorization: Bearer {serving.ADMIN_TOKEN}\r\n".encode()
    request = b"POST /admin/v1/scopes/s/roots HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
    assert exchange(gateway, request + token + b"\r\n0\r\n\r\n" + NEXT).startswith(b"HTTP/1.1 400 ")
    for body in (b"0\r\n" + token + b"\r\n", b"2\r\n{}\r\n0\r\nX: y\r\n" + token + b"\r\n"):
        assert exchange(gateway, request + b"\r\n" + body + NEXT).startswith(b"HTTP/1.1 401 ")


@rows(
    "trailers",
    [
        b"a: b\r\n" * 20_000,
        b"a: " + b"b" * 1_000_000,
        b"a" * 1_000_000,
        b"a: b\r\n" * 1000 + b"a: " + b"b" * 40_000 + b"\r\n\r\n",
    ],
    ids=["many", "a long value", "a long name", "a long one after many"],
)
@rows("packet", [1000, 10_000_000])
def test_trailers_beyond_the_limit_are_refused(gateway: str, trailers: bytes, packet: int) -> None:
    parts = [trailers[at : at + packet] for at in range(0, len(trailers), packet)]
    answer = exchange(gateway, CHUNKED, *parts)
    if answer:  # a connection that is closed before everything sent is read may be reset
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert "trailers" in json.loads(body)["message"]


@rows(
    ("route", "piece"),
    [
        (b"/v1/cas", b"a: b\r\n" * 10_000),
        (b"/v1/cas", b"a" * 60_000),
        (b"/nowhere", b"a: b\r\n" * 10_000),
    ],
    ids=["lines", "a name", "after an answer"],
)
def test_endless_trailers_close_the_connection(route: bytes, piece: bytes) -> None:
    with serving.thread(MemoryStore(), drain_seconds=0.2) as url, serving.connect(url) as connection:
        connection.sendall(CHUNKED.replace(b"/v1/cas", route))
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(50_000):
                connection.sendall(piece)


def test_chunk_headers_that_arrive_alone_are_not_trailers(gateway: str, cid_of: Callable[..., str]) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(CHUNKED.partition(b"5\r\n")[0])
        for _ in range(10_000):  # 60 kB of framing altogether
            connection.sendall(b"0001\r\n")
            connection.sendall(b"x\r\n")
        connection.sendall(b"0\r\n\r\n" + NEXT)
        assert cid_of(b"x" * 10_000).encode() in serving.everything(connection)
