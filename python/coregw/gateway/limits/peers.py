"""Clients as limits see them: the address that a limit counts, whether they have left, and how a request is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from litestar.enums import ScopeType

from coregw.gateway.limits.arrival import Arrival

if TYPE_CHECKING:
    from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send

    from coregw._core import Proxies

__all__ = ["LOOPBACK", "Peer", "Peers", "peer_of"]

LOOPBACK: Final = "127.0.0.0/8,::1"
"""The default of `coregw._core.Proxies`: a proxy on this machine, whose clients all come from one address."""

_STATE: Final = "coregw.peer"


class Peer:
    """The client of one request.

    It is the caller (`coregw.engine.scheduling`) of what the engine does for the request.

    Attributes:
        address: What limits per address count the client under; None if they do not apply.
        is_reset: Whether the request was ended.
    """

    __slots__ = ("_has_left", "_task", "address", "is_reset")

    def __init__(self, address: str | None = None, task: asyncio.Task[Any] | None = None) -> None:
        """Args: as the attribute, and the task that serves the request."""
        self.address = address
        self.is_reset = False
        self._task = task
        self._has_left = False

    def reset(self) -> None:
        """End the request at once: its connection is closed before the answer is complete."""
        if self._task is not None and not self.is_reset:
            self.is_reset = True
            self._task.cancel()

    def has_left(self) -> bool:
        """Whether the client has disconnected, as far as `watch` was told."""
        return self._has_left

    @contextmanager
    def watched(self, receive: Receive) -> Iterator[None]:
        """Notice that the client disconnects, while the context is active. The body of the request was received."""
        watching = asyncio.ensure_future(self._watch(receive))
        try:
            yield
        finally:
            watching.cancel()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._has_left = True


class Peers:
    """An ASGI application that tells the one behind it about the clients of requests: `peer_of` and `arrival_of`."""

    def __init__(self, app: ASGIApp, proxies: Proxies) -> None:
        """Args: the application behind it, and the addresses to which no limit per address applies."""
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point."""
        task = asyncio.current_task()
        if scope["type"] != ScopeType.HTTP or task is None:
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        peer = Peer(self._proxies.key_of(client[0] if client else None), task)
        arrival = Arrival(receive)
        state: dict[str, Any] = {**(scope.get("state") or {}), _STATE: peer}
        arrival.bind(state)
        scope["state"] = state
        try:
            await self._app(scope, arrival.receive, send)
        except asyncio.CancelledError:
            if not peer.is_reset:
                raise
            task.uncancel()  # the server closes the connection, since the answer is not complete


def peer_of(scope: HTTPScope) -> Peer:
    """Return the client of a request; one without limits per address if nobody has said."""
    state: dict[str, Any] | None = scope.get("state")
    found = None if state is None else state.get(_STATE)
    return found if isinstance(found, Peer) else Peer()
