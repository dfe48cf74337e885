"""Clients as limits see them: the address that a limit counts, and the way to a client's connection."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from coregw.errors import InvalidInput
from coregw.gateway.limits.iteration import IterationBudget

if TYPE_CHECKING:
    from litestar.types import HTTPScope

__all__ = ["LOOPBACK", "Peer", "Proxies", "peer_of"]

LOOPBACK: Final = "127.0.0.0/8,::1"
"""The default of `Proxies`: a proxy on this machine, whose clients all come from one address."""

_STATE: Final = "coregw.peer"
_NONE: Final = "none"
_SUBNET_BITS: Final = 64
"""The part of an IPv6 address that is one subscriber's network; the rest is its own choice."""

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Proxies:
    """The addresses that many clients share, so that no limit per address applies to them.

    Args:
        text: Addresses and networks, separated by commas, or ``none``.

    Raises:
        InvalidInput: If one of them is neither; the message names the setting.
    """

    def __init__(self, text: str) -> None:
        items = [item.strip() for item in text.split(",")] if text != _NONE else []
        self._networks = [_network(item) for item in items]

    def key_of(self, host: str | None) -> str | None:
        """Return what limits count a client under: its IPv4 address or IPv6 /64 network; None if no limit applies.

        Args:
            host: The client's address; None, or anything but an IP address, for a Unix socket.
        """
        try:
            address = ipaddress.ip_address((host or "").partition("%")[0])
        except ValueError:
            return None
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if any(address in network for network in self._networks):
            return None
        if address.version == 4:
            return str(address)
        return str(ipaddress.ip_network((address, _SUBNET_BITS), strict=False))


def _network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        expected = "addresses or networks such as 10.0.0.5 or 10.0.0.0/24, or none"
        raise InvalidInput(f"setting proxies has {text!r:.100}, expected {expected}") from None


class Peer:
    """The client of one connection.

    It refers to the connection, and requests refer to it; `forget` ends that, so that no reference cycle remains. It is
    the caller (`coregw.engine.scheduling`) of what the engine does for these requests.

    Attributes:
        address: What limits per address count the client under; None if they do not apply.
        share: The event loop's time for the bodies of this and other clients.
    """

    __slots__ = ("_has_left", "_reset", "address", "share")

    def __init__(
        self,
        address: str | None = None,
        reset: Callable[[], None] | None = None,
        has_left: Callable[[], bool] | None = None,
        share: IterationBudget | None = None,
    ) -> None:
        """Args: as the attributes, and functions that end the connection at once, and tell whether the client has."""
        self.address = address
        self.share = share or IterationBudget()
        self._reset = reset
        self._has_left: Callable[[], bool] | bool = has_left or False

    def reset(self) -> None:
        """End the connection at once. Nothing happens if it has ended."""
        if self._reset is not None:
            self._reset()

    def forget(self) -> None:
        """Note that the connection has ended."""
        self._reset = None
        self._has_left = True

    def has_left(self) -> bool:
        """Whether the client has disconnected."""
        return self._has_left() if callable(self._has_left) else self._has_left

    def as_state(self) -> dict[str, Any]:
        """Return the ``state`` of an ASGI scope from which `peer_of` returns this client."""
        return {_STATE: self}


def peer_of(scope: HTTPScope) -> Peer:
    """Return the client of a request; one without limits per address if the server did not say."""
    state: dict[str, Any] | None = scope.get("state")
    found = None if state is None else state.get(_STATE)
    return found if isinstance(found, Peer) else Peer()
