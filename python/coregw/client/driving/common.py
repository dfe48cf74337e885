"""What both drivers have."""

from __future__ import annotations

from typing import Protocol

from coregw.client.settings import ClientSettings
from coregw.client.transport.gateways import Gateways

__all__ = ["Driver"]


class _Transport(Protocol):
    @property
    def gateways(self) -> Gateways:
        """The gateways, and which one is in use."""


class Driver:
    """The gateways of a client, as its users see them.

    Attributes:
        settings: Limits and timeouts.
    """

    settings: ClientSettings
    _transport: _Transport

    @property
    def base_url(self) -> str:
        """The address of the gateway in use or static tree, without credentials and a trailing slash."""
        return self._transport.gateways.current.address.shown

    @property
    def switches(self) -> int:
        """How often another one of several gateways became the one in use."""
        return self._transport.gateways.switches
