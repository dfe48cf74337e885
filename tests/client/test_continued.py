"""Payloads whose answers are truncated: the rest is requested by ``Range``, and all of it is verified."""

from __future__ import annotations

import io
import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from client_calls import Call, both_clients
from coregw import payload_cid
from coregw.client import Client, ClientSettings
from coregw.client.static.upstream import HttpUpstream
from coregw.client.transport.gateways import Address, Retries
from coregw.errors import CoregwError, ProofError, TooLarge, Unavailable
from gateways import names, scripted_gateway
from tables import rows

DATA = os.urandom(700_001)
CID = payload_cid(DATA)
PIECE = 100_000
QUICK = ClientSettings(backoff_seconds=0.001)
RANGE = re.compile(rb"\r\nrange: *bytes=([0-9]+)-\r\n", re.IGNORECASE)

Answer = tuple[str, dict[str, str], bytes]


@dataclass
class Cutting:
    """A gateway that sends only the first `piece` bytes of each body, and then closes the connection.

    Attributes:
        answer: Returns its answer after the byte at which a range starts, None without one: status, headers, body.
        starts: What was requested.
        sent: Number of bytes of bodies that it sent.
        url: Its address.
    """

    answer: Callable[[int | None], Answer]
    piece: int = PIECE
    starts: list[int | None] = field(default_factory=list)
    sent: int = 0
    url: str = ""

    def __call__(self, connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1 << 16) or self.lost()
        found = RANGE.search(head)
        self.starts.append(int(found[1]) if found else None)
        status, headers, body = self.answer(self.starts[-1])
        lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
        lines.append(f"Content-Length: {len(body)}")
        self.sent += len(body[: self.piece])  # before the client can have received it
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + body[: self.piece])

    @staticmethod
    def lost() -> bytes:
        raise ConnectionResetError("the client has gone")

    @contextmanager
    def running(self) -> Iterator[Cutting]:
        with scripted_gateway(self) as self.url:
            yield self


def served(data: bytes = DATA, lies: dict[int, Answer] | None = None) -> Callable[[int | None], Answer]:
    """The answers of a gateway that honours ranges, but for those that start where `lies` says."""

    def answer(start: int | None) -> Answer:
        if start is None:
            return "200 OK", {}, data
        if lies and start in lies:
            return lies[start]
        return "206 Partial Content", {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}, data[start:]

    return answer


@pytest.fixture
def honest(gateway: str) -> Callable[[int | None], Answer]:
    """The answers of a real gateway that holds the payload."""
    with Client(gateway) as client:
        assert client.put_payload(DATA) == CID

    def answer(start: int | None) -> Answer:
        headers = {} if start is None else {"range": f"bytes={start}-"}
        found = httpx2.get(f"{gateway}/v1/cas/{CID}", headers=headers)
        kept = {name: value for name, value in found.headers.items() if name in {"content-range", "etag"}}
        return f"{found.status_code} {found.reason_phrase}", kept, found.content

    return answer


@both_clients
@pytest.mark.parametrize("is_saved", [False, True], ids=["memory", "file"])
def test_a_truncated_payload_is_continued(
    honest: Callable[[int | None], Answer], call: Call, is_saved: bool, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    with Cutting(honest).running() as cutting:
        if is_saved:
            assert call(cutting.url, QUICK, "save_payload", CID, target) == len(DATA)
            assert target.read_bytes() == DATA
        else:
            assert call(cutting.url, QUICK, "get_payload", CID) == DATA
    assert cutting.starts[0] is None
    assert cutting.starts[1:] == sorted({start for start in cutting.starts[1:] if start})  # each continues the last
    # All of it arrived once, but for what was in flight when a connection was lost.
    assert len(DATA) <= cutting.sent < 2 * len(DATA)


def test_contents_are_continued(honest: Callable[[int | None], Answer]) -> None:
    """`coregw cat` writes them."""
    with Cutting(honest).running() as cutting, Client(cutting.url, QUICK) as client:
        assert b"".join(client.contents(CID)) == DATA
    assert len(cutting.starts) > 1


@pytest.mark.anyio
async def test_objects_of_an_upstream_are_continued() -> None:
    """Clients of static trees, exports and mirrors read payloads so."""
    with Cutting(served()).running() as cutting:
        upstream = HttpUpstream(Address.parse(cutting.url), QUICK)
        files: list[io.BytesIO] = []

        def begun() -> io.BytesIO:
            files.append(io.BytesIO())
            return files[-1]

        assert await upstream.download("/payload", begun)
        await upstream.aclose()
        assert [file.getvalue() for file in files] == [DATA]
        assert len(DATA) == upstream.traffic.received <= cutting.sent < 2 * len(DATA)
    assert len(cutting.starts) > 1


def test_another_gateway_continues() -> None:
    with ExitStack() as stack:
        gateways = [stack.enter_context(Cutting(served(), piece).running()) for piece in (PIECE, len(DATA))]
        with Client([each.url for each in gateways], QUICK) as client:
            assert client.get_payload(CID) == DATA
        assert [each.starts for each in gateways] == [[None], [PIECE]]


@both_clients
@rows(
    "lie",
    [
        ("200 OK", {}, DATA),  # begins anew
        ("416 Range Not Satisfiable", {"Content-Range": f"bytes */{PIECE}"}, b""),
        ("503 Service Unavailable", {}, b"an error document is not part of the payload"),
    ],
    ids=["all of it", "no such range", "unavailable"],
)
def test_an_answer_that_does_not_continue_is_no_failure(call: Call, lie: Answer) -> None:
    lies = {PIECE: lie}
    cutting = Cutting(served(lies=lies))

    def answer(start: int | None) -> Answer:
        found = served(lies=lies)(start)
        if start == PIECE:
            lies.clear()
            cutting.piece = len(DATA)
        return found

    cutting.answer = answer
    with cutting.running():
        assert call(cutting.url, QUICK, "get_payload", CID) == DATA


@both_clients
@rows("header", [{}, {"Content-Range": f"bytes 0-{len(DATA) - 1}/{len(DATA)}"}], ids=["none", "0"])
def test_another_range_than_was_requested_is_refused(call: Call, header: dict[str, str]) -> None:
    lies = {PIECE: ("206 Partial Content", header, DATA[PIECE:])}
    with Cutting(served(lies=lies)).running() as cutting, pytest.raises(ProofError, match="not what follows byte"):
        call(cutting.url, QUICK, "get_payload", CID)


@both_clients
@pytest.mark.parametrize("is_saved", [False, True], ids=["memory", "file"])
def test_what_a_lying_gateway_sent_is_requested_again(call: Call, is_saved: bool, tmp_path: Path) -> None:
    """After a lie of the first gateway, the second one has to send all: it is unknown which of them lied."""
    target = tmp_path / "target"
    with ExitStack() as stack:
        gateways = [
            stack.enter_context(Cutting(served(bytes(len(DATA)))).running()),
            stack.enter_context(Cutting(served(), len(DATA)).running()),
        ]
        urls = [each.url for each in gateways]
        if is_saved:
            assert call(urls, QUICK, "save_payload", CID, target) == len(DATA)
            assert target.read_bytes() == DATA
        else:
            assert call(urls, QUICK, "get_payload", CID) == DATA
        assert [each.starts for each in gateways] == [[None], [PIECE, None]]


def test_a_lie_that_is_continued_is_refused(tmp_path: Path) -> None:
    with Cutting(served(bytes(len(DATA)))).running() as cutting, Client(cutting.url, QUICK) as client:
        with pytest.raises(ProofError, match="different hash"):
            client.get_payload(CID)
        with pytest.raises(ProofError, match="different hash"):
            client.save_payload(CID, tmp_path / "target")
    assert names(tmp_path) == []


@both_clients
def test_the_limit_is_that_of_all_parts(call: Call) -> None:
    rest = {"Content-Range": f"bytes {PIECE}-{PIECE + len(DATA) - 1}/*"}
    lies = {PIECE: ("206 Partial Content", rest, DATA)}
    with Cutting(served(lies=lies)).running() as cutting, pytest.raises(TooLarge):
        call(cutting.url, QUICK, "get_payload", CID, len(DATA))


def test_progress_prolongs_retries_up_to_the_time_of_one_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("coregw.client.transport.gateways.time.monotonic", lambda: now)
    settings = ClientSettings(retry_seconds=10, answer_seconds=60, backoff_seconds=0.001)

    def ends(step: float, growth: int) -> float:
        """Seconds after the first failure at which a call is given up that fails every `step` seconds."""
        nonlocal now
        now = began = now + 1000
        with Client("http://127.0.0.1:1", settings) as client:
            retries = Retries(settings, client._transport.gateways)
        received = 1
        while retries.wait_seconds(Unavailable("lost"), received) is not None:
            now += step
            received += growth
        return now - began

    assert ends(3, 0) == 12
    assert 60 <= ends(3, 1) <= 63
    assert ends(11, 1) == 66  # each failure is a new one


def test_a_call_without_progress_fails(tmp_path: Path) -> None:
    settings = ClientSettings(retry_seconds=0.3, backoff_seconds=0.001)
    with (
        Cutting(served(), 0).running() as cutting,
        Client(cutting.url, settings) as client,
        pytest.raises(CoregwError, match="lost"),
    ):
        client.save_payload(CID, tmp_path / "target")
    assert set(cutting.starts) == {None}
