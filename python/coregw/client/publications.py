"""Published names, as ``client.publications`` of both clients; what is sent and checked is in ``operations.record``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

import anyio.to_thread

from coregw.client.operations import record
from coregw.client.operations.steps import Steps
from coregw.client.query import CidLike
from coregw.client.settings import ClientSettings
from coregw.messages.record import PublishedRecord

__all__ = ["AsyncPublications", "Observed", "Publications"]

T = TypeVar("T")


class _Run(Protocol):
    """Drives an operation of a blocking client."""

    def __call__(self, steps: Steps[T], /) -> T: ...


class _AsyncRun(Protocol):
    """Drives an operation of an asyncio client."""

    def __call__(self, steps: Steps[T], /) -> Coroutine[None, None, T]: ...


class Observed(Protocol):
    """Returns a record that does not contradict an earlier one, or raises; it blocks. `force` keeps it in any case."""

    def __call__(self, record: PublishedRecord, force: bool = False) -> PublishedRecord:
        """Return the record."""


class _Common:
    """What both have.

    Args:
        settings: The client's.
        root: Returns the root that a name of the trust store stands for.
        observed: Remembers a record in the trust store.
    """

    def __init__(
        self,
        settings: ClientSettings,
        root: Callable[[CidLike], CidLike],
        observed: Observed,
    ) -> None:
        self._settings = settings
        self._root = root
        self._observed = observed


class Publications(_Common):
    """The published names of a client's gateway. `AsyncPublications` has the same methods.

    Without a transparency log, a record is what the gateway says. With a trust store, it is at least no older than what
    it said before: a rollback, and another root for the same revision, raise `ProofError`.

    `token` is that of the gateway's administration routes; None sends the client's own credentials.
    """

    def __init__(
        self,
        run: _Run,
        settings: ClientSettings,
        root: Callable[[CidLike], CidLike],
        observed: Observed,
    ) -> None:
        """Made by `Client`."""
        super().__init__(settings, root, observed)
        self._run = run

    def get(self, scope: str, name: str, *, token: str | None = None, force: bool = False) -> PublishedRecord:
        """Return the newest revision of a name; see `operations.record.published`.

        With `force`, a rollback or fork is returned, too, and is what the trust store knows from then on.
        """
        return self._observed(self._run(record.published(self._settings, scope, name, token)), force)

    def publish(self, scope: str, name: str, root: CidLike, *, token: str | None = None) -> PublishedRecord:
        """Publish a root as the next revision of a name; see `operations.record.publish_next`."""
        return self._observed(self._run(record.publish_next(self._settings, scope, name, self._root(root), token)))

    def freeze(self, scope: str, name: str, *, token: str | None = None) -> PublishedRecord:
        """Freeze a name for good; see `operations.record.freeze`."""
        return self._observed(self._run(record.freeze(self._settings, scope, name, token)))


class AsyncPublications(_Common):
    """The published names of an asyncio client's gateway: `Publications` with awaitable methods."""

    def __init__(
        self,
        run: _AsyncRun,
        settings: ClientSettings,
        root: Callable[[CidLike], CidLike],
        observed: Observed,
    ) -> None:
        """Made by `AsyncClient`."""
        super().__init__(settings, root, observed)
        self._run = run

    async def get(self, scope: str, name: str, *, token: str | None = None, force: bool = False) -> PublishedRecord:
        """As `Publications.get`."""
        return await self._noted(record.published(self._settings, scope, name, token), force)

    async def publish(self, scope: str, name: str, root: CidLike, *, token: str | None = None) -> PublishedRecord:
        """As `Publications.publish`."""
        return await self._noted(record.publish_next(self._settings, scope, name, self._root(root), token))

    async def freeze(self, scope: str, name: str, *, token: str | None = None) -> PublishedRecord:
        """As `Publications.freeze`."""
        return await self._noted(record.freeze(self._settings, scope, name, token))

    async def _noted(self, steps: Steps[PublishedRecord], force: bool = False) -> PublishedRecord:
        return await anyio.to_thread.run_sync(self._observed, await self._run(steps), force)
