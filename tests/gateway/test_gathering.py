"""What is read and written in a turn of the event loop: nothing is lost, and all keeps its order.

What was read on all connections is parsed in one callback; what was written goes out in one piece, at the end.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable

import pytest

import serving
from coregw.gateway.settings import Settings
from coregw.gateway.wire import _GATHERED_BYTES, _SHORT_READ, GatewayProtocol, _Gathering, _Turn


class Recorder(asyncio.Transport):
    """A transport that notes what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[bytes | str] = []
        self.closing = False
        self.unsent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.told.append(bytes(data))

    def close(self) -> None:
        self.told.append("close")
        self.closing = True

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.unsent


Use = Callable[[_Gathering, Recorder], None]


def after_one_turn(*uses: Use) -> list[list[bytes | str]]:
    """What connections were told in a turn in which each was used, and at its end."""

    async def main() -> list[list[bytes | str]]:
        turn = _Turn()
        recorders = [Recorder() for _ in uses]
        for use, recorder in zip(uses, recorders, strict=True):
            use(_Gathering(recorder, turn), recorder)
        await asyncio.sleep(0)
        return [recorder.told for recorder in recorders]

    return asyncio.run(main())


def writing(*pieces: bytes) -> Use:
    def use(transport: _Gathering, recorder: Recorder) -> None:
        for piece in pieces:
            transport.write(piece)
        assert recorder.told == [], "nothing goes out before the end of the turn"

    return use


def test_what_each_connection_wrote_goes_out_in_one_piece_at_the_end() -> None:
    assert after_one_turn(writing(b"a", b"b"), writing(b"c"), writing(b"d", b"", b"e")) == [[b"ab"], [b"c"], [b"de"]]


def test_what_is_written_in_the_next_turn_goes_out_at_its_end() -> None:
    async def main() -> list[bytes | str]:
        recorder = Recorder()
        transport = _Gathering(recorder, _Turn())
        for piece in (b"first", b"second"):
            transport.write(piece)
            await asyncio.sleep(0)
        return recorder.told

    assert asyncio.run(main()) == [b"first", b"second"]


@pytest.mark.parametrize("size", [_GATHERED_BYTES, _GATHERED_BYTES + 1, 1 << 20])
def test_more_than_the_limit_does_not_wait_and_order_is_kept(size: int) -> None:
    def use(transport: _Gathering, recorder: Recorder) -> None:
        transport.write(b"head")
        transport.write(bytes(size))
        assert recorder.told == [b"head" + bytes(size)]
        transport.write(b"tail")

    assert after_one_turn(use) == [[b"head" + bytes(size), b"tail"]]


def test_no_more_than_the_limit_is_held_however_small_the_pieces() -> None:
    def use(transport: _Gathering, recorder: Recorder) -> None:
        for number in range(1000):
            transport.write(bytes([number % 251]) * 1000)
        assert sum(len(piece) for piece in recorder.told) >= 1_000_000 - _GATHERED_BYTES

    [told] = after_one_turn(use)
    assert b"".join(piece for piece in told if isinstance(piece, bytes)) == b"".join(
        bytes([number % 251]) * 1000 for number in range(1000)
    )


def test_closing_sends_what_is_held_first() -> None:
    def use(transport: _Gathering, _: Recorder) -> None:
        transport.write(b"last words")
        transport.close()

    assert after_one_turn(use) == [[b"last words", "close"]]


def test_a_connection_that_is_gone_is_told_nothing_and_the_others_are() -> None:
    def lose(transport: _Gathering, recorder: Recorder) -> None:
        transport.write(b"to nobody")
        recorder.closing = True

    assert after_one_turn(lose, writing(b"to somebody")) == [[], [b"to somebody"]]


def test_an_answer_arrives_whole(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        for _ in range(20):  # head and body in two pieces would be seen as such nearly each time
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
            head, _, body = connection.recv(65_536).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert json.loads(body)


def test_a_request_that_waits_to_be_told_to_go_on_is_told_so(gateway: str) -> None:
    with serving.connect(gateway) as connection:
        connection.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        assert connection.recv(4096) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"hello")
        assert connection.recv(4096).startswith(b"HTTP/1.1 201 ")


def test_a_client_that_closes_its_side_behind_the_request_gets_the_answer(gateway: str) -> None:
    for _ in range(20):  # the end of its side is mostly read in the turn in which the answer is held
        with serving.connect(gateway) as connection:
            connection.sendall(b"POST /v1/resolve HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}")
            connection.shutdown(socket.SHUT_WR)
            assert serving.everything(connection).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("requests", [1, 3])
def test_a_client_that_closes_its_side_gets_answers_that_take_long(gateway: str, requests: int) -> None:
    """Uploads are answered turns later, when they are on the disk; also the second of two in a row."""
    for round_ in range(10):
        with serving.connect(gateway) as connection:
            for number in range(requests):
                body = b"%d %d of %d" % (round_, number, requests)
                connection.sendall(b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            connection.shutdown(socket.SHUT_WR)
            assert serving.everything(connection).count(b"HTTP/1.1 201 ") == requests


def test_a_client_that_closes_its_side_with_nothing_asked_is_closed(gateway: str) -> None:
    for begun in (b"", b"GET /healthz HT", b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel"):
        with serving.connect(gateway) as connection:
            connection.sendall(begun)
            connection.shutdown(socket.SHUT_WR)
            assert serving.everything(connection) == b""


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999", 413),
        (b"POST /v1/cas?codec=none HTTP/1.1\r\nHost: a\r\nContent-Length: 99", 400),
        (b"POST /v1/cas HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 99", 415),
        (b"POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 99", 404),
    ],
)
def test_a_refusal_reaches_a_client_that_ends_in_the_middle_of_its_body(gateway: str, head: bytes, status: int) -> None:
    for _ in range(10):
        with serving.connect(gateway) as connection:
            connection.sendall(head + b"\r\n\r\nbegun")
            connection.shutdown(socket.SHUT_WR)
            assert serving.everything(connection).startswith(b"HTTP/1.1 %d " % status)


class Parsing(GatewayProtocol):
    """A protocol that notes what it would parse, and may fail at it."""

    def __init__(self, turn: _Turn) -> None:
        self.turn = turn  # type: ignore[misc]  # else the class's
        self.settings = Settings(write_seconds=0.01)  # type: ignore[misc]  # likewise
        self.loop = asyncio.get_running_loop()
        self.parsed: list[bytes] = []
        self.transport = self.recorder = Recorder()
        self._held = b""
        self._timer = self._write_timer = None

    def _unset_keepalive_if_required(self) -> None:
        pass

    def _parse(self, data: bytes) -> None:
        self.parsed.append(data)
        self._disarm()
        if data == b"fail":
            raise RuntimeError("a mistake")


def test_short_pieces_are_parsed_when_all_are_read_and_long_ones_at_once() -> None:
    async def main() -> None:
        turn = _Turn()
        one, two, three = (Parsing(turn) for _ in range(3))
        one.data_received(b"first")
        two.data_received(b"second")
        long = bytes(_SHORT_READ + 1)
        three.data_received(long)
        assert (one.parsed, two.parsed, three.parsed) == ([], [], [long])
        two.data_received(b"third")  # behind what is held of the same connection
        assert two.parsed == [b"second", b"third"]
        await asyncio.sleep(0)
        assert (one.parsed, two.parsed, three.parsed) == ([b"first"], [b"second", b"third"], [long])

    asyncio.run(main())


def test_a_failure_of_one_connection_is_not_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        turn = _Turn()
        bad, good = Parsing(turn), Parsing(turn)
        aborted: list[str] = []
        bad.transport.abort = lambda: aborted.append("bad")  # type: ignore[method-assign]
        bad.data_received(b"fail")
        good.data_received(b"fine")
        await asyncio.sleep(0)
        assert good.parsed == [b"fine"]
        assert aborted == ["bad"]

    asyncio.run(main())
    assert "a connection failed" in caplog.text


@pytest.mark.parametrize("in_time", [True, False])
def test_a_clock_minds_what_was_read_before_it_ran_out(in_time: bool) -> None:
    async def main() -> list[bytes | str]:
        protocol = Parsing(_Turn())
        protocol._arm(0)
        if in_time:
            protocol._held = b"read in the same turn, not parsed yet"
        await asyncio.sleep(0.01)
        return protocol.recorder.told

    assert asyncio.run(main()) == ([] if in_time else ["close"])


@pytest.mark.parametrize("unsent", [0, 1])
def test_who_does_not_read_the_last_bytes_does_not_keep_the_connection(unsent: int) -> None:
    async def main() -> bool:
        turn = _Turn()
        protocol = Parsing(turn)
        cut: list[bool] = []
        protocol._cut = lambda: cut.append(True)  # type: ignore[method-assign]
        protocol.recorder.unsent = unsent
        _Gathering(protocol.recorder, turn, protocol._closing).close()
        await asyncio.sleep(0.05)
        return bool(cut)

    assert asyncio.run(main()) == bool(unsent)
