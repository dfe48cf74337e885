"""Gateways that lie below the level of replies: they answer before the request is complete, or never finish."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import pytest

import coregw
from car_files import block, cid, header
from client_calls import Call, both_clients
from coregw.client import ClientSettings
from coregw.client.files import CHUNK_BYTES, Upload
from coregw.client.transport.exchange import Attempt, Memory
from coregw.client.transport.exchange import Call as HttpCall
from coregw.client.transport.gateways import Target
from coregw.client.transport.handle import Handle
from coregw.errors import ProofError, TooLarge, Unavailable
from gateways import aborted, read_head, scripted_gateway
from tables import rows

ONCE = ClientSettings(attempts=1)
RAW = 0x55
DATA = bytes(range(256)) * (3 * CHUNK_BYTES // 256)


@pytest.mark.slow
@rows("size", [2, 5000])
@rows("at_once", [1, 100])
def test_an_answer_in_tiny_chunks_takes_as_much_memory_as_its_bytes(size: int, at_once: int) -> None:
    """A chunked body may have chunks of one byte; an object for each of them takes thirty times as much."""
    memory, count = Memory(), 1_000_000 // size
    sent = random.Random(1).randbytes(count * size)
    tracemalloc.start()
    for start in range(0, len(sent), size * at_once):
        chunks = [sent[at : at + size] for at in range(start, min(start + size * at_once, len(sent)), size)]
        if at_once == 1:
            memory.write(chunks[0])
        else:
            memory.writelines(chunks)
    del chunks
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert taken < 1.5 * len(sent)
    assert memory.size == len(sent)
    assert memory.value() == sent
    assert memory.restarted().value() == b""
    memory.write(b"again")
    assert memory.value() == memory.value() == b"again"


# An asyncio transport may lose the answer with the connection; then the attempt failed like any other.
INCOMPLETE = (ProofError, Unavailable)


def answering_early(reply: object, closed: threading.Event) -> Callable[[socket.socket], None]:
    """Answers 201 when the first chunk of the body has arrived, then resets the connection."""
    body = json.dumps(reply).encode()

    def script(connection: socket.socket) -> None:
        received = len(read_head(connection))
        while received < CHUNK_BYTES:
            received += len(connection.recv(CHUNK_BYTES) or aborted())
        connection.sendall(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        time.sleep(0.1)  # so that the answer arrives before the reset
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        closed.set()

    return script


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """An event that the clients wait for before they send the second chunk of a streamed body."""
    event = threading.Event()
    real = Handle.begin

    def paused(chunks: Iterable[bytes]) -> Generator[bytes, None, None]:
        for number, chunk in enumerate(chunks):
            if number == 1:
                event.wait(20)
            yield chunk

    def begin(handle: Handle, target: Target, call: HttpCall, attempt: Attempt) -> None:
        real(handle, target, call, attempt)
        if handle.chunks is not None:
            handle.chunks = paused(handle.chunks)

    monkeypatch.setattr(Handle, "begin", begin)
    return event


@both_clients
def test_a_payload_that_was_not_sent_completely_has_no_cid(call: Call, tmp_path: Path, closed: threading.Event) -> None:
    (tmp_path / "data").write_bytes(DATA)
    prefix = coregw.payload_cid(DATA[: 2 * CHUNK_BYTES])
    with (
        scripted_gateway(answering_early({"cid": prefix}, closed)) as url,
        pytest.raises(INCOMPLETE, match=r"answered before everything was sent|the connection was lost"),
    ):
        call(url, ONCE, "put_payload", tmp_path / "data")


@both_clients
def test_a_car_that_was_not_sent_completely_is_not_imported(
    call: Call, tmp_path: Path, closed: threading.Event
) -> None:
    (tmp_path / "root.car").write_bytes(header(bytes(coregw.Cid(coregw.Map({}).root))) + block(cid(RAW, DATA), DATA))
    nothing = {"roots": [], "blocks": 0, "bytes": 0}
    with (
        scripted_gateway(answering_early(nothing, closed)) as url,
        pytest.raises(INCOMPLETE, match=r"answered before everything was sent|the connection was lost"),
    ):
        call(url, ONCE, "import_car", tmp_path / "root.car")


def test_only_an_attempt_that_sent_all_chunks_may_succeed(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(DATA)
    upload = Upload(tmp_path / "data", "raw", "sha2-256", len(DATA))
    call = HttpCall("POST", "/v1/cas", 100, "put", content=upload)
    complete, partial = Attempt(call, ONCE), Attempt(call, ONCE)
    for chunk in (*upload.chunks(), None):
        complete.sent(chunk)
    complete.start(201, {})
    partial.sent(DATA[:CHUNK_BYTES])
    partial.start(413, {})  # an error may come early
    with pytest.raises(ProofError, match="answered before everything was sent"):
        partial.start(201, {})


def forever(head: bytes, drop: bytes) -> Callable[[socket.socket], None]:
    """Answers with `head`, then repeats `drop` until the client disconnects."""

    def script(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(head)
        while True:
            connection.sendall(drop)
            time.sleep(0.02)

    return script


def not_reading(connection: socket.socket) -> None:
    """Takes a byte of the request now and then, for longer than the client waits."""
    for _ in range(100):
        connection.recv(1)
        time.sleep(0.02)


@both_clients
@rows(
    "script",
    [
        pytest.param(forever(b"", b"HTTP/1.1 102 Processing\r\n\r\n"), id="informational answers"),
        pytest.param(forever(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"), id="head"),
        pytest.param(forever(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b"x"), id="body"),
        pytest.param(not_reading, id="request"),
    ],
)
def test_an_endless_exchange_is_given_up(call: Call, script: Callable[[socket.socket], None]) -> None:
    hasty = ClientSettings(attempts=1, answer_seconds=0.3)
    with scripted_gateway(script) as url, pytest.raises(Unavailable, match=r"the exchange took longer than 0\.3 s"):
        call(url, hasty, "put_payload", DATA * 16)


@both_clients
def test_a_streamed_payload_gets_time_for_its_bytes(call: Call, tmp_path: Path) -> None:
    def script(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(DATA))
        for start in range(0, len(DATA), CHUNK_BYTES):
            connection.sendall(DATA[start : start + CHUNK_BYTES])
            time.sleep(0.2)

    hasty = ClientSettings(attempts=1, answer_seconds=0.3, stream_bytes_per_second=CHUNK_BYTES)
    with scripted_gateway(script) as url:
        call(url, hasty, "save_payload", coregw.payload_cid(DATA), tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == DATA


@both_clients
@rows("digits", ["0" * 5000 + "2", "9" * 18, "9" * 30, "9" * 5000])
def test_a_content_length_of_any_number_of_digits_is_a_length(call: Call, digits: str) -> None:
    def script(connection: socket.socket) -> None:
        read_head(connection)
        connection.sendall(f"HTTP/1.1 200 OK\r\nContent-Length: {digits}\r\n\r\n".encode() + b"ab")

    with scripted_gateway(script) as url:
        if digits.startswith("0"):
            assert call(url, ONCE, "get_payload", coregw.payload_cid(b"ab")) == b"ab"
        else:
            with pytest.raises((TooLarge, Unavailable)):
                call(url, ONCE, "get_payload", coregw.payload_cid(b"ab"))
