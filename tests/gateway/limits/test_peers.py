"""Which address a client's limits are counted under."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from coregw._core import Proxies
from coregw.errors import InvalidInput
from coregw.gateway.limits.peers import LOOPBACK, Peer, Peers, peer_of
from coregw.gateway.settings import Settings
from tables import rows


@rows(
    ("host", "key"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("127.0.0.1", None),
        ("127.8.9.1", None),
        ("::ffff:127.0.0.1", None),
        ("::1", None),
        ("", None),
        (None, None),
    ],
)
def test_a_network_counts_once_and_loopback_not_at_all(host: str | None, key: str | None) -> None:
    assert Proxies(LOOPBACK).key_of(host) == key


def test_proxies_are_addresses_and_networks() -> None:
    proxies = Proxies("10.0.0.5, 10.1.0.0/16,2001:db8::/32")
    assert [proxies.key_of(host) for host in ("10.0.0.5", "10.1.2.3", "2001:db8::1")] == [None, None, None]
    assert proxies.key_of("127.0.0.1") == "127.0.0.1"


def test_without_proxies_every_address_is_counted() -> None:
    assert Proxies("none").key_of("127.0.0.1") == "127.0.0.1"


@rows("text", ["proxy.example.org", "10.0.0.0/33", "10.0.0.1/8", "10.0.0.1,", "*"])
def test_a_malformed_proxy_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="proxies"):
        Settings.load({"COREGW_PROXIES": text})


class App:
    """An application that does with a request what a test says."""

    def __init__(self, answer: Callable[[Peer, Any], Awaitable[None]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - Litestar's types
        await self._answer(peer_of(scope), receive)


async def ask(answer: Callable[[Peer, Any], Awaitable[None]], *messages: dict[str, object]) -> None:
    """Let an application answer a request of 203.0.113.9, of which these messages arrive, and then nothing."""
    left = iter(messages)

    async def receive() -> Any:  # noqa: ANN401 - Litestar's types
        if (message := next(left, None)) is None:
            await asyncio.Event().wait()
        return message

    scope: Any = {"type": "http", "client": ("203.0.113.9", 0), "headers": []}
    send: Any = None
    await Peers(App(answer), Proxies("none"))(scope, receive, send)


@pytest.mark.anyio
async def test_a_request_knows_its_client() -> None:
    seen = []

    async def answer(peer: Peer, _: object) -> None:
        seen.append(peer.address)

    await ask(answer)
    assert seen == ["203.0.113.9"]
    assert peer_of({}).address is None  # type: ignore[typeddict-item]


@pytest.mark.anyio
async def test_a_request_is_ended_without_an_error() -> None:
    async def answer(peer: Peer, _: object) -> None:
        peer.reset()
        peer.reset()
        await asyncio.Event().wait()

    await ask(answer)


@pytest.mark.anyio
async def test_who_cancels_a_request_learns_of_it() -> None:
    async def answer(_: Peer, __: object) -> None:
        await asyncio.Event().wait()

    request = asyncio.create_task(ask(answer))
    await asyncio.sleep(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


@pytest.mark.anyio
async def test_a_client_that_leaves_is_noticed_while_it_is_watched() -> None:
    async def answer(peer: Peer, receive: Any) -> None:  # noqa: ANN401 - Litestar's types
        await receive()
        with peer.watched(receive):
            while not peer.has_left():
                await asyncio.sleep(0)

    await ask(answer, {"type": "http.request", "body": b""}, {"type": "http.disconnect"})
