"""Credentials in the gateway's address: sent, but in no message, representation or log."""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback

import pytest

import coregw
from coregw.client import AsyncClient, Client, ClientSettings
from coregw.errors import CoregwError, InvalidInput
from gateways import aborted, scripted_gateway
from tables import rows

ONCE = ClientSettings(attempts=1)
CID = coregw.payload_cid(b"x")


def failing(url: str) -> list[CoregwError]:
    """The errors of both clients, of a gateway that fails."""

    async def asynchronous() -> CoregwError:
        async with AsyncClient(url, ONCE) as client:
            assert "hunter2" not in f"{client!r}{client.base_url}{client.settings!r}"
            with pytest.raises(CoregwError) as raised:
                await client.get_payload(CID)
            return raised.value

    with Client(url, ONCE) as client:
        assert "hunter2" not in f"{client!r}{client.base_url}{client.settings!r}"
        with pytest.raises(CoregwError) as raised:
            client.get_payload(CID)
    return [raised.value, asyncio.run(asynchronous())]


def shown(error: CoregwError) -> str:
    return f"{error}{error!r}" + "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "reply", [b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 302 X\r\n", b"junk\r\n\r\n", b""]
)
def test_credentials_are_sent_but_never_shown(reply: bytes, caplog: pytest.LogCaptureFixture) -> None:
    heads: list[bytes] = []

    def script(connection: socket.socket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += connection.recv(1 << 16) or aborted()
        heads.append(head)
        connection.sendall(reply)

    with caplog.at_level(logging.DEBUG), scripted_gateway(script) as url:
        errors = failing(url.replace("//", "//user:hunter2@"))
    assert all(b"Authorization: Basic dXNlcjpodW50ZXIy\r\n" in head for head in heads)
    assert len(heads) == 2
    assert "hunter2" not in "".join(map(shown, errors)) + caplog.text


def test_credentials_are_not_shown_if_the_gateway_is_unreachable() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, but not listening
        errors = failing(f"http://user:hunter2@127.0.0.1:{taken.getsockname()[1]}")
    assert "hunter2" not in "".join(map(shown, errors))


@rows(
    "url",
    [
        "ftp://user:hunter2@host",
        "http://user:hunter2@host?q",
        "http://user:hunter2@host:port",
        "http://user:hunter2@[::1",
        "http://user:hunter2?@host",
        "http://user:hunter2#@host",
        "http://user:hunter2/@host@",
        "http://user:\nhunter2@host",
        "user:hunter2@host",
        "http://host?token=hunter2",
        "http://host#hunter2",
    ],
)
def test_credentials_in_an_invalid_address_are_not_shown(url: str) -> None:
    with pytest.raises(InvalidInput, match="gateway address") as raised:
        Client(url)
    assert "hunter2" not in shown(raised.value)
