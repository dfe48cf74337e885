"""What both drivers have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from coregw.client.opened.cache import WeighedCache
from coregw.client.settings import ClientSettings
from coregw.client.transport.gateways import Gateways

if TYPE_CHECKING:
    from coregw.client.opened.reading import Cached

__all__ = ["Driver"]


class _Transport(Protocol):
    @property
    def gateways(self) -> Gateways:
        """The gateways, and which one is in use."""


class Driver:
    """The gateways of a client, as its users see them.

    Attributes:
        settings: Limits and timeouts.
        cache: What the open files of this client keep.
    """

    settings: ClientSettings
    cache: Cached
    _transport: _Transport

    def _set(self, settings: ClientSettings | None) -> None:
        self.settings = settings if settings is not None else ClientSettings()
        self.cache = WeighedCache(self.settings.cache_bytes)

    @property
    def base_url(self) -> str:
        """The address of the gateway in use or static tree, without credentials and a trailing slash."""
        return self._transport.gateways.current.address.shown

    @property
    def switches(self) -> int:
        """How often another one of several gateways became the one in use."""
        return self._transport.gateways.switches
