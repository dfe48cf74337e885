"""Clients that close their side of the connection, and clients that wait for 100 Continue."""

from __future__ import annotations

import socket

import pytest

import serving
from tables import rows


def test_a_client_that_expects_100_continue_gets_it(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello")
        assert connection.recv(4096).startswith(b"HTTP/1.1 201 ")


def test_a_half_closed_connection_gets_its_response(gateway: str) -> None:
    for _ in range(20):  # the end is mostly read in the iteration in which the response is held
        with serving.connect(gateway) as connection:
            connection.sendall(b"POST /v1/resolve HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
            connection.shutdown(socket.SHUT_WR)
            assert serving.everything(connection).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("requests", [1, 3])
def test_a_half_closed_connection_gets_responses_that_take_long(gateway: str, requests: int) -> None:
    """Uploads are answered iterations later, when they are durable."""
    for round_ in range(10):
        with serving.connect(gateway) as connection:
            for number in range(requests):
                body = b"%d %d of %d" % (round_, number, requests)
                connection.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            connection.shutdown(socket.SHUT_WR)
            assert serving.everything(connection).count(b"HTTP/1.1 201 ") == requests


def test_a_half_closed_connection_without_a_complete_request_is_closed(gateway: str) -> None:
    for begun in (b"", b"GET /healthz HT"):
        with serving.connect(gateway) as connection:
            connection.sendall(begun)
            connection.shutdown(socket.SHUT_WR)
            assert serving.everything(connection) == b""


def test_a_half_closed_connection_without_a_complete_body_is_told(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel")
        connection.shutdown(socket.SHUT_WR)
        answer = serving.everything(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"the request body is incomplete" in answer


@rows(
    ("head", "status"),
    [
        (b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999", 413),
        (b"POST /v1/cas?codec=none HTTP/1.1\r\nHost: a\r\nContent-Length: 99", 400),
        (b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 99", 415),
        (b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 99", 404),
    ],
)
def test_an_error_reaches_a_client_that_truncates_its_body(gateway: str, head: bytes, status: int) -> None:
    for _ in range(10):
        with serving.connect(gateway) as connection:
            connection.sendall(head + b"\r\n\r\nbegun")
            connection.shutdown(socket.SHUT_WR)
            assert serving.everything(connection).startswith(b"HTTP/1.1 %d " % status)


def test_a_client_of_http_1_0_is_not_told_to_continue(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        head = b"POST /v1/cas HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head)
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            connection.recv(4096)
        connection.settimeout(10)
        connection.sendall(b"hello")
        assert serving.everything(connection).startswith(b"HTTP/1.1 201 ")
