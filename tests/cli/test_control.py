"""The connection of commands to a running gateway, and how they show progress."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coregw.cli.control import Control, find_control, require_control
from coregw.cli.progress import print_result, shown_progress
from coregw.errors import InvalidInput, Unavailable
from coregw.gateway.control import listen_for_control

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(message: dict[str, Any]) -> bytes:
    line = json.dumps(message).encode() + b"\n"
    return b"%x\r\n%b\r\n" % (len(line), line)


def read_request(connection: socket.socket) -> None:
    """Read the head and the whole body, which the client sends separately: closing earlier would break its pipe."""
    with connection.makefile("rb") as stream:
        length = 0
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        stream.read(length)


@contextmanager
def scripted(data: Path, answer: bytes) -> Iterator[None]:
    """A gateway that answers one request with these bytes, and ends."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            read_request(connection)
            connection.sendall(answer)

    with listen_for_control(data, None) as control:
        thread = threading.Thread(target=serve, args=(control.socket,))
        thread.start()
        try:
            yield
        finally:
            thread.join()


def test_progress_is_shown_and_the_result_returned(tmp_path: Path) -> None:
    progress = {"step": "reading", "done": 1}
    answer = (
        HEAD + chunk({"progress": progress}) + chunk({"progress": {}}) + chunk({"result": {"pages": 7}}) + b"0\r\n\r\n"
    )
    shown: list[object] = []
    with scripted(tmp_path, answer), require_control(tmp_path) as control:
        assert control.run("check", {"a": 1}, shown.append) == {"pages": 7}
    assert shown == [progress, {}]


def test_an_error_of_the_operation_is_raised_as_its_class(tmp_path: Path) -> None:
    error = {"error": "invalid_request", "message": "no such page"}
    with (
        scripted(tmp_path, HEAD + chunk({"error": error}) + b"0\r\n\r\n"),
        require_control(tmp_path) as control,
        pytest.raises(InvalidInput, match=r"^no such page$"),
    ):
        control.run("check")


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200", HEAD, HEAD + chunk({"progress": {}}), HEAD + b"10\r\n{", HEAD + b"0\r\n\r\n"],
    ids=["nothing", "part of a head", "a head", "progress", "part of a line", "no result"],
)
def test_a_gateway_that_ends_before_the_operation_is_a_failure(tmp_path: Path, answer: bytes) -> None:
    with (
        scripted(tmp_path, answer),
        require_control(tmp_path) as control,
        pytest.raises(Unavailable, match=r"^the gateway (did not answer|ended before check did)"),
    ):
        control.run("check")


def test_without_a_gateway_there_is_no_connection(tmp_path: Path) -> None:
    assert find_control(tmp_path) is None
    assert find_control(tmp_path / "missing") is None
    with pytest.raises(
        Unavailable, match=f"^no gateway is running on {tmp_path}; coregw serve --data {tmp_path} starts one$"
    ):
        Control(tmp_path)


def test_progress_without_a_terminal_is_a_line_for_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress("check") as show:
        show({"step": "reading", "done": 1536, "total": 4096, "unit": "bytes"})
        show({"step": "reading", "done": 2000, "total": 4096, "unit": "bytes"})
        show({})
        show({"step": "counting", "done": 12345, "unit": "pages", "lost_pages": 2})
    assert capsys.readouterr().err.splitlines() == [
        "coregw check: reading, 1.5 KiB of 4.0 KiB",
        "coregw check: counting, 12,345 pages, lost pages 2",
    ]


def test_progress_is_not_shown_to_programs(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_progress("check", as_json=True) as show:
        show({"step": "reading"})
    assert capsys.readouterr() == ("", "")


def test_results_are_lines_for_people_and_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    result = {"pages": 12345, "is_sound": True, "roots": ["a", "b"], "more": None, "sizes": {"a": 1}}
    print_result(result, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "pages     12,345",
        "is sound  yes",
        "roots     a, b",
        "more      none",
        "sizes     a 1",
    ]
    print_result(result, as_json=True)
    assert json.loads(capsys.readouterr().out) == result
