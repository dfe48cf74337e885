"""Published names of a client's gateway: what `operations.publications` verifies, as methods of both clients."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Final, Protocol, TypeVar

from coregw.client.operations import publications
from coregw.client.operations.publications import VerifiedPublication
from coregw.client.operations.steps import Steps
from coregw.client.settings import ClientSettings
from coregw.concurrency import in_thread
from coregw.errors import Unavailable
from coregw.messages.management import PublishedRecord
from coregw.tlog.checkpoint import Policy
from coregw.trust.store import TrustStore
from coregw.verify import CidLike

__all__ = ["AsyncPublications", "Observed", "Publications"]

T = TypeVar("T")

_ATTEMPTS: Final = 8


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
        trust: The trust store, if any.
    """

    def __init__(
        self,
        settings: ClientSettings,
        root: Callable[[CidLike], CidLike],
        observed: Observed,
        trust: TrustStore | None,
    ) -> None:
        self._settings = settings
        self._root = root
        self._observed = observed
        self._trust = trust

    def _head(self, origin: str, force: bool) -> tuple[str | None, str | None]:
        """Return the checkpoint that is remembered, and that which a new one must continue; it blocks."""
        held = None if self._trust is None else self._trust.head(origin)
        return held, None if force else held

    def _kept(self, origin: str, held: str | None, note: str) -> bool:
        """Remember a checkpoint, unless another process has done so meanwhile; it blocks."""
        return self._trust is None or self._trust.advance(origin, held, note)


class Publications(_Common):
    """The published names of a client's gateway. `AsyncPublications` has the same methods.

    `verified` returns what the name's signed log proves. Without a log, a record is what the gateway says. With a trust
    store, it is at least no older than what it said before: a rollback, and another root for the same revision, raise
    `ProofError`.

    `token` is that of the gateway's administration routes; None sends the client's own credentials.
    """

    def __init__(
        self,
        run: _Run,
        settings: ClientSettings,
        root: Callable[[CidLike], CidLike],
        observed: Observed,
        trust: TrustStore | None,
    ) -> None:
        """Made by `Client`."""
        super().__init__(settings, root, observed, trust)
        self._run = run

    def get(self, scope: str, name: str, *, token: str | None = None, force: bool = False) -> PublishedRecord:
        """Return the newest revision of a name; see `operations.publications.published`.

        With `force`, a rollback or fork is returned, too, and is what the trust store knows from then on.
        """
        return self._observed(self._run(publications.published(self._settings, scope, name, token)), force)

    def verified(
        self, scope: str, name: str, policy: Policy, *, revision: int | None = None, force: bool = False
    ) -> VerifiedPublication:
        """Return the newest revision of a name, verified by its signed log; see `operations.publications.verified`.

        With a trust store, the checkpoint must continue the one that was verified last, and is remembered; `force`
        replaces that by whatever meets the policy.

        Raises:
            Unavailable: Other processes remember other checkpoints of the log meanwhile, again and again.
        """
        origin = policy.origin
        for _ in range(_ATTEMPTS):
            held, before = self._head(origin, force)
            found = self._run(publications.verified(self._settings, scope, name, policy, before, revision))
            if self._kept(origin, held, found.note):
                return found
        raise _too_busy(scope, name)

    def publish(self, scope: str, name: str, root: CidLike, *, token: str | None = None) -> PublishedRecord:
        """Publish a root as the next revision of a name; see `operations.publications.publish_next`."""
        return self._observed(
            self._run(publications.publish_next(self._settings, scope, name, self._root(root), token))
        )

    def freeze(self, scope: str, name: str, *, token: str | None = None) -> PublishedRecord:
        """Freeze a name for good; see `operations.publications.freeze`."""
        return self._observed(self._run(publications.freeze(self._settings, scope, name, token)))


class AsyncPublications(_Common):
    """The published names of an asyncio client's gateway: `Publications` with awaitable methods."""

    def __init__(
        self,
        run: _AsyncRun,
        settings: ClientSettings,
        root: Callable[[CidLike], CidLike],
        observed: Observed,
        trust: TrustStore | None,
    ) -> None:
        """Made by `AsyncClient`."""
        super().__init__(settings, root, observed, trust)
        self._run = run

    async def get(self, scope: str, name: str, *, token: str | None = None, force: bool = False) -> PublishedRecord:
        """As `Publications.get`."""
        return await self._noted(publications.published(self._settings, scope, name, token), force)

    async def verified(
        self, scope: str, name: str, policy: Policy, *, revision: int | None = None, force: bool = False
    ) -> VerifiedPublication:
        """As `Publications.verified`."""
        origin = policy.origin
        for _ in range(_ATTEMPTS):
            held, before = await in_thread(self._head, origin, force)
            found = await self._run(publications.verified(self._settings, scope, name, policy, before, revision))
            if await in_thread(self._kept, origin, held, found.note):
                return found
        raise _too_busy(scope, name)

    async def publish(self, scope: str, name: str, root: CidLike, *, token: str | None = None) -> PublishedRecord:
        """As `Publications.publish`."""
        return await self._noted(publications.publish_next(self._settings, scope, name, self._root(root), token))

    async def freeze(self, scope: str, name: str, *, token: str | None = None) -> PublishedRecord:
        """As `Publications.freeze`."""
        return await self._noted(publications.freeze(self._settings, scope, name, token))

    async def _noted(self, steps: Steps[PublishedRecord], force: bool = False) -> PublishedRecord:
        return await in_thread(self._observed, await self._run(steps), force)


def _too_busy(scope: str, name: str) -> Unavailable:
    return Unavailable(f"verify {scope}/{name}: other processes remember other checkpoints of its log meanwhile")
