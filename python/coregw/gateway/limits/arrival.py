"""A request body that is still arriving: whether it is stalled, and why its reader has to give up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any, Final, cast

if TYPE_CHECKING:
    from litestar.types import HTTPReceiveMessage, HTTPScope, Receive

__all__ = ["Arrival", "arrival_of"]

_STATE: Final = "coregw.arrival"
_STALLED_SECONDS: Final = 1.0
"""A body that has been too slow for this long is stalled, and refused first if memory is short."""

_RATE: Final = 1024
"""Bytes a second with which a body is not stalled."""


class Arrival:
    """The body of one request, from its head until its last byte: an ASGI receive channel.

    Time counts while the gateway waits for the client. Bytes that arrive make up for the time that they may take.
    """

    __slots__ = ("_began", "_bytes", "_clock", "_failure", "_is_complete", "_receive", "_task", "_waited")

    def __init__(self, receive: Receive, clock: Callable[[], float] = time.monotonic) -> None:
        """Args: the channel of the server, and a clock in seconds."""
        self._receive = receive
        self._clock = clock
        self._began: float | None = None
        self._waited = 0.0
        self._bytes = 0
        self._is_complete = False
        self._task: asyncio.Task[Any] | None = None
        self._failure: Exception | None = None  # copies of it are raised, whose tracebacks end with their readers

    def bind(self, state: dict[str, Any]) -> None:
        """Make `arrival_of` return this for the request whose scope has this ``state``."""
        state[_STATE] = self

    async def receive(self) -> HTTPReceiveMessage:
        """Wait for the next part of the body, or for the client to leave. Raises what `refuse` was given."""
        if self._failure is not None:
            raise copy(self._failure)
        if self._is_complete:
            return cast("HTTPReceiveMessage", await self._receive())
        self._task = task = asyncio.current_task()
        self._began = self._clock()
        try:
            message = cast("HTTPReceiveMessage", await self._receive())
        except asyncio.CancelledError:
            self._raise_failure(task)
            raise
        finally:
            self._waited += self._clock() - self._began
            self._began = self._task = None
        if message["type"] == "http.request":
            self._is_complete = not message.get("more_body", False)
            self._bytes += len(message.get("body", b""))
        if self._bytes >= _RATE * self._waited:
            self._bytes, self._waited = 0, 0.0
        return message

    def _raise_failure(self, task: asyncio.Task[Any] | None) -> None:
        """Raise the failure if that is why the task was cancelled."""
        if self._failure is not None and task is not None:
            task.uncancel()
            raise copy(self._failure) from None

    def idle_since(self) -> float | None:
        """Return since when it has been too slow, by the clock; None if the client has to wait."""
        return None if self._began is None else self._began - self._waited

    def is_stalled(self) -> bool:
        """Whether the client has been too slow for some time, although the gateway waits for it."""
        since = self.idle_since()
        return since is not None and self._clock() - since >= _STALLED_SECONDS

    def refuse(self, error: Exception) -> None:
        """End it, unless it is complete: the reader of the body raises `error`."""
        if self._failure is None and not self._is_complete:
            self._failure = error
            if self._task is not None:
                self._task.cancel()


def arrival_of(scope: HTTPScope) -> Arrival | None:
    """Return what is known of a request's body; None if it has none, or the server does not say."""
    state: dict[str, Any] | None = scope.get("state")
    found = None if state is None else state.get(_STATE)
    return found if isinstance(found, Arrival) else None
