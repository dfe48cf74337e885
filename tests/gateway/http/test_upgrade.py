"""Requests that offer to upgrade the connection: the offer is ignored, and nothing of the request is lost.

Clients offer HTTP/2 in this way on their own, for example curl with ``--http2`` and Java's HttpClient.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import serving
from tables import rows

OFFERS = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAABAAMAAABk\r\n",
    "websocket": b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "twice": b"Connection: keep-alive\r\nConnection: upgrade\r\nUpgrade: h2c\r\nupgrade: TLS/1.0\r\n",
}
BODIES = {
    "short": b"hello java",
    "a request": b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    "blank lines": b"\r\n\r\n" * 100,
    "long": bytes(range(256)) * 2000,
}
NEXT = b"GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\nGET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


def upload(offer: bytes, body: bytes, *, chunked: bool) -> tuple[bytes, bytes]:
    """The head and the encoded body of a request that stores `body`."""
    head = b"POST /v1/cas HTTP/1.1\r\nHost: a\r\n" + offer
    if not chunked:
        return head + b"Content-Length: %d\r\n\r\n" % len(body), body
    parts = [body[at : at + 7000] for at in range(0, len(body), 7000)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return head + b"Transfer-Encoding: chunked\r\n\r\n", chunks + b"0\r\n\r\n"


def packets(head: bytes, body: bytes, count: int) -> list[bytes]:
    if count == 1:
        return [head + body]
    if count == 2:
        return [head, body]
    sent = head + body
    return [sent[:10], sent[10 : len(head) - 1], *(sent[at : at + 1] for at in range(len(head) - 1, len(head) + 2))] + [
        sent[at : at + 30_000] for at in range(len(head) + 2, len(sent), 30_000)
    ]


def exchange(gateway: str, parts: list[bytes]) -> bytes:
    with serving.connect(gateway) as connection:
        for part in parts:
            connection.sendall(part)
            time.sleep(0.005)
        return serving.everything(connection)


@rows("offer", OFFERS.values(), ids=OFFERS)
@rows("body", BODIES.values(), ids=BODIES)
@rows("chunked", [False, True], ids=["length", "chunked"])
@rows("count", [1, 2, 9])
def test_body_after_an_offer_to_upgrade_is_stored(
    gateway: str, cid_of: Callable[..., str], offer: bytes, body: bytes, chunked: bool, count: int
) -> None:
    head, encoded = upload(offer, body, chunked=chunked)
    answers = exchange(gateway, packets(head, encoded + NEXT, count))
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"201", b"404", b"200"]
    assert cid_of(body).encode() in answers


def test_pipelined_offers_to_upgrade_are_all_ignored(gateway: str, cid_of: Callable[..., str]) -> None:
    bodies = [b"number %d" % number for number in range(100)]
    sent = b"".join(b"".join(upload(OFFERS["h2c"], body, chunked=False)) for body in bodies)
    answers = exchange(gateway, [sent + NEXT])
    assert re.findall(rb'"cid":"(\w+)"', answers) == [cid_of(body).encode() for body in bodies]


def test_request_without_body_may_offer_to_upgrade(gateway: str) -> None:
    answers = exchange(gateway, [b"GET /healthz HTTP/1.1\r\nHost: a\r\n" + OFFERS["websocket"] + b"\r\n" + NEXT])
    assert re.findall(rb"HTTP/1\.1 (\d+)", answers) == [b"200", b"404", b"200"]


def test_offer_to_upgrade_may_ask_to_close(gateway: str, cid_of: Callable[..., str]) -> None:
    offer = b"Connection: close, Upgrade\r\nUpgrade: h2c\r\n"
    answers = exchange(gateway, [b"".join(upload(offer, b"hello", chunked=False))])
    assert b"connection: close" in answers
    assert cid_of(b"hello").encode() in answers


def test_upgrading_client_that_expects_100_continue_gets_it(gateway: str, cid_of: Callable[..., str]) -> None:
    head, body = upload(OFFERS["h2c"] + b"Expect: 100-continue\r\n", b"hello", chunked=False)
    with serving.connect(gateway) as connection:
        connection.sendall(head)
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(body + NEXT)
        assert cid_of(b"hello").encode() in serving.everything(connection)


def test_offer_to_upgrade_does_not_bypass_checks_of_the_head(gateway: str) -> None:
    coded = b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n"
    long = b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: " + b"x" * 40_000
    for head, status in (
        (b"GET /healthz HTTP/1.1\r\n" + OFFERS["h2c"] + b"\r\n", 400),
        (coded + OFFERS["h2c"] + b"\r\n0\r\n\r\n", 400),
        (long + b"\r\n\r\n", 431),
    ):
        head_of_answer, _, body = exchange(gateway, [head]).partition(b"\r\n\r\n")
        assert head_of_answer.startswith(b"HTTP/1.1 %d " % status)
        assert json.loads(body)["error"] == "invalid_request"
