"""Requests whose end two parsers might see in different places, on their way through the front to stock uvicorn.

The cases of HTTP/1 are those of the front's own tests (`rust/front/tests/smuggling.rs`), which have another server.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import serving
from coregw.gateway.app import Application
from coregw.store.memory import MemoryStore
from http2_frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    field_block,
    frame,
    frames_of,
)

CASES: dict[str, Any] = json.loads(
    (Path(__file__).parents[3] / "rust/front/tests/vectors/smuggling.json").read_text("utf-8")
)
SMUGGLED: str = CASES["smuggled"]
"""A request that no case asks for, if its bytes are read as they should be."""

Seen = list[tuple[str, str, bytes]]
Fields = list[tuple[str | bytes, str | bytes]]


@pytest.fixture(scope="module")
def passed() -> Iterator[tuple[str, Seen]]:
    """A gateway, and the complete requests that uvicorn has found: methods, targets, and bodies."""
    seen: Seen = []

    async def record(_: Application, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's types
        body, message = b"", {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
        query = scope["query_string"]
        seen.append((scope["method"], (scope["raw_path"] + (b"?" + query if query else b"")).decode("latin-1"), body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Application, "__call__", record)
        with serving.thread(MemoryStore()) as url:
            yield url, seen


def exchange(url: str, sent: bytes) -> bytes:
    """Send bytes, end the sending side, and return all that comes."""
    with serving.connect(url) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):  # it may be refused while it is sent
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        return serving.everything(connection)


def check_next(url: str, seen: Seen) -> None:
    """Check that the next request is answered as ever, and is all that is seen: nothing is left before it."""
    answer = exchange(url, b"GET /next?a=b HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert statuses(answer) == [b"200"]
    assert seen == [("GET", "/next?a=b", b"")]


def statuses(answers: bytes) -> list[bytes]:
    return re.findall(rb"HTTP/1\.1 (\d+)", answers)


def test_what_has_two_meanings_never_reaches_uvicorn(passed: tuple[str, Seen]) -> None:
    url, seen = passed
    assert len(CASES["refused"]) > 100
    seen.clear()
    for sent in CASES["refused"]:
        assert statuses(exchange(url, sent.encode())) == [b"400"], sent
        assert seen == [], sent
    check_next(url, seen)


def test_what_has_one_meaning_reaches_uvicorn_as_that(passed: tuple[str, Seen]) -> None:
    url, seen = passed
    for sent in CASES["accepted"]:
        seen.clear()
        assert statuses(exchange(url, sent.encode())) == [b"200"], sent
        assert seen == [(sent.partition(" ")[0], "/a", SMUGGLED.encode())], sent
        seen.clear()
        check_next(url, seen)


PSEUDO: Fields = [(":method", "POST"), (":scheme", "http"), (":path", "/a"), (":authority", "localhost")]
SIZED = ("content-length", str(len(SMUGGLED)))


def with_pseudo(name: str, value: str | bytes) -> Fields:
    return [(each, value if each == name else usual) for each, usual in PSEUDO]


ENDS = ["\r\n\r\n", "\r\n", "\n\n", "\n", "\r", "\0"]

REFUSED: list[Fields] = [
    *(with_pseudo(":path", f"/a HTTP/1.1{end}Host: localhost{end}{SMUGGLED}") for end in ENDS),
    *(
        with_pseudo(":path", value)
        for value in ["/a b", "/a\t", "/a ", " /a", "", "a", "/a\x7f", "http:///a", b"/\xff"]
    ),
    *(with_pseudo(":method", f"GET /smuggled HTTP/1.1{end}X:") for end in ["", *ENDS]),
    *(with_pseudo(":method", value) for value in ["", "POST ", " POST", "PO\0ST", "post", "BREW", b"\xff"]),
    *(with_pseudo(":authority", f"localhost{end}X: a") for end in ENDS),
    *(with_pseudo(":authority", value) for value in ["", "local host", "localhost/x", "a@localhost", "localhost:x"]),
    *(with_pseudo(":scheme", f"http{end}X: a") for end in ENDS),
    *([*PSEUDO, ("x", f"a{end}transfer-encoding: chunked")] for end in ENDS),
    *([*PSEUDO, ("x", f"a{end}{SMUGGLED}")] for end in ENDS),
    *([*PSEUDO, (f"x{end}y", "a")] for end in [*ENDS, " ", ":", "\t", "\x7f", "("]),
    *([*PSEUDO, (name, "a")] for name in ["", " x", "x ", "X", "x: a\r\ny", ":x", ":status", b"\xff"]),
    *([*PSEUDO, ("transfer-encoding", value)] for value in ["chunked", "identity", "gzip, chunked", ""]),
    *([*PSEUDO, SIZED, ("transfer-encoding", value)] for value in ["chunked", "identity"]),
    *([*PSEUDO, (name, "a")] for name in ["connection", "keep-alive", "proxy-connection", "upgrade"]),
    [*PSEUDO, ("te", "gzip")],
    *([*PSEUDO, ("content-length", value)] for value in ["5", "1000", "-1", "+43", "0x2b", "43, 43", "", "4 3"]),
    [*PSEUDO, SIZED, ("content-length", "0")],
    [*PSEUDO, ("content-length", "0"), SIZED],
    *(PSEUDO[:at] + PSEUDO[at + 1 :] for at in range(4)),
    *([*PSEUDO, each] for each in PSEUDO),
    *([*PSEUDO[1:], ("x", "a"), PSEUDO[0]] for _ in range(1)),
    [*PSEUDO, ("host", "b")],
    [*PSEUDO, ("host", "localhost"), ("host", "b")],
]
ACCEPTED: list[Fields] = [
    PSEUDO,
    [*PSEUDO, SIZED],
    [*PSEUDO, SIZED, ("te", "trailers")],
    [*PSEUDO, SIZED, ("transfer_encoding", "chunked"), ("x-forwarded-for", "1.2.3.4")],
    [*PSEUDO, ("x", "a\tb"), ("host", "localhost")],
]


def exchange_by_http2(url: str, fields: Fields) -> bool:
    """Send a request with the smuggled one as its body. Returns whether it is answered with a status of 200."""
    sent = PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, field_block(fields))
    sent += frame(DATA, END_STREAM, 1, SMUGGLED.encode())
    with serving.connect(url) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(sent)
        for kind, _, stream, payload in frames_of(connection):
            if kind == GOAWAY or (kind, stream) == (RST_STREAM, 1):
                return False
            if (kind, stream) == (HEADERS, 1):
                return payload[0] == 0x88  # :status 200, in the static table
    return False


def test_what_has_two_meanings_by_http2_never_reaches_uvicorn(passed: tuple[str, Seen]) -> None:
    url, seen = passed
    assert len(REFUSED) > 80
    seen.clear()
    for fields in REFUSED:
        assert not exchange_by_http2(url, fields), fields
        assert seen == [], fields
    check_next(url, seen)


def test_what_has_one_meaning_by_http2_reaches_uvicorn_as_that(passed: tuple[str, Seen]) -> None:
    url, seen = passed
    for fields in ACCEPTED:
        seen.clear()
        assert exchange_by_http2(url, fields), fields
        assert seen == [("POST", "/a", SMUGGLED.encode())], fields
        seen.clear()
        check_next(url, seen)
