"""Which address a client's limits are counted under."""

from __future__ import annotations

import pytest

from coregw.errors import InvalidInput
from coregw.gateway.limits.peers import LOOPBACK, Peer, Proxies, peer_of
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


def test_a_connection_that_ended_is_not_reset() -> None:
    calls = list[str]()
    peer = Peer(None, lambda: calls.append("reset"))
    peer.reset()
    peer.forget()
    peer.reset()
    assert calls == ["reset"]


def test_a_request_knows_its_client() -> None:
    peer = Peer("a")
    assert peer_of({"state": peer.as_state()}) is peer  # type: ignore[typeddict-item]
    assert peer_of({}).address is None  # type: ignore[typeddict-item]
