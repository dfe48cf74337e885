"""Base of both drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from coregw._core import Cid
from coregw.client.file_ranges import WeighedCache
from coregw.client.operations.steps import PartSize
from coregw.client.settings import ClientSettings
from coregw.client.transport.gateways import Gateways
from coregw.errors import InvalidInput

if TYPE_CHECKING:
    from coregw.client.file_ranges import Cached
    from coregw.messages.management import PublishedRecord
    from coregw.trust import TrustStore
    from coregw.verify import CidLike

__all__ = ["ClientBase", "Observed"]


class Observed(Protocol):
    """Returns a record that does not contradict an earlier one, or raises; it blocks. `force` keeps it in any case."""

    def __call__(self, record: PublishedRecord, force: bool = False) -> PublishedRecord:
        """Return the record."""


class _Transport(Protocol):
    @property
    def gateways(self) -> Gateways:
        """The gateways, and which one is in use."""


class ClientBase:
    """The gateways of a client, as its users see them.

    Attributes:
        settings: Limits and timeouts.
        cache: What the open files of this client keep.
    """

    settings: ClientSettings
    cache: Cached
    _transport: _Transport
    _parts: PartSize
    _trust: TrustStore | None = None

    def _set(self, settings: ClientSettings | None) -> None:
        self.settings = settings if settings is not None else ClientSettings()
        self.cache = WeighedCache(self.settings.cache_bytes)
        self._parts = PartSize()

    @property
    def base_url(self) -> str:
        """The address of the gateway or static tree in use, without credentials and a trailing slash."""
        return self._transport.gateways.current.address.shown

    @property
    def switches(self) -> int:
        """How often another one of several gateways became the one in use."""
        return self._transport.gateways.switches

    def root(self, root: CidLike) -> CidLike:
        """Return what a root's argument stands for: a CID as it is, or the root of a name in the client's trust store.

        Every method that takes a root calls it.

        Raises:
            InvalidInput: It is neither a CID nor a name in the store.
        """
        if self._trust is None or not isinstance(root, str):
            return root
        try:
            Cid(root)
        except InvalidInput as error:
            try:
                return self._trust.root(root)
            except InvalidInput as unknown:
                raise InvalidInput(f"{error.message}; {unknown.message}", code=error.code) from None
        return root

    def _observed(self, record: PublishedRecord, force: bool = False) -> PublishedRecord:
        """Return a record that does not contradict an earlier one, as the trust store knows; it blocks for the file.

        Revisions are counted by a gateway, so they are remembered by the address that this client prefers.
        """
        if self._trust is not None:
            source = self._transport.gateways.preferred
            named = (record.scope, record.name, record.revision, record.root)
            self._trust.observe(source, *named, frozen=record.frozen, force=force)
        return record
